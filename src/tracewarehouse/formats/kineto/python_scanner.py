"""The scanner without native code, which only splits the text of an event array into elements.

It flags every row ODD, so that the row reader fills all columns from the text of the element. The text is
split at a comma after a closing bracket; the split is valid if the text before it is a strict JSON array,
because a split inside a string or nested value leaves something open.
"""

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
from tracewarehouse.formats.kineto.event_array import CHUNK_BYTES, cut_before, skip_whitespace
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
    """An array of texts that are known to be UTF-8; built from buffers because checking each text is slow."""
    ends = array("i", accumulate(map(len, texts), initial=0))
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))


def strict_elements(text: bytes) -> Sequence[Text] | None:
    """The minified elements of a JSON array; None if it is not strict JSON."""
    small = minify(text)
    return elements(small) if small is not None else None


# An unclosed string is also one token; otherwise matching would restart at each quote inside it.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+\\?(?:"|\Z)|[{}\[\]]', re.DOTALL)


def value_end(text: bytes | bytearray) -> int | None:
    """The end of the object or array that the text starts with; None if it is not closed."""
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


class PythonScanner:
    """A Scanner in Python."""

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
        """See `Scanner.feed`."""
        self._text += piece
        if self.state == State.TOO_LONG and self.longest_bytes > len(self._text):
            self.state = State.MORE
        full: list[Batch] = []
        while self.state == State.MORE and len(self._text) >= self._size:
            found = cut_before(self._text, 0, len(self._text), strict_elements)
            if found is None:
                self._handle_unsplittable()
                continue
            comma, texts = found
            self._take(comma + 1)
            self._size = CHUNK_BYTES
            full += self._add(texts)
        return full

    def feed_array(self, array: bytes | bytearray | memoryview) -> list[Batch]:
        """See `Scanner.feed_array`."""
        texts = strict_elements(bytes(array))
        if texts is None:
            raise RefusedError("the text is not a JSON array")
        return self._add(texts)

    def flush(self) -> Batch | None:
        """See `Scanner.flush`."""
        if self.state == State.MORE:
            self._end(whole=True)
        return self._batch()

    def take_rest(self) -> bytes:
        """See `Scanner.take_rest`."""
        rest = bytes(self._text)
        self._text.clear()
        self._size = CHUNK_BYTES
        if self.state == State.TOO_LONG:
            self.state = State.MORE
        return rest

    def _take(self, length: int) -> None:
        del self._text[:length]
        self.offset += length

    def _handle_unsplittable(self) -> None:
        """Handles text without a valid split: the array ended, an element is long, or it is invalid."""
        self._end(whole=False)
        if self.state != State.MORE:
            return
        if self._size < self.longest_bytes:
            self._size = min(4 * self._size, self.longest_bytes)
            return
        start = skip_whitespace(self._text, 0)
        is_open = self._text.startswith((b"{", b"["), start) and value_end(self._text[start:]) is None
        self.state = State.TOO_LONG if is_open else State.REFUSED

    def _end(self, *, whole: bool) -> None:
        """Reads up to the end of the array; if it is not closed and `whole`, all complete elements."""
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
        """Reads the complete elements of a text that ends inside the array."""
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
        """The number of elements in the next batch; at least one."""
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
    """A batch whose rows the row reader fills."""
    flags = np.full(len(texts), ODD, np.uint8)
    return Batch(len(texts), {}, {}, {}, {"text": strings(texts)}, flags, None, {})


def new_scanner(*, exact: bool = False) -> Scanner:
    """The native scanner if it is available and not `exact`, else the Python scanner."""
    return PythonScanner() if exact or not native.available() else native.NativeScanner()
