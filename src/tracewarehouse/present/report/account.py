"""Where the time of a run went: a mean step of its complete steps or, without any, the GPU window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tracewarehouse.present.plot.theme import format_short
from tracewarehouse.present.report.data import ReportData
from tracewarehouse.result import Result
from tracewarehouse.runs.selection import Selection

# The category → ns of all ranks, largest first.
_TIMES = """
SELECT category, sum(category_ns)::BIGINT AS ns FROM ({rows}) GROUP BY category ORDER BY ns DESC, category
"""
_COMPLETE_STEPS = """
SELECT step_account.rank, step_account.step, category, category_ns
FROM step_account
SEMI JOIN (FROM step_summary WHERE NOT partial) AS complete
  ON complete.rank = step_account.rank AND complete.step = step_account.step
"""


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


@dataclass(frozen=True)
class Account:
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
    times = {row["category"]: row["ns"] for row in data.rows(_TIMES.format(rows=rows))}
    return Account(times, samples, whole, analysis, rows)


def mean_parts(side: Selection, steps: Result) -> dict[str, dict[str, float]]:
    """Run → category → mean ns of a complete step of a rank or, in runs without any, of its GPU window.

    `steps` are the rows of `step_summary`.
    """
    from tracewarehouse.duck.engine import scratch

    found: dict[str, dict[str, float]] = {}
    with scratch() as con:
        con.register("step_summary", steps.arrow())
        con.register("step_account", side.run("step_account").arrow())
        con.execute(f"CREATE TABLE of_steps AS {_OF_STEPS}")
        rows = con.execute(_MEANS.format(parts="of_steps")).fetchall()
        if len({run for run, *_ in rows}) < len(side.selected()):
            con.register("window_account", side.run("window_account").arrow())
            con.execute(f"CREATE TABLE of_windows AS {_OF_WINDOWS}")
            rows += con.execute(_MEANS.format(parts="of_windows")).fetchall()
    for run, category, ns in rows:
        found.setdefault(run, {})[category] = ns
    return found
