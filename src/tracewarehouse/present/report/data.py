"""The data of a report: each analysis runs once, SQL aggregates its rows, in total or by complete step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.hints import cli_text
from tracewarehouse.present.plot.charts import Bin, bin_edges, describe_bin
from tracewarehouse.present.plot.parts import format_short
from tracewarehouse.query.selection import Selection
from tracewarehouse.result import Result
from tracewarehouse.runs.readable import WITHOUT_TABLES

if TYPE_CHECKING:
    from tracewarehouse.duck.engine import Connection


Row = dict[str, Any]
# What a page on one run reads: the views that these share are computed once.
READ = (
    "annotation_breakdown", "collective_waits", "comm_by_group", "comm_comp_overlap", "compiled_kernels",
    "coverage", "gpu_timeline", "gpu_utilization", "graph_summary", "host_account", "idle_breakdown",
    "idle_intervals", "inference_steps", "kernel_summary", "key_averages", "launch_stats",
    "launch_summary", "memory_bandwidth_summary", "memory_by_op", "memory_curve", "memory_peak", "mfu",
    "mfu_run", "module_siblings", "module_summary", "name_summary", "ncu_commands", "op_summary",
    "op_work_summary", "quality", "queue_length", "queue_length_summary", "roofline", "source_summary",
    "step_account", "step_kernels", "step_summary", "stragglers", "temporal_breakdown", "timeline",
)  # fmt: skip


class ReportData:
    """The results of one run, or of some of its ranks; every result is a relation that `rows` can query."""

    def __init__(self, side: Selection, con: Connection) -> None:
        self.side = side
        (self.selected,) = side.selected()
        starts = (rank.facts.get("start_ns") for rank in self.selected.by_rank)
        self.start_ns = min((start for start in starts if isinstance(start, int)), default=0)
        self.place: tuple[int | None, int | None] = None, None  # rank and step of the worst finding
        self._con = con
        self._results: dict[str, Result] = {}
        self._rows: dict[str, list[Row]] = {}
        self._kept: set[str] = set()

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
        """What `per_rank` refers to: the recording `per rank`, or `on rank 3` if that is the only one."""
        where = "per rank" if self.ranks > 1 else f"on rank {self.selected.ranks[0]}"
        return f"{where} in the recording"

    def result(self, name: str) -> Result:
        """The rows of an analysis with default parameters."""
        return self.result_as(name, name)

    def result_as(
        self, alias: str, name: str, ranks: Sequence[int] | None = None, **params: object
    ) -> Result:
        """The rows of an analysis with parameters, of these ranks; SQL sees them under another name."""
        if alias not in self._results:
            self._results[alias] = self.side.select(ranks=ranks).analyze_or_skip(name, None, **params)
            self._con.register(alias, self._results[alias].arrow())
        return self._results[alias]

    def forget(self, *names: str) -> None:
        """Frees the rows of results that no further part of the page reads."""
        for name in self._results.keys() & names:
            self._con.unregister(name)
            found = self._results[name]
            self._results[name] = replace(found, table=found.table.schema.empty_table())

    def has_rows(self, name: str) -> bool:
        """Whether the analysis has rows."""
        return len(self.result(name)) > 0

    def rows(self, sql: str, *names: str) -> list[Row]:
        """The rows of a SELECT over the results of these analyses; the same text runs once."""
        for name in names:
            self.result(name)
        if sql not in self._rows:
            cursor = self._con.execute(sql)
            columns = [name for name, *_ in cursor.description or ()]
            self._rows[sql] = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
        return self._rows[sql]

    def keep(self, name: str, sql: str) -> None:
        """Computes a SELECT once, under a name for further ones."""
        from tracewarehouse.duck.engine import relation

        self._con.register(name, relation(self._con, sql).to_arrow_table())
        self._kept.add(name)

    def reduce(self, name: str, sql: str, analysis: str) -> bool:
        """Keeps a SELECT over the rows of an analysis in their place; whether there are any."""
        if self.has_rows(analysis):
            self.keep(name, sql)
            self.forget(analysis)
        return name in self._kept

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
        inner_edges = ", ".join(map(repr, edges[1:-1]))
        rows = self.rows(
            f"SELECT len(list_filter([{inner_edges}], lambda edge: edge <= value)) AS bin, count(*) AS count"
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
            for reason in dict.fromkeys(cli_text(rank.reason) for rank in result.skipped):
                if reason.startswith(WITHOUT_TABLES):
                    found.setdefault(reason, []).append(name)
        return found

    def missing_reason(self, name: str) -> str:
        """Why an analysis has no rows, or which ranks it excludes; empty if it covers all ranks."""
        counts: dict[str, int] = {}
        for rank in self.result(name).skipped:
            reason = cli_text(rank.reason)
            counts[reason] = counts.get(reason, 0) + 1
        return "; ".join(
            reason if count == self.ranks else f"{count} of {self.ranks} ranks: {reason}"
            for reason, count in counts.items()
        )


@contextmanager
def report_data(side: Selection) -> Iterator[ReportData]:
    """The data of one run, with a connection for its aggregates."""
    from tracewarehouse.duck.engine import scratch

    with scratch(1) as con:
        yield ReportData(side, con)


COMPLETE = "SEMI JOIN (SELECT rank, step FROM step_summary WHERE NOT partial) AS complete USING (rank, step)"
_COMPLETE_STEPS = f"SELECT rank, step, category, category_ns FROM step_account {COMPLETE}"


# Rows of complete steps, and of the GPU windows of runs without any, by run, rank and sample.
_OF_STEPS = """
SELECT run_id, rank, step AS sample, category, category_ns
FROM step_account
SEMI JOIN (FROM step_summary WHERE NOT partial) AS complete USING (run_id, rank, step)
"""
_OF_WINDOWS = """
SELECT run_id, rank, occurrence AS sample, category, category_ns
FROM window_account
ANTI JOIN of_steps USING (run_id)
"""
_MEANS = """
WITH samples AS (SELECT run_id, count(DISTINCT (rank, sample)) AS samples FROM {parts} GROUP BY run_id)
SELECT run_id, category, sum(category_ns)::BIGINT / any_value(samples) AS ns
FROM {parts}
JOIN samples USING (run_id)
GROUP BY run_id, category
"""


class Account(Struct, frozen=True):
    """Time by category, summed over `samples` (steps of ranks, or ranks); `rows` is the SELECT behind it."""

    times: Mapping[str, int]
    samples: int
    whole: str  # what a sample is: `step` or `GPU window`
    analysis: str
    rows: str

    @property
    def total_ns(self) -> int:
        """The time of all categories."""
        return sum(self.times.values())

    @property
    def idle(self) -> dict[str, int]:
        """The idle categories."""
        return {name: ns for name, ns in self.times.items() if name.startswith("idle_")}

    def mean(self, ns: float) -> str:
        """A sum over all samples as the mean duration of one."""
        return format_short(ns / self.samples, "ns")

    def mean_text(self, ns: float) -> str:
        """The same, as `1.2 ms per step` or `1.2 ms per rank`."""
        return f"{self.mean(ns)} per {'step' if self.whole == 'step' else 'rank'}"


def breakdown(data: ReportData) -> Account | None:
    """The account; None without GPU activities."""
    if data.has_rows("step_summary") and data.has_rows("step_account"):
        count = f"SELECT count(DISTINCT (rank, step)) AS count FROM ({_COMPLETE_STEPS})"
        samples = data.row(count, "step_account", "step_summary")["count"]
        if samples:
            return _account(data, samples, "step", "step_account", _COMPLETE_STEPS)
    if not data.has_rows("window_account"):
        return None
    samples = data.row("SELECT count(DISTINCT rank) AS count FROM window_account")["count"]
    rows = "SELECT rank, NULL::BIGINT AS step, category, category_ns FROM window_account"
    return _account(data, samples, "GPU window", "window_account", rows)


def _account(data: ReportData, samples: int, whole: str, analysis: str, rows: str) -> Account:
    by_category = data.rows(
        f"""
        SELECT category, sum(category_ns)::BIGINT AS ns
        FROM ({rows}) GROUP BY category ORDER BY ns DESC, category
        """
    )
    times = {row["category"]: row["ns"] for row in by_category}
    return Account(times, samples, whole, analysis, rows)


def mean_parts(side: Selection, steps: Result) -> dict[str, dict[str, float]]:
    """Run → category → mean ns of a complete step of a rank or, in runs without any, of its GPU window.

    `steps` are the rows of `step_summary`.
    """
    from tracewarehouse.duck.engine import scratch

    found: dict[str, dict[str, float]] = {}
    with scratch() as con:
        con.register("step_summary", steps.arrow())
        con.register("step_account", side.analyze("step_account").arrow())
        con.execute(f"CREATE TABLE of_steps AS {_OF_STEPS}")
        rows = con.execute(_MEANS.format(parts="of_steps")).fetchall()
        if len({run for run, *_ in rows}) < len(side.selected()):
            con.register("window_account", side.analyze("window_account").arrow())
            con.execute(f"CREATE TABLE of_windows AS {_OF_WINDOWS}")
            rows += con.execute(_MEANS.format(parts="of_windows")).fetchall()
    for run, category, ns in rows:
        found.setdefault(run, {})[category] = ns
    return found


_KERNELS_OF_STEPS = f"""
SELECT kind, name, op, module_path, pass, sum(sum_ns)::BIGINT AS ns
FROM step_kernels {COMPLETE}
GROUP BY ALL
"""


class Steps(Struct, frozen=True):
    """The number of complete steps, each of each rank, and their mean period."""

    count: int
    period_ns: float


class ByStep(Struct, frozen=True):
    """Kernel time of the mean complete step, as mean over ranks: values of keys → time, and the period."""

    mean_ns: Mapping[tuple[str | None, ...], float]
    period_ns: float


def complete_steps(data: ReportData) -> Steps | None:
    """The complete steps of all ranks; None without any."""
    if not data.has_rows("step_summary"):
        return None
    totals = data.row(
        "SELECT count(*) AS steps, sum(period_ns)::BIGINT AS ns FROM step_summary WHERE NOT partial"
    )
    return Steps(totals["steps"], totals["ns"] / totals["steps"]) if totals["steps"] else None


def mean_step_ns(data: ReportData) -> float | None:
    """The time of the mean complete step: what shares on a page refer to."""
    steps = complete_steps(data)
    return None if steps is None else steps.period_ns


def kernels_by_step(data: ReportData, *keys: str) -> ByStep | None:
    """The time of kernels per step by columns of `step_kernels`; None without complete steps."""
    steps = complete_steps(data)
    if steps is None or not data.reduce("kernels_of_steps", _KERNELS_OF_STEPS, "step_kernels"):
        return None
    listed = ", ".join(keys)
    rows = data.rows(f"SELECT {listed}, sum(ns)::BIGINT AS ns FROM kernels_of_steps GROUP BY {listed}")
    mean_ns = {tuple(row[key] for key in keys): row["ns"] / steps.count for row in rows}
    return ByStep(mean_ns, steps.period_ns)
