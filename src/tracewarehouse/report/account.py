"""Where the time of a run went: a mean step of its complete steps or, without any, the GPU window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tracewarehouse.plot.theme import format_short
from tracewarehouse.report.data import ReportData

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
