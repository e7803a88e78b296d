"""The native scanner: `scan.c` as a shared library, called through ctypes without the GIL.

The library is built when the package is installed (see `build.py`) and is located beside this module. It is
used only if it was built from the `scan.c` in the same folder.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_uint64, c_void_p
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tracewarehouse.formats.kineto import scanner as columns
from tracewarehouse.formats.kineto.build import library_name
from tracewarehouse.formats.kineto.scanner import (
    LONGEST_BYTES,
    MOST_BYTES,
    Batch,
    Doubles,
    Ints,
    RefusedError,
    State,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

ABI: Final = 1
_FOLDER: Final = Path(__file__).parent
_REMEDY: Final = "install the package again where there is a C compiler"
_BATCH_ENDED: Final = 4
_NO_MEMORY: Final = 5
_CODES: Final = len(columns.CODES)
_NUMBERS: Final = _CODES + len(columns.INTS) + len(columns.DOUBLES)
_NAMES: Final = (*columns.CODES, *columns.INTS, *columns.DOUBLES, *columns.TEXTS)
_NUMBER_OF: Final = {name: number for number, name in enumerate(_NAMES)}


class NativeScannerError(Exception):
    """The library is missing or does not belong to this version of the package."""


class _Limits(ctypes.Structure):
    _fields_ = [(name, c_int64) for name in ("batch_rows", "batch_bytes", "words_most", "words_bytes")]


class _Bytes(ctypes.Structure):
    _fields_ = [("bytes", c_void_p), ("used", ctypes.c_size_t), ("capacity", ctypes.c_size_t)]


class _Batch(ctypes.Structure):
    _fields_ = [
        ("rows", c_int64),
        ("values", c_void_p * len(_NAMES)),
        ("valid", c_void_p * len(_NAMES)),
        ("texts", _Bytes * len(columns.TEXTS)),
        ("flags", c_void_p),
        ("restarted", c_uint64),
        ("strings_from", c_int64),
    ]


class _View(ctypes.Structure):
    _fields_ = [("count", c_int64), ("offsets", c_void_p), ("bytes", c_void_p)]


_SIGNATURES: Final[dict[str, tuple[Any, list[Any]]]] = {
    "tw_abi": (c_int, []),
    "tw_source_hash": (c_char_p, []),
    "tw_column_names": (c_char_p, []),
    "tw_new": (c_void_p, [c_uint64, c_uint64, POINTER(_Limits), c_int64]),
    "tw_free": (None, [c_void_p]),
    "tw_feed": (c_int, [c_void_p, c_void_p, c_int64, c_int64]),
    "tw_next_array": (None, [c_void_p]),
    "tw_offset": (c_int64, [c_void_p]),
    "tw_rows": (c_int64, [c_void_p]),
    "tw_rest": (c_void_p, [c_void_p, POINTER(c_int64)]),
    "tw_drop_rest": (None, [c_void_p]),
    "tw_take": (POINTER(_Batch), [c_void_p]),
    "tw_batch_free": (None, [POINTER(_Batch)]),
    "tw_words": (None, [c_void_p, c_int, POINTER(_View)]),
}


def available() -> bool:
    """Whether the library can be used."""
    return why_not() is None


@cache
def why_not() -> str | None:
    """The reason why the native scanner cannot be used; None if it can."""
    try:
        _library()
    except NativeScannerError as error:
        return str(error)
    return None


def notice() -> str | None:
    """A notice for users without the native scanner; None if it is available."""
    reason = why_not()
    return None if reason is None else f"ingesting without the native scanner, several times slower: {reason}"


def version_line() -> str:
    """The line that `tw --version` prints."""
    from tracewarehouse.version import __version__

    reason = why_not()
    scanner = "native scanner" if reason is None else f"without the native scanner: {reason}"
    return f"tw {__version__}, DuckDB {version('duckdb')}, {scanner}"


@cache
def _library() -> ctypes.CDLL:
    return load(_FOLDER / library_name(), _FOLDER / "scan.c")


def load(path: Path, source: Path) -> ctypes.CDLL:
    """Loads the library if it was built from this source. Raises NativeScannerError."""
    if not path.is_file():
        raise NativeScannerError(f"{path.name} is missing, {_REMEDY} and without TW_NO_NATIVE")
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise NativeScannerError(f"{path.name} cannot be loaded ({error})") from error
    if library.tw_abi() != ABI or library.tw_column_names().decode().split() != list(_NAMES):
        raise NativeScannerError(f"{path.name} has a different interface than this release, {_REMEDY}")
    if library.tw_source_hash().decode() != hashlib.sha256(source.read_bytes()).hexdigest():
        raise NativeScannerError(f"{path.name} was built from a different scan.c, {_REMEDY}")
    return library


class _Memory:
    """A batch in memory of the library, freed with the last array that refers to it."""

    def __init__(self, library: ctypes.CDLL, pointer: Any) -> None:
        self._library, self._pointer = library, pointer
        self.fields = pointer.contents

    def __del__(self) -> None:
        self._library.tw_batch_free(self._pointer)

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
        batch_rows: int = columns.BATCH_ROWS,
        batch_bytes: int = columns.BATCH_BYTES,
        words_most: int = columns.DICTIONARY_MAX_VALUES,
        words_bytes: int = columns.DICTIONARY_MAX_BYTES,
        allocations: int = -1,
        library: ctypes.CDLL | None = None,
    ) -> None:
        self._library = library or _library()
        self._scanner: int | None = None
        limits = _Limits(batch_rows, batch_bytes, words_most, words_bytes)
        seeds = (int.from_bytes(os.urandom(8)), int.from_bytes(os.urandom(8)))
        self._scanner = self._library.tw_new(*seeds, byref(limits), allocations)
        if not self._scanner:
            raise MemoryError
        self.longest_bytes = LONGEST_BYTES
        self._state = State.MORE
        self._dictionaries: dict[str, pa.Array] = {}
        self._ready: list[Batch] = []

    def __del__(self) -> None:
        if self._scanner:
            self._library.tw_free(self._scanner)

    @property
    def state(self) -> State:
        return self._state

    @property
    def offset(self) -> int:
        return int(self._library.tw_offset(self._scanner))

    @property
    def rows(self) -> int:
        return int(self._library.tw_rows(self._scanner))

    def feed(self, piece: bytes | bytearray | memoryview) -> list[Batch]:
        """See `Scanner.feed`."""
        if self._state not in (State.MORE, State.TOO_LONG):
            raise ValueError("the array was read to its end")
        buffer = pa.py_buffer(piece)
        self._ready += self._feed(buffer.address, buffer.size, self.longest_bytes)
        return self._full()

    def feed_array(self, array: bytes | bytearray | memoryview) -> list[Batch]:
        """See `Scanner.feed_array`."""
        text = pa.py_buffer(bytes(array).strip(b" \t\r\n"))
        if text.size > MOST_BYTES or text.to_pybytes()[:1] != b"[" or self._rest_length():
            raise RefusedError("not an array of strict JSON")
        start = self.offset
        self._ready += self._feed(text.address + 1, text.size - 1, MOST_BYTES)
        closed = self._state is State.CLOSED and self.offset - start == text.size - 2
        self._state = State.MORE
        self._library.tw_next_array(self._scanner)
        if not closed:
            raise RefusedError("not an array of strict JSON")
        return self._full()

    def flush(self) -> Batch | None:
        """See `Scanner.flush`."""
        if self._state is State.MORE:
            self._ready += self._feed(None, 0, self.longest_bytes)
        return self._ready.pop(0) if self._ready else self._take()

    def take_rest(self) -> bytes:
        """See `Scanner.take_rest`."""
        length = c_int64()
        address = self._library.tw_rest(self._scanner, byref(length))
        rest = ctypes.string_at(address, length.value) if length.value else b""
        self._library.tw_drop_rest(self._scanner)
        if self._state is State.TOO_LONG:
            self._state = State.MORE
        return rest

    def _full(self) -> list[Batch]:
        found, self._ready = self._ready, []
        return found

    def _rest_length(self) -> int:
        length = c_int64()
        self._library.tw_rest(self._scanner, byref(length))
        return length.value

    def _feed(self, address: int | None, length: int, longest: int) -> list[Batch]:
        batches = []
        answer = self._library.tw_feed(self._scanner, address, length, longest)
        while answer == _BATCH_ENDED:
            if (batch := self._take()) is not None:
                batches.append(batch)
            answer = self._library.tw_feed(self._scanner, None, 0, longest)
        if answer == _NO_MEMORY:
            raise MemoryError
        if answer == State.TOO_LONG and longest >= MOST_BYTES:
            answer = State.REFUSED
        self._state = State(answer)
        return batches

    def _take(self) -> Batch | None:
        pointer = self._library.tw_take(self._scanner)
        if not pointer:
            return None
        memory = _Memory(self._library, pointer)
        fields, rows = memory.fields, memory.fields.rows
        restarted = frozenset(n for i, n in enumerate(columns.CODES) if fields.restarted >> i & 1)
        for name in restarted:
            self._dictionaries.pop(name, None)
        codes, dictionaries = self._codes(memory, rows)
        return Batch(
            rows=rows,
            codes=codes,
            ints={name: Ints(*pair) for name, pair in _numbers(memory, columns.INTS, np.int64).items()},
            doubles={
                name: Doubles(*pair) for name, pair in _numbers(memory, columns.DOUBLES, np.float64).items()
            },
            texts=_texts(memory),
            flags=memory.array(fields.flags, rows, np.uint8),
            new_strings=self._strings(fields.strings_from) if fields.strings_from >= 0 else None,
            dictionaries=dictionaries,
            restarted=restarted,
        )

    def _codes(self, memory: _Memory, rows: int) -> tuple[dict[str, NDArray[np.int32]], dict[str, pa.Array]]:
        codes = {
            name: memory.array(address, rows, np.int32)
            for name, address in zip(columns.CODES, memory.fields.values[:_CODES], strict=True)
            if address
        }
        return codes, {name: self._dictionary(name) for name in codes}

    def _dictionary(self, name: str) -> pa.Array:
        """The dictionary of a column; copied only if it has new values."""
        view = self._view(_NUMBER_OF[name])
        known = self._dictionaries.get(name)
        if known is None or len(known) != view.count:
            self._dictionaries[name] = known = _copied(view, 0)
        return known

    def _strings(self, first: int) -> pa.Array:
        return _copied(self._view(-1), first)

    def _view(self, column: int) -> _View:
        view = _View()
        self._library.tw_words(self._scanner, column, byref(view))
        return view


def _copied(view: _View, first: int) -> pa.Array:
    """The strings of a dictionary from `first` on."""
    count = view.count - first
    if count <= 0:  # pa.array would import pandas
        return pa.Array.from_buffers(pa.string(), 0, [None, pa.py_buffer(bytes(4)), pa.py_buffer(b"")])
    offsets = np.frombuffer(ctypes.string_at(view.offsets + 4 * first, 4 * (count + 1)), np.int32)
    text = ctypes.string_at(view.bytes + int(offsets[0]), int(offsets[-1] - offsets[0]))
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(offsets - offsets[0]), pa.py_buffer(text)]
    )


def _numbers(
    memory: _Memory, names: tuple[str, ...], dtype: type[np.generic]
) -> dict[str, tuple[NDArray[Any], NDArray[np.bool_]]]:
    """Column → values and validity mask, of the columns in the batch."""
    fields, found = memory.fields, {}
    for name in names:
        number = _NUMBER_OF[name]
        if valid := fields.valid[number]:
            values = memory.array(fields.values[number], fields.rows, dtype)
            found[name] = (values, memory.array(valid, fields.rows, np.bool_))
    return found


def _texts(memory: _Memory) -> dict[str, pa.Array]:
    fields, found = memory.fields, {}
    for at, name in enumerate(columns.TEXTS):
        number = _NUMBERS + at
        if valid := fields.valid[number]:
            bitmap = memory.buffer(valid, fields.rows // 8 + 1)
            offsets = memory.buffer(fields.values[number], 4 * (fields.rows + 1))
            text = memory.buffer(fields.texts[at].bytes, fields.texts[at].used)
            found[name] = pa.Array.from_buffers(pa.string(), fields.rows, [bitmap, offsets, text])
    return found
