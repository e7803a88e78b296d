"""The command line. `main` is the console script `tw`."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Runs the command in `sys.argv` and exits with its code."""
    from tracewarehouse.cli.app import run
    from tracewarehouse.lean import leave_out

    leave_out("pandas")  # no command needs it
    sys.exit(run(sys.argv[1:]))
