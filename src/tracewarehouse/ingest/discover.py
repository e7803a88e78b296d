"""From the paths a person names to the files worth a look, in one fixed order."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tracewarehouse import hints

LOOKED_AT = re.compile(
    r"\.(?:(?:json|jsonl|ndjson|trace|raw)(?:\.gz)?|sqlite|sqlite3|db|rpd)$", re.IGNORECASE
)
# What people keep beside traces: told as skipped by name alone, for it may be large.
OTHERS = {
    ".nsys-rep": "is an Nsight Systems report: name it, or export it with nsys export --type sqlite",
    ".ncu-rep": "is an Nsight Compute report",
    ".pftrace": "is a Perfetto trace",
    ".pickle": "is a pickle",
    ".pkl": "is a pickle",
}
TEMPORARY = re.compile(r"\.(?:tmp|temp|part|partial|swp|crdownload|filepart)$|~$", re.IGNORECASE)


@dataclass(frozen=True)
class Candidate:
    """A file to survey; `named` when it stood on the command line itself."""

    path: Path
    named: bool


@dataclass(frozen=True)
class NotFound:
    """A path that cannot be taken, and why."""

    path: Path
    reason: str
    hint: str | None


@dataclass(frozen=True)
class Passed:
    """A file met in a walk that is known not to be a trace, and what it is."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Found:
    """The candidates in order of their paths, each real file once; the paths refused; and those passed by."""

    files: tuple[Candidate, ...]
    refused: tuple[NotFound, ...]
    passed: tuple[Passed, ...] = ()


def discover(paths: Iterable[str | os.PathLike[str]]) -> Found:
    """Walk the folders and keep the files named; raises nothing: what cannot be taken is listed."""
    files: dict[tuple[int, int], Candidate] = {}
    refused: list[NotFound] = []
    passed: dict[Path, Passed] = {}
    for given in (os.fspath(each) for each in paths):
        # An empty name is a variable without a value: it does not mean the folder one is in.
        for found in _look(Path(given)) if given else [_no_such(Path(given))]:
            if isinstance(found, NotFound):
                refused.append(found)
                continue
            if isinstance(found, Passed):
                passed[found.path.absolute()] = found
                continue
            key = _identity(found.path)
            # The same file may be named and met in a walk: what was named counts.
            if key not in files or (found.named and not files[key].named):
                files[key] = found
    ordered = sorted(files.values(), key=lambda file: _order(file.path))
    return Found(tuple(ordered), tuple(refused), tuple(passed.values()))


def is_warehouse(folder: Path) -> bool:
    """Whether a folder is one of our warehouses, whose files are no traces to ingest."""
    # Unlike Path.is_file, false for a folder that may not be looked into: the walk tells of it.
    return os.path.isfile(folder / "_tw" / "warehouse.json")  # noqa: PTH113


def _no_such(path: Path) -> NotFound:
    return NotFound(path, "no such file or folder", "check the path; folders are searched to any depth")


def _look(path: Path) -> Iterator[Candidate | NotFound | Passed]:
    try:
        is_folder = path.is_dir()
        is_file = path.is_file()
    except OSError as error:
        yield NotFound(path, _reason(error), None)
        return
    if is_file:
        yield Candidate(path, named=True)
    elif is_folder:
        yield from _look_in_folder(path)
    elif path.exists():
        yield NotFound(path, "neither a file nor a folder", "name trace files or folders of them")
    else:
        yield _no_such(path)


def _look_in_folder(folder: Path) -> Iterator[Candidate | NotFound | Passed]:
    if is_warehouse(folder):
        hint = hints.fill("{} ingests the inbox of a warehouse", hints.ingest_inbox())
        yield NotFound(folder, "is a warehouse, not a folder of traces", hint)
        return
    empty = True
    for found in _walk(folder, seen=set()):
        empty = False
        yield found
    if empty:
        hint = "traces end in .json, .json.gz, .jsonl, .trace or .sqlite; name other files directly"
        yield NotFound(folder, "no traces found in this folder", hint)


def _walk(folder: Path, seen: set[tuple[int, int]]) -> Iterator[Candidate | NotFound | Passed]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        identity = _identity(folder)
    except OSError as error:
        yield NotFound(folder, _reason(error), "check the folder's permissions")
        return
    # A link back up the tree would walk for ever.
    if identity in seen:
        return
    seen.add(identity)
    for entry in entries:
        if entry.name.startswith(".") or TEMPORARY.search(entry.name):
            continue
        path = Path(entry.path)
        try:
            is_folder, is_file = entry.is_dir(), entry.is_file()
        except OSError as error:  # a link to itself, say
            yield NotFound(path, _reason(error), "take it away, or name the traces themselves")
            continue
        if is_folder and not is_warehouse(path):
            yield from _walk(path, seen)
        elif is_file and LOOKED_AT.search(entry.name):
            yield Candidate(path, named=False)
        elif entry.is_file() and path.suffix.lower() in OTHERS:
            yield Passed(path, OTHERS[path.suffix.lower()])


def _identity(path: Path) -> tuple[int, int]:
    info = path.stat()
    return info.st_dev, info.st_ino


def _order(path: Path) -> tuple[str, ...]:
    return path.absolute().parts


def _reason(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"
