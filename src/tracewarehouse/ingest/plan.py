"""The plan of an ingest: what is stored already, run and rank of each source, and what is left to read.

A source of an object has the fact `source_object`: a hash of URL, size and tag, the number of sources in the
object, and what the object says about rank and world size. An object without it, or of another tag, is
downloaded, and found by the digest of its content.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.engines import Failure
from tracewarehouse.errors import DamagedRunError
from tracewarehouse.formats.base import Format, Outcome, Part, Status
from tracewarehouse.formats.registry import format_named
from tracewarehouse.ingest.assignment import (
    Assignment,
    Duplicate,
    NameCleaner,
    Naming,
    Refusal,
    TimeWindow,
    assign,
)
from tracewarehouse.ingest.naming import TraceFile, folder_run_name, number, split_name, stem
from tracewarehouse.ingest.open_files import GONE, FileStamp, RemoteFile
from tracewarehouse.ingest.outcome import BY_ANOTHER_PROCESS, Content, FileOutcome, Options, left_content
from tracewarehouse.ingest.survey import Candidate, SurveyedSource, other_format
from tracewarehouse.storage import Json, RankSource, RunVersion, Store, layout
from tracewarehouse.storage.parquet_file import Level, fault

# `clean` deletes unpublished commits after a grace period, unless they wait; younger ones can be reused.
_FRESH = timedelta(hours=1)


class PublishedSource(Struct, frozen=True):
    """The published source of the same format for a target; `is_current` if a build now would be equal."""

    digest: str
    status: Status
    text_bytes: int
    is_current: bool

    def may_be_replaced_by(self, status: Status, text_bytes: int, replace: bool) -> bool:
        """Whether other content may replace it. Publishing decides finally, by what is stored then."""
        if replace:
            return True
        return self.status == "damaged" and (status != "damaged" or text_bytes > self.text_bytes)


class UnpublishedSource(Struct, frozen=True):
    """A commit for a target that an interrupted call did not publish."""

    digest: str
    status: Status
    uid: str
    manifest: str


class Target(Struct, frozen=True):
    """The run and rank that a source will be stored as, and what is stored. `world_size`: as in the name."""

    run: str
    rank: int
    world_size: int | None = None
    published: PublishedSource | None = None
    unpublished: UnpublishedSource | None = None

    @property
    def known_digest(self) -> str | None:
        """The digest of content that need not be read completely."""
        if self.published and self.published.is_current:
            return self.published.digest
        return self.unpublished.digest if self.unpublished else None


class StoredSources(Struct, frozen=True):
    """What is already stored, read once per run.

    `definitions` are the current definitions of tables. With `time_unit`, sources that were read in another
    unit are outdated; without it, the unit of the earlier call stays. The same applies to `step_range`.
    Sources that were redacted are outdated without `redact`, and the others with it. With `replace` every
    source is outdated, and always one with a missing or damaged file. Without `reuse`, commits that
    interrupted calls left are not used.
    """

    store: Store
    definitions: Mapping[str, int]
    time_unit: str | None = None
    step_range: str | None = None
    replace: bool = False
    redact: bool = True
    reuse: bool = True
    _unpublished_by_run: dict[str, dict[int, list[RankSource]]] = field(default_factory=dict)
    # What `target` has read: the newest version of each run, or why it cannot be read.
    _newest_by_run: dict[str, RunVersion | DamagedRunError | None] = field(default_factory=dict)

    # Whether files of sources are damaged, by their keys: ranks share files.
    _damaged: dict[frozenset[str], bool] = field(default_factory=dict)

    def look_again(self) -> None:
        """Other calls may have published: the next targets are those of the current versions."""
        self._newest_by_run.clear()
        if not self.store.is_remote:
            self._damaged.clear()

    def target(self, format_: Format, assignment: Assignment) -> Target | None:
        """The target of an assignment; None if its run is damaged or exists in another spelling."""
        version = self._newest(assignment.run)
        if isinstance(version, DamagedRunError) or (version and version.run != assignment.run):
            return None
        source, unpublished = (
            _source_in(version, assignment.rank, format_),
            self.unpublished(assignment.run, assignment.rank, format_),
        )
        return Target(
            assignment.run,
            assignment.rank,
            assignment.world_size,
            self._published(source, format_, version.sources) if source and version else None,
            UnpublishedSource(unpublished.digest, unpublished.status, unpublished.uid, unpublished.manifest)
            if unpublished
            else None,
        )

    def damage(self, run: str) -> DamagedRunError | None:
        """The error of a run whose newest version is damaged."""
        found = self._newest(run)
        return found if isinstance(found, DamagedRunError) else None

    def source(self, run: str, rank: int, format_: Format) -> RankSource | None:
        """The published source of this format."""
        found = self._newest(run)
        if isinstance(found, DamagedRunError):
            raise found
        return _source_in(found, rank, format_)

    def _newest(self, run: str) -> RunVersion | DamagedRunError | None:
        if run not in self._newest_by_run:
            try:
                self._newest_by_run[run] = self.store.newest(run)
            except DamagedRunError as error:
                self._newest_by_run[run] = error
        return self._newest_by_run[run]

    def unpublished(self, run: str, rank: int, format_: Format) -> RankSource | None:
        """An unpublished, current commit that `clean` will not delete yet."""
        found = [one for one in self.unpublished_of(run) if (one.rank, one.format) == (rank, format_.name)]
        return next((one for one in found if self._is_current(one, format_)), None)

    def unpublished_of(self, run: str) -> list[RankSource]:
        """The unpublished commits of a run that `clean` will not delete yet; none with `reuse` off."""
        if not self.reuse:
            return []
        if run not in self._unpublished_by_run:
            waiting = {one.source.name for one in self.store.pending(run)}
            by_rank: dict[int, list[RankSource]] = defaultdict(list)
            for source in self.store.unpublished(run):
                age = datetime.now(UTC) - datetime.fromisoformat(source.committed_at)
                if age < _FRESH or source.name in waiting:
                    by_rank[source.rank].append(source)
            self._unpublished_by_run[run] = by_rank
        return [source for of_rank in self._unpublished_by_run[run].values() for source in of_rank]

    def holds(self, source: RankSource) -> bool:
        """Whether the newest version of its run holds this source."""
        version = self._newest(source.run)
        return isinstance(version, RunVersion) and any(one.name == source.name for one in version.sources)

    def is_reusable(self, source: RankSource) -> bool:
        """Whether a source would be read and built the same now, and its files are there."""
        format_ = format_named(source.format)
        version = self._newest(source.run)
        beside = version.sources if isinstance(version, RunVersion) and self.holds(source) else (source,)
        return format_ is not None and self._published(source, format_, beside).is_current

    def known(self, target: Target | None, format_: Format) -> RankSource | None:
        """The source whose content need not be read completely to be stored at a target."""
        if target is None or target.known_digest is None:
            return None
        if target.published and target.published.is_current:
            return self.source(target.run, target.rank, format_)
        return self.unpublished(target.run, target.rank, format_)

    def _published(
        self, source: RankSource, format_: Format, beside: Sequence[RankSource]
    ) -> PublishedSource:
        is_current = not self.replace and self._is_current(source, format_)
        is_current = is_current and not self._has_damage(source, beside)
        return PublishedSource(source.digest, source.status, source.text_bytes, is_current)

    def _has_damage(self, source: RankSource, beside: Sequence[RankSource]) -> bool:
        """Whether a file of a source is missing or damaged; in a store, those `beside` it are listed too."""
        key = frozenset(file.path for file in source.files)
        if key not in self._damaged and self.store.is_remote:
            missing = self.store.missing_files(beside)
            for one in beside:
                paths = frozenset(file.path for file in one.files)
                self._damaged[paths] = not missing.isdisjoint(paths)
        elif key not in self._damaged:
            self._damaged[key] = has_damage(self.store, source)
        return self._damaged[key]

    def _is_current(self, source: RankSource, format_: Format) -> bool:
        """Whether a source would be read and built the same now."""
        options = {"time_unit": self.time_unit, "step_range": self.step_range}
        is_same = source.is_redacted == self.redact and all(
            value in (None, source.facts.get(name)) for name, value in options.items()
        )
        return is_same and source.is_current(format_.name, format_.version, self.definitions)


def _source_in(version: RunVersion | None, rank: int, format_: Format) -> RankSource | None:
    """The source of this format of a rank."""
    found = version.rank(rank) if version else None
    sources = found.sources if found else ()
    return next((one for one in sources if one.format == format_.name), None)


def has_damage(store: Store, source: RankSource) -> bool:
    """Whether a file of the source is missing, or its size or footer differs from what was written.

    In an object store only sizes are compared: its files would be downloaded for the rest.
    """
    if store.is_remote:
        return store.missing_file([source]) is not None
    return any(fault(store.path(file.path), file, Level.FOOTER) is not None for file in source.files)


# A task holds the tables of small ranks in memory until it writes them side by side, one file per table.
GROUP_RANKS = 64
GROUP_BYTES = 64 << 20


class Item(Struct, frozen=True):
    """A source to read; `number` is its index in the call. Without a target its tables are not built.

    The file must still have this `stamp`, and this `digest` if it was read before.
    """

    number: int
    path: Path
    format: Format
    part: Part
    stamp: FileStamp
    text_bytes: int
    target: Target | None
    digest: str | None = None
    remote: RemoteFile | None = None

    def may_be_read_again(self, read: ReadSource) -> bool:
        """Whether the call may need the file after this: to build it at another place, or to compare it."""
        published = self.target.published if self.target else None
        is_compared = published is not None and published.status == "damaged"
        return not read.known and (read.content is None or is_compared)


def provisional_assignments(
    sources: Sequence[SurveyedSource], options: Options, clean: NameCleaner = str
) -> dict[int, Assignment]:
    """Index of a source → its run and rank by file names, format hints and options, where known.

    The rules are those of the final assignment. Files that compete for a rank are assumed to be successive
    profiling windows, in the order of their names.
    """
    numbers = {(one.path, one.part.name): number for number, one in enumerate(sources)}
    files = [_as_read(one) for one in sources]
    run = None if options.inbox else options.run
    naming = assign(
        files, windows=lambda paths: _guess(paths, sources), run=run, rank=options.rank, clean=clean
    )
    return {numbers[one.path, one.part]: one for one in naming.assigned}


def _as_read(source: SurveyedSource) -> TraceFile:
    """A source as if all sources had different content."""
    part, note = source.part, source.note
    world_size = part.world_size if part.world_size is not None or note is None else note.world_size
    run, window_number = (note.run, note.window_number) if note else (None, None)
    return TraceFile(
        source.path,
        str(source.path),
        part.rank,
        world_size,
        False,
        run,
        window_number,
        part.name,
        part.addition,
    )


def _guess(paths: Sequence[Path], sources: Sequence[SurveyedSource]) -> dict[Path, TimeWindow]:
    """Windows by format hints; else successive ones if names of a rank differ only in time; else the same."""
    wanted = frozenset(paths)
    parts = [(one.path, one.part) for one in sources if one.path in wanted]
    hints = {path: part.window for path, part in parts if part.window is not None}
    if len(hints) == len(wanted):
        return dict(hints)
    if not _are_successive(parts):
        return dict.fromkeys(paths, (0, 1))
    return {path: (index, index + 1) for index, path in enumerate(sorted(wanted))}


def _are_successive(parts: Iterable[tuple[Path, Part]]) -> bool:
    """Whether the files of each rank name the same rank, and do not differ only in their suffix."""
    by_rank: dict[int | None, list[tuple[int | None, str]]] = defaultdict(list)
    for path, part in parts:
        in_name = split_name(path.name).rank
        by_rank[part.rank if part.rank is not None else in_name].append((in_name, stem(path.name)))
    return all(
        len({in_name for in_name, _ in names}) == 1 and len({text for _, text in names}) == len(names)
        for names in by_rank.values()
    )


def item_of(
    stored: StoredSources, number: int, source: SurveyedSource, assignment: Assignment | None
) -> Item:
    """A source with its target."""
    return Item(
        number,
        source.path,
        source.format,
        source.part,
        source.stamp,
        source.text_bytes,
        stored.target(source.format, assignment) if assignment else None,
        remote=source.remote,
    )


def task_groups(items: Iterable[Item], jobs: int) -> list[tuple[Item, ...]]:
    """The items of each task: one large source, or small ones of one run in order of rank; largest first.

    There are at least as many tasks as processes, so that no core idles while another one packs small ranks.
    """
    # Two sources of a rank are never in one task.
    by_run: dict[tuple[str | None, str], list[Item]] = defaultdict(list)
    for one in items:
        by_run[one.target.run if one.target else None, one.part.addition].append(one)
    total_bytes = sum(one.text_bytes for members in by_run.values() for one in members)
    limit = min(GROUP_BYTES, -(-total_bytes // jobs))
    found = [group for members in by_run.values() for group in _consecutive_groups(members, limit)]
    return sorted(found, key=lambda group: -sum(one.text_bytes for one in group))


def _consecutive_groups(members: Sequence[Item], limit: int) -> Iterable[tuple[Item, ...]]:
    group: list[Item] = []
    size = 0
    for one in sorted(members, key=lambda one: (one.target.rank if one.target else 0, one.number)):
        if group and (len(group) == GROUP_RANKS or size + one.text_bytes > limit):
            yield tuple(group)
            group, size = [], 0
        group.append(one)
        size += one.text_bytes
    if group:
        yield tuple(group)


class BuiltTables(Struct, frozen=True):
    """Where the built tables of a source are: in a commit, by its manifest, or staged in a folder."""

    run: str
    rank: int
    uid: str
    manifest: str = ""
    staged: Path | None = None


class ReadSource(Struct, frozen=True):
    """A source that was read; `known` if it was only read enough to see that it is already stored.

    `rank` and `world_size` are those in the source, `window` is the first start and last end of its slices.
    Without `built` its tables were not built.
    """

    number: int
    digest: str
    status: Status
    text_bytes: int
    rank: int | None = None
    world_size: int | None = None
    window: TimeWindow = (None, None)
    known: bool = False
    content: Content | None = None
    built_tables: BuiltTables | None = None


class UnreadSource(Struct, frozen=True):
    """Why a source was not read.

    `changed`: its file was written to; `unfinished`: it is truncated and was just modified; `other`: it is of
    another `kind`, which only reading it showed, with `details`.
    """

    number: int
    why: Literal["failed", "changed", "unfinished", "other"]
    failure: Failure | None = None
    kind: str = ""
    details: str | None = None


Report: TypeAlias = ReadSource | UnreadSource


_FACT: Final = "source_object"


def object_fact(item: Item, salt: bytes, outcome: Outcome) -> dict[str, Json]:
    """The fact of a source that was read from an object; nothing for a file."""
    if item.remote is None:
        return {}
    found: dict[str, Json] = {"id": item.remote.object.identity(salt), "parts": item.remote.parts}
    found |= {"rank": outcome.rank, "world_size": outcome.world_size, "addition": item.part.addition}
    return {_FACT: found}


class StoredObjects(Struct, frozen=True):
    """The stored sources of the objects of a call. `clean` returns a name without secrets."""

    stored: StoredSources
    copies: Path
    clean: Callable[[str], str]

    def sources(self, files: Sequence[Candidate], run: str | None) -> list[SurveyedSource]:
        """The sources of those objects that are stored completely and would be read the same now."""
        remote = [(file, file.remote) for file in files if file.remote]
        if not remote or self.stored.replace:
            return []
        known = self._by_object([file for file, _ in remote], run)
        salt = self.stored.store.salt
        return [
            _surveyed(file, RemoteFile.of(each, self.copies).of_parts(len(parts)), source)
            for file, each in remote
            for parts in [known.get(each.identity(salt), {})]
            for source in parts.values()
        ]

    def _by_object(self, files: Sequence[Candidate], run: str | None) -> dict[str, dict[str, RankSource]]:
        """Hash of an object → the sources by part; only of objects of which every part is stored."""
        found: dict[str, dict[str, RankSource]] = {}
        # The files may belong to these runs, by the names of their folders.
        names = {run} if run is not None else {file.path.parent.name for file in files}
        texts = {re.escape(folder_run_name(self.clean(name)).lower()) for name in names}
        pattern = re.compile(rf"(?:^|\.)(?:{'|'.join(sorted(texts))})(?:$|[.~])")
        store = self.stored.store
        keys = {*store.keys(layout.RUNS), *store.keys(layout.SOURCES)}
        for key in sorted(key for key in keys if pattern.search(key)):
            for source in self._sources(key):
                identity = _fact(source).get("id")
                if isinstance(identity, str):
                    found.setdefault(identity, {}).setdefault(source.part, source)
        return {
            identity: parts
            for identity, parts in found.items()
            if all(_fact(source).get("parts") == len(parts) for source in parts.values())
            and all(self.stored.is_reusable(source) for source in parts.values())
        }

    def _sources(self, run: str) -> Iterator[RankSource]:
        """The published sources of a run, then the unpublished ones."""
        try:
            version = self.stored.store.newest(run)
        except DamagedRunError:
            return
        yield from version.sources if version else ()
        yield from self.stored.unpublished_of(run)


def read_before(number_: int, source: SurveyedSource, published: bool) -> ReadSource:
    """The report of a source as an earlier call read it."""
    stored = source.stored
    assert stored is not None
    said = _fact(stored)
    start, end = stored.facts.get("start_ns"), stored.facts.get("end_ns")
    window = (start, end) if isinstance(start, int) and isinstance(end, int) else (None, None)
    return ReadSource(
        number_,
        stored.digest,
        stored.status,
        stored.text_bytes,
        number(said.get("rank")),
        number(said.get("world_size")),
        window,
        known=True,
        content=None if published else left_content(stored),
        built_tables=None if published else BuiltTables(stored.run, stored.rank, stored.uid, stored.manifest),
    )


def _surveyed(file: Candidate, remote: RemoteFile, source: RankSource) -> SurveyedSource:
    format_ = format_named(source.format)
    assert format_ is not None
    said = _fact(source)
    rank, world_size = number(said.get("rank")), number(said.get("world_size"))
    part = Part(source.part, rank, world_size, addition=str(said.get("addition") or ""))
    return SurveyedSource(file.path, file.stamp, format_, part, source.text_bytes, file.note, remote, source)


def _fact(source: RankSource) -> Mapping[str, Json]:
    found = source.facts.get(_FACT)
    return found if isinstance(found, dict) else {}


class ReadySource(Struct, frozen=True):
    """A source whose tables are built for its run and rank."""

    source: SurveyedSource
    assignment: Assignment
    read: ReadSource
    built_tables: BuiltTables


class Decisions(Struct):
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
