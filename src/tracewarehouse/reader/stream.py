"""A whole document of strict JSON, read as it is unpacked: only one chunk of it is in memory.

Each cut is proved by the chunk being a JSON array of its own, the first one by the header being an object
that ends with an empty event array, the last one by what is left being the rest of such an object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic

from tracewarehouse.reader.source import Flow
from tracewarehouse.reader.strict import CHUNK_BYTES, EVENTS_KEY, Proved, cut_before, outline

_EVENTS_START: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_LIST_START: Final = re.compile(rb"\s*\[")
_REST_HEAD: Final = b'{"traceEvents":['
# What is still not proved with so much in memory is read by way of a file instead.
_MOST_BYTES: Final = 256 << 20


class Unusual(Exception):
    """Not a whole, strict document that begins with an event: it must be read another way."""


@dataclass
class Stream(Generic[Proved]):
    """Iterate `chunks()` to the end; then `members` and `flow` are complete.

    `prove` gets a JSON array of consecutive events as text; what it makes of it is handed out, None says that
    the text is no strict JSON.
    """

    path: Path
    prove: Callable[[bytes], Proved | None]
    members: dict[str, bytes] = field(default_factory=dict)
    _text: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.flow = Flow(self.path)

    def chunks(self) -> Iterator[Proved]:
        """The events in file order. Raises Unusual, TraceFormatError where the file cannot be read."""
        pieces = iter(self.flow)
        try:
            is_list = self._head(pieces)
            size = CHUNK_BYTES
            while self._fill(pieces, size):
                if (found := self._cut()) is None:
                    size = self._longer(size)
                    continue
                size = CHUNK_BYTES
                yield found
            yield self._rest(is_list)
        finally:
            pieces.close()  # type: ignore[attr-defined]

    def _fill(self, pieces: Iterator[bytes], size: int) -> bool:
        """Reads on to that size; False where the file ends before."""
        while len(self._text) < size:
            if (piece := next(pieces, None)) is None:
                return False
            self._text += piece
        return True

    def _head(self, pieces: Iterator[bytes]) -> bool:
        """Takes all up to the first event off the text; tells whether the document is a list."""
        size, more = 0, True
        while more:
            more = self._fill(pieces, size := self._longer(size))
            text = bytes(self._text)
            if (start := _LIST_START.match(text)) is not None:
                self._take(start.end())
                return True
            for start in _EVENTS_START.finditer(text):
                if (found := _members(text[: start.end()] + b"]}")) is not None:
                    self.members = found
                    self._take(start.end())
                    return False
        raise Unusual

    def _take(self, head_bytes: int) -> None:
        del self._text[:head_bytes]
        if not self._text.lstrip().startswith((b"{", b"]")):
            raise Unusual

    def _longer(self, size: int) -> int:
        if size >= _MOST_BYTES:
            raise Unusual
        return max(CHUNK_BYTES // 4, 4 * size)

    def _cut(self) -> Proved | None:
        found = cut_before(self._text, 0, len(self._text), self.prove)
        if found is None:
            return None
        comma, proved = found
        del self._text[: comma + 1]
        return proved

    def _rest(self, is_list: bool) -> Proved:
        """The last events, and the members of the document that follow them."""
        text = (b"[" if is_list else _REST_HEAD) + bytes(self._text)
        found = outline(text)
        if found is None or found.events is None or self.flow.cut is not None:
            raise Unusual
        array = text[slice(*found.events)]
        members = dict(found.members)
        proved = self.prove(array)
        # An empty rest is either a file without events or a comma too many.
        if proved is None or array.strip(b"[] \t\r\n") == b"" or not members.keys().isdisjoint(self.members):
            raise Unusual
        self.members |= members
        return proved


def _members(text: bytes) -> dict[str, bytes] | None:
    """The members of a document that ends with an empty list of events; None where it is not strict JSON."""
    found = outline(text)
    if found is None or found.events is None or found.events[1] != len(text) - 1:
        return None
    return {key: value for key, value in found.members if key != EVENTS_KEY}
