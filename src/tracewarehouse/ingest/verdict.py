"""What becomes of each source after all were read: the final naming, held against where tables were built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tracewarehouse import hints
from tracewarehouse.errors import DamagedRunError
from tracewarehouse.ingest.discover import Candidate
from tracewarehouse.ingest.naming import Assignment, Duplicate, Naming, Refusal, TraceFile, assign
from tracewarehouse.ingest.outcome import FileOutcome, Options
from tracewarehouse.ingest.plan import Item, Stored, item
from tracewarehouse.ingest.reports import Made, NotRead, Read
from tracewarehouse.ingest.survey import Surveyed, other_format
from tracewarehouse.storage import RankSource, Store


@dataclass(frozen=True)
class Ready:
    """A source whose tables are built for the place that it has."""

    source: Surveyed
    place: Assignment
    read: Read
    made: Made


@dataclass
class Verdicts:
    """What is settled, what is ready to be published, and what has to be built at another place."""

    settled: list[FileOutcome] = field(default_factory=list)
    ready: list[Ready] = field(default_factory=list)
    again: list[Item] = field(default_factory=list)
    places: dict[int, Assignment] = field(default_factory=dict)


def name_all(sources: Sequence[Surveyed], reads: Mapping[int, Read], options: Options) -> Naming:
    """The final places of all sources that were read, by what is known of all of them."""
    windows = {sources[number].path: read.window for number, read in reads.items()}
    files = [_trace_file(sources[number], read) for number, read in reads.items()]
    run = None if options.inbox else options.run
    return assign(
        files, windows=lambda paths: {path: windows[path] for path in paths}, run=run, rank=options.rank
    )


def _trace_file(source: Surveyed, read: Read) -> TraceFile:
    dropped = source.dropped
    world_size = read.world_size if read.world_size is not None or dropped is None else dropped.world_size
    return TraceFile(
        source.path,
        read.digest,
        read.rank,
        world_size,
        read.status == "damaged",
        dropped.run if dropped else None,
        dropped.span if dropped else None,
        source.part.name,
    )


def judge(
    stored: Stored,
    options: Options,
    sources: Sequence[Surveyed],
    reads: Mapping[int, Read],
    naming: Naming,
) -> Verdicts:
    """Holds what naming says against what is stored and what was built."""
    numbers = {(sources[number].path, sources[number].part.name): number for number in reads}
    found = Verdicts()
    found.settled += [_duplicate(one) for one in naming.duplicates]
    found.settled += [
        _refused(stored.store, one, reads[numbers[one.path, one.part]]) for one in naming.refusals
    ]
    for place in naming.assigned:
        number = numbers[place.path, place.part]
        found.places[number] = place
        _judge_one(stored, options, number, sources[number], reads[number], place, found)
    return found


def _judge_one(
    stored: Stored,
    options: Options,
    number: int,
    source: Surveyed,
    read: Read,
    place: Assignment,
    found: Verdicts,
) -> None:
    made = read.made
    if made and (made.run, made.rank) == (place.run, place.rank):
        found.ready.append(Ready(source, place, read, made))
        return
    if (damage := stored.damage(place.run)) is not None:
        found.settled.append(
            FileOutcome(
                place.path, "refused", place.run, place.rank, damage.message, damage.hint, place.notes
            )
        )
        return
    wanted = stored.place(source.format, place)
    held = wanted.held if wanted else None
    if wanted is None:
        found.settled.append(_other_spelling(stored.store, place))
    elif held and held.digest == read.digest and held.is_current:
        found.settled.append(
            FileOutcome(place.path, "same", place.run, place.rank, "already stored", notes=place.notes)
        )
    elif (
        held
        and held.digest != read.digest
        and not held.gives_way(read.status, read.text_bytes, options.replace)
    ):
        found.settled.append(conflict(place, stored.source(place.run, place.rank, source.format)))
    else:
        again = item(stored, number, source, place)
        found.again.append(replace(again, digest=read.digest, text_bytes=read.text_bytes))


def _other_spelling(store: Store, place: Assignment) -> FileOutcome:
    other = store.spelling(place.run)
    reason = f"run {place.run}: run names are case-insensitive, and run {other} already exists"
    hint = hints.fill("use {}, or another name", hints.option("run", other))
    return FileOutcome(place.path, "refused", place.run, place.rank, reason, hint)


def _duplicate(one: Duplicate) -> FileOutcome:
    return FileOutcome(one.path, "skipped", one.run, one.rank, f"same content as {one.of.name}")


def _refused(store: Store, one: Refusal, read: Read) -> FileOutcome:
    """Refused, unless someone followed the hint before: then its content is a rank of that run."""
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


def conflict(place: Assignment, stored: RankSource | None) -> FileOutcome:
    """The refusal of a file whose place is held by other content."""
    source = stored.facts.get("source_name") if stored else None
    reason = f"rank {place.rank} of run {place.run} already exists with different content"
    hint = hints.fill(
        "{} overwrites it, {} stores it as another run", hints.option("replace"), hints.option("run", "NAME")
    )
    reason = f"{reason}, from {source}" if source else reason
    return FileOutcome(place.path, "refused", place.run, place.rank, reason, hint)


def not_read(
    source: Surveyed, report: NotRead, options: Options, named: bool, place: Assignment | None = None
) -> FileOutcome:
    """What becomes of a file that gave no tables; `place` where it was to be built a second time."""
    path = source.path
    run, rank = (place.run, place.rank) if place else (None, None)
    if options.inbox and not path.exists():
        return FileOutcome(path, "skipped", run, rank, "already ingested by another process")
    if report.why == "changed":
        return FileOutcome(path, "pending", run, rank, "changed while it was read", "ingest it again later")
    if report.why == "unfinished":
        reason = f"ends in mid-trace and was written to less than {options.settle_s:g} s ago"
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
        return other_format(Candidate(path, named), report.kind)
    assert report.failure is not None
    reason = report.failure.message.removeprefix(f"{path}: ")
    details = report.failure.details
    return FileOutcome(path, "refused", run, rank, reason, report.failure.hint, details=details)
