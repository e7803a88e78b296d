"""What stands around each host call, in one pass over owners and calls in the order of nesting.

What is open is carried along. A call's owners are the last one before it that has descendants so far, and all
around that one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ..contract import Contract
from . import batches

if TYPE_CHECKING:
    from ..engine import Connection
    from .batches import Flags, Numbers

_AT_ONCE: Final = 1 << 18
# A call has no descendants that anybody asks for: its `post` is 0.
_ROWS: Final = """
SELECT event_id, pre, post FROM owners
UNION ALL
SELECT event_id, pre, 0::BIGINT AS post FROM calls
ORDER BY pre"""


@dataclass(frozen=True)
class Rows:
    """Owners and calls in the order of nesting."""

    event_id: Numbers
    pre: Numbers
    post: Numbers

    def at(self, places: Flags) -> Rows:
        """Some of them."""
        return Rows(self.event_id[places], self.pre[places], self.post[places])

    def then(self, after: Rows) -> Rows:
        """These and others after them."""
        pairs = ((self.event_id, after.event_id), (self.pre, after.pre), (self.post, after.post))
        return Rows(*map(np.concatenate, pairs))


def fill(con: Connection, contract: Contract, at_once: int = _AT_ONCE) -> None:
    """Fills the table of the contract from `owners` and `calls` of one rank; `at_once` changes no row."""
    batches.insert(con, contract, "calls", _pairs(con, at_once))


def _pairs(con: Connection, at_once: int) -> Iterator[dict[str, Numbers]]:
    """Calls and what is around them, batch by batch, the innermost first."""
    open_ = None
    for columns in batches.read(con, _ROWS, at_once):
        rows = open_.then(Rows(*columns)) if open_ else Rows(*columns)
        parent = _parents(rows)
        call = np.flatnonzero(rows.post == 0)
        owner = parent[call]
        while (found := owner >= 0).any():
            call, owner = call[found], owner[found]
            yield {"call_id": rows.event_id[call], "owner_id": rows.event_id[owner]}
            owner = parent[owner]
        open_ = rows.at(rows.post > rows.pre[-1])


def _parents(rows: Rows) -> Numbers:
    """Where each row's innermost owner stands, -1 for none: no later than the last owner before it."""
    places = np.arange(len(rows.pre))
    latest = np.maximum.accumulate(np.where(rows.post > 0, places, -1))
    parent = np.concatenate(([-1], latest[:-1]))
    seekers = places
    while seekers.size:
        found = parent[seekers]
        over = (found >= 0) & (rows.post[found] < rows.pre[seekers])
        seekers = seekers[over]
        parent[seekers] = parent[found[over]]
    return parent
