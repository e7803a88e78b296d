"""Parquet files of the stored tables: one large rank streamed, or several small ranks side by side.

The column `args` of `events` is stored as templates and numbers: see `contracts.contract`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import (
    ARGS,
    ARGS_SQL,
    NUMBERS,
    PRINTED,
    REPEATED,
    TEMPLATE,
    Column,
    Contract,
    Ref,
    file_columns,
    has_template,
)
from tracewarehouse.errors import TwError
from tracewarehouse.formats.kineto.columns import run_sql_over
from tracewarehouse.formats.kineto.library import available
from tracewarehouse.formats.kineto.scanner import NativeScanner
from tracewarehouse.ingest.resources import release_memory
from tracewarehouse.storage.model import StagedTable
from tracewarehouse.storage.pack import ROW_GROUP_ROWS, row_groups, stored_type, write_file

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tracewarehouse.ingest.columns import Columns

    Rows: TypeAlias = pa.Table | Iterable[pa.RecordBatch]
    _Arguments: TypeAlias = dict[str, pa.ChunkedArray]


# With more templates in a row group, the texts are stored instead.
_MOST_TEMPLATES: Final = 20_000
# Columns that identify the rank of a row.
_KEYS = ("run_id", "rank")
# Maximum size of tables of a large rank that are built and not yet written.
_QUEUED_BYTES: Final = 48 << 20


class WrittenTable(Struct, frozen=True):
    """A Parquet file with the rows of one table, rank by rank; `ranks` ascends."""

    table: str
    version: int
    path: Path
    ranks: tuple[int, ...]
    rows: tuple[int, ...]


class _Layout(Struct, frozen=True):
    """Properties of all files of a contract: their columns in order, and the metadata of the footer.

    `types` are those of the columns of the contract.
    """

    contract: Contract
    columns: dict[str, Column]
    types: dict[str, pa.DataType]
    metadata: dict[str, str]


class TableWriter(Struct):
    """Writes Parquet files of contracts; keep one per process, as it caches the layout of each contract."""

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
        split: Sequence[Future[_Arguments]] = (),
    ) -> WrittenTable | None:
        """Writes one rank's rows as a file; returns None, and writes no file, if there are none.

        `rows` have the columns and row order of the contract; `run_id` and `rank` may be missing. Texts may
        be dictionary-encoded, JSON is text. Batches are held in memory only up to a row group. `split` are
        the arguments of the row groups if they are split already. Raises TwError if columns differ from the
        contract, OSError if writing fails.
        """
        layout = self._layout(contract)
        tables = [rows] if isinstance(rows, pa.Table) else (pa.Table.from_batches([each]) for each in rows)
        keyed = (_with_keys(layout, table, run_id, rank) for table in tables)
        count = _write(layout, row_groups(_alike(keyed), ROW_GROUP_ROWS), path, split)
        return WrittenTable(contract.name, contract.version, path, (rank,), (count,)) if count else None

    def write_packed(
        self, contract: Contract, tables: Sequence[tuple[Sequence[int], pa.Table]], *, run_id: str, path: Path
    ) -> WrittenTable | None:
        """Writes several ranks of a run as one file; small ranks share row groups.

        A table of several ranks has the column `rank` and is in order of it. Ranks without rows are omitted.
        """
        held = sorted(((ranks, table) for ranks, table in tables if len(table)), key=lambda one: one[0][0])
        if not held:
            return None
        layout = self._layout(contract)
        keyed = (_with_keys(layout, table, run_id, ranks[0]) for ranks, table in held)
        _write(layout, row_groups(_alike(keyed)), path)
        counts: dict[int, int] = {}
        for ranks, table in held:
            of_row = table.column("rank") if len(ranks) > 1 else np.full(len(table), ranks[0])
            found, rows = np.unique(of_row, return_counts=True)
            counts |= dict(zip(found.tolist(), rows.tolist(), strict=True))
        return WrittenTable(contract.name, contract.version, path, tuple(counts), tuple(counts.values()))

    def _layout(self, contract: Contract) -> _Layout:
        if contract.ref not in self._layouts:
            self._layouts[contract.ref] = _Layout(
                contract,
                {column.name: column for column in file_columns(contract)},
                {column.name: stored_type(column.type) for column in contract.columns},
                {"contract": str(contract.ref), "contract_hash": self.catalog.effective_hash(contract)},
            )
        return self._layouts[contract.ref]


def _write(
    layout: _Layout, groups: Iterable[pa.Table], path: Path, split: Sequence[Future[_Arguments]] = ()
) -> int:
    """Writes row groups in the types of the contract; returns the number of their rows."""
    pairs = zip(groups, split, strict=True) if split else zip(groups, repeat(None), strict=False)
    conformed = _alike(_conformed(layout, rows, arguments) for rows, arguments in pairs)
    return write_file(path, conformed, layout.columns, layout.metadata)


def _with_keys(layout: _Layout, rows: pa.Table, run_id: str, rank: int) -> pa.Table:
    """The contract's columns, with `run_id` and `rank`; raises TwError if others are missing."""
    given = dict(zip(rows.schema.names, rows.columns, strict=True))
    for name, value in zip(_KEYS, (run_id, rank), strict=True):
        if name in layout.types and name not in given:
            codes = pa.array(np.zeros(len(rows), np.int32))
            words = pa.array([value], layout.types[name])
            given[name] = pa.chunked_array([pa.DictionaryArray.from_arrays(codes, words)])
    if given.keys() != layout.types.keys():
        names = ", ".join(sorted(given.keys() ^ layout.types.keys()))
        hint = hints.Hint(
            "internal error; please report it", "internal error; rerun with --debug and report it"
        )
        raise TwError(f"{layout.contract.ref}: missing columns, or more than the contract has: {names}", hint)
    return pa.table({name: given[name] for name in layout.types})


def _alike(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The tables in the schema of the first: a text is plain in all of them, or dictionary-encoded."""
    schema = None
    for table in tables:
        schema = schema or table.schema
        if table.schema != schema:
            columns = [_as_before(one, type_) for one, type_ in zip(table.columns, schema.types, strict=True)]
            table = pa.table(columns, schema=schema)
        yield table


def _conformed(layout: _Layout, rows: pa.Table, split: Future[_Arguments] | None) -> pa.Table:
    """The rows in the types of the contract."""
    columns = [_column(one, type_) for one, type_ in zip(rows.columns, layout.types.values(), strict=True)]
    made = dict(zip(layout.types, columns, strict=True))
    if TEMPLATE in layout.columns:
        made |= split.result() if split else split_args(made)
    return pa.table({name: made[name] for name in layout.columns})


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
    # Each row group stores the whole dictionary: that of a large file would be stored in every row group.
    # Parquet allows no null in a dictionary.
    words = values.chunk(0).dictionary
    if len(words) > len(values) or words.null_count:
        return values.cast(type_).dictionary_encode()
    return values


def _as_before(values: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """A column of a later row group in the form of the first one: plain texts, or dictionary-encoded."""
    if values.type == type_:
        return values
    return values.dictionary_encode() if pa.types.is_dictionary(type_) else values.cast(type_)


class RankFiles(Struct, dict=True):
    """The Parquet files of the ranks of one run.

    With `single` there is one large rank, and threads write its tables while the next ones are built; with
    `low_memory` before the next one is built. Otherwise tables are held until all ranks are built, and
    written side by side.
    """

    catalog: Catalog
    folder: Path
    single: bool
    low_memory: bool = False
    _held: dict[str, list[tuple[Sequence[int], pa.Table]]] = field(default_factory=lambda: defaultdict(list))
    _writing: list[Future[WrittenTable | None]] = field(default_factory=list)
    _queued: deque[tuple[Future[WrittenTable | None], int]] = field(default_factory=deque)
    _split: list[Future[_Arguments]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._writer = _writer(self.catalog.folder)
        if self.single:
            from concurrent.futures import ThreadPoolExecutor

            # `events` takes one as long as all other tables take the other.
            self._threads = ThreadPoolExecutor(2)

    def split_ahead(self, activities: Columns) -> None:
        """Splits the arguments of a large rank in a thread, as a core is idle until `events` are complete."""
        for low in range(0, activities.rows if self.single and not self.low_memory else 0, ROW_GROUP_ROWS):
            part = slice(low, min(low + ROW_GROUP_ROWS, activities.rows))
            columns = {name: pa.chunked_array([activities.arrow(name, part)]) for name in (ARGS, *REPEATED)}
            self._split.append(self._threads.submit(split_args, columns))

    def add(self, run: str, ranks: Sequence[int], table: str, rows: Rows) -> None:
        """Adds the rows of a table of these ranks, which must not change any more; see `write_packed`."""
        if not self.single:
            whole = rows if isinstance(rows, pa.Table) else pa.Table.from_batches(rows)
            self._held[table].append((ranks, whole))
            return
        (rank,) = ranks
        contract = self.catalog.get(table, kind="table")
        split = self._split if has_template(contract) else ()
        write = partial(
            self._writer.write, contract, rows, run_id=run, rank=rank, path=self._path(contract), split=split
        )
        self._writing.append(self._threads.submit(write))
        # Batches are built only when they are written.
        self._queued.append((self._writing[-1], rows.nbytes if isinstance(rows, pa.Table) else 0))
        # Waits for the writer, because queued tables occupy memory.
        while self._queued and (
            self.low_memory or sum(size for one, size in self._queued if not one.done()) > _QUEUED_BYTES
        ):
            self._queued.popleft()[0].exception()
        if self.low_memory:
            release_memory()

    def drop(self, ranks: Sequence[int]) -> None:
        """Drops ranks of which only some tables could be built."""
        for table, held in self._held.items():
            self._held[table] = [one for one in held if one[0] != ranks]

    def staged(self, run: str) -> dict[int, tuple[StagedTable, ...]]:
        """Rank → its written tables, by name; a table without rows has no file."""
        written = [each.result() for each in self._writing]
        for table, held in self._held.items():
            contract = self.catalog.get(table, kind="table")
            written.append(self._writer.write_packed(contract, held, run_id=run, path=self._path(contract)))
        self._held.clear()
        found: dict[int, list[StagedTable]] = defaultdict(list)
        for one in sorted(filter(None, written), key=lambda one: (one.table, one.version)):
            for rank, rows in zip(one.ranks, one.rows, strict=True):
                share = StagedTable(one.table, one.version, one.path, rows, sum(one.rows), one.ranks)
                found[rank].append(share)
        return {rank: tuple(tables) for rank, tables in found.items()}

    def __enter__(self) -> RankFiles:
        return self

    def __exit__(self, *_: object) -> None:
        if self.single:  # after a failure, queued tables are not written
            self._threads.shutdown(cancel_futures=True)

    def _path(self, contract: Contract) -> Path:
        return self.folder / f"{contract.name}.v{contract.version}.parquet"


@cache
def _writer(sql: Path) -> TableWriter:
    """One writer per process: it caches the layout of each contract."""
    return TableWriter(Catalog.load(sql))


def split_args(columns: Mapping[str, pa.ChunkedArray]) -> _Arguments:
    """The arguments of a row group as templates and numbers."""
    texts = _joined(columns[ARGS]).cast(pa.string())
    known = [_joined(columns[name]).cast(pa.int64()) for name in REPEATED]
    native = NativeScanner(words_most=_MOST_TEMPLATES) if available() else None
    cut = native.split(texts, known, len(NUMBERS)) if native else None
    # Without numbers, a template is the text itself.
    template, numbers = cut or (pc.replace_substring(texts, "%", "%%"), [])
    nulls = [pa.nulls(len(texts), pa.int64())] * (len(NUMBERS) - len(numbers))
    made = dict(zip((TEMPLATE, *NUMBERS), (template, *numbers, *nulls), strict=True))
    return {name: pa.chunked_array([column]) for name, column in made.items()}


def _joined(column: pa.ChunkedArray) -> pa.Array:
    found = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return found.storage if isinstance(found, pa.ExtensionArray) else found


def in_files(names: Iterable[str]) -> list[str]:
    """The columns in files of `events` that these columns are made from."""
    listed = list(names)
    return list(dict.fromkeys([*listed, TEMPLATE, *PRINTED])) if ARGS in listed else listed


def with_args(rows: pa.Table) -> pa.Table:
    """Rows of a file with the column `args` if they have its template."""
    if TEMPLATE not in rows.column_names:
        return rows
    columns = {name: rows.column(name) for name in (TEMPLATE, *PRINTED)}
    args = run_sql_over(f"SELECT {ARGS_SQL} AS args FROM given", columns).column(ARGS)
    return rows.drop_columns([TEMPLATE, *NUMBERS]).append_column(ARGS, args)
