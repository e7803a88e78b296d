"""`tw record` stores results of analyses; `tw history` plots a metric over recorded runs."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from tracewarehouse import hints
from tracewarehouse.cli.session import (
    Session,
    command,
    complete_analyses,
    complete_runs,
    engine_options,
    output_options,
    ratio_param,
    result_options,
    strict_runs_option,
    verify_option,
)
from tracewarehouse.errors import PartlyDone, TwError
from tracewarehouse.hints import cli_text

if TYPE_CHECKING:
    from tracewarehouse.compare.history.history import FailOn, History
    from tracewarehouse.compare.history.record import RecordReport

_HTML_EXTENSIONS = (".html", ".htm")
_MOST_FAILURES_LISTED = 10


@command(
    "tw record @latest",
    "tw record --all",
    "tw record --all --analysis step_summary --analysis kernel_summary",
)
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("--all", "all_runs", is_flag=True, help="Record all runs.")
@click.option(
    "--analysis",
    "analyses",
    multiple=True,
    metavar="NAME[@VERSION]",
    shell_complete=complete_analyses,
    help="Record only this analysis (repeatable). [default: all summaries]",
)
@engine_options
@output_options
def record(session: Session, /, runs: tuple[str, ...], all_runs: bool, analyses: tuple[str, ...]) -> None:
    """Store analysis results for tw history.

    Results that are already recorded are not recomputed. Record again after adding ranks to a run, or when
    an analysis has a new definition.

    \ftw remove --keep-results keeps recorded results of removed runs.
    Analyses with a row per event or interval, like idle_intervals, are recorded only by --analysis.
    """
    from tracewarehouse.present.render.progress import bar

    if all_runs == bool(runs):
        raise click.UsageError(
            "specify runs, or --all" if not all_runs else "specify runs or --all, not both"
        )
    warehouse = session.open()
    with session.engine() as engine, bar() as move:
        recorded = warehouse.record(
            runs or None,
            analyses=analyses or None,
            progress=None if move is None else lambda step: move(step.done, step.total, step.analysis),
            engine=engine,
        )
    for notice in recorded.notices:
        session.out.notice(f"note: {cli_text(notice)}")
    for each in recorded.failed[:_MOST_FAILURES_LISTED]:
        session.out.notice(hints.fill("not recorded: {} of {}: {}", each.analysis, each.run, each.reason))
    session.out.print_text(
        _record_summary(recorded),
        [
            {
                **asdict(recorded),
                "failed": [{**asdict(each), "reason": cli_text(each.reason)} for each in recorded.failed],
            }
        ],
        _record_error(recorded),
    )
    if recorded.failed:
        raise click.exceptions.Exit(PartlyDone.exit_code if recorded.written else 1)


def _record_summary(recorded: RecordReport) -> str:
    from tracewarehouse.present.render.text import count, plural, size

    scope = f"{plural(len(recorded.runs), 'run')}, {plural(len(recorded.analyses), 'analysis', 'analyses')}"
    present_text = f"; {count(recorded.present)} already recorded" if recorded.present else ""
    if not recorded.written:
        return f"nothing to record: {scope}{present_text}"
    return f"recorded {plural(recorded.written, 'result')}, {size(recorded.bytes)}: {scope}{present_text}"


def _record_error(recorded: RecordReport) -> TwError | None:
    from tracewarehouse.present.render.text import plural

    if not recorded.failed:
        return None
    return TwError(
        f"{plural(len(recorded.failed), 'result')} could not be recorded",
        f"{'the others were recorded; ' if recorded.written else ''}tw verify checks for damaged files",
    )


@command(
    "tw record --all && tw history step_time",
    "tw history step_time --where label.branch=main --by label.gpu",
    "tw history 'kernel_summary.sum_ns[kind=communication]' -o history.html",
    "tw history temporal_breakdown.idle_ns --format csv > idle.csv",
    "tw history step_time --fail-on-change --since 7d",
    "tw history 'p99(step_time)' --normalize token",
    "tw history step_time --parts",
    "tw history step_time -w s3://bucket/warehouse --engine ray",
    rare=("normalize", "since", "limit", "json"),
)
@click.argument("metric", metavar="METRIC")
@click.option(
    "--run",
    "runs",
    multiple=True,
    metavar="RUN",
    shell_complete=complete_runs,
    help="Select runs: name, glob, a,b or label:K=V (repeatable).",
)
@click.option("--where", multiple=True, metavar="label.K=V", help="Select runs by label (repeatable).")
@click.option("--by", multiple=True, metavar="label.K", help="Plot one series per value of this label.")
@click.option("--normalize", metavar="UNIT", help="Plot times and sizes per sample, token or label.K.")
@click.option(
    "--min-effect",
    type=ratio_param(1.0),
    default=0.01,
    metavar="RATIO",
    help="Smallest change to report: 0.001 or 0.1%.",
)
@click.option("--parts", is_flag=True, help="Also report which kernels, operators and idle causes changed.")
@click.option(
    "--fail-on-change",
    type=click.Choice(["worse", "any"]),
    is_flag=False,
    flag_value="worse",
    help="Exit with code 3 if a new change is worse, or any.",
)
@click.option(
    "--since", metavar="RUN|AGE", help="First run to count, or age before the newest. [default: last 12]"
)
@engine_options
@verify_option
@strict_runs_option
@result_options
def history(
    session: Session,
    /,
    metric: str,
    runs: tuple[str, ...],
    parts: bool,
    fail_on_change: FailOn | None,
    since: str | None,
    **settings: Any,
) -> None:
    """Plot a metric over recorded runs and report change points.

    METRIC is ANALYSIS[@VERSION].COLUMN[K=V,...]; step_time is short for step_summary.period_ns, the median
    step. --fail-on-change exits with code 3 if a new change is worse.

    \fp99(METRIC), also min, mean, max, p50, p90 and p95, is that of the complete steps of each run; an
    acknowledgement counts for all of them. Sums are per rank, and per complete step if the analysis has
    steps. A change point has the runs before and after it, its size with a 95 % confidence interval, and the
    range of runs in which it lies.

    --normalize sample divides times and sizes by the label samples_per_step of each run, token by
    tokens_per_step, as tw diff does. Runs without the label have no value.

    --fail-on-change exits with code 3 if a change that is not acknowledged has its first run at --since or
    later; --since 7d is 7 days before the newest run. A steady rise or fall is reported as a trend.

    A terminal shows a chart, and -o FILE.html writes one; other formats have one row per run.
    """
    if since is not None and fail_on_change is None:
        raise click.UsageError("--since needs --fail-on-change")
    warehouse = session.open_on_engine()
    metric_history = warehouse.history(metric, runs or None, **settings)
    failing = None if fail_on_change is None else _change_error(metric_history, fail_on_change, since)
    _print_history(session, metric_history, failing)
    for event in warehouse.moved_parts(runs or None, where=settings["where"]) if parts else ():
        session.out.notice(str(event))
    if failing is not None:
        raise click.exceptions.Exit(failing.exit_code)


@command(
    "tw acknowledge step_time nightly-0412 'driver 570, accepted'",
    "tw acknowledge step_time nightly-0412 --remove",
)
@click.argument("metric", metavar="METRIC")
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.argument("reason", metavar="[REASON]", required=False)
@click.option("--remove", is_flag=True, help="Remove the acknowledgement.")
@output_options
def acknowledge(session: Session, /, metric: str, run: str, reason: str | None, remove: bool) -> None:
    """Accept a change of a metric, with the reason.

    tw history shows the reason with the change, and --fail-on-change accepts it. It counts for all
    statistics of the metric.
    """
    from tracewarehouse.compare.history.history import notices_on_acknowledged
    from tracewarehouse.present.render.text import one_line

    if remove == (reason is not None):
        raise click.UsageError("give a REASON, or --remove")
    warehouse = session.open()
    name = warehouse.acknowledge(metric, run, reason)
    verb = "acknowledgement removed" if reason is None else "acknowledged"
    text = f"{verb}: {name}" + ("" if reason is None else f": {one_line(reason.strip())}")
    session.out.print_text(text, [{"metric": metric, "run": name, "reason": reason}])
    sides = ([], [name]) if reason is None else ([name], [])
    try:
        metric_history = warehouse.history(metric)
    except TwError:  # it may have no recorded results yet
        return
    for notice in notices_on_acknowledged(metric_history, *sides):
        session.out.notice(f"warning: {one_line(notice)}")


class LevelChanged(TwError):
    """A metric has a new change of level."""

    exit_code = 3


def _change_error(history: History, fail_on: FailOn, since: str | None) -> LevelChanged | None:
    from tracewarehouse.compare.history.history import failing_changes

    texts = failing_changes(history, fail_on, since)
    return LevelChanged("; ".join(texts), "tw acknowledge METRIC RUN REASON accepts it") if texts else None


def _print_history(session: Session, history: History, error: TwError | None = None) -> None:
    out = session.out
    as_page = session.output is not None and session.output.suffix.lower() in _HTML_EXTENSIONS
    if session.json or not as_page and out.resolved_format != "table":
        out.print_result(history.result, error)
        return
    if as_page:
        out.print_stream([history.html()], {"runs": sum(len(series.points) for series in history.series)})
        if error is not None:
            out.notice(error.message)
    else:
        on_terminal = session.output is None and sys.stdout.isatty() or "COLUMNS" in os.environ
        out.print_text(history.plot(shutil.get_terminal_size().columns if on_terminal else 100), [], error)
    for notice in history.notices:
        out.notice(notice)
