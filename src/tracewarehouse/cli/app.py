"""`tw`: the commands, made only when called, and the way from a command line to an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from io import TextIOWrapper

import click

from tracewarehouse.cli.session import Session, examples
from tracewarehouse.errors import TwError, is_interrupt

SECTIONS: dict[str, dict[str, str]] = {
    "Take in": {"ingest": "ingest:ingest"},
    "Ask": {
        "report": "show:report",
        "show": "show:show",
        "check": "check:check",
        "diff": "diff:diff",
        "history": "history:history",
        "query": "shell:query",
        "shell": "shell:shell",
        "runs": "runs:runs",
        "info": "runs:info",
        "list": "contracts:list_",
        "describe": "contracts:describe",
        "sql": "contracts:sql",
        "export": "export:export",
    },
    "Work out": {
        "derive": "derive:derive",
        "whatif": "derive:whatif",
    },
    "Keep": {
        "record": "history:record",
        "label": "runs:label",
        "remove": "maintenance:remove",
        "verify": "maintenance:verify",
        "clean": "maintenance:clean",
        "refresh": "maintenance:refresh",
        "upgrade": "maintenance:upgrade",
    },
    "Tools": {
        "demo": "demo:demo",
        "simulate": "simulate:simulate",
        "completion": "shell:completion",
        "dev": "dev:dev",
    },
}
_PLACES = {name: place for section in SECTIONS.values() for name, place in section.items()}


class Commands(click.Group):
    """The group `tw`; imports the module of a command when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return list(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        if cmd_name not in _PLACES:
            return None
        module, attribute = _PLACES[cmd_name].split(":")
        command = getattr(import_module(f"tracewarehouse.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the options of `tw` itself; another one is told where it belongs."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if hint := _place(self, ctx, error.option_name, given):
                raise Misplaced(error.option_name, hint, ctx) from error
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command and the arguments left for it; a usage error with close names for another."""
        if args and args[0] not in _PLACES and not ctx.resilient_parsing:
            from difflib import get_close_matches

            close = get_close_matches(args[0], _PLACES, n=3)
            meant = f" (did you mean {', '.join(close)}?)" if close else ""
            ctx.fail(f"no such command: {args[0]}{meant}")
        ctx.ensure_object(Session).command = args[0]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by section."""
        width = max(map(len, _PLACES))
        for title, names in SECTIONS.items():
            commands = [(name.ljust(width), self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(name, command.get_short_help_str(90)) for name, command in commands if command]
                )


def _place(app: click.Group, ctx: click.Context, name: str, args: Sequence[str]) -> str | None:
    """Where an option that stands before the command belongs; None where no command is there to take it."""
    taking = {words: option for words, option in _options(app, ctx) if name in option.opts}
    given = next((arg for arg in args if arg in _PLACES), None)
    if taking:
        words = next((each for each in taking if given and f"{each} ".startswith(f"{given} ")), None)
        option = taking[words or next(iter(taking))]
        value = "" if option.is_flag else f" {option.make_metavar(ctx)}"
        return f"put {name} after the command: tw {words or 'COMMAND'} {name}{value}"
    return f"options come after the command: tw {given} --help lists them" if given else None


def _options(group: click.Group, ctx: click.Context, words: str = "") -> Iterator[tuple[str, click.Option]]:
    """Each option of each command below `group`, with the words that call the command."""
    for name in group.list_commands(ctx):
        command, path = group.get_command(ctx, name), f"{words} {name}".strip()
        if isinstance(command, click.Group):
            yield from _options(command, ctx, path)
        elif command is not None:
            yield from ((path, each) for each in command.params if isinstance(each, click.Option))


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from tracewarehouse.formats.kineto.native import version_line

        click.echo(version_line())
        ctx.exit()


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=examples(
        "tw ingest traces/ && tw show temporal_breakdown",
    ),
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
def app() -> None:
    """A warehouse for GPU profiler traces: a folder of traces in, answers in SQL out."""


def run(args: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; errors are told on stderr, never raised."""
    if "_TW_COMPLETE" in os.environ:
        from click.shell_completion import shell_complete

        return shell_complete(app, {}, "tw", "_TW_COMPLETE", os.environ["_TW_COMPLETE"])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A name that cannot be printed here is no reason to fail: a file name may hold any bytes.
            stream.reconfigure(errors="backslashreplace")
    session = Session(json="--json" in args, debug="--debug" in args)
    try:
        code = _invoke(list(args), session)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return _closed_pipe()
    except click.exceptions.NoArgsIsHelpError as no_command:
        no_command.show()
        return no_command.exit_code
    except BaseException as error:
        return _fail(error, session)


def _invoke(args: list[str], session: Session) -> int:
    try:
        with app.make_context("tw", args, obj=session) as ctx:
            code = app.invoke(ctx)
    except click.exceptions.Exit as done:
        return done.exit_code
    return code if isinstance(code, int) else 0


def _fail(error: BaseException, session: Session) -> int:
    told = failure(error)
    try:
        if session.json:
            session.out.failed(told.kind, told.message, told.hint)
        report(told, error, debug=session.debug)
        sys.stdout.flush()
    except BrokenPipeError:
        return _closed_pipe()
    return told.exit_code


def _closed_pipe() -> int:
    """The reader has what it wanted; nothing is left to tell."""
    # The interpreter flushes stdout once more at exit, and would complain there.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


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
