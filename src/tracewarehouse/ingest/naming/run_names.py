"""Names of runs: from folders, and from file names without rank and time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tracewarehouse.ingest.naming.file_names import NameParts, folder_run_name, numbered, split_name


@dataclass(frozen=True)
class TraceFile:
    """A trace to be assigned; `rank` and `world_size` are those in the trace.

    `part` distinguishes several traces in one file. `addition` names what the file adds to a rank; it is ""
    for a trace. `run` and `window_number` are set for files that the
    trace handler spooled.
    """

    path: Path
    digest: str
    rank: int | None = None
    world_size: int | None = None
    damaged: bool = False
    run: str | None = None
    window_number: int | None = None
    part: str = ""
    addition: str = ""

    @property
    def source(self) -> tuple[Path, str]:
        """Path and part, the identity of the trace."""
        return self.path, self.part


@dataclass(frozen=True)
class NamedFile:
    """A trace with the parts of its file name; `remainder` distinguishes runs of one folder."""

    file: TraceFile
    parts: NameParts
    folder: Path
    remainder: str
    rank: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> tuple[Path, str]:
        """Folder and remainder: files of one kind differ only in rank and time."""
        return self.folder, self.remainder

    @property
    def says_rank(self) -> bool:
        """Whether the trace or its name specifies the rank."""
        return self.file.rank is not None or self.parts.rank is not None or bool(self.parts.coordinates)


def split_path(file: TraceFile) -> NamedFile:
    """The trace with its file name split into parts."""
    parts = split_name(file.path.name)
    return NamedFile(file, parts, file.path.absolute().parent, parts.remainder)


def _kinds(named: Iterable[NamedFile]) -> list[tuple[Path, str]]:
    return list(dict.fromkeys(one.kind for one in named))


def resolve_remainders(named: Sequence[NamedFile]) -> list[NamedFile]:
    """Removes host_pid and plain numbers from remainders if the ranks in the traces explain them."""
    by_folder: dict[Path, list[NamedFile]] = defaultdict(list)
    for one in named:
        by_folder[one.folder].append(one)
    done = {id(one): one for one in named}
    by_source: dict[tuple[Path, str], str] = {}
    for members in by_folder.values():
        for one, remainder in [*_by_host(members), *_by_number(members)]:
            done[id(one)] = replace(one, remainder=remainder)
        for one, remainder in _of_additions([done[id(one)] for one in members]):
            by_source[one.file.source] = remainder
    return [
        replace(one, remainder=by_source.get(one.file.source, one.remainder))
        for one in (done[id(one)] for one in named)
    ]


def _of_additions(members: Sequence[NamedFile]) -> list[tuple[NamedFile, str]]:
    """Remainders of files that add to the ranks of the only run in their folder, whatever they are called.

    If one kind of addition has several names, each name is a separate run, such as `before` and `after`.
    """
    traces = {one.remainder for one in members if not one.file.addition}
    names: dict[str, set[str]] = defaultdict(set)
    for one in members:
        if one.file.addition:
            names[one.file.addition].add(one.remainder)
    if len(traces) > 1 or any(len(remainders) > 1 for remainders in names.values()):
        return []
    remainder = next(iter(traces), "")
    return [(one, remainder) for one in members if one.file.addition]


def _by_host(members: Sequence[NamedFile]) -> list[tuple[NamedFile, str]]:
    """Remainders of host_pid.time names: one job if each rank has one host, else a job per host."""
    ranked = [one for one in members if one.parts.host is not None and one.file.rank is not None]
    hosts: dict[int | None, set[str | None]] = defaultdict(set)
    for one in ranked:
        hosts[one.file.rank].add(one.parts.host)
    one_job = all(len(seen) == 1 for seen in hosts.values())
    return [(one, "" if one_job else one.parts.host or "") for one in ranked]


def _by_number(members: Sequence[NamedFile]) -> list[tuple[NamedFile, str]]:
    """Remainders of trace_0, trace_1, …: the number is the rank only if every trace specifies that rank."""
    bases: dict[str, list[tuple[NamedFile, int]]] = defaultdict(list)
    for one in members:
        says_rank = one.parts.rank is not None or one.parts.coordinates or one.parts.host is not None
        found = None if says_rank else numbered(one.remainder)
        if found:
            bases[found[0]].append((one, found[1]))
    return [
        (one, base)
        for base, group in bases.items()
        if all(one.file.rank == number for one, number in group)
        for one, _ in group
    ]


def run_names(
    named: Sequence[NamedFile], renamed: Callable[[str, str], None], clean: Callable[[str], str] = str
) -> Mapping[tuple[Path, str], str | None]:
    """Run name per kind of file; None if it equals an earlier one."""
    kinds = _kinds(named)
    remainders: dict[Path, set[str]] = defaultdict(set)
    for folder, remainder in kinds:
        remainders[folder].add(remainder)
    depth = _depths(kinds, remainders)
    names: dict[tuple[Path, str], str | None] = {}
    used: set[str] = set()
    for kind in kinds:
        wanted = clean(_wanted_name(kind, remainders, depth))
        name = folder_run_name(wanted)
        if name != wanted:
            renamed(wanted, name)
        names[kind] = None if name.lower() in used else name
        used.add(name.lower())
    return names


def _depths(kinds: Sequence[tuple[Path, str]], remainders: Mapping[Path, set[str]]) -> dict[Path, int]:
    """Number of trailing folders in each name: as few as make the names differ."""
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
