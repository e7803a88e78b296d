"""The data of a history: series of runs in time order, each with its levels and change points."""

from __future__ import annotations

from dataclasses import dataclass

from tracewarehouse.metric import Metric
from tracewarehouse.result import Provenance


@dataclass(frozen=True)
class Dot:
    """A run of a line; `value` is None where the metric does not tell it, for the `reason`.

    `level` is the median of its stretch between two changes. A run that is not `stored` was removed, and its
    results kept.
    """

    run: str
    number: int
    source: str
    time_ns: int
    stored: bool
    value: float | None
    reason: str | None = None
    level: float | None = None

    @property
    def name(self) -> str:
        """The run's name; that of a removed one with its version, for the name may have been used again."""
        return self.run if self.stored else f"{self.run}@v{self.number}"


@dataclass(frozen=True)
class Change:
    """A change of level: from the run `after` on, first seen between it and the run `before`.

    `change` is relative to the level before (0.03 is +3 %), with its 95 % interval; the true place lies
    between the runs `earliest` and `latest` with 95 %. `why` is the acknowledgement, where there is one.
    """

    before: str
    after: str
    change: float | None
    low: float | None
    high: float | None
    earliest: str
    latest: str
    old: float
    new: float
    why: str | None = None


@dataclass(frozen=True)
class Line:
    """Runs that compare: of one group, under one definition (effective hash) of the analysis."""

    name: str
    definition: str
    dots: tuple[Dot, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class HistoryData:
    """The series of a metric over recorded runs; `missing` runs have no recorded results."""

    metric: Metric
    lines: tuple[Line, ...]
    missing: tuple[str, ...]
    notices: tuple[str, ...]
    provenance: Provenance

    @property
    def unit(self) -> str | None:
        """The unit of the values."""
        return self.metric.column.unit

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes of all lines."""
        return tuple(change for line in self.lines for change in line.changes)
