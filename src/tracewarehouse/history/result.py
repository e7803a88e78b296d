"""A history: the series of a metric as rows, as a chart in the terminal and as an HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tracewarehouse.history.page import page
from tracewarehouse.history.plot import plot
from tracewarehouse.history.series import HistoryData, Line
from tracewarehouse.result import Field, Result, from_rows

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class History(HistoryData):
    """A metric over recorded runs, with its change points."""

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
        return "".join(f"{text}\n" for text in plot(self, width))

    def html(self) -> str:
        """The lines drawn in one HTML file that needs nothing else."""
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
