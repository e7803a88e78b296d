"""Comparison of runs: analyses joined row by row, and the overall change with its breakdown."""

from tracewarehouse.diff.diff import Diff
from tracewarehouse.diff.with_history import BASELINE, SPREADS, sides_with_history

__all__ = ["BASELINE", "SPREADS", "Diff", "sides_with_history"]
