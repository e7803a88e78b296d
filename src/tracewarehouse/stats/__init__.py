"""Statistics of comparisons: pure functions on numbers, independent of runs and warehouses."""

from tracewarehouse.stats.rows import RowTest, row_tests
from tracewarehouse.stats.shift import MIN_SAMPLES, ShiftTest, relative_shift
from tracewarehouse.stats.verdict import StepTimes, Verdict, blocks, runs_needed, verdict

__all__ = [
    "MIN_SAMPLES",
    "RowTest",
    "ShiftTest",
    "StepTimes",
    "Verdict",
    "blocks",
    "relative_shift",
    "row_tests",
    "runs_needed",
    "verdict",
]
