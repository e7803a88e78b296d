"""What each trace needs: nothing, for it is stored already; a refusal; or to be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tracewarehouse.catalog import Catalog
from tracewarehouse.ingest.look import Trace
from tracewarehouse.ingest.naming import Assignment, Duplicate, Naming, Refusal
from tracewarehouse.ingest.outcome import FileOutcome, Options
from tracewarehouse.ingest.worker import FORMAT, reader_version
from tracewarehouse.storage import RankSource, Store, uid

if TYPE_CHECKING:
    from tracewarehouse.reader import Survey

# `clean` may take an unpublished commit after its grace: one this young is in no danger.
_FRESH = timedelta(hours=1)


@dataclass(frozen=True)
class Job:
    """A trace that has a place. `source`: what an earlier call, broken off before it published, made of it."""

    trace: Trace
    place: Assignment
    uid: str
    source: RankSource | None = None

    @property
    def path(self) -> Path:
        """The trace's file."""
        return self.trace.file.path


@dataclass(frozen=True)
class Plan:
    """The jobs to be done and what is already settled."""

    jobs: tuple[Job, ...]
    settled: tuple[FileOutcome, ...]


def plan(store: Store, catalog: Catalog, options: Options, traces: Sequence[Trace], naming: Naming) -> Plan:
    """Hold what naming says against what is stored."""
    by_path = {trace.file.path: trace for trace in traces}
    settled = [_duplicate(one) for one in naming.duplicates]
    settled += [_refused(store, one, by_path[one.path]) for one in naming.refusals]
    jobs = []
    tables = table_versions(catalog)
    for place in naming.assigned:
        one = _plan_one(store, options, by_path[place.path], place, tables)
        if isinstance(one, Job):
            jobs.append(one)
        else:
            settled.append(one)
    return Plan(tuple(jobs), tuple(settled))


def table_versions(catalog: Catalog) -> dict[str, int]:
    """The versions of the tables that are stored now."""
    from tracewarehouse.ingest.sql_tables import stored_tables

    return {contract.name: contract.version for contract in stored_tables(catalog)}


def _duplicate(one: Duplicate) -> FileOutcome:
    return FileOutcome(one.path, "skipped", one.run, one.rank, f"same content as {one.of.name}")


def _refused(store: Store, one: Refusal, trace: Trace) -> FileOutcome:
    """Refused, unless someone followed the hint before: then its content is a rank of that run."""
    version = store.newest(one.run) if one.run else None
    for source in version.sources if version else ():
        if source.digest == trace.file.digest:
            return FileOutcome(one.path, "same", one.run, source.rank, f"stored as rank {source.rank}")
    return FileOutcome(one.path, "refused", one.run, one.rank, one.reason, one.hint)


def _plan_one(
    store: Store, options: Options, trace: Trace, place: Assignment, tables: dict[str, int]
) -> Job | FileOutcome:
    version = store.newest(place.run)
    if version and version.run != place.run:
        reason = f"run {place.run}: there is a run {version.run}, and case does not tell runs apart"
        hint = f"`--run {version.run}`, or another name"
        return FileOutcome(place.path, "refused", place.run, place.rank, reason, hint)
    rank = version.rank(place.rank) if version else None
    stored = rank.main if rank else None
    if stored and stored.digest == trace.survey.digest and _is_current(stored, tables):
        return FileOutcome(place.path, "same", place.run, place.rank, "already stored", notes=place.notes)
    if stored and stored.digest != trace.survey.digest and not may_replace(stored, trace.survey, options):
        return conflict(place, stored)
    source = uid(
        trace.survey.digest,
        place.run,
        place.rank,
        format=FORMAT,
        format_version=reader_version(),
        definitions=tables,
    )
    return Job(trace, place, source, _left(store, place, source))


def _is_current(stored: RankSource, tables: dict[str, int]) -> bool:
    """Whether reading it again would give the same."""
    now = (FORMAT, reader_version(), tables)
    return (stored.format, stored.format_version, dict(stored.definitions)) == now


def may_replace(stored: RankSource, new: Survey, options: Options) -> bool:
    """Whether it is worth reading: publishing decides for good, against what is stored then."""
    if options.replace:
        return True
    return stored.status == "damaged" and (new.status != "damaged" or new.text_bytes > stored.text_bytes)


def conflict(place: Assignment, stored: RankSource | None) -> FileOutcome:
    """The refusal of a file whose place is held by other content."""
    source = stored.facts.get("source_name") if stored else None
    reason = f"rank {place.rank} of run {place.run} is stored with other content"
    hint = "`--replace` puts this in its place, `--run NAME` stores it beside"
    return FileOutcome(
        place.path, "refused", place.run, place.rank, f"{reason}, from {source}" if source else reason, hint
    )


def _left(store: Store, place: Assignment, uid: str) -> RankSource | None:
    """A commit of just this source that waits for other ranks, or that a call made and could not publish."""
    waiting: Iterable[RankSource] = (one.source for one in store.waiting(place.run))
    for source in waiting:
        if source.rank == place.rank and source.uid == uid:
            return source
    left = store.committed(place.run, place.rank, uid)
    if left and datetime.now(UTC) - datetime.fromisoformat(left.committed_at) < _FRESH:
        return left
    return None
