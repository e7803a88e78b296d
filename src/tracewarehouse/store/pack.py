"""Small consecutive ranks share a file, one row group each: few files, and a reader still skips by rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewarehouse.errors import WarehouseError
from tracewarehouse.store.model import Staged, StagedTable

PACK_RANKS = 64
PACK_BYTES = 64 * 1024 * 1024
# Packing decodes and encodes anew: worth it where the files are small, not where they are large.
SMALL_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Part:
    """One rank's share of a file to be."""

    staged: Staged
    table: StagedTable
    bytes: int


def groups(staged: Sequence[Staged]) -> Iterator[tuple[Part, ...]]:
    """The parts that go into one file each, table by table, ranks ascending; empty tables into none."""
    shelves: dict[tuple[str, str, int], list[Part]] = {}
    for unit in sorted(staged, key=lambda one: (one.run, one.rank)):
        for table in unit.tables:
            if table.rows:
                shelf = shelves.setdefault((unit.run, table.table, table.version), [])
                shelf.append(Part(unit, table, table.path.stat().st_size))
    for shelf in shelves.values():
        yield from _cut(shelf)


def _cut(shelf: Iterable[Part]) -> Iterator[tuple[Part, ...]]:
    """Neighbours together while they are small, few and light enough."""
    group: list[Part] = []
    for part in shelf:
        full = len(group) == PACK_RANKS or sum(one.bytes for one in group) + part.bytes > PACK_BYTES
        if group and (full or part.bytes > SMALL_BYTES or group[-1].bytes > SMALL_BYTES):
            yield tuple(group)
            group = []
        group.append(part)
    if group:
        yield tuple(group)


def check_rows(part: Part) -> None:
    """Raises WarehouseError where the file does not hold the rows it is said to hold."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_metadata(part.table.path).num_rows
    except pa.ArrowInvalid as error:
        raise WarehouseError(f"{part.table.path}: not a Parquet file: {error}") from error
    if rows != part.table.rows:
        raise WarehouseError(f"{part.table.path}: holds {rows} rows, {part.table.rows} were announced")


def write(group: Sequence[Part], path: Path) -> None:
    """The files of a group as one, a row group per rank. Raises OSError, WarehouseError."""
    import pyarrow.parquet as pq

    schema = _common(group)
    with pq.ParquetWriter(path, schema, compression="zstd", store_schema=False) as writer:
        for part in group:
            # Paths and one thread only: file objects with threads abort pyarrow at exit.
            with pq.ParquetFile(part.table.path) as file:
                rows: Any = file.read(use_threads=False)
            writer.write_table(rows.cast(schema), row_group_size=part.table.rows)


def _common(group: Sequence[Part]) -> Any:
    """One schema for all: a column may be null in one rank's file and said never to be in another's."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schemas = [pq.read_schema(part.table.path).remove_metadata() for part in group]
    try:
        return pa.unify_schemas(schemas)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        ranks = ", ".join(str(part.staged.rank) for part in group)
        raise WarehouseError(f"{group[0].table.table}: ranks {ranks} differ in columns: {error}") from error
