"""Options that commands share, their values in one call, and shell completion of their arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem
from msgspec import Struct

from tracewarehouse.exact_text import age_ns
from tracewarehouse.location import Location, StoreUrl, is_url, store_url

if TYPE_CHECKING:
    from tracewarehouse.cli.output import Output
    from tracewarehouse.contracts.contract import Contract
    from tracewarehouse.engines import EngineOrName
    from tracewarehouse.warehouse import Warehouse


Value = TypeVar("Value")


class LocationParam(click.Path):
    """A folder, or the URL of an object store."""

    def convert(  # type: ignore[override]
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Location:
        """The folder as it was written, or the URL; raises WarehouseError for a URL that is not supported."""
        if not is_url(value):
            return cast(Path, super().convert(value, param, ctx))
        return value if isinstance(value, StoreUrl) else store_url(value)


class ParsedParam(click.ParamType[Value]):
    """A value that `parse` reads from text; it raises ValueError with the reason if it cannot."""

    def __init__(self, name: str, parse: Callable[[str], Value]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Value:
        """The value; a usage error if the text is not valid."""
        try:
            return self.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _numbers(noun: str, text: str) -> tuple[int, ...]:
    """`3`, `0,2` or `0-3`."""
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
        if match is None:
            raise ValueError(f"{text!r} is not a {noun} or a list of {noun}s such as 0,2 or 0-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{part!r} is an empty range; write it as LOW-HIGH")
        numbers += range(first, last + 1)
    return tuple(numbers)


def _label(text: str) -> tuple[str, str]:
    """Key and value of `K=V`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"{text!r} is not a label; write K=V")
    return key.strip(), value


def _names(text: str) -> tuple[str, ...]:
    """Names separated by commas; whether they are known is checked later."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _columns(text: str) -> tuple[str, ...]:
    """`name,-sum_ns`: at least one name."""
    names = _names(text)
    if not names:
        raise ValueError("expected names of columns, separated by commas")
    return names


def _duration(text: str) -> float:
    """`90s`, `30m`, `12h`, `90d` or `2w`, in seconds; a bare number is seconds."""
    ns = age_ns(text, default_unit="s")
    if ns is None:
        raise ValueError(f"{text!r} is not a duration; use 90s, 30m, 12h, 90d or 2w")
    return ns / 1e9


def _size(text: str) -> int:
    """`500MB`, `4GB` or `1GiB`, in bytes; a bare number is bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?", text)
    if match is None:
        raise ValueError(f"{text!r} is not a size; use 500MB, 4GB or 1GiB")
    unit = (1024 if match[3] else 1000) ** " kMGT".index(match[2].replace("K", "k") or " ")
    return int(float(match[1]) * unit)


def ratio_param(most: float | None = None) -> ParsedParam[float]:
    """A ratio from 0 up to `most`, as a fraction or in percent."""

    def parse(text: str) -> float:
        text = text.strip()
        try:
            ratio = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            raise ValueError(f"{text!r} is not a ratio such as 0.01 or 1%") from None
        if not 0 <= ratio < float("inf") or most is not None and ratio > most:
            raise ValueError(f"{text!r} is not in the range from 0 to {most or 'any'}")
        return ratio

    return ParsedParam("ratio", parse)


RANKS = ParsedParam("RANKS", partial(_numbers, "rank"))
STEPS = ParsedParam("STEPS", partial(_numbers, "step"))
LABEL = ParsedParam("K=V", _label)
NAMES, COLUMNS = ParsedParam("NAMES", _names), ParsedParam("NAMES", _columns)
DURATION, SIZE = ParsedParam("DURATION", _duration), ParsedParam("SIZE", _size)
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
FORMATS = ("table", "csv", "json", "jsonl", "md", "parquet")


class Session(Struct, dict=True):
    """Values of the shared options of one call; set while the command line is parsed."""

    command: str = ""
    format: str | None = None
    output: Path | None = None
    limit: int | None = None
    top: int | None = None
    json: bool = False
    spreadsheet: bool = False
    wide: bool = False
    where: tuple[str, ...] = ()
    sort: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    left_out: dict[str, str] = {}  # run → why, of the runs that answers of the call left out
    warehouse: Location = Path("warehouse")
    runs: tuple[str, ...] = ()
    ranks: tuple[int, ...] | None = None
    debug: bool = False
    verify: bool = False
    strict_runs: bool = False
    engine_name: str = ""
    engine_address: str | None = None
    defaults: frozenset[str] = frozenset()  # names of the values that were given before the command
    place: str = ""  # the option that selects the cache, for printed commands

    @cached_property
    def out(self) -> Output:
        """The output of the command; created on first use, when all options are parsed."""
        from tracewarehouse.cli.output import Output

        return Output(**{name: getattr(self, name) for name in Output.__struct_fields__})

    def open(self) -> Warehouse:
        """The warehouse, narrowed to --run and --rank if given.

        Raises WarehouseError if there is none, UnknownName for an unknown run or rank.
        """
        from tracewarehouse.warehouse import Warehouse

        if self.engine_address is not None and self.engine_name in ("", "local"):
            raise click.UsageError("--engine-address needs --engine ray or spark")
        warehouse = Warehouse(self.warehouse, verify=self.verify)
        warehouse.noted = self.left_out
        if not self.runs and self.ranks is None:
            return warehouse
        return warehouse.select(runs=self.runs or None, ranks=self.ranks)

    def prefer_text(self) -> None:
        """Prints text in a pipe, too, unless a format or a file is given."""
        if self.format is None and self.output is None:
            self.format = "table"

    def is_chosen(self) -> bool:
        """Whether the command line selects the warehouse."""
        return "warehouse" in self.defaults or _is_given(click.get_current_context(), "warehouse")

    @contextmanager
    def engine(self, jobs: int | None = None) -> Iterator[EngineOrName]:
        """The engine of --engine, `local` without it. Raises EngineError."""
        if self.engine_name in ("", "local"):
            yield self.engine_name or "local"
            return
        from tracewarehouse.engines import engine

        with engine(self.engine_name, address=self.engine_address, jobs=jobs) as running:
            yield running

    def open_on_engine(self) -> Warehouse:
        """The warehouse of `open`, whose analyses run on the engine of --engine until the command ends."""
        warehouse = self.open()
        if not self.engine_name:  # this process reads the ranks
            return warehouse
        return warehouse.on(click.get_current_context().with_resource(self.engine()))


_pass_session = click.make_pass_decorator(Session)


# The options that commands share, by the group under which --help-all lists them.
_GROUPS: dict[str, tuple[str, ...]] = {
    "Selection": ("runs", "ranks", "verify"),
    "Rows": ("where", "sort", "columns", "top", "limit"),
    "Output": ("format", "output", "json", "wide", "spreadsheet"),
    "Engine": ("engine_name", "engine_address"),
    "General": ("warehouse", "debug", "_click_default_help", "help_all"),
}
_RARE = frozenset({"verify", "wide", "spreadsheet", "engine_name", "engine_address", "debug"})
_MOST_EXAMPLES = 3  # of the short help
_ALL = "tracewarehouse.cli.session.help_all"


class Command(click.Command):
    """A command whose short help has the everyday options, and --help-all the details and all options.

    `rare` are the names of options that few need. The details are the part of the docstring after
    a form feed.
    """

    def __init__(self, *args: Any, rare: tuple[str, ...] = (), lines: tuple[str, ...] = (), **settings: Any):
        super().__init__(*args, **settings)
        self.rare, self.lines = _RARE.union(rare), lines
        short, _, details = inspect.cleandoc(self.help or "").partition("\f")
        self.short, self.details = short.strip(), details.strip()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters, and --help-all."""
        return [*super().get_params(ctx), _HELP_ALL]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What the command does; with --help-all also the details."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(self.short)
            if self.details and is_help_all(ctx):
                formatter.write_paragraph()
                formatter.write_text(self.details)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The everyday options; with --help-all all of them, in groups."""
        group_of = {name: title for title, names in _GROUPS.items() for name in names}
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *_GROUPS)}
        for param in Command.get_params(self, ctx):  # not those of an analysis
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is None or param.name in self.rare and not is_help_all(ctx):
                continue
            shared = group_of.get(param.name or "") if is_help_all(ctx) else None
            groups[shared or "Options"].append(record)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples; with --help-all all of them, and the notes."""
        example_lines = self.lines if is_help_all(ctx) else self.lines[:_MOST_EXAMPLES]
        for text in (examples(*example_lines), self.epilog if is_help_all(ctx) else None):
            if text:
                formatter.write_paragraph()
                with formatter.indentation():
                    formatter.write_text(text)


def is_help_all(ctx: click.Context) -> bool:
    """Whether the help that is printed lists all options."""
    return _ALL in ctx.meta


def _print_help_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_help_all,
    help="Show all options, and details.",
)


def command(
    *example_lines: str, notes: str = "", parent: click.Group | None = None, **settings: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command, of the group `parent` if given, that gets the session as its first argument.

    Its help text has the examples; --help-all also the notes.
    """
    settings = {"cls": Command, "lines": example_lines, "epilog": notes and f"\b\n{notes}", **settings}
    decorate = click.command if parent is None else parent.command
    return lambda function: decorate(**settings)(_pass_session(function))


def examples(*lines: str) -> str:
    """Epilog of a help text: example command lines, not wrapped."""
    return "\n".join(["\b", "Examples:" if len(lines) > 1 else "Example:", *(f"  {line}" for line in lines)])


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of stored runs, @latest and @previous."""
    try:
        names = list(ctx.obj.open().store.runs())
    except Exception:
        names = []  # completion never prints errors
    return [CompletionItem(name) for name in (*names, "@latest", "@previous") if name.startswith(incomplete)]


def complete_analyses(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of analyses with their summaries."""
    from tracewarehouse.contracts.catalog import Catalog

    return _items(Catalog.load().analyses(), incomplete)


def complete_contracts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of tables, views and analyses with their summaries."""
    from tracewarehouse.contracts.catalog import Catalog

    catalog = Catalog.load()
    return _items((*catalog.analyses(), *catalog.views(), *catalog.tables()), incomplete)


def _items(contracts: Iterable[Contract], incomplete: str) -> list[CompletionItem]:
    matches = [contract for contract in contracts if contract.name.startswith(incomplete)]
    return [CompletionItem(match.name, help=match.summary) for match in matches]


def _store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Stores the value of a shared option in the session."""
    session = ctx.ensure_object(Session)
    session.command = ctx.command_path.removeprefix("tw ")
    if value is None or value == () or param.name is None:
        return
    if _is_given(ctx, param.name) or param.name not in session.defaults:
        setattr(session, param.name, value)


# A shared option; its value is not passed to the command.
_option = partial(click.option, expose_value=False, callback=_store)


def _is_given(ctx: click.Context, name: str) -> bool:
    """Whether the command line has the option, so that its value is neither a default nor from a variable."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _store_default(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Stores the value of an option before the command: the default of the command's option of that name."""
    if param.name is not None and _is_given(ctx, param.name):
        session = ctx.ensure_object(Session)
        setattr(session, param.name, value)
        session.defaults |= {param.name}


def _ranks(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        ctx.ensure_object(Session).ranks = tuple(sorted({rank for ranks in value for rank in ranks}))


def option_name(parameter: str) -> str:
    """The option of a parameter: `--min-effect` of `min_effect`."""
    return "--" + parameter.replace("_", "-")


def option_group(*options: Decorator) -> Decorator:
    """The options as one decorator; help texts list them in this order."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def _output_options(*hidden: str) -> Decorator:
    """The options of every command; those in `hidden` are accepted, but not listed in the help."""
    return option_group(
        _option(
            "-w",
            "--warehouse",
            type=LocationParam(path_type=Path, readable=False),
            envvar="TW_WAREHOUSE",
            default="warehouse",
            show_default=False,
            metavar="DIR",
            hidden="--warehouse" in hidden,
            help="Folder or URL. [env: TW_WAREHOUSE, default: ./warehouse]",
        ),
        _option(
            "-o",
            "--output",
            type=click.Path(path_type=Path, dir_okay=False, readable=False),
            metavar="FILE",
            hidden="--output" in hidden,
            help="Write to FILE.",
        ),
        _option(
            "--json", is_flag=True, hidden="--json" in hidden, help="Print one JSON object, also on failure."
        ),
        _option("--debug", is_flag=True, help="Show tracebacks of errors."),
    )


output_options = _output_options()
no_warehouse_options = _output_options("--warehouse")  # of commands that read no warehouse
terminal_options = _output_options("--output", "--json")  # of interactive commands

# Of the group `tw`: the defaults of the commands' options of these names.
default_options = option_group(
    click.option(
        "-w",
        "--warehouse",
        type=LocationParam(path_type=Path, readable=False),
        metavar="DIR",
        expose_value=False,
        callback=_store_default,
        help="Folder or URL; -w after the command overrides it.",
    ),
    click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=_store_default,
        help="Show tracebacks of errors.",
    ),
)

# Of commands that print rows.
result_options = option_group(
    _option(
        "-f",
        "--format",
        type=click.Choice(FORMATS),
        help="Default: by file extension, else table (terminal) or csv (pipe).",
    ),
    _option("--spreadsheet", is_flag=True, help="Escape formulas and control characters in CSV."),
    _option("--limit", type=click.IntRange(min=0), metavar="N", help="Print only the first N rows."),
    _option("--wide", is_flag=True, help="Tables: all columns and entire names, on long lines."),
    output_options,
)

# Of commands whose work can be spread.
engine_options = option_group(
    _option(
        "--engine",
        "engine_name",
        type=click.Choice(["local", "ray", "spark"]),
        help="Where tasks run. [default: this machine]",
    ),
    _option(
        "--engine-address",
        metavar="ADDRESS",
        help="HOST:PORT of Ray, or master of Spark. [default: a new one here]",
    ),
)

# Of commands that read stored files.
verify_option = _option("--verify", is_flag=True, help="Verify the SHA-256 of files read. [env: TW_VERIFY=1]")

# Of commands that answer about several runs.
strict_runs_option = _option(
    "--strict-runs", is_flag=True, help="Exit with code 4 if the answer leaves out runs."
)

# Apply to the rows of an analysis.
rows_options = option_group(
    _option("--where", multiple=True, metavar="SQL", help="Keep rows for which SQL holds (repeatable)."),
    _option("--sort", type=COLUMNS, metavar="[-]NAME,...", help="Sort by columns; - is descending."),
    _option("--columns", type=COLUMNS, metavar="NAME,...", help="Print only these columns."),
)

# For results sorted by a measure.
top_option = _option(
    "--top", type=click.IntRange(min=0), metavar="N", help="Show the N largest rows per group; sum the rest."
)

rank_option = click.option(
    "--rank",
    "ranks",
    type=RANKS,
    multiple=True,
    expose_value=False,
    callback=_ranks,
    help="Select ranks: 3, 0,2 or 0-3 (repeatable).",
)

# Select runs and ranks.
selection_options = option_group(
    _option(
        "--run",
        "runs",
        multiple=True,
        metavar="RUN",
        shell_complete=complete_runs,
        help="Select runs: name, glob, a,b, @latest or label:K=V.",
    ),
    rank_option,
    verify_option,
)
