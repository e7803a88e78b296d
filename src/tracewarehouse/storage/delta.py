"""Delta logs: the tables of a warehouse for other engines, in place or as copies.

In place, the log of a table (`data/TABLE/_delta_log`) names the Parquet files of the warehouse. Only tables
that are built on read, such as `runs`, and the rules of `data_quality` that compare ranks are small copies.

Each log is exact per version of a run: a commit carries an app transaction, `tw:<warehouse>:<run>` at the
number of the version, and of several writers, one commits, and the others look again. Logs do not change
together; therefore the row of a run in `runs` goes before its other tables change, and returns after them,
unless another call began with a later version. After a kill, the next call completes the tables.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import FINDINGS, Contract, file_columns
from tracewarehouse.duck.arrow import schema_of, type_of
from tracewarehouse.errors import TwError, WarehouseError
from tracewarehouse.late_regex import late_regex
from tracewarehouse.storage import layout
from tracewarehouse.storage.compact import compact, plan
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.model import Brief, RunVersion
from tracewarehouse.storage.objects import Objects
from tracewarehouse.storage.results import RecordedAnalysis, is_intact, parse
from tracewarehouse.storage.store import Store, attempts

if TYPE_CHECKING:
    import pyarrow as pa

# An action of a log by its kind: `{"add": {…}}`.
Action: TypeAlias = dict[str, Any]
# Rows of a version that no file of the warehouse has, by table.
Copies: TypeAlias = Callable[[Store, RunVersion], Mapping[str, "pa.Table"]]

RUNS = "runs"
# The folders of rows over runs: of several days, and of those whose start is unknown.
_ALL, _UNKNOWN = "all", "unknown"
_COMMIT = late_regex(r"([0-9]{20})\.json")
# A reader reads the last checkpoint and the commits after it; a commit of many actions gets one at once.
_CHECKPOINT_EVERY, _MANY_ACTIONS = 20, 500
# Runs that are registered together.
_RUNS_AT_ONCE = 256
_TABLES_AT_ONCE = 8
# Files belong to the warehouse: no VACUUM may take one for unused.
_FOREVER = {"delta.deletedFileRetentionDuration": "interval 36500 days"}


class CopiedTables(Struct, frozen=True):
    """What became of a run: its version, the tables written now, and whether the run was removed."""

    run: str
    version: int
    written: tuple[str, ...]
    removed: bool = False


@dataclass
class Snapshot:
    """What a log says: the number of its last commit (-1: none), files of each run, and transactions."""

    number: int = -1
    # Run key → path of a file → how it was added.
    files: dict[str, dict[str, Action]] = field(default_factory=dict)
    # App of a run → its last transaction.
    transactions: dict[str, Action] = field(default_factory=dict)
    metadata: Action | None = None
    protocol: Action | None = None

    def apply(self, action: Action) -> None:
        """Applies an action; those that do not change what is in the table are ignored."""
        for kind, value in action.items():
            if kind == "add":
                self.files.setdefault(_run_of(value["path"]), {})[value["path"]] = value
            elif kind == "remove":
                self.files.get(_run_of(value["path"]), {}).pop(value["path"], None)
            elif kind == "txn":
                self.transactions[value["appId"]] = value
            elif kind == "metaData":
                self.metadata = value
            elif kind == "protocol":
                self.protocol = value

    def version(self, app: str) -> int:
        """The version of a run that the log has, 0 for none."""
        return int(self.transactions.get(app, {"version": 0})["version"])

    def actions(self) -> Iterator[Action]:
        """The actions that give this state."""
        yield from ({"protocol": self.protocol}, {"metaData": self.metadata})
        yield from ({"txn": one} for one in self.transactions.values())
        yield from ({"add": one} for files in self.files.values() for one in files.values())


def _run_of(path: str) -> str:
    return path.partition("/")[0]


class DeltaLog(Struct, frozen=True):
    """The log of a table with the columns of `schema`, in a folder."""

    objects: Objects
    folder: str
    schema: Any = None

    def _key(self, name: str) -> str:
        return f"{self.folder}/{layout.DELTA_LOG}/{name}"

    def read(self, runs: Collection[str] | None = None) -> Snapshot:
        """The state of the table; `runs` limits that to the keys and apps of some runs (None: all).

        Raises WarehouseError for a damaged log.
        """
        try:
            return self._read(runs)
        except (ValueError, KeyError) as error:
            place = self.objects.describe(self.folder)
            raise WarehouseError(
                f"{place}: damaged Delta log: {error}", "delete every _delta_log folder, then export again"
            ) from error

    def _read(self, runs: Collection[str] | None) -> Snapshot:
        snapshot, start, last = Snapshot(), "", self._key("_last_checkpoint")
        for _, data in self.objects.get_many([last]):
            if data is not None:
                snapshot.number = json.loads(data)["version"]
                start = self._key(f"{snapshot.number:020d}.checkpoint.parquet")
                for action in _decoded(self.objects.get(start), runs):
                    snapshot.apply(action)
        folder = self._key("")
        listed = (entry.key for entry in self.objects.walk(folder, start))
        commits = (key for key in listed if _COMMIT.fullmatch(key.removeprefix(folder)))
        for key, data in self.objects.get_many(commits):
            for line in (data or b"").splitlines():
                snapshot.apply(json.loads(line))
            snapshot.number = int(key[-25:-5])
        return snapshot

    def commit(self, changes: Callable[[Snapshot], list[Action]], runs: Collection[str] | None) -> bool:
        """Commits the changes of the state of these runs, if any; creates the log if there is none."""
        for _ in attempts(self.folder):
            state = self.read(runs)
            actions = changes(state)
            if not actions and state.number >= 0:
                return False
            info = {"timestamp": _now_ms(), "operation": "WRITE", "engineInfo": "tracewarehouse"}
            info["txnId"] = secrets.token_hex(16)  # makes the bytes unique
            written = [{"commitInfo": info}, *self._described(state), *actions]
            number = state.number + 1
            data = "\n".join(json.dumps(action, separators=(",", ":")) for action in written).encode()
            if self.objects.put_if_absent(self._key(f"{number:020d}.json"), data):
                if number % _CHECKPOINT_EVERY == _CHECKPOINT_EVERY - 1 or len(written) > _MANY_ACTIONS:
                    self._write_checkpoint()
                return True
        raise AssertionError("unreachable")

    def add_rows(
        self, rows: pa.Table, run: str | None, ranks: tuple[int, int] | None = None, folder: str = ""
    ) -> dict[str, Action]:
        """Writes rows to a file named by its content, in the folder of their run; path → add, if any."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not len(rows):
            return {}
        sink = pa.BufferOutputStream()
        pq.write_table(rows.cast(self.schema), sink, compression="zstd", store_schema=False)
        data: bytes = sink.getvalue().to_pybytes()
        path = f"{run_key(run or folder)}/v-{hashlib.sha256(data).hexdigest()[:16]}.parquet"
        self.objects.put({f"{self.folder}/{path}": data})
        return {path: added(path, len(data), len(rows), run, ranks)}

    def _described(self, state: Snapshot) -> Iterator[Action]:
        """The protocol of a new log, and its columns if some are new; a column is never dropped."""
        old_columns = json.loads(state.metadata["schemaString"])["fields"] if state.metadata else []
        names = {column["name"] for column in old_columns}
        new_columns = [each for each in _delta_type(self.schema)["fields"] if each["name"] not in names]
        if state.metadata and state.metadata.get("partitionColumns"):
            raise WarehouseError(
                f"{self.objects.describe(self.folder)}: written by another program", "use another folder"
            )
        if state.metadata is None:
            yield {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
        if new_columns:
            text = json.dumps({"type": "struct", "fields": [*old_columns, *new_columns]})
            metadata = {"id": secrets.token_hex(16), "createdTime": _now_ms(), "partitionColumns": []}
            metadata |= {"format": {"provider": "parquet", "options": {}}, "configuration": _FOREVER}
            yield {"metaData": metadata | (state.metadata or {}) | {"schemaString": text}}

    def _write_checkpoint(self) -> None:
        """Without tombstones, which only VACUUM reads. Failures are ignored: readers read more commits."""
        with suppress(OSError, TwError):
            state = self.read()
            actions = list(state.actions())
            key = self._key(f"{state.number:020d}.checkpoint.parquet")
            self.objects.put({key: _encoded(actions)})
            checkpoint = json.dumps({"version": state.number, "size": len(actions)}).encode()
            self.objects.put({self._key("_last_checkpoint"): checkpoint})


def _encoded(actions: Sequence[Action]) -> bytes:
    """A checkpoint: a row per action."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, number, texts = pa.string(), pa.int64(), pa.map_(pa.string(), pa.string())
    add = {"path": text, "partitionValues": texts, "size": number, "modificationTime": number}
    kinds = {
        "protocol": {"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()},
        "metaData": {
            "id": text,
            "format": pa.struct({"provider": text, "options": texts}),
            "schemaString": text,
            "partitionColumns": pa.list_(text),
            "configuration": texts,
            "createdTime": number,
        },
        "txn": {"appId": text, "version": number, "lastUpdated": number},
        "add": add | {"dataChange": pa.bool_(), "stats": text},
    }
    schema = pa.schema([(name, pa.struct(fields)) for name, fields in kinds.items()])
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(actions), schema=schema), sink, compression="zstd")
    return bytes(sink.getvalue())


def _decoded(data: bytes, runs: Collection[str] | None) -> Iterator[Action]:
    """The actions of a checkpoint; of these runs (None: all) its files and transactions."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    rows = pq.read_table(pa.BufferReader(data))
    if runs is not None:
        path = pc.struct_field(rows.column("add"), "path")
        run = pc.replace_substring_regex(path, "/.*", "")
        owner = pc.coalesce(run, pc.struct_field(rows.column("txn"), "appId"))
        rows = rows.filter(pc.or_(pc.is_null(owner), pc.is_in(owner, pa.array(list(runs), pa.string()))))
    for row in rows.to_pylist(maps_as_pydicts="strict"):
        yield {kind: value for kind, value in row.items() if value is not None}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _delta_type(type_: Any) -> Any:
    """The Delta type of an Arrow type or schema of `plain_schema`."""
    import pyarrow as pa

    if isinstance(type_, pa.Schema):
        fields = [{"name": field.name, "type": _delta_type(field.type)} for field in type_]
        return {"type": "struct", "fields": [field | {"nullable": True, "metadata": {}} for field in fields]}
    if pa.types.is_list(type_):
        return {"type": "array", "elementType": _delta_type(type_.value_type), "containsNull": True}
    if pa.types.is_map(type_):
        key, value = _delta_type(type_.key_type), _delta_type(type_.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    names = {pa.int64(): "long", pa.int32(): "integer", pa.float64(): "double", pa.bool_(): "boolean"}
    return names.get(type_) or ("timestamp" if pa.types.is_timestamp(type_) else "string")


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with times in UTC; without metadata."""
    import pyarrow as pa

    time_ = pa.timestamp("us", tz="UTC")
    return pa.schema([(one.name, time_ if pa.types.is_timestamp(one.type) else one.type) for one in schema])


class Target(Struct, frozen=True):
    """A run with the version that the logs are to have, and the files of that (path → add) by table.

    `follows`: the logs are complete at the version before it, so that a table with the same files stays.
    """

    run: str
    app: str
    number: int
    files: Callable[[str], Mapping[str, Action]]
    is_removed: bool = False
    follows: bool = False

    @property
    def key(self) -> str:
        """The folder of the run."""
        return run_key(self.run)

    @property
    def begun(self) -> str:
        """The app of the transactions that remove the row of the run."""
        return f"{self.app}:begun"

    def changes(self, table: str, state: Snapshot) -> list[Action]:
        """What takes a table to the version, if it has no later one."""
        logged, logged_files = state.version(self.app), state.files.get(self.key, {})
        is_complete = logged == self.number and (table != RUNS or bool(logged_files) or self.is_removed)
        if is_complete or max(logged, state.version(self.begun)) > self.number:
            return []
        files = {} if self.is_removed else self.files(table)
        actions = [_removed(file) for path, file in logged_files.items() if path not in files]
        actions += [{"add": file} for path, file in files.items() if path not in logged_files]
        if not actions and self.follows and table != RUNS:
            return []
        return [*actions, _transaction(self.app, self.number)]

    def begin(self, state: Snapshot) -> list[Action]:
        """What removes the row of the run, unless another call did or began with a later version."""
        begun = state.version(self.begun)
        if begun > self.number or state.version(self.app) > self.number:
            return []
        actions = [_removed(file) for file in state.files.get(self.key, {}).values()]
        return [*actions, _transaction(self.begun, self.number)] if actions or begun < self.number else []


def _transaction(app: str, number: int) -> Action:
    return {"txn": {"appId": app, "version": number, "lastUpdated": _now_ms()}}


def _removed(added: Action) -> Action:
    stated = {"path": added["path"], "deletionTimestamp": _now_ms(), "dataChange": True}
    return {"remove": stated | {"extendedFileMetadata": True, "partitionValues": {}, "size": added["size"]}}


def added(
    path: str, size: int, rows: int | None, run: str | None, ranks: tuple[int, int] | None = None
) -> Action:
    """A file with its statistics."""
    of_run: Action = {"run_id": run} if run else {}
    low: Action = of_run | ({"rank": ranks[0]} if ranks else {})
    high: Action = of_run | ({"rank": ranks[1]} if ranks else {})
    counts: Action = {} if rows is None else {"numRecords": rows, "nullCount": dict.fromkeys(low, 0)}
    stats = counts | {"minValues": low, "maxValues": high}
    stated: Action = {"path": path, "partitionValues": {}, "size": size, "modificationTime": _now_ms()}
    return stated | {"dataChange": True, "stats": json.dumps(stats, separators=(",", ":"))}


def update(
    logs: Mapping[str, DeltaLog], targets: Sequence[Target], changed: Collection[str], at_once: int
) -> dict[str, list[str]]:
    """Takes the logs to the targets: hides `changed` runs, updates the tables, then `runs`.

    Returns run → the tables that were written.
    """
    written: dict[str, list[str]] = {target.run: [] for target in targets}
    named = [name for target in targets for name in (target.key, target.app, target.begun)]

    def commit(table: str) -> None:
        changed_runs: list[str] = []

        def changes(state: Snapshot) -> list[Action]:
            by_run = {target.run: target.changes(table, state) for target in targets}
            changed_runs[:] = [run for run, actions in by_run.items() if actions]
            return [action for actions in by_run.values() for action in actions]

        if logs[table].commit(changes, named):
            for run in changed_runs:
                written[run].append(table)

    # No other call can have begun with an earlier version than the first.
    first = [target for target in targets if target.run in changed and target.number > 1]
    if first:
        logs[RUNS].commit(lambda state: [one for target in first for one in target.begin(state)], named)
    with ThreadPoolExecutor(at_once) as pool:
        for _ in pool.map(commit, [table for table in logs if table != RUNS]):
            pass
    commit(RUNS)
    return written


# In place


def tables(catalog: Catalog) -> dict[str, Contract]:
    """The tables that have a log: those with rows of runs."""
    with_rows = (table for table in catalog.tables() if not table.transient)
    return {table.name: table for table in with_rows if table.is_stored or table.is_built}


def in_place(objects: Objects, catalog: Catalog) -> dict[str, DeltaLog]:
    """The log of each table of a warehouse."""
    import pyarrow as pa

    logs = {}
    for name, table in tables(catalog).items():
        columns = [(column.name, type_of(column.type)) for column in file_columns(table)]
        logs[name] = DeltaLog(objects, f"{layout.DATA}/{name}", plain_schema(pa.schema(columns)))
    return logs


def named_files(objects: Objects) -> frozenset[str]:
    """The keys of the files that logs name, which are not to be deleted."""
    if objects.stat(layout.DELTA) is None:
        return frozenset()
    logs = [DeltaLog(objects, f"{layout.DATA}/{table}") for table in objects.folders(f"{layout.DATA}/")]
    logs += [DeltaLog(objects, folder) for folder, has_log in _results(objects, objects).items() if has_log]
    states = ((log.folder, log.read().files.values()) for log in logs)
    return frozenset(f"{folder}/{path}" for folder, files in states for paths in files for path in paths)


def complete(store: Store, copies: Copies) -> tuple[CopiedTables, ...]:
    """Takes the logs to the newest version of every run; creates them if there are none.

    Damaged runs keep what the logs have of them.
    """
    catalog = Catalog.load()
    logs = in_place(store.objects, catalog)
    state = logs[RUNS].read()
    if state.number < 0:
        for log in logs.values():  # from now on, all publishers write them
            log.commit(lambda _: [], ())
    behind = {}
    for key, (number, is_removed) in store.numbers().items():
        number_in_log = state.version(app_of(store, key))
        if number_in_log < number or not (is_removed or state.files.get(key)):
            behind[key] = number_in_log
    copied: list[CopiedTables] = []
    for first in range(0, len(behind), _RUNS_AT_ONCE):
        part = dict(list(behind.items())[first : first + _RUNS_AT_ONCE])
        copied += _complete(store, catalog, logs, copies, part)
    return tuple(copied)


def app_of(store: Store, run: str) -> str:
    """The name of the transactions of a run."""
    return f"tw:{store.id}:{run_key(run)}"


def _complete(
    store: Store,
    catalog: Catalog,
    logs: Mapping[str, DeltaLog],
    copies: Copies,
    behind: Mapping[str, int],
) -> Iterator[CopiedTables]:
    """Registers runs; `behind` has the version of each at which the logs were complete, 0 for none."""
    targets: list[Target] = []
    changed, touched = set[str](), {RUNS, *copied_tables(catalog)}
    for key, number_in_log in behind.items():
        with suppress(TwError):  # a damaged run
            version = _whole(store, key)
            before = _before(store, version, number_in_log)
            now = _paths(version)
            tables_now = (
                logs.keys() if before is None else {table for table, _ in before.items() ^ now.items()}
            )
            rows = {} if version.tombstone else copies(store, version)
            files = partial(_registered, logs, catalog, rows, version)
            app, is_next = app_of(store, key), before is not None
            if version.number > 1:
                register_results(store, catalog, [version.run])
            targets.append(Target(version.run, app, version.number, files, version.tombstone, is_next))
            touched |= tables_now
            changed |= {version.run} if tables_now else set()
    chosen = {table: log for table, log in logs.items() if table in touched}
    written = update(chosen, targets, changed, _TABLES_AT_ONCE)
    for target in targets:
        yield CopiedTables(target.run, target.number, tuple(written[target.run]), target.is_removed)


def _before(store: Store, version: RunVersion, number_in_log: int) -> Mapping[str, frozenset[str]] | None:
    """The files that the logs have of a run if they are complete at the version before, else None."""
    with suppress(TwError):
        if number_in_log == version.number - 1:
            return _paths(store.get(version.run, number_in_log)) if number_in_log else {}
    return None


def _paths(version: RunVersion) -> dict[str, frozenset[str]]:
    """Table → the files of a version."""
    by_table: dict[str, set[str]] = {}
    for source in version.sources:
        for file in source.files:
            by_table.setdefault(file.table, set()).add(file.path)
    return {table: frozenset(paths) for table, paths in by_table.items()}


def copied_tables(catalog: Catalog) -> set[str]:
    """The tables with rows that no file of the warehouse has."""
    return {"data_quality", *(name for name, table in tables(catalog).items() if table.is_built)}


def _whole(store: Store, run: str) -> RunVersion:
    """The newest version, in which every row of a file is used: a log cannot leave out ranks of a file."""
    version = store.head(run)
    if not version.tombstone and plan(version, least_bytes=0).files:
        compact(store, version.run, least_bytes=0)
        version = store.head(run)
    return version


def _registered(
    logs: Mapping[str, DeltaLog], catalog: Catalog, copied: Mapping[str, Any], version: RunVersion, table: str
) -> dict[str, Action]:
    """Path → each file of a version in the folder of a table; writes its rows among those that are copied."""
    files = {}
    compatible = {other.version for other in catalog.compatible(catalog.get(table, kind="table"))}
    for _, _, file in version.shares((table,)):
        if file.version in compatible:
            path = file.path.removeprefix(f"{layout.DATA}/{table}/")
            files[path] = added(
                path, file.bytes, file.file_rows, version.run, (file.first_rank, file.last_rank)
            )
    rows = copied.get(table)
    return files if rows is None else files | logs[table].add_rows(rows, version.run)


# Recorded results


def _results(objects: Objects, logs: Objects) -> dict[str, bool]:
    """The folder of the recorded results of each analysis, and whether there is a log of it."""
    names = [name for name in objects.folders(f"{layout.RESULTS}/") if "@" in name]
    first = {f"{layout.RESULTS}/{name}/{layout.DELTA_LOG}/{0:020d}.json": name for name in names}
    return {f"{layout.RESULTS}/{first[key]}": entry is not None for key, entry in logs.stat_many(first)}


def register_results(
    store: Store,
    catalog: Catalog,
    runs: Collection[str] | None,
    contracts: Collection[Contract] = (),
    copies: Objects | None = None,
) -> None:
    """Takes the logs of recorded results to the newest versions of runs (None: all).

    Creates those of `contracts` that have results. A commit that another overtook looks at them again.
    `copies`: where the logs are, and copies of the files that they name (None: in place).
    """
    keys = None if runs is None else frozenset(map(run_key, runs))
    analyses = (*catalog.all("analysis"), catalog.get(FINDINGS))
    by_folder = {layout.results(*each.ref): each for each in analyses}
    has_log = _results(store.objects, copies or store.objects)

    def commit(folder: str) -> None:
        analysis = RecordedAnalysis.of(by_folder[folder], catalog)

        def changes(state: Snapshot) -> list[Action]:
            newest = store.present() if keys is None else map(store.newest, keys)
            stored = store.recorded_of(analysis, [version for version in newest if version])
            files = ((run, entry.key.removeprefix(f"{folder}/"), entry) for run, (_, entry) in stored.items())
            actions = {path: added(path, entry.bytes, None, run) for run, path, entry in files}
            if copies is not None:
                missing = actions.keys() - {path for of_run in state.files.values() for path in of_run}
                for key, data in store.objects.get_many(f"{folder}/{path}" for path in sorted(missing)):
                    copies.put({key: data or b""})
            return _difference(state, actions, keys)

        log_of(copies or store.objects, folder, by_folder[folder]).commit(changes, keys)

    chosen = [key for key in has_log if key in by_folder and (has_log[key] or by_folder[key] in contracts)]
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        for _ in pool.map(commit, chosen):
            pass


def register_rows(
    store: Store, catalog: Catalog, contract: Contract, run: Callable[[list[Brief]], Any]
) -> None:
    """Takes the log of an analysis over runs to its rows; those of a day are a file if no row is of several.

    A file is written again if its runs changed, or their registered results: `run` computes the rows.
    """
    log = log_of(store.objects, f"{layout.DATA}/{contract.name}", contract)

    def changes(state: Snapshot) -> list[Action]:
        definition = catalog.effective_hash(contract)
        groups = {day: _Group(definition) for day in state.files} | _groups(store, catalog, contract)
        logged = {day: state.version(app_of(store, day)) for day in groups}
        stale = {day: group for day, group in groups.items() if group.number != logged[day]}
        if not stale:
            return []
        result = run([brief for group in stale.values() for brief in group.runs])
        files, transactions = dict[str, Action](), []
        for day, group in stale.items():
            files |= log.add_rows(_of_day(result.table, day), None, folder=day)
            # If a run or result is damaged now, the day is computed again the next time.
            is_whole = all(brief.selector in result.provenance.runs for brief in group.runs)
            is_whole &= all(is_intact(store.path(key), one) for key in group.results if (one := parse(key)))
            transactions.append(_transaction(app_of(store, day), group.number if is_whole else 0))
        return [*_difference(state, files, stale), *transactions]

    log.commit(changes, None)


class _Group(Struct, frozen=True):
    """Runs of a day, or all, and the keys of their registered results."""

    definition: str
    runs: list[Brief] = []
    results: list[str] = []

    @property
    def number(self) -> int:
        """A positive number that changes with the rows of the analysis."""
        content = json.dumps([self.definition, [brief.selector for brief in self.runs], self.results])
        return int(hashlib.sha256(content.encode()).hexdigest()[:15], 16)


def _groups(store: Store, catalog: Catalog, contract: Contract) -> dict[str, _Group]:
    """The runs that an analysis over runs reads: with registered results, if it reads results."""
    is_daily = any(param.name == "period" for param in contract.params)  # by default a day
    recorded = (RecordedAnalysis.of(each, catalog) for each in catalog.closure(contract) if each.is_recorded)
    folders = [layout.results(*each.contract.ref) for each in recorded]
    registered = {folder: DeltaLog(store.objects, folder).read().files for folder in folders}
    groups: dict[str, _Group] = {}
    for brief in store.briefs():
        run = run_key(brief.run)
        keys = [f"{folder}/{path}" for folder in folders for path in sorted(registered[folder].get(run, ()))]
        if keys or not folders:
            day = _UNKNOWN if is_daily else _ALL
            if is_daily and brief.start_ns is not None:
                day = datetime.fromtimestamp(brief.start_ns // 10**9, UTC).date().isoformat()
            group = groups.setdefault(day, _Group(catalog.effective_hash(contract)))
            group.runs.append(brief)
            group.results.extend(keys)
    return groups


def _of_day(rows: pa.Table, day: str) -> pa.Table:
    import pyarrow.compute as pc

    return rows if day == _ALL else rows.filter(pc.equal(rows.column("day").fill_null(_UNKNOWN), day))


def _difference(state: Snapshot, files: Mapping[str, Action], keys: Collection[str] | None) -> list[Action]:
    """What makes the files of these runs (None: all) the wanted ones."""
    logged = {key: of_run for key, of_run in state.files.items() if keys is None or key in keys}
    by_path = {path: file for of_run in logged.values() for path, file in of_run.items()}
    gone = [_removed(file) for path, file in by_path.items() if path not in files]
    return [*gone, *({"add": file} for path, file in files.items() if path not in by_path)]


def log_of(objects: Objects, folder: str, contract: Contract) -> DeltaLog:
    """The log of a folder with rows as the contract says."""
    return DeltaLog(objects, folder, plain_schema(schema_of(contract)))


# Copies


def copy(logs: Mapping[str, DeltaLog], target: Target) -> list[str]:
    """Takes the logs of copies to a version of a run; returns the tables that were written."""
    named = (target.key, target.app, target.begun)
    states = {table: log.read(named) for table, log in logs.items()}
    behind = [table for table, state in states.items() if state.version(target.app) < target.number]
    has_row = states[RUNS].files.get(target.key)
    if target.is_removed and not any(state.transactions for state in states.values()):
        return []  # never copied
    if not behind and (has_row or target.is_removed):
        return []
    chosen = {table: logs[table] for table in (*behind, RUNS)}
    return update(chosen, [target], {target.run}, 1)[target.run]
