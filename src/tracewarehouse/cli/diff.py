"""`tw diff`: what differs between two runs, by one analysis."""

from __future__ import annotations

from typing import Any

import click

from tracewarehouse.cli.complete import complete_analyses, complete_runs
from tracewarehouse.cli.session import (
    Session,
    examples,
    pass_session,
    rank_option,
    result_options,
    top_option,
)
from tracewarehouse.cli.show import AnalysisCommand


class DiffCommand(AnalysisCommand):
    """Like `tw show`, but the analysis comes after the two runs."""

    def _words(self, args: list[str]) -> list[str]:
        return super()._words(args)[2:3]


@click.command(
    cls=DiffCommand,
    epilog=examples(
        "tw diff fp8-off fp8-on name_summary",
        "tw diff @previous @latest kernel_summary --top 20 -f table",
        "tw diff label:commit=3f2a91c @latest name_summary --measure sum_ns",
        "tw diff fp8-off fp8-on temporal_breakdown --by-rank",
    ),
)
@click.argument("base_run", metavar="BASE", shell_complete=complete_runs)
@click.argument("head_run", metavar="HEAD", shell_complete=complete_runs)
@click.argument("name", metavar="NAME[@VERSION]", shell_complete=complete_analyses)
@click.option("--by-rank", is_flag=True, help="Compare rank by rank, instead of the mean of all ranks.")
@click.option(
    "--all-steps", is_flag=True, help="All that was recorded, per rank, instead of complete steps only."
)
@click.option("--measure", metavar="COLUMN", help="What decides about increased and decreased.")
@rank_option
@top_option
@result_options
@pass_session
def diff(
    session: Session,
    /,
    base_run: str,
    head_run: str,
    name: str,
    by_rank: bool,
    all_steps: bool,
    measure: str | None,
    **values: str | None,
) -> None:
    """Show what differs between two runs, or two sets of runs, by an analysis.

    Each row has base, head and the difference of every measure, and whether it was added, deleted,
    increased, decreased or is unchanged. Values are the mean of all ranks, and of their complete steps where
    the analysis tells steps, so that runs of different lengths and sizes can be compared.
    """
    given: dict[str, Any] = {key: value for key, value in values.items() if value is not None}
    compared = session.open().diff(base_run, head_run, by_rank=by_rank, all_steps=all_steps, measure=measure)
    session.out.check_top(None)
    session.out.show(compared.run(name, **given))
