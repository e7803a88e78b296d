"""The library of the native scanner: its columns, its structures, whether it can be used, and scanning ahead.

It imports neither numpy nor pyarrow: `tw --version` names the scanner, and `tw ingest` scans a file while
these are imported.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any, Final

from tracewarehouse.formats.kineto.build import library_name
from tracewarehouse.late_regex import late_regex

# Dictionary-encoded columns: codes index `dictionaries` of the same batch. A dictionary starts with the
# values of the previous batch and grows until it overflows; then it restarts empty and `restarted` names it.
# ph, cat, name, extra, and the text arguments are decoded strings; pid and tid are JSON tokens (a string
# keeps its quotes); shapes and dtypes are minified JSON text. extra is a JSON object with `bp` and `s`.
CODES: Final = (
    "ph", "cat", "name", "pid", "tid", "extra", "shapes", "dtypes",
    "collective", "process_group", "group_ranks", "collective_dtype", "sync_kind",
)  # fmt: skip
# ts and dur in ns since the base time of the file; the others are verbatim arguments.
INTS: Final = (
    "ts", "dur", "correlation", "external_id", "stream", "stream_id", "device", "device_id", "bytes",
    "sequence_number", "forward_thread", "python_id", "python_parent_id", "module_id",
    "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread",
    "shared_memory_bytes", "graph_id", "graph_node_id", "group_size", "in_elements", "out_elements",
    "collective_sequence", "device_type", "address", "total_allocated_bytes", "total_reserved_bytes",
    "event_index", "wait_on_stream", "wait_on_event", "wait_on_correlation",
)  # fmt: skip
DOUBLES: Final = ("occupancy_percent", "blocks_per_sm", "warps_per_sm", "bandwidth")
# args: minified, otherwise verbatim. ts_text, dur_text: only if formatting the ns does not reproduce the
# digits of the file. flow_id: the JSON id as text. text: the complete element, minified, only of rows with a
# flag other than COLLECTIVE.
TEXTS: Final = ("args", "flow_id", "ts_text", "dur_text", "text")

BATCH_ROWS: Final = 1 << 18
# A batch ends early if its texts exceed this size or a dictionary overflows.
BATCH_BYTES: Final = 64 << 20
# A dictionary that exceeds these limits restarts empty with the next batch.
DICTIONARY_MAX_VALUES: Final = 1 << 20
DICTIONARY_MAX_BYTES: Final = 128 << 20

# A longer element may contain a string that is too long to store.
LONGEST_BYTES: Final = 64 << 20

# How a call of `tw_feed` ended, beside the states of a scanner.
MORE: Final = 0
CLOSED: Final = 1
BATCH_ENDED: Final = 4
NO_MEMORY: Final = 5

ABI: Final = 1
_FOLDER: Final = Path(__file__).parent
_REMEDY: Final = "install the package again where there is a C compiler"
NAMES: Final = (*CODES, *INTS, *DOUBLES, *TEXTS)


class NativeScannerError(Exception):
    """The library is missing or does not belong to this version of the package."""


class Limits(ctypes.Structure):
    """Sizes at which a batch ends."""

    _fields_ = [(name, c_int64) for name in ("batch_rows", "batch_bytes", "words_most", "words_bytes")]


class CBytes(ctypes.Structure):
    """Growing text."""

    _fields_ = [("bytes", c_void_p), ("used", ctypes.c_size_t), ("capacity", ctypes.c_size_t)]


class CBatch(ctypes.Structure):
    """A batch, as C fills it."""

    _fields_ = [
        ("rows", c_int64),
        ("values", c_void_p * len(NAMES)),
        ("valid", c_void_p * len(NAMES)),
        ("texts", CBytes * len(TEXTS)),
        ("flags", c_void_p),
        ("restarted", c_uint64),
        ("strings_from", c_int64),
    ]


class View(ctypes.Structure):
    """The strings of a dictionary."""

    _fields_ = [("count", c_int64), ("offsets", c_void_p), ("bytes", c_void_p)]


class CNumbers(ctypes.Structure):
    """A column of integers."""

    _fields_ = [("values", c_void_p), ("valid", c_void_p), ("first", c_int64)]


class CRows(ctypes.Structure):
    """Rows of text with numbers to split off."""

    _fields_ = [
        ("rows", c_int64),
        ("offsets", c_void_p),
        ("text", c_void_p),
        ("valid", c_void_p),
        *((name, c_int64) for name in ("first", "columns", "most")),
        ("known", POINTER(CNumbers)),
        *((name, c_void_p) for name in ("codes", "numbers", "there")),
    ]


_SIGNATURES: Final[dict[str, tuple[Any, list[Any]]]] = {
    "tw_abi": (c_int, []),
    "tw_source_hash": (c_char_p, []),
    "tw_column_names": (c_char_p, []),
    "tw_new": (c_void_p, [c_uint64, c_uint64, POINTER(Limits), c_int64]),
    "tw_free": (None, [c_void_p]),
    "tw_feed": (c_int, [c_void_p, c_void_p, c_int64, c_int64]),
    "tw_next_array": (None, [c_void_p]),
    "tw_offset": (c_int64, [c_void_p]),
    "tw_rows": (c_int64, [c_void_p]),
    "tw_rest": (c_void_p, [c_void_p, POINTER(c_int64)]),
    "tw_drop_rest": (None, [c_void_p]),
    "tw_take": (POINTER(CBatch), [c_void_p]),
    "tw_batch_free": (None, [POINTER(CBatch)]),
    "tw_words": (None, [c_void_p, c_int, POINTER(View)]),
    "tw_split": (c_int64, [c_void_p, POINTER(CRows)]),
    "tw_enclosing": (None, [c_int64, c_void_p, c_void_p, c_void_p, c_void_p]),
    "tw_last_descendants": (None, [c_int64, c_void_p, c_void_p]),
}


def available() -> bool:
    """Whether the library can be used."""
    return why_not() is None


@cache
def why_not() -> str | None:
    """The reason why the native scanner cannot be used; None if it can."""
    try:
        library_of_package()
    except NativeScannerError as error:
        return str(error)
    return None


def notice() -> str | None:
    """A notice for users without the native scanner; None if it is available."""
    reason = why_not()
    return None if reason is None else f"ingesting without the native scanner, several times slower: {reason}"


def version_line() -> str:
    """The line that `tw --version` prints."""
    from importlib.metadata import version

    from tracewarehouse.version import __version__

    reason = why_not()
    scanner = "native scanner" if reason is None else f"without the native scanner: {reason}"
    return f"tw {__version__}, DuckDB {version('duckdb')}, {scanner}"


@cache
def library_of_package() -> ctypes.CDLL:
    """The library beside this module. Raises NativeScannerError."""
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
    if library.tw_abi() != ABI or library.tw_column_names().decode().split() != list(NAMES):
        raise NativeScannerError(f"{path.name} has a different interface than this release, {_REMEDY}")
    if library.tw_source_hash().decode() != hashlib.sha256(source.read_bytes()).hexdigest():
        raise NativeScannerError(f"{path.name} was built from a different scan.c, {_REMEDY}")
    return library


def open_scanner(library: ctypes.CDLL, limits: Limits | None = None, allocations: int = -1) -> int:
    """A scanner of the library, which the caller frees. Raises MemoryError."""
    limits = limits or Limits(BATCH_ROWS, BATCH_BYTES, DICTIONARY_MAX_VALUES, DICTIONARY_MAX_BYTES)
    seeds = (int.from_bytes(os.urandom(8)), int.from_bytes(os.urandom(8)))
    if not (found := library.tw_new(*seeds, byref(limits), allocations)):
        raise MemoryError
    return int(found)


def view_of(library: ctypes.CDLL, scanner: int | None, column: int) -> View:
    """The dictionary of a column; of column -1 the strings to search."""
    view = View()
    library.tw_words(scanner, column, byref(view))
    return view


_LIST_OR_EVENTS_START: Final = late_regex(rb'\A\s*\[|"traceEvents"\s*:\s*\[')
# A file of fewer bytes is scanned faster than a thread helps; of more, its columns do not fit in memory.
_AHEAD_BYTES: Final = range(4 << 20, 96 << 20)
_COMPRESSION: Final = 16
_HEAD_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 2 << 20
# Of the text before and behind the events together.
_MOST_TEXT_BYTES: Final = 4 << 20


class ScannedAhead:
    """A file that a thread scans while this process imports libraries; usual files only, all others fail.

    `pieces` are the text up to the first event, and that behind what the scanner was fed. `batches` are those
    of `tw_take` with the sizes of all dictionaries, that of the strings to search last.
    """

    def __init__(self, path: Path) -> None:
        from tracewarehouse.formats.file_text import Text

        self.stamp = _stamp(path)
        self.stream = Text(path)
        self.pieces: list[bytes] = []
        self.batches: list[tuple[Any, list[int]]] = []
        self.library = library_of_package()
        self.scanner = open_scanner(self.library)
        self._head = b""
        self._state = MORE
        self._is_whole = False
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def is_of(self, path: Path) -> bool:
        """Waits for the thread; whether it read all of this file, as it is now."""
        self._thread.join()
        return self._is_whole and _stamp(path) == self.stamp

    def _run(self) -> None:
        # What fails is read again, and reported then.
        with suppress(Exception):
            for piece in self._text():
                self._add(piece)
            self._is_whole = self._state == CLOSED and self._take() == 0
        if not self._is_whole:
            for batch, _ in self.batches:
                self.library.tw_batch_free(batch)
            self.library.tw_free(self.scanner)

    def _text(self) -> Iterator[bytes]:
        """The text of an intact file, with few calls that need the interpreter."""
        from isal import igzip

        from tracewarehouse.formats.file_text import GZIP_MAGIC

        sha, path = hashlib.sha256(), self.stream.path
        with path.open("rb") as stored:
            text: Any = igzip.open(stored) if stored.peek(2)[:2] == GZIP_MAGIC else stored  # type: ignore[no-untyped-call]
            while piece := text.read(_PIECE_BYTES):
                sha.update(piece)
                self.stream.size += len(piece)
                yield piece
            self.stream.stored_bytes, self.stream.digest = stored.tell(), sha.hexdigest()

    def _add(self, piece: bytes) -> None:
        if self._state == CLOSED:
            self.pieces.append(piece)
            if sum(map(len, self.pieces)) > _MOST_TEXT_BYTES:
                raise ValueError("much text follows the events")
        elif self.pieces:
            self._feed(piece)
        else:
            self._head += piece
            start = _LIST_OR_EVENTS_START.search(self._head)
            if start is not None and (rest := self._head[start.end() :].lstrip()):
                self.pieces.append(self._head[: start.end()] + b"{")
                self._feed(rest if rest.startswith(b"{") else b"]")
            elif len(self._head) > _HEAD_BYTES:
                raise ValueError("the events do not begin here")

    def _feed(self, piece: bytes) -> None:
        state = self.library.tw_feed(self.scanner, piece, len(piece), LONGEST_BYTES // 2)
        while state == BATCH_ENDED and self._take() == 0:
            state = self.library.tw_feed(self.scanner, None, 0, LONGEST_BYTES // 2)
        if state not in (MORE, CLOSED) or self.stream.size >= _AHEAD_BYTES.stop:
            raise ValueError("the file is unusual or large")
        self._state = state

    def _take(self) -> int:
        """Takes a batch; not 0 if the dictionaries of the batches before it are lost."""
        if not (batch := self.library.tw_take(self.scanner)):
            return 0
        columns = (*range(len(CODES)), -1)
        self.batches.append((batch, [int(view_of(self.library, self.scanner, at).count) for at in columns]))
        return int(batch.contents.restarted or batch.contents.strings_from < 0)


_ahead: list[ScannedAhead] = []


def scan_ahead(args: Sequence[str]) -> None:
    """Starts to scan the only file among the arguments of an ingest that looks like a trace."""
    with suppress(Exception):  # the ingest reports what is wrong
        (path,) = (Path(arg) for arg in args if arg.endswith((".json", ".json.gz")))
        text_bytes = path.stat().st_size * (_COMPRESSION if path.suffix == ".gz" else 1)
        if text_bytes in _AHEAD_BYTES and available():
            _ahead.append(ScannedAhead(path))


def scanned_ahead(path: Path) -> ScannedAhead | None:
    """The file if it was scanned ahead, and has not changed; only once."""
    found = _ahead.pop() if _ahead else None
    return found if found and found.is_of(path) else None


def _stamp(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
