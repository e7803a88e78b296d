"""What differs between two runs: an analysis joined row by row; `account` for the change of the mean step."""

from tracewarehouse.diff.diff import Diff
from tracewarehouse.metric import Side

__all__ = ["Diff", "Side"]
