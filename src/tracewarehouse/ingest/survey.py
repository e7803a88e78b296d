"""Sources among the given paths: files in folders, their formats, and the parts that describe one rank.

Only the beginning of a file is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PosixPath

from msgspec import Struct

from tracewarehouse import hints
from tracewarehouse.engines import Engine, Failure
from tracewarehouse.errors import StoreUnavailable, TwError
from tracewarehouse.formats.base import Format, Part
from tracewarehouse.formats.file_text import DESCRIPTIONS, EXPECTED_RESULTS, REMEDIES
from tracewarehouse.ingest import inbox
from tracewarehouse.ingest.inbox import INBOX, NOTE_SUFFIX, parse_note
from tracewarehouse.ingest.open_files import (
    CHANGED,
    GONE,
    MEMORY_TIMELINE,
    FileStamp,
    OpenedFile,
    OpenFiles,
    RemoteFile,
    file_stamp,
)
from tracewarehouse.ingest.outcome import BY_ANOTHER_PROCESS, FileOutcome, Options, Progress, Watch
from tracewarehouse.location import StoreUrl, store_url
from tracewarehouse.storage import RankSource
from tracewarehouse.storage.layout import WAREHOUSE
from tracewarehouse.storage.objects import Objects
from tracewarehouse.storage.remote import RemoteObjects, SourceLocation, SourceObject, source_location

TRACE_NAMES = re.compile(
    r"\.(?:(?:json|jsonl|ndjson|trace|raw|pickle|pkl)(?:\.gz)?|sqlite|sqlite3|db|rpd)$"
    r"|^(?:nccl|comm_lib)_trace_rank_\d+$"
    r"|(?:^|[._-])ncu(?:[._-].*)?\.csv(?:\.gz)?$",
    re.IGNORECASE,
)
# Other files that are often stored beside traces: reported as skipped by their suffix, without opening them.
OTHER_FILES = {
    ".nsys-rep": "is an Nsight Systems report: name the file itself, or run nsys export --type sqlite",
    ".ncu-rep": "is an Nsight Compute report: export it with ncu --import FILE --csv --page raw",
    ".pftrace": "is a Perfetto trace",
    ".csv": "is a CSV file: name it if it is from ncu --csv or of a registered format",
}
TEMPORARY = re.compile(r"\.(?:tmp|temp|part|partial|swp|crdownload|filepart)$|~$", re.IGNORECASE)
TRACES = (
    "supported are Chrome JSON with a list of events (torch.profiler's export_chrome_trace),"
    " SQLite exports of Nsight Systems (nsys export --type sqlite), and files of rpd and rocprofv3"
)
# Of traces in folders; other files are ingested if they are named.
ENDINGS = ".json, .json.gz, .jsonl, .trace, .sqlite, .db, .rpd or .pickle"
_EXPECTED_RESULTS = ("skipped", f"is {DESCRIPTIONS[EXPECTED_RESULTS]}")
# Up to this number of files form a single task.
_FEW_FILES = 64
_FILES_PER_TASK = 32


class Candidate(Struct, frozen=True):
    """A file to survey; `named` if the caller named the file itself, not a folder.

    `remote` is the object of a store that has the file, `note` that of a file in the inbox there.
    """

    path: Path
    named: bool
    remote: SourceObject | None = None
    note: inbox.SpoolNote | None = None

    @property
    def stamp(self) -> FileStamp:
        """Size and time of change now; of an object, when it was listed."""
        return self.remote.stamp if self.remote else file_stamp(self.path)


class RefusedPath(Struct, frozen=True):
    """A path that cannot be ingested, and why."""

    path: Path
    reason: str
    hint: str | None


class SkippedFile(Struct, frozen=True):
    """A file in a folder that is known not to be a trace, and what it is."""

    path: Path
    reason: str


class DiscoveredFiles(Struct, frozen=True):
    """Candidates by path, each physical file once; refused paths; skipped files."""

    files: tuple[Candidate, ...]
    refused: tuple[RefusedPath, ...]
    skipped: tuple[SkippedFile, ...] = ()

    def with_more(self, other: DiscoveredFiles) -> DiscoveredFiles:
        """These, then the others."""
        return DiscoveredFiles(
            (*self.files, *other.files), (*self.refused, *other.refused), (*self.skipped, *other.skipped)
        )


def discover(paths: Iterable[str | os.PathLike[str]]) -> DiscoveredFiles:
    """The files to survey: named ones and those found in folders. Raises nothing: problems are listed."""
    files: dict[tuple[int, int], Candidate] = {}
    refused: list[RefusedPath] = []
    skipped: dict[Path, SkippedFile] = {}
    for given in (os.fspath(each) for each in paths):
        # An empty name comes from an unset variable; it does not mean the current folder.
        for found in _candidates_at(Path(given)) if given else [_no_such(Path(given))]:
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
    ordered = sorted(files.values(), key=lambda file: file.path.absolute().parts)
    return DiscoveredFiles(tuple(ordered), tuple(refused), tuple(skipped.values()))


def is_warehouse(folder: Path) -> bool:
    """Whether a folder is a warehouse, whose files are not traces to ingest."""
    # Unlike Path.is_file, this is False for an unreadable folder, which the walk reports.
    return os.path.isfile(folder / "_tw" / "warehouse.json")  # noqa: PTH113


def _no_such(path: Path) -> RefusedPath:
    return RefusedPath(path, "no such file or folder", "check the path; folders are searched to any depth")


def _candidates_at(path: Path) -> Iterator[Candidate | RefusedPath | SkippedFile]:
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
        hint = f"traces end in {ENDINGS}; name other files (.nsys-rep, .csv, …) explicitly"
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
    from tracewarehouse.formats.databases import SUFFIX
    from tracewarehouse.formats.registry import is_trace_folder

    try:
        return any(name.endswith(SUFFIX) for name in os.listdir(folder)) and is_trace_folder(folder)  # noqa: PTH208
    except OSError:  # reported by the walk
        return False


def _identity(path: Path) -> tuple[int, int]:
    info = path.stat()
    return info.st_dev, info.st_ino


def _reason(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"


class SurveyedSource(Struct, frozen=True):
    """A source that may become a rank; `stamp` is from before it was opened, `text_bytes` is an estimate.

    `remote`: where to download the file from. `stored`: what an earlier call made of the same object.
    """

    path: Path
    stamp: FileStamp
    format: Format
    part: Part
    text_bytes: int
    note: inbox.SpoolNote | None = None
    remote: RemoteFile | None = None
    stored: RankSource | None = None


def survey(
    engine: Engine, files: Sequence[Candidate], options: Options, watch: Watch, copies: Path | None = None
) -> tuple[list[SurveyedSource], list[FileOutcome]]:
    """The sources among the files, in order of path, and the outcomes of the other files.

    `copies` is a folder for local copies of objects.
    """
    size = len(files) if len(files) <= _FEW_FILES else _FILES_PER_TASK
    chunks = [files[first : first + size] for first in range(0, len(files), size or 1)]
    sources: list[SurveyedSource] = []
    outcomes: list[FileOutcome] = []

    def on_progress(task: int, number: int, _: int) -> None:
        file = chunks[task][number]
        stored_bytes = max(0, file.stamp[0])
        watch(Progress(file.path, "survey", stored_bytes, stored_bytes))

    remotes = {
        file.path: RemoteFile.of(file.remote, copies) for file in files if file.remote and copies is not None
    }
    tasks = [OpenFiles(tuple((one.path, remotes.get(one.path)) for one in chunk)) for chunk in chunks]
    for task, found in engine.run(tasks, on_progress):
        chunk = chunks[task]
        each = [found] * len(chunk) if isinstance(found, Failure) else found
        for file, opened in zip(chunk, each, strict=True):  # type: ignore[call-overload]
            _classify(file, opened, options, sources, outcomes, remotes.get(file.path))
    if sources:  # a simulated job's expected results beside its traces are not worth a line
        outcomes = [each for each in outcomes if (each.state, each.reason) != _EXPECTED_RESULTS]
    return sorted(sources, key=lambda one: (one.path, one.part.name)), outcomes


def _classify(
    file: Candidate,
    opened: OpenedFile | Failure,
    options: Options,
    sources: list[SurveyedSource],
    outcomes: list[FileOutcome],
    remote: RemoteFile | None,
) -> None:
    path = file.path
    if options.inbox and remote is None and not path.exists():
        outcomes.append(FileOutcome(path, "skipped", reason=BY_ANOTHER_PROCESS))
    elif isinstance(opened, Failure):
        reason, hint, details = opened.message.removeprefix(f"{path}: "), opened.hint, opened.details
        failed = FileOutcome(path, "refused", reason=reason, hint=hint, details=details)
        gone = options.inbox and remote is not None and GONE in opened.message
        outcomes.append(FileOutcome(path, "skipped", reason=BY_ANOTHER_PROCESS) if gone else failed)
    elif opened.kind == CHANGED:
        outcomes.append(FileOutcome(path, "pending", reason=CHANGED, hint="ingest it again later"))
    elif opened.format is None:
        outcomes.append(other_format(file, opened.kind))
    elif opened.format.name == MEMORY_TIMELINE and not file.named:
        # Beside traces, a timeline would split their run by file name: it is ingested only if it is named.
        reason = f"is {DESCRIPTIONS[MEMORY_TIMELINE]}: name the file to ingest it as a separate run"
        outcomes.append(FileOutcome(path, "skipped", reason=reason))
    else:
        note = inbox.spool_note(path) if options.inbox and remote is None else file.note
        remote = remote.of_parts(len(opened.parts)) if remote else None
        sources += (
            SurveyedSource(path, opened.stamp, opened.format, part, opened.text_bytes, note, remote)
            for part in opened.parts
        )


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


Found = Candidate | RefusedPath | SkippedFile
_NONE = (
    "no such object or folder",
    "check the bucket and the path; folders are searched to any depth",
)


class UrlPath(PosixPath):
    """The URL of an object as a path, so that names of runs and ranks are derived as from local files."""

    def __str__(self) -> str:
        """The URL; a path has one slash where a URL has two."""
        scheme, separator, rest = super().__str__().partition(":/")
        return f"{scheme}://{rest}" if separator else scheme

    def absolute(self) -> UrlPath:
        """The path itself."""
        return self


def discover_urls(urls: Iterable[str], warehouse: Objects) -> DiscoveredFiles:
    """The objects to survey, in order of their URLs. Raises nothing: problems are listed."""
    files: dict[str, Candidate] = {}
    refused: list[RefusedPath] = []
    skipped: list[SkippedFile] = []
    for url in urls:
        try:
            for found in _objects_at(url, source_location(store_url(url), warehouse)):
                if isinstance(found, RefusedPath):
                    refused.append(found)
                elif isinstance(found, SkippedFile):
                    skipped.append(found)
                elif found.named or str(found.path) not in files:
                    files[str(found.path)] = found
        except (TwError, StoreUnavailable) as error:
            # Not the URL as given: it may have credentials.
            path = UrlPath(url) if isinstance(error, StoreUnavailable) else UrlPath(url.partition("://")[0])
            refused.append(RefusedPath(path, error.message.removeprefix(f"{path}: "), error.hint))
    ordered = sorted(files.values(), key=lambda file: file.path.parts)
    return DiscoveredFiles(tuple(ordered), tuple(refused), tuple(skipped))


def discover_inbox(warehouse: RemoteObjects) -> DiscoveredFiles:
    """The traces in the inbox of a warehouse, with their notes. Raises StoreUnavailable."""
    place = source_location(StoreUrl(f"{warehouse.url}/{INBOX}", warehouse.place.options), warehouse)
    objects = {one.url: one for one in place.objects() if _is_spooled(one.entry.key.removeprefix(place.key))}
    found = []
    for url, one in objects.items():
        note = objects.get(url + NOTE_SUFFIX)
        if not url.endswith(NOTE_SUFFIX):
            path = UrlPath(url)
            said = parse_note(path.parent.name, note.read() if note else b"")
            found.append(Candidate(path, named=False, remote=one, note=said))
    return DiscoveredFiles(tuple(found), ())


def _is_spooled(key: str) -> bool:
    """Whether a key below the inbox is that of a file in the folder of a run."""
    names = key.strip("/").split("/")
    return len(names) == 2 and not names[1].startswith(".")


def _objects_at(url: str, place: SourceLocation) -> Iterator[Found]:
    if "*" in place.key:
        yield from _matching(url, place)
        return
    named = None if url.endswith("/") or not place.key else place.object()
    if named is not None:
        yield Candidate(UrlPath(named.url), named=True, remote=named)
    elif place.holds(WAREHOUSE):
        hint = hints.fill("{} ingests the inbox of a warehouse", hints.ingest_inbox())
        yield RefusedPath(UrlPath(url), "is a warehouse, not a folder of traces", hint)
    else:
        objects = list(place.objects())
        found = list(_in_folders(objects, place.key))
        yield from found or [_nothing(url, bool(objects))]


def _nothing(url: str, is_folder: bool) -> RefusedPath:
    if not is_folder:
        return RefusedPath(UrlPath(url), *_NONE)
    hint = f"traces end in {ENDINGS}; name other objects explicitly"
    return RefusedPath(UrlPath(url), "no traces found in this folder", hint)


def _matching(url: str, place: SourceLocation) -> Iterator[Found]:
    """Objects that match, as if each was named, and the traces in folders that match."""
    parts = place.key.split("/")
    first = next(number for number, part in enumerate(parts) if "*" in part)
    folder = SourceLocation(place.bucket, "/".join(parts[:first]))
    objects = [one for one in folder.objects() if _matches(one.entry.key.split("/"), parts)]
    exact = [one for one in objects if one.entry.key.count("/") == len(parts) - 1]
    below = [one for one in objects if one.entry.key.count("/") >= len(parts)]
    found: list[Found] = [Candidate(UrlPath(one.url), named=True, remote=one) for one in exact]
    found += _in_folders(below, folder.key)
    hint = "* matches within one folder name or object name"
    yield from found or [RefusedPath(UrlPath(url), "no object matches", hint)]


def _matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether the first names match the parts of a pattern, in which only `*` is special."""
    return len(names) >= len(parts) and all(
        fnmatchcase(name, part.replace("[", "[[]")) and (part.startswith(".") or not name.startswith("."))
        for name, part in zip(names, parts, strict=False)
    )


def _in_folders(objects: Sequence[SourceObject], prefix: str) -> Iterator[Found]:
    """The traces among objects below a prefix, without hidden and temporary ones and those of warehouses."""
    warehouses = tuple(
        one.entry.key.removesuffix(WAREHOUSE) for one in objects if one.entry.key.endswith(f"/{WAREHOUSE}")
    )
    for one in objects:
        names = one.entry.key.removeprefix(prefix).strip("/").split("/")
        if one.entry.key.startswith(warehouses) or any(
            name.startswith(".") or TEMPORARY.search(name) for name in names
        ):
            continue
        path = UrlPath(one.url)
        if TRACE_NAMES.search(path.name):
            yield Candidate(path, named=False, remote=one)
        elif path.suffix.lower() in OTHER_FILES:
            yield SkippedFile(path, OTHER_FILES[path.suffix.lower()])
