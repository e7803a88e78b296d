"""Comparisons with recorded runs: as their baseline, or for the noise between runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from tracewarehouse.compare.history.baseline import Baseline, Compared, find_baseline
from tracewarehouse.compare.history.read import label_keys
from tracewarehouse.compare.metric import Metric, WorkUnit, parse_metric
from tracewarehouse.compare.stats import Earlier
from tracewarehouse.errors import ParamError, TwError

if TYPE_CHECKING:
    from tracewarehouse.contracts.catalog import Catalog
    from tracewarehouse.runs.selection import SelectedRun, Selection
    from tracewarehouse.storage import Store

BASELINE = "@baseline"
SPREADS = ("own", "history")
_BREAKDOWN_RUNS = 8  # newest runs of the baseline that a breakdown compares with
Selectors = str | Iterable[str]
FindEarlier = Callable[[Metric, WorkUnit | None], Earlier | None]


class Recorded(Protocol):
    """A warehouse."""

    @property
    def store(self) -> Store:
        """Its files."""

    @property
    def catalog(self) -> Catalog:
        """Its contracts."""

    def select(self, runs: str | Iterable[str]) -> Selection:
        """Runs by selectors."""

    def recorded_runs(self) -> Sequence[SelectedRun]:
        """Its runs, and removed ones with recorded results, in time order."""


def sides_with_history(
    warehouse: Recorded,
    base: str | Iterable[str],
    head: str | Iterable[str],
    spread: str,
    same: str | Iterable[str],
) -> tuple[Selection, Selection, FindEarlier]:
    """Both sides, and what finds the earlier runs of a metric: only for the step time it raises NoBaseline.

    Raises ParamError for another `spread`; NoBaseline if the step time has too few earlier runs; TwError.
    """
    if spread not in SPREADS:
        raise ParamError(f"unknown spread {spread!r}", f"use {' or '.join(SPREADS)}")
    recorded, after = warehouse.recorded_runs(), warehouse.select(head)
    keys = label_keys([same] if isinstance(same, str) else same, recorded)
    before = None if base == BASELINE else warehouse.select(base)
    compared = Compared(None if before is None else before.selected(), after.selected(), keys)

    step_time = parse_metric("step_time", warehouse.catalog)

    def find(metric: Metric, unit: WorkUnit | None = None) -> Baseline:
        return find_baseline(warehouse.store, warehouse.catalog, metric, recorded, compared, unit)

    def earlier(metric: Metric, unit: WorkUnit | None) -> Earlier | None:
        try:
            return find(metric, unit).earlier
        except TwError:
            if metric == step_time:
                raise
            return None

    found = find(step_time)
    if before is None:
        if not found.stored:
            raise TwError("the traces of all runs of the baseline are removed", "name a stored run as base")
        before = warehouse.select(found.stored[-_BREAKDOWN_RUNS:])
    return before, after, earlier
