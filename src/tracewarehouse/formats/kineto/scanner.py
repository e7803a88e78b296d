"""Scanners of event arrays: `scan.c` as a shared library, called without the GIL, or pure Python.

A batch holds the elements of the event array in file order, before any rule is applied: times are relative to
the base time of the file, categories and ids are verbatim. Both scanners lead to the same activities,
regardless of the sizes of the pieces of text; only the batch boundaries may differ.

The native scanner fills the columns. Its library is built when the package is installed (see `build.py`), is
located beside this module, and is used only if it was built from the `scan.c` in the same folder.

The Python scanner flags every row ODD, so that the row reader fills all columns from the text of the element.
It splits the text at a comma after a closing bracket; the split is valid if the text before it is a strict
JSON array, because a split inside a string or nested value leaves something open.
"""

from __future__ import annotations

import ctypes
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_int64
from enum import IntEnum
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from msgspec import Struct

from tracewarehouse.formats.base import Doubles as Doubles
from tracewarehouse.formats.base import Ints as Ints
from tracewarehouse.formats.base import array_of
from tracewarehouse.formats.json_text import Text, elements, minify
from tracewarehouse.formats.kineto.event_array import CHUNK_BYTES, cut_before, skip_whitespace
from tracewarehouse.formats.kineto.library import (
    BATCH_BYTES,
    BATCH_ENDED,
    BATCH_ROWS,
    CODES,
    DICTIONARY_MAX_BYTES,
    DICTIONARY_MAX_VALUES,
    DOUBLES,
    INTS,
    LONGEST_BYTES,
    NAMES,
    NO_MEMORY,
    TEXTS,
    CNumbers,
    CRows,
    Limits,
    ScannedAhead,
    View,
    available,
    library_of_package,
    open_scanner,
    view_of,
)
from tracewarehouse.late_regex import late_regex

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Flags of a row.
# ODD: the element is not an event with the usual keys and types. Only `text` is set; the row reader fills the
# row. Its strings may be missing from `new_strings` and the dictionaries: search its text for secrets.
ODD: Final = 1
# SLOW: a known argument is repeated or has an unexpected type. All typed arguments are null; the row reader
# fills them from `text`. The other columns are valid; COLLECTIVE may be missing. Search its text, too.
SLOW: Final = 2
COLLECTIVE: Final = 4  # `args` has the key "Collective name" at its top level
SUBNS: Final = 8  # a time has sub-nanosecond digits: the row reader rounds it

# Argument keys of each typed column; the first one that is present and not null wins.
KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "correlation": ("correlation",),
    "external_id": ("External id", "external id"),
    "stream": ("stream",),
    "stream_id": ("Stream Id",),
    "device": ("device",),
    "device_id": ("Device Id",),
    "bytes": ("bytes", "Bytes"),
    "sequence_number": ("Sequence number",),
    "forward_thread": ("Fwd thread id",),
    "python_id": ("Python id",),
    "python_parent_id": ("Python parent id",),
    "module_id": ("Python module id",),
    "shapes": ("Input Dims", "Input dims"),
    "dtypes": ("Input type",),
    "grid": ("grid",),
    "block": ("block",),
    "registers_per_thread": ("registers per thread",),
    "shared_memory_bytes": ("shared memory",),
    "occupancy_percent": ("est. achieved occupancy %",),
    "blocks_per_sm": ("blocks per SM",),
    "warps_per_sm": ("warps per SM",),
    "bandwidth": ("memory bandwidth (GB/s)",),
    "graph_id": ("graph id",),
    "graph_node_id": ("graph node id",),
    "collective": ("Collective name",),
    "process_group": ("Process Group Name",),
    "group_ranks": ("Process Group Ranks",),
    "group_size": ("Group size",),
    "collective_dtype": ("dtype",),
    "in_elements": ("In msg nelems",),
    "out_elements": ("Out msg nelems",),
    "collective_sequence": ("Seq",),
    "device_type": ("Device Type",),
    "address": ("Addr",),
    "total_allocated_bytes": ("Total Allocated",),
    "total_reserved_bytes": ("Total Reserved",),
    "event_index": ("Ev Idx", "Profiler Event Index"),
    "sync_kind": ("cuda_sync_kind",),
    "wait_on_stream": ("wait_on_stream",),
    "wait_on_event": ("wait_on_cuda_event_id",),
    "wait_on_correlation": ("wait_on_cuda_event_record_corr_id",),
}

# Columns that depend on arguments only.
TYPED_INTS: Final = tuple(name for name in INTS if name in KEYS or name[:-2] in ("grid", "block"))
TYPED_TEXTS: Final = tuple(name for name in CODES if name in KEYS)


class Batch(Struct, frozen=True):
    """Consecutive elements of the event array; a column that is null in every row is missing.

    `codes` are -1 where null. `new_strings` are the strings to search for secrets in addition to the
    dictionaries (which hold all strings of shapes and dtypes): distinct keys of untyped arguments and string
    values of 8 bytes or more in `args` and `flow_id` that first occur in this batch, with their escapes. None
    if there are too many: then each row must be searched. `restarted` names the dictionaries that do not
    start with the values of the previous batch.

    The arrays of `codes`, `ints`, `doubles` and `flags` are writable. A reference to one of them keeps the
    memory of the complete batch alive.
    """

    rows: int
    codes: Mapping[str, NDArray[np.int32]]
    ints: Mapping[str, Ints]
    doubles: Mapping[str, Doubles]
    texts: Mapping[str, pa.Array]
    flags: NDArray[np.uint8]
    new_strings: pa.Array | None
    dictionaries: Mapping[str, pa.Array]
    restarted: frozenset[str] = frozenset()


# Limit of an element: offsets in a text column have 32 bits.
MOST_BYTES: Final = 1 << 30


class State(IntEnum):
    """The state of a scanner after the text it was fed."""

    MORE = 0  # inside the array: feed more text
    CLOSED = 1  # at the `]` that closed the array
    REFUSED = 2  # at an element or a separator that is not strict JSON in UTF-8
    TOO_LONG = 3  # at the beginning of an element longer than `longest_bytes`


class RefusedError(ValueError):
    """The text is not an array of strict JSON."""


class Scanner(Protocol):
    """Reads the elements of one event array; the text starts after its `[`.

    Call `feed` while the state is MORE and there is text, then `flush`, which may change the state, too. If
    the text ends in state MORE, the array is not closed. Elements of any JSON type are rows. An array that is
    not strict JSON is refused at the first invalid element or separator; the rows before it are returned as
    usual.

    TOO_LONG: either raise `longest_bytes` (up to MOST_BYTES, above which the element is refused) and continue
    to feed, or remove the element with `take_rest` and feed a shorter one in its place, then the text after
    it. Memory is bounded by a small multiple of `longest_bytes`.

    Raises MemoryError.
    """

    longest_bytes: int

    @property
    def state(self) -> State: ...

    @property
    def offset(self) -> int:
        """Number of fed bytes that were read: up to `]`, or up to the first unread element."""

    @property
    def rows(self) -> int:
        """Number of elements read so far, including those of returned batches."""

    def feed(self, piece: bytes | bytearray | memoryview) -> list[Batch]:
        """Reads a piece, which may end anywhere; returns the batches that are full."""

    def feed_array(self, array: bytes | bytearray | memoryview) -> list[Batch]:
        """Reads a complete array, from `[` to `]`, as further elements; returns the batches that are full.

        Only valid between elements. `longest_bytes` does not apply. Raises RefusedError if the text is not an
        array of strict JSON, after reading the elements before the invalid one.
        """

    def flush(self) -> Batch | None:
        """Returns the rows since the last batch; call it until it returns None."""

    def take_rest(self) -> bytes:
        """Removes and returns the fed text from `offset` on; after CLOSED, the text from `]` on."""


_NUMBER_OF: Final = {name: number for number, name in enumerate(NAMES)}
# The columns with a dictionary, and the strings to search.
_DICTIONARIES: Final = (*range(len(CODES)), -1)


class _Memory:
    """A batch in memory of the library, freed with the last array that refers to it."""

    def __init__(self, library: ctypes.CDLL, pointer: Any) -> None:
        self.library_of_package, self._pointer = library, pointer
        self.fields = pointer.contents

    def __del__(self) -> None:
        self.library_of_package.tw_batch_free(self._pointer)

    def array(self, address: int, count: int, dtype: type[np.generic]) -> NDArray[Any]:
        """A writable array of the values at an address."""
        block = (ctypes.c_uint8 * (count * np.dtype(dtype).itemsize)).from_address(address)
        block.memory = self  # type: ignore[attr-defined]  # keeps the batch as long as the array
        found: NDArray[Any] = np.frombuffer(memoryview(block), np.dtype(dtype))
        return found

    def buffer(self, address: int | None, size: int) -> pa.Buffer:
        """A buffer of the bytes at an address."""
        return pa.foreign_buffer(address, size, self) if address and size else pa.py_buffer(b"")


class NativeScanner:
    """A `Scanner` in C. Raises NativeScannerError where the library cannot be used.

    The limits and `allocations` are for tests: after that many allocations, further ones fail.
    """

    def __init__(
        self,
        *,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
        words_most: int = DICTIONARY_MAX_VALUES,
        words_bytes: int = DICTIONARY_MAX_BYTES,
        allocations: int = -1,
        library: ctypes.CDLL | None = None,
    ) -> None:
        self.library_of_package = library or library_of_package()
        self._scanner: int | None = None
        limits = Limits(batch_rows, batch_bytes, words_most, words_bytes)
        self._scanner = open_scanner(self.library_of_package, limits, allocations)
        self.longest_bytes = LONGEST_BYTES
        self.state = State.MORE
        self._dictionaries: dict[str, pa.Array] = {}
        self._ready: list[Batch] = []

    def __del__(self) -> None:
        if self._scanner:
            self.library_of_package.tw_free(self._scanner)

    @property
    def offset(self) -> int:
        return int(self.library_of_package.tw_offset(self._scanner))

    @property
    def rows(self) -> int:
        return int(self.library_of_package.tw_rows(self._scanner))

    def feed(self, piece: bytes | bytearray | memoryview) -> list[Batch]:
        """See `Scanner.feed`."""
        if self.state not in (State.MORE, State.TOO_LONG):
            raise ValueError("the array was read to its end")
        buffer = pa.py_buffer(piece)
        self._ready += self._feed(buffer.address, buffer.size, self.longest_bytes)
        return self._full()

    def feed_array(self, array: bytes | bytearray | memoryview) -> list[Batch]:
        """See `Scanner.feed_array`."""
        text = pa.py_buffer(bytes(array).strip(b" \t\r\n"))
        length = c_int64()
        self.library_of_package.tw_rest(self._scanner, byref(length))
        if text.size > MOST_BYTES or text.to_pybytes()[:1] != b"[" or length.value:
            raise RefusedError("not an array of strict JSON")
        start = self.offset
        self._ready += self._feed(text.address + 1, text.size - 1, MOST_BYTES)
        closed = self.state is State.CLOSED and self.offset - start == text.size - 2
        self.state = State.MORE
        self.library_of_package.tw_next_array(self._scanner)
        if not closed:
            raise RefusedError("not an array of strict JSON")
        return self._full()

    def flush(self) -> Batch | None:
        """See `Scanner.flush`."""
        if self.state is State.MORE:
            self._ready += self._feed(None, 0, self.longest_bytes)
        return self._ready.pop(0) if self._ready else self._take()

    def take_rest(self) -> bytes:
        """See `Scanner.take_rest`."""
        length = c_int64()
        address = self.library_of_package.tw_rest(self._scanner, byref(length))
        rest = ctypes.string_at(address, length.value) if length.value else b""
        self.library_of_package.tw_drop_rest(self._scanner)
        if self.state is State.TOO_LONG:
            self.state = State.MORE
        return rest

    def split(
        self, texts: pa.StringArray, known: Sequence[pa.Int64Array], most: int
    ) -> tuple[pa.DictionaryArray, list[pa.Array]] | None:
        """JSON texts as templates (see `contracts.contract`) and up to `most` columns of the numbers in them.

        `known` are columns whose numbers the texts may repeat. None if there are too many templates. Call it
        once, and feed no text.
        """
        rows, (valid, offsets, text) = len(texts), texts.buffers()
        codes = np.empty(rows, np.int32)
        numbers, there = np.zeros((most, rows), np.int64), np.zeros((most, (rows + 7) // 8), np.uint8)
        given = CRows(
            rows, offsets.address + 4 * texts.offset, _address(text), _address(valid), texts.offset,
            len(known), most, (CNumbers * len(known))(*map(_numbers_at, known)),
            codes.ctypes.data, numbers.ctypes.data, there.ctypes.data,
        )  # fmt: skip
        stored = self.library_of_package.tw_split(self._scanner, byref(given))
        if stored < 0:
            return None
        templates = pa.DictionaryArray.from_arrays(
            array_of(codes, codes >= 0), _copied(self._view(_NUMBER_OF["cat"]), 0)
        )
        return templates, [
            pa.Array.from_buffers(pa.int64(), rows, [pa.py_buffer(there[at]), pa.py_buffer(numbers[at])])
            for at in range(stored)
        ]

    def _full(self) -> list[Batch]:
        found, self._ready = self._ready, []
        return found

    def _feed(self, address: int | None, length: int, longest: int) -> list[Batch]:
        batches = []
        answer = self.library_of_package.tw_feed(self._scanner, address, length, longest)
        while answer == BATCH_ENDED:
            if (batch := self._take()) is not None:
                batches.append(batch)
            answer = self.library_of_package.tw_feed(self._scanner, None, 0, longest)
        if answer == NO_MEMORY:
            raise MemoryError
        if answer == State.TOO_LONG and longest >= MOST_BYTES:
            answer = State.REFUSED
        self.state = State(answer)
        return batches

    def _take(self) -> Batch | None:
        pointer = self.library_of_package.tw_take(self._scanner)
        return self._batch(pointer, [self._view(at).count for at in _DICTIONARIES]) if pointer else None

    def _batch(self, pointer: Any, words: Sequence[int]) -> Batch:
        """A batch of the library; `words`: the sizes of all dictionaries when it was taken."""
        memory = _Memory(self.library_of_package, pointer)
        fields, rows = memory.fields, memory.fields.rows
        restarted = frozenset(n for i, n in enumerate(CODES) if fields.restarted >> i & 1)
        for name in restarted:
            self._dictionaries.pop(name, None)
        codes = {
            name: memory.array(address, rows, np.int32)
            for name, address in zip(CODES, fields.values[: len(CODES)], strict=True)
            if address
        }
        return Batch(
            rows=rows,
            codes=codes,
            ints=_numbers(memory, INTS, np.int64, Ints),
            doubles=_numbers(memory, DOUBLES, np.float64, Doubles),
            texts=_texts(memory),
            flags=memory.array(fields.flags, rows, np.uint8),
            new_strings=self._strings(fields.strings_from, words[-1]) if fields.strings_from >= 0 else None,
            dictionaries={name: self._dictionary(name, words[_NUMBER_OF[name]]) for name in codes},
            restarted=restarted,
        )

    def _strings(self, first: int, count: int) -> pa.Array:
        view = self._view(-1)
        view.count = count
        return _copied(view, first)

    def _dictionary(self, name: str, count: int) -> pa.Array:
        """The first words of the dictionary of a column; copied only if there are new ones."""
        known = self._dictionaries.get(name)
        if known is None or len(known) != count:
            view = self._view(_NUMBER_OF[name])
            view.count = count
            self._dictionaries[name] = known = _copied(view, 0)
        return known

    def _view(self, column: int) -> View:
        return view_of(self.library_of_package, self._scanner, column)


class ScannerOfFile(NativeScanner):
    """The scanner of a file that was scanned ahead: it has read all events, and ignores what it is fed."""

    def __init__(self, scanned: ScannedAhead) -> None:
        super().__init__()
        self.library_of_package.tw_free(self._scanner)
        self._scanner = scanned.scanner
        self.state = State.CLOSED
        self._ready = [self._batch(*batch) for batch in scanned.batches]

    def feed(self, piece: bytes | bytearray | memoryview) -> list[Batch]:
        """The batches, once."""
        return self._full()


def _copied(view: View, first: int) -> pa.Array:
    """The strings of a dictionary from `first` on."""
    count = view.count - first
    if count <= 0:  # pa.array would import pandas
        return pa.Array.from_buffers(pa.string(), 0, [None, pa.py_buffer(bytes(4)), pa.py_buffer(b"")])
    offsets = np.frombuffer(ctypes.string_at(view.offsets + 4 * first, 4 * (count + 1)), np.int32)
    text = ctypes.string_at(view.bytes + int(offsets[0]), int(offsets[-1] - offsets[0]))
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(offsets - offsets[0]), pa.py_buffer(text)]
    )


def _numbers_at(column: pa.Int64Array) -> CNumbers:
    valid, values = column.buffers()
    return CNumbers(values.address + 8 * column.offset, _address(valid), column.offset)


def _address(buffer: pa.Buffer | None) -> int | None:
    return None if buffer is None else int(buffer.address)


Numbers = TypeVar("Numbers", Ints, Doubles)


def _numbers(
    memory: _Memory, names: tuple[str, ...], dtype: type[np.generic], make: Callable[..., Numbers]
) -> dict[str, Numbers]:
    """Column → values and validity mask, of the columns in the batch."""
    fields, found = memory.fields, {}
    for name in names:
        number = _NUMBER_OF[name]
        if valid := fields.valid[number]:
            values = memory.array(fields.values[number], fields.rows, dtype)
            found[name] = make(values, memory.array(valid, fields.rows, np.bool_))
    return found


def _texts(memory: _Memory) -> dict[str, pa.Array]:
    fields, found = memory.fields, {}
    for at, name in enumerate(TEXTS):
        number = _NUMBER_OF[name]
        if valid := fields.valid[number]:
            bitmap = memory.buffer(valid, fields.rows // 8 + 1)
            offsets = memory.buffer(fields.values[number], 4 * (fields.rows + 1))
            text = memory.buffer(fields.texts[at].bytes, fields.texts[at].used)
            found[name] = pa.Array.from_buffers(pa.string(), fields.rows, [bitmap, offsets, text])
    return found


def strings(texts: Sequence[Text]) -> pa.StringArray:
    """An array of texts that are known to be UTF-8; built from buffers because checking each text is slow."""
    ends = array("i", accumulate(map(len, texts), initial=0))
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))


def strict_elements(text: bytes) -> Sequence[Text] | None:
    """The minified elements of a JSON array; None if it is not strict JSON."""
    minified = minify(text)
    return elements(minified) if minified is not None else None


# An unclosed string is also one token; otherwise matching would restart at each quote inside it.
_TOKEN: Final = late_regex(rb'"(?:[^"\\]++|\\.)*+\\?(?:"|\Z)|[{}\[\]]', re.DOTALL)


def closing_end(text: bytes | bytearray) -> int | None:
    """The end of the object or array that the text starts with; None if it is not closed.

    It counts brackets of both kinds together: text with the wrong bracket is closed, and refused when it is
    parsed.
    """
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
        is_open = self._text.startswith((b"{", b"["), start) and closing_end(self._text[start:]) is None
        self.state = State.TOO_LONG if is_open else State.REFUSED

    def _end(self, *, whole: bool) -> None:
        """Reads up to the end of the array; if it is not closed and `whole`, all complete elements."""
        text = b"[" + bytes(self._text)
        stop = closing_end(text)
        if stop is None:
            complete = cut_before(self._text, 0, len(self._text), strict_elements) if whole else None
            if complete is not None:
                self._take(complete[0] + 1)
                self._keep(complete[1])
            return
        texts = strict_elements(text[:stop])
        if texts is None or (self.rows and not texts):
            self.state = State.REFUSED
            return
        self._take(stop - 2)
        self._keep(texts)
        self.state = State.CLOSED

    def _keep(self, texts: Sequence[Text]) -> None:
        self._elements += texts
        self._bytes += sum(map(len, texts))
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
        self._bytes -= sum(map(len, texts))
        flags = np.full(count, ODD, np.uint8)
        return Batch(count, {}, {}, {}, {"text": strings(texts)}, flags, None, {})

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


def new_scanner(*, exact: bool = False) -> Scanner:
    """The native scanner if it is available and not `exact`, else the Python scanner."""
    return PythonScanner() if exact or not available() else NativeScanner()
