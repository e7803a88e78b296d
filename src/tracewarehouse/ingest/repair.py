"""Repair of tables: damaged files are taken out and rebuilt from the rank's stored events.

A rank whose events are damaged is dropped from its run; it can be ingested again from its trace.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import TwError
from tracewarehouse.ingest.rebuild import (
    READ,
    Rebuild,
    built,
    outdated_derivations,
    rebuilt,
    stored_files,
    with_classified,
)
from tracewarehouse.ingest.rules import digest_of, kernel_rules_of
from tracewarehouse.ingest.tables.quality import ADDED_TABLES
from tracewarehouse.storage import commits, layout
from tracewarehouse.storage.model import Changes, Json, RankSource, RunVersion, Staged
from tracewarehouse.storage.repair import Step
from tracewarehouse.storage.store import Store
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
        """Publishes rebuilt tables, drops ranks that cannot be rebuilt, and takes damaged files out."""
        newest = self.versions[max(self.versions)] if self.versions else None
        unpublished = self._unpublished()
        faults = self._faults(newest, unpublished)
        if not faults:
            return
        current_paths = newest.paths if newest else frozenset()
        for key in sorted(faults.keys() - current_paths):
            self.steps.append(Step(self.run, key, f"taken out, older versions lack it: {faults[key]}", True))
        gone = {layout.commit(self.run, one.commit) for one in unpublished if _has_fault(one, faults)}
        for key in sorted(gone):
            self.steps.append(Step(self.run, key, "unpublished commit lost: ingest its traces again", True))
        if newest is not None and not current_paths.isdisjoint(faults):
            self._rebuild(newest, faults)
        if not self.dry_run:
            self.store.take_out(self.run, [*faults, *gone])

    def _faults(self, newest: RunVersion | None, unpublished: Iterable[RankSource]) -> dict[str, str]:
        """Key → problem of each damaged file of a version or commit, except those taken out before."""
        sources = [*unpublished, *(one for version in self.versions.values() for one in version.sources)]
        files = {file.path: file for source in sources for file in source.files}
        aside = frozenset(newest.taken_out) - newest.paths if newest else frozenset()
        faults = stored_faults(self.store, {key: file for key, file in files.items() if key not in aside})
        return {key: fault for key, fault in faults.items() if fault is not None}

    def _unpublished(self) -> list[RankSource]:
        settled = self.store.settled(self.run)
        names = (name.text for name in commits.names(self.store.objects, self.run))
        unsettled = [name for name in names if name not in settled]
        listed = commits.read_many(self.store.objects, self.run, unsettled)
        return [source for commit in listed if not isinstance(commit, TwError) for source in commit.sources]

    def _rebuild(self, version: RunVersion, faults: Mapping[str, str]) -> None:
        """Publishes the run with rebuilt tables, and without the sources whose events are damaged."""
        affected = [source for source in version.sources if _has_fault(source, faults)]
        lost = [source for source in affected if _damaged(source, faults) & set(_NEEDED)]
        for source in lost:
            name = str(source.facts.get("source_name"))
            lost_source = LostSource(version.run, source.rank, name, source.digest, source.text_bytes)
            self.lost.append(lost_source)
            key = next(file.path for file in source.files if file.path in faults and file.table in _NEEDED)
            self.steps.append(Step(self.run, key, lost_source.line, True))
        rebuildable = [source for source in affected if source not in lost]
        derived = {contract.name for contract in self.catalog.tables() if contract.derived}
        self._describe(rebuildable, faults, derived)
        if self.dry_run:
            return
        with self.store.staging() as staging:
            staged = [*self._built(version, rebuildable, faults, derived, staging)]
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
            note = "; findings from reading the trace are lost" if is_loss else ""
            text = f"{table} rebuilt from events: {faults[key]}{note}"
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
        tasks, outdated, own = [], [], kernel_rules_of(self.store)
        for source in sources:
            damaged = _damaged(source, faults)
            tables = tuple(
                self.catalog.get(table, kind="table").ref for table in sorted(damaged - {*derived})
            )
            if tables:
                tables = with_classified(self.catalog, source, tables, digest_of(own))
                stored = {
                    table: stored_files(self.store, self.catalog, version, source, table)
                    for table in READ
                    if table not in damaged
                }
                header = headers.get(source.name, "{}")
                tasks.append(
                    Rebuild(
                        source, header, stored, staging / source.name, self.catalog.folder, tables, own=own
                    )
                )
            else:
                facts, definitions = dict(source.facts), source.definitions
                outdated.append(rebuilt(source, headers.get(source.name, "{}"), (), facts, definitions))
        by_rank = {(source.rank, source.digest, source.part): source for source in sources}
        for staged in (*built(tasks), *outdated):
            source = by_rank[staged.rank, staged.digest, staged.part]
            yield _without_damage(staged, source, faults, derived)


def _has_fault(source: RankSource, faults: Collection[str]) -> bool:
    return any(file.path in faults for file in source.files)


def _damaged(source: RankSource, faults: Collection[str]) -> set[str]:
    """The names of the damaged tables of a source."""
    return {file.table for file in source.files if file.path in faults}


def _without_damage(
    staged: Staged, source: RankSource, faults: Collection[str], derived: Collection[str]
) -> Staged:
    """The staged source without its damaged files; damaged derived tables become outdated."""
    kept_files = tuple(file for file in staged.kept if file.path not in faults)
    gone = _damaged(source, faults).intersection(derived)
    if not gone:
        return replace(staged, kept=kept_files)
    facts: dict[str, Json] = dict(staged.facts)
    tables = facts.get("tables")
    if isinstance(tables, dict):
        facts["tables"] = {name: versions for name, versions in tables.items() if name not in derived}
    facts |= outdated_derivations(facts)
    kept_files = tuple(file for file in kept_files if file.table not in derived)
    return replace(staged, kept=kept_files, facts=facts)
