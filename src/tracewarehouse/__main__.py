"""`python -m tracewarehouse` is `tw`."""

from __future__ import annotations

from tracewarehouse.cli import main

if __name__ == "__main__":
    main()
