"""HTA's call graph: the slices of a thread in its own order, nested by a stack that pops blindly."""

from __future__ import annotations

from collections import defaultdict
from functools import cmp_to_key, lru_cache

import numpy as np
import polars as pl

from witness.hta.frame import Frame, Rank, frames
from witness.hta.rules import Fails, Rules

OPEN, CLOSE = -1, 1
Edge = tuple[float, float, float, float]  # index, length, OPEN or CLOSE, time


def before(x: Edge, y: Edge) -> bool:
    """HTA's order of two ends of slices; raises Fails for what it does not expect."""
    if x[3] != y[3]:
        return x[3] < y[3]
    if x[0] == y[0]:
        return x[2] == OPEN
    if x[1] == 0 or y[1] == 0:
        return _with_none(x, y)
    if x[2] != y[2]:
        return x[2] == CLOSE
    if x[1] != y[1]:
        return x[1] > y[1] if x[2] == OPEN else x[1] < y[1]
    return x[0] < y[0] if x[2] == OPEN else x[0] > y[0]


def _with_none(x: Edge, y: Edge) -> bool:
    if x[1] == 0 and y[1] > 0:
        return y[2] == CLOSE
    if x[1] > 0 and y[1] == 0:
        return x[2] == OPEN
    if x[1] == 0 and y[1] == 0:
        if x[2] != y[2]:
            return x[2] == OPEN
        return x[0] < y[0] if x[2] == OPEN else x[0] > y[0]
    raise Fails("ValueError", 4, "a slice of -1 µs beside one without length: no case for it")


class Graph:
    """Parents and children of one rank, GPU activities under the calls that launched them."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.parent: dict[int, int] = {}
        self.children: dict[int, list[int]] = defaultdict(list)
        self.kernels: set[int] = set()
        rows = frame.rows
        links = rows.filter((pl.col("arg_stream") > 0) & (pl.col("partner") > 0))
        self.launched: dict[int, list[int]] = defaultdict(list)
        for call, at in links.select("partner", "index").rows():
            self.launched[call].append(at)
        labels: list[tuple[str, int, pl.DataFrame]] = []
        for (pid, tid), thread in sorted(rows.group_by("pid", "tid", maintain_order=True), key=place):
            if not _on_gpu(thread, pid, tid):
                labels.append((_label(thread), self._nest(thread, tid), thread))
        self._connect([each for each in labels if each[0] in ("bwd", "main")])

    def _nest(self, thread: pl.DataFrame, tid: str) -> int:
        if thread["text_tid"].any() or not tid.lstrip("-").isdigit():
            raise Fails("TypeError", 15, "the name of a thread is text")
        root = -abs(int(tid))
        self.children.setdefault(root, [])
        stack: list[int] = []
        for at, _, kind, _ in _edges(thread.filter(pl.col("arg_stream") == -1)):
            if kind == OPEN:
                self._add(stack[-1] if stack else root, int(at))
                stack.append(int(at))
            elif stack:
                stack.pop()
        for call in thread["index"]:
            for at in self.launched.get(call, ()):
                self.kernels.add(at)
                self._add(call, at)
        return root

    def _add(self, parent: int, child: int) -> None:
        if child not in self.parent:
            self.children[parent].append(child)
            self.parent[child] = parent

    def _connect(self, found: list[tuple[str, int, pl.DataFrame]]) -> None:
        """The top of the backward thread goes under marks of the main one, where there is one of each."""
        if len(found) != 2:
            return
        (_, backward, _), (_, _, main) = sorted(found, key=lambda each: each[0])
        for prefix in ("## backward ##", "ProfilerStep#"):
            marks = main.filter(pl.col("name").str.starts_with(prefix))
            if len(marks):
                break
        spans = {at: (ts, ts + dur) for at, ts, dur in self.frame.rows.select("index", "ts", "dur").rows()}
        for mark in marks["index"]:
            start, end = spans[mark]
            for child in list(self.children.get(backward, ())):
                if child in spans and spans[child][0] >= start and spans[child][1] <= end and child != mark:
                    self.children[backward].remove(child)
                    self.children[mark].append(child)
                    self.parent[child] = mark

    def depths(self) -> dict[int, int]:
        """Of each node its distance from its root, which counts as -1."""
        found: dict[int, int] = {}
        todo = [(child, 0) for root in list(self.children) if root < 0 for child in self.children[root]]
        while todo:
            at, depth = todo.pop()
            found[at] = depth
            todo += [(child, depth + 1) for child in self.children.get(at, ())]
        return found

    def below(self, at: int) -> list[int]:
        """The node and all under it."""
        found, todo = [], [at]
        while todo:
            node = todo.pop()
            found.append(node)
            todo += self.children.get(node, ())
        return found

    def above(self, at: int) -> list[int]:
        """The node and all around it."""
        found = [at]
        while at in self.parent and self.parent[at] >= 0:
            at = self.parent[at]
            found.append(at)
        return found


@lru_cache(maxsize=12)
def graph(ranks: tuple[Rank, ...], rules: Rules) -> Graph:
    """The call graph of the first rank."""
    frame = frames(ranks, rules)[0]
    if frame.rows.is_empty():
        raise Fails("IndexError", 6, "the load filter left no row")
    return Graph(frame)


def place(group: tuple[tuple[str, str], pl.DataFrame]) -> tuple[bool, int, str, bool, int, str]:
    (pid, tid), _ = group
    return (*_number(pid), *_number(tid))


def _number(text: str) -> tuple[bool, int, str]:
    return (False, int(text), "") if text.lstrip("-").isdigit() else (True, 0, text)


def _on_gpu(thread: pl.DataFrame, pid: str, tid: str) -> bool:
    return bool((thread["arg_stream"] > 0).all()) or pid == "0" or tid == "0"


def _label(thread: pl.DataFrame) -> str:
    names = thread["name"].unique()
    if names.str.starts_with("ProfilerStep#").any():
        return "main"
    return "bwd" if names.str.contains("autograd::", literal=True).any() else ""


def _edges(rows: pl.DataFrame) -> list[Edge]:
    index, ts, dur = (rows[name].to_numpy().astype(float) for name in ("index", "ts", "dur"))
    at, length = np.concatenate([index, index]), np.concatenate([dur, dur])
    kind = np.concatenate([np.full(len(index), OPEN), np.full(len(index), CLOSE)])
    time = np.concatenate([ts, ts + dur])
    by_time = np.argsort(time, kind="quicksort")
    edges = list(zip(at[by_time], length[by_time], kind[by_time], time[by_time], strict=True))
    return sorted(edges, key=cmp_to_key(lambda x, y: -1 if before(x, y) else 1))
