"""The command line. `main` is the console script `tw`."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

from tracewarehouse import slim_imports

# Commands that use pyarrow, and compute nothing with numpy.
_NUMPY_FREE_COMMANDS = {"show", "query", "runs", "info", "list", "label", "remove"}
_TEXT_OPTIONS = {"-h", "--help", "--version"}
# A command is short and its records live to its end: looking for cycles among them more often frees nothing.
_GC_THRESHOLD = 100_000


def main() -> NoReturn:
    """Runs the command in `sys.argv` and exits with its code."""
    # Before numpy is imported: starting a thread for each core takes longer than all its work here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(_GC_THRESHOLD)
    if sys.argv[1:2] == ["ingest"]:
        from tracewarehouse import memory_limits

        memory_limits.reuse_memory()
    slim_imports.install(numpy=not _NUMPY_FREE_COMMANDS.intersection(sys.argv[1:2]))
    from tracewarehouse.cli.app import run

    args = sys.argv[1:]
    if not _TEXT_OPTIONS.intersection(args):
        from tracewarehouse import memory_limits
        from tracewarehouse.errors import TwError

        try:  # libraries would crash for lack of memory
            memory_limits.check_settings()
        except TwError as error:
            sys.exit(f"tw: {error.message}\nhint: {error.hint}")
    _exit(run(args))


def _exit(code: int) -> NoReturn:
    """Ends the process as `sys.exit` does, but lets the system free what its modules hold."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()  # ends workers, deletes temporary folders
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
