"""`tw`: the commands, loaded on demand, and the errors and exit codes of a call."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from io import TextIOWrapper
from typing import NamedTuple

import click

from tracewarehouse.cli.session import Session, default_options, examples
from tracewarehouse.errors import DONE_IN_PART, StoreUnavailable, Terminated, TwError, is_interrupt
from tracewarehouse.hints import cli_text
from tracewarehouse.limits import Killed, Limits, check_settings

SECTIONS: dict[str, dict[str, str]] = {
    "Everyday": {
        "check": "check:check",
        "ingest": "ingest:ingest",
        "report": "show:report",
        "serve": "shell:serve",
        "runs": "runs:runs",
        "show": "show:show",
        "diff": "diff:diff",
        "history": "history:history",
        "record": "history:record",
        "query": "shell:query",
        "shell": "shell:shell",
        "list": "contracts:list_",
        "describe": "contracts:describe",
        "help": "shell:help_",
        "demo": "demo:demo",
    },
    "More analysis": {
        "info": "runs:info",
        "label": "runs:label",
        "sql": "contracts:sql",
        "whatif": "derive:whatif",
        "mcp": "shell:mcp",
        "derive": "derive:derive",
        "gate": "diff:gate",
        "acknowledge": "history:acknowledge",
        "open": "export:open_",
        "export": "export:export",
    },
    "Ranks and files": {
        "seal": "maintenance:seal",
        "inbox": "ingest:inbox",
        "files": "runs:files",
        "fetch": "runs:fetch",
        "remove": "maintenance:remove",
        "secrets": "maintenance:secrets",
        "verify": "maintenance:verify",
        "repair": "maintenance:repair",
    },
    "Rarely needed": {
        "clean": "maintenance:clean",
        "compact": "runs:compact",
        "expire": "runs:expire",
        "refresh": "maintenance:refresh",
        "upgrade": "maintenance:upgrade",
        "simulate": "demo:simulate",
        "completion": "shell:completion",
        "dev": "contracts:dev",
    },
}
_COMMANDS = {name: attribute for section in SECTIONS.values() for name, attribute in section.items()}


class Commands(click.Group):
    """The group `tw`; imports the module of a command on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        if cmd_name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[cmd_name].split(":")
        command = getattr(import_module(f"tracewarehouse.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the options of `tw` itself; for an option of a command, the hint says where it belongs."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if hint := _misplaced_hint(self, ctx, error.option_name, words):
                raise MisplacedOption(error.option_name, hint, ctx) from error
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command and its arguments; raises UsageError with close matches for an unknown command."""
        if args and args[0] not in _COMMANDS and not ctx.resilient_parsing:
            from difflib import get_close_matches

            renamed = _RENAMED.get(args[0])
            close = [renamed] if renamed else get_close_matches(args[0], _COMMANDS, n=3)
            suggestion = f" (did you mean {', '.join(close)}?)" if close else ""
            ctx.fail(f"no such command: {args[0]}{suggestion}")
        ctx.ensure_object(Session).command = args[0]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by section."""
        width = max(map(len, _COMMANDS))
        for title, names in SECTIONS.items():
            commands = [(name.ljust(width), self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(name, command.get_short_help_str(90)) for name, command in commands if command]
                )


def _misplaced_hint(app: click.Group, ctx: click.Context, name: str, args: Sequence[str]) -> str | None:
    """How to write an option that precedes the command; None if no command has it and none was given."""
    owners = {words: option for words, option in _options(app, ctx) if name in option.opts}
    command = next((arg for arg in args if arg in _COMMANDS), None)
    if owners:
        words = next((each for each in owners if command and f"{each} ".startswith(f"{command} ")), None)
        option = owners[words or next(iter(owners))]
        value = "" if option.is_flag else f" {option.make_metavar(ctx)}"
        return f"put {name} after the command: tw {words or 'COMMAND'} {name}{value}"
    return f"options follow the command; tw {command} --help lists them" if command else None


def _options(group: click.Group, ctx: click.Context, words: str = "") -> Iterator[tuple[str, click.Option]]:
    """Each option of each command below `group`, with the words that call the command."""
    for name in group.list_commands(ctx):
        command, path = group.get_command(ctx, name), f"{words} {name}".strip()
        if isinstance(command, click.Group):
            yield from _options(command, ctx, path)
        elif command is not None:
            yield from ((path, param) for param in command.params if isinstance(param, click.Option))


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from tracewarehouse.formats.kineto.library import version_line

        click.echo(version_line())
        ctx.exit()


def _own_folder(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        os.environ["TW_SQL"] = value  # worker processes read it, too


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True},
    epilog=examples("tw check traces/", "tw ingest traces/ && tw check @latest"),
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
@default_options
@click.option(
    "--sql",
    metavar="DIR",
    expose_value=False,
    callback=_own_folder,
    help="Folder with contracts of your own. [env: TW_SQL]",
)
def app() -> None:
    """Store GPU profiler traces and analyze them with SQL."""


def run(args: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; errors are printed to stderr, never raised."""
    if "_TW_COMPLETE" in os.environ:
        from click.shell_completion import shell_complete

        return shell_complete(app, {}, "tw", "_TW_COMPLETE", os.environ["_TW_COMPLETE"])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # File names may hold bytes that the terminal cannot print.
            stream.reconfigure(errors="backslashreplace")
    session = Session(json="--json" in args, debug="--debug" in args)
    if session.debug:
        from tracewarehouse.contracts.catalog import Catalog

        with suppress(TwError):  # the command prints it if it reads contracts
            if reason := Catalog.load().parsed_because:  # parsing slows down every command
                sys.stderr.write(f"tw: parsing the contracts: {reason}\n")
    received: list[KeyboardInterrupt] = []
    _prepare_process(received)
    try:
        if not {"-h", "--help", "--help-all", "--version"}.intersection(args):
            check_settings()  # libraries would crash for lack of memory
        try:
            with app.make_context("tw", list(args), obj=session) as ctx:
                code = app.invoke(ctx)
        except click.exceptions.Exit as done:
            code = done.exit_code
        if not code and session.strict_runs and session.left_out:
            session.out.notice(f"--strict-runs: runs left out: {len(session.left_out):,}")
            code = DONE_IN_PART
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        return _closed_pipe()
    except click.exceptions.NoArgsIsHelpError as no_command:
        no_command.show()
        return no_command.exit_code
    except BaseException as error:  # a library may raise another one for a signal
        return _fail(received[0] if received else error, session)


def _prepare_process(received: list[KeyboardInterrupt]) -> None:
    """Sets the handlers of signals, which add to `received`, and the number of open files."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        if number == signal.SIGTERM or signal.getsignal(number) is signal.default_int_handler:
            signal.signal(number, partial(_interrupt, received))
    # As many open files as the system permits: a query may open a file per table and rank.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most_files = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < most_files:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, hard))


def _interrupt(received: list[KeyboardInterrupt], number: int, _frame: object) -> None:
    """Ends the command so that temporary folders are deleted."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    received.append(Terminated() if number == signal.SIGTERM else KeyboardInterrupt())
    raise received[0]


def _fail(error: BaseException, session: Session) -> int:
    failure = failure_of(error)
    try:
        if session.json:
            session.out.print_failure(failure.kind, failure.message, failure.hint)
        print_failure(failure, error, debug=session.debug)
        sys.stdout.flush()
    except BrokenPipeError:
        return _closed_pipe()
    return failure.exit_code


def fail_killed(killed: Killed, args: Sequence[str]) -> int:
    """Prints why the child that ran the command was killed, deletes its temporary folder; the exit code."""
    from tracewarehouse.duck.engine import memory_error, time_error
    from tracewarehouse.temp_folders import delete_unused

    delete_unused()
    limits = Limits(None, killed.timeout_s, killed.memory_bytes)
    errors = {"memory": memory_error(limits), "time": time_error(limits), signal.SIGTERM: Terminated()}
    session = Session(command="query", json="--json" in args, debug="--debug" in args)
    return _fail(errors.get(killed.by, KeyboardInterrupt()), session)


def _closed_pipe() -> int:
    """Exit code 0: the reader of the pipe closed it and needs no more output."""
    # The interpreter flushes stdout once more at exit, and would fail there.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


# Some systems refuse a higher number, though the hard limit is infinite.
_MAX_FILES = 65_536
INTERRUPTED, TERMINATED = 130, 143
_SYSTEM_HINTS = {
    errno.ENOSPC: "free some space, or use a warehouse on another disk (--warehouse DIR)",
    errno.EDQUOT: "free some space, or use a warehouse on another disk (--warehouse DIR)",
    errno.EFBIG: "raise the file size limit (ulimit -f), or use another disk (--warehouse DIR)",
    errno.EACCES: "check the owner and permissions of the file or folder",
    errno.EPERM: "check the owner and permissions of the file or folder",
    errno.EROFS: "use a warehouse on a writable disk (--warehouse DIR)",
    errno.EMFILE: "raise the limit on open files (ulimit -n), or use fewer processes (--jobs N)",
}


# What to run first where an argument is missing.
_USEFUL = {
    "show": "tw show kernel_summary --run @latest; tw list --kind analysis lists the others",
    "sql": "tw sql kernel_summary; tw list lists all names",
    "describe": "tw describe kernel_summary; tw list lists all names",
    "info": "tw info @latest; tw runs lists all runs",
    "report": "tw report @latest; tw runs lists all runs",
    "diff": "tw diff @previous @latest; tw runs lists all runs",
    "history": "tw history step_time, after tw record --all",
}


# Former names of commands.
_RENAMED = {"findings": "check", "publish": "export", "retain": "expire"}


# Options that were renamed in `tw diff` or removed from it, and what there is instead.
_REMOVED = {
    "--per": "it is now --interval",
    "--same": "it is now --match-label K",
    "--spread": "it is now --noise within or --noise history",
    "--strict": "inconclusive gates exit with code 5; --allow-inconclusive makes it 0",
    "--within-run": "gates are tested with one run per side, too",
}


class MisplacedOption(click.NoSuchOption):
    """An option of a command, given before the command; the hint says where it belongs."""

    def __init__(self, name: str, hint: str, ctx: click.Context) -> None:
        super().__init__(name, ctx=ctx)
        self.hint = hint


class Failure(NamedTuple):
    """An error as it is printed."""

    kind: str
    message: str
    hint: str | None
    exit_code: int


def failure_of(error: BaseException) -> Failure:
    """Message, hint and exit code of an error."""
    if isinstance(error, TwError | StoreUnavailable):
        hint = error.hint and cli_text(error.hint)
        return Failure(type(error).__name__, cli_text(error.message), hint, error.exit_code)
    if isinstance(error, click.UsageError):
        return Failure("UsageError", error.format_message(), _usage_hint(error), error.exit_code)
    if isinstance(error, click.ClickException):
        return Failure(type(error).__name__, error.format_message(), None, error.exit_code)
    if is_interrupt(error) or isinstance(error, click.Abort):
        code = TERMINATED if isinstance(error, Terminated) else INTERRUPTED
        return Failure("Interrupted", "interrupted", "runs that were already published are intact", code)
    if isinstance(error, OSError):
        hint = _SYSTEM_HINTS.get(error.errno or 0, "rerun with --debug to see where it failed")
        return Failure("SystemError", _system_message(error), hint, 1)
    if type(error).__module__ in ("duckdb", "_duckdb"):
        # Matched by name: importing the engine for its error classes would slow down every start.
        message = str(error).partition("\n")[0]
        return Failure("EngineError", message, "rerun with --debug for the full message", 1)
    if isinstance(error, MemoryError):
        return Failure(
            "MemoryError", "out of memory", "use fewer processes (--jobs N), or select fewer runs or ranks", 1
        )
    hint = "internal error in tw; please report it with the output of --debug"
    return Failure(type(error).__name__, f"unexpected {type(error).__name__}: {error}", hint, 1)


def print_failure(failure: Failure, error: BaseException, *, debug: bool) -> None:
    """Prints the error on one line of stderr, then its hint."""
    from tracewarehouse.cli.output import error_lines

    if debug:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    sys.stderr.write(error_lines(failure.message, failure.hint))


def _usage_hint(error: click.UsageError) -> str | None:
    hint = getattr(error, "hint", None)
    if isinstance(hint, str):
        return hint
    if isinstance(error, click.NoSuchOption) and error.ctx is not None and error.ctx.info_name == "diff":
        return _REMOVED.get(error.option_name, f"{error.ctx.command_path} --help")
    if isinstance(error, click.MissingParameter) and error.ctx is not None:
        useful = _USEFUL.get(error.ctx.info_name or "")
        if useful is not None:
            return f"{useful}; {error.ctx.command_path} --help"
    return f"{error.ctx.command_path} --help" if error.ctx is not None else None


def _system_message(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    paths = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{' -> '.join(paths)}: {reason}" if paths else reason
