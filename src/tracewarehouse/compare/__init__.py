"""Comparisons: metrics, statistics, differences between runs, and their history."""
