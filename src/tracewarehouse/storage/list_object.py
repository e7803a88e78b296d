"""The files and sources of a version of many files: one Parquet object, of which a command reads a part.

Rows are in order of table and rank; the sources come first, under the table "". Each table has row groups of
its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage.codec import fields_of, in_order, record_of, table_file
from tracewarehouse.storage.model import FileShares, ManySources, RankSource, StoredList, TableFile
from tracewarehouse.storage.objects import Objects

_ROWS = 10_000
# The end of the object that is read first: the footer of a run of some thousand ranks.
_TAIL_BYTES = 24_000

_TEXTS = ("table", "path")
_NUMBERS = ("version", "bytes", "file_rows", "first_rank", "last_rank", "file_ranks", "crc32", "footer_bytes")
# In hex in a TableFile.
_HASHES = ("footer_sha256", "sha256")
# Of the shares of a file: position and rank of each source, and its rows.
_SHARES = ("at", "rank", "rows")


def encode(sources: Sequence[RankSource]) -> bytes:
    """The list object of these sources."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    shares: dict[str, tuple[TableFile, list[tuple[int, int, int]]]] = {}
    for at, source in enumerate(sources):
        for file in source.files:
            shares.setdefault(file.path, (file, []))[1].append((at, source.rank, file.rows))
    by_table: dict[str, list[FileShares]] = {}
    for file, held in shares.values():
        by_table.setdefault(file.table, []).append((file, held))
    fields = [(name, pa.string()) for name in _TEXTS] + [(name, pa.int64()) for name in _NUMBERS]
    fields += [(name, pa.binary(32)) for name in _HASHES]
    fields += [(name, pa.list_(pa.int64())) for name in _SHARES]
    schema = pa.schema([*fields, ("record", pa.binary())])
    sink = pa.BufferOutputStream()
    rising = {f"{name}.list.element": "DELTA_BINARY_PACKED" for name in ("at", "rank")}
    options = {
        "compression": "zstd",
        "compression_level": 9,
        "use_dictionary": [*_TEXTS[:1], "version"],
        "column_encoding": rising,
        "write_statistics": False,
        "store_schema": False,
    }
    with pq.ParquetWriter(sink, schema, write_page_checksum=True, **options) as writer:
        rows = [_source_row(source) for source in sources]
        writer.write_table(pa.Table.from_pylist(rows, schema), row_group_size=_ROWS)
        for table in sorted(by_table):
            listed = sorted(by_table[table], key=lambda one: (one[0].first_rank, one[0].path))
            rows = [_file_row(file, held) for file, held in listed]
            writer.write_table(pa.Table.from_pylist(rows, schema), row_group_size=_ROWS)
        groups = [("", len(sources)), *((table, len(by_table[table])) for table in sorted(by_table))]
        writer.add_key_value_metadata({"groups": msgspec.json.encode(groups)})
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _source_row(source: RankSource) -> dict[str, Any]:
    return {"table": "", "record": msgspec.json.encode(fields_of(source, ["run", "files"]))}


def _file_row(file: TableFile, shares: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
    row = {name: getattr(file, name) for name in (*_TEXTS, *_NUMBERS)}
    row |= {name: bytes.fromhex(getattr(file, name)) for name in _HASHES}
    row |= dict(zip(_SHARES, zip(*shares, strict=True), strict=True))
    more = fields_of(file, [*row, "rows"])
    return row | {"record": msgspec.json.encode(more)}


class _ListObject:
    """The parts of a list object that were read so far, in a buffer of its size."""

    def __init__(self, objects: Objects, stored: StoredList) -> None:
        self.objects, self.stored = objects, stored
        self._buffer = bytearray(stored.bytes)
        self._read: set[int] = set()

    def rows(self, tables: Iterable[str] | None) -> list[dict[str, Any]]:
        """The rows of these tables, of the sources for "", or all for None. Raises WarehouseError."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            if not self._read:
                self._fetch_footer()
            view = pa.BufferReader(pa.py_buffer(self._buffer))
            file = pq.ParquetFile(view, page_checksum_verification=True)
            listed: list[tuple[str, int]] = msgspec.json.decode(file.metadata.metadata[b"groups"])
            names = [table for table, rows in listed for _ in range(0, max(rows, 1), _ROWS)]
            groups = [at for at, table in enumerate(names) if tables is None or table in tables]
            for at in groups:
                self._fetch_group(at, file.metadata.row_group(at))
            rows: list[dict[str, Any]] = file.read_row_groups(groups, use_threads=False).to_pylist()
            return rows
        except FileNotFoundError:
            raise self._damaged("missing") from None
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(f"damaged: {error}") from error

    def _damaged(self, what: str) -> WarehouseError:
        return WarehouseError(f"{self.objects.describe(self.stored.key)}: {what}", hints.call("verify"))

    def _fetch_footer(self) -> None:
        self._fetch(max(self.stored.bytes - _TAIL_BYTES, 0), self.stored.bytes)
        footer = int.from_bytes(self._buffer[-8:-4], "little") + 8
        if _TAIL_BYTES < footer <= self.stored.bytes:
            self._fetch(self.stored.bytes - footer, self.stored.bytes - _TAIL_BYTES)

    def _fetch_group(self, at: int, group: Any) -> None:
        if at not in self._read:
            columns = [group.column(number) for number in range(group.num_columns)]
            start = min(column.dictionary_page_offset or column.data_page_offset for column in columns)
            self._fetch(start, start + sum(column.total_compressed_size for column in columns))
            self._read.add(at)

    def _fetch(self, start: int, end: int) -> None:
        self._buffer[start:end] = self.objects.get_range(self.stored.key, start, end)


def many_sources(objects: Objects, run: str, stored: StoredList) -> ManySources:
    """The sources in a list object, which is read when they are looked at."""
    opened = _ListObject(objects, stored)

    def files(tables: Iterable[str]) -> list[FileShares]:
        return [_file_of(row) for row in opened.rows(tables)]

    def load() -> tuple[RankSource, ...]:
        rows = opened.rows(None)
        sources = [msgspec.json.decode(row["record"]) for row in rows if not row["table"]]
        held: list[list[TableFile]] = [[] for _ in sources]
        for file, shares in (_file_of(row) for row in rows if row["table"]):
            for at, _, count in shares:
                held[at].append(replace(file, rows=count))
        return tuple(
            record_of(RankSource, source, run=run, files=in_order(of_source))
            for source, of_source in zip(sources, held, strict=True)
        )

    return ManySources(stored, files, load)


def _file_of(row: Mapping[str, Any]) -> FileShares:
    known = {name: row[name] for name in (*_TEXTS, *_NUMBERS)} | {name: row[name].hex() for name in _HASHES}
    file = table_file(known | msgspec.json.decode(row["record"]))
    return file, list(zip(*(row[name] for name in _SHARES), strict=True))
