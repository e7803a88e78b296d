"""Brute-force checks: the same numbers computed in plain Python from the JSON."""
