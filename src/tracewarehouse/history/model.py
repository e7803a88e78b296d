"""A history: lines of runs in time order, each with its levels and the changes between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tracewarehouse.metric import Metric
from tracewarehouse.result import Field, Provenance, Result, from_rows

if TYPE_CHECKING:
    import polars


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
class History:
    """A metric over runs; of the `missing` ones nothing is recorded."""

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

    @property
    def result(self) -> Result:
        """A row per line and run, in time order: line, definition, run, time, value and level in the unit.

        The first run of a new level also has the change with its interval, the run before, the runs between
        which the true place lies, and the acknowledgement; in other rows these are null.
        """
        made = from_rows(self._fields(), [row for line in self.lines for row in _rows(line)], self.notices)
        return replace(made, provenance=self.provenance, notices=self.notices)

    def plot(self, width: int = 100) -> str:
        """The lines drawn with characters, and their changes in words, at most `width` cells wide."""
        from tracewarehouse.history.plot import plot

        return "".join(f"{text}\n" for text in plot(self, width))

    def html(self) -> str:
        """The lines drawn in one HTML file that needs nothing else."""
        from tracewarehouse.history.page import page

        return "".join(page(self))

    def polars(self) -> polars.DataFrame:
        """The rows of `result` as a Polars data frame."""
        return self.result.polars()

    def rows(self) -> list[dict[str, Any]]:
        """The rows of `result` as dictionaries."""
        return self.result.rows()

    def _fields(self) -> list[Field]:
        texts = ("earliest", "latest", "acknowledged", "reason")
        return [
            Field("line", "VARCHAR"),
            Field("definition", "VARCHAR"),
            Field("run_id", "VARCHAR"),
            Field("version", "BIGINT"),
            Field("stored", "BOOLEAN"),
            Field("time_ns", "BIGINT", "ts"),
            Field("value", "DOUBLE", self.unit),
            Field("level", "DOUBLE", self.unit),
            *(Field(name, "DOUBLE", "ratio") for name in ("change", "change_low", "change_high")),
            *(Field(name, "VARCHAR") for name in ("before", *texts)),
        ]


def _rows(line: Line) -> Iterator[tuple[object, ...]]:
    changed = {change.after: change for change in line.changes}
    for dot in line.dots:
        found = changed.get(dot.name) if dot.value is not None else None
        told: tuple[object, ...] = (None,) * 7
        if found is not None:
            told = (
                found.change,
                found.low,
                found.high,
                found.before,
                found.earliest,
                found.latest,
                found.why,
            )
        known = (dot.run, dot.number, dot.stored, dot.time_ns, dot.value, dot.level)
        yield (line.name, line.definition, *known, *told, dot.reason)
