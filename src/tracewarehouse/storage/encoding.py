"""How the columns of stored tables are encoded and compressed: one table for the writer and the packer.

Measured on real traces of several kinds, as bytes of the column and CPU of writing it. Numbers that grow are
a tenth as differences of what they are in a dictionary; durations and ids that jump between few neighbors are
smallest as they are, compressed; texts that share a beginning with the row before are smallest as prefixes.
Where all differ little, a dictionary is read fastest. Bytes of integers split into streams would be smaller
still, but DuckDB before 2.0 cannot read them, and the files are for any DuckDB shell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewarehouse.contracts.columns import Column

if TYPE_CHECKING:
    import pyarrow as pa

# A row group is what DuckDB reads as one task and what a writer holds in memory of a column.
ROW_GROUP_ROWS = 122_880


class Encoding(Enum):
    """An encoding of Parquet by its name there, with the zstd level that pays for what it leaves."""

    DICTIONARY = ("RLE_DICTIONARY", 6)
    DELTA = ("DELTA_BINARY_PACKED", 6)
    # Mostly arguments of events, half of what is stored: from level 9 on the time grows without effect.
    PREFIX = ("DELTA_BYTE_ARRAY", 8)
    PLAIN = ("PLAIN", 8)
    # Arguments of slices of Python functions: level 8 takes four times as long for a thirtieth of the bytes.
    QUICK = ("PLAIN", 1)

    @property
    def parquet_name(self) -> str:
        """As a Parquet footer calls it."""
        return self.value[0]

    @property
    def zstd_level(self) -> int:
        """How hard zstd tries."""
        return self.value[1]


# Of an integer column by its unit, then of any by its name where that says more.
_OF_UNIT = {"ts": Encoding.DELTA, "id": Encoding.DELTA}
_OF_NAME = {
    # Texts that are new in most rows.
    "flow_id": Encoding.PREFIX,
    "ts_text": Encoding.PREFIX,
    "dur_text": Encoding.PREFIX,
}
# Ids of which few come again and again.
_CODED_IDS = frozenset({"step", "stream", "device", "device_type", "graph_id"})
# Of all others by their type: what repeated values get, and what values get that hardly come again.
_BY_REPEATS = {
    "VARCHAR": (Encoding.DICTIONARY, Encoding.PREFIX),
    "JSON": (Encoding.DICTIONARY, Encoding.PREFIX),
    "BIGINT": (Encoding.DICTIONARY, Encoding.PLAIN),
    "INTEGER": (Encoding.DICTIONARY, Encoding.PLAIN),
    "DOUBLE": (Encoding.DICTIONARY, Encoding.PLAIN),
}
# Neither is always the smaller one: both are tried on a sample. In arguments old profilers repeat long texts;
# ids of enclosing slices go up and down with the nesting, in large steps or in small ones.
_TRIED = {
    "args": (Encoding.PREFIX, Encoding.PLAIN),
    "parent_id": (Encoding.DELTA, Encoding.PLAIN),
    "python_parent_id": (Encoding.DELTA, Encoding.PLAIN),
    "address": (Encoding.DELTA, Encoding.PLAIN),
    "total_allocated_bytes": (Encoding.DELTA, Encoding.PLAIN),
}
_TRIED_ROWS = 2_048
_TRIED_LEVEL = 3
# QUICK is taken up to so many times the bytes, of rows that follow each other: what they repeat is near.
_QUICK_ENOUGH = 1.05
_RUN_ROWS = 8_192
# Pieces of a column that are looked at, and the share of distinct values from which they hardly come again;
# of lengths of time in whole microseconds it is below, in nanoseconds above.
_PIECES = 4
_PIECE_ROWS = 512
_DISTINCT = 0.5
_DISTINCT_TIMES = 0.22
_FEW_ROWS = 128
_BARE_ROWS = 256
_PAGE_BYTES = 16 << 20
NONE: frozenset[str] = frozenset()


def encoding_of(column: Column, values: pa.ChunkedArray) -> Encoding | None:
    """The encoding of a contract's column from a look at its values; None where pyarrow's own is good."""
    if column.name in _TRIED:
        tried = _TRIED[column.name]
        found = _smallest(values, tried) if len(values) >= _PIECES * _TRIED_ROWS else tried[0]
        return Encoding.QUICK if found is Encoding.PLAIN and _is_quick(column, values) else found
    named = _OF_NAME.get(column.name)
    if named is None and column.type == "BIGINT" and column.name not in _CODED_IDS:
        named = _OF_UNIT.get(column.unit or "")
    if named is not None or column.type not in _BY_REPEATS:
        return named
    repeated, others = _BY_REPEATS[column.type]
    return repeated if _distinct(values) < (_DISTINCT_TIMES if column.unit == "ns" else _DISTINCT) else others


def _distinct(values: pa.ChunkedArray) -> float:
    """The share of distinct values: of a dictionary by its size, else of a sample; 0 for few rows."""
    import pyarrow as pa

    if len(values) < _FEW_ROWS:
        return 0
    if pa.types.is_dictionary(values.type):
        return len(values.chunk(0).dictionary) / len(values)
    sample = _sample(values, _PIECE_ROWS).drop_null()
    return 0 if len(sample) < _FEW_ROWS else len(sample.unique()) / len(sample)


def _sample(values: pa.ChunkedArray, rows: int) -> pa.ChunkedArray:
    """Pieces from all over a column, of JSON its text."""
    import pyarrow as pa

    apart = max(len(values) // _PIECES, rows)
    pieces = [chunk for at in range(_PIECES) for chunk in values.slice(at * apart, rows).chunks]
    return _storage(pa.chunked_array(pieces, values.type))


def _storage(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The text of a JSON column; any other as it is."""
    import pyarrow as pa

    if not isinstance(values.type, pa.BaseExtensionType):
        return values
    return pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)


def _smallest(values: pa.ChunkedArray, tried: tuple[Encoding, ...]) -> Encoding:
    sample = _sample(values, _TRIED_ROWS)
    return min(tried, key=lambda encoding: _stored_bytes(sample, encoding, _TRIED_LEVEL))


def _is_quick(column: Column, values: pa.ChunkedArray) -> bool:
    """Whether a plain text is as small with little effort."""
    if column.type not in ("VARCHAR", "JSON"):
        return False
    run = _storage(values.slice(len(values) // _PIECES, _RUN_ROWS))
    quick, plain = (_stored_bytes(run, each, each.zstd_level) for each in (Encoding.QUICK, Encoding.PLAIN))
    return quick <= _QUICK_ENOUGH * plain


def _stored_bytes(values: pa.ChunkedArray, encoding: Encoding, level: int) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    packed = {"compression": "zstd", "compression_level": level, "data_page_size": _PAGE_BYTES}
    named = {"use_dictionary": False, "column_encoding": {"values": encoding.parquet_name}}
    bare = {"write_statistics": False, "store_schema": False}
    pq.write_table(pa.table({"values": values}), sink, **packed, **named, **bare)
    return int(sink.tell())


def writer_options(encodings: Mapping[str, Encoding | None], bare: frozenset[str] = NONE) -> dict[str, Any]:
    """What pyarrow's ParquetWriter is told, for columns by name; those that are `bare` are not compressed."""
    known = {name: encoding for name, encoding in encodings.items() if encoding is not None}
    levels = {name: encoding.zstd_level for name, encoding in known.items() if name not in bare}
    others = {
        name: encoding.parquet_name for name, encoding in known.items() if encoding is not Encoding.DICTIONARY
    }
    return {
        "version": "2.6",
        "compression": {name: "none" if name in bare else "zstd" for name in encodings} if bare else "zstd",
        "compression_level": levels or None,
        "use_dictionary": [name for name, each in known.items() if each is Encoding.DICTIONARY] or False,
        "column_encoding": others or None,
        # Levels of null are not compressed in pages of version 2.
        "data_page_version": "1.0",
        "data_page_size": _PAGE_BYTES,
        "dictionary_pagesize_limit": 4 << 20,
        "write_page_checksum": True,
        # Readers would see categories where other files have text.
        "store_schema": False,
    }


def bare_columns(columns: Iterable[Column], rows: int) -> frozenset[str]:
    """Columns of a small table that are not compressed: that takes a third of the time and gains a tenth."""
    if rows >= _BARE_ROWS:
        return NONE
    return frozenset(column.name for column in columns if column.type not in ("VARCHAR", "JSON"))


def encodings_of(footer: Any) -> dict[str, Encoding | None]:
    """Those that a file was written with, by its footer: its writer has looked at the values."""
    by_name = {each.parquet_name: each for each in Encoding if each.parquet_name != "PLAIN"}
    by_name["DELTA_LENGTH_BYTE_ARRAY"] = Encoding.PREFIX  # of files that DuckDB wrote
    found: dict[str, Encoding | None] = {}
    for index in range(footer.num_columns):
        column = footer.row_group(0).column(index)
        named = [by_name[name] for name in column.encodings if name in by_name]
        text = column.physical_type == "BYTE_ARRAY"
        found[column.path_in_schema] = named[0] if named else Encoding.PLAIN if text else None
    return found


@dataclass(frozen=True)
class FileFacts:
    """What identifies a Parquet file; its footer is the metadata with their length and the closing magic."""

    bytes: int
    sha256: str
    footer_bytes: int
    footer_sha256: str


def file_facts(path: Path) -> FileFacts:
    """The facts of a Parquet file, read once from start to end."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        size = file.seek(-8, 2) + 8
        footer_bytes = int.from_bytes(file.read(4), "little") + 8
        file.seek(0)
        rest = size - footer_bytes
        while rest:
            piece = file.read(min(rest, 1 << 20))
            digest.update(piece)
            rest -= len(piece)
        footer = file.read()
    digest.update(footer)
    return FileFacts(size, digest.hexdigest(), footer_bytes, hashlib.sha256(footer).hexdigest())
