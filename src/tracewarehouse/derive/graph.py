"""Longest paths through a graph whose nodes are numbered in the order of time.

Every edge leads to a higher number, so one pass in that order finds them: no library is faster at it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def walk(before: Mapping[int, int], last: int) -> list[int]:
    """The nodes from the one after the first up to `last`; `before` is the node that decided each."""
    path = []
    node = last
    while node in before:
        path.append(node)
        node = before[node]
    return path[::-1]


def longest(edges: Iterable[tuple[int, int, int]], nodes: int) -> tuple[list[int], list[int]]:
    """For each node the longest way to it from the first, and the edge by which that comes, -1 for none.

    `edges` are (from, to, weight), sorted by `to`, nodes counted from 1. Of ways alike the first given.
    """
    length, by = [0] * (nodes + 1), [-1] * (nodes + 1)
    for number, (source, target, weight) in enumerate(edges):
        way = length[source] + weight
        if by[target] < 0 or way > length[target]:
            length[target], by[target] = way, number
    return length, by


def back(edges: Sequence[tuple[int, int, int]], by: Sequence[int], last: int) -> list[int]:
    """The numbers of the edges on the longest way to `last`, first to last."""
    path = []
    node = last
    while by[node] >= 0:
        path.append(by[node])
        node = edges[by[node]][0]
    return path[::-1]
