"""A small SQL prompt, for where DuckDB's own shell is not installed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tracewarehouse.contracts.sql_tokens import split_statements
from tracewarehouse.errors import TwError, is_interrupt

if TYPE_CHECKING:
    from tracewarehouse.duck.engine import Connection
    from tracewarehouse.render.output import Output

_WELCOME = "SQL, read-only; a statement ends with ;  .help says more, .quit ends."
_HELP = """\
SELECT …;   a statement may take several lines, and ends with ;
FROM tw_help;   every table, view and analysis, with columns and units
.tables     their names
.help       this
.quit       the end, as Ctrl-D; Ctrl-C drops what is typed, or stops a query
"""
_TABLES = "SELECT DISTINCT kind, name, summary FROM tw_help ORDER BY kind, name"
_COMMANDS = {".tables", ".help", ".quit", ".exit"}
_LOOK_S = 0.2


def prompt(out: Output, path: Path, root: Path) -> int:
    """Answers statements from stdin over the DuckDB file at `path`, which stands for the warehouse at `root`.

    On a terminal with a prompt and a history that is kept nowhere. The exit code: 1 where a statement of a
    pipe failed.
    """
    from tracewarehouse.duck.engine import connect
    from tracewarehouse.query.sandbox import lock

    interactive = sys.stdin.isatty()
    if interactive:
        with suppress(ImportError):
            import readline  # noqa: F401
        print(_WELCOME)
    failed = False
    with connect(database=path, read_only=True) as con:
        lock(con, root / "data")
        for statement in _statements(interactive):
            if statement in (".quit", ".exit"):
                break
            failed |= not _answer(out, con, statement)
    return 1 if failed and not interactive else 0


def _statements(interactive: bool) -> Iterator[str]:
    """Each statement and each command with a dot, as it is typed; at the end of a pipe what is left, too."""
    typed = ""
    while True:
        try:
            line = _line(interactive, fresh=not typed.strip())
        except KeyboardInterrupt:
            print()
            typed = ""
            continue
        if line is None:
            break
        if not typed.strip() and line.strip().startswith("."):
            yield line.strip().rstrip(";")
            continue
        done, typed = split_statements(f"{typed}{line}\n")
        yield from done
    if typed.strip() and not interactive:
        yield typed.strip()


def _line(interactive: bool, fresh: bool) -> str | None:
    """The next line, None at the end."""
    if not interactive:
        return sys.stdin.readline() or None
    try:
        with _looking_for_interrupts():
            return input("tw> " if fresh else "  > ")
    except EOFError:
        print()
        return None


@contextmanager
def _looking_for_interrupts() -> Iterator[None]:
    """A Ctrl-C after the prompt and before the wait for a key does not end that wait: another signal does."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _answer(out: Output, con: Connection, statement: str) -> bool:
    """Shows what a statement gives, or in one line why it does not; whether it did."""
    try:
        if statement == ".help":
            sys.stdout.write(_HELP)
        elif statement.startswith(".") and statement not in _COMMANDS:
            raise TwError(f"no such command: {statement}; .help lists them")
        else:
            _show(out, con, _TABLES if statement == ".tables" else statement)
    except TwError as error:
        out.notice(f"tw: {error.message}")
        return False
    except BaseException as error:
        if not is_interrupt(error):
            raise
        out.notice("tw: interrupted")
        return False
    sys.stdout.flush()
    return True


def _show(out: Output, con: Connection, sql: str) -> None:
    from tracewarehouse.duck.engine import query
    from tracewarehouse.query.sandbox import check_reads_only
    from tracewarehouse.result import Provenance, Result
    from tracewarehouse.version import __version__

    check_reads_only(con, sql)
    out.show(Result(query(con, sql), Provenance(__version__, (), sql=sql)))
