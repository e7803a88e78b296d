"""`tw derive critical_path`: the graph and the path of scopes, kept as tables of a new version of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.derive.build import NAME, attach, build, stored
from tracewarehouse.derive.scopes import READS, Row, Wanted, find, names
from tracewarehouse.engines import Failure, LocalEngine, TaskProgress
from tracewarehouse.errors import TwError, UnknownName
from tracewarehouse.exact_text import rank_list
from tracewarehouse.ingest import machine
from tracewarehouse.ingest.upgrade import rebuilt, table_versions_fact
from tracewarehouse.ingest.write import too_much, write_tables
from tracewarehouse.query.connections import connection
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Changes, Json, Rank, RankSource, RunVersion, Staged, Store

_FACT = "derived"
# Of less text than this a process takes longer to start than the work takes.
_WORTH_A_PROCESS_BYTES = 16 << 20


@dataclass(frozen=True)
class Derived:
    """What came of a derivation: each rank's scopes, and the number of the version written, if any was."""

    run: str
    scopes: Mapping[int, tuple[str, ...]]
    version: int | None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Make:
    """Derive one rank, in a process of its own or not."""

    root: Path
    version: RunVersion
    source: RankSource
    header: str
    scopes: tuple[Row, ...]
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
                attach(con, self.root, catalog, SelectedRun(self.version, (source.rank,)))
                build(con, catalog, self.scopes)
                made = write_tables(con, catalog, stored(catalog), self.folder)
            except Error as error:
                raise too_much(Path(f"{source.run} rank {source.rank}"), error) from error
        facts = _facts(catalog, source, names(self.scopes))
        ours = {contract.name for contract in stored(catalog)}
        kept = tuple(file for file in source.files if file.table not in ours)
        return rebuilt(source, self.header, made, facts, source.definitions, kept)


def _facts(catalog: Catalog, source: RankSource, scopes: Sequence[str]) -> dict[str, Json]:
    """The facts of the source with what is now derived of it."""
    told, derived = source.facts.get("tables"), source.facts.get(_FACT)
    ours = {contract.name for contract in stored(catalog)}
    others = {name: held for name, held in told.items() if name not in ours} if isinstance(told, dict) else {}
    found: dict[str, Json] = dict(derived) if isinstance(derived, dict) else {}
    found[NAME] = {"hash": _hash(catalog), "scopes": list(scopes)}
    return {**source.facts, NAME: True, "tables": table_versions_fact(stored(catalog), others), _FACT: found}


def _hash(catalog: Catalog) -> str:
    return catalog.effective_hash(catalog.get(NAME, kind="table"))


@dataclass(frozen=True)
class _Known:
    """The scopes that a rank holds, and whether they were derived as they would be now."""

    scopes: frozenset[str]
    current: bool

    @classmethod
    def of(cls, catalog: Catalog, rank: Rank) -> _Known:
        derived = rank.main.facts.get(_FACT)
        told = derived.get(NAME) if isinstance(derived, dict) else None
        if not isinstance(told, dict) or not isinstance(scopes := told.get("scopes"), list):
            return cls(frozenset(), False)
        return cls(frozenset(map(str, scopes)), told.get("hash") == _hash(catalog))


def derive(store: Store, catalog: Catalog, selected: SelectedRun, wanted: Wanted) -> Derived:
    """Gives the chosen ranks the critical paths wanted, beside those that they have.

    What is there already is not made again. Raises UnknownName where no rank has a scope that is wanted.
    """
    known = {rank.rank: _Known.of(catalog, rank) for rank in selected.by_rank}
    rows = scope_rows(
        store.root, catalog, selected, wanted, {scope for one in known.values() for scope in one.scopes}
    )
    wants = {rank: [row for row in rows if row["rank"] == rank and row["wanted"]] for rank in selected.ranks}
    notices = check(selected, wanted, wants)
    todo: dict[int, tuple[Row, ...]] = {}
    for rank, asked in wants.items():
        if asked and not (known[rank].current and known[rank].scopes.issuperset(names(asked))):
            kept = known[rank].scopes.union(names(asked))
            todo[rank] = tuple(row for row in rows if row["rank"] == rank and row["scope"] in kept)
    version = _publish(store, catalog, selected, todo) if todo else None
    scopes = {rank: names(asked) for rank, asked in wants.items()}
    return Derived(selected.run, scopes, version.number if version else None, notices)


def scope_rows(
    root: Path, catalog: Catalog, selected: SelectedRun, wanted: Wanted, known: Iterable[str] = ()
) -> list[Row]:
    """The scopes wanted of the chosen ranks, and those `known` by name."""
    contracts = [catalog.get(name, kind="table") for name in READS]
    with connection(root, catalog, (selected,), contracts) as con:
        return find(con, wanted, known)


def check(selected: SelectedRun, wanted: Wanted, found: Mapping[int, Sequence[Row]]) -> tuple[str, ...]:
    """A line for each scope that some ranks lack; raises UnknownName for one that all of them lack."""
    told = []
    for scope in wanted.scopes:
        without = [rank for rank, rows in found.items() if scope not in names(rows)]
        if len(without) == len(found):
            kind, _, name = scope.partition(" ")
            raise UnknownName(
                kind,
                name,
                [],
                hints.fill(
                    "{} and {} list them", hints.analysis("step_summary"), hints.query("FROM annotations")
                ),
            )
        if without:
            told.append(f"{selected.run} rank {rank_list(without)}: no {scope}")
    return tuple(told)


def _publish(
    store: Store, catalog: Catalog, selected: SelectedRun, todo: Mapping[int, tuple[Row, ...]]
) -> RunVersion | None:
    wanted = [rank.main for rank in selected.by_rank if rank.rank in todo]
    headers = store.headers(wanted)
    size = sum(source.text_bytes for source in wanted)
    jobs = min(machine.cores(), len(todo), 1 + size // _WORTH_A_PROCESS_BYTES)
    with store.staging() as staging, LocalEngine(jobs) as engine:
        tasks = [
            _Make(store.root, selected.version, source, headers.get(source.name, "{}"), todo[source.rank],
                  staging / f"{source.rank:06d}", catalog.folder, machine.threads(jobs),
                  f"{machine.memory_bytes(jobs)}B")
            for source in wanted
        ]  # fmt: skip
        results = [value for _, value in sorted(engine.run(tasks, lambda *_: None), key=lambda item: item[0])]
        for result in results:
            if isinstance(result, Failure):
                raise TwError(result.message, result.hint)
        sources = store.commit([result for result in results if isinstance(result, Staged)])
        return store.publish(selected.run, Changes(sources=sources, rebuilt=True)).version
