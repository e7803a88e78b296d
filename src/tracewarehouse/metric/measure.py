"""Measures a metric by running its analysis on selections."""

from __future__ import annotations

from collections.abc import Iterable

from tracewarehouse.metric.model import Measured, Metric
from tracewarehouse.metric.values import Ranks, check_filters, evaluate
from tracewarehouse.result import Result
from tracewarehouse.runs.selection import SelectedRun, Selection

COMPLETE = "SELECT run_id, rank, step FROM steps WHERE NOT partial"


def measure(metric: Metric, *sides: Selection) -> tuple[Measured, ...]:
    """The metric of every run of each side; its analysis runs with the same parameters on all of them.

    An analysis with optional steps is run by step if every side has complete ones. Raises TwError if a run
    has several rows and the column has no fold, UnknownName if no row of any side has the filters' values."""
    complete = [side.query(COMPLETE).arrow() if metric.has_steps else None for side in sides]
    all_complete = all(table is not None and table.num_rows for table in complete)
    by_step = metric.has_steps and (all_complete or not metric.steps_optional)
    contract, params = metric.contract, metric.params(by_step)
    results = [side.run(contract.name, contract.version, **params) for side in sides]
    measured = tuple(
        evaluate(metric, result.arrow(), ranks_with_data(result, side.selected()), steps if by_step else None)
        for result, side, steps in zip(results, sides, complete, strict=True)
    )
    check_filters(metric, measured, [result.arrow() for result in results])
    return measured


def ranks_with_data(result: Result, selected: Iterable[SelectedRun]) -> dict[str, Ranks]:
    """Run → its ranks with data in a result, and why others have none."""
    reasons = {(each.run_id, each.rank): each.reason for each in result.abstained}
    found = {}
    for each in selected:
        with_data = tuple(rank for rank in each.ranks if (each.run, rank) not in reasons)
        missing = {reasons[each.run, rank] for rank in each.ranks if (each.run, rank) in reasons}
        found[each.run] = Ranks(with_data, ", ".join(sorted(missing)) or None)
    return found
