"""Provisional placement of each source, tasks that read sources, and what a task reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, TypeAlias

from tracewarehouse.engines import Failure
from tracewarehouse.errors import DamagedRunError
from tracewarehouse.formats.base import Format, Part, Status
from tracewarehouse.formats.registry import format_named
from tracewarehouse.ingest.naming.assignment import Assignment, NameCleaner, TimeWindow, assign
from tracewarehouse.ingest.naming.file_names import split_name, stem
from tracewarehouse.ingest.naming.run_names import TraceFile
from tracewarehouse.ingest.open_files import FileStamp
from tracewarehouse.ingest.outcome import Content, Options
from tracewarehouse.ingest.remote_file import RemoteFile
from tracewarehouse.ingest.survey import SurveyedSource
from tracewarehouse.storage import RankSource, RunVersion, Store
from tracewarehouse.storage.file_check import Level, fault

# A task holds the tables of small ranks in memory until it writes them side by side, one file per table.
GROUP_RANKS = 64
GROUP_BYTES = 64 << 20
# `clean` deletes unpublished commits after a grace period, unless they wait; younger ones can be reused.
_FRESH = timedelta(hours=1)


@dataclass(frozen=True)
class PublishedSource:
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


@dataclass(frozen=True)
class UnpublishedSource:
    """A commit for a target that an interrupted call did not publish."""

    digest: str
    status: Status
    uid: str
    manifest: str


@dataclass(frozen=True)
class Target:
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


@dataclass(frozen=True)
class Item:
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


@dataclass(frozen=True)
class StoredSources:
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
            self._unpublished_by_run[run] = self._find_unpublished(run)
        return [source for found in self._unpublished_by_run[run].values() for source in found]

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

    def _find_unpublished(self, run: str) -> dict[int, list[RankSource]]:
        waiting = {one.source.name for one in self.store.pending(run)}
        found: dict[int, list[RankSource]] = defaultdict(list)
        for source in self.store.unpublished(run):
            age = datetime.now(UTC) - datetime.fromisoformat(source.committed_at)
            if age < _FRESH or source.name in waiting:
                found[source.rank].append(source)
        return found

    def known(self, one: Item) -> RankSource | None:
        """The source whose content an item need not read completely."""
        if one.target is None or one.target.known_digest is None:
            return None
        if one.target.published and one.target.published.is_current:
            return self.source(one.target.run, one.target.rank, one.format)
        return self.unpublished(one.target.run, one.target.rank, one.format)

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


@dataclass(frozen=True)
class BuiltTables:
    """Where the built tables of a source are: in a commit, by its manifest, or staged in a folder."""

    run: str
    rank: int
    uid: str
    manifest: str = ""
    staged: Path | None = None


@dataclass(frozen=True)
class ReadSource:
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


@dataclass(frozen=True)
class UnreadSource:
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
