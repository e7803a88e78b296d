"""A history: the series of a metric as rows, as a chart in the terminal and as an HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tracewarehouse.compare.history.page import html
from tracewarehouse.compare.history.series import HistoryData, Series
from tracewarehouse.compare.history.terminal import chart_lines
from tracewarehouse.result import Field, Result, from_rows

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class History(HistoryData):
    """A metric over recorded runs, with its change points."""

    @property
    def result(self) -> Result:
        """One row per series and run, in time order: series, definition, run, time, value and level.

        The first run of a new level also has the change with its interval, the run before, the runs between
        which the change occurred, and the acknowledgement; in other rows these are null.
        """
        rows = from_rows(
            self._fields(), [row for series in self.series for row in _rows(series)], self.notices
        )
        return replace(rows, provenance=self.provenance, notices=self.notices)

    def plot(self, width: int = 100) -> str:
        """The series as text, at most `width` characters wide, and their changes."""
        return "".join(f"{line}\n" for line in chart_lines(self, width))

    def html(self) -> str:
        """The series as one self-contained HTML file."""
        return "".join(html(self))

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


def _rows(series: Series) -> Iterator[tuple[object, ...]]:
    changes = {change.after: change for change in series.changes}
    for point in series.points:
        change = changes.get(point.name) if point.value is not None else None
        columns: tuple[object, ...] = (None,) * 7
        if change is not None:
            columns = (
                change.change,
                change.low,
                change.high,
                change.before,
                change.earliest,
                change.latest,
                change.why,
            )
        identity = (series.name, series.definition, point.run, point.number, point.stored, point.time_ns)
        yield (*identity, point.value, point.level, *columns, point.reason)
