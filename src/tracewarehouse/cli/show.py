"""`tw show`: any analysis, its parameters as options from its contract."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracewarehouse.cli.complete import complete_analyses, complete_runs
from tracewarehouse.cli.session import (
    Session,
    choosing_options,
    examples,
    output_options,
    pass_session,
    rank_option,
    result_options,
    top_option,
)
from tracewarehouse.errors import TwError

if TYPE_CHECKING:
    from tracewarehouse.contracts.contract import Contract
    from tracewarehouse.contracts.params import Param


_CONTRACT = "tracewarehouse.contracts.contract"


class AnalysisCommand(click.Command):
    """A command whose last options come from the contract of the analysis it is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Finds the analysis among the arguments first, for its parameters decide how to read the rest."""
        try:
            ctx.meta[_CONTRACT] = _named(self._words(args))
        except TwError:
            if not ctx.resilient_parsing and not _wants_help(args):
                raise
        return super().parse_args(ctx, args)

    def _words(self, args: list[str]) -> list[str]:
        """The arguments that are neither options nor values of the options known so far."""
        options = [each for each in self.params if isinstance(each, click.Option) and not each.is_flag]
        with_value = {name for option in options for name in option.opts}
        after = [None, *args]
        return [
            arg
            for arg, before in zip(args, after, strict=False)
            if arg[:1] != "-" and before not in with_value
        ]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The shared options, then those of the analysis."""
        contract: Contract | None = ctx.meta.get(_CONTRACT)
        return [*super().get_params(ctx), *map(_option, contract.params if contract else ())]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """With an analysis its summary, without one all there are."""
        contract: Contract | None = ctx.meta.get(_CONTRACT)
        if contract is not None:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(f"{contract.ref}: {contract.summary}")
            return
        super().format_help_text(ctx, formatter)
        from tracewarehouse.contracts.catalog import Catalog

        if analyses := [(each.name, each.summary) for each in Catalog.load().analyses()]:
            with formatter.section("Analyses"):
                formatter.write_dl(analyses)


@click.command(
    cls=AnalysisCommand,
    epilog=examples(
        "tw show temporal_breakdown",
        "tw show temporal_breakdown --help",
        "tw show kernel_summary --run fp8-on --rank 0-3 --top 10",
        "tw show launch_stats --run @latest --format csv > launches.csv",
    ),
)
@click.argument("name", metavar="NAME[@VERSION]", shell_complete=complete_analyses)
@choosing_options
@top_option
@result_options
@pass_session
def show(session: Session, /, name: str, **values: str | None) -> None:
    """Run an analysis over all runs, or those chosen with --run and --rank."""
    given: dict[str, Any] = {key: value for key, value in values.items() if value is not None}
    warehouse = session.open()
    session.out.check_top(warehouse.catalog.get(name, kind="analysis"))
    result = warehouse.run(name, **given)
    session.out.show(result, of_ranks=sum(len(each.ranks) for each in warehouse.selected()))


def _named(words: list[str]) -> Contract | None:
    """The analysis that one of `words` names; raises UnknownName if there are words and none does."""
    from tracewarehouse.contracts.catalog import Catalog

    catalog = Catalog.load()
    known = {ref.name for ref in catalog.refs("analysis")}
    found = next((word for word in words if word.partition("@")[0] in known), words[0] if words else None)
    return catalog.get(found, kind="analysis") if found is not None else None


def _wants_help(args: list[str]) -> bool:
    return "--help" in args or "-h" in args


def _option(param: Param) -> click.Option:
    """The option of a parameter; its value is checked by the contract, like one from Python."""
    return click.Option(
        ["--" + param.name.replace("_", "-"), param.name],
        metavar=_metavar(param),
        help=param.doc + ("" if param.default is None else f"  [default: {param.default}]"),
        shell_complete=_choices(param),
    )


def _metavar(param: Param) -> str:
    if param.choices:
        return "[" + "|".join(map(str, param.choices)) + "]"
    return "DURATION" if param.unit == "ns" else param.type


def _choices(param: Param) -> Any:
    texts = [str(choice) for choice in param.choices]
    return lambda ctx, option, incomplete: [text for text in texts if text.startswith(incomplete)]


@click.command(
    epilog=examples(
        "tw report fp8-on",
        "tw report @latest -o look.html",
        "tw report fp8-off fp8-on",
    )
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.argument("head_run", metavar="[HEAD]", required=False, shell_complete=complete_runs)
@click.option("--anyway", is_flag=True, help="Compare what is not comparable.")
@rank_option
@output_options
@pass_session
def report(session: Session, /, run: str, head_run: str | None, anyway: bool) -> None:
    """Write one HTML page on a run: what its GPUs did, what held them up, what is not known.

    With HEAD, on what changed from RUN to it: the verdict, an account of the change, what moved. The page
    opens offline and asks nothing of any network. It goes to RUN.html, or RUN-HEAD.html, unless -o names a
    file; `-o -` is stdout.
    """
    from tracewarehouse.plot import check_installed
    from tracewarehouse.render.output import check_writable

    check_installed()  # before the work
    if session.output is not None and str(session.output) != "-":
        check_writable(session.output)
    page = session.open().report(run, head_run, anyway=anyway, say=session.out.notice)
    path = session.output or Path(f"{page.name}.html")
    session.out.notice("drawing")
    out = replace(session.out, path=None if str(path) == "-" else path)
    out.pour(page.html(), {"sections": len(page.sections)})
