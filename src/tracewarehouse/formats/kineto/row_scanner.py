"""The scanner that needs no native code: it only splits the text of an event array into elements.

Every row of its batches is flagged as odd, so that the row path makes all columns from the element's text. A
cut is proved by what lies before it being a strict JSON array of its own: a cut inside a string or a nested
value leaves something open.


Which scanner reads a file: the native one where it was built, else the row-by-row one."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np
import pyarrow as pa

from tracewarehouse.formats.json_text import Text, elements, minify
from tracewarehouse.formats.kineto import native
from tracewarehouse.formats.kineto.event_array import CHUNK_BYTES, cut_before, skip_blanks
from tracewarehouse.formats.kineto.scanner import (
    BATCH_BYTES,
    BATCH_ROWS,
    LONGEST_BYTES,
    ODD,
    Batch,
    RefusedError,
    Scanner,
    State,
)


def strings(texts: Sequence[Text]) -> pa.StringArray:
    """The texts, which are UTF-8, as they lie in memory: checking each costs more than all else here."""
    ends = array("i", accumulate(map(len, texts), initial=0))
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))


def strict_elements(text: bytes) -> Sequence[Text] | None:
    """The minified elements of a JSON array; None where it is not strict JSON."""
    small = minify(text)
    return elements(small) if small is not None else None


# An unclosed string is one token too: without it, each quote in one would be tried as a beginning.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+\\?(?:"|\Z)|[{}\[\]]', re.DOTALL)


def value_end(text: bytes | bytearray) -> int | None:
    """Where the container that a text begins with ends, by its brackets and quotes; None if it does not."""
    depth = 0
    for match in _TOKEN.finditer(text):
        sign = text[match.start()]
        if sign in b"{[":
            depth += 1
        elif sign in b"}]":
            depth -= 1
            if depth == 0:
                return match.end()
    return None


def _text_bytes(texts: Sequence[Text]) -> int:
    return sum(map(len, texts))


class RowScanner:
    """A Scanner."""

    def __init__(self) -> None:
        self.longest_bytes = LONGEST_BYTES
        self.state = State.MORE
        self.offset = 0
        self.rows = 0
        self._text = bytearray()
        self._size = CHUNK_BYTES
        self._elements: list[Text] = []
        self._bytes = 0

    def feed(self, piece: bytes | bytearray | memoryview) -> list[Batch]:
        """Reads on; the batches that became full."""
        self._text += piece
        if self.state == State.TOO_LONG and self.longest_bytes > len(self._text):
            self.state = State.MORE
        full: list[Batch] = []
        while self.state == State.MORE and len(self._text) >= self._size:
            found = cut_before(self._text, 0, len(self._text), strict_elements)
            if found is None:
                self._cannot_cut()
                continue
            comma, texts = found
            self._take(comma + 1)
            self._size = CHUNK_BYTES
            full += self._add(texts)
        return full

    def feed_array(self, array: bytes | bytearray | memoryview) -> list[Batch]:
        """Reads a whole array of strict JSON as further elements. Raises RefusedError."""
        texts = strict_elements(bytes(array))
        if texts is None:
            raise RefusedError("the text is not a JSON array")
        return self._add(texts)

    def flush(self) -> Batch | None:
        """The rows since the last batch; reads up to where the array closes, if it does."""
        if self.state == State.MORE:
            self._end(whole=True)
        return self._batch()

    def take_rest(self) -> bytes:
        """The fed text that was not read."""
        rest = bytes(self._text)
        self._text.clear()
        self._size = CHUNK_BYTES
        if self.state == State.TOO_LONG:
            self.state = State.MORE
        return rest

    def _take(self, length: int) -> None:
        del self._text[:length]
        self.offset += length

    def _cannot_cut(self) -> None:
        """The array closed, one element is long, or the text is not strict JSON."""
        self._end(whole=False)
        if self.state != State.MORE:
            return
        if self._size < self.longest_bytes:
            self._size = min(4 * self._size, self.longest_bytes)
            return
        start = skip_blanks(self._text, 0)
        is_open = self._text.startswith((b"{", b"["), start) and value_end(self._text[start:]) is None
        self.state = State.TOO_LONG if is_open else State.REFUSED

    def _end(self, *, whole: bool) -> None:
        """Reads to the end of the array; where `whole` and it does not close, all that is an element."""
        text = b"[" + bytes(self._text)
        stop = value_end(text)
        if stop is None:
            if whole and self._text.strip():
                self._rest()
            return
        texts = strict_elements(text[:stop])
        if texts is None or (self.rows and not texts):
            self.state = State.REFUSED
            return
        self._take(stop - 2)
        self._keep(texts)
        self.state = State.CLOSED

    def _rest(self) -> None:
        """The whole elements of a text that ends inside the array."""
        found = cut_before(self._text, 0, len(self._text), strict_elements)
        if found is not None:
            self._take(found[0] + 1)
            self._keep(found[1])

    def _keep(self, texts: Sequence[Text]) -> None:
        self._elements += texts
        self._bytes += _text_bytes(texts)
        self.rows += len(texts)

    def _add(self, texts: Sequence[Text]) -> list[Batch]:
        self._keep(texts)
        full: list[Batch] = []
        while len(self._elements) >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
            batch = self._batch()
            assert batch is not None
            full.append(batch)
        return full

    def _batch(self) -> Batch | None:
        if not self._elements:
            return None
        count = self._fitting()
        texts, self._elements = self._elements[:count], self._elements[count:]
        self._bytes -= _text_bytes(texts)
        return _odd(texts)

    def _fitting(self) -> int:
        """How many of the next elements make a batch; at least one."""
        most = min(len(self._elements), BATCH_ROWS)
        if self._bytes < BATCH_BYTES:
            return most
        size = 0
        for count, text in enumerate(self._elements[:most]):
            size += len(text)
            if size >= BATCH_BYTES:
                return count + 1
        return most


def _odd(texts: Sequence[Text]) -> Batch:
    """A batch of elements that the row path reads."""
    flags = np.full(len(texts), ODD, np.uint8)
    return Batch(len(texts), {}, {}, {}, {"text": strings(texts)}, flags, None, {})


def new_scanner(*, exact: bool = False) -> Scanner:
    """A scanner at the beginning of an event array; `exact`: the row-by-row one in any case."""
    return RowScanner() if exact or not native.available() else native.NativeScanner()
