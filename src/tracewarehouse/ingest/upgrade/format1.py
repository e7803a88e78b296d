"""`tw upgrade` of a format-1 warehouse: every rank is rebuilt from its stored events in format 2.

First all ranks are committed, then every run gets its next version, then recorded results are copied to their
new paths, and `_tw/warehouse.json` is replaced last: until then the warehouse has format 1. Ranks and runs
that a killed call had committed or published are not converted again. The old files stay until `tw clean`.

A rank with damaged files is not converted but reported and recorded, and `tw clean` keeps its files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.engines import Engine, Failure, LocalEngine
from tracewarehouse.errors import TwError
from tracewarehouse.ingest import resources
from tracewarehouse.ingest.outcome import UpgradeReport
from tracewarehouse.ingest.plan import GROUP_BYTES, GROUP_RANKS
from tracewarehouse.ingest.upgrade.stored_rank import READ, RebuildRanks, StoredRank, uid_of, without_derived
from tracewarehouse.storage import Changes, RankSource, Staged, Store, conversion_losses, layout, renames
from tracewarehouse.storage.conversion_losses import UnconvertedRank
from tracewarehouse.storage.convert import CarriedOver, Conversion, Definition
from tracewarehouse.storage.format1 import Format1, OldPendingSource, OldRun

_CRITICAL_PATH = "critical_path"


@dataclass(frozen=True)
class _Run:
    """A run to be converted, and its pending sources."""

    key: str
    old: OldRun | None
    waiting: tuple[OldPendingSource, ...]
    published: bool


@dataclass
class _Call:
    store: Store
    catalog: Catalog
    conversion: Conversion
    old: Format1
    # (run, rank, old name) → the source that replaces that commit.
    made: dict[tuple[str, int, str], RankSource] = field(default_factory=dict)
    # Notes on what was lost besides whole ranks.
    notes: list[str] = field(default_factory=list)

    def commit(self, run: _Run, engine: Engine, staging: Path) -> None:
        """Builds and commits the sources of a run that no earlier call has committed."""
        todo = list(self._todo(run))
        folders = (staging / f"{run.key}-{number:06d}" for number in count())
        tasks = [RebuildRanks(group, next(folders), self.catalog.folder) for group in _groups(todo)]
        failed: list[tuple[RebuildRanks, Failure]] = []
        for number, result in engine.run(tasks, lambda *_: None):
            self._take(run, tasks[number], result, failed)
        # The ranks of a failed group are built one by one, so that only the faulty ones fail.
        alone = [
            RebuildRanks((rank,), next(folders), self.catalog.folder)
            for task, _ in failed
            for rank in task.ranks
        ]
        failed.clear()
        for number, result in engine.run(alone, lambda *_: None):
            self._take(run, alone[number], result, failed)
        for task, failure in failed:
            self._lose(run, task.ranks[0].source, failure.message)

    def _todo(self, run: _Run) -> Iterator[StoredRank]:
        """The ranks to build. Reuses commits of an earlier call and records damaged ranks."""
        wanted = [(source, run.old.headers[source.rank]) for source in _sources(run)] if run.old else []
        wanted += [(one.source, one.header) for one in run.waiting]
        left = {(one.rank, one.uid): one for one in self.store.unpublished(run.key)} if wanted else {}
        left |= {(one.source.rank, one.source.uid): one.source for one in self.store.pending(run.key)}
        faults = self._faults(source for source, _ in wanted)
        for old, header in wanted:
            key = run.key, old.rank, old.name
            self.store.objects.delete([layout.unconverted(*key)])
            if (why := _first(faults, old, READ)) is not None:
                self._lose(run, old, why)
                continue
            source = self._usable(old, faults)
            if (found := left.get((source.rank, uid_of(self.catalog, source)))) is not None:
                self.made[key] = found
            else:
                yield self._stored(source, header)

    def _faults(self, sources: Iterable[RankSource]) -> Mapping[str, str]:
        """Key → fault, of the files that are read or kept; a file that ranks share is checked once."""
        read = {*READ, *self.derived()}
        files = {file.path: file for source in sources for file in source.files if file.table in read}
        found = {key: self.old.fault(key, file) for key, file in files.items()}
        return {key: what for key, what in found.items() if what is not None}

    def _usable(self, source: RankSource, faults: Mapping[str, str]) -> RankSource:
        """The source, without its derived tables if those are damaged."""
        what = _first(faults, source, self.derived())
        if what is None:
            return _with_definition_of_today(source, self.catalog)
        rank = f"run {source.run} rank {source.rank}"
        derive = hints.Hint("wh.derive()", "tw derive")
        self.notes.append(hints.fill("{}: derived tables lost: {}; {} rebuilds them", rank, what, derive))
        return without_derived(source)

    def derived(self) -> frozenset[str]:
        """Names of the derived tables."""
        return frozenset(contract.name for contract in self.catalog.tables() if contract.derived)

    def _take(
        self, run: _Run, task: RebuildRanks, result: object, failed: list[tuple[RebuildRanks, Failure]]
    ) -> None:
        """Commits what was built. Raises TwError if disk or memory failed."""
        if not isinstance(result, Failure):
            self._commit(run.key, task, result)  # type: ignore[arg-type]
        elif result.transient:
            names = ", ".join(str(each.source.rank) for each in task.ranks)
            raise TwError(f"run {run.key} rank {names}: {result.message}", result.hint)
        else:
            failed.append((task, result))

    def _lose(self, run: _Run, source: RankSource, why: str) -> None:
        """Records an unconverted rank before its run is published without it."""
        published = source in _sources(run)
        number = run.old.version.number + 1 if run.old else self.store.head(run.key).number
        record = UnconvertedRank(
            run=source.run,
            rank=source.rank,
            name=source.name,
            source_name=str(source.facts.get("source_name")),
            digest=source.digest,
            why=why,
            source=run.old.version.source if run.old and published else "",
            version=number,
            files=self.old.files(source),
        )
        conversion_losses.put(self.store.objects, record)

    def _commit(self, key: str, task: RebuildRanks, staged: Sequence[Staged]) -> None:
        for each, made in zip(task.ranks, self.store.commit(staged), strict=True):
            self.made[key, made.rank, each.source.name] = made

    def _stored(self, source: RankSource, header: str) -> StoredRank:
        derived = tuple(sorted(self.derived())) if source.facts.get("derived") else ()
        files = {
            table: tuple(self.store.path(file.path) for file in source.files if file.table == table)
            for table in (*READ, *derived)
        }
        return StoredRank(source, header, files, derived, renames.renamed_rows)

    def publish(self, run: _Run) -> str | None:
        """Publishes the next version of a run and its pending sources; returns a line, None if removed."""
        old = [] if run.published else [*_sources(run)]
        if not run.published and run.old is not None:
            self.conversion.publish(run.old.version, self._made(run.key, old))
        for one in run.waiting:
            for source in self._made(run.key, [one.source]):
                changes = Changes((source,), (), one.labels, one.replace, False, one.expected_ranks)
                self.conversion.wait(changes)
        sources = [*_sources(run), *(one.source for one in run.waiting)]
        lost = {one.name for one in conversion_losses.every(self.store.objects, run.key)}
        ranks = len({source.rank for source in sources if source.name not in lost})
        of = f" of {len({source.rank for source in sources})}" if lost else ""
        name = next((source.run for source in sources), run.key)
        return (
            f"{name}: {ranks}{of} {'rank' if ranks == 1 and not of else 'ranks'} converted"
            if sources
            else None
        )

    def _made(self, key: str, sources: Iterable[RankSource]) -> tuple[RankSource, ...]:
        """The converted sources; raises KeyError for one that is neither built nor recorded as lost."""
        lost = {one.name for one in conversion_losses.every(self.store.objects, key)}
        return tuple(self.made[key, one.rank, one.name] for one in sources if one.name not in lost)


def convert(folder: Path, catalog: Catalog, tool: str) -> UpgradeReport:
    """Converts the warehouse in a folder to the current format; returns a line per run, and lost ranks.

    Raises WarehouseError if a version or manifest is damaged, TwError if disk or memory failed.
    """
    old = Format1(folder)
    conversion = Conversion(folder, old.identity(), tool)
    call = _Call(conversion.store, catalog, conversion, old)
    runs = [_run(old, conversion, key) for key in old.runs()]
    pending = [run for run in runs if not run.published or run.waiting]
    jobs = _jobs(pending)
    with conversion.store.staging() as staging, LocalEngine(jobs) as engine:
        for run in pending:
            call.commit(run if not run.published else replace(run, old=None), engine, staging)
    lines = [line for run in runs if (line := call.publish(run)) is not None]
    carried = conversion.finish(
        old,
        {run.key: run.old for run in runs if run.old is not None},
        _definitions(catalog),
        call.derived(),
    )
    lost = tuple(one for run in runs for one in conversion_losses.every(conversion.store.objects, run.key))
    return UpgradeReport((*lines, *call.notes, *_recordings(carried)), lost)


def _definitions(catalog: Catalog) -> dict[Definition, str]:
    """Definition of an analysis in format 1 → its current definition, if rows differ only in names."""
    found = {}
    for name, before in renames.DEFINITIONS.items():
        contract = catalog.get(name, 1, kind="analysis")
        found[name, 1, before] = catalog.effective_hash(contract)[:16]
    return found


def _with_definition_of_today(source: RankSource, catalog: Catalog) -> RankSource:
    """The source with the current definition of its critical path, whose rows differ only in names."""
    derived = source.facts.get("derived")
    known = derived.get(_CRITICAL_PATH) if isinstance(derived, dict) else None
    if not isinstance(known, dict) or not str(known.get("hash")).startswith(renames.CRITICAL_PATH):
        return source
    now = catalog.effective_hash(catalog.get(_CRITICAL_PATH, 1, kind="table"))
    facts = {**source.facts, "derived": {**derived, _CRITICAL_PATH: {**known, "hash": now}}}  # type: ignore[dict-item]
    return replace(source, facts=facts)


def _recordings(carried: CarriedOver) -> Iterator[str]:
    """Lines on recorded results and acknowledgements that were carried over, and those that were not."""
    if carried.results:
        yield f"recorded results: {carried.results:,} carried over"
    if carried.redefined:
        names = ", ".join(carried.redefined)
        yield f"recorded results of {names} keep their old definition, a separate series"
    if carried.obsolete_results:
        yield (
            f"recorded results: {carried.obsolete_results:,} not carried over,"
            " their versions of runs are no longer stored"
        )
    if carried.acknowledgements:
        yield f"acknowledgements: {carried.acknowledgements:,} carried over"
    if carried.obsolete_acknowledgements:
        yield (
            f"acknowledgements: {carried.obsolete_acknowledgements:,} not carried over,"
            " their versions of runs are no longer stored"
        )


def _first(faults: Mapping[str, str], source: RankSource, tables: Collection[str]) -> str | None:
    """The first faulty file of these tables, with its key and fault."""
    keys = (file.path for file in source.files if file.table in tables)
    return next((f"{key}: {faults[key]}" for key in keys if key in faults), None)


def _groups(ranks: Sequence[StoredRank]) -> Iterator[tuple[StoredRank, ...]]:
    """Groups of consecutive small ranks; two sources of one rank never share a group."""
    group: list[StoredRank] = []
    for each in ranks:
        size = sum(one.source.text_bytes for one in group) + each.source.text_bytes
        known = any(one.source.rank == each.source.rank for one in group)
        if group and (known or len(group) == GROUP_RANKS or size > GROUP_BYTES):
            yield tuple(group)
            group = []
        group.append(each)
    if group:
        yield tuple(group)


def _run(old: Format1, conversion: Conversion, key: str) -> _Run:
    return _Run(key, old.newest(key), tuple(old.pending(key)), conversion.is_published(key))


def _sources(run: _Run) -> tuple[RankSource, ...]:
    return run.old.version.sources if run.old else ()


def _jobs(runs: Sequence[_Run]) -> int:
    sources = [source for run in runs for source in (*_sources(run), *(one.source for one in run.waiting))]
    return resources.rebuild_jobs(source.text_bytes for source in sources)
