"""The analyses of a report: each is asked once, its rows are summed up with SQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracewarehouse.plot.lines import Bin, edges
from tracewarehouse.plot.theme import brief
from tracewarehouse.result import Result
from tracewarehouse.runs.selection import Selection

if TYPE_CHECKING:
    from tracewarehouse.duck.engine import Connection

Row = dict[str, Any]


class Asked:
    """One run, or part of one, that can be asked; every result is a relation for `rows`."""

    def __init__(self, side: Selection, con: Connection) -> None:
        self.side = side
        (self.selected,) = side.selected()
        starts = (rank.facts.get("start_ns") for rank in self.selected.by_rank)
        self.start_ns = min((each for each in starts if isinstance(each, int)), default=0)
        self._con = con
        self._results: dict[str, Result] = {}

    @property
    def run(self) -> str:
        """The name of the run."""
        return self.selected.run

    @property
    def ranks(self) -> int:
        """How many ranks are looked at."""
        return len(self.selected.ranks)

    def each(self, ns: float) -> str:
        """A time of all ranks as that of one."""
        return brief(ns / self.ranks, "ns")

    def result(self, name: str) -> Result:
        """The rows of an analysis with the defaults of its parameters."""
        if name not in self._results:
            self._results[name] = self.side.run(name)
            self._con.register(name, self._results[name].arrow())
        return self._results[name]

    def has(self, name: str) -> bool:
        """Whether the analysis has rows."""
        return len(self.result(name)) > 0

    def rows(self, sql: str, *names: str) -> list[Row]:
        """The rows of a SELECT over results of these analyses."""
        for name in names:
            self.result(name)
        from tracewarehouse.duck.engine import relation

        rows: list[Row] = relation(self._con, sql).to_arrow_table().to_pylist()
        return rows

    def one(self, sql: str, *names: str) -> Row:
        """The only row of such a SELECT."""
        (row,) = self.rows(sql, *names)
        return row

    def bins(self, values: str, unit: str, *names: str) -> list[Bin]:
        """How the numbers of a SELECT of one column `value`, all above 0, are spread."""
        ends = self.one(f"SELECT min(value) AS low, max(value) AS high FROM ({values})", *names)
        if ends["low"] is None:
            return []
        bounds = edges(float(ends["low"]), float(ends["high"]))
        listed = ", ".join(map(repr, bounds[1:-1]))
        found = self.rows(
            f"SELECT len(list_filter([{listed}], lambda bound: bound <= value)) AS place, count(*) AS count"
            f" FROM ({values}) GROUP BY place"
        )
        counts = {row["place"]: row["count"] for row in found}
        return [
            Bin(
                low,
                high,
                counts.get(at, 0),
                f"{counts.get(at, 0):,} from {brief(low, unit)} to {brief(high, unit)}",
            )
            for at, (low, high) in enumerate(zip(bounds, bounds[1:], strict=False))
        ]

    def lacking(self, name: str) -> str:
        """Why an analysis has no rows, or which ranks it leaves out; empty where it tells of all."""
        reasons: dict[str, int] = {}
        for each in self.result(name).abstained:
            reasons[each.reason] = reasons.get(each.reason, 0) + 1
        return "; ".join(
            f"{reason}" if count == self.ranks else f"{count} of {self.ranks} ranks: {reason}"
            for reason, count in reasons.items()
        )


@contextmanager
def asking(side: Selection) -> Iterator[Asked]:
    """An `Asked` for one run, with a connection for its sums."""
    from tracewarehouse.duck.engine import connect

    with connect() as con:
        yield Asked(side, con)
