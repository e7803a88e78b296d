"""The command line. `main` is the console script `tw`."""

from __future__ import annotations

import sys
from typing import NoReturn

# Commands that use pyarrow, and compute nothing with numpy.
_NUMPY_FREE_COMMANDS = ("show", "query", "runs", "info", "list", "label", "remove")
_HELP_OPTIONS = {"-h", "--help"}
_TEXT_OPTIONS = {*_HELP_OPTIONS, "--version"}


def main() -> NoReturn:
    """Runs the command in `sys.argv` and exits with its code."""
    from tracewarehouse.cli.app import run
    from tracewarehouse.slim_imports import block_unused, import_pyarrow_without_numpy

    args = sys.argv[1:]
    if not _TEXT_OPTIONS.intersection(args):
        from tracewarehouse import memory_limits
        from tracewarehouse.errors import TwError

        try:  # libraries would crash for lack of memory
            memory_limits.check_settings()
        except TwError as error:
            sys.exit(f"tw: {error.message}\nhint: {error.hint}")
    block_unused()  # no command needs it
    if args and args[0] in _NUMPY_FREE_COMMANDS and _HELP_OPTIONS.isdisjoint(args):
        import_pyarrow_without_numpy()
    sys.exit(run(args))
