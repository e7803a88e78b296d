"""Which source is which run and rank: a pure function of paths, of what the files say, and of options.

The run is the requested one, else what the trace handler noted, else the stem of the file without rank, host
and time if that is distinctive, else the folder if the file says a rank, else the stem. Content that is
stored under another name keeps that name (`renamed` in `stored.py`). So the name of a file does not depend on
the others of a call, except that parent folders are put in front until names differ, and nodes that have a
rank in common are apart. The rank comes from the trace, else from the names of file and folder, else from the
options, and is 0 if no source specifies one; if a call has a single source, the option comes first. Several
profiling windows of a job become the runs `RUN~1`, `RUN~2`, …. In the inbox, later starts of a job become
`RUN+1`, `RUN+2`, ….
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.errors import ExpressionError, ParamError
from tracewarehouse.ingest.attempts import Attempt, number_attempts, recording_of, run_of_attempt
from tracewarehouse.ingest.naming import (
    COORDINATES,
    NameParts,
    folder_of,
    folder_run_name,
    is_distinctive,
    split_path,
    stem,
)
from tracewarehouse.ingest.outcome import FileOutcome, Options
from tracewarehouse.ingest.sources import Source, Target, TimeWindow
from tracewarehouse.storage.layout import run_name

FileWindow: TypeAlias = tuple[Path, TimeWindow]
# Sources with one key are one run: folder of a job, node if it is a separate run, and what is distinctive of
# file names; "" for the folder.
RunKey: TypeAlias = tuple[PurePath, str, str]
_RENAMED: Final = "run {} is stored as {}: run names may contain A-Z a-z 0-9 . _ + = ~ -"


class Assigned(Struct):
    """The sources, each in one of the two lists, and notes on names.

    `sources` have a target; the others have the outcome of a duplicate or of a source without a place.
    """

    sources: list[Source] = []
    others: list[tuple[Source, FileOutcome]] = []
    notes: list[str] = []


class _Named(Struct, eq=False):
    """A source with the parts of its path.

    `distinctive`: the part of the file's name that names the run, "" if the folder names it.
    `says_rank`: the trace or its name specifies the rank. `is_apart`: another node has the same rank.
    """

    source: Source
    parts: NameParts
    distinctive: str
    says_rank: bool
    is_apart: bool = False
    rank: int | None = None
    notes: tuple[str, ...] = ()
    named_after: str = ""

    @property
    def run_key(self) -> RunKey:
        return self.parts.job, self.parts.place if self.is_apart else "", self.distinctive

    @property
    def window_number(self) -> int | None:
        """That of the trace handler."""
        return self.source.file.note.window_number if self.source.file.note else None


def _named(source: Source) -> _Named:
    path = source.file.path
    parts = split_path(folder_of(path) / path.name)
    is_in_name = parts.rank is not None or bool(parts.coordinates)
    # In a file of several processes, ranks are only numbers of the processes.
    is_in_trace = not source.part.name and source.world_size != 1
    is_in_trace &= source.rank is not None or source.world_size is not None
    distinctive = parts.stem
    if is_in_name or is_in_trace:
        rank = None if is_in_name else source.rank
        distinctive = parts.remainder if is_distinctive(parts.remainder, rank) else ""
    return _Named(source, parts, distinctive, is_in_name or source.rank is not None)


def assign(
    sources: Iterable[Source],
    options: Options,
    clean: Callable[[str], str] = str,
    attempts: Callable[[str], Sequence[Attempt]] = lambda _: (),
) -> Assigned:
    """Assigns a run and a rank to each source, or refuses it.

    Before the sources are read, this goes by their beginnings: files that compete for a rank are taken for
    successive profiling windows, in the order of their names. `clean` returns a name without secrets,
    `attempts` what is stored of a job in the inbox. Raises ParamError for an invalid run name.
    """
    call = _Call(sorted(sources, key=lambda source: source.key), options, clean, attempts)
    call.run()
    return call.result


class _Call(Struct):
    """One assignment; `sources` are in order of path."""

    sources: list[Source]
    options: Options
    clean: Callable[[str], str]
    attempts: Callable[[str], Sequence[Attempt]]
    result: Assigned = field(default_factory=Assigned)

    def run(self) -> None:
        named = [_named(source) for source in self.sources]
        _resolve_numbers(named)
        _resolve_additions(named)
        rank = self.options.rank
        for name, members in self._by_run(named, self.options.run).items():
            self._set_ranks(members, is_single=len(named) == 1)
            distinct = self._distinct(name, members)
            attempts = self._by_attempt(name, distinct) if self.options.inbox else {name: distinct}
            for attempt, group in attempts.items():
                self._set_targets(attempt, group)
        if rank is not None and len(named) > 1 and all(member.says_rank for member in named):
            self._note(hints.fill("{} is ignored: the files say their ranks", hints.option("rank", rank)))

    def _note(self, note: str) -> None:
        if note not in self.result.notes:
            self.result.notes.append(note)

    def _refuse(self, member: _Named, reason: str, hint: str, run: str | None = None) -> None:
        rank = member.rank if run else None
        outcome = FileOutcome(member.source.file.path, "refused", run, rank, reason, hint)
        self.result.others.append((member.source, outcome))

    def _by_run(self, named: Sequence[_Named], run: str | None) -> dict[str, list[_Named]]:
        """Run name → its sources; `run` is the requested one."""
        by_run: dict[str, list[_Named]] = defaultdict(list)
        requested = None if run is None else self._requested_name(run)
        if requested is not None and requested != self.clean(run or ""):
            raise ParamError(f"{run!r} is not a run name", f"a valid name is {requested}")
        unnamed: list[_Named] = []
        for member in named:
            if requested is not None:
                by_run[requested].append(member)
            elif member.source.file.note:
                by_run[self._requested_name(member.source.file.note.run)].append(member)
            else:
                unnamed.append(member)
        self._separate(unnamed)
        names = self._names(unnamed)
        for member in unnamed:
            if (name := names[member.run_key]) is not None:
                by_run[name].append(member)
                member.named_after = _named_after(member, name)
                continue
            hint = hints.fill("ingest it alone with {}", hints.option("run", "NAME"))
            self._refuse(member, "another folder of this call has the same run name", hint)
        return by_run

    def _requested_name(self, requested: str) -> str:
        requested = self._without_secrets(requested)
        if requested.startswith("@"):
            hint = "@latest and the like select runs; choose a name without @"
            raise ExpressionError(f"a run name does not begin with @: {requested!r}", hint)
        name, is_changed = run_name(requested)
        if is_changed:
            self._note(_RENAMED.format(requested, name))
        return name

    def _without_secrets(self, requested: str) -> str:
        name = self.clean(requested)
        if name != requested:
            self._note(f"the name of a run looked like a secret: it is stored as {name}")
        return name

    def _separate(self, named: Sequence[_Named]) -> None:
        """Nodes of a job that have a rank in common are different runs."""
        for members in _by_run_key(named).values():
            self._set_ranks(members, is_single=len(named) == 1)
            places: dict[tuple[int | None, str], set[str]] = defaultdict(set)
            for member in members:
                places[member.rank, member.source.part.addition].add(member.parts.place)
            for member in members:
                member.is_apart = any(len(of_rank) > 1 for of_rank in places.values())

    def _names(self, named: Sequence[_Named]) -> dict[RunKey, str | None]:
        """Run name per key; None if it equals an earlier one."""
        keys = list(_by_run_key(named))
        depths = _depths(keys)
        names: dict[RunKey, str | None] = {}
        used_names: set[str] = set()
        for key in keys:
            wanted_name = self._without_secrets(_wanted_name(key, depths[key]))
            name = folder_run_name(wanted_name)
            if name != wanted_name:
                self._note(_RENAMED.format(wanted_name, name))
            names[key] = None if name.lower() in used_names else name
            used_names.add(name.lower())
        return names

    def _set_ranks(self, members: Sequence[_Named], *, is_single: bool) -> None:
        """Ranks for the sources of one run; None if a source specifies no rank but others of the run do."""
        (by_coordinate, kinds), requested = _ranks_by_coordinate(members), self.options.rank
        if len(kinds) > 1:
            self._note(f"ranks are numbered by {', '.join(kinds).upper()} in the names of files")
        stated = {(member.source.file.path, member.source.rank) for member in members}
        for member in members:
            path, in_trace = member.source.file.path, member.source.rank
            token = member.parts.rank if member.parts.rank is not None else by_coordinate.get(path)
            if requested is not None and is_single:
                # With a single file, `--rank` is unambiguous and overrides what the file says.
                member.rank, in_file = requested, in_trace if in_trace is not None else token
                if in_file not in (None, requested):
                    member.notes = (f"stored as rank {requested}, although the file says rank {in_file}",)
            elif in_trace is not None:
                member.rank = in_trace
                if token not in (None, in_trace):
                    member.notes = (f"the file name says rank {token}, the trace rank {in_trace}",)
            else:
                member.rank = token if token is not None else requested
            # Another part of the file has the rank in its name.
            if member.source.part.name and (path, member.parts.rank) in stated:
                member.notes = ()
        if all(member.rank is None for member in members):
            for member in members:
                member.rank = 0

    def _distinct(self, run: str, members: Sequence[_Named]) -> list[_Named]:
        """The members of a run that have a rank, without duplicates; intact ones first."""
        distinct: list[_Named] = []
        contents: dict[tuple[object, ...], _Named] = {}
        for member in sorted(members, key=lambda member: member.source.is_damaged):
            source, part, path = member.source, member.source.part, member.source.file.path
            if member.rank is None:
                reason = f"the file does not specify a rank, and run {run} has several"
                hint = hints.fill("ingest this file alone with {}", hints.option("rank", "N"))
                self._refuse(member, reason, hint, run)
                continue
            digest = source.commit.digest if source.commit else path
            attempt = tuple(source.file.note.attempt.items()) if source.file.note else ()
            identity = (member.rank, digest, part.name, member.window_number, part.addition, attempt)
            first = contents.setdefault(identity, member)
            if first is member:
                distinct.append(member)
            else:
                reason = f"same content as {first.source.file.path.name}"
                self.result.others.append((source, FileOutcome(path, "skipped", run, member.rank, reason)))
        return distinct

    def _by_attempt(self, run: str, members: Sequence[_Named]) -> dict[str, list[_Named]]:
        """Name of the run of an attempt → its sources, in the order in which they were written."""
        stored = self.attempts(run)
        ordered = sorted(members, key=lambda member: (member.source.stamp[1], member.source.key))
        numbers = number_attempts([recording_of(one.source, one.rank or 0) for one in ordered], stored)
        by_attempt: dict[str, list[_Named]] = defaultdict(list)
        for member, number in zip(ordered, numbers, strict=True):
            by_attempt[run_of_attempt(run, number)].append(member)
            if number and number >= len(stored):
                self._note(f"{run_of_attempt(run, number)} is another start of job {run}")
        return by_attempt

    def _set_targets(self, run: str, members: Sequence[_Named]) -> None:
        """Numbers profiling windows; refuses the later of two sources for one rank."""
        numbered = self._window_numbers([member for member in members if not member.source.part.addition])
        numbered += [(member, member.window_number or 1) for member in members if member.source.part.addition]
        are_numbered = any(member.window_number is None and number > 1 for member, number in numbered)
        holders: dict[tuple[int, int | None, str], _Named] = {}
        for member, number in numbered:
            holder = holders.setdefault((number, member.rank, member.source.part.addition), member)
            if holder is not member:
                path = holder.source.file.path
                reason = f"rank {member.rank} of run {run} is already assigned to {path.name}"
                self._refuse(member, reason, _collision_hint(member, holder), run)
                continue
            # The handler's first window is the run itself: it cannot know whether others follow.
            spooled = member.window_number
            name = f"{run}~{number}" if are_numbered or (spooled is not None and spooled > 1) else run
            world_size = member.source.world_size
            target = Target(
                name,
                member.rank or 0,
                world_size if world_size is not None else member.parts.world_size,
                number if are_numbered or spooled is not None else None,
                member.notes,
                member.named_after,
            )
            self.result.sources.append(replace(member.source, target=target))

    def _window_numbers(self, members: Sequence[_Named]) -> list[tuple[_Named, int]]:
        """Each source with its window, 1 if there is only one; indistinguishable ones share a number."""
        by_rank: dict[int, list[_Named]] = defaultdict(list)
        for member in members:
            by_rank[member.rank or 0].append(member)
        is_numbered = all(member.window_number is not None for member in members)
        if is_numbered or all(len(group) == 1 for group in by_rank.values()):
            return [(member, member.window_number or 1) for member in members]
        # Windows belong to one job: only files whose names differ in rank and time alone qualify.
        if len({(member.parts.job, member.parts.place, member.parts.remainder) for member in members}) > 1:
            return [(member, 1) for member in members]
        windows = self._windows({member.source.file.path for member in members})
        numbers = number_windows(
            {
                rank: [(member.source.file.path, windows[member.source.file.path]) for member in group]
                for rank, group in by_rank.items()
            }
        )
        return [(member, numbers[member.source.file.path]) for member in members]

    def _windows(self, paths: Collection[Path]) -> dict[Path, TimeWindow]:
        """The profiling window of each file: as read, else by format hints, else by the order of names."""
        sources = [source for source in self.sources if source.file.path in paths]
        if all(source.commit for source in sources):
            return {source.file.path: source.committed.window for source in sources}
        hinted = {source.file.path: source.part.window for source in sources if source.part.window}
        if len(hinted) == len(paths):
            return {**hinted}
        if not _are_successive(sources):
            return dict.fromkeys(paths, (0, 1))
        return {path: (index, index + 1) for index, path in enumerate(sorted(paths))}


def _rank_names(path: Path) -> str:
    """Names of such files that say the rank."""
    ending = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    return f"rank0{ending}, rank1{ending}, …"


def _ranks_by_coordinate(members: Sequence[_Named]) -> tuple[dict[Path, int], Sequence[str]]:
    """Ranks by coordinates such as TP-3-DP-0, and the kinds of coordinates that number them.

    The tensor rank if it is unique, else by those that are not 0, the outermost first; by those of experts
    only if the others are not unique.
    """
    places = {
        member.source.file.path: dict(member.parts.coordinates)
        for member in members
        if member.parts.coordinates and member.parts.rank is None and member.source.rank is None
    }
    largest = {
        kind: max((place.get(kind, 0) for place in places.values()), default=0) for kind in COORDINATES
    }
    nonzero = [kind for kind in COORDINATES if largest[kind]]

    def numbers(kinds: Sequence[str]) -> dict[Path, int]:
        ranks = dict.fromkeys(places, 0)
        for kind in kinds:
            ranks = {
                path: rank * (largest[kind] + 1) + places[path].get(kind, 0) for path, rank in ranks.items()
            }
        return ranks

    for kinds in ([kind for kind in nonzero if kind == "tp"], [kind for kind in nonzero if kind != "ep"]):
        if kinds and len({*numbers(kinds).values()}) == len({*numbers(nonzero).values()}):
            return numbers(kinds), kinds
    return numbers(nonzero), nonzero


def _collision_hint(member: _Named, holder: _Named) -> str:
    token = member.parts.rank
    if token is not None and token != member.rank:
        return hints.fill("ingest this file alone with {}, the rank in its name", hints.option("rank", token))
    hint = hints.fill(
        "ingest this file alone with {} or {}", hints.option("run", "NAME"), hints.option("rank", "N")
    )
    if member.says_rank or holder.says_rank:
        return hint
    return hints.fill("name the files by rank ({}), or {}", _rank_names(member.source.file.path), hint)


def _are_successive(sources: Iterable[Source]) -> bool:
    """Whether the files of each rank name the same rank, and do not differ only in their suffix."""
    by_rank: dict[int | None, list[tuple[int | None, str]]] = defaultdict(list)
    for source in sources:
        path = source.file.path
        in_name = split_path(path).rank
        rank = source.part.rank if source.part.rank is not None else in_name
        by_rank[rank].append((in_name, stem(str(path))))
    return all(
        len({in_name for in_name, _ in names}) == 1 and len({text for _, text in names}) == len(names)
        for names in by_rank.values()
    )


def number_windows(by_rank: Mapping[int, Sequence[FileWindow]]) -> dict[Path, int]:
    """The window number of each file, from 1 by start time; files that overlap in time share a window.

    If ranks have different numbers of windows, the rank with the most (the first of several) is the
    reference: a file of another rank belongs to the window that it overlaps most, else to the nearest.
    """
    counted = {rank: _count(files) for rank, files in sorted(by_rank.items())}
    most = max(max(numbers.values()) for numbers in counted.values())
    model = next(rank for rank, numbers in counted.items() if max(numbers.values()) == most)
    reference = [(counted[model][path], *window) for path, window in by_rank[model]]
    numbers: dict[Path, int] = {}
    for rank, rank_numbers in counted.items():
        if max(rank_numbers.values()) == most:
            numbers.update(rank_numbers)
        else:
            numbers.update({path: _nearest(window, reference) for path, window in by_rank[rank]})
    return numbers


def _count(files: Sequence[FileWindow]) -> dict[Path, int]:
    if any(start is None or end is None for _, (start, end) in files):
        return {path: 1 for path, _ in files}
    numbers: dict[Path, int] = {}
    number, reached = 0, None
    for path, (start, end) in sorted(files, key=lambda file: (file[1], file[0])):
        assert start is not None and end is not None
        if reached is None or start >= reached:
            number += 1
        reached = end if reached is None else max(reached, end)
        numbers[path] = number
    return numbers


def _nearest(window: TimeWindow, reference: Sequence[tuple[int, int | None, int | None]]) -> int:
    start, end = window
    if start is None or end is None:
        return 1

    def overlap(numbered_window: tuple[int, int | None, int | None]) -> int:
        # Negative if the two do not overlap: then the smallest distance wins.
        return min(end, numbered_window[2] or 0) - max(start, numbered_window[1] or 0)

    return max(reference, key=overlap)[0]


def _by_run_key(named: Iterable[_Named]) -> dict[RunKey, list[_Named]]:
    by_key: dict[RunKey, list[_Named]] = defaultdict(list)
    for member in named:
        by_key[member.run_key].append(member)
    return by_key


def _resolve_numbers(named: Sequence[_Named]) -> None:
    """trace_0, trace_1, …: the number is the rank only if every trace specifies that rank."""
    alike: dict[tuple[PurePath, str], list[_Named]] = defaultdict(list)
    for member in named:
        if member.distinctive in ("", member.parts.remainder):
            alike[member.parts.job, re.sub("[0-9]+", "#", member.parts.remainder)].append(member)
    for members in alike.values():
        if any(member.distinctive for member in members):
            for member in members:
                member.distinctive = member.parts.remainder


def _resolve_additions(named: Sequence[_Named]) -> None:
    """Files that add to the ranks of the only run in their folder belong to it, whatever they are called.

    If one kind of addition has several names, each name is a separate run, such as `before` and `after`.
    """
    folders: dict[PurePath, list[_Named]] = defaultdict(list)
    for member in named:
        folders[member.parts.job].append(member)
    for members in folders.values():
        traces = {member.distinctive for member in members if not member.source.part.addition}
        additions = [member for member in members if member.source.part.addition]
        names: dict[str, set[str]] = defaultdict(set)
        for member in additions:
            names[member.source.part.addition].add(member.distinctive)
        if len(traces) == 1 and all(len(texts) == 1 for texts in names.values()):
            for member in additions:
                member.distinctive = next(iter(traces))


def _depths(keys: Sequence[RunKey]) -> dict[RunKey, int]:
    """Number of folders in each name: as few as make the names differ, and one if nothing else names it."""
    depth = {key: 0 if key[2] else 1 for key in keys}
    while True:
        alike: dict[str, list[RunKey]] = defaultdict(list)
        for key in keys:
            alike[folder_run_name(_wanted_name(key, depth[key])).lower()].append(key)
        clashing = [group for group in alike.values() if len({folder for folder, *_ in group}) > 1]
        deepen = [key for group in clashing for key in group if depth[key] < len(key[0].parts) - 1]
        if not deepen:
            return depth
        for key in deepen:
            depth[key] += 1


def _wanted_name(key: RunKey, depth: int) -> str:
    folder, place, distinctive = key
    folders = [part for part in folder.parts if part != folder.anchor]
    return ".".join(filter(None, (*folders[len(folders) - depth :], place, distinctive)))


def _named_after(member: _Named, name: str) -> str:
    """What gave the name, unless it is that of the folder with the file."""
    if name == member.source.file.path.absolute().parent.name:
        return ""
    if member.distinctive and member.distinctive == member.parts.stem and not member.says_rank:
        ranks = _rank_names(member.source.file.path)
        return f"the file, which says no rank (name those of one job {ranks})"
    return "the file" if member.distinctive else f"the folder {member.parts.job}"
