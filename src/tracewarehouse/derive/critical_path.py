"""`tw derive critical_path`: graph and path of scopes; and how the tables of any derivation are stored.

Derived tables are stored as a new version of the run, with the definition that they were computed by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import DERIVATIONS, Contract
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.duck import engine
from tracewarehouse.duck.engine import Connection, Error, connect
from tracewarehouse.engines import (
    EngineOrName,
    LocalEngine,
    TaskProgress,
    advice,
    is_remote,
    opened,
    results_in_order,
)
from tracewarehouse.errors import ParamError, TwError, UnknownName
from tracewarehouse.exact_text import rank_list
from tracewarehouse.ingest import resources
from tracewarehouse.ingest.parquet import RankFiles
from tracewarehouse.ingest.rebuild import rebuilt, table_versions_fact
from tracewarehouse.late_regex import late_regex
from tracewarehouse.query.connections import connection, create, event_count
from tracewarehouse.query.relations import Dependencies, Relations
from tracewarehouse.runs.readable import FACT, derived_fact
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import commits
from tracewarehouse.storage.model import Changes, Json, Rank, RankSource, RunVersion, Staged, StagedTable
from tracewarehouse.storage.pack import PACK_RANKS
from tracewarehouse.storage.store import Store, objects_at
from tracewarehouse.storage.versions import Versions
from tracewarehouse.temp_folders import new_folder

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "critical_path"


def tables(catalog: Catalog) -> tuple[Contract, ...]:
    """The tables of the critical path, each after those it depends on."""
    last = catalog.get(NAME, kind="table")
    return tuple(contract for contract in (*catalog.closure(last), last) if contract.derived == NAME)


def attach(con: Connection, store: Versions, catalog: Catalog, selected: SelectedRun) -> None:
    """Makes the sources of a derivation readable in the connection. Raises WarehouseError."""
    relations = Relations(store, (selected,), Dependencies.over(catalog, derivation_sources(catalog, NAME)))
    for contract in relations.dependencies.contracts:
        create(con, relations, contract)


def build(con: Connection, catalog: Catalog, scopes: Sequence[Mapping[str, Any]], last: str = NAME) -> None:
    """Builds the derived tables for these scopes of one rank, up to the one named `last`."""
    for contract in tables(catalog):
        if contract.filled_by_program:
            rows = scopes if contract.name == "critical_scopes" else list(_path_rows(con))
            types = {column.name: column.type for column in contract.columns}
            engine.create_from_rows(con, contract.name, types, rows)
        else:
            engine.create_table(con, contract, engine.sql_with_params(contract, {}))
        if contract.name == last:
            return


def _path_rows(con: Connection) -> Iterator[dict[str, object]]:
    """The nodes of each scope's critical path: backward from its end along the limiting dependencies."""
    ends = con.execute(
        "SELECT run_id, rank, scope, max(node) FROM critical_nodes GROUP BY run_id, rank, scope"
    ).fetchall()
    for run_id, rank, scope, last in ends:
        limiting = con.execute(
            "SELECT to_node, from_node FROM critical_edges WHERE is_limiting AND scope = ?", [scope]
        ).fetchall()
        for position, node in enumerate(backward_path(dict(limiting), last), 1):
            yield {"run_id": run_id, "rank": rank, "scope": scope, "position": position, "node": node}


def backward_path(previous: Mapping[int, int], last: int) -> list[int]:
    """The path to `last` without its first node; `previous` is the limiting predecessor of each node."""
    path = []
    node = last
    while node in previous:
        path.append(node)
        node = previous[node]
    return path[::-1]


def longest_paths(edges: Iterable[tuple[int, int, int]], nodes: int) -> tuple[list[int], list[int]]:
    """The length of the longest path to each node, and the number of its last edge, -1 if there is none.

    `edges` are (from, to, weight), sorted by `to`; nodes are numbered from 1. Ties go to the first edge.
    """
    length, last_edge = [0] * (nodes + 1), [-1] * (nodes + 1)
    for number, (source, target, weight) in enumerate(edges):
        candidate = length[source] + weight
        if last_edge[target] < 0 or candidate > length[target]:
            length[target], last_edge[target] = candidate, number
    return length, last_edge


def path_edges(edges: Sequence[tuple[int, int, int]], last_edge: Sequence[int], last: int) -> list[int]:
    """The numbers of the edges on the longest path to `last`, in order."""
    path = []
    node = last
    while last_edge[node] >= 0:
        path.append(last_edge[node])
        node = edges[last_edge[node]][0]
    return path[::-1]


READS = ("steps", "events", "annotations", "kernels", "runtime")
_ANNOTATION = late_regex(r"annotation (?P<name>.+)#\d+", re.DOTALL)

ScopeRow = dict[str, Any]  # a row of `critical_scopes`, the step's period, and whether it was requested

# All scopes with their thread. If every step is partial, all of them count as complete.
_SCOPES = """
WITH
  step AS (
    SELECT
      steps.run_id, steps.rank, 'step ' || steps.step AS scope, steps.host_start_ns AS start_ns,
      steps.host_start_ns + steps.host_ns AS end_ns, annotation.pid, annotation.tid, FALSE AS entire_trace,
      steps.period_ns,
      NOT steps.partial OR bool_and(steps.partial) OVER (PARTITION BY steps.run_id, steps.rank) AS complete
    FROM steps
    JOIN events AS annotation
      ON annotation.run_id = steps.run_id
      AND annotation.rank = steps.rank
      AND annotation.event_id = steps.event_id
  ),
  named AS (
    SELECT
      run_id, rank,
      'annotation ' || name || '#' || row_number() OVER (
        PARTITION BY run_id, rank, name ORDER BY ts_ns, event_id
      ) - 1 AS scope,
      ts_ns AS start_ns, ts_ns + dur_ns AS end_ns, pid, tid, FALSE AS entire_trace, NULL AS period_ns,
      FALSE AS complete
    FROM annotations
    WHERE NOT on_gpu AND name IN (SELECT unnest($names))
  ),
  host AS (
    SELECT run_id, rank, pid, tid, min(ts_ns) AS start_ns, max(ts_ns + dur_ns) AS end_ns, count(*) AS slices
    FROM events
    WHERE pre IS NOT NULL AND category IN (SELECT api FROM runtime UNION ALL SELECT 'cpu_op')
    GROUP BY run_id, rank, pid, tid
  ),
  thread AS (
    SELECT
      run_id, rank, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
      arg_max(struct_pack(pid, tid), (slices, pid, tid)) AS lane
    FROM host
    GROUP BY run_id, rank
  ),
  device AS (
    SELECT run_id, rank, min(ts_ns) AS start_ns
    FROM kernels
    GROUP BY run_id, rank
  ),
  trace AS (
    SELECT
      run_id, rank, 'trace' AS scope, least(thread.start_ns, device.start_ns) AS start_ns,
      coalesce(thread.end_ns, device.start_ns) AS end_ns, thread.lane.pid, thread.lane.tid,
      TRUE AS entire_trace, NULL AS period_ns, FALSE AS complete
    FROM thread
    FULL JOIN device USING (run_id, rank)
  ),
  scope AS (
    SELECT * FROM step UNION ALL SELECT * FROM named UNION ALL SELECT * FROM trace
  )
SELECT
  * EXCLUDE (complete),
  list_contains($requested, scope) OR $default AND (
    complete OR entire_trace AND NOT EXISTS (
      SELECT 1 FROM step WHERE step.run_id = scope.run_id AND step.rank = scope.rank
    )
  ) AS requested
FROM scope
WHERE requested OR list_contains($known, scope)
ORDER BY rank, start_ns, scope
"""


class ScopeRequest(Struct, frozen=True):
    """The requested scopes; by default each complete step, or the entire trace if it has no steps."""

    scopes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        steps: int | Iterable[int] = (),
        annotations: str | Iterable[str] = (),
        entire_trace: bool = False,
    ) -> ScopeRequest:
        """Steps by number, annotations as `NAME#K` (the K-th of that name, from 0; `NAME` is the first)."""
        steps = [steps] if isinstance(steps, int) else steps
        annotations = [annotations] if isinstance(annotations, str) else annotations
        of_annotations = [f"annotation {_numbered(text)}" for text in annotations]
        scopes = [*(f"step {int(step)}" for step in steps), *of_annotations]
        return cls(tuple(dict.fromkeys([*scopes, *(["trace"] if entire_trace else [])])))


def _numbered(text: str) -> str:
    """`NAME#K`, the first without a number. Raises ParamError for an empty name."""
    name, separator, number = text.rpartition("#")
    if not (name if separator else text):
        raise ParamError("annotation without a name", "write NAME, or NAME#K for the K-th, counted from 0")
    return text if separator and number.isdecimal() else f"{text}#0"


def scope_names(rows: Iterable[ScopeRow]) -> tuple[str, ...]:
    """The names of scopes."""
    return tuple(row["scope"] for row in rows)


# Mostly distinct numbers are a third the size as differences: measured on real traces, 1,000 to 2,000
# values are the point where a dictionary costs more than it saves.
_DICTIONARY_VALUES = 1_500
_ZSTD_LEVEL = 9
# Constant within one rank, so they do not order its rows.
_OF_THE_RANK = ("run_id", "rank")


def stored_tables(catalog: Catalog, name: str) -> tuple[Contract, ...]:
    """The stored tables of a derivation."""
    return tuple(table for table in catalog.tables() if table.derived == name and not table.transient)


def derivation_sources(catalog: Catalog, name: str) -> tuple[Contract, ...]:
    """The stored tables that a derivation reads, through views too, by name."""
    last = catalog.get(DERIVATIONS[name], kind="table")
    tables = (table for table in catalog.closure(last) if table.is_stored and table.derived != name)
    return tuple(sorted(tables, key=lambda table: table.ref))


def definition(catalog: Catalog, name: str) -> str:
    """The hash of what defines a derivation."""
    return catalog.effective_hash(catalog.get(DERIVATIONS[name], kind="table"))


def with_derived(
    catalog: Catalog,
    source: RankSource,
    header: str,
    name: str,
    files: tuple[StagedTable, ...],
    fact: Mapping[str, Json],
) -> Staged:
    """The source with these files in place of the tables of the derivation that it may have.

    `fact` is recorded with the definition.
    """
    contracts = stored_tables(catalog, name)
    names = {contract.name for contract in contracts}
    tables = _dict(source.facts.get("tables"))
    other_tables = {table: versions for table, versions in tables.items() if table not in names}
    facts: dict[str, Json] = {
        **source.facts,
        name: True,
        "tables": table_versions_fact(contracts, other_tables),
        FACT: {**_dict(source.facts.get(FACT)), name: {"hash": definition(catalog, name), **fact}},
    }
    kept_files = tuple(file for file in source.files if file.table not in names)
    return rebuilt(source, header, files, facts, source.definitions, kept_files)


def _dict(value: Json) -> dict[str, Json]:
    return dict(value) if isinstance(value, dict) else {}


def _write(con: Connection, catalog: Catalog, contract: Contract, folder: Path) -> StagedTable | None:
    """The table as a Parquet file in the folder, in the order of its contract; None without rows."""
    path = folder / f"{contract.name}.v{contract.version}.parquet"
    count = con.execute(f"SELECT count(*) FROM {contract.name}").fetchone()
    if not count or not count[0]:
        return None
    columns = ", ".join(quote_name(column.name) for column in contract.columns)
    about = f"contract: '{contract.ref}', contract_hash: '{catalog.effective_hash(contract)}'"
    con.execute(
        f"COPY (SELECT {columns} FROM {contract.name} {_order(con, contract)}) TO ? "
        f"(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL {_ZSTD_LEVEL}, PARQUET_VERSION v2,"
        f" DICTIONARY_SIZE_LIMIT {_DICTIONARY_VALUES}, KV_METADATA {{{about}}})",
        [str(path)],
    )
    return StagedTable(contract.name, contract.version, path, count[0])


def _order(con: Connection, contract: Contract) -> str:
    """The ORDER BY of the contract; empty if the rows are in order already: sorting takes memory."""
    keys = [key for key in contract.order if key not in _OF_THE_RANK]
    if len(keys) == 1 and not keys[0].startswith("-"):
        key = quote_name(keys[0])
        before = f"SELECT {key} <= lag({key}) OVER () AS wrong FROM {contract.name}"
        if con.execute(f"SELECT count(*) FILTER (wrong) FROM ({before})").fetchone() == (0,):
            return ""
    return engine.order_by(contract)


def too_much(place: str, error: Exception) -> TwError:
    """A failure of DuckDB with a remedy if memory or disk ran out."""
    reason = str(error).strip().partition("\n")[0]
    if "memory" in reason.lower():
        return TwError(
            f"{place}: not enough memory: {reason}",
            hints.Hint("derive one rank at a time: ranks=0", "derive one rank at a time: --rank 0"),
        )
    if "no space" in reason.lower():
        return TwError(f"{place}: no space left to write", "free some space and repeat")
    return TwError(
        f"{place}: {reason}",
        hints.Hint("internal error; please report it", "internal error; rerun with --debug and report it"),
    )


class Derived(Struct, frozen=True):
    """The result of a derivation: each rank's scopes, and the number of the new version, if any.

    `attributed`: of graph replays, the number of GPU activities with a known launch, and of all.
    """

    run: str
    scopes: Mapping[int, tuple[str, ...]]
    version: int | None
    notices: tuple[str, ...] = ()
    attributed: tuple[int, int] | None = None


class _DeriveTask(Struct, frozen=True):
    """Derives some ranks of a version of a run and commits them as one group, possibly in a worker process.

    `at_once`: the number of tasks on the machine of the worker, None for one per core.
    """

    store: Store
    run_id: str
    number: int
    scopes: Mapping[int, tuple[ScopeRow, ...]]
    sql: Path | None
    at_once: int | None

    def run(self, progress: TaskProgress) -> tuple[str, ...]:
        """The names of the commits."""
        catalog, version = Catalog.load(self.sql), self.store.get(self.run_id, self.number)
        sources = [rank.main for rank in version.by_rank if rank.rank in self.scopes]
        headers = self.store.headers(sources)
        with self.store.staging() as staging:
            staged = []
            for done, source in enumerate(sources, 1):
                folder = staging / f"{source.rank:06d}"
                files = self._files(catalog, version, source, folder)
                fact: dict[str, Json] = {"scopes": list(scope_names(self.scopes[source.rank]))}
                header = headers.get(source.name, "{}")
                staged.append(with_derived(catalog, source, header, NAME, files, fact))
                progress(done, len(sources))
            return tuple(sorted({source.commit for source in self.store.commit(staged)}))

    def _files(
        self, catalog: Catalog, version: RunVersion, source: RankSource, folder: Path
    ) -> tuple[StagedTable, ...]:
        """The tables of one rank, built in a connection that is closed afterwards."""
        folder.mkdir()
        at_once = self.at_once or resources.cores()
        con = connect(
            threads=resources.threads(at_once),
            memory_bytes=resources.memory_bytes(at_once),
            temp_directory=folder / "spill",
        )
        with closing(con):
            try:
                attach(con, self.store, catalog, SelectedRun(version, (source.rank,)))
                build(con, catalog, self.scopes[source.rank])
                tables = stored_tables(catalog, NAME)
                written = [_write(con, catalog, contract, folder) for contract in tables]
                return tuple(sorted(filter(None, written), key=lambda file: (file.table, file.version)))
            except Error as error:
                raise too_much(f"{source.run} rank {source.rank}", error) from error


def stored_scopes(rank: Rank) -> tuple[str, ...]:
    """The names of the scopes that were derived for a rank."""
    scopes = derived_fact(rank, NAME).get("scopes")
    return tuple(map(str, scopes)) if isinstance(scopes, list) else ()


def derive(
    store: Store,
    catalog: Catalog,
    selected: SelectedRun,
    request: ScopeRequest,
    engine: EngineOrName = "local",
) -> Derived:
    """Adds the requested critical paths to the selected ranks, which keep those they have.

    Paths that are stored and current are not derived again. Raises UnknownName if no rank has a requested
    scope, EngineError.
    """
    stored = {rank.rank: set(stored_scopes(rank)) for rank in selected.by_rank}
    rows = scope_rows(store, catalog, selected, request, set().union(*stored.values()))
    requested = {
        rank: [row for row in rows if row["rank"] == rank and row["requested"]] for rank in selected.ranks
    }
    notices = check_scopes(selected, request, requested)
    current_hash = definition(catalog, NAME)
    current = {rank.rank for rank in selected.by_rank if derived_fact(rank, NAME).get("hash") == current_hash}
    todo: dict[int, tuple[ScopeRow, ...]] = {}
    for rank, of_rank in requested.items():
        scopes = scope_names(of_rank)
        if of_rank and not (rank in current and stored[rank].issuperset(scopes)):
            all_scopes = stored[rank].union(scopes)
            todo[rank] = tuple(row for row in rows if row["rank"] == rank and row["scope"] in all_scopes)
    version = _publish(store, catalog, selected, todo, engine) if todo else None
    events = event_count([replace(selected, ranks=tuple(todo))])
    note = advice(engine, events) if todo else None
    notices = (*notices, note) if note else notices
    by_rank = {rank: scope_names(of_rank) for rank, of_rank in requested.items()}
    return Derived(selected.run, by_rank, version.number if version else None, notices)


def scope_rows(
    store: Versions, catalog: Catalog, selected: SelectedRun, request: ScopeRequest, known: Iterable[str] = ()
) -> list[ScopeRow]:
    """The requested scopes of the selected ranks and those `known` by name, by rank and time."""
    listed = sorted(known)
    matches = [_ANNOTATION.fullmatch(scope) for scope in (*request.scopes, *listed)]
    values = {
        "names": [match["name"] for match in matches if match],
        "requested": list(request.scopes),
        "known": listed,
        "default": not request.scopes,
    }
    contracts = [catalog.get(name, kind="table") for name in READS]
    with connection(store, catalog, (selected,), contracts) as con, con.cursor() as cursor:
        cursor.execute(_SCOPES, values)
        columns = [column[0] for column in cursor.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def check_scopes(
    selected: SelectedRun, request: ScopeRequest, by_rank: Mapping[int, Sequence[ScopeRow]]
) -> tuple[str, ...]:
    """A notice for each scope that some ranks lack; raises UnknownName for one that all ranks lack."""
    notices = []
    for scope in request.scopes:
        without = [rank for rank, rows in by_rank.items() if scope not in scope_names(rows)]
        if len(without) == len(by_rank):
            kind, _, name = scope.partition(" ")
            steps, annotations = hints.analysis("step_summary"), hints.query("FROM annotations")
            hint = hints.fill("not in {}: see {}, {}", selected.run, steps, annotations)
            raise UnknownName(kind, name, [], hint)
        if without:
            notices.append(f"{selected.run} rank {rank_list(without)}: no {scope}")
    return tuple(notices)


def _publish(
    store: Store,
    catalog: Catalog,
    selected: SelectedRun,
    todo: Mapping[int, tuple[ScopeRow, ...]],
    chosen: EngineOrName,
) -> RunVersion | None:
    jobs = resources.rebuild_jobs(rank.main.text_bytes for rank in selected.by_rank if rank.rank in todo)
    # The lease of a worker ends before its commit is published.
    with store.staging(), LocalEngine(jobs) if chosen == "local" else opened(chosen) as engine:
        remote = is_remote(engine)
        # Neighboring ranks share files; a lost worker on a cluster costs half of its share.
        size = min(PACK_RANKS, -(-len(todo) // (engine.slots * (2 if remote else 1))))
        ranks = sorted(todo)
        groups = [ranks[start : start + size] for start in range(0, len(ranks), size)]
        tasks = [
            _DeriveTask(
                store,
                selected.run,
                selected.version.number,
                {rank: todo[rank] for rank in group},
                catalog.custom_folder,
                None if remote else engine.slots,
            )
            for group in groups
        ]
        names = [name for result in results_in_order(engine, tasks) for name in result]  # type: ignore[attr-defined]
        read = (commits.read(store.objects, selected.run, name) for name in names)
        committed = tuple(source for commit in read for source in commit.sources)
        return store.publish(selected.run, Changes(sources=committed, rebuilt=True)).version


# Table → rank → rows, and the facts of each rank.
DerivedRows = tuple[Mapping[str, Mapping[int, "pa.Table"]], Mapping[int, Mapping[str, Json]]]


def publish_tables(
    store: Store, catalog: Catalog, selected: SelectedRun, name: str, rows: DerivedRows
) -> RunVersion | None:
    """Stores a derivation of all ranks of a run."""
    headers = store.headers([rank.main for rank in selected.by_rank])
    with store.staging() as folder:
        committed = store.commit(_staged(catalog, selected, name, rows, headers, folder))
        return store.publish(selected.run, Changes(sources=committed, rebuilt=True)).version


def unpublished(catalog: Catalog, selected: SelectedRun, name: str, rows: DerivedRows) -> RunVersion:
    """The version with a derivation of all ranks, in files that only this process has."""
    folder = new_folder()
    staged = _staged(catalog, selected, name, rows, {}, folder)
    committed = commits.commit(objects_at(folder), staged)
    derived = {(source.rank, source.identity): source for source in committed}
    sources = []
    for source in selected.version.sources:
        if new := derived.get((source.rank, source.identity)):
            files = [
                file if file in source.files else replace(file, path=str(folder / file.path))
                for file in new.files
            ]
            source = replace(source, facts=new.facts, files=tuple(files))
        sources.append(source)
    return replace(selected.version, sources=tuple(sources))


def _staged(
    catalog: Catalog,
    selected: SelectedRun,
    name: str,
    rows: DerivedRows,
    headers: Mapping[str, str],
    folder: Path,
) -> list[Staged]:
    tables, facts = rows
    with RankFiles(catalog, folder, single=False) as files:
        for table, by_rank in tables.items():
            for rank, table_rows in by_rank.items():
                files.add(selected.run, (rank,), table, table_rows)
        written = files.staged(selected.run)
    return [
        with_derived(
            catalog,
            rank.main,
            headers.get(rank.main.name, "{}"),
            name,
            written.get(rank.rank, ()),
            facts[rank.rank],
        )
        for rank in selected.by_rank
    ]
