"""Packing: small consecutive ranks share a file, one row group each, so that readers can skip by rank."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewarehouse.errors import WarehouseError
from tracewarehouse.exact_text import rank_list
from tracewarehouse.storage.changes import Staged, StagedTable
from tracewarehouse.storage.encoding import encodings_of, writer_options

PACK_RANKS = 64
PACK_BYTES = 64 * 1024 * 1024
# Packing decodes and encodes again, which pays for small files only.
SMALL_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Part:
    """One source's share of a file to write."""

    staged: Staged
    table: StagedTable
    bytes: int


def groups(staged: Sequence[Staged]) -> Iterator[tuple[Part, ...]]:
    """The parts of each file, table by table, ranks ascending; empty tables get no file.

    Packed files stay together. Two sources of a rank never share a file, because rows of a file are
    distinguished by rank.
    """
    shelves: dict[tuple[object, ...], list[Part]] = {}
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
                shelf.append(Part(source, table, table.path.stat().st_size))
    for shelf in shelves.values():
        yield from [tuple(shelf)] if shelf[0].table.ranks else _cut(shelf)


def _cut(shelf: Iterable[Part]) -> Iterator[tuple[Part, ...]]:
    """Groups of neighbors, limited in number and bytes; large files stay alone."""
    group: list[Part] = []
    for part in shelf:
        full = len(group) == PACK_RANKS or sum(one.bytes for one in group) + part.bytes > PACK_BYTES
        if group and (full or part.bytes > SMALL_BYTES or group[-1].bytes > SMALL_BYTES):
            yield tuple(group)
            group = []
        group.append(part)
    if group:
        yield tuple(group)


def one_file(group: Sequence[Part]) -> Path:
    """The staged file if there is one, else a packed file in the folder of the first.

    Raises WarehouseError if a file is not Parquet or has another number of rows than announced.
    """
    first = group[0].table
    if first.ranks:
        return _packed(group)
    # One file is open at a time: the limit on open files may be lower than the number of ranks.
    footers = [footer_of(part.table.path, part.table.rows) for part in group]
    if len(group) == 1:
        return first.path
    path = first.path.with_name(f"packed-{secrets.token_hex(8)}.parquet")
    _write(group, footers, path)
    for part in group:
        part.table.path.unlink()
    return path


def _packed(group: Sequence[Part]) -> Path:
    """The file that the sources share; raises ValueError if ranks or rows differ from those announced."""
    first = group[0].table
    ranks = tuple(part.staged.rank for part in group)
    rows = sum(part.table.rows for part in group)
    if ranks != first.ranks or rows != first.file_rows:
        raise ValueError(f"{first.path}: {rows} rows of ranks {ranks} committed, expected {first.file_rows}")
    footer_of(first.path, rows)
    return first.path


@dataclass(frozen=True)
class Footer:
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


def _write(group: Sequence[Part], footers: Sequence[Footer], path: Path) -> None:
    """Writes the files into one, a row group each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = common_schema(group[0].table.table, [part.staged.rank for part in group], footers)
    # The writer of the largest file has seen the most values.
    options = writer_options(encodings_of(max((footer.metadata for footer in footers), key=_rows)))
    # If a writer fails, it does not close a file that it opened itself.
    with (
        pa.OSFile(str(path), "wb") as file_of_all,
        pq.ParquetWriter(file_of_all, schema, **options) as writer,
    ):
        for part in group:
            with pq.ParquetFile(part.table.path) as file:
                rows = file.read(use_threads=False).cast(schema)
            writer.write_table(rows, row_group_size=len(rows))
        writer.add_key_value_metadata(common_metadata(footers))


def _rows(footer: Any) -> int:
    return int(footer.num_rows)


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
