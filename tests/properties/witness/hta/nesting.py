"""HTA's older call stacks, those of its critical path: the slices of a thread under one root."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import polars as pl

from witness.hta.callgraph import place

ROOT = -1
Visit = tuple[int, int, bool]  # index, that of its parent, whether it is entered


def threads(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The rows of each host thread, in HTA's order; a thread on which a row carries a stream is none."""
    known = rows.filter(pl.col("pid").is_not_null() & pl.col("tid").is_not_null())
    for _, thread in sorted(known.group_by("pid", "tid", maintain_order=True), key=place):
        if (thread["sid"] < 0).all():
            yield thread


def visits(thread: pl.DataFrame) -> Iterator[Visit]:
    """Each slice of a thread as it is entered and left, depth first. All of them take time."""
    parent, children = _tree(thread)
    todo: list[tuple[int, bool]] = [(child, True) for child in reversed(children[ROOT])]
    while todo:
        at, entered = todo.pop()
        yield at, parent[at], entered
        if entered:
            todo.append((at, False))
            todo += [(child, True) for child in reversed(children.get(at, ()))]


def _tree(thread: pl.DataFrame) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Parents and children, by a stack that pops blindly."""
    parent: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    stack: list[int] = []
    for at, opens in _edges(thread):
        if opens:
            above = stack[-1] if stack else ROOT
            parent[at] = above
            children[above].append(at)
            stack.append(at)
        elif stack:
            stack.pop()
    return parent, children


def _edges(thread: pl.DataFrame) -> Iterator[tuple[int, bool]]:
    """Starts and ends: at one time ends first, the outer slice around the inner, then the earlier row."""
    index, ts, dur = (thread[name].to_numpy() for name in ("index", "ts", "dur"))
    opens = np.repeat([True, False], len(index))
    time = np.concatenate([ts, ts + dur])
    depth, row = np.concatenate([-dur, dur]), np.concatenate([index, -index])
    in_turn = np.lexsort((row, depth, opens, time))
    return zip(np.abs(row[in_turn]).tolist(), opens[in_turn].tolist(), strict=True)
