"""Tables of the builders as Parquet files: of one rank, streamed, or of several small ranks in one file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Ref
from tracewarehouse.duck.arrow import type_of
from tracewarehouse.errors import TwError
from tracewarehouse.storage.encoding import (
    ROW_GROUP_ROWS,
    bare_columns,
    encoding_of,
    writer_options,
)
from tracewarehouse.storage.parquet_file import FileFacts, file_facts

# What says whose rows they are; texts but these get no minimum and maximum.
_KEYS = ("run_id", "rank")
_TEXT = ("VARCHAR", "JSON")
_BUFFER_BYTES = 1 << 18


@dataclass(frozen=True)
class WrittenTable:
    """A Parquet file with the rows of one table: of each rank in turn, `ranks` ascending."""

    table: str
    version: int
    path: Path
    ranks: tuple[int, ...]
    rows: tuple[int, ...]
    file: FileFacts


@dataclass(frozen=True)
class _Layout:
    """What is the same in every file of a contract: columns by name in order, and what its footer says."""

    contract: Contract
    types: dict[str, pa.DataType]
    with_statistics: tuple[str, ...]
    metadata: dict[str, str]


@dataclass(frozen=True)
class _Group:
    """Rows of one rank that become a row group."""

    run_id: str
    rank: int
    rows: pa.Table


@dataclass
class TableWriter:
    """Writes Parquet files of contracts; keep one per process, as it remembers what each contract takes."""

    catalog: Catalog
    _layouts: dict[Ref, _Layout] = field(default_factory=dict)

    def write(
        self,
        contract: Contract,
        rows: pa.Table | Iterable[pa.RecordBatch],
        *,
        run_id: str,
        rank: int,
        path: Path,
    ) -> WrittenTable | None:
        """One rank's rows as a file; None, and no file, where there are none.

        `rows` have the contract's columns in its order of rows; `run_id` and `rank` may be missing. Texts may
        be dictionary-encoded, JSON is text. Of batches no more than a row group is held at a time. Raises
        TwError where columns differ from the contract, OSError where the disk does.
        """
        groups = (_Group(run_id, rank, group) for group in _row_groups(rows))
        count = _write(self._layout(contract), groups, path)
        if not count:
            return None
        return WrittenTable(contract.name, contract.version, path, (rank,), (count,), file_facts(path))

    def write_packed(
        self, contract: Contract, tables: Sequence[tuple[int, pa.Table]], *, run_id: str, path: Path
    ) -> WrittenTable | None:
        """Several ranks of a run as one file, at least a row group each, so that readers skip by rank.

        Ranks without rows are left out. Encodings are chosen by the rank with the most rows.
        """
        held = sorted(((rank, table) for rank, table in tables if len(table)), key=lambda one: one[0])
        if not held:
            return None
        groups = (_Group(run_id, rank, group) for rank, table in held for group in _row_groups(table))
        rank, largest = max(held, key=lambda one: len(one[1]))
        like = _Group(run_id, rank, largest.slice(0, ROW_GROUP_ROWS)) if len(held) > 1 else None
        _write(self._layout(contract), groups, path, like)
        ranks, rows = tuple(rank for rank, _ in held), tuple(len(table) for _, table in held)
        return WrittenTable(contract.name, contract.version, path, ranks, rows, file_facts(path))

    def _layout(self, contract: Contract) -> _Layout:
        if contract.ref not in self._layouts:
            self._layouts[contract.ref] = _Layout(
                contract,
                {column.name: _stored_type(column.type) for column in contract.columns},
                tuple(one.name for one in contract.columns if one.name in _KEYS or one.type not in _TEXT),
                {"contract": str(contract.ref), "contract_hash": self.catalog.effective_hash(contract)},
            )
        return self._layouts[contract.ref]


def _stored_type(type_: str) -> pa.DataType:
    return pa.json_() if type_ == "JSON" else type_of(type_)


def _row_groups(rows: pa.Table | Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in groups of equal size, the last one smaller; none for no rows."""
    if isinstance(rows, pa.Table):
        yield from (rows.slice(at, ROW_GROUP_ROWS) for at in range(0, len(rows), ROW_GROUP_ROWS))
        return
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in rows:
        held.append(batch)
        count += len(batch)
        while count >= ROW_GROUP_ROWS:
            together = pa.Table.from_batches(held)
            yield together.slice(0, ROW_GROUP_ROWS)
            held = together.slice(ROW_GROUP_ROWS).to_batches()
            count -= ROW_GROUP_ROWS
    if count:
        yield pa.Table.from_batches(held)


def _write(layout: _Layout, groups: Iterator[_Group], path: Path, like: _Group | None = None) -> int:
    """The groups as a file, encoded as is good for `like` or the first of them; gives the rows written."""
    first = next(groups, None)
    if first is None:
        return 0
    rows = _conformed(layout, first)
    options = _options(layout, rows if like is None else _conformed(layout, like))
    count = 0
    # A writer that fails leaves a file that it opened itself open.
    with (
        pa.output_stream(str(path), compression=None, buffer_size=_BUFFER_BYTES) as file,
        pq.ParquetWriter(file, rows.schema, **options) as writer,
    ):
        while True:
            writer.write_table(rows, row_group_size=len(rows))
            count += len(rows)
            group = next(groups, None)
            if group is None:
                break
            rows = _conformed(layout, group, rows.schema)
        writer.add_key_value_metadata(layout.metadata)
    return count


def _options(layout: _Layout, rows: pa.Table) -> dict[str, Any]:
    columns = layout.contract.columns
    encodings = {column.name: encoding_of(column, rows.column(at)) for at, column in enumerate(columns)}
    options = writer_options(encodings, bare_columns(columns, len(rows)))
    return options | {"write_statistics": list(layout.with_statistics)}


def _conformed(layout: _Layout, group: _Group, like: pa.Schema | None = None) -> pa.Table:
    """The contract's columns in its types, with those that say whose they are, or in the types of `like`."""
    given = dict(zip(group.rows.column_names, group.rows.columns, strict=True))
    for name, value in zip(_KEYS, (group.run_id, group.rank), strict=True):
        if name in layout.types and name not in given:
            given[name] = _repeated(value, layout.types[name], len(group.rows))
    if given.keys() != layout.types.keys():
        names = ", ".join(sorted(given.keys() ^ layout.types.keys()))
        hint = hints.Hint(
            "internal error; please report it", "internal error; rerun with --debug and report it"
        )
        raise TwError(f"{layout.contract.ref}: missing columns, or more than the contract has: {names}", hint)
    columns = [_column(given[name], type_) for name, type_ in layout.types.items()]
    if like is not None:
        columns = [_as_before(one, type_) for one, type_ in zip(columns, like.types, strict=True)]
    return pa.table(columns, names=list(layout.types))


def _repeated(value: object, type_: pa.DataType, rows: int) -> pa.ChunkedArray:
    codes = pa.array(np.zeros(rows, np.int32))
    return pa.chunked_array([pa.DictionaryArray.from_arrays(codes, pa.array([value], type_))])


def _column(values: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """A column in its stored type; texts keep their dictionaries, one for all chunks."""
    if values.type == type_:
        return values
    if isinstance(type_, pa.BaseExtensionType):
        text = values.cast(type_.storage_type) if values.type != type_.storage_type else values
        return pa.chunked_array([pa.ExtensionArray.from_storage(type_, one) for one in text.chunks], type_)
    if not pa.types.is_dictionary(values.type):
        return values.cast(type_)
    wanted = pa.dictionary(pa.int32(), type_)
    values = values if values.type == wanted else values.cast(wanted)
    values = values.unify_dictionaries() if values.num_chunks > 1 else values
    if not values.num_chunks:
        return values
    # A row group stores its dictionary as a whole: one of a large file would be stored in each of them.
    # Parquet has no null in a dictionary.
    words = values.chunk(0).dictionary
    if len(words) > len(values) or words.null_count:
        return values.cast(type_).dictionary_encode()
    return values


def _as_before(values: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """A column of a later row group as the first one had it: all texts, or all codes."""
    if values.type == type_:
        return values
    return values.dictionary_encode() if pa.types.is_dictionary(type_) else values.cast(type_)
