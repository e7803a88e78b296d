"""The data of a report: each analysis runs once, and its rows are aggregated with SQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracewarehouse.hints import cli_text
from tracewarehouse.present.plot.lines import Bin, bin_edges, describe_bin
from tracewarehouse.present.plot.theme import format_short
from tracewarehouse.result import Result
from tracewarehouse.runs.readable import WITHOUT_TABLES
from tracewarehouse.runs.selection import RankSelection

if TYPE_CHECKING:
    from tracewarehouse.duck.engine import Connection

Row = dict[str, Any]


class ReportData:
    """The results of one run, or of some of its ranks; every result is a relation that `rows` can query."""

    def __init__(self, side: RankSelection, con: Connection) -> None:
        self.side = side
        (self.selected,) = side.selected()
        starts = (rank.facts.get("start_ns") for rank in self.selected.by_rank)
        self.start_ns = min((start for start in starts if isinstance(start, int)), default=0)
        self._con = con
        self._results: dict[str, Result] = {}

    @property
    def run(self) -> str:
        """The name of the run."""
        return self.selected.run

    @property
    def ranks(self) -> int:
        """The number of selected ranks."""
        return len(self.selected.ranks)

    def per_rank(self, ns: float) -> str:
        """A total over all ranks as the mean duration per rank."""
        return format_short(ns / self.ranks, "ns")

    @property
    def on_rank(self) -> str:
        """What `per_rank` refers to: `per rank`, or `on rank 3` if that is the only one."""
        return "per rank" if self.ranks > 1 else f"on rank {self.selected.ranks[0]}"

    def result(self, name: str) -> Result:
        """The rows of an analysis with default parameters."""
        if name not in self._results:
            self._results[name] = self.side.run_or_skip(name)
            self._con.register(name, self._results[name].arrow())
        return self._results[name]

    def result_as(self, alias: str, name: str, **params: object) -> Result:
        """The rows of an analysis with parameters; SQL sees them under another name."""
        if alias not in self._results:
            self._results[alias] = self.side.run_or_skip(name, None, **params)
            self._con.register(alias, self._results[alias].arrow())
        return self._results[alias]

    def has_rows(self, name: str) -> bool:
        """Whether the analysis has rows."""
        return len(self.result(name)) > 0

    def rows(self, sql: str, *names: str) -> list[Row]:
        """The rows of a SELECT over the results of these analyses."""
        for name in names:
            self.result(name)
        from tracewarehouse.duck.engine import relation

        rows: list[Row] = relation(self._con, sql).to_arrow_table().to_pylist()
        return rows

    def row(self, sql: str, *names: str) -> Row:
        """The only row of such a SELECT."""
        (row,) = self.rows(sql, *names)
        return row

    def bins(self, values: str, unit: str, *names: str) -> list[Bin]:
        """A histogram of a SELECT with one column `value`, all above 0."""
        limits = self.row(f"SELECT min(value) AS low, max(value) AS high FROM ({values})", *names)
        if limits["low"] is None:
            return []
        edges = bin_edges(float(limits["low"]), float(limits["high"]))
        inner = ", ".join(map(repr, edges[1:-1]))
        rows = self.rows(
            f"SELECT len(list_filter([{inner}], lambda edge: edge <= value)) AS bin, count(*) AS count"
            f" FROM ({values}) GROUP BY bin"
        )
        counts = {row["bin"]: row["count"] for row in rows}
        return [
            Bin(low, high, counts.get(at, 0), describe_bin(counts.get(at, 0), low, high, unit))
            for at, (low, high) in enumerate(zip(edges, edges[1:], strict=False))
        ]

    def outdated(self) -> dict[str, list[str]]:
        """Why analyses have no rows of a run of an earlier release → their names, of those that were run."""
        found: dict[str, list[str]] = {}
        for name, result in self._results.items():
            for reason in dict.fromkeys(cli_text(each.reason) for each in result.abstained):
                if reason.startswith(WITHOUT_TABLES):
                    found.setdefault(reason, []).append(name)
        return found

    def missing_reason(self, name: str) -> str:
        """Why an analysis has no rows, or which ranks it excludes; empty if it covers all ranks."""
        counts: dict[str, int] = {}
        for each in self.result(name).abstained:
            reason = cli_text(each.reason)
            counts[reason] = counts.get(reason, 0) + 1
        return "; ".join(
            reason if count == self.ranks else f"{count} of {self.ranks} ranks: {reason}"
            for reason, count in counts.items()
        )


@contextmanager
def report_data(side: RankSelection) -> Iterator[ReportData]:
    """The data of one run, with a connection for its aggregates."""
    from tracewarehouse.duck.engine import scratch

    with scratch() as con:
        yield ReportData(side, con)
