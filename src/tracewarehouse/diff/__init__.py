"""What differs between two runs: one analysis asked of both, joined row by row."""

from tracewarehouse.diff.asked import Diff, Side

__all__ = ["Diff", "Side"]
