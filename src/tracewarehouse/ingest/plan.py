"""Provisional placement of each source, tasks that read sources, and what a task reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from tracewarehouse.engines import Failure
from tracewarehouse.formats.base import Format, Part, Status
from tracewarehouse.ingest.naming.assignment import Assignment, NameCleaner, TimeWindow, assign
from tracewarehouse.ingest.naming.file_names import split_name, stem
from tracewarehouse.ingest.naming.run_names import TraceFile
from tracewarehouse.ingest.open_files import FileStamp
from tracewarehouse.ingest.outcome import Content, Options
from tracewarehouse.ingest.remote_file import RemoteFile
from tracewarehouse.ingest.stored_sources import StoredSources, Target
from tracewarehouse.ingest.survey import SurveyedSource

# A task holds the tables of small ranks in memory until it writes them side by side, one file per table.
GROUP_RANKS = 64
GROUP_BYTES = 64 << 20


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
