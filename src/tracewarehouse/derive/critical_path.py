"""`tw derive critical_path`: graph and path of scopes, stored as tables of a new version of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.derive.build import NAME, attach, build, stored
from tracewarehouse.derive.derived_source import definition, too_much, with_derived, write_tables
from tracewarehouse.derive.scopes import READS, ScopeRequest, ScopeRow, find_scopes, scope_names
from tracewarehouse.engines import (
    EngineOrName,
    LocalEngine,
    TaskProgress,
    advice,
    is_remote,
    opened,
    results_in_order,
)
from tracewarehouse.errors import UnknownName
from tracewarehouse.exact_text import rank_list
from tracewarehouse.ingest import resources
from tracewarehouse.query.connections import connection, event_count
from tracewarehouse.runs.readable import FACT
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import (
    Changes,
    Json,
    Rank,
    RankSource,
    RunVersion,
    StagedTable,
    Store,
    Versions,
    manifests,
)
from tracewarehouse.storage.pack import PACK_RANKS


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
        """The names of the manifests."""
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
            return tuple(sorted({one.manifest for one in self.store.commit(staged)}))

    def _files(
        self, catalog: Catalog, version: RunVersion, source: RankSource, folder: Path
    ) -> tuple[StagedTable, ...]:
        """The tables of one rank, built in a connection that is closed afterwards."""
        from tracewarehouse.duck.engine import Error, connect

        folder.mkdir()
        at_once = self.at_once or resources.cores()
        con = connect(
            threads=resources.threads(at_once),
            memory_limit=f"{resources.memory_bytes(at_once)}B",
            temp_directory=folder / "spill",
        )
        with closing(con):
            try:
                attach(con, self.store, catalog, SelectedRun(version, (source.rank,)))
                build(con, catalog, self.scopes[source.rank])
                return write_tables(con, catalog, stored(catalog), folder)
            except Error as error:
                raise too_much(f"{source.run} rank {source.rank}", error) from error


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
    version = _publish(store, catalog, selected, todo, engine) if todo else None
    events = event_count([replace(selected, ranks=tuple(todo))])
    note = advice(engine, events) if todo else None
    notices = (*notices, note) if note else notices
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
    store: Store,
    catalog: Catalog,
    selected: SelectedRun,
    todo: Mapping[int, tuple[ScopeRow, ...]],
    chosen: EngineOrName,
) -> RunVersion | None:
    jobs = resources.rebuild_jobs(rank.main.text_bytes for rank in selected.by_rank if rank.rank in todo)
    with LocalEngine(jobs) if chosen == "local" else opened(chosen) as engine:
        remote = is_remote(engine)
        # A lost worker on a cluster costs half of its share.
        groups = _groups(sorted(todo), engine.slots * (2 if remote else 1))
        tasks = [
            _DeriveTask(
                store,
                selected.run,
                selected.version.number,
                {rank: todo[rank] for rank in ranks},
                catalog.custom_folder,
                None if remote else engine.slots,
            )
            for ranks in groups
        ]
        names = [name for result in results_in_order(engine, tasks) for name in result]  # type: ignore[attr-defined]
    read = (manifests.read(store.objects, selected.run, name) for name in names)
    committed = tuple(source for manifest in read for source in manifest.sources)
    return store.publish(selected.run, Changes(sources=committed, rebuilt=True)).version


def _groups(ranks: Sequence[int], least: int) -> list[Sequence[int]]:
    """Neighboring ranks that share files; at least `least` groups if there are as many ranks."""
    size = min(PACK_RANKS, -(-len(ranks) // least))
    return [ranks[start : start + size] for start in range(0, len(ranks), size)]
