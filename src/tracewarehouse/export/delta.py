"""Delta tables of stored tables: each version of a run is written exactly once.

A commit carries an app transaction, `tw:<warehouse>:<run>` at the number of the version. A process that finds
it at that number has nothing to do; of several that write at once, one commits, and the others notice.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tracewarehouse.errors import ParamError, TwError, UnknownName, WarehouseError
from tracewarehouse.late_regex import late_regex
from tracewarehouse.location import location
from tracewarehouse.query.selection import Selection
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.remote import RemoteObjects, allows_http
from tracewarehouse.storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with JSON and ENUM as strings, times in UTC, and signed integers; all columns nullable."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])


def plain_batches(rows: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows in the types of `plain_schema`."""
    import pyarrow as pa

    columns = [_cast(rows.column(field.name), field.type) for field in schema]
    yield from pa.Table.from_arrays(columns, schema=schema).to_batches()


def _plain(type_: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if isinstance(type_, pa.BaseExtensionType):
        return _plain(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return _plain(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_) or pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_unsigned_integer(type_):
        return pa.int64()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_plain(type_.value_type))
    return type_


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        chunks = [chunk.storage for chunk in column.chunks]
        column = pa.chunked_array(chunks, column.type.storage_type)
    return column.cast(type_)


DEFAULT_TABLES = ("kernels", "steps", "annotations", "runs", "ranks")
PUBLISHED = "tw_published"
# Characters of a local path that deltalake refuses, changes or ends the process for (seen with 1.6).
_UNSAFE = late_regex(r"[\[\]^|\\\x00-\x1f\x7f\ud800-\udfff]|%[0-9A-Fa-f]{2}")
_RANKS_PER_BATCH = 64
_TRIES = 40


class CopiedTables(Struct, frozen=True):
    """What became of a run: its version, the tables written now, and whether its rows were deleted."""

    run: str
    version: int
    written: tuple[str, ...]
    removed: bool = False


class DeltaTarget(Struct, frozen=True):
    """The folder or URL of the Delta tables, options of deltalake, and the warehouse that is published."""

    url: str
    warehouse: str
    options: Mapping[str, str] | None = None

    @classmethod
    def at(cls, destination: str | PathLike[str], warehouse: str) -> DeltaTarget:
        """Raises WarehouseError for a URL with credentials, a path that deltalake cannot write to, and a
        store that ignores conditional writes: of two commits at once, one would be lost.
        """
        place = location(destination)
        if isinstance(place, Path):
            path = str(place.absolute())
            if unsafe := _UNSAFE.search(path):
                raise WarehouseError(
                    f"{path}: deltalake cannot write to a path with {ascii(unsafe[0])}", "use another folder"
                )
            return cls(path, warehouse)
        RemoteObjects(place).check_conditions()
        return cls(place.url, warehouse, {"allow_http": "true"} if allows_http(place) else {})

    def app(self, run: str) -> str:
        """The name of the app transactions of a run."""
        return f"tw:{self.warehouse}:{run_key(run)}"

    def existing(self, table: str) -> Any:
        """A Delta table, None if there is none."""
        from deltalake import DeltaTable

        place = f"{self.url}/{table}"
        options = dict(self.options or {})
        return (
            DeltaTable(place, storage_options=options) if DeltaTable.is_deltatable(place, options) else None
        )

    def opened(self, table: str, schema: pa.Schema) -> Any:
        """A Delta table, created if there is none; its files are partitioned by run."""
        from deltalake import DeltaTable

        return self.existing(table) or DeltaTable.create(
            f"{self.url}/{table}",
            schema,
            mode="ignore",
            partition_by=["run_id"],
            storage_options=dict(self.options or {}),
        )


def check_tables(names: Sequence[str], known: Sequence[str]) -> None:
    """Raises UnknownName for a table that does not exist, ParamError for none."""
    if not names:
        raise ParamError("no tables selected", f"for example {','.join(DEFAULT_TABLES)}")
    for name in names:
        if name not in known:
            raise UnknownName("table", name, known)


def copy_run(
    target: DeltaTarget, selected: SelectedRun, side: Selection, tables: Sequence[str]
) -> CopiedTables:
    """Writes the rows of the newest version of a run that are not published yet.

    `side` has this run alone, `narrowed` through `select`. Raises WarehouseError if the destination refuses.
    """
    number, app = selected.version.number, target.app(selected.run)
    written = []
    for table in tables:
        schema = plain_schema(side.query(f"SELECT * FROM {table} LIMIT 0").table.schema)
        write = _Write(target, table, app, selected.run, number, schema)
        if _retried(partial(_write_rows, write, side, selected, table)):
            written.append(table)
    _note(target, selected.run, number, tables)
    return CopiedTables(selected.run, number, tuple(written))


def _write_rows(write: _Write, side: Selection, selected: SelectedRun, table: str) -> bool:
    return write.rows(_rows(side, selected, table, write.schema))


def _rows(side: Selection, selected: SelectedRun, table: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of the run, some ranks at a time."""
    if table == "runs":
        yield from plain_batches(side.query("SELECT * FROM runs").table, schema)
        return
    for at in range(0, len(selected.ranks), _RANKS_PER_BATCH):
        ranks = selected.ranks[at : at + _RANKS_PER_BATCH]
        sql = f"SELECT * FROM {table} WHERE rank BETWEEN {ranks[0]} AND {ranks[-1]}"
        yield from plain_batches(side.query(sql).table, schema)


def delete_run(target: DeltaTarget, run: str, number: int, tables: Sequence[str]) -> CopiedTables | None:
    """Deletes the rows of a run that was removed in version `number`; None if there are none."""
    app, deleted = target.app(run), []
    for table in (*tables, PUBLISHED):
        write = _Write(target, table, app, run, number, None)
        if _retried(write.delete):
            deleted.append(table)
    return CopiedTables(run, number, tuple(deleted), removed=True) if deleted else None


class _Write(Struct, frozen=True):
    """One commit to a table."""

    target: DeltaTarget
    table: str
    app: str
    run: str
    number: int
    schema: Any

    @property
    def predicate(self) -> str:
        """The rows of the run."""
        return f"run_id = '{self.run}'"

    def rows(self, batches: Iterator[pa.RecordBatch]) -> bool:
        """Writes the rows unless this version or a later one is published; whether it did."""
        import pyarrow as pa
        from deltalake import write_deltalake

        table = self.target.opened(self.table, self.schema)
        known = table.transaction_version(self.app)
        if known is not None and known >= self.number:
            return False
        reader = pa.RecordBatchReader.from_batches(self.schema, batches)
        how: dict[str, Any] = {"mode": "append"}
        if known is not None:
            how = {"mode": "overwrite", "predicate": self.predicate}
        write_deltalake(table, reader, schema_mode="merge", commit_properties=self.properties(), **how)
        return True

    def delete(self) -> bool:
        """Deletes the rows unless this version is published; whether it did."""
        table = self.target.existing(self.table)
        if table is None:
            return False
        known = table.transaction_version(self.app)
        if known is None or known >= self.number:
            return False
        table.delete(self.predicate, commit_properties=self.properties())
        return True

    def properties(self) -> Any:
        """What makes the commit count once."""
        from deltalake import CommitProperties
        from deltalake.transaction import Transaction

        return CommitProperties(app_transactions=[Transaction(self.app, self.number)])


def _note(target: DeltaTarget, run: str, number: int, tables: Sequence[str]) -> None:
    """Lists the tables of a published version, last, so that a reader knows that they are complete."""
    import pyarrow as pa
    from deltalake import write_deltalake

    schema = pa.schema([("run_id", pa.string()), ("version", pa.int64()), ("tables", pa.string())])
    commit = _Write(target, PUBLISHED, target.app(run), run, number, schema)

    def write() -> bool:
        table = target.opened(PUBLISHED, schema)
        rows = table.to_pyarrow_table(filters=[("run_id", "=", run)]).to_pylist()
        found = max(rows, key=lambda row: row["version"], default=None)
        known = (found["version"], json.loads(found["tables"])) if found else None
        listed = sorted({*tables, *(known[1] if known and known[0] == number else ())})
        if known is not None and (known[0] > number or known == (number, listed)):
            return False
        row = pa.record_batch([[run], [number], [json.dumps(listed)]], schema=schema)
        reader = pa.RecordBatchReader.from_batches(schema, [row])
        properties = commit.properties()
        write_deltalake(
            table, reader, mode="overwrite", predicate=commit.predicate, commit_properties=properties
        )
        return True

    _retried(write)


def _retried(write: Callable[[], bool]) -> bool:
    """Writes until no other process commits first."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    for at in range(_TRIES):
        try:
            return write()
        except CommitFailedError as error:
            last: Exception = error
        except DeltaError as error:
            if "already exists" not in str(error):
                raise WarehouseError(
                    _first_line(error), "check the destination and its permissions"
                ) from error
            last = error
        except OSError as error:  # what the store answered
            raise WarehouseError(
                _first_and_last_line(error), "check the destination, its permissions and credentials"
            ) from error
        time.sleep(random.uniform(0.5, 1.5) * min(0.02 * 2**at, 2.0))
    raise WarehouseError(f"other processes keep writing: {_first_line(last)}", "run it again") from last


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _first_and_last_line(error: Exception) -> str:
    """What failed, and the innermost cause; without the lines between and their colors."""
    lines = [re.sub(r"\x1b\[[0-9;]*m|\u21b3", "", line).strip() for line in str(error).splitlines()]
    return ": ".join(dict.fromkeys(line for line in (lines[:1] + lines[-1:]) if line))


def removed_runs(store: Store, names: Sequence[str] | None) -> dict[str, int]:
    """Run → number of its removal, of all removed runs, or of those with these names."""
    wanted = None if names is None else {name.lower() for name in names}
    found = {}
    for key in store.run_keys():
        if wanted is None or key in wanted:
            try:
                head = store.head(key)
            except TwError:
                continue
            if head.tombstone:
                found[head.run] = head.number
    return found


def check_installed() -> None:
    """Raises ParamError without deltalake."""
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise ParamError(
            "Delta tables need deltalake", "install it with: pip install 'tracewarehouse[delta]'"
        ) from None


def copy_tables(
    selection: Selection,
    destination: str | PathLike[str],
    runs: Sequence[str] | None,
    tables: Sequence[str],
) -> tuple[CopiedTables, ...]:
    """Copies tables of runs (None: all) to Delta tables; deletes the rows of removed runs.

    Raises UnknownName, ParamError without the extra `delta`, WarehouseError.
    """
    check_installed()
    names = tuple(dict.fromkeys(tables)) or DEFAULT_TABLES
    check_tables(names, [table.name for table in selection.catalog.tables() if not table.transient])
    removed = removed_runs(selection.store, runs)
    gone = {name.lower() for name in removed}
    left = None if runs is None else [name for name in runs if name.lower() not in gone]
    selected = selection.selected() if left is None else selection.matching(left) if left else ()
    target = DeltaTarget.at(destination, selection.store.id)
    done = [copy_run(target, run, selection.over([run]), names) for run in selected]
    deleted = (delete_run(target, run, number, names) for run, number in removed.items())
    return (*done, *(each for each in deleted if each is not None))
