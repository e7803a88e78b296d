"""The library of the native scanner: its columns, its structures, and whether it can be used.

It imports neither numpy nor pyarrow, because `tw --version` names the scanner.
"""

from __future__ import annotations

import ctypes
import hashlib
from ctypes import POINTER, c_char_p, c_int, c_int64, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Final

from tracewarehouse.formats.kineto.build import library_name

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
