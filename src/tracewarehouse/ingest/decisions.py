"""The final run and rank of each read source, compared with what is stored and what was built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tracewarehouse import hints
from tracewarehouse.errors import DamagedRunError
from tracewarehouse.ingest.naming.assignment import (
    Assignment,
    Duplicate,
    NameCleaner,
    Naming,
    Refusal,
    assign,
)
from tracewarehouse.ingest.naming.run_names import TraceFile
from tracewarehouse.ingest.outcome import BY_ANOTHER_PROCESS, FileOutcome, Options
from tracewarehouse.ingest.plan import (
    BuiltTables,
    Item,
    ReadSource,
    UnreadSource,
    item_of,
)
from tracewarehouse.ingest.remote_file import GONE
from tracewarehouse.ingest.stored_sources import StoredSources
from tracewarehouse.ingest.survey import Candidate, SurveyedSource, other_format
from tracewarehouse.storage import RankSource, Store


@dataclass(frozen=True)
class ReadySource:
    """A source whose tables are built for its run and rank."""

    source: SurveyedSource
    assignment: Assignment
    read: ReadSource
    built_tables: BuiltTables


@dataclass
class Decisions:
    """The final outcomes, the sources ready to be published, and those to build again for another rank."""

    outcomes: list[FileOutcome] = field(default_factory=list)
    ready: list[ReadySource] = field(default_factory=list)
    rebuilds: list[Item] = field(default_factory=list)
    assignments: dict[int, Assignment] = field(default_factory=dict)


def assign_all(
    sources: Sequence[SurveyedSource],
    reads: Mapping[int, ReadSource],
    options: Options,
    clean: NameCleaner = str,
) -> Naming:
    """The final runs and ranks of all sources that were read."""
    windows = {sources[number].path: read.window for number, read in reads.items()}
    files = [_tracefile_outcome(sources[number], read) for number, read in reads.items()]
    run = None if options.inbox else options.run
    return assign(
        files,
        windows=lambda paths: {path: windows[path] for path in paths},
        run=run,
        rank=options.rank,
        clean=clean,
    )


def _tracefile_outcome(source: SurveyedSource, read: ReadSource) -> TraceFile:
    note = source.note
    world_size = read.world_size if read.world_size is not None or note is None else note.world_size
    return TraceFile(
        source.path,
        read.digest,
        read.rank,
        world_size,
        read.status == "damaged",
        note.run if note else None,
        note.window_number if note else None,
        source.part.name,
        source.part.addition,
    )


def decide(
    stored: StoredSources,
    options: Options,
    sources: Sequence[SurveyedSource],
    reads: Mapping[int, ReadSource],
    naming: Naming,
) -> Decisions:
    """Compares the assigned runs and ranks with what is stored and what was built."""
    numbers = {(sources[number].path, sources[number].part.name): number for number in reads}
    found = Decisions()
    stored.look_again()
    found.outcomes += [_duplicate(one) for one in naming.duplicates]
    found.outcomes += [
        _refused(stored.store, one, reads[numbers[one.path, one.part]]) for one in naming.refusals
    ]
    for assignment in naming.assigned:
        number = numbers[assignment.path, assignment.part]
        found.assignments[number] = assignment
        _decide_one(stored, options, number, sources[number], reads[number], assignment, found)
    return found


def _decide_one(
    stored: StoredSources,
    options: Options,
    number: int,
    source: SurveyedSource,
    read: ReadSource,
    assignment: Assignment,
    found: Decisions,
) -> None:
    built_tables = read.built_tables
    if built_tables and (built_tables.run, built_tables.rank) == (assignment.run, assignment.rank):
        found.ready.append(ReadySource(source, assignment, read, built_tables))
        return
    if (damage := stored.damage(assignment.run)) is not None:
        found.outcomes.append(_damaged_run(assignment, damage))
        return
    target = stored.target(source.format, assignment)
    published = target.published if target else None
    if target is None:
        found.outcomes.append(_spelling_conflict(stored.store, assignment))
    elif published and published.digest == read.digest and published.is_current:
        found.outcomes.append(
            FileOutcome(
                assignment.path,
                "same",
                assignment.run,
                assignment.rank,
                "already stored",
                notes=assignment.notes,
            )
        )
    elif (
        published
        and published.digest != read.digest
        and not published.may_be_replaced_by(read.status, read.text_bytes, options.replace)
    ):
        found.outcomes.append(
            conflict(assignment, stored.source(assignment.run, assignment.rank, source.format))
        )
    else:
        item = item_of(stored, number, source, assignment)
        found.rebuilds.append(replace(item, digest=read.digest, text_bytes=read.text_bytes))


def _damaged_run(assignment: Assignment, error: DamagedRunError) -> FileOutcome:
    run, rank = assignment.run, assignment.rank
    return FileOutcome(assignment.path, "refused", run, rank, error.message, error.hint, assignment.notes)


def _spelling_conflict(store: Store, assignment: Assignment) -> FileOutcome:
    other = store.spelling(assignment.run)
    reason = f"run {assignment.run}: run names are case-insensitive, and run {other} already exists"
    hint = hints.fill("use {}, or another name", hints.option("run", other))
    return FileOutcome(assignment.path, "refused", assignment.run, assignment.rank, reason, hint)


def _duplicate(one: Duplicate) -> FileOutcome:
    return FileOutcome(one.path, "skipped", one.run, one.rank, f"same content as {one.of.name}")


def _refused(store: Store, one: Refusal, read: ReadSource) -> FileOutcome:
    """Refused, unless its content is already a rank of the run, after someone followed the hint."""
    for source in _sources(store, one.run) if one.run else ():
        if source.identity == (read.digest, one.part):
            return FileOutcome(one.path, "same", one.run, source.rank, f"stored as rank {source.rank}")
    return FileOutcome(one.path, "refused", one.run, one.rank, one.reason, one.hint)


def _sources(store: Store, run: str) -> tuple[RankSource, ...]:
    """The sources of a run; none of a damaged one."""
    try:
        version = store.newest(run)
    except DamagedRunError:
        return ()
    return version.sources if version else ()


def conflict(assignment: Assignment, stored: RankSource | None) -> FileOutcome:
    """The refusal of a file whose rank is stored with different content."""
    source = stored.facts.get("source_name") if stored else None
    reason = f"rank {assignment.rank} of run {assignment.run} already exists with different content"
    hint = hints.fill(
        "{} overwrites it, {} stores it as another run", hints.option("replace"), hints.option("run", "NAME")
    )
    reason = f"{reason}, from {source}" if source else reason
    return FileOutcome(assignment.path, "refused", assignment.run, assignment.rank, reason, hint)


def unread_outcome(
    source: SurveyedSource,
    report: UnreadSource,
    options: Options,
    named: bool,
    assignment: Assignment | None = None,
) -> FileOutcome:
    """The outcome of a file that could not be read; `assignment` if it was to be built a second time."""
    path = source.path
    run, rank = (assignment.run, assignment.rank) if assignment else (None, None)
    if options.inbox and source.remote is None and not path.exists():
        return FileOutcome(path, "skipped", run, rank, BY_ANOTHER_PROCESS)
    if report.why == "changed":
        return FileOutcome(path, "pending", run, rank, "changed while it was read", "ingest it again later")
    if report.why == "unfinished":
        reason = f"is truncated and was modified less than {options.settle_s:g} s ago"
        return FileOutcome(
            path,
            "pending",
            run,
            rank,
            reason,
            hints.Hint(
                "ingest it again later, or with settle_s=0", "ingest it again later, or with --settle 0"
            ),
        )
    if report.why == "other":
        return other_format(Candidate(path, named), report.kind, report.details)
    assert report.failure is not None
    if options.inbox and source.remote is not None and GONE in report.failure.message:
        return FileOutcome(path, "skipped", run, rank, BY_ANOTHER_PROCESS)
    reason = report.failure.message.removeprefix(f"{path}: ")
    details = report.failure.details
    return FileOutcome(path, "refused", run, rank, reason, report.failure.hint, details=details)
