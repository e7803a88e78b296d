"""Stored Parquet files: the encoding of columns, small ranks packed into one file, files rewritten as one.

Chosen by measurements on real traces of several kinds: bytes of the column and CPU time of the writer.
Ascending numbers take a tenth of the space as differences compared with a dictionary; durations and ids that
jump between few values are smallest plain and compressed; texts that share a prefix with the row before are
smallest as prefixes. If sizes differ little, a dictionary is the fastest to read. BYTE_STREAM_SPLIT of
integers would be smaller still, but DuckDB before 2.0 cannot read it, and any DuckDB shell must.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import NUMBERS, Column, Ref, file_columns
from tracewarehouse.duck.arrow import type_of
from tracewarehouse.errors import WarehouseError
from tracewarehouse.exact_text import rank_list
from tracewarehouse.storage.column_copies import with_checksums
from tracewarehouse.storage.model import Staged, StagedTable

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")
# DuckDB reads a row group as one task, and a writer holds one in memory.
ROW_GROUP_ROWS = 122_880


class Encoding(Enum):
    """A Parquet encoding: its name in Parquet, and the zstd level to compress its output with."""

    # Level 6 would save a hundredth of the bytes, and take a fifth longer.
    DICTIONARY = ("RLE_DICTIONARY", 4)
    DELTA = ("DELTA_BINARY_PACKED", 4)
    # Level 8 would save as little.
    PREFIX = ("DELTA_BYTE_ARRAY", 6)
    PLAIN = ("PLAIN", 6)
    # Durations: level 8 takes four to ten times as long.
    QUICK = ("PLAIN", 1)

    @property
    def parquet_name(self) -> str:
        """The name in a Parquet footer."""
        return self.value[0]

    @property
    def zstd_level(self) -> int:
        """The compression level of zstd."""
        return self.value[1]


# By the unit of an integer column; a column name takes precedence.
_OF_UNIT = {"ts": Encoding.DELTA, "id": Encoding.DELTA}
_OF_NAME = {
    # Texts that differ in most rows.
    "flow_id": Encoding.PREFIX,
    "ts_text": Encoding.PREFIX,
    "dur_text": Encoding.PREFIX,
    # The first number of arguments often ascends; the others repeat in runs.
    **dict.fromkeys(NUMBERS[1:], Encoding.PLAIN),
}
# Ids with few distinct values.
_CODED_IDS = frozenset({"step", "stream", "device", "device_type", "graph_id"})
# All others by type: (repeated values, mostly distinct values).
_BY_REPEATS = {
    "VARCHAR": (Encoding.DICTIONARY, Encoding.PREFIX),
    "JSON": (Encoding.DICTIONARY, Encoding.PREFIX),
    "BIGINT": (Encoding.DICTIONARY, Encoding.PLAIN),
    "INTEGER": (Encoding.DICTIONARY, Encoding.PLAIN),
    "DOUBLE": (Encoding.DICTIONARY, Encoding.PLAIN),
}
# Neither is always smaller: both are tried on a sample. Ids of enclosing slices go up and down with the
# nesting, in large or small steps.
_TRIED = {
    "parent_id": (Encoding.DELTA, Encoding.PLAIN),
    "python_parent_id": (Encoding.DELTA, Encoding.PLAIN),
    "address": (Encoding.DELTA, Encoding.PLAIN),
    "total_allocated_bytes": (Encoding.DELTA, Encoding.PLAIN),
}
# Tried if few values repeat: a full queue delays consecutive launches by similar times.
_DELAYS = frozenset({"call_to_start_ns", "return_to_start_ns", "launch_to_start_ns"})
# Durations that mostly differ: level 8 saves 6 to 8 %.
_DURATIONS = (Encoding.DICTIONARY, Encoding.QUICK)
_TRIED_ROWS = 2_048
_TRIED_LEVEL = 3
# Samples of a column, and the share of distinct values above which a dictionary does not pay; durations in
# whole microseconds are below the second threshold, durations in nanoseconds above.
_SAMPLES = 4
_SAMPLE_ROWS = 512
_DISTINCT = 0.5
_DISTINCT_TIMES = 0.22
_FEW_ROWS = 128
_BARE_ROWS = 256
_PAGE_BYTES = 16 << 20
# Rows that are encoded at once: 1,024 by default take a twentieth longer.
_BATCH_ROWS = 1 << 16
_BUFFER_BYTES = 1 << 18
# Columns that identify the rank of a row.
_KEYS = ("run_id", "rank")
_TEXT = ("VARCHAR", "JSON")


def encoding_of(column: Column, values: pa.ChunkedArray) -> Encoding | None:
    """The encoding of a contract's column, chosen from its values; None for pyarrow's default."""
    if column.name in _TRIED:
        return _smallest(values, _TRIED[column.name])
    named = _OF_NAME.get(column.name)
    if named is None and column.type == "BIGINT" and column.name not in _CODED_IDS:
        named = _OF_UNIT.get(column.unit or "")
    if named is not None or column.type not in _BY_REPEATS:
        return named
    is_duration = column.unit == "ns" and column.name not in _DELAYS
    repeated, distinct = _DURATIONS if is_duration else _BY_REPEATS[column.type]
    if _distinct(values) < (_DISTINCT_TIMES if column.unit == "ns" else _DISTINCT):
        return repeated
    return _smallest(values, (distinct, Encoding.DELTA)) if column.name in _DELAYS else distinct


def _distinct(values: pa.ChunkedArray) -> float:
    """The share of distinct values, from the dictionary or a sample; 0 for few rows."""
    import pyarrow as pa

    if len(values) < _FEW_ROWS:
        return 0
    if pa.types.is_dictionary(values.type):
        return len(values.chunk(0).dictionary) / len(values)
    sample = _sample(values, _SAMPLE_ROWS).drop_null()
    return 0 if len(sample) < _FEW_ROWS else len(sample.unique()) / len(sample)


def _sample(values: pa.ChunkedArray, rows: int) -> pa.ChunkedArray:
    """Samples from all over a column; the text of a JSON column."""
    import pyarrow as pa

    apart = max(len(values) // _SAMPLES, rows)
    chunks = [chunk for index in range(_SAMPLES) for chunk in values.slice(index * apart, rows).chunks]
    return _storage(pa.chunked_array(chunks, values.type))


def _storage(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The text of a JSON column; any other column unchanged."""
    import pyarrow as pa

    if not isinstance(values.type, pa.BaseExtensionType):
        return values
    return pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)


def _smallest(values: pa.ChunkedArray, tried: tuple[Encoding, ...]) -> Encoding:
    """The encoding that stores a sample in the fewest bytes; the first for few rows."""
    if len(values) < _SAMPLES * _TRIED_ROWS:
        return tried[0]
    sample = _sample(values, _TRIED_ROWS)
    return min(tried, key=lambda encoding: _stored_bytes(sample, encoding))


def _stored_bytes(values: pa.ChunkedArray, encoding: Encoding) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    packed = {"compression": "zstd", "compression_level": _TRIED_LEVEL, "data_page_size": _PAGE_BYTES}
    named = {"use_dictionary": False, "column_encoding": {"values": encoding.parquet_name}}
    bare = {"write_statistics": False, "store_schema": False}
    pq.write_table(pa.table({"values": values}), sink, **packed, **named, **bare)
    return int(sink.tell())


def _writer_options(columns: Mapping[str, Column], rows: pa.Table) -> dict[str, Any]:
    """Options of pyarrow's ParquetWriter for a file that begins with these rows."""
    fields = dict(zip(rows.schema.names, rows.columns, strict=True))
    encodings = {
        name: encoding_of(columns[name], values) if name in columns else _default(values.type)
        for name, values in fields.items()
    }
    texts = {name for name in fields if name in columns and columns[name].type in _TEXT}
    # In a small table, compressing numbers would take a third of the time to save a tenth.
    bare = set(fields) - texts if len(rows) < _BARE_ROWS else set()
    chosen = {name: encoding for name, encoding in encodings.items() if encoding is not None}
    levels = {name: encoding.zstd_level for name, encoding in chosen.items() if name not in bare}
    column_encodings = {
        name: each.parquet_name for name, each in chosen.items() if each is not Encoding.DICTIONARY
    }
    return {
        "version": "2.6",
        "compression": {name: "none" if name in bare else "zstd" for name in fields} if bare else "zstd",
        "compression_level": levels or None,
        "use_dictionary": [name for name, each in chosen.items() if each is Encoding.DICTIONARY] or False,
        "column_encoding": column_encodings or None,
        # Version 2 pages do not compress null levels.
        "data_page_version": "1.0",
        "data_page_size": _PAGE_BYTES,
        "write_batch_size": _BATCH_ROWS,
        "dictionary_pagesize_limit": 4 << 20,
        "write_page_checksum": True,
        # With the Arrow schema readers would see categories where other files have text.
        "store_schema": False,
        # No text column but the run's name gets minimum and maximum.
        "write_statistics": [name for name in fields if name in _KEYS or name not in texts],
    }


def _default(type_: pa.DataType) -> Encoding | None:
    """The encoding of a column of an unknown contract."""
    import pyarrow.types as types

    return None if types.is_nested(type_) else Encoding.DICTIONARY


PACK_RANKS = 64
PACK_BYTES = 64 * 1024 * 1024
# Packing decodes and encodes again, which pays for small files only.
SMALL_BYTES = 4 * 1024 * 1024


class RowGroup(Struct, frozen=True):
    """One source's share of a file to write."""

    staged: Staged
    table: StagedTable
    bytes: int


def groups(staged: Sequence[Staged]) -> Iterator[tuple[RowGroup, ...]]:
    """The parts of each file, table by table, ranks ascending; empty tables get no file.

    Packed files stay together. Two sources of a rank never share a file, because rows of a file are
    distinguished by rank.
    """
    shelves: dict[tuple[object, ...], list[RowGroup]] = {}
    turns: Counter[tuple[str, int]] = Counter()
    for source in sorted(staged, key=lambda one: (one.run, one.rank)):
        turn = turns[source.run, source.rank]
        turns[source.run, source.rank] += 1
        for table in source.tables:
            if table.rows:
                place = (
                    ("packed", table.path) if table.ranks else (source.run, turn, table.table, table.version)
                )
                shelf = shelves.setdefault(place, [])
                shelf.append(RowGroup(source, table, table.path.stat().st_size))
    for shelf in shelves.values():
        yield from [tuple(shelf)] if shelf[0].table.ranks else consecutive(shelf, _may_share)


def _may_share(group: Sequence[RowGroup], part: RowGroup) -> bool:
    """Whether a file has space for a neighbor; large ones stay alone."""
    size = sum(member.bytes for member in group) + part.bytes
    is_small = max(part.bytes, group[-1].bytes) <= SMALL_BYTES
    return is_small and len(group) < PACK_RANKS and size <= PACK_BYTES


def consecutive(members: Iterable[T], belongs: Callable[[Sequence[T], T], bool]) -> Iterator[tuple[T, ...]]:
    """Groups of neighbors: each member starts a group unless it belongs to the one before it."""
    group: list[T] = []
    for member in members:
        if group and not belongs(group, member):
            yield tuple(group)
            group = []
        group.append(member)
    if group:
        yield tuple(group)


def one_file(group: Sequence[RowGroup]) -> Path:
    """The staged file if there is one, else a packed file in the folder of the first.

    Raises WarehouseError if a file is not Parquet or has another number of rows than announced, ValueError if
    ranks or rows of a shared file differ from those announced.
    """
    first = group[0].table
    if first.ranks:
        ranks = tuple(part.staged.rank for part in group)
        rows = sum(part.table.rows for part in group)
        if ranks != first.ranks or rows != first.file_rows:
            raise ValueError(
                f"{first.path}: {rows} rows of ranks {ranks} committed, expected {first.file_rows}"
            )
        footer_of(first.path, rows)
        return first.path
    if len(group) == 1:
        footer_of(first.path, first.rows)
        return first.path
    path = first.path.with_name(f"packed-{secrets.token_hex(8)}.parquet")
    shares = [Share(part.staged.rank, part.table.path, part.table.rows, part.table.rows) for part in group]
    merge(Ref(first.table, first.version), shares, path)
    for part in group:
        part.table.path.unlink()
    return path


class Footer(Struct, frozen=True):
    """What the footer of a Parquet file contains."""

    metadata: Any
    schema: Any


def footer_of(path: Path, announced: int) -> Footer:
    """The footer of a Parquet file; raises WarehouseError if it has another number of rows than announced."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # A path, never a Python file object, which can abort pyarrow at exit.
        with pq.ParquetFile(path) as file:
            footer = Footer(file.metadata, file.schema_arrow)
    except pa.ArrowInvalid as error:
        raise WarehouseError(f"{path}: not a Parquet file: {error}") from error
    rows = footer.metadata.num_rows
    if rows != announced:
        raise WarehouseError(f"{path}: holds {rows} rows, expected {announced}")
    return footer


def common_metadata(footers: Sequence[Footer]) -> dict[bytes, bytes]:
    """The metadata that all files share, such as the contract of the table."""
    common = set.intersection(*(set((footer.metadata.metadata or {}).items()) for footer in footers))
    return {key: value for key, value in common if key != b"ARROW:schema"}


def common_schema(table: str, ranks: Iterable[int], footers: Sequence[Footer]) -> Any:
    """The common schema: a column may be nullable in the file of one rank and not in another."""
    import pyarrow as pa

    try:
        return pa.unify_schemas([footer.schema.remove_metadata() for footer in footers])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise WarehouseError(f"{table}: ranks {rank_list(ranks)} differ in columns: {error}") from error


class Share(Struct, frozen=True):
    """The rows of one rank in a Parquet file, which has `file_rows` rows."""

    rank: int
    path: Path
    rows: int
    file_rows: int


def merge(table: Ref, shares: Sequence[Share], path: Path) -> None:
    """Writes the rows of the shares, which are in order of rank, to one Parquet file.

    Small ranks share a row group. Raises WarehouseError if a file does not hold the rows that it should, or
    the columns of two files differ in type.
    """
    files = {share.path: share.file_rows for share in shares}
    footers = [footer_of(file, rows) for file, rows in files.items()]
    schema = common_schema(table.name, [share.rank for share in shares], footers)
    types = dict(zip(schema.names, schema.types, strict=True))
    contract = Catalog.load().contracts.get(table)
    declared = () if contract is None else file_columns(contract)
    columns = {
        column.name: column
        for column in declared
        if types.get(column.name) in (stored_type(column.type), type_of(column.type))
    }
    reader = _Reader()
    rows = row_groups(reader.rows(share).cast(schema) for share in shares)
    write_file(path, rows, columns, common_metadata(footers))


def stored_type(type_: str) -> pa.DataType:
    """The Arrow type of a contract's column in a Parquet file."""
    import pyarrow as pa

    return pa.json_() if type_ == "JSON" else type_of(type_)


def write_file(
    path: Path, groups: Iterator[pa.Table], columns: Mapping[str, Column], metadata: Mapping[Any, Any]
) -> int:
    """Writes each table as a row group, in encodings that suit the values of the first; returns the rows.

    `columns`: those of the contract; others, of an unknown contract, get pyarrow's defaults. Writes no file
    without a row group.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, count = next(groups, None), 0
    if rows is None:
        return 0
    # A failing writer does not close a file that it opened itself.
    with (
        pa.output_stream(str(path), compression=None, buffer_size=_BUFFER_BYTES) as file,
        pq.ParquetWriter(file, rows.schema, **_writer_options(columns, rows)) as writer,
    ):
        while rows is not None:
            writer.write_table(rows, row_group_size=len(rows))
            count += len(rows)
            rows = next(groups, None)
        file.flush()
        writer.add_key_value_metadata(with_checksums(metadata, path))
    return count


def row_groups(tables: Iterable[pa.Table], least_rows: int = ROW_GROUP_ROWS // 2) -> Iterator[pa.Table]:
    """The rows in groups of `ROW_GROUP_ROWS`: small tables share one, a large one has several.

    A table that does not fit into a group with at least `least_rows` begins the next one: if each is a rank,
    its readers read few rows of others.
    """
    import pyarrow as pa

    pending: list[pa.Table] = []
    count = 0
    for table in tables:
        if least_rows <= count and count + len(table) > ROW_GROUP_ROWS:
            yield pa.concat_tables(pending)
            pending, count = [], 0
        pending.append(table)
        count += len(table)
        while count >= ROW_GROUP_ROWS:
            rows = pa.concat_tables(pending)
            yield rows.slice(0, ROW_GROUP_ROWS)
            pending, count = [rows.slice(ROW_GROUP_ROWS)], count - ROW_GROUP_ROWS
    if count:
        yield pa.concat_tables(pending)


class _Reader(Struct):
    """Reads the rows of single ranks; one file is open at a time.

    The limit on open files may be lower than the number of ranks.
    """

    # File, number and rows of the row group that was read last: it may hold the next rank, too.
    _last: tuple[Path | None, int, Any] = (None, -1, None)

    def rows(self, share: Share) -> pa.Table:
        """The rows of a rank, in the order of the file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with pq.ParquetFile(share.path, page_checksum_verification=True) as file:
            if share.rows == share.file_rows:
                return file.read(use_threads=False)
            rank_column = file.schema_arrow.get_field_index("rank")
            tables = [file.schema_arrow.empty_table()]
            for group in range(file.metadata.num_row_groups):
                bounds = file.metadata.row_group(group).column(rank_column).statistics
                if bounds is None or not bounds.has_min_max or bounds.min <= share.rank <= bounds.max:
                    tables.append(self._of_rank(share, file, group))
        rows = pa.concat_tables(tables)
        if len(rows) != share.rows:
            raise WarehouseError(
                f"{share.path}: {len(rows)} rows of rank {share.rank}, expected {share.rows}"
            )
        return rows

    def _of_rank(self, share: Share, file: Any, group: int) -> pa.Table:
        import pyarrow.compute as pc

        if self._last[:2] != (share.path, group):
            self._last = share.path, group, file.read_row_group(group, use_threads=False)
        rows = self._last[2]
        return rows.filter(pc.equal(rows.column("rank"), share.rank))
