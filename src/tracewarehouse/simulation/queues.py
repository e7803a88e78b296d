"""The rows that wait for a stream, of which there may be only so many."""

from __future__ import annotations

from array import array


class Queue:
    """When the rows begin that were launched to a stream; small, for all ranks have one at the same time."""

    __slots__ = ("first", "limit", "starts")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.starts = array("q")
        self.first = 0

    def room_at(self, now_ns: int) -> int:
        """When there is room for one more: now, or when the first of those that wait begins."""
        starts, first = self.starts, self.first
        while first < len(starts) and starts[first] <= now_ns:
            first += 1
        if first > 32:
            del starts[:first]
            first = 0
        self.first = first
        return starts[first] if len(starts) - first >= self.limit else now_ns

    def add(self, begins_ns: int) -> None:
        """A row that begins then, after all before it."""
        self.starts.append(begins_ns)
