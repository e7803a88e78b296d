"""Times of the mean complete step, which cards show; tables have the totals of the recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tracewarehouse.present.report.data import ReportData

COMPLETE = "SEMI JOIN (SELECT rank, step FROM step_summary WHERE NOT partial) AS complete USING (rank, step)"


@dataclass(frozen=True)
class Steps:
    """The number of complete steps, each of each rank, and their mean period."""

    count: int
    period_ns: float


@dataclass(frozen=True)
class ByStep:
    """Kernel time of the mean complete step, as mean over ranks: values of keys → time, and the period."""

    mean_ns: Mapping[tuple[str | None, ...], float]
    period_ns: float


def complete_steps(data: ReportData) -> Steps | None:
    """The complete steps of all ranks; None without any."""
    if not data.has_rows("step_summary"):
        return None
    (whole,) = data.rows(
        "SELECT count(*) AS steps, sum(period_ns)::BIGINT AS ns FROM step_summary WHERE NOT partial"
    )
    return Steps(whole["steps"], whole["ns"] / whole["steps"]) if whole["steps"] else None


def kernels_by_step(data: ReportData, *keys: str) -> ByStep | None:
    """The time of kernels per step by columns of `step_kernels`; None without complete steps."""
    whole = complete_steps(data)
    if whole is None or not data.has_rows("step_kernels"):
        return None
    listed = ", ".join(keys)
    rows = data.rows(
        f"SELECT {listed}, sum(sum_ns)::BIGINT AS ns FROM step_kernels {COMPLETE} GROUP BY {listed}"
    )
    mean_ns = {tuple(row[key] for key in keys): row["ns"] / whole.count for row in rows}
    return ByStep(mean_ns, whole.period_ns)
