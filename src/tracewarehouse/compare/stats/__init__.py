"""Statistics of comparisons: pure functions on numbers, independent of runs and warehouses."""

from tracewarehouse.compare.stats.baseline import (
    MAX_EARLIER,
    MIN_EARLIER,
    Earlier,
    shift_with_history,
    variance_shares,
)
from tracewarehouse.compare.stats.many_series import RowTest, row_tests
from tracewarehouse.compare.stats.two_sample import (
    MIN_SAMPLES,
    MoreRuns,
    ShiftTest,
    power_at,
    relative_shift,
    runs_needed,
    smallest_detected,
)
from tracewarehouse.compare.stats.verdict import StepTimes, Verdict, blocks, verdict

__all__ = [
    "MAX_EARLIER",
    "MIN_EARLIER",
    "MIN_SAMPLES",
    "Earlier",
    "MoreRuns",
    "RowTest",
    "ShiftTest",
    "StepTimes",
    "Verdict",
    "blocks",
    "power_at",
    "relative_shift",
    "row_tests",
    "runs_needed",
    "shift_with_history",
    "smallest_detected",
    "variance_shares",
    "verdict",
]
