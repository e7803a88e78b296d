"""A minimal SQL prompt, used if the duckdb command is not installed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tracewarehouse import hints
from tracewarehouse.contracts.sql_tokens import split_statements
from tracewarehouse.errors import TwError, is_interrupt

if TYPE_CHECKING:
    from tracewarehouse.cli.output import Output
    from tracewarehouse.duck.engine import Connection

_WELCOME = """\
Read-only SQL; statements end with a semicolon. .help for help, .quit to exit.
This is a minimal prompt: pip install 'tracewarehouse[shell]' installs the DuckDB shell.
"""
_HELP = """\
SELECT …;      run a statement; it may span several lines
FROM tw_help;  list tables, views and analyses with columns and units
.tables        list their names
.help          show this help
.quit          exit (or Ctrl-D); Ctrl-C discards the input or interrupts a query
"""
_TABLES = "SELECT DISTINCT kind, name, summary FROM tw_help ORDER BY kind, name"
_COMMANDS = {".tables", ".help", ".quit", ".exit"}
_SIGNAL_INTERVAL_S = 0.2


def prompt(out: Output, path: Path, root: Path) -> int:
    """Runs statements from stdin on the DuckDB file at `path`, which has views over the warehouse at `root`.

    A terminal gets a prompt with a history that is not saved. Exit code 1 if a statement from a pipe failed.
    """
    from tracewarehouse.duck.engine import connect
    from tracewarehouse.query.connections import lock

    interactive = sys.stdin.isatty()
    if interactive:
        with suppress(ImportError):
            import readline  # noqa: F401
        print(_WELCOME, end="")
    failed = False
    with connect(database=path, read_only=True) as con:
        lock(con, root / "data")
        for statement in _statements(interactive):
            if statement in (".quit", ".exit"):
                break
            failed |= not _execute(out, con, statement)
    return 1 if failed and not interactive else 0


def _statements(interactive: bool) -> Iterator[str]:
    """Each statement or dot command as it is complete; at the end of a pipe also the remainder."""
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
        complete, typed = split_statements(f"{typed}{line}\n")
        yield from complete
    if typed.strip() and not interactive:
        yield typed.strip()


def _line(interactive: bool, fresh: bool) -> str | None:
    """The next line; None at the end of the input."""
    if not interactive:
        return sys.stdin.readline() or None
    try:
        with _periodic_signals():
            return input("tw> " if fresh else "  > ")
    except EOFError:
        print()
        return None


@contextmanager
def _periodic_signals() -> Iterator[None]:
    """Wakes up `input` regularly: a Ctrl-C that arrives just before it waits would not interrupt it."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, _SIGNAL_INTERVAL_S, _SIGNAL_INTERVAL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _execute(out: Output, con: Connection, statement: str) -> bool:
    """Prints the result of a statement, or its error on one line; returns whether it succeeded."""
    try:
        if statement == ".help":
            sys.stdout.write(_HELP)
        elif statement.startswith(".") and statement not in _COMMANDS:
            raise TwError(f"unknown command: {statement}; .help lists all commands")
        else:
            _print_rows(out, con, _TABLES if statement == ".tables" else statement)
    except TwError as error:
        out.notice(hints.fill("tw: {}", error.message))
        return False
    except BaseException as error:
        if not is_interrupt(error):
            raise
        out.notice("tw: interrupted")
        return False
    sys.stdout.flush()
    return True


def _print_rows(out: Output, con: Connection, sql: str) -> None:
    from tracewarehouse.duck.engine import query
    from tracewarehouse.query.connections import check_reads_only
    from tracewarehouse.result import Provenance, Result
    from tracewarehouse.version import __version__

    check_reads_only(con, sql)
    out.print_result(Result(query(con, sql), Provenance(__version__, (), sql=sql)))
