"""What one call of `tw` was asked for beside the arguments of its command, and the options that say so."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tracewarehouse.cli.complete import complete_runs
from tracewarehouse.durations import age_ns

if TYPE_CHECKING:
    from tracewarehouse.render.output import Output
    from tracewarehouse.warehouse import Warehouse

Command = TypeVar("Command", bound=Callable[..., Any])
FORMATS = ("table", "csv", "json", "jsonl", "md", "parquet")


@dataclass
class Session:
    """The shared options of one call; filled while the command line is read."""

    command: str = ""
    warehouse: Path = Path("warehouse")
    runs: tuple[str, ...] = ()
    ranks: tuple[int, ...] | None = None
    format: str | None = None
    output: Path | None = None
    head: int | None = None
    top: int | None = None
    json: bool = False
    debug: bool = False

    @cached_property
    def out(self) -> Output:
        """Where the answer goes; made on first use, when all options are known."""
        from tracewarehouse.render.output import Output

        return Output(
            command=self.command,
            format=self.format,
            path=self.output,
            head=self.head,
            top=self.top,
            envelope=self.json,
        )

    def open(self) -> Warehouse:
        """The warehouse as it is asked for: narrowed to --run and --rank where they are given.

        Raises WarehouseError where there is none, UnknownName for a run or rank that is not there.
        """
        from tracewarehouse.warehouse import Warehouse

        whole = Warehouse(self.warehouse)
        if not self.runs and self.ranks is None:
            return whole
        return whole.select(runs=self.runs or None, ranks=self.ranks)


pass_session = click.make_pass_decorator(Session)


def examples(*lines: str) -> str:
    """The end of a help text: lines to try, kept as they are."""
    return "\n".join(["\b", "Examples:" if len(lines) > 1 else "Example:", *(f"  {line}" for line in lines)])


class RankList(click.ParamType[tuple[int, ...]]):
    """`3`, `0,2` or `0-3`."""

    name = "RANKS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The ranks that `value` names; a usage error for anything else."""
        ranks: list[int] = []
        for part in str(value).split(","):
            match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
            if match is None:
                self.fail(f"{value!r} is no rank, nor a list like 0,2 or 0-3", param, ctx)
            ranks += range(int(match[1]), int(match[2] or match[1]) + 1)
        if not ranks:
            self.fail(f"{value!r} holds no rank: the first comes first", param, ctx)
        return tuple(ranks)


class Pair(click.ParamType[tuple[str, str]]):
    """`K=V`, a label."""

    name = "K=V"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Key and value; a usage error where there is no `=` or no key."""
        key, equals, text = str(value).partition("=")
        if not equals or not key.strip():
            self.fail(f"{value!r} is no label: K=V", param, ctx)
        return key.strip(), text


class Duration(click.ParamType[float]):
    """`90s`, `30m`, `12h`, `90d` or `2w`, in seconds; a bare number is seconds."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds; a usage error for anything else."""
        ns = age_ns(str(value), default_unit="s")
        if ns is None:
            self.fail(f"{value!r} is not a duration; use 90s, 30m, 12h, 90d or 2w", param, ctx)
        return ns / 1e9


def _option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """A shared option: its value goes to the session, not to the command."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        session = ctx.ensure_object(Session)
        session.command = ctx.command_path.removeprefix("tw ")
        if value is not None and value != () and param.name is not None:
            setattr(session, param.name, value)

    return click.option(*names, expose_value=False, callback=keep, **settings)


def _ranks(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        ctx.ensure_object(Session).ranks = tuple(sorted({rank for ranks in value for rank in ranks}))


def output_options(command: Command) -> Command:
    """Adds what every command takes: the warehouse, where the answer goes, how an error looks."""
    for add in (
        _option("--debug", is_flag=True, help="Show tracebacks."),
        _option("--json", is_flag=True, help="Print one JSON envelope, on failure too."),
        _option(
            "-o",
            "--output",
            type=click.Path(path_type=Path, dir_okay=False, readable=False),
            metavar="FILE",
            help="Write to FILE instead of stdout.",
        ),
        _option(
            "-w",
            "--warehouse",
            type=click.Path(path_type=Path, readable=False),
            envvar="TW_WAREHOUSE",
            default=Path("warehouse"),
            show_default="./warehouse",
            show_envvar=True,
            metavar="DIR",
            help="The warehouse.",
        ),
    ):
        command = add(command)
    return command


def result_options(command: Command) -> Command:
    """Adds what every command with rows takes, the options of `output_options` among it."""
    format_help = "By default the ending of --output, else a table on a terminal and CSV in a pipe."
    for add in (
        output_options,
        _option("--head", type=click.IntRange(min=0), metavar="N", help="Print the first N rows only."),
        _option("-f", "--format", type=click.Choice(FORMATS), help=format_help),
    ):
        command = add(command)
    return command


def top_option(command: Command) -> Command:
    """Adds `--top`, for results that stand in an order of size."""
    return _option(
        "--top",
        type=click.IntRange(min=0),
        metavar="N",
        help="In a table: the first N rows of each rank and device, and the rest of them folded into one row."
        " What the rest cannot tell stays blank.",
    )(command)


def rank_option(command: Command) -> Command:
    """Adds `--rank`, which narrows what is looked at."""
    return click.option(
        "--rank",
        "ranks",
        type=RankList(),
        multiple=True,
        expose_value=False,
        callback=_ranks,
        help="Only these ranks: 3, or 0,2, or 0-3. May be given again.",
    )(command)


def choosing_options(command: Command) -> Command:
    """Adds `--run` and `--rank`, which narrow what is looked at."""
    return _option(
        "--run",
        "runs",
        multiple=True,
        metavar="RUN",
        shell_complete=complete_runs,
        help="Only this run: a name or its start, @latest, @previous, label:K=V. May be given again.",
    )(rank_option(command))
