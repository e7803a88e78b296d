"""`tw record` and `tw history`: results kept, and a metric over runs."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import click

from tracewarehouse.cli.complete import complete_analyses, complete_runs
from tracewarehouse.cli.session import Session, examples, output_options, pass_session, result_options
from tracewarehouse.errors import TwError

if TYPE_CHECKING:
    from tracewarehouse.history import History, RecordReport

_PAGES = (".html", ".htm")
_FAILED_TOLD = 10


@click.command(
    epilog=examples(
        "tw record @latest",
        "tw record --all",
        "tw record --all --analysis step_summary --analysis kernel_summary",
    )
)
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("--all", "every", is_flag=True, help="Every run.")
@click.option(
    "--analysis",
    "analyses",
    multiple=True,
    metavar="NAME[@VERSION]",
    shell_complete=complete_analyses,
    help="Only this analysis. May be given again; by default the newest version of each.",
)
@output_options
@pass_session
def record(session: Session, /, runs: tuple[str, ...], every: bool, analyses: tuple[str, ...]) -> None:
    """Keep results of analyses, for tw history. What is recorded already is not worked out again.

    A result belongs to what the run was and to how the analysis is defined: after new ranks, or another
    definition, record again. It outlives its run with tw remove --keep-results.
    """
    from tracewarehouse.render.progress import bar

    if every == bool(runs):
        raise click.UsageError(
            "name runs, or give --all" if not every else "name runs or give --all, not both"
        )
    warehouse = session.open()
    with bar() as move:
        done = warehouse.record(
            runs or None,
            analyses=analyses or None,
            progress=None if move is None else lambda step: move(step.done, step.total, step.analysis),
        )
    for each in done.failed[:_FAILED_TOLD]:
        session.out.notice(f"not recorded: {each.analysis} of {each.run}: {each.reason}")
    session.out.say(
        _told(done), [{**vars(done), "failed": [vars(each) for each in done.failed]}], _fault(done)
    )
    if done.failed:
        raise click.exceptions.Exit(1)


def _told(done: RecordReport) -> str:
    from tracewarehouse.render.text import count, size

    of = f"{_plural(len(done.runs), 'run')}, {_plural(len(done.analyses), 'analysis', 'analyses')}"
    before = f"; {count(done.present)} were there" if done.present else ""
    if not done.written:
        return f"nothing to record: {of}{before}"
    return f"{_plural(done.written, 'result')} recorded, {size(done.bytes)}: {of}{before}"


def _fault(done: RecordReport) -> TwError | None:
    if not done.failed:
        return None
    return TwError(
        f"{_plural(len(done.failed), 'result')} could not be recorded",
        "the others are; tw verify looks for damage",
    )


def _plural(count: int, word: str, many: str | None = None) -> str:
    return f"{count:,} {word if count == 1 else many or word + 's'}"


@click.command(
    epilog=examples(
        "tw record --all && tw history step_time",
        "tw history step_time --where label.branch=main --by label.gpu",
        "tw history 'kernel_summary.sum_ns[kind=communication]' -o history.html",
        "tw history temporal_breakdown.idle_ns --format csv > idle.csv",
        "tw history step_time --ack nightly-0412 'new driver, agreed on'",
    )
)
@click.argument("metric", metavar="METRIC")
@click.option(
    "--run",
    "runs",
    multiple=True,
    metavar="RUN",
    shell_complete=complete_runs,
    help="Only this run: a name or its start, label:K=V. May be given again.",
)
@click.option("--where", multiple=True, metavar="label.K=V", help="Only runs with this label.")
@click.option("--by", multiple=True, metavar="label.K", help="A line for each value of this label.")
@click.option(
    "--min-effect",
    type=click.FloatRange(min=0, max=1),
    default=0.01,
    show_default=True,
    metavar="PART",
    help="Tell changes of at least this part of the level: 0.01 is 1 %.",
)
@click.option(
    "--ack",
    "acks",
    nargs=2,
    multiple=True,
    metavar="RUN WHY",
    help="Keep why the metric changed at RUN; it stands beside the change from then on.",
)
@click.option("--unack", "unacks", multiple=True, metavar="RUN", help="Take that back.")
@result_options
@pass_session
def history(
    session: Session,
    /,
    metric: str,
    runs: tuple[str, ...],
    where: tuple[str, ...],
    by: tuple[str, ...],
    min_effect: float,
    acks: tuple[tuple[str, str], ...],
    unacks: tuple[str, ...],
) -> None:
    """Show a metric over recorded runs in time order, and where its level changed.

    METRIC is ANALYSIS[@VERSION].COLUMN[K=V,...]; step_time is short for step_summary.period_ns. Sums are per
    rank, and per complete step where the analysis tells steps; step_time is the median step. A change has the
    two runs around it, its size with a 95 % interval, and the runs between which the true place lies.

    On a terminal the runs are drawn; -o FILE.html draws them in a page. Other formats give a row per run.
    """
    warehouse = session.open()
    for run, why in acks:
        session.out.notice(f"acknowledged: {warehouse.acknowledge(metric, run, why)}")
    for run in unacks:
        session.out.notice(f"no longer acknowledged: {warehouse.acknowledge(metric, run, None)}")
    _show(session, warehouse.history(metric, runs or None, where=where, by=by, min_effect=min_effect))


def _show(session: Session, found: History) -> None:
    out = session.out
    drawn = session.output is not None and session.output.suffix.lower() in _PAGES
    if session.json or not drawn and out.chosen_format != "table":
        out.show(found.result)
        return
    if drawn:
        out.pour([found.html()], {"runs": sum(len(series.points) for series in found.series)})
    else:
        on_terminal = session.output is None and sys.stdout.isatty() or "COLUMNS" in os.environ
        out.say(found.plot(shutil.get_terminal_size().columns if on_terminal else 100), [])
    for notice in found.notices:
        out.notice(notice)
