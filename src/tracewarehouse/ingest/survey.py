"""Sources among the given paths: files in folders, their formats, and the parts that describe one rank.

Only the beginning of a file is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tracewarehouse import hints
from tracewarehouse.engines import Engine, Failure, TaskProgress, attempt
from tracewarehouse.formats.base import Format, Part
from tracewarehouse.formats.other_formats import (
    DESCRIPTIONS,
    EXPECTED_RESULTS,
    REMEDIES,
    UnsupportedFormatError,
)
from tracewarehouse.ingest import inbox
from tracewarehouse.ingest.outcome import BY_ANOTHER_PROCESS, FileOutcome, Options, Progress, Watch

TRACE_NAMES = re.compile(
    r"\.(?:(?:json|jsonl|ndjson|trace|raw|pickle|pkl)(?:\.gz)?|sqlite|sqlite3|db|rpd)$"
    r"|^(?:nccl|comm_lib)_trace_rank_\d+$"
    r"|(?:^|[._-])ncu(?:[._-].*)?\.csv(?:\.gz)?$",
    re.IGNORECASE,
)
# Other files that are often stored beside traces: reported as skipped by their suffix, without opening them.
OTHER_FILES = {
    ".nsys-rep": "is an Nsight Systems report: name it, or export it with nsys export --type sqlite",
    ".ncu-rep": "is an Nsight Compute report: export it with ncu --import FILE --csv --page raw",
    ".pftrace": "is a Perfetto trace",
}
TEMPORARY = re.compile(r"\.(?:tmp|temp|part|partial|swp|crdownload|filepart)$|~$", re.IGNORECASE)
# Size and modification time: a difference means that the file was written to.
FileStamp: TypeAlias = tuple[int, int]
TRACES = (
    "supported are Chrome JSON with a list of events (torch.profiler's export_chrome_trace)"
    " and SQLite exports of Nsight Systems (nsys export --type sqlite)"
)
MEMORY_TIMELINE = "memory_timeline"
_EXPECTED_RESULTS = ("skipped", f"is {DESCRIPTIONS[EXPECTED_RESULTS]}")
# Traces compress to between a tenth and a seventeenth; memory is planned for the larger text.
_TEXT_BYTES_PER_GZIP_BYTE = 17
_GZIP = b"\x1f\x8b"
# Up to this number of files form a single task.
_FEW_FILES = 64
_FILES_PER_TASK = 32


@dataclass(frozen=True)
class Candidate:
    """A file to survey; `named` if the caller named the file itself, not a folder."""

    path: Path
    named: bool


@dataclass(frozen=True)
class RefusedPath:
    """A path that cannot be ingested, and why."""

    path: Path
    reason: str
    hint: str | None


@dataclass(frozen=True)
class SkippedFile:
    """A file in a folder that is known not to be a trace, and what it is."""

    path: Path
    reason: str


@dataclass(frozen=True)
class DiscoveredFiles:
    """Candidates by path, each physical file once; refused paths; skipped files."""

    files: tuple[Candidate, ...]
    refused: tuple[RefusedPath, ...]
    skipped: tuple[SkippedFile, ...] = ()


def discover(paths: Iterable[str | os.PathLike[str]]) -> DiscoveredFiles:
    """The files to survey: named ones and those found in folders. Raises nothing: problems are listed."""
    files: dict[tuple[int, int], Candidate] = {}
    refused: list[RefusedPath] = []
    skipped: dict[Path, SkippedFile] = {}
    for given in (os.fspath(each) for each in paths):
        # An empty name comes from an unset variable; it does not mean the current folder.
        for found in _resolve(Path(given)) if given else [_no_such(Path(given))]:
            if isinstance(found, RefusedPath):
                refused.append(found)
                continue
            if isinstance(found, SkippedFile):
                skipped[found.path.absolute()] = found
                continue
            key = _identity(found.path)
            # A file may be named and also found in a folder: being named counts.
            if key not in files or (found.named and not files[key].named):
                files[key] = found
    ordered = sorted(files.values(), key=lambda file: _order(file.path))
    return DiscoveredFiles(tuple(ordered), tuple(refused), tuple(skipped.values()))


def is_warehouse(folder: Path) -> bool:
    """Whether a folder is a warehouse, whose files are not traces to ingest."""
    # Unlike Path.is_file, this is False for an unreadable folder, which the walk reports.
    return os.path.isfile(folder / "_tw" / "warehouse.json")  # noqa: PTH113


def _no_such(path: Path) -> RefusedPath:
    return RefusedPath(path, "no such file or folder", "check the path; folders are searched to any depth")


def _resolve(path: Path) -> Iterator[Candidate | RefusedPath | SkippedFile]:
    try:
        is_folder = path.is_dir()
        is_file = path.is_file()
    except OSError as error:
        yield RefusedPath(path, _reason(error), None)
        return
    if is_file or is_folder and _is_trace(path):
        yield Candidate(path, named=True)
    elif is_folder:
        yield from _folder_files(path)
    elif path.exists():
        yield RefusedPath(path, "neither a file nor a folder", "name trace files or folders of them")
    else:
        yield _no_such(path)


def _folder_files(folder: Path) -> Iterator[Candidate | RefusedPath | SkippedFile]:
    if is_warehouse(folder):
        hint = hints.fill("{} ingests the inbox of a warehouse", hints.ingest_inbox())
        yield RefusedPath(folder, "is a warehouse, not a folder of traces", hint)
        return
    empty = True
    for found in _walk(folder, seen=set()):
        empty = False
        yield found
    if empty:
        endings = ".json, .json.gz, .jsonl, .trace, .sqlite, .rpd or .pickle"
        hint = f"traces end in {endings}; name other files explicitly"
        yield RefusedPath(folder, "no traces found in this folder", hint)


def _walk(folder: Path, seen: set[tuple[int, int]]) -> Iterator[Candidate | RefusedPath | SkippedFile]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        identity = _identity(folder)
    except OSError as error:
        yield RefusedPath(folder, _reason(error), "check the folder's permissions")
        return
    # A link to a parent folder would never end.
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
            yield RefusedPath(path, _reason(error), "remove it, or name the trace files")
            continue
        if is_folder and _is_trace(path):
            yield Candidate(path, named=False)
        elif is_folder and not is_warehouse(path):
            yield from _walk(path, seen)
        elif is_file and TRACE_NAMES.search(entry.name):
            yield Candidate(path, named=False)
        elif entry.is_file() and path.suffix.lower() in OTHER_FILES:
            yield SkippedFile(path, OTHER_FILES[path.suffix.lower()])


def _is_trace(folder: Path) -> bool:
    """Whether a folder is a trace: it has Parquet files, with the tables of a format."""
    from tracewarehouse.formats.parquet_folder import SUFFIX
    from tracewarehouse.formats.registry import is_trace_folder

    try:
        return any(name.endswith(SUFFIX) for name in os.listdir(folder)) and is_trace_folder(folder)  # noqa: PTH208
    except OSError:  # reported by the walk
        return False


def _identity(path: Path) -> tuple[int, int]:
    info = path.stat()
    return info.st_dev, info.st_ino


def _order(path: Path) -> tuple[str, ...]:
    return path.absolute().parts


def _reason(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"


@dataclass(frozen=True)
class SurveyedSource:
    """A source that may become a rank; `stamp` is from before it was opened, `text_bytes` is an estimate."""

    path: Path
    stamp: FileStamp
    format: Format
    part: Part
    text_bytes: int
    note: inbox.SpoolNote | None = None


@dataclass(frozen=True)
class OpenedFile:
    """What the beginning of a file shows. `format` is None for a `kind` of file that cannot be read."""

    stamp: FileStamp
    kind: str
    format: Format | None = None
    parts: tuple[Part, ...] = ()
    text_bytes: int = 0


@dataclass(frozen=True)
class OpenFiles:
    """Opens files one after the other; returns an OpenedFile or a Failure for each."""

    paths: tuple[Path, ...]

    def run(self, progress: TaskProgress) -> tuple[OpenedFile | Failure, ...]:
        found = []
        for number, path in enumerate(self.paths):
            opened = attempt(_OpenFile(path), progress)
            assert isinstance(opened, OpenedFile | Failure)
            found.append(opened)
            progress(number, 0)
        return tuple(found)


@dataclass(frozen=True)
class _OpenFile:
    path: Path

    def run(self, progress: TaskProgress) -> OpenedFile:
        from tracewarehouse.formats.registry import detect

        before = file_stamp(self.path)
        try:
            found = detect(self.path)
        except UnsupportedFormatError as error:
            return OpenedFile(before, error.format)
        parts = found.open(self.path).parts()
        return OpenedFile(before, found.name, found, parts, text_bytes(self.path, before[0]))


def file_stamp(path: Path) -> FileStamp:
    """Size and modification time of a file, for a folder of its files; (-1, -1) if it does not exist."""
    try:
        found = [path.stat()]
        if path.is_dir():
            found = [file.stat() for file in path.iterdir() if file.is_file()]
    except OSError:
        return -1, -1
    return sum(each.st_size for each in found), max((each.st_mtime_ns for each in found), default=-1)


def text_bytes(path: Path, stored_bytes: int) -> int:
    """The estimated size of a file's text."""
    if path.is_dir():
        return stored_bytes
    with path.open("rb") as file:
        is_compressed = file.read(2) == _GZIP
    return stored_bytes * _TEXT_BYTES_PER_GZIP_BYTE if is_compressed else stored_bytes


def survey(
    engine: Engine, files: Sequence[Candidate], options: Options, watch: Watch
) -> tuple[list[SurveyedSource], list[FileOutcome]]:
    """The sources among the files, in order of path, and the outcomes of the other files."""
    size = len(files) if len(files) <= _FEW_FILES else _FILES_PER_TASK
    chunks = [files[first : first + size] for first in range(0, len(files), size or 1)]
    sources: list[SurveyedSource] = []
    outcomes: list[FileOutcome] = []

    def on_progress(task: int, number: int, _: int) -> None:
        path = chunks[task][number].path
        stored_bytes = max(0, file_stamp(path)[0])
        watch(Progress(path, "survey", stored_bytes, stored_bytes))

    tasks = [OpenFiles(tuple(one.path for one in chunk)) for chunk in chunks]
    for task, found in engine.run(tasks, on_progress):
        chunk = chunks[task]
        each = [found] * len(chunk) if isinstance(found, Failure) else found
        for file, opened in zip(chunk, each, strict=True):  # type: ignore[call-overload]
            _classify(file, opened, options, sources, outcomes)
    if sources:  # a simulated job's expected results beside its traces are not worth a line
        outcomes = [each for each in outcomes if (each.state, each.reason) != _EXPECTED_RESULTS]
    return sorted(sources, key=lambda one: (one.path, one.part.name)), outcomes


def _classify(
    file: Candidate,
    opened: OpenedFile | Failure,
    options: Options,
    sources: list[SurveyedSource],
    outcomes: list[FileOutcome],
) -> None:
    path = file.path
    if options.inbox and not path.exists():
        outcomes.append(FileOutcome(path, "skipped", reason=BY_ANOTHER_PROCESS))
    elif isinstance(opened, Failure):
        outcomes.append(_failed(path, opened))
    elif opened.format is None:
        outcomes.append(other_format(file, opened.kind))
    elif opened.format.name == MEMORY_TIMELINE and not file.named:
        # Beside traces, a timeline would split their run by file name: it is ingested only if it is named.
        reason = f"is {DESCRIPTIONS[MEMORY_TIMELINE]}: name the file to ingest it as a separate run"
        outcomes.append(FileOutcome(path, "skipped", reason=reason))
    else:
        note = inbox.spool_note(path) if options.inbox else None
        sources += (
            SurveyedSource(path, opened.stamp, opened.format, part, opened.text_bytes, note)
            for part in opened.parts
        )


def _failed(path: Path, failure: Failure) -> FileOutcome:
    reason = failure.message.removeprefix(f"{path}: ")
    return FileOutcome(path, "refused", reason=reason, hint=failure.hint, details=failure.details)


def other_format(file: Candidate, kind: str, details: str | None = None) -> FileOutcome:
    """The outcome of a file that no format reads: skipped in a folder, refused if named.

    `details` is what reading the file showed.
    """
    reason = details or f"is {DESCRIPTIONS.get(kind, f'of format {kind}')}"
    if not file.named:
        return FileOutcome(file.path, "skipped", reason=reason)
    hint = REMEDIES.get(kind, TRACES)
    refusal = details or f"{reason}, not a supported trace"
    return FileOutcome(file.path, "refused", reason=refusal, hint=hint)
