"""The command line. `main` is the console script `tw`."""

from __future__ import annotations

import sys
from typing import NoReturn

# Commands that read and compute nothing with numpy.
_READERS = ("show", "query", "runs", "info", "list", "describe", "sql", "label", "remove")


def main() -> NoReturn:
    """Runs the command in `sys.argv` and exits with its code."""
    from tracewarehouse.cli.app import run
    from tracewarehouse.lean import leave_out, load_pyarrow_without_numpy

    leave_out("pandas")  # no command needs it
    if sys.argv[1:2] and sys.argv[1] in _READERS:
        load_pyarrow_without_numpy()
    sys.exit(run(sys.argv[1:]))
