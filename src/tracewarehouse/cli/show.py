"""`tw show`: runs an analysis, with its parameters as options; `tw report`: writes an HTML report."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from tracewarehouse.cli.paths import resolve
from tracewarehouse.cli.session import (
    Command,
    Session,
    command,
    complete_analyses,
    complete_runs,
    engine_options,
    examples,
    is_help_all,
    option_name,
    output_options,
    rank_option,
    result_options,
    rows_options,
    selection_options,
    strict_runs_option,
    top_option,
    verify_option,
)
from tracewarehouse.errors import TwError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tracewarehouse.contracts.contract import Contract, Param
    from tracewarehouse.result import Result


_CONTRACT_KEY = "tracewarehouse.contracts.contract"


class UnexpectedArgument(click.UsageError):
    """An argument besides the analysis: most likely a run."""

    def __init__(self, text: str, analysis: str) -> None:
        super().__init__(f"unexpected argument: {text}")
        self.hint = f"select runs with --run: tw show {analysis} --run {quote(text)}"


class AnalysisCommand(Command):
    """A command with additional options from the contract of the analysis among its arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Finds the analysis first: its parameters decide how the other arguments are parsed."""
        words = self._positional(args)
        try:
            ctx.meta[_CONTRACT_KEY] = contract = _find_analysis(words)
            if contract is not None:  # the options that the analysis adds have values, too
                args = _with_values(args, contract)
                words = self._positional(args, {option_name(param.name) for param in contract.params})
            extra = [
                word for word in words if contract is not None and word.partition("@")[0] != contract.name
            ]
            if contract and extra and not (ctx.resilient_parsing or self._may_be_value(ctx, extra[0], args)):
                raise UnexpectedArgument(extra[0], contract.name)
        except TwError:
            is_lenient = ctx.resilient_parsing or {"-h", "--help", "--help-all"}.intersection(args)
            if not (is_lenient or self._may_be_value(ctx, words[0], args)):
                raise
        return super().parse_args(ctx, args)

    def _may_be_value(self, ctx: click.Context, word: str, args: list[str]) -> bool:
        """Whether an option before `word` does not exist: that is the error, as `word` may be its value."""
        option_names = {name for param in self.get_params(ctx) for name in param.opts}
        given_options = {arg.partition("=")[0] for arg in args[: args.index(word)] if arg.startswith("--")}
        return not given_options <= option_names

    def _positional(self, args: list[str], added: Collection[str] = ()) -> list[str]:
        """The arguments that are neither options nor values of the command's own or `added` options."""
        options = [param for param in self.params if isinstance(param, click.Option) and not param.is_flag]
        with_value = {*(name for option in options for name in option.opts), *added}
        previous = [None, *args]
        return [
            arg
            for arg, before in zip(args, previous, strict=False)
            if arg[:1] != "-" and before not in with_value
        ]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own parameters, then those of the analysis."""
        contract: Contract | None = ctx.meta.get(_CONTRACT_KEY)
        return [*super().get_params(ctx), *map(_option, contract.params if contract else ())]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The summary of the analysis if there is one, else the command's own text."""
        contract: Contract | None = ctx.meta.get(_CONTRACT_KEY)
        if contract is None:
            super().format_help_text(ctx, formatter)
            return
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"{contract.ref}: {contract.summary}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The parameters of the analysis, then the options; all analyses for --help-all without one."""
        contract: Contract | None = ctx.meta.get(_CONTRACT_KEY)
        if contract is not None and contract.params:
            records = (_option(param).get_help_record(ctx) for param in contract.params)
            with formatter.section("Parameters"):
                formatter.write_dl([record for record in records if record is not None])
        super().format_options(ctx, formatter)
        if contract is None and is_help_all(ctx):
            _write_analyses(formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, of the command or of the analysis."""
        contract: Contract | None = ctx.meta.get(_CONTRACT_KEY)
        if contract is None:
            super().format_epilog(ctx, formatter)
            return
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(examples(self._example(contract)))

    def _example(self, contract: Contract) -> str:
        return f"tw show {contract.name} --run @latest"


@command(
    "tw show temporal_breakdown",
    "tw show temporal_breakdown --help",
    "tw show kernel_summary --run fp8-on --rank 0-3 --top 10",
    "tw show launch_stats --run @latest --format csv > launches.csv",
    "tw show stragglers --run @latest --engine ray",
    cls=AnalysisCommand,
)
@click.argument("name", metavar="NAME[@VERSION]", shell_complete=complete_analyses)
@selection_options
@strict_runs_option
@top_option
@rows_options
@engine_options
@result_options
def show(session: Session, /, name: str, **values: str | None) -> None:
    """Run an analysis on all runs, or on a selection.

    NAME is an analysis; tw show NAME --help lists its parameters.
    """
    params: dict[str, Any] = {key: value for key, value in values.items() if value is not None}
    warehouse = session.open_on_engine()
    session.out.check_top(warehouse.catalog.get(name, kind="analysis"))
    result = warehouse.selection.analyze(name, **params)
    # The runs are read again where the number of ranks is printed.
    selected = warehouse.selected() if result.skipped or not len(result) else ()
    ranks = sum(len(run.ranks) for run in selected)
    session.out.print_result(result, of_ranks=ranks, as_text=_as_printed(session, result))
    if ranks and not len(result) and (hint := _why_empty(result, name)):
        session.out.notice(f"hint: {hint}")


def _as_printed(session: Session, result: Result) -> Callable[[Result], str] | None:
    """How PyTorch prints the same table; None for other analyses, and for a choice of rows or columns."""
    out, contract = session.out, result.contract
    if out.resolved_format != "table" or out.columns or out.top is not None or contract is None:
        return None
    from tracewarehouse.present.render.table import AS_PRINTED

    text = AS_PRINTED.get(contract.name)
    return None if text is None else lambda shown: text(shown.rows(), result.rows())


def _why_empty(result: Result, name: str) -> str | None:
    """What to run instead of an analysis without rows; None if the reasons of skipped ranks suffice."""
    if any("no GPU activities" in rank.reason for rank in result.skipped):
        from tracewarehouse.ingest.outcome import HOST_ANALYSIS

        return f"without GPU activities, tw show {HOST_ANALYSIS} shows where host time went"
    if result.skipped:
        return None
    if result.contract is not None and result.contract.empty:
        return result.contract.empty
    return f"the data has no such row; tw describe {name} lists what a row is"


def _write_analyses(formatter: click.HelpFormatter) -> None:
    """The names of all analyses by group."""
    from tracewarehouse.contracts.catalog import Catalog

    names: dict[str, list[str]] = {}
    for analysis in Catalog.load().analyses():
        names.setdefault(analysis.group or "other", []).append(analysis.name)
    if names:
        with formatter.section("Analyses (tw list --kind analysis describes them)"):
            formatter.write_dl([(group, ", ".join(members)) for group, members in sorted(names.items())])


def _find_analysis(words: list[str]) -> Contract | None:
    """The analysis named by one of `words`; raises UnknownName if none is known, None without words."""
    from tracewarehouse.contracts.catalog import Catalog

    catalog = Catalog.load()
    names = {ref.name for ref in catalog.refs("analysis")}
    name = next((word for word in words if word.partition("@")[0] in names), words[0] if words else None)
    return catalog.get(name, kind="analysis") if name is not None else None


def _with_values(args: Sequence[str], contract: Contract) -> list[str]:
    """The arguments, with `true` for each boolean parameter that is given without a value."""
    flags = {option_name(param.name) for param in contract.params if param.type == "BOOLEAN"}
    following = [*args[1:], ""]
    return [
        f"{arg}=true" if arg in flags and value.lower() not in ("true", "false") else arg
        for arg, value in zip(args, following, strict=True)
    ]


def _option(param: Param) -> click.Option:
    """The option of a parameter; the contract checks its value, as in Python."""
    texts = [str(choice) for choice in param.choices]
    metavar = "DURATION" if param.unit == "ns" else param.type
    return click.Option(
        [option_name(param.name), param.name],
        metavar=f"[{'|'.join(texts)}]" if texts else metavar,
        help=param.doc + ("" if param.default is None else f"  [default: {param.default}]"),
        shell_complete=lambda ctx, option, typed: [text for text in texts if text.startswith(typed)],
    )


@command(
    "tw report traces/",
    "tw report fp8-on",
    "tw report @latest -o report.html",
    "tw report fp8-off fp8-on",
    "tw report --runs label:sweep=batch --metric memory_peak.peak_bytes -o runs.html",
    "tw report fp8-on -w s3://bucket/warehouse --engine ray --engine-address auto",
)
@click.argument("run", metavar="[RUN|PATH]", required=False, shell_complete=complete_runs)
@click.argument("head_run", metavar="[HEAD|PATH]", required=False, shell_complete=complete_runs)
@click.option(
    "--runs",
    "many",
    multiple=True,
    metavar="RUN",
    shell_complete=complete_runs,
    help="A page over these runs, one row each (repeatable).",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="METRIC",
    help="With --runs: a column for this metric, as in tw history.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@engine_options
@verify_option
@strict_runs_option
@rank_option
@output_options
def report(
    session: Session,
    /,
    run: str | None,
    head_run: str | None,
    many: tuple[str, ...],
    metrics: tuple[str, ...],
    opens: bool,
) -> None:
    """Write a self-contained HTML report for a run or for traces.

    With HEAD, the report compares RUN with HEAD; with --runs, it has a row per run. The page makes no
    network requests unless you click.

    \fIt is written to RUN.html,
    RUN-HEAD.html or runs.html, or to the file given by -o; `-o -` writes to stdout.
    """
    from tracewarehouse.cli.output import check_writable

    if run is None and not many:
        raise click.MissingParameter("Give a RUN, or --runs.", param_type="argument", param_hint="RUN")
    if run is not None and many:
        raise click.UsageError("Give a RUN or --runs, not both.")
    if metrics and not many:
        raise click.UsageError("--metric is for a page on many runs: add --runs.")
    if opens and str(session.output) == "-":
        raise click.UsageError("--open opens a file: give another -o.")
    if session.output is not None and str(session.output) != "-":
        check_writable(session.output)
    given_runs = [each for each in (run, head_run) if each is not None]
    sides = resolve(session, given_runs, by_name=head_run is not None)
    run, head_run = [*sides, None, None][:2]
    if session.place and head_run is None and "," in sides[0]:  # traces of several runs
        run, many = None, sides
    warehouse = session.open_on_engine()
    notify = session.out.notice if sys.stderr.isatty() else None  # logs do not need progress
    if run is None:
        page = warehouse.report_runs(many, metrics=metrics, notify=notify)
    else:
        page = warehouse.report(run, head_run, notify=notify)
    path = session.output or Path(f"{page.name}.html")
    page = replace(page.linked(path.parent), place=session.place)
    out = replace(session.out, output=None if str(path) == "-" else path)
    out.print_stream(page.html(), {"sections": len(page.sections)})
    if opens:
        import webbrowser

        webbrowser.open(path.absolute().as_uri())
