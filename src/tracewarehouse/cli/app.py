"""`tw`: the commands, made only when called, and the way from a command line to an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from io import TextIOWrapper

import click

from tracewarehouse.cli.errors import Misplaced, failure, report
from tracewarehouse.cli.session import Session, examples

SECTIONS: dict[str, dict[str, str]] = {
    "Take in": {"ingest": "ingest:ingest"},
    "Ask": {
        "report": "report:report",
        "show": "show:show",
        "check": "check:check",
        "diff": "diff:diff",
        "history": "history:history",
        "query": "query:query",
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
        "remove": "remove:remove",
        "verify": "house:verify",
        "clean": "house:clean",
        "refresh": "house:refresh",
        "upgrade": "house:upgrade",
    },
    "Tools": {
        "demo": "demo:demo",
        "simulate": "simulate:simulate",
        "completion": "completion:completion",
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
