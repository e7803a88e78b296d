"""The command line. `main` is the console script `tw`."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

# Commands that use pyarrow, and compute nothing with numpy.
_NUMPY_FREE_COMMANDS = {"show", "query", "runs", "info", "list", "label", "remove"}
_MANY_RESULTS = {"check", "report"}  # commands that run dozens of analyses
_VALUE_OPTIONS = {"-w", "--warehouse", "--sql"}  # that may precede the command
# A command is short and its records live to its end: looking for cycles among them more often frees nothing.
_GC_THRESHOLD = 300_000
# Threads of an ingest compute without the interpreter, and should not wait for it longer than they compute.
_SWITCH_S = 0.0002


def main() -> NoReturn:
    """Runs the command in `sys.argv` and exits with its code."""
    # Before numpy is imported: starting a thread for each core takes longer than all its work here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(_GC_THRESHOLD)
    args = sys.argv[1:]
    command = _command(args)
    from tracewarehouse import slim_imports

    if not any(arg.endswith("spark") for arg in args):  # pyspark imports pandas
        slim_imports.install(numpy=command not in _NUMPY_FREE_COMMANDS)
    from tracewarehouse import limits

    if command == "ingest":
        limits.reuse_memory()
        sys.setswitchinterval(_SWITCH_S)
        from tracewarehouse.formats.kineto.library import scan_ahead

        scan_ahead(args)
    elif command in _MANY_RESULTS:
        limits.share_memory()
    from tracewarehouse.cli import app

    if command != "query":
        _exit(app.run(args))
    ended = limits.run_limited(lambda: _exit(app.run(args)))
    if isinstance(ended, int):
        os._exit(ended)  # the child did what is registered for the exit
    _exit(app.fail_killed(ended, args))


def _command(args: Sequence[str]) -> str:
    """The first argument that is neither an option nor its value; "" without one."""
    pairs = zip(("", *args), args, strict=False)
    return next((arg for option, arg in pairs if arg[:1] != "-" and option not in _VALUE_OPTIONS), "")


def _exit(code: int) -> NoReturn:
    """Ends the process as `sys.exit` does, but lets the system free what its modules hold."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()  # ends workers, deletes temporary folders
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
