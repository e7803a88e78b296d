"""`tw shell`: the DuckDB shell, or a prompt; `tw query`, `tw serve`, `tw mcp`, `tw help`, `tw completion`."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import click

from tracewarehouse import hints
from tracewarehouse.cli.session import (
    DURATION,
    SIZE,
    Command,
    Session,
    command,
    engine_options,
    no_warehouse_options,
    result_options,
    selection_options,
    strict_runs_option,
    terminal_options,
    verify_option,
)
from tracewarehouse.contracts.sql_tokens import split_statements
from tracewarehouse.errors import MissingExtra, TwError, UnknownName, is_interrupt
from tracewarehouse.limits import Limits

if TYPE_CHECKING:
    from tracewarehouse.cli.output import Output
    from tracewarehouse.duck.engine import Connection


@command(
    "tw shell",
    "tw shell --run @latest",
    'tw shell -- -c "FROM tw_help"',
    'echo "FROM temporal_breakdown;" | tw shell --rank 0',
    context_settings={"ignore_unknown_options": True},
)
@click.argument("args", metavar="[-- DUCKDB_ARGS]...", nargs=-1, type=click.UNPROCESSED)
@selection_options
@terminal_options
def shell(session: Session, /, args: tuple[str, ...]) -> int:
    """Open a read-only DuckDB shell on the warehouse.

    It has a view for each table, and a view and a macro for each analysis; FROM tw_help lists them.

    \fOf a table, kernels_of('fp8-on') reads only the files of one run. With --run or --rank they contain only
    the selection, in a temporary file. Without the duckdb command, which pip install 'tracewarehouse[shell]'
    installs, a built-in prompt is used.
    """
    # The duckdb command of this environment, else of the PATH.
    installed = Path(sys.executable).parent / "duckdb"
    program = str(installed) if os.access(installed, os.X_OK) else shutil.which("duckdb")
    if program is None and args:
        raise TwError(
            "arguments after -- need the duckdb command, which is not installed",
            "pip install 'tracewarehouse[shell]'",
        )
    warehouse = session.open()
    with warehouse.shell_file(session.out.notice) as path:
        if program is not None:
            return _run([program, "-readonly", str(path), *args])

        return prompt(session.out, path, warehouse.store.folder)


def _run(command: Sequence[str]) -> int:
    """Runs the shell; signals are left to it, so that its file is deleted only after it has ended."""
    with subprocess.Popen(command) as running:
        handlers = {
            signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
            signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: running.terminate()),
        }
        try:
            return running.wait()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)


@command(
    'tw query "SELECT name, sum(dur_ns) AS sum_ns FROM kernels GROUP BY name ORDER BY sum_ns DESC"',
    'tw query --run fp8-on "SELECT count(*) FROM events"',
    'tw query "SELECT cause, sum(idle_ns) FROM idle_intervals GROUP BY ALL"',
    "tw sql temporal_breakdown | tw query -",
    'tw query --timeout 5m --memory 4GB "FROM events" -o events.parquet',
    'tw query --engine ray "SELECT name, sum(dur_ns) FROM kernels GROUP BY name"',
)
@click.argument("sql", metavar="SQL")
@click.option(
    "--max-rows",
    type=click.IntRange(min=0),
    metavar="N",
    help="Row limit; 0: none. [default: 100000; none with -o]",
)
@click.option("--timeout", type=DURATION, default="30s", help="Time limit; 0s: none.")
@click.option("--memory", type=SIZE, default="1GB", help="Memory limit; 0: none.")
@engine_options
@selection_options
@strict_runs_option
@result_options
def query(session: Session, /, sql: str, max_rows: int | None, timeout: float, memory: int) -> None:
    """Run a SQL query on tables, views and analyses.

    SQL is one SELECT, or - to read it from stdin. FROM tw_help lists all names.

    \fAn analysis is a view, and a macro with its parameters:
    FROM stream_idle(kernel_wait_ns := 10000). Queries are read-only, limited
    to the files of the selected runs, and fail beyond a limit of rows, time or
    memory; a partial result is never returned.
    """
    if max_rows is None:
        max_rows = 0 if session.output is not None else 100_000
    # Bytes that are not UTF-8 become surrogates, as in an argument.
    text = sys.stdin.buffer.read().decode("utf-8-sig", "surrogateescape") if sql == "-" else sql
    limits = Limits(max_rows or None, timeout or None, memory or None)
    result = session.open_on_engine().query(text, limits)
    session.out.print_result(result)


@command("tw mcp", "tw mcp -w s3://bucket/warehouse", "claude mcp add traces -- tw mcp -w $PWD/warehouse")
@verify_option
@terminal_options
def mcp(session: Session, /) -> None:
    """Serve the warehouse to agents (Model Context Protocol, stdio).

    A client such as Claude Code or Cursor starts it. Nothing is written.

    \fIts tools are those of tw runs, check, diff, history, list, describe, show, query and whatif, with
    recording and export_trace. SQL runs in a process that is killed beyond 30 s or 1 GB. Names from traces
    are only in JSON values. Needs the extra `mcp`.
    """
    try:
        from tracewarehouse.serve.mcp import serve
    except ModuleNotFoundError as error:
        raise MissingExtra("tw mcp needs the MCP SDK", "pip install 'tracewarehouse[mcp]'") from error
    serve(session.warehouse, session.verify)


@command(
    "tw serve",
    "tw serve traces/",
    "tw serve -w s3://bucket/warehouse --port 0",
    "tw serve --host 0.0.0.0 --token-file ~/.tw-token",
    "tw serve --socket $XDG_RUNTIME_DIR/tw.sock      # ssh -L 8642:/run/user/1000/tw.sock HOST",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--port", type=click.IntRange(0, 65_535), default=8642, help="Port; 0: a free one.")
@click.option("--host", metavar="NAME", help="Listen at this address, not only for this machine.")
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Token that readers need, in a file with mode 0600; created if missing.",
)
@click.option(
    "--socket",
    "socket_path",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Listen at a socket file (0600).",
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@verify_option
@terminal_options
def serve(
    session: Session,
    /,
    paths: tuple[str, ...],
    port: int,
    host: str | None,
    token_file: Path | None,
    socket_path: Path | None,
    no_browser: bool,
) -> None:
    """Show runs in a browser: reports, comparisons, analyses, SQL.

    It lists the runs of the warehouse and those that are added; each page is computed when it is opened.
    PATHs are traces: they are ingested into the cache, as by tw check, also those that come later.

    \fThe printed address has a token, which the browser exchanges for a cookie. Only this machine can
    connect, unless --host is given; then the connection is not encrypted, and the token is that of
    --token-file. On a machine that others use, --socket lets only you connect, also through ssh -L. SQL runs
    in a process that is killed beyond 30 s or 1 GB. /api answers programs in JSON. Needs the extra `serve`.
    """
    try:
        from tracewarehouse.serve import security
        from tracewarehouse.serve.web import Server
        from tracewarehouse.serve.web import serve as answer_requests
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "tw serve needs starlette and uvicorn", "pip install 'tracewarehouse[serve]'"
        ) from error
    from tracewarehouse.cli.paths import follow, resolve

    is_open = host is not None and host not in security.LOOPBACK
    if socket_path is not None and host is not None:
        raise click.UsageError("--socket and --host exclude each other")
    if is_open and token_file is None:
        raise click.UsageError("--host needs --token-file: others can connect")
    moves = follow(session, paths)
    next(moves)
    if resolve(session, paths, may_be_empty=True) and not session.place:
        raise click.UsageError(f"{paths[0]} is a run, and PATH a file or folder of traces")
    session.open().store.runs()  # there is a warehouse
    token = secrets.token_urlsafe(32) if token_file is None else security.token_of(token_file)
    if socket_path is not None:
        listening, address = security.unix_socket(socket_path), "http://localhost:8642"
        session.out.notice(f"listening at {socket_path}; from elsewhere: ssh -L 8642:{socket_path} HOST")
    else:
        listening, address = security.tcp_socket(host or "127.0.0.1", port)
    if is_open:
        session.out.notice("the connection is not encrypted: over a network, use ssh -L")
    listening.listen(128)
    try:
        _open(session, address, token, token_file, not (no_browser or socket_path))
        origin = ", ".join(paths) or str(session.warehouse)
        server = Server(session.warehouse, session.verify, session.place, origin)
        if paths:
            Thread(target=server.follow, args=(moves,), daemon=True).start()
        answer_requests(server, listening, token, security.names_of(host))
    finally:
        if socket_path is not None:
            socket_path.unlink(missing_ok=True)


def _open(session: Session, address: str, token: str, token_file: Path | None, may_open: bool) -> None:
    """Prints the first address, without a token of a file, and opens it on a machine with a screen."""
    if token_file is not None:
        session.out.notice(f"the token is in {token_file}")
    session.out.print_text(f"{address}/?token={'TOKEN' if token_file else token}", [])
    sys.stdout.flush()
    has_screen = sys.platform == "darwin" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    if may_open and has_screen and sys.stdout.isatty():
        import webbrowser

        from tracewarehouse.temp_folders import new_folder

        # Others can read the arguments of a browser, but not a file of this user.
        page = new_folder() / "open.html"
        page.touch(0o600)
        refresh = f'<meta http-equiv="refresh" content="0; url={address}/?token={token}">'
        page.write_text(f"<!DOCTYPE html>{refresh}", encoding="utf-8")
        webbrowser.open(page.as_uri())


@command("tw help diff", "tw help", name="help")
@click.argument("topic", metavar="[COMMAND]", required=False)
@no_warehouse_options
def help_(session: Session, /, topic: str | None) -> None:
    """Explain a command: its method, its terms and its exit codes.

    Without COMMAND, the commands that have such a text.
    """
    from tracewarehouse.cli.app import app

    ctx = click.get_current_context()
    command_names = app.list_commands(ctx)
    if topic is None:
        commands = {name: app.get_command(ctx, name) for name in command_names}
        names = [name for name, each in commands.items() if isinstance(each, Command) and each.details]
        session.out.print_text(f"tw help COMMAND explains {', '.join(names)}", [{"topics": names}])
        return
    if (subject := app.get_command(ctx, topic)) is None:
        raise UnknownName("command", topic, command_names)
    paragraphs = (subject.short, subject.details) if isinstance(subject, Command) else (subject.help or "",)
    text = "\n\n".join(filter(None, paragraphs)).replace("\b\n", "") + "\n"
    session.out.print_text(f"{text}\ntw {topic} --help-all lists its options.", [{"text": text}])


@command('eval "$(tw completion bash)"      # or add that line to ~/.bashrc')
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@no_warehouse_options
def completion(session: Session, /, shell: str) -> None:
    """Print the completion script for a shell.

    It completes commands, options, runs and analyses.
    """
    from click.shell_completion import get_completion_class

    from tracewarehouse.cli.app import app

    script = get_completion_class(shell)
    assert script is not None
    text = script(app, {}, "tw", "_TW_COMPLETE").source()
    session.out.print_text(text, [{"shell": shell, "script": text}])


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
    handler = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, _SIGNAL_INTERVAL_S, _SIGNAL_INTERVAL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


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
