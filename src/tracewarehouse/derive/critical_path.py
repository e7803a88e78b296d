"""`tw derive critical_path`: graph and path of scopes, stored as tables of a new version of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.derive.build import NAME, attach, build, stored
from tracewarehouse.derive.derived_source import definition, too_much, with_derived, write_tables
from tracewarehouse.derive.scopes import READS, ScopeRequest, ScopeRow, find_scopes, scope_names
from tracewarehouse.engines import LocalEngine, TaskProgress, results_in_order
from tracewarehouse.errors import UnknownName
from tracewarehouse.exact_text import rank_list
from tracewarehouse.ingest import resources
from tracewarehouse.query.connections import connection
from tracewarehouse.runs.derivations import FACT
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Changes, Json, Rank, RankSource, RunVersion, Staged, Store, Versions

# Below this size of the trace text, starting a process takes longer than the work.
_MIN_BYTES_PER_PROCESS = 16 << 20


@dataclass(frozen=True)
class Derived:
    """The result of a derivation: each rank's scopes, and the number of the new version, if any.

    `attributed`: of graph replays, the number of GPU activities with a known launch, and of all.
    """

    run: str
    scopes: Mapping[int, tuple[str, ...]]
    version: int | None
    notices: tuple[str, ...] = ()
    attributed: tuple[int, int] | None = None


@dataclass(frozen=True)
class _DeriveTask:
    """Derives one rank, possibly in a worker process."""

    store: Store
    version: RunVersion
    source: RankSource
    header: str
    scopes: tuple[ScopeRow, ...]
    folder: Path
    sql: Path
    threads: int
    memory_limit: str

    def run(self, progress: TaskProgress) -> Staged:
        from tracewarehouse.duck.engine import Error, connect

        catalog, source = Catalog.load(self.sql), self.source
        self.folder.mkdir(parents=True)
        spill = self.folder / "spill"
        con = connect(threads=self.threads, memory_limit=self.memory_limit, temp_directory=spill)
        with closing(con):
            try:
                attach(con, self.store, catalog, SelectedRun(self.version, (source.rank,)))
                build(con, catalog, self.scopes)
                files = write_tables(con, catalog, stored(catalog), self.folder)
            except Error as error:
                raise too_much(f"{source.run} rank {source.rank}", error) from error
        fact: dict[str, Json] = {"scopes": list(scope_names(self.scopes))}
        return with_derived(catalog, source, self.header, NAME, files, fact)


@dataclass(frozen=True)
class _StoredScopes:
    """The scopes that a rank has, and whether they were derived with the current definitions."""

    scopes: frozenset[str]
    current: bool

    @classmethod
    def of(cls, catalog: Catalog, rank: Rank) -> _StoredScopes:
        derived = rank.main.facts.get(FACT)
        fact = derived.get(NAME) if isinstance(derived, dict) else None
        if not isinstance(fact, dict) or not isinstance(scopes := fact.get("scopes"), list):
            return cls(frozenset(), False)
        return cls(frozenset(map(str, scopes)), fact.get("hash") == definition(catalog, NAME))


def stored_scopes(rank: Rank) -> tuple[str, ...]:
    """The names of the scopes that were derived for a rank."""
    derived = rank.main.facts.get(FACT)
    fact = derived.get(NAME) if isinstance(derived, dict) else None
    scopes = fact.get("scopes") if isinstance(fact, dict) else None
    return tuple(map(str, scopes)) if isinstance(scopes, list) else ()


def derive(store: Store, catalog: Catalog, selected: SelectedRun, request: ScopeRequest) -> Derived:
    """Adds the requested critical paths to the selected ranks, which keep those they have.

    Paths that are stored and current are not derived again. Raises UnknownName if no rank has a requested
    scope.
    """
    known = {rank.rank: _StoredScopes.of(catalog, rank) for rank in selected.by_rank}
    stored_scopes = {scope for each in known.values() for scope in each.scopes}
    rows = scope_rows(store, catalog, selected, request, stored_scopes)
    requested = {
        rank: [row for row in rows if row["rank"] == rank and row["requested"]] for rank in selected.ranks
    }
    notices = check_scopes(selected, request, requested)
    todo: dict[int, tuple[ScopeRow, ...]] = {}
    for rank, of_rank in requested.items():
        scopes, current = scope_names(of_rank), known[rank]
        if of_rank and not (current.current and current.scopes.issuperset(scopes)):
            all_scopes = current.scopes.union(scopes)
            todo[rank] = tuple(row for row in rows if row["rank"] == rank and row["scope"] in all_scopes)
    version = _publish(store, catalog, selected, todo) if todo else None
    by_rank = {rank: scope_names(of_rank) for rank, of_rank in requested.items()}
    return Derived(selected.run, by_rank, version.number if version else None, notices)


def scope_rows(
    store: Versions, catalog: Catalog, selected: SelectedRun, request: ScopeRequest, known: Iterable[str] = ()
) -> list[ScopeRow]:
    """The requested scopes of the selected ranks, and those `known` by name."""
    contracts = [catalog.get(name, kind="table") for name in READS]
    with connection(store, catalog, (selected,), contracts) as con:
        return find_scopes(con, request, known)


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
    store: Store, catalog: Catalog, selected: SelectedRun, todo: Mapping[int, tuple[ScopeRow, ...]]
) -> RunVersion | None:
    sources = [rank.main for rank in selected.by_rank if rank.rank in todo]
    headers = store.headers(sources)
    size = sum(source.text_bytes for source in sources)
    jobs = min(resources.cores(), len(todo), 1 + size // _MIN_BYTES_PER_PROCESS)
    with store.staging() as staging, LocalEngine(jobs) as engine:
        tasks = [
            _DeriveTask(
                store,
                selected.version,
                source,
                headers.get(source.name, "{}"),
                todo[source.rank],
                staging / f"{source.rank:06d}",
                catalog.folder,
                resources.threads(jobs),
                f"{resources.memory_bytes(jobs)}B",
            )
            for source in sources
        ]
        results = results_in_order(engine, tasks)
        committed = store.commit([result for result in results if isinstance(result, Staged)])
        return store.publish(selected.run, Changes(sources=committed, rebuilt=True)).version
