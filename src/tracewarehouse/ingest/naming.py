"""Which file is which run and rank: a pure function of names, what the traces say, and the options.

The run is the one asked for, else the folder's name, with parents in front until names differ. Files of one
folder whose names differ in more than rank and time are different runs, `<folder>.<remainder>`. The rank is
what the trace says, else what its name says, else what was asked for, else 0 where nothing says one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tracewarehouse import hints
from tracewarehouse.ingest.names import NameParts, folder_run_name, numbered, split_name
from tracewarehouse.ingest.spans import Window, spans_of
from tracewarehouse.storage.layout import run_name

NameCleaner = Callable[[str], str]
WindowsOf = Callable[[Sequence[Path]], Mapping[Path, Window]]


@dataclass(frozen=True)
class TraceFile:
    """What naming needs to know of a trace; `rank` and `world_size` as the trace says them.

    `part` tells traces of one file apart, where it has several. `run` and `span` are set for files that the
    trace handler put into an inbox: it knew both.
    """

    path: Path
    digest: str
    rank: int | None = None
    world_size: int | None = None
    damaged: bool = False
    run: str | None = None
    span: int | None = None
    part: str = ""

    @property
    def source(self) -> tuple[Path, str]:
        """Path and part: which trace it is."""
        return self.path, self.part


@dataclass(frozen=True)
class Assignment:
    """A file's place. `world_size` is the trace's, else its name's; `notes` tell conflicts."""

    path: Path
    run: str
    rank: int
    world_size: int | None = None
    span: int | None = None
    notes: tuple[str, ...] = ()
    part: str = ""


@dataclass(frozen=True)
class Duplicate:
    """A file with the content of another file of the same run and rank."""

    path: Path
    of: Path
    run: str
    rank: int
    part: str = ""


@dataclass(frozen=True)
class Refusal:
    """A file that has no place of its own, why, and what would give it one."""

    path: Path
    reason: str
    hint: str
    run: str | None = None
    rank: int | None = None
    part: str = ""


@dataclass(frozen=True)
class Naming:
    """Every file given is in exactly one of the first three; `notes` tell of run names that were changed."""

    assigned: tuple[Assignment, ...]
    duplicates: tuple[Duplicate, ...]
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Named:
    file: TraceFile
    parts: NameParts
    folder: Path
    remainder: str
    rank: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> tuple[Path, str]:
        """Files of one kind differ in rank and time alone."""
        return self.folder, self.remainder


@dataclass
class _Outcome:
    assigned: list[Assignment]
    duplicates: list[Duplicate]
    refusals: list[Refusal]
    notes: list[str]
    # A name without the secrets that it holds.
    clean: NameCleaner

    def without_secrets(self, asked: str) -> str:
        name = self.clean(asked)
        if name != asked:
            self._note(f"the name of a run looked like a secret: it is now {name}")
        return name

    def renamed(self, asked: str, name: str) -> None:
        self._note(f"run {asked} is called {name}: a run name has A-Z a-z 0-9 . _ + = ~ -")

    def _note(self, note: str) -> None:
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
    """Give each file a run and a rank, or say why it gets none.

    `windows` gives the first start and last end of traces; it is asked only for files that collide. `clean`
    gives a name without secrets.
    Raises ParamError for a run name that cannot be used.
    """
    named = _resolve_remainders([_split(file) for file in sorted(files, key=lambda file: file.source)])
    out = _Outcome([], [], [], [], clean)
    for name, members in _groups(named, run, out).items():
        _place(name, _with_ranks(members, rank, lone=len(named) == 1), windows, out)
    return Naming(tuple(out.assigned), tuple(out.duplicates), tuple(out.refusals), tuple(out.notes))


def _groups(named: Sequence[_Named], run: str | None, out: _Outcome) -> dict[str, list[_Named]]:
    """The files of each run, by its name."""
    groups: dict[str, list[_Named]] = defaultdict(list)
    told = [one for one in named if one.file.run is not None]
    others = [one for one in named if one.file.run is None]
    for one in told:
        groups[_run_as_asked(one.file.run or "", out)].append(one)
    if run is not None:
        groups[_run_as_asked(run, out)] += others
        return groups
    names = _run_names(others, out)
    for one in others:
        name = names[one.kind]
        if name is None:
            reason, hint = (
                "its run name is that of another folder of this call",
                hints.fill("ingest it alone with {}", hints.option("run", "NAME")),
            )
            out.refusals.append(Refusal(one.file.path, reason, hint, part=one.file.part))
        else:
            groups[name].append(one)
    return groups


def _run_as_asked(asked: str, out: _Outcome) -> str:
    asked = out.without_secrets(asked)
    name, changed = run_name(asked)
    if changed:
        out.renamed(asked, name)
    return name


def _split(file: TraceFile) -> _Named:
    parts = split_name(file.path.name)
    return _Named(file, parts, file.path.absolute().parent, parts.remainder)


def _kinds(named: Iterable[_Named]) -> list[tuple[Path, str]]:
    return list(dict.fromkeys(one.kind for one in named))


# Remainders ------------------------------------------------------------------------------------------


def _resolve_remainders(named: Sequence[_Named]) -> list[_Named]:
    """Drop from remainders what the traces' own ranks show to be a token: host_pid, and plain numbers."""
    by_folder: dict[Path, list[_Named]] = defaultdict(list)
    for one in named:
        by_folder[one.folder].append(one)
    done = {id(one): one for one in named}
    for members in by_folder.values():
        for one, remainder in [*_by_host(members), *_by_number(members)]:
            done[id(one)] = replace(one, remainder=remainder)
    return [done[id(one)] for one in named]


def _by_host(members: Sequence[_Named]) -> list[tuple[_Named, str]]:
    """host_pid.time names: one job where each rank has one host, else a job per host."""
    ranked = [one for one in members if one.parts.host is not None and one.file.rank is not None]
    hosts: dict[int | None, set[str | None]] = defaultdict(set)
    for one in ranked:
        hosts[one.file.rank].add(one.parts.host)
    one_job = all(len(seen) == 1 for seen in hosts.values())
    return [(one, "" if one_job else one.parts.host or "") for one in ranked]


def _by_number(members: Sequence[_Named]) -> list[tuple[_Named, str]]:
    """trace_0, trace_1, …: the number is a rank token only where every trace says that rank itself."""
    bases: dict[str, list[tuple[_Named, int]]] = defaultdict(list)
    for one in members:
        says_rank = one.parts.rank is not None or one.parts.places or one.parts.host is not None
        found = None if says_rank else numbered(one.remainder)
        if found:
            bases[found[0]].append((one, found[1]))
    return [
        (one, base)
        for base, group in bases.items()
        if all(one.file.rank == number for one, number in group)
        for one, _ in group
    ]


# Run names -------------------------------------------------------------------------------------------


def _run_names(named: Sequence[_Named], out: _Outcome) -> Mapping[tuple[Path, str], str | None]:
    """A name per kind of file; None for one that cannot be told from an earlier one."""
    kinds = _kinds(named)
    remainders: dict[Path, set[str]] = defaultdict(set)
    for folder, remainder in kinds:
        remainders[folder].add(remainder)
    depth = _depths(kinds, remainders)
    names: dict[tuple[Path, str], str | None] = {}
    taken: set[str] = set()
    for kind in kinds:
        wanted = out.without_secrets(_wanted_name(kind, remainders, depth))
        name = folder_run_name(wanted)
        if name != wanted:
            out.renamed(wanted, name)
        names[kind] = None if name.lower() in taken else name
        taken.add(name.lower())
    return names


def _depths(kinds: Sequence[tuple[Path, str]], remainders: Mapping[Path, set[str]]) -> dict[Path, int]:
    """How many of its last folders a name takes: as few as make names differ."""
    depth = dict.fromkeys(remainders, 1)
    while clashing := _clashing(kinds, remainders, depth):
        deepen = {folder for folder, _ in clashing if depth[folder] < len(folder.parts) - 1}
        if not deepen:
            break
        for folder in deepen:
            depth[folder] += 1
    return depth


def _clashing(
    kinds: Sequence[tuple[Path, str]], remainders: Mapping[Path, set[str]], depth: Mapping[Path, int]
) -> list[tuple[Path, str]]:
    by_name: dict[str, list[tuple[Path, str]]] = defaultdict(list)
    for kind in kinds:
        by_name[folder_run_name(_wanted_name(kind, remainders, depth)).lower()].append(kind)
    return [kind for group in by_name.values() if len({folder for folder, _ in group}) > 1 for kind in group]


def _wanted_name(
    kind: tuple[Path, str], remainders: Mapping[Path, set[str]], depth: Mapping[Path, int]
) -> str:
    folder, remainder = kind
    parts = [part for part in folder.parts if part != folder.anchor][-depth[folder] :]
    if len(remainders[folder]) > 1 and remainder:
        parts.append(remainder)
    return ".".join(parts)


# Ranks -----------------------------------------------------------------------------------------------


def _with_ranks(members: Sequence[_Named], asked: int | None, *, lone: bool) -> list[_Named]:
    """Ranks for the files of one run; None stays where the run has ranks and a file says none."""
    by_place = _ranks_by_place(members)
    ranked = [_with_rank(one, by_place.get(one.file.path), asked, lone=lone) for one in members]
    if any(one.rank is not None for one in ranked):
        return ranked
    return [replace(one, rank=0) for one in ranked]


def _with_rank(one: _Named, by_place: int | None, asked: int | None, *, lone: bool) -> _Named:
    said, token = one.file.rank, one.parts.rank if one.parts.rank is not None else by_place
    # With one file there is no doubt what `--rank` is about: the person who typed it is believed.
    if asked is not None and lone:
        other = said if said is not None else token
        note = f"stored as rank {asked}, although the file says rank {other}"
        notes = (note,) if other not in (None, asked) else ()
        return replace(one, rank=asked, notes=notes)
    if said is not None:
        note = f"the file name says rank {token}, the trace rank {said}"
        notes = (note,) if token not in (None, said) else ()
        return replace(one, rank=said, notes=notes)
    return replace(one, rank=token if token is not None else asked)


def _ranks_by_place(members: Sequence[_Named]) -> dict[Path, int]:
    """TP-3-DP-0: the coordinate that varies; where several do, tensor ranks if no two files have the same."""
    placed = [(one.file.path, dict(one.parts.places)) for one in members if one.parts.places]
    varying = {kind for _, places in placed for kind, value in places.items() if value}
    tensor = [places["tp"] for _, places in placed if "tp" in places]
    if len(varying) > 1 and len(tensor) == len(placed) == len(set(tensor)):
        varying = {"tp"}
    if len(varying) <= 1:
        return {path: sum(places.get(kind, 0) for kind in varying) for path, places in placed}
    return {path: 0 for path, places in placed if not any(places.values())}


# Places ----------------------------------------------------------------------------------------------


def _place(run: str, members: Sequence[_Named], windows: WindowsOf, out: _Outcome) -> None:
    """Settle who gets (run, rank): doubles go, spans are told apart, then the later name loses."""
    kept: list[_Named] = []
    contents: dict[tuple[int, str, str, int | None], _Named] = {}
    for one in sorted(members, key=lambda one: (one.file.damaged, one.file.source)):
        file = one.file
        if one.rank is None:
            reason, hint = (
                f"the file does not specify a rank, and run {run} has several",
                hints.fill("ingest this file alone with {}", hints.option("rank", "N")),
            )
            out.refusals.append(Refusal(file.path, reason, hint, run, part=file.part))
            continue
        first = contents.setdefault((one.rank, file.digest, file.part, file.span), one)
        if first is not one:
            out.duplicates.append(Duplicate(file.path, first.file.path, run, one.rank, file.part))
        else:
            kept.append(one)
    _give_spans(run, kept, windows, out)


def _give_spans(run: str, kept: Sequence[_Named], windows: WindowsOf, out: _Outcome) -> None:
    slots = _slots(kept, windows)
    many = any(one.file.span is None and slot > 1 for one, slot in slots)
    holders: dict[tuple[int, int | None], _Named] = {}
    for one, slot in slots:
        assert one.rank is not None
        place = (slot, one.rank)
        if place in holders:
            out.refusals.append(_taken(run, one, holders[place]))
            continue
        holders[place] = one
        out.assigned.append(_assignment(run, one, slot, many=many))


def _assignment(run: str, one: _Named, slot: int, *, many: bool) -> Assignment:
    """The first span a handler writes is the run itself: it cannot know whether others follow."""
    assert one.rank is not None
    told = one.file.span
    suffix = f"~{slot}" if many or (told is not None and told > 1) else ""
    span = slot if many or told is not None else None
    world_size = one.file.world_size if one.file.world_size is not None else one.parts.world_size
    return Assignment(one.file.path, f"{run}{suffix}", one.rank, world_size, span, one.notes, one.file.part)


def _slots(kept: Sequence[_Named], windows: WindowsOf) -> list[tuple[_Named, int]]:
    """Each file with its span, 1 where there is but one; files that cannot be told apart share a slot."""
    by_rank: dict[int | None, list[_Named]] = defaultdict(list)
    for one in kept:
        by_rank[one.rank].append(one)
    told = all(one.file.span is not None for one in kept)
    if told or all(len(group) == 1 for group in by_rank.values()):
        return [(one, one.file.span or 1) for one in kept]
    # Spans are of one job: only files that differ in rank and time alone can be.
    if len({one.kind for one in kept}) > 1:
        return [(one, 1) for one in kept]
    found = windows([one.file.path for one in kept])
    slots = spans_of(
        {
            rank: [(one.file.path, found[one.file.path]) for one in group]
            for rank, group in by_rank.items()
            if rank is not None
        }
    )
    return [(one, slots[one.file.path]) for one in kept]


def _taken(run: str, one: _Named, holder: _Named) -> Refusal:
    token = one.parts.rank
    hint = hints.fill(
        "ingest this file alone with {} or {}", hints.option("run", "NAME"), hints.option("rank", "N")
    )
    if token is not None and token != one.rank:
        hint = hints.fill("ingest this file alone with {}, the rank in its name", hints.option("rank", token))
    reason = f"rank {one.rank} of run {run} is already assigned to {holder.file.path.name}"
    return Refusal(one.file.path, reason, hint, run, one.rank, one.file.part)
