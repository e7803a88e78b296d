"""Differences between two selections: analyses joined row by row, and the overall change."""

from tracewarehouse.compare.diff.diff import READS, Diff

__all__ = ["READS", "Diff"]
