"""Where each source would go by what is known before it is read, and which sources are read by one task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tracewarehouse.formats.base import Format, Part, Status
from tracewarehouse.ingest.names import split_name, stem
from tracewarehouse.ingest.naming import Assignment, TraceFile, assign
from tracewarehouse.ingest.outcome import Options
from tracewarehouse.ingest.spans import Window
from tracewarehouse.ingest.survey import Mark, Surveyed
from tracewarehouse.storage import RankSource, Store

# A task holds what it made of small ranks until it writes them side by side into one file per table.
GROUP_RANKS = 64
GROUP_BYTES = 64 << 20
# `clean` deletes an unpublished commit after its grace, unless it waits: one this young is in no danger.
_FRESH = timedelta(hours=1)


@dataclass(frozen=True)
class Held:
    """The source of the same format that is stored at a place. `is_current`: as it would be built now."""

    digest: str
    status: Status
    text_bytes: int
    is_current: bool

    def gives_way(self, status: Status, text_bytes: int, replace: bool) -> bool:
        """Whether other content may take its place: publishing decides for good, by what is stored then."""
        if replace:
            return True
        return self.status == "damaged" and (status != "damaged" or text_bytes > self.text_bytes)


@dataclass(frozen=True)
class Left:
    """A commit for a place that a broken-off call did not publish."""

    digest: str
    status: Status
    uid: str
    manifest: str


@dataclass(frozen=True)
class Place:
    """A rank of a run that a source would be, and what is there. `world_size` is what its file name says."""

    run: str
    rank: int
    world_size: int | None = None
    held: Held | None = None
    left: Left | None = None

    @property
    def known_digest(self) -> str | None:
        """The content that need not be read as a whole."""
        if self.held and self.held.is_current:
            return self.held.digest
        return self.left.digest if self.left else None


@dataclass(frozen=True)
class Item:
    """A source to read; `number` counts the sources of the call. Without a place no tables are built of it.

    `mark` is what the file has to have still, as is `digest` where it was read before.
    """

    number: int
    path: Path
    format: Format
    part: Part
    mark: Mark
    text_bytes: int
    place: Place | None
    digest: str | None = None


@dataclass(frozen=True)
class Stored:
    """What is stored already, asked of the warehouse once per run.

    `definitions` are those by which tables are built now. With `time_unit` what was read in another unit is
    not what it would be now; without, the unit that was asked for before holds.
    """

    store: Store
    definitions: Mapping[str, int]
    time_unit: str | None = None
    step_range: str | None = None
    _left: dict[str, dict[int, list[RankSource]]] = field(default_factory=dict)

    def place(self, format_: Format, place: Assignment) -> Place | None:
        """A place and what is there; None where its run's name is taken in another spelling."""
        version = self.store.newest(place.run)
        if version and version.run != place.run:
            return None
        source, left = self.source(place.run, place.rank, format_), self.left(place.run, place.rank, format_)
        return Place(
            place.run,
            place.rank,
            place.world_size,
            self._held(source, format_) if source else None,
            Left(left.digest, left.status, left.uid, left.manifest) if left else None,
        )

    def source(self, run: str, rank: int, format_: Format) -> RankSource | None:
        """The published source of this format."""
        version = self.store.newest(run)
        found = version.rank(rank) if version else None
        sources = found.sources if found else ()
        return next((one for one in sources if one.format == format_.name), None)

    def left(self, run: str, rank: int, format_: Format) -> RankSource | None:
        """A commit as it would be built now that no version holds and `clean` will not delete yet."""
        if run not in self._left:
            self._left[run] = self._find_left(run)
        found = [one for one in self._left[run].get(rank, []) if one.format == format_.name]
        return next((one for one in found if self._is_current(one, format_)), None)

    def _find_left(self, run: str) -> dict[int, list[RankSource]]:
        waiting = {one.source.name for one in self.store.waiting(run)}
        found: dict[int, list[RankSource]] = defaultdict(list)
        for source in self.store.unpublished(run):
            age = datetime.now(UTC) - datetime.fromisoformat(source.committed_at)
            if age < _FRESH or source.name in waiting:
                found[source.rank].append(source)
        return found

    def known(self, one: Item) -> RankSource | None:
        """The source whose content an item need not read as a whole."""
        if one.place is None or one.place.known_digest is None:
            return None
        if one.place.held and one.place.held.is_current:
            return self.source(one.place.run, one.place.rank, one.format)
        return self.left(one.place.run, one.place.rank, one.format)

    def _held(self, source: RankSource, format_: Format) -> Held:
        return Held(source.digest, source.status, source.text_bytes, self._is_current(source, format_))

    def _is_current(self, source: RankSource, format_: Format) -> bool:
        """Whether a source was read and built as it would be now."""
        is_same_unit = self.time_unit in (None, source.facts.get("time_unit"))
        is_same_range = self.step_range in (None, source.facts.get("step_range"))
        return (
            is_same_unit
            and is_same_range
            and source.is_current(format_.name, format_.version, self.definitions)
        )


def provisional(sources: Sequence[Surveyed], options: Options) -> dict[int, Assignment]:
    """Number of a source → its place by file names, hints and options; without one it is read only.

    The rules are those of the final naming. Files that contend for one place mostly are successive profiling
    windows, in the order of their names.
    """
    numbers = {(one.path, one.part.name): number for number, one in enumerate(sources)}
    files = [_as_read(one) for one in sources]
    run = None if options.inbox else options.run
    naming = assign(files, windows=lambda paths: _guess(paths, sources), run=run, rank=options.rank)
    return {numbers[one.path, one.part]: one for one in naming.assigned}


def _as_read(source: Surveyed) -> TraceFile:
    """A source as if no two had the same content."""
    part, dropped = source.part, source.dropped
    world_size = part.world_size if part.world_size is not None or dropped is None else dropped.world_size
    run, span = (dropped.run, dropped.span) if dropped else (None, None)
    return TraceFile(source.path, str(source.path), part.rank, world_size, False, run, span, part.name)


def _guess(paths: Sequence[Path], sources: Sequence[Surveyed]) -> dict[Path, Window]:
    """Windows by hints; else successive ones where names of a rank differ in time only; else one for all."""
    wanted = frozenset(paths)
    parts = [(one.path, one.part) for one in sources if one.path in wanted]
    hints = {path: part.window for path, part in parts if part.window is not None}
    if len(hints) == len(wanted):
        return dict(hints)
    if not _are_successive(parts):
        return dict.fromkeys(paths, (0, 1))
    return {path: (index, index + 1) for index, path in enumerate(sorted(wanted))}


def _are_successive(parts: Iterable[tuple[Path, Part]]) -> bool:
    """Whether no file of a rank has the name of another rank, or that of another file with another ending."""
    by_rank: dict[int | None, list[tuple[int | None, str]]] = defaultdict(list)
    for path, part in parts:
        said = split_name(path.name).rank
        by_rank[part.rank if part.rank is not None else said].append((said, stem(path.name)))
    return all(
        len({said for said, _ in names}) == 1 and len({text for _, text in names}) == len(names)
        for names in by_rank.values()
    )


def item(stored: Stored, number: int, source: Surveyed, place: Assignment | None) -> Item:
    """A source with its place and what is stored there."""
    return Item(
        number,
        source.path,
        source.format,
        source.part,
        source.mark,
        source.text_bytes,
        stored.place(source.format, place) if place else None,
    )


def groups(items: Iterable[Item], jobs: int) -> list[tuple[Item, ...]]:
    """The items of each task: one large source, or small ones of one run in order of rank; largest first.

    As many tasks as processes, at least: no core is left idle while another packs many small ranks.
    """
    by_run: dict[str | None, list[Item]] = defaultdict(list)
    for one in items:
        by_run[one.place.run if one.place else None].append(one)
    total_bytes = sum(one.text_bytes for members in by_run.values() for one in members)
    limit = min(GROUP_BYTES, -(-total_bytes // jobs))
    found = [group for members in by_run.values() for group in _cut(members, limit)]
    return sorted(found, key=lambda group: -sum(one.text_bytes for one in group))


def _cut(members: Sequence[Item], limit: int) -> Iterable[tuple[Item, ...]]:
    group: list[Item] = []
    size = 0
    for one in sorted(members, key=lambda one: (one.place.rank if one.place else 0, one.number)):
        if group and (len(group) == GROUP_RANKS or size + one.text_bytes > limit):
            yield tuple(group)
            group, size = [], 0
        group.append(one)
        size += one.text_bytes
    if group:
        yield tuple(group)
