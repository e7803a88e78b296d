"""Reports of a selection: what a page reads, then the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tracewarehouse.compare.diff.diff import Diff
from tracewarehouse.compare.history.read import metric_history
from tracewarehouse.compare.metric.expression import parse_metric
from tracewarehouse.compare.metric.values import measure
from tracewarehouse.errors import TwError
from tracewarehouse.findings import check_runs
from tracewarehouse.present.report.document import Page
from tracewarehouse.present.report.one_run import one_run
from tracewarehouse.present.report.several_runs import many_runs, two_runs
from tracewarehouse.query.selection import Selection
from tracewarehouse.runs.rows import run_info

Notify = Callable[[str], None]


def one_run_page(run: Selection, notify: Notify) -> Page:
    """The report of the only run of a selection."""
    notify("running checks")
    info = run_info(run.store, run.catalog, run.selected()[0], run.level)
    return one_run(run, info, check_runs(run), notify)


def two_runs_page(selection: Selection, compared: Diff, force: bool, notify: Notify) -> Page:
    """The report on what changed between two sides. Raises NotComparable unless `force`."""
    notify("comparing")
    change = compared.changes(force=force)
    times = measure(parse_metric("step_time", selection.catalog), compared.base, compared.head)
    one_each = [selection.one_run(side[0]) for side in (change.base, change.head)]
    try:
        step_times = metric_history(selection, "step_time")
    except TwError:  # no results are recorded
        step_times = None
    return two_runs(change, times, step_times, one_each, notify)


def many_runs_page(selection: Selection, metrics: Iterable[str], notify: Notify) -> Page:
    """The report on all selected runs, with a column for each metric. Raises ParamError."""
    wanted = [parse_metric(text, selection.catalog) for text in metrics]
    notify("running checks")
    findings = check_runs(selection)
    notify("measuring")
    measured = [measured for metric in wanted for measured in measure(metric, selection)]
    return many_runs(selection, findings, measured, notify)
