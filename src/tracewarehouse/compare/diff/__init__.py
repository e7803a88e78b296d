"""Differences between two selections: analyses joined row by row, and the overall change."""
