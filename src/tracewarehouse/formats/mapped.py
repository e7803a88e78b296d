"""Formats that a SELECT maps to `activities`: `sql/formats/NAME.v1.sql`, over the tables of a file.

A table of a file has the columns that the contract names, `file_row`, the number of the row, and `others`: a
struct of all other columns, each as `<format>.<column>`. The SELECT returns columns of `activities` in any
order, and beside them:

- structs, whose members become arguments of the row where they are not null, in their order: numbers, texts,
  JSON, and lists of integers;
- `part` and `file_row`: rows that start at the same time are in the order of these;
- rows with a `rule`, which are no activities: their `rows` and `example` are a finding about the file;
- `node`, `process` and `process_device` of GPU activities, by which processes are listed.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import (
    ACTIVITIES,
    Defect,
    Outcome,
    Part,
    PartFile,
    PartFormat,
    Request,
    Source,
    once_per_file,
)
from tracewarehouse.formats.databases import check_complete, open_database
from tracewarehouse.formats.file_text import SQLITE_MAGIC, sqlite_format
from tracewarehouse.formats.json_text import json_lists, json_objects, json_texts
from tracewarehouse.formats.source_tables import (
    HAS_TEXT,
    PART_BITS,
    POSITION,
    CollectedSource,
    Notes,
    counted,
    declared_type,
    to_ints,
)
from tracewarehouse.temp_folders import temporary_folder

if TYPE_CHECKING:
    from pathlib import Path

    from tracewarehouse.contracts.contract import Contract, RawTable
    from tracewarehouse.duck.engine import Connection
    from tracewarehouse.formats.databases import Database
    from tracewarehouse.formats.source_tables import ActivityRows


# DuckDB's names of the types of raw columns.
RAW_TYPES: Final = {"BIGINT": pa.int64(), "DOUBLE": pa.float64(), "VARCHAR": pa.string(), "BLOB": pa.binary()}
_BATCH_ROWS: Final = 1 << 16
_LARGE_BYTES: Final = 1 << 30
_OTHERS, _ROW = "others", "file_row"
# Columns of the SELECT that are no columns of activities.
_FINDING: Final = ("rule", "rows", "example")
_OF_PROCESSES: Final = ("node", "process", "process_device")


def contract_of(name: str) -> Contract:
    """The contract of a format."""
    from tracewarehouse.contracts.catalog import Catalog

    return Catalog.load().get(name, kind="format")


def database_table(
    database: Database,
    table: RawTable,
    prefix: str,
    name: str,
    where: str = "TRUE",
    *,
    in_full: bool = True,
) -> pa.RecordBatchReader:
    """A table of a contract from a database, where it is called `name`.

    If not in full, `others` has no columns.
    """
    known = database.tables.get(name, {})
    if not known or any(column not in known for column, _ in table.columns[: table.required]):
        return raw_table(table, prefix, {}, ())
    named = {source: type_ for _, source, type_ in _named(table, known)}
    types = {
        # A number may be declared as text; SQLite needs no type at all.
        column: declared_type(declared)
        if declared and named.get(column, "BIGINT") == "BIGINT"
        else RAW_TYPES[named.get(column, "VARCHAR")]
        for column, declared in known.items()
        if in_full or column in named
    }
    return raw_table(table, prefix, types, database.batches(name, types, where))


def _named(table: RawTable, known: Collection[str]) -> list[tuple[str, str | None, str]]:
    """The name of each column, that in the file, and its type."""
    return [
        (names.partition("|")[0], next((name for name in names.split("|") if name in known), None), type_)
        for names, type_ in table.columns
    ]


def raw_table(
    table: RawTable, prefix: str, types: Mapping[str, pa.DataType], batches: Iterable[pa.RecordBatch]
) -> pa.RecordBatchReader:
    """The rows of a table as a mapping reads them; `types` are the columns of the batches."""
    named = _named(table, types)
    sources = [source for _, source, _ in named]
    others = [name for name in types if name not in sources or name in table.kept]
    fields = [(f"{prefix}.{name}", types[name]) for name in others] or [(_OTHERS, pa.int64())]
    columns = [(name, _stored_type(types.get(source or ""), type_)) for name, source, type_ in named]
    schema = pa.schema([*columns, (_OTHERS, pa.struct(fields)), (_ROW, pa.int64())])

    def made() -> Iterator[pa.RecordBatch]:
        first_row = 0
        for batch in batches:
            rows = batch.num_rows
            rest = [batch.column(name) for name in others] or [pa.nulls(rows, pa.int64())]
            arrays = [
                _typed(batch.column(source), type_) if source in types else pa.nulls(rows, type_)
                for source, (_, type_) in zip(sources, columns, strict=True)
            ]
            arrays.append(pa.StructArray.from_arrays(rest, [name for name, _ in fields]))
            arrays.append(pa.array(np.arange(first_row, first_row + rows)))
            first_row += rows
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, made())


def arrow_table(table: RawTable, prefix: str, found: pa.Table) -> pa.RecordBatchReader:
    """The same for a table in memory."""
    types = {each.name: each.type for each in found.schema}
    return raw_table(table, prefix, types, found.to_batches())


def _stored_type(given: pa.DataType | None, declared: str) -> pa.DataType:
    """The type of a column; encoded texts stay so."""
    is_encoded = given is not None and pa.types.is_dictionary(given) and declared == "VARCHAR"
    return given if is_encoded else RAW_TYPES[declared]


def _typed(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return to_ints(column) if type_ == pa.int64() else column.cast(type_)


def map_tables(
    contract: Contract,
    tables: Mapping[str, pa.RecordBatchReader],
    params: Mapping[str, object],
    rows: ActivityRows,
    notes: Notes,
    *,
    setup: str = "",
    apart: bool = False,
) -> None:
    """Adds the activities and findings that the SELECT of a format returns; raises DuckDB's errors.

    `setup` creates what the SELECT calls. A database apart has copies of the tables, and moves to disk what
    does not fit in memory.
    """
    from tracewarehouse.duck import engine

    with (
        temporary_folder() if apart else nullcontext() as spill,
        engine.connect(threads=1, temp_directory=spill) if apart else engine.scratch(threads=1) as con,
    ):
        for table in contract.raw_tables:
            register(con, table, tables[table.name], copy=apart)
        con.execute(setup)
        found = con.sql(engine.sql_with_params(contract, engine.bind(contract, params)))
        types = dict(zip(found.columns, found.types, strict=True))
        for batch in found.to_arrow_reader(_BATCH_ROWS):
            for part in _parts(_without_findings(batch, notes)):
                _add(part, types, rows)


def selected(name: str, tables: Mapping[str, pa.Table], **params: object) -> pa.Table:
    """What a contract selects from tables; those that are missing have no rows."""
    from tracewarehouse.duck import engine

    contract = contract_of(name)
    with engine.scratch(threads=1) as con:
        for table in contract.raw_tables:
            register(con, table, arrow_table(table, name, tables.get(table.name, pa.table({}))))
        return con.sql(engine.sql_with_params(contract, engine.bind(contract, params))).to_arrow_table()


def register(con: Connection, table: RawTable, batches: pa.RecordBatchReader, *, copy: bool = False) -> None:
    """Makes a table and its keyed relations visible to the SELECT."""
    name, found = quote_name(table.name), None
    if copy:
        con.register("tw_rows", batches)
        con.execute(f"CREATE TEMP TABLE {name} AS FROM tw_rows")
    else:
        found = batches.read_all()
        con.register(table.name, found)
    for key in table.keys:
        column, view = quote_name(key), quote_name(f"{table.name}_by_{key}")
        keys = None if found is None else found.column(key)
        is_unique = keys is not None and not keys.null_count and bool((np.diff(keys.to_numpy()) > 0).all())
        first = "" if is_unique else f"QUALIFY row_number() OVER (PARTITION BY {column} ORDER BY {_ROW}) = 1"
        select = f"SELECT * EXCLUDE ({_ROW}) FROM {name} WHERE {column} IS NOT NULL {first}"
        con.execute(f"CREATE TEMP VIEW {view} AS {select}")


def _without_findings(batch: pa.RecordBatch, notes: Notes) -> pa.RecordBatch:
    """The activities; rows with a rule are added to the notes."""
    if "rule" not in batch.schema.names:
        return batch
    rules = batch.column("rule")
    if rules.null_count < len(rules):
        for finding in batch.filter(rules.is_valid()).select(_FINDING).to_pylist():
            notes.add(*finding.values())
        batch = batch.filter(rules.is_null())
    return batch


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of each part, which differ in the columns that have values."""
    parts = batch.column("part").to_numpy(zero_copy_only=False)
    edges = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(parts)]
    for first, last in pairwise(edges) if len(parts) else ():
        yield batch.slice(first, last - first)


def _add(batch: pa.RecordBatch, types: Mapping[str, Any], rows: ActivityRows) -> None:
    """Adds the rows of a part; `types` are those of DuckDB."""
    columns = {
        name: column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if (name == "ts_ns" or column.null_count < len(column)) and name not in (*_FINDING, *_OF_PROCESSES)
    }
    structs = {name: columns.pop(name) for name in list(columns) if pa.types.is_struct(columns[name].type)}
    members, has_text = _members(structs, types, len(batch))
    args = json_objects(members, len(batch))
    if (texts := columns.pop("args", None)) is not None:
        args, has_text = pc.coalesce(texts.cast(args.type), args), pc.or_(has_text, texts.is_valid())
    part = pc.shift_left(columns.pop("part").cast(pa.int64()), PART_BITS)
    position = pc.add(part, columns.pop(_ROW))
    if "category" in columns:
        columns.setdefault("raw_category", columns["category"])
    rows.add({**columns, "args": args, HAS_TEXT: has_text, POSITION: position})


def _members(
    columns: Mapping[str, pa.Array], types: Mapping[str, Any], rows: int
) -> tuple[dict[str, pa.Array], pa.Array]:
    """The members of structs, and which rows have a text; of members with one name the first value counts."""
    found: dict[str, pa.Array] = {}
    has_text = pa.repeat(pa.scalar(False), rows)
    for name, struct in columns.items():
        for (member, type_), values in zip(types[name].children, struct.flatten(), strict=True):
            if type_.id == "list" and values.null_count < len(values):
                values = json_lists(values)
            if values.null_count == len(values):
                continue
            if pa.types.is_string(values.type):
                is_json = type_ == "JSON"
                texts = pc.match_substring(values, '"') if is_json else values.is_valid()
                has_text = pc.or_(has_text, pc.fill_null(texts, False))
                values = values if is_json else json_texts(values)
            if (known := found.get(member)) is not None:
                values = pc.coalesce(known.cast(pa.string()), values.cast(pa.string()))
            found[member] = values
    return found, has_text


@once_per_file
def query(
    path: Path, format: str, sql: str, tables: tuple[str, ...], suffix: str = ""
) -> list[tuple[Any, ...]]:
    """The rows of a SELECT over the `activities` of all processes; a file is searched once per process.

    Only some tables are read, whose names in the file end in `suffix`.
    """
    from tracewarehouse.duck import engine

    contract = contract_of(format)
    with open_database(path) as database, engine.scratch(threads=1) as con:
        for table in contract.raw_tables:
            name = table.name + suffix if table.name in tables else ""
            register(con, table, database_table(database, table, format, name, in_full=False))
        activities = engine.sql_with_params(contract, {})
        return con.execute(f"WITH activities AS ({activities}\n) {sql}").fetchall()


class DatabaseSource(CollectedSource):
    """A Source with the activities of one process of a database. The constructor reads the tables."""

    format: ClassVar[str]
    # The contracts that map it, by default the one of its name.
    mappings: ClassVar[tuple[str, ...]] = ()
    # Statements that create what they call.
    setup: str = ""
    # What follows the names of tables in the file.
    suffix: str = ""

    def _read(self) -> None:
        with open_database(self._path) as database:
            params, read = self._begin(database), set()
            apart = max(self._content.size, self._path.stat().st_size) > _LARGE_BYTES
            for contract in map(contract_of, self.mappings or (self.format,)):
                tables = {table.name: self._table(database, table) for table in contract.raw_tables}
                map_tables(contract, tables, params, self._rows, self._notes, setup=self.setup, apart=apart)
                read |= {name + self.suffix for name in tables}
            self._end(database)
            for name in database.tables:
                if name not in read and self._is_unread(name) and (rows := database.count(name)):
                    self._notes.add("table_not_read", 1, f"{name}: {counted(rows, 'row')}")
            for name, values in database.unusable.items():
                lost = f"{name}: {counted(values, 'value')} of another type"
                self._notes.add("unusable_value", values, lost)

    def _table(self, database: Database, table: RawTable) -> pa.RecordBatchReader:
        """A table of a contract."""
        return database_table(database, table, self.format, table.name + self.suffix)

    @abstractmethod
    def _begin(self, database: Database) -> Mapping[str, object]:
        """Reads what describes the file and the part, and returns the parameters of the SELECT."""

    def _end(self, database: Database) -> None:
        """Adds findings once the tables are read."""

    def _is_unread(self, name: str) -> bool:
        """Whether a table that the contract does not name is reported."""
        return True


class DatabaseFormat(PartFormat):
    """A Format of databases that the contract of its name maps; by default of one part."""

    def has(self, tables: Mapping[str, Collection[str]]) -> bool:
        """Whether a database with these tables and columns has this format."""
        return sqlite_format(tables) == f"{self.name}_sqlite"

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a readable database with the tables of the format."""
        if not head.startswith(SQLITE_MAGIC) or path.is_dir():
            return False
        try:
            # The head may be that of decompressed content, which SQLite cannot open.
            with path.open("rb") as file, open_database(path) as database:
                return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC and self.has(database.tables)
        except TraceFormatError:
            return False

    def open(self, path: Path) -> PartFile:
        """The file. Raises TraceFormatError if it is incomplete."""
        if not path.is_dir():
            check_complete(path)
        return super().open(path)


class ContractFormat(DatabaseFormat):
    """A Format that is nothing but a contract: a database with all required columns, of one part."""

    def __init__(self, contract: Contract) -> None:
        self.name, self._tables = contract.name, contract.raw_tables
        self.source = partial(ContractSource, contract.name)  # type: ignore[misc]

    def has(self, tables: Mapping[str, Collection[str]]) -> bool:
        """Whether the tables have all required columns, of which there must be one."""
        needed = [(each.name, name) for each in self._tables for name, _ in each.columns[: each.required]]
        return bool(needed) and all(column in tables.get(name, ()) for name, column in needed)


class ContractSource(DatabaseSource):
    """A Source of a ContractFormat."""

    clock = "unknown"

    def __init__(self, format: str, path: Path, part: Part, request: Request) -> None:
        self.format = format  # type: ignore[misc]
        super().__init__(path, part, request)

    def _begin(self, database: Database) -> Mapping[str, object]:
        self._notes.add("clock_not_utc", 1, "the format names no clock")
        return {}


def own_formats() -> list[ContractFormat]:
    """The formats of a team's own contracts."""
    from tracewarehouse.contracts.catalog import Catalog

    catalog = Catalog.load()
    of_formats = set(catalog.refs("format"))
    return [ContractFormat(catalog.contracts[ref]) for ref in catalog.own if ref in of_formats]


# Findings about a recording that do not apply to what is joined.
_OF_ITSELF: Final = ("rank_assumed", "clock_not_utc", "process_not_read")
# Format of a recording → the contract that finds it in the trace of torch.
_MATCHED_BY: Final = {"nccl_profiler": "nccl_torch"}


class Recording(NamedTuple):
    """What another tool recorded of the process of a trace: name of the file, format, and what opens it."""

    name: str
    format: str
    read: Callable[[], Source]


class JoinedSource:
    """A Source: a trace of torch, and what only Nsight Systems or NCCL's plug-in recorded of its process.

    A recording is left out if it does not match or cannot be read.
    """

    def __init__(self, trace: Source, recordings: Sequence[Recording]) -> None:
        self._trace, self._recordings = trace, recordings
        self._findings: list[Defect] = []
        # Those that are joined, and for each: row → event of the rank.
        self._joined: list[tuple[Outcome, dict[int, int]]] = []

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        """The activities. They can be read once."""
        batches = self._trace.tables[ACTIVITIES]
        return {ACTIVITIES: pa.RecordBatchReader.from_batches(batches.schema, self._rows(batches))}

    def _rows(self, batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """The rows of the trace, and then the others."""
        trace, rows = [], 0
        for batch in batches:
            is_slice = pc.and_(pc.equal(batch["ph"], "X"), pc.not_equal(batch["category"], "python_function"))
            trace.append(batch.filter(pc.fill_null(is_slice, False)))
            rows += len(batch)
            yield batch
        for name, format_, read in self._recordings:
            notes, places = Notes(), dict[int, int]()
            try:
                recording = read()
                found = recording.tables[ACTIVITIES].read_all()
            except TraceFormatError as error:
                notes.add("not_joined", 1, error.message)
            else:
                contract = contract_of(_MATCHED_BY.get(format_, "nsys_torch"))
                slices = pa.Table.from_batches(trace, batches.schema)
                for added in _beside(contract, slices, found, notes):
                    ids = range(rows, rows + len(added))
                    places |= zip(added["file_row"].to_pylist(), ids, strict=True)
                    rows += len(added)
                    yield from _added_rows(found, added, ids, batches.schema)
                if "joined" in notes.found:
                    self._joined.append((recording.outcome(), places))
            self._findings += (
                Defect(rule, count, f"{name}: {example}") for rule, (count, example) in notes.found.items()
            )

    def outcome(self) -> Outcome:
        """The facts about the trace, and about the recordings that are joined."""
        found = self._trace.outcome()
        joined = [each for each in self._findings if each.rule == "joined"]
        whole = Defect("joined", sum(one.rows for one in joined), "; ".join(one.example for one in joined))
        others = (each for each in self._findings if each not in joined)
        found = replace(found, findings=(*found.findings, *others, *([whole] if joined else ())))
        for recording, places in self._joined:
            header = {**json.loads(recording.header_json), **json.loads(found.header_json)}
            redactions = ((places.get(each.event_id or 0), each) for each in recording.redactions)
            found = replace(
                found,
                digest=sha256(f"{found.digest} {recording.digest}".encode()).hexdigest(),
                header_json=json.dumps(header, ensure_ascii=False),
                stored_bytes=found.stored_bytes + recording.stored_bytes,
                events=found.events + len(places),
                redactions=(
                    *found.redactions,
                    *(replace(each, event_id=at) for at, each in redactions if at is not None),
                ),
                findings=(
                    *found.findings, *(each for each in recording.findings if each.rule not in _OF_ITSELF)
                ),
            )  # fmt: skip
        return found


def _beside(
    contract: Contract, trace: pa.Table, recording: pa.Table, notes: Notes
) -> Iterator[pa.RecordBatch]:
    """The rows of a recording that are added, by their number, and their time and arguments."""
    from tracewarehouse.duck import engine

    with engine.scratch(threads=1) as con:
        for table, found in zip(contract.raw_tables, (trace, recording), strict=True):
            names = [name for name, _ in table.columns if name in found.column_names]
            register(con, table, arrow_table(table, contract.name, found.select(names)))
        for batch in con.sql(contract.body).to_arrow_reader(_BATCH_ROWS):
            yield _without_findings(batch, notes)


def _added_rows(
    found: pa.Table, added: pa.RecordBatch, ids: range, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of a recording with these numbers, as events of a trace with these ids."""
    rows = found.take(added["file_row"])
    known = {name: rows[name] for name in rows.column_names}
    known |= {name: added[name] for name in ("ts_ns", "correlation", "args")} | {"event_id": pa.array(ids)}
    columns = [
        known[field.name].cast(field.type) if field.name in known else pa.nulls(len(ids), field.type)
        for field in schema
    ]
    yield from pa.table(columns, schema=schema).to_batches()
