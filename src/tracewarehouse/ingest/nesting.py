"""The tree of host slices, in one pass over them in their order: what is open is carried along.

A slice's parent is the last one on its thread that started before it and is still open. Whatever is open when
a slice starts was open when the slice before it started, so the search goes up from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from ..contract import Contract
from . import batches

if TYPE_CHECKING:
    from ..engine import Connection
    from .batches import Flags, Numbers

_AT_ONCE: Final = 1 << 18
_SLICES: Final = "SELECT event_id, thread, pre, ts_ns, end_ns FROM host_slices ORDER BY pre"
_NONE: Final = -1


@dataclass(frozen=True)
class Tree:
    """Slices in the order of nesting, with their places in the tree; `parent_id` is -1 for a root."""

    event_id: Numbers
    thread: Numbers
    pre: Numbers
    ts_ns: Numbers
    end_ns: Numbers
    parent_id: Numbers
    depth: Numbers
    post: Numbers
    crosses: Flags

    def at(self, places: Numbers | Flags) -> Tree:
        """Some of them."""
        return Tree(*(getattr(self, each.name)[places] for each in fields(self)))

    def then(self, after: Tree) -> Tree:
        """These and others after them."""
        return Tree(
            *(np.concatenate((getattr(self, each.name), getattr(after, each.name))) for each in fields(self))
        )


def fill(con: Connection, contract: Contract, at_once: int = _AT_ONCE) -> None:
    """Fills the table of the contract from `host_slices` of one rank; `at_once` changes no row."""
    batches.insert(con, contract, "host_slices", map(vars, _trees(con, at_once)))


def _trees(con: Connection, at_once: int) -> Iterator[Tree]:
    """All slices, each once nothing can come below it any more."""
    open_ = None
    for columns in batches.read(con, _SLICES, at_once):
        slices = _unplaced(columns)
        tree = _placed(open_.then(slices), len(open_.pre)) if open_ else _placed(slices, 0)
        ended = tree.post != _NONE
        yield tree.at(ended)
        open_ = tree.at(~ended)
    if open_ is not None:
        open_.post[:] = open_.pre[-1]
        yield open_


def _unplaced(columns: list[Numbers]) -> Tree:
    event_id, thread, pre, ts_ns, end_ns = columns
    nowhere = np.full(len(pre), _NONE)
    crosses = np.zeros(len(pre), np.bool_)
    return Tree(event_id, thread, pre, ts_ns, end_ns, nowhere, nowhere, nowhere, crosses)


def _placed(slices: Tree, known: int) -> Tree:
    """The tree of slices of which the first ones, each around the next, have their places but for `post`."""
    parent = _parents(slices, known)
    depth = _depths(slices.depth, parent, known)
    parent_id = np.where(parent < 0, _NONE, slices.event_id[parent])
    crosses = (parent >= 0) & (slices.end_ns > slices.end_ns[parent])
    parent_id[:known], crosses[:known] = slices.parent_id[:known], slices.crosses[:known]
    post = _posts(slices, parent, depth)
    return replace(slices, parent_id=parent_id, depth=depth, post=post, crosses=crosses)


def _parents(slices: Tree, known: int) -> Numbers:
    """Where each slice's parent stands: no later than its predecessor, nor than what stands for that one."""
    parent = np.arange(_NONE, len(slices.pre) - 1)
    seekers = np.arange(known, len(parent))
    while seekers.size:
        found = parent[seekers]
        seekers, found = seekers[found >= 0], found[found >= 0]
        other = slices.thread[found] != slices.thread[seekers]
        parent[seekers[other]] = _NONE
        over = ~other & (slices.end_ns[found] <= slices.ts_ns[seekers])
        seekers = seekers[over]
        parent[seekers] = parent[found[over]]
    return parent


def _depths(before: Numbers, parent: Numbers, known: int) -> Numbers:
    """Levels from the root, by way of ancestors twice as far up each time."""
    levels, above = np.ones_like(parent), parent.copy()
    climbers = np.flatnonzero(above >= known)
    while climbers.size:
        by_way_of = above[climbers]
        further = above[by_way_of]
        levels[climbers] += levels[by_way_of]
        above[climbers] = further
        climbers = climbers[further >= known]
    levels[above >= 0] += before[above[above >= 0]]
    levels[:known] = before[:known]
    return levels


def _posts(slices: Tree, parent: Numbers, depth: Numbers) -> Numbers:
    """Places of last descendants: a slice ends the one before it and all around that down to its level."""
    post = np.full(len(parent), _NONE)
    ended = depth[:-1] - depth[1:] + 1
    last = np.flatnonzero(ended > 0)
    ended, node = ended[last], last.copy()
    while last.size:
        post[node] = slices.pre[last]
        more = ended > 1
        last, node, ended = last[more], parent[node[more]], ended[more] - 1
    return post
