"""A metric measured by asking sides its analysis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tracewarehouse.metric.model import Measured, Metric
from tracewarehouse.metric.values import Ranks, check_filters, evaluate
from tracewarehouse.result import Result
from tracewarehouse.runs.selection import SelectedRun

COMPLETE = "SELECT run_id, rank, step FROM steps WHERE NOT partial"


class Side(Protocol):
    """Some runs that can be asked; a `Warehouse` is."""

    def run(self, name: str, version: int | None = None, **params: object) -> Result:
        """The rows of an analysis."""
        ...

    def query(self, sql: str) -> Result:
        """The rows of a SELECT."""
        ...

    def selected(self) -> tuple[SelectedRun, ...]:
        """The runs, each with the ranks of it that are looked at."""
        ...


def measure(metric: Metric, *sides: Side) -> tuple[Measured, ...]:
    """The metric of every run of each side: its analysis is run on all of them alike.

    An analysis that tells steps on request is asked to where every side has complete ones. Raises TwError
    where a run has several rows and the column does not say what it is of them, UnknownName where no row of
    any side has the values that the filters name.
    """
    complete = [side.query(COMPLETE).arrow() if metric.tells_steps else None for side in sides]
    told = all(table is not None and table.num_rows for table in complete)
    by_step = metric.tells_steps and (told or not metric.asks_for_steps)
    contract, params = metric.contract, metric.params(by_step)
    results = [side.run(contract.name, contract.version, **params) for side in sides]
    measured = tuple(
        evaluate(metric, result.arrow(), answered(result, side.selected()), steps if by_step else None)
        for result, side, steps in zip(results, sides, complete, strict=True)
    )
    check_filters(metric, measured, [result.arrow() for result in results])
    return measured


def answered(result: Result, selected: Iterable[SelectedRun]) -> dict[str, Ranks]:
    """Run → the ranks of it that a result tells of, and why others do not."""
    silent = {(each.run_id, each.rank): each.reason for each in result.abstained}
    found = {}
    for each in selected:
        telling = tuple(rank for rank in each.ranks if (each.run, rank) not in silent)
        reasons = {silent[each.run, rank] for rank in each.ranks if (each.run, rank) in silent}
        found[each.run] = Ranks(telling, ", ".join(sorted(reasons)) or None)
    return found
