"""Which file is which run and rank: a pure function of paths, headers and options.

The run is the requested one, else the name of the folder, with parents in front until names differ. Files of
one folder whose names differ in more than rank and time are different runs, `<folder>.<remainder>`. The rank
comes from the trace, else from the file name, else from the options, and is 0 if no source specifies one.
Several profiling windows of a job become the runs `RUN~1`, `RUN~2` and so on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.errors import ExpressionError
from tracewarehouse.ingest.naming import NamedFile, TraceFile, resolve_remainders, run_names, split_path
from tracewarehouse.storage.layout import run_name

# First start and last end of a trace; None if it has no times.
TimeWindow: TypeAlias = tuple[int | None, int | None]
FileWindow: TypeAlias = tuple[Path, TimeWindow]
# Returns a name without secrets.
NameCleaner: TypeAlias = Callable[[str], str]
WindowsOf: TypeAlias = Callable[[Sequence[Path]], Mapping[Path, TimeWindow]]


class Assignment(Struct, frozen=True):
    """The run and rank of a file. `world_size` is the trace's, else its name's; `notes` report conflicts."""

    path: Path
    run: str
    rank: int
    world_size: int | None = None
    window_number: int | None = None
    notes: tuple[str, ...] = ()
    part: str = ""


class Duplicate(Struct, frozen=True):
    """A file with the content of another file of the same run and rank."""

    path: Path
    of: Path
    run: str
    rank: int
    part: str = ""


class Refusal(Struct, frozen=True):
    """A file that gets no rank, the reason, and a hint."""

    path: Path
    reason: str
    hint: str
    run: str | None = None
    rank: int | None = None
    part: str = ""


class Naming(Struct, frozen=True):
    """Every file is in exactly one of the first three; `notes` report run names that were changed."""

    assigned: tuple[Assignment, ...]
    duplicates: tuple[Duplicate, ...]
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...] = ()


class _NamingResult(Struct):
    assigned: list[Assignment]
    duplicates: list[Duplicate]
    refusals: list[Refusal]
    notes: list[str]
    clean: NameCleaner

    def without_secrets(self, requested: str) -> str:
        name = self.clean(requested)
        if name != requested:
            self.add_note(f"the name of a run looked like a secret: it is stored as {name}")
        return name

    def renamed(self, requested: str, name: str) -> None:
        self.add_note(f"run {requested} is stored as {name}: run names may contain A-Z a-z 0-9 . _ + = ~ -")

    def add_note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def assign(
    files: Iterable[TraceFile],
    *,
    windows: WindowsOf,
    run: str | None = None,
    rank: int | None = None,
    clean: NameCleaner = str,
) -> Naming:
    """Assigns a run and a rank to each file, or refuses it.

    `windows` returns the first start and last end of traces; it is called only for files that collide.
    `clean` returns a name without secrets. Raises ParamError for an invalid run name.
    """
    named = resolve_remainders([split_path(file) for file in sorted(files, key=lambda file: file.source)])
    out = _NamingResult([], [], [], [], clean)
    for name, members in _groups(named, run, out).items():
        _resolve_collisions(name, _with_ranks(members, rank, single=len(named) == 1), windows, out)
    if rank is None and run is None:
        _note_numbered(named, out)
    elif rank is not None and len(named) > 1 and all(one.says_rank for one in named):
        out.add_note(hints.fill("{} is ignored: the files say their ranks", hints.option("rank", rank)))
    return Naming(tuple(out.assigned), tuple(out.duplicates), tuple(out.refusals), tuple(out.notes))


def _groups(named: Sequence[NamedFile], run: str | None, out: _NamingResult) -> dict[str, list[NamedFile]]:
    """Run name → its files."""
    groups: dict[str, list[NamedFile]] = defaultdict(list)
    spooled = [one for one in named if one.file.run is not None]
    others = [one for one in named if one.file.run is None]
    for one in spooled:
        groups[_requested_run(one.file.run or "", out)].append(one)
    if run is not None:
        groups[_requested_run(run, out)] += others
        return groups
    names = run_names(others, out.renamed, out.without_secrets)
    for one in others:
        name = names[one.kind]
        if name is None:
            reason, hint = (
                "another folder of this call has the same run name",
                hints.fill("ingest it alone with {}", hints.option("run", "NAME")),
            )
            out.refusals.append(Refusal(one.file.path, reason, hint, part=one.file.part))
        else:
            groups[name].append(one)
    return groups


def _requested_run(requested: str, out: _NamingResult) -> str:
    requested = out.without_secrets(requested)
    if requested.startswith("@"):
        hint = "@latest and the like select runs; choose a name without @"
        raise ExpressionError(f"a run name does not begin with @: {requested!r}", hint)
    name, changed = run_name(requested)
    if changed:
        out.renamed(requested, name)
    return name


def _with_ranks(members: Sequence[NamedFile], requested: int | None, *, single: bool) -> list[NamedFile]:
    """Ranks for the files of one run; None if a file specifies no rank but others of the run do."""
    by_coordinate = _ranks_by_coordinate(members)
    ranked = [_with_rank(one, by_coordinate.get(one.file.path), requested, single=single) for one in members]
    stated = {(one.file.path, one.file.rank) for one in members}
    ranked = [
        # Another part of the file has the rank in its name.
        replace(one, notes=()) if one.file.part and (one.file.path, one.parts.rank) in stated else one
        for one in ranked
    ]
    if any(one.rank is not None for one in ranked):
        return ranked
    return [replace(one, rank=0) for one in ranked]


def _with_rank(
    one: NamedFile, by_coordinate: int | None, requested: int | None, *, single: bool
) -> NamedFile:
    in_trace, token = one.file.rank, one.parts.rank if one.parts.rank is not None else by_coordinate
    # With a single file, `--rank` is unambiguous and overrides what the file says.
    if requested is not None and single:
        other = in_trace if in_trace is not None else token
        note = f"stored as rank {requested}, although the file says rank {other}"
        notes = (note,) if other not in (None, requested) else ()
        return replace(one, rank=requested, notes=notes)
    if in_trace is not None:
        note = f"the file name says rank {token}, the trace rank {in_trace}"
        notes = (note,) if token not in (None, in_trace) else ()
        return replace(one, rank=in_trace, notes=notes)
    return replace(one, rank=token if token is not None else requested)


def _rank_names(path: Path) -> str:
    """Names of such files that say the rank."""
    ending = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    return f"rank0{ending}, rank1{ending}, …"


def _note_numbered(named: Sequence[NamedFile], out: _NamingResult) -> None:
    """Notes files of one folder that are separate runs of rank 0 although their names differ in a number."""
    alike: dict[tuple[Path, str], dict[str, Path]] = defaultdict(dict)
    for one in named:
        base = one.remainder.rstrip("0123456789")
        if not (one.says_rank or one.file.addition or one.file.run) and base != one.remainder:
            alike[one.folder, base].setdefault(one.remainder, one.file.path)
    for paths in alike.values():
        if len(paths) > 1:
            first, second = list(paths.values())[:2]
            names = f"{out.clean(first.name)}, {out.clean(second.name)}, …"
            out.add_note(
                f"{names}: separate runs of rank 0, because the number in a name is not taken as a rank;"
                f" for ranks of one job, name the files {_rank_names(first)}"
            )


def _ranks_by_coordinate(members: Sequence[NamedFile]) -> dict[Path, int]:
    """Ranks by coordinates such as TP-3-DP-0: the one that varies; of several the tensor rank, if unique."""
    located = [(one.file.path, dict(one.parts.coordinates)) for one in members if one.parts.coordinates]
    varying = {kind for _, coordinates in located for kind, value in coordinates.items() if value}
    tensor = [coordinates["tp"] for _, coordinates in located if "tp" in coordinates]
    if len(varying) > 1 and len(tensor) == len(located) == len(set(tensor)):
        varying = {"tp"}
    if len(varying) <= 1:
        return {path: sum(coordinates.get(kind, 0) for kind in varying) for path, coordinates in located}
    return {path: 0 for path, coordinates in located if not any(coordinates.values())}


def _resolve_collisions(
    run: str, members: Sequence[NamedFile], windows: WindowsOf, out: _NamingResult
) -> None:
    """Resolves collisions: drops duplicates, separates profiling windows, else refuses the later name."""
    kept: list[NamedFile] = []
    contents: dict[tuple[int, str, str, int | None, str], NamedFile] = {}
    for one in sorted(members, key=lambda one: (one.file.damaged, one.file.source)):
        file = one.file
        if one.rank is None:
            reason, hint = (
                f"the file does not specify a rank, and run {run} has several",
                hints.fill("ingest this file alone with {}", hints.option("rank", "N")),
            )
            out.refusals.append(Refusal(file.path, reason, hint, run, part=file.part))
            continue
        first = contents.setdefault(
            (one.rank, file.digest, file.part, file.window_number, file.addition), one
        )
        if first is not one:
            out.duplicates.append(Duplicate(file.path, first.file.path, run, one.rank, file.part))
        else:
            kept.append(one)
    _assign_windows(run, kept, windows, out)


def _assign_windows(run: str, kept: Sequence[NamedFile], windows: WindowsOf, out: _NamingResult) -> None:
    traces = [one for one in kept if not one.file.addition]
    numbered = _window_numbers(traces, windows)
    numbered += [(one, one.file.window_number or 1) for one in kept if one.file.addition]
    many = any(one.file.window_number is None and number > 1 for one, number in numbered)
    holders: dict[tuple[int, int | None, str], NamedFile] = {}
    for one, number in numbered:
        assert one.rank is not None
        key = (number, one.rank, one.file.addition)
        if key in holders:
            out.refusals.append(_collision(run, one, holders[key]))
            continue
        holders[key] = one
        # The handler's first window is the run itself: it cannot know whether others follow.
        spooled = one.file.window_number
        name = f"{run}~{number}" if many or (spooled is not None and spooled > 1) else run
        window_number = number if many or spooled is not None else None
        world_size = one.file.world_size if one.file.world_size is not None else one.parts.world_size
        out.assigned.append(
            Assignment(one.file.path, name, one.rank, world_size, window_number, one.notes, one.file.part)
        )


def _window_numbers(kept: Sequence[NamedFile], windows: WindowsOf) -> list[tuple[NamedFile, int]]:
    """Each file with its window number, 1 if there is only one; indistinguishable files share a number."""
    by_rank: dict[int | None, list[NamedFile]] = defaultdict(list)
    for one in kept:
        by_rank[one.rank].append(one)
    is_numbered = all(one.file.window_number is not None for one in kept)
    if is_numbered or all(len(group) == 1 for group in by_rank.values()):
        return [(one, one.file.window_number or 1) for one in kept]
    # Windows belong to one job: only files whose names differ in rank and time alone qualify.
    if len({one.kind for one in kept}) > 1:
        return [(one, 1) for one in kept]
    found = windows([one.file.path for one in kept])
    numbered = number_windows(
        {
            rank: [(one.file.path, found[one.file.path]) for one in group]
            for rank, group in by_rank.items()
            if rank is not None
        }
    )
    return [(one, numbered[one.file.path]) for one in kept]


def _collision(run: str, one: NamedFile, holder: NamedFile) -> Refusal:
    token = one.parts.rank
    hint = hints.fill(
        "ingest this file alone with {} or {}", hints.option("run", "NAME"), hints.option("rank", "N")
    )
    if not (one.says_rank or holder.says_rank):
        hint = hints.fill("name the files by rank ({}), or {}", _rank_names(one.file.path), hint)
    if token is not None and token != one.rank:
        hint = hints.fill("ingest this file alone with {}, the rank in its name", hints.option("rank", token))
    reason = f"rank {one.rank} of run {run} is already assigned to {holder.file.path.name}"
    return Refusal(one.file.path, reason, hint, run, one.rank, one.file.part)


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
