"""Whole numbers that add up like the fractions they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor


def rounded(values: Sequence[Fraction]) -> list[int]:
    """Each value rounded up or down so that all add up to their rounded sum: the largest remainders go up."""
    whole = [floor(value) for value in values]
    missing = round(sum(values, Fraction(0))) - sum(whole)
    order = sorted(range(len(values)), key=lambda at: (whole[at] - values[at], at))
    for at in order[:missing]:
        whole[at] += 1
    return whole
