"""Which source is which run and rank: a pure function of paths, of what the files say, and of options.

The run is the requested one, else the name of the folder, with parents in front until names differ. Files of
one folder whose names differ in more than rank and time are different runs, `<folder>.<remainder>`. The rank
comes from the trace, else from the file name, else from the options, and is 0 if no source specifies one.
Several profiling windows of a job become the runs `RUN~1`, `RUN~2` and so on.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.errors import ExpressionError
from tracewarehouse.ingest.naming import NameParts, folder_run_name, numbered, split_name, stem
from tracewarehouse.ingest.outcome import FileOutcome, Options
from tracewarehouse.ingest.sources import Source, Target, TimeWindow
from tracewarehouse.storage.layout import run_name

FileWindow: TypeAlias = tuple[Path, TimeWindow]
# Folder and remainder of names: files of one kind differ only in rank and time.
Kind: TypeAlias = tuple[Path, str]
_RENAMED: Final = "run {} is stored as {}: run names may contain A-Z a-z 0-9 . _ + = ~ -"


class Assigned(Struct):
    """The sources, each in one of the two lists, and notes on names.

    `sources` have a target; the others have the outcome of a duplicate or of a source without a place.
    """

    sources: list[Source] = []
    others: list[tuple[Source, FileOutcome]] = []
    notes: list[str] = []


class _Named(Struct, eq=False):
    """A source with the parts of its file name; `remainder` distinguishes runs of one folder.

    `says_rank`: the trace or its name specifies the rank. `window_number` is that of the trace handler.
    """

    source: Source
    parts: NameParts
    folder: Path
    remainder: str
    says_rank: bool
    window_number: int | None
    rank: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        return self.folder, self.remainder


def assign(sources: Iterable[Source], options: Options, clean: Callable[[str], str] = str) -> Assigned:
    """Assigns a run and a rank to each source, or refuses it.

    Before the sources are read, this goes by their beginnings: files that compete for a rank are taken for
    successive profiling windows, in the order of their names. `clean` returns a name without secrets.
    Raises ParamError for an invalid run name.
    """
    call = _Call(sorted(sources, key=lambda source: source.key), options, clean)
    call.run()
    return call.result


class _Call(Struct):
    """One assignment; `sources` are in order of path."""

    sources: list[Source]
    options: Options
    clean: Callable[[str], str]
    result: Assigned = field(default_factory=Assigned)

    def run(self) -> None:
        named = []
        for source in self.sources:
            path, note = source.file.path, source.file.note
            parts = split_name(path.name)
            says_rank = any(rank is not None for rank in (source.rank, parts.rank)) or bool(parts.coordinates)
            window_number = note.window_number if note else None
            named.append(
                _Named(source, parts, path.absolute().parent, parts.remainder, says_rank, window_number)
            )
        _resolve_remainders(named)
        rank, run = self.options.rank, None if self.options.inbox else self.options.run
        for name, members in self._by_run(named, run).items():
            self._rank(members, is_single=len(named) == 1)
            self._place(name, self._distinct(name, members))
        if rank is None and run is None:
            self._note_numbered(named)
        elif rank is not None and len(named) > 1 and all(one.says_rank for one in named):
            self._note(hints.fill("{} is ignored: the files say their ranks", hints.option("rank", rank)))

    def _note(self, note: str) -> None:
        if note not in self.result.notes:
            self.result.notes.append(note)

    def _refuse(self, one: _Named, reason: str, hint: str, run: str | None = None) -> None:
        rank = one.rank if run else None
        outcome = FileOutcome(one.source.file.path, "refused", run, rank, reason, hint)
        self.result.others.append((one.source, outcome))

    def _by_run(self, named: Sequence[_Named], run: str | None) -> dict[str, list[_Named]]:
        """Run name → its sources; `run` is the requested one."""
        by_run: dict[str, list[_Named]] = defaultdict(list)
        requested = None if run is None else self._requested_name(run)
        others: list[_Named] = []
        for one in named:
            if one.source.file.note:
                by_run[self._requested_name(one.source.file.note.run)].append(one)
            elif requested is not None:
                by_run[requested].append(one)
            else:
                others.append(one)
        names = self._folder_names(others)
        for one in others:
            if (name := names[one.kind]) is not None:
                by_run[name].append(one)
                continue
            hint = hints.fill("ingest it alone with {}", hints.option("run", "NAME"))
            self._refuse(one, "another folder of this call has the same run name", hint)
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

    def _folder_names(self, named: Sequence[_Named]) -> dict[Kind, str | None]:
        """Run name per kind of file; None if it equals an earlier one."""
        kinds = list(dict.fromkeys(one.kind for one in named))
        remainders: dict[Path, set[str]] = defaultdict(set)
        for folder, remainder in kinds:
            remainders[folder].add(remainder)
        depth = _depths(kinds, remainders)
        names: dict[Kind, str | None] = {}
        used: set[str] = set()
        for kind in kinds:
            wanted = self._without_secrets(_wanted_name(kind, remainders, depth))
            name = folder_run_name(wanted)
            if name != wanted:
                self._note(_RENAMED.format(wanted, name))
            names[kind] = None if name.lower() in used else name
            used.add(name.lower())
        return names

    def _rank(self, members: Sequence[_Named], *, is_single: bool) -> None:
        """Ranks for the sources of one run; None if a source specifies no rank but others of the run do."""
        by_coordinate, requested = _ranks_by_coordinate(members), self.options.rank
        stated = {(one.source.file.path, one.source.rank) for one in members}
        for one in members:
            path, in_trace = one.source.file.path, one.source.rank
            token = one.parts.rank if one.parts.rank is not None else by_coordinate.get(path)
            if requested is not None and is_single:
                # With a single file, `--rank` is unambiguous and overrides what the file says.
                one.rank, other = requested, in_trace if in_trace is not None else token
                if other not in (None, requested):
                    one.notes = (f"stored as rank {requested}, although the file says rank {other}",)
            elif in_trace is not None:
                one.rank = in_trace
                if token not in (None, in_trace):
                    one.notes = (f"the file name says rank {token}, the trace rank {in_trace}",)
            else:
                one.rank = token if token is not None else requested
            # Another part of the file has the rank in its name.
            if one.source.part.name and (path, one.parts.rank) in stated:
                one.notes = ()
        if all(one.rank is None for one in members):
            for one in members:
                one.rank = 0

    def _note_numbered(self, named: Sequence[_Named]) -> None:
        """Notes files of one folder that are separate runs of rank 0 although names differ in a number."""
        alike: dict[tuple[Path, str], dict[str, Path]] = defaultdict(dict)
        for one in named:
            base = re.sub("[0-9]+", "#", one.remainder)
            if (
                not (one.says_rank or one.source.part.addition or one.source.file.note)
                and base != one.remainder
            ):
                alike[one.folder, base].setdefault(one.remainder, one.source.file.path)
        for paths in alike.values():
            if len(paths) > 1:
                first, second = list(paths.values())[:2]
                names = f"{self.clean(first.name)}, {self.clean(second.name)}, …"
                self._note(
                    f"{names}: separate runs of rank 0, because the number in a name is not taken as a rank;"
                    f" for ranks of one job, name the files {_rank_names(first)}"
                )

    def _distinct(self, run: str, members: Sequence[_Named]) -> list[_Named]:
        """The members of a run that have a rank, without duplicates; intact ones first."""
        kept: list[_Named] = []
        contents: dict[tuple[object, ...], _Named] = {}
        for one in sorted(members, key=lambda one: one.source.is_damaged):
            source, path = one.source, one.source.file.path
            if one.rank is None:
                reason = f"the file does not specify a rank, and run {run} has several"
                hint = hints.fill("ingest this file alone with {}", hints.option("rank", "N"))
                self._refuse(one, reason, hint, run)
                continue
            digest = source.commit.digest if source.commit else path
            identity = (one.rank, digest, source.part.name, one.window_number, source.part.addition)
            first = contents.setdefault(identity, one)
            if first is one:
                kept.append(one)
            else:
                reason = f"same content as {first.source.file.path.name}"
                self.result.others.append((source, FileOutcome(path, "skipped", run, one.rank, reason)))
        return kept

    def _place(self, run: str, kept: Sequence[_Named]) -> None:
        """Numbers profiling windows; refuses the later of two sources for one rank."""
        numbered = self._window_numbers([one for one in kept if not one.source.part.addition])
        numbered += [(one, one.window_number or 1) for one in kept if one.source.part.addition]
        many = any(one.window_number is None and number > 1 for one, number in numbered)
        holders: dict[tuple[int, int | None, str], _Named] = {}
        for one, number in numbered:
            holder = holders.setdefault((number, one.rank, one.source.part.addition), one)
            if holder is not one:
                reason = f"rank {one.rank} of run {run} is already assigned to {holder.source.file.path.name}"
                self._refuse(one, reason, _collision_hint(one, holder), run)
                continue
            # The handler's first window is the run itself: it cannot know whether others follow.
            spooled = one.window_number
            name = f"{run}~{number}" if many or (spooled is not None and spooled > 1) else run
            in_file = one.source.world_size
            target = Target(
                name,
                one.rank or 0,
                in_file if in_file is not None else one.parts.world_size,
                number if many or spooled is not None else None,
                one.notes,
            )
            self.result.sources.append(replace(one.source, target=target))

    def _window_numbers(self, kept: Sequence[_Named]) -> list[tuple[_Named, int]]:
        """Each source with its window, 1 if there is only one; indistinguishable ones share a number."""
        by_rank: dict[int, list[_Named]] = defaultdict(list)
        for one in kept:
            by_rank[one.rank or 0].append(one)
        is_numbered = all(one.window_number is not None for one in kept)
        if is_numbered or all(len(group) == 1 for group in by_rank.values()):
            return [(one, one.window_number or 1) for one in kept]
        # Windows belong to one job: only files whose names differ in rank and time alone qualify.
        if len({one.kind for one in kept}) > 1:
            return [(one, 1) for one in kept]
        windows = self._windows({one.source.file.path for one in kept})
        numbers = number_windows(
            {
                rank: [(one.source.file.path, windows[one.source.file.path]) for one in group]
                for rank, group in by_rank.items()
            }
        )
        return [(one, numbers[one.source.file.path]) for one in kept]

    def _windows(self, paths: Collection[Path]) -> dict[Path, TimeWindow]:
        """The profiling window of each file: as read, else by format hints, else by the order of names."""
        sources = [source for source in self.sources if source.file.path in paths]
        if all(source.commit for source in sources):
            return {source.file.path: source.committed.window for source in sources}
        known = {source.file.path: source.part.window for source in sources if source.part.window}
        if len(known) == len(paths):
            return {**known}
        if not _are_successive(sources):
            return dict.fromkeys(paths, (0, 1))
        return {path: (index, index + 1) for index, path in enumerate(sorted(paths))}


def _rank_names(path: Path) -> str:
    """Names of such files that say the rank."""
    ending = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    return f"rank0{ending}, rank1{ending}, …"


def _ranks_by_coordinate(members: Sequence[_Named]) -> dict[Path, int]:
    """Ranks by coordinates such as TP-3-DP-0: the one that varies; of several the tensor rank, if unique."""
    located = [
        (one.source.file.path, dict(one.parts.coordinates)) for one in members if one.parts.coordinates
    ]
    varying = {kind for _, coordinates in located for kind, value in coordinates.items() if value}
    tensor = [coordinates["tp"] for _, coordinates in located if "tp" in coordinates]
    if len(varying) > 1 and len(tensor) == len(located) == len(set(tensor)):
        varying = {"tp"}
    if len(varying) <= 1:
        return {path: sum(coordinates.get(kind, 0) for kind in varying) for path, coordinates in located}
    return {path: 0 for path, coordinates in located if not any(coordinates.values())}


def _collision_hint(one: _Named, holder: _Named) -> str:
    token = one.parts.rank
    if token is not None and token != one.rank:
        return hints.fill("ingest this file alone with {}, the rank in its name", hints.option("rank", token))
    hint = hints.fill(
        "ingest this file alone with {} or {}", hints.option("run", "NAME"), hints.option("rank", "N")
    )
    if one.says_rank or holder.says_rank:
        return hint
    return hints.fill("name the files by rank ({}), or {}", _rank_names(one.source.file.path), hint)


def _are_successive(sources: Iterable[Source]) -> bool:
    """Whether the files of each rank name the same rank, and do not differ only in their suffix."""
    by_rank: dict[int | None, list[tuple[int | None, str]]] = defaultdict(list)
    for source in sources:
        name = source.file.path.name
        in_name = split_name(name).rank
        by_rank[source.part.rank if source.part.rank is not None else in_name].append((in_name, stem(name)))
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
    for rank, own in counted.items():
        if max(own.values()) == most:
            numbers.update(own)
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

    def overlap(other: tuple[int, int | None, int | None]) -> int:
        # Negative if the two do not overlap: then the smallest distance wins.
        return min(end, other[2] or 0) - max(start, other[1] or 0)

    return max(reference, key=overlap)[0]


def _resolve_remainders(named: Sequence[_Named]) -> None:
    """Removes host_pid and plain numbers from remainders if the ranks in the traces explain them."""
    by_folder: dict[Path, list[_Named]] = defaultdict(list)
    for one in named:
        by_folder[one.folder].append(one)
    for members in by_folder.values():
        _resolve_hosts(members)
        _resolve_numbers(members)
        _resolve_additions(members)


def _resolve_hosts(members: Sequence[_Named]) -> None:
    """Names of the form host_pid.time: one job if each rank has one host, else a job per host."""
    ranked = [one for one in members if one.parts.host is not None and one.source.rank is not None]
    hosts: dict[int | None, set[str | None]] = defaultdict(set)
    for one in ranked:
        hosts[one.source.rank].add(one.parts.host)
    is_one_job = all(len(seen) == 1 for seen in hosts.values())
    for one in ranked:
        one.remainder = "" if is_one_job else one.parts.host or ""


def _resolve_numbers(members: Sequence[_Named]) -> None:
    """trace_0, trace_1, …: the number is the rank only if every trace specifies that rank."""
    bases: dict[str, list[tuple[_Named, int]]] = defaultdict(list)
    for one in members:
        parts = one.parts
        says_rank = parts.rank is not None or parts.coordinates or parts.host is not None
        if not says_rank and (match := numbered(one.remainder)):
            bases[match[0]].append((one, match[1]))
    for base, group in bases.items():
        if all(one.source.rank == number for one, number in group):
            for one, _ in group:
                one.remainder = base


def _resolve_additions(members: Sequence[_Named]) -> None:
    """Files that add to the ranks of the only run in their folder belong to it, whatever they are called.

    If one kind of addition has several names, each name is a separate run, such as `before` and `after`.
    """
    traces = {one.remainder for one in members if not one.source.part.addition}
    additions = [one for one in members if one.source.part.addition]
    names: dict[str, set[str]] = defaultdict(set)
    for one in additions:
        names[one.source.part.addition].add(one.remainder)
    if len(traces) <= 1 and all(len(remainders) == 1 for remainders in names.values()):
        for one in additions:
            one.remainder = next(iter(traces), "")


def _depths(kinds: Sequence[Kind], remainders: Mapping[Path, set[str]]) -> dict[Path, int]:
    """Number of trailing folders in each name: as few as make the names differ."""
    depth = dict.fromkeys(remainders, 1)
    while True:
        folders: dict[str, set[Path]] = defaultdict(set)
        for kind in kinds:
            folders[folder_run_name(_wanted_name(kind, remainders, depth)).lower()].add(kind[0])
        clashing = {folder for group in folders.values() if len(group) > 1 for folder in group}
        deepen = [folder for folder in clashing if depth[folder] < len(folder.parts) - 1]
        if not deepen:
            return depth
        for folder in deepen:
            depth[folder] += 1


def _wanted_name(kind: Kind, remainders: Mapping[Path, set[str]], depth: Mapping[Path, int]) -> str:
    folder, remainder = kind
    parts = [part for part in folder.parts if part != folder.anchor][-depth[folder] :]
    if len(remainders[folder]) > 1 and remainder:
        parts.append(remainder)
    return ".".join(parts)
