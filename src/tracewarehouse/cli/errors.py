"""The one place where errors become a line on stderr, a hint and an exit code."""

from __future__ import annotations

import errno
import sys
import traceback
from dataclasses import dataclass

import click

from tracewarehouse.errors import TwError, is_interrupt

INTERRUPTED = 130
_SYSTEM_HINTS = {
    errno.ENOSPC: "free some space, or put the warehouse elsewhere with --warehouse",
    errno.EDQUOT: "free some space, or put the warehouse elsewhere with --warehouse",
    errno.EFBIG: "raise the limit on file size (ulimit -f), or put the warehouse elsewhere with --warehouse",
    errno.EACCES: "check who owns the file or folder and what its permissions are",
    errno.EPERM: "check who owns the file or folder and what its permissions are",
    errno.EROFS: "put the warehouse on a disk that can be written, with --warehouse",
    errno.EMFILE: "raise the limit on open files (ulimit -n), or use fewer --jobs",
}


class Misplaced(click.NoSuchOption):
    """An option that `tw` itself does not take; the hint says which command does."""

    def __init__(self, name: str, hint: str, ctx: click.Context) -> None:
        super().__init__(name, ctx=ctx)
        self.hint = hint


@dataclass(frozen=True)
class Failure:
    """An error as people meet it."""

    kind: str
    message: str
    hint: str | None
    exit_code: int


def failure(error: BaseException) -> Failure:
    """What to tell about `error`, and the exit code it means."""
    if isinstance(error, TwError):
        return Failure(type(error).__name__, error.message, error.hint, error.exit_code)
    if isinstance(error, click.UsageError):
        return Failure("UsageError", error.format_message(), _usage_hint(error), error.exit_code)
    if isinstance(error, click.ClickException):
        return Failure(type(error).__name__, error.format_message(), None, error.exit_code)
    if is_interrupt(error) or isinstance(error, click.Abort):
        return Failure("Interrupted", "interrupted", "what was published before is whole", INTERRUPTED)
    if isinstance(error, OSError):
        hint = _SYSTEM_HINTS.get(error.errno or 0, "run again with --debug to see where it happened")
        return Failure("SystemError", _system_message(error), hint, 1)
    if type(error).__module__ in ("duckdb", "_duckdb"):
        # Told by name: importing the engine to name its errors would make every start slow.
        return Failure(
            "EngineError", str(error).partition("\n")[0], "run again with --debug to see the rest", 1
        )
    if isinstance(error, MemoryError):
        return Failure("MemoryError", "out of memory", "use fewer --jobs, or choose fewer runs or ranks", 1)
    hint = "this is a fault in tw: please report it with what --debug shows"
    return Failure(type(error).__name__, f"unexpected {type(error).__name__}: {error}", hint, 1)


def report(told: Failure, error: BaseException, *, debug: bool) -> None:
    """Writes the error to stderr, on one line, and its hint."""
    from tracewarehouse.render.output import error_lines

    if debug:
        traceback.print_exception(error, file=sys.stderr)
    sys.stderr.write(error_lines(told.message, told.hint))


def _usage_hint(error: click.UsageError) -> str | None:
    if isinstance(error, Misplaced):
        return error.hint
    return f"{error.ctx.command_path} --help" if error.ctx is not None else None


def _system_message(error: OSError) -> str:
    what = error.strerror or str(error) or type(error).__name__
    places = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{' -> '.join(places)}: {what}" if places else what
