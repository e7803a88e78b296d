"""Repair of tables: damaged files are quarantined and rebuilt from the rank's stored events.

A rank whose events are damaged is dropped from its run; it can be ingested again from its trace.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.engines import LocalEngine, results_in_order
from tracewarehouse.errors import TwError
from tracewarehouse.ingest import resources
from tracewarehouse.ingest.rebuild import READ, Rebuild, rebuilt, stored_files
from tracewarehouse.ingest.tables.quality import ADDED_TABLES
from tracewarehouse.storage import (
    Changes,
    Json,
    RankSource,
    RunVersion,
    Staged,
    Store,
    TableFile,
    copies,
    layout,
    manifests,
    markers,
    quarantine,
    receipts,
)
from tracewarehouse.storage.repair import Step
from tracewarehouse.storage.verify import stored_faults

# What a rank cannot be rebuilt without.
_NEEDED = ("events", "memory_timeline", *ADDED_TABLES)


class LostSource(Struct, frozen=True):
    """A source that was dropped from its run: ingest the trace with this digest to restore it."""

    run: str
    rank: int
    source_name: str
    digest: str
    text_bytes: int

    @property
    def line(self) -> str:
        """Names the rank and its trace."""
        trace = f"ingest {self.source_name} again (sha256 {self.digest})"
        return f"rank {self.rank} lost: its events are damaged; {trace}"


class TableRepair(Struct):
    """The repair of the files of one run, whose newest version is `version`."""

    store: Store
    catalog: Catalog
    run: str
    versions: Mapping[int, RunVersion]
    dry_run: bool = False
    steps: list[Step] = field(default_factory=list)
    lost: list[LostSource] = field(default_factory=list)
    # Ranks whose derived tables were damaged: to derive again.
    underived: list[int] = field(default_factory=list)

    def repair(self) -> None:
        """Quarantines damaged files, publishes rebuilt tables, and drops ranks that cannot be rebuilt."""
        faults = self._faults()
        if not faults:
            return
        newest = self.versions[max(self.versions)] if self.versions else None
        held = {file.path for source in newest.sources for file in source.files} if newest else set()
        for key in sorted(faults.keys() - held):
            self.steps.append(
                Step(self.run, key, f"quarantined, older versions lack it: {faults[key]}", True)
            )
        self._drop_commits(faults)
        if not self.dry_run:
            for key in faults:
                quarantine.take_out(self.store, key)
        if newest is not None and not faults.keys().isdisjoint(held):
            self._rebuild(newest, faults)
        if not self.dry_run:
            self._note_lost_files(faults.keys())

    def _faults(self) -> dict[str, str]:
        """Key → problem of each damaged file of a version or manifest, except those known to be lost."""
        files: dict[str, TableFile] = {}
        for version in self.versions.values():
            files |= {file.path: file for source in version.sources for file in source.files}
        for source in self._unpublished():
            files |= {file.path: file for file in source.files}
        known = self._known_losses()
        found = stored_faults(self.store, {key: file for key, file in files.items() if key not in known})
        return {key: what for key, what in found.items() if what is not None}

    def _unpublished(self) -> Iterator[RankSource]:
        known = {source.name for version in self.versions.values() for source in version.sources}
        for name in manifests.names(self.store.objects, self.run):
            try:
                found = manifests.read(self.store.objects, self.run, name.text).sources
            except TwError:
                continue
            yield from (source for source in found if source.name not in known)

    def _known_losses(self) -> frozenset[str]:
        """Files that every version that holds them lists as lost."""
        missing: set[str] = set()
        present: set[str] = set()
        for number, version in self.versions.items():
            lost = self._lost_files(number)
            held = {file.path for source in version.sources for file in source.files}
            missing |= held & lost
            present |= held - lost
        return frozenset(missing - present)

    def _lost_files(self, number: int) -> frozenset[str]:
        try:
            receipt = receipts.read(self.store.objects, self.run, number)
        except ValueError:
            return frozenset()
        return receipt.lost_files if receipt is not None else frozenset()

    def _drop_commits(self, faults: Collection[str]) -> None:
        """Quarantines manifests of unpublished commits with damaged files: a retry commits again."""
        for name in sorted({one.manifest for one in self._unpublished() if _has_fault(one, faults)}):
            published = (source for version in self.versions.values() for source in version.sources)
            if any(source.manifest == name for source in published):
                continue
            key = layout.manifest(self.run, name)
            self.steps.append(Step(self.run, key, "unpublished commit lost: ingest its traces again", True))
            if not self.dry_run:
                quarantine.take_out(self.store, key)
                for marker in markers.stored(self.store.objects, self.run):
                    if marker.manifest == name:
                        marked = layout.marker(self.run, marker.rank, marker.name)
                        quarantine.take_out(self.store, marked)
                        quarantine.take_out(self.store, copies.key_of_copy(marked))

    def _rebuild(self, version: RunVersion, faults: Mapping[str, str]) -> None:
        """Publishes the run with rebuilt tables, and without the sources whose events are damaged."""
        affected = [source for source in version.sources if _has_fault(source, faults)]
        lost = [source for source in affected if _damaged(source, faults) & set(_NEEDED)]
        for source in lost:
            name = str(source.facts.get("source_name"))
            one = LostSource(version.run, source.rank, name, source.digest, source.text_bytes)
            self.lost.append(one)
            key = next(file.path for file in source.files if file.path in faults and file.table in _NEEDED)
            self.steps.append(Step(self.run, key, one.line, True))
        rest = [source for source in affected if source not in lost]
        derived = {contract.name for contract in self.catalog.tables() if contract.derived}
        self._describe(rest, faults, derived)
        if self.dry_run:
            return
        with self.store.staging() as staging:
            staged = [*self._built(version, rest, faults, derived, staging)]
            sources = self.store.commit(staged) if staged else ()
            changes = Changes(
                sources=sources, rebuilt=True, drop_sources=frozenset(source.name for source in lost)
            )
            self.store.publish(version.run, changes)

    def _describe(
        self, sources: Iterable[RankSource], faults: Mapping[str, str], derived: Collection[str]
    ) -> None:
        sources = tuple(sources)
        damaged = {file.path: file for source in sources for file in source.files if file.path in faults}
        gone = {file.path for file in damaged.values() if file.table in derived}
        self.underived += sorted({source.rank for source in sources if _has_fault(source, gone)})
        for key, file in damaged.items():
            table = file.table
            if key in gone:
                continue
            is_loss = table == "data_quality"
            more = "; findings from reading the trace are lost" if is_loss else ""
            text = f"{table} rebuilt from events: {faults[key]}{more}"
            self.steps.append(Step(self.run, key, text, is_loss))

    def _built(
        self,
        version: RunVersion,
        sources: Sequence[RankSource],
        faults: Mapping[str, str],
        derived: Collection[str],
        staging: Path,
    ) -> Iterator[Staged]:
        try:
            headers = self.store.headers(sources)
        except TwError:
            headers = {}
        tasks, others = [], []
        for source in sources:
            damaged = _damaged(source, faults)
            wanted = tuple(
                self.catalog.get(table, kind="table").ref for table in sorted(damaged - {*derived})
            )
            if wanted:
                stored = {
                    table: stored_files(self.store, self.catalog, version, source, table)
                    for table in READ
                    if table not in damaged
                }
                header = headers.get(source.name, "{}")
                tasks.append(
                    Rebuild(source, header, stored, staging / source.name, self.catalog.folder, wanted)
                )
            else:
                facts, definitions = dict(source.facts), source.definitions
                others.append(rebuilt(source, headers.get(source.name, "{}"), (), facts, definitions))
        with LocalEngine(resources.rebuild_jobs(task.source.text_bytes for task in tasks)) as engine:
            built = [one for one in results_in_order(engine, tasks) if isinstance(one, Staged)]
        by_rank = {(source.rank, source.digest, source.part): source for source in sources}
        for one in (*built, *others):
            source = by_rank[one.rank, one.digest, one.part]
            yield _without_damage(one, source, faults, derived)

    def _note_lost_files(self, lost: Collection[str]) -> None:
        """Marks the files as lost in the receipts of the versions that hold them."""
        self.store.forget()
        for version in self.store.readable(self.run):
            held = {file.path for source in version.sources for file in source.files}
            here = held.intersection(lost)
            if here:
                data = self.store.objects.get(layout.version(self.run, version.number))
                before = self._lost_files(version.number)
                receipts.write(self.store.objects, version, data, here | before)


def _has_fault(source: RankSource, faults: Collection[str]) -> bool:
    return any(file.path in faults for file in source.files)


def _damaged(source: RankSource, faults: Collection[str]) -> set[str]:
    """The names of the damaged tables of a source."""
    return {file.table for file in source.files if file.path in faults}


def _without_damage(
    staged: Staged, source: RankSource, faults: Collection[str], derived: Collection[str]
) -> Staged:
    """The staged source without its damaged files; damaged derived tables become outdated."""
    kept = tuple(file for file in staged.kept if file.path not in faults)
    gone = _damaged(source, faults).intersection(derived)
    if not gone:
        return replace(staged, kept=kept)
    facts: dict[str, Json] = dict(staged.facts)
    tables, known = facts.get("tables"), facts.get("derived")
    if isinstance(tables, dict):
        facts["tables"] = {name: versions for name, versions in tables.items() if name not in derived}
    if isinstance(known, dict):
        facts["derived"] = {
            name: {**each, "hash": ""} if isinstance(each, dict) else each for name, each in known.items()
        }
    kept = tuple(file for file in kept if file.table not in derived)
    return replace(staged, kept=kept, facts=facts)
