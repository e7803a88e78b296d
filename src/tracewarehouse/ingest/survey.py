"""The first two phases of an ingest: files among the given paths, then the sources in them.

The survey reads the first megabyte of a file, or downloads it. It shows the format, and the parts of the file
with their ranks where the file says them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.engines import Engine, TaskFailure, TaskProgress, task_failure
from tracewarehouse.errors import StoreUnavailable, TraceFormatError, TwError
from tracewarehouse.formats.file_text import (
    DESCRIPTIONS,
    EXPECTED_RESULTS,
    REMEDIES,
    UnsupportedFormatError,
    csv_tables,
    same_recording,
)
from tracewarehouse.formats.registry import HEAD_BYTES, detect, is_trace_folder
from tracewarehouse.ingest.inbox import INBOX, NOTE_SUFFIX, parse_note, spool_note, spooled_files
from tracewarehouse.ingest.naming import stem
from tracewarehouse.ingest.outcome import BY_ANOTHER_PROCESS, FileOutcome, Progress, Watch
from tracewarehouse.ingest.sources import CHANGED, NSIGHT, RECORDINGS, ObjectChanged, Source, TraceFile
from tracewarehouse.late_regex import late_regex
from tracewarehouse.location import StoreUrl, store_url
from tracewarehouse.storage.layout import WAREHOUSE
from tracewarehouse.storage.objects import LocalObjects, Objects

if TYPE_CHECKING:
    from tracewarehouse.formats.base import Part
    from tracewarehouse.storage.remote import SourceLocation, SourceObject

TRACE_NAMES = late_regex(
    r"\.(?:json|jsonl|ndjson|trace|raw|pickle|pkl|sqlite|sqlite3|db|rpd|pftrace)(?:\.gz|\.zst)?$"
    r"|\.xplane\.pb(?:\.gz|\.zst)?$"
    r"|^(?:nccl|comm_lib)_trace_rank_(?:.+_)?\d+$"
    r"|(?:^|[._-])ncu(?:[._-].*)?\.csv(?:\.gz|\.zst)?$",
    re.IGNORECASE,
)
_CSV_STATISTICS = late_regex(r"_stats\.csv$")
# Other files that are often stored beside traces: reported as skipped by their suffix, without opening them.
OTHER_FILES = {
    ".nsys-rep": "is an Nsight Systems report: name the file itself, or run nsys export --type sqlite",
    ".ncu-rep": "is an Nsight Compute report: export it with ncu --import FILE --csv --page raw",
    ".csv": "is a CSV file: name it if it is from ncu --csv or of a registered format",
}
# What JAX writes beside a profile, HOST.xplane.pb.
_PROFILE_COPY: Final = late_regex(r"(?:\.trace|^perfetto_trace)\.json(?:\.gz)?$")
TEMPORARY = late_regex(r"\.(?:tmp|temp|part|partial|swp|crdownload|filepart)$|~$", re.IGNORECASE)
TRACES = (
    "supported are Chrome JSON with a list of events (torch.profiler's export_chrome_trace),"
    " SQLite exports of Nsight Systems (nsys export --type sqlite), profiles of JAX (.xplane.pb),"
    " and files of rpd and rocprofv3"
)
# Of traces in folders; other files are ingested if they are named.
ENDINGS = (
    ".json, .jsonl, .trace, .sqlite, .db, .rpd, .pickle, .pftrace or .xplane.pb, with or without .gz or .zst"
)
_EXPECTED_RESULTS = ("skipped", f"is {DESCRIPTIONS[EXPECTED_RESULTS]}")
# Up to this number of files form a single task.
_FEW_FILES = 64
_FILES_PER_TASK = 32
_IN_FLIGHT: Final = 16
_MEMORY_TIMELINE: Final = "memory_timeline"
# Formats whose files are recognized, and their parts known, from the first megabyte.
_READ_FROM_HEAD: Final = frozenset({"kineto", _MEMORY_TIMELINE})
# Traces compress to between a tenth and a seventeenth; memory is planned for the larger text.
_TEXT_BYTES_PER_GZIP_BYTE: Final = 17
# An event in a profile of JAX has a tenth of the bytes of one in JSON, but needs the same memory.
_TEXT_BYTES_PER_BYTE: Final = {"xplane": 10}
_GZIP: Final = b"\x1f\x8b"
# Larger times count from the epoch. A trace starts this long before the first GPU activity at most.
_EPOCH_NS: Final = 10**17
_EARLIER_NS: Final = 600 * 10**9
_NO_FILE: Final = ("no such file or folder", "check the path; folders are searched to any depth")
_NO_OBJECT: Final = (
    "no such object or folder",
    "check the bucket and the path; folders are searched to any depth",
)
# The files to survey, and the outcomes of paths that cannot be ingested and of files that are no traces.
Discovered: TypeAlias = tuple[list[TraceFile], list[FileOutcome]]


def discover(paths: Iterable[str | os.PathLike[str]]) -> Discovered:
    """Named files and those found in folders, in order of path. Raises nothing: problems are outcomes."""
    files: dict[tuple[int, int], TraceFile] = {}
    refused: list[FileOutcome] = []
    skipped: dict[Path, FileOutcome] = {}
    for path in paths:
        for file in [path] if isinstance(path, TraceFile) else _files_at(os.fspath(path)):
            if isinstance(file, TraceFile):
                key = _identity(file.path)
                # A file may be named and also found in a folder: being named counts.
                if key not in files or (file.named and not files[key].named):
                    files[key] = file
            elif file.state == "refused":
                refused.append(file)
            else:
                skipped[file.path.absolute()] = file
    ordered, copies = _without_copies(sorted(files.values(), key=lambda file: file.path.absolute().parts))
    return ordered, [*refused, *skipped.values(), *copies]


def _without_copies(files: Sequence[TraceFile]) -> Discovered:
    """The files without what JAX writes for viewers beside a profile, and the outcomes of these copies."""
    profiles = {
        file.path.parent: file.path.name for file in reversed(files) if ".xplane.pb" in file.path.name
    }
    originals: list[TraceFile] = []
    copies: list[FileOutcome] = []
    for file in files:
        if file.path.parent in profiles and _PROFILE_COPY.search(file.path.name):
            reason = f"is the same recording as {profiles[file.path.parent]}"
            copies.append(FileOutcome(file.path, "skipped", reason=reason))
        else:
            originals.append(file)
    return originals, copies


def _refused(path: Path, reason: str, hint: str | None = None) -> FileOutcome:
    return FileOutcome(path, "refused", reason=reason, hint=hint)


def is_warehouse(folder: Path) -> bool:
    """Whether a folder is a warehouse, whose files are not traces to ingest."""
    # Unlike Path.is_file, this is False for an unreadable folder, which the walk reports.
    return os.path.isfile(folder / "_tw" / "warehouse.json")  # noqa: PTH113


def _files_at(text: str) -> Iterator[TraceFile | FileOutcome]:
    path = Path(text)
    if not text:  # from an unset variable: it does not mean the current folder
        yield _refused(path, *_NO_FILE)
        return
    try:
        is_folder = path.is_dir()
        is_file = path.is_file()
    except OSError as error:
        yield _refused(path, _reason(error))
        return
    if is_file or is_folder and _is_trace(path):
        yield TraceFile(next(iter(csv_tables(path).values()), path), named=True)
    elif is_folder:
        yield from _folder_files(path)
    elif path.exists():
        yield _refused(path, "neither a file nor a folder", "name trace files or folders of them")
    else:
        yield _refused(path, *_NO_FILE)


def _folder_files(folder: Path) -> Iterator[TraceFile | FileOutcome]:
    if is_warehouse(folder):
        hint = hints.fill("{} ingests the inbox of a warehouse", hints.ingest_inbox())
        yield _refused(folder, "is a warehouse, not a folder of traces", hint)
        return
    files = _walk(folder)
    if (first := next(files, None)) is not None:
        yield first
        yield from files
    else:
        hint = f"traces end in {ENDINGS}; name other files (.nsys-rep, .csv, …) explicitly"
        yield _refused(folder, "no traces found in this folder", hint)


def _walk(folder: Path, walked: set[tuple[int, int]] | None = None) -> Iterator[TraceFile | FileOutcome]:
    try:
        # A link to a parent folder would never end, and one to a folder above the first would leave it.
        walked = {_identity(parent) for parent in folder.resolve().parents} if walked is None else walked
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        identity = _identity(folder)
    except OSError as error:
        yield _refused(folder, _reason(error), "check the folder's permissions")
        return
    if identity in walked:
        return
    walked.add(identity)
    for entry in entries:
        if entry.name.startswith(".") or TEMPORARY.search(entry.name):
            continue
        path = Path(entry.path)
        try:
            is_folder, is_file = entry.is_dir(), entry.is_file()
        except OSError as error:  # a link to itself, say
            yield _refused(path, _reason(error), "remove it, or name the trace files")
            continue
        if is_folder and _is_trace(path):
            yield TraceFile(path, named=False)
        elif is_folder and not is_warehouse(path):
            yield from _walk(path, walked)
        elif is_file:
            yield from _file_in_folder(path)


def _file_in_folder(path: Path) -> Iterator[TraceFile | FileOutcome]:
    """A trace, or another file to report; nothing for a file that belongs to the trace in another."""
    tables = csv_tables(path)
    if original := same_recording(path):
        yield FileOutcome(path, "skipped", reason=f"is the same recording as {original}")
    elif path == next(iter(tables.values()), None) or TRACE_NAMES.search(path.name):
        yield TraceFile(path, named=False)
    elif _CSV_STATISTICS.search(path.name):
        yield FileOutcome(path, "skipped", reason="has statistics of rocprofv3, which traces show as well")
    elif not tables and path.suffix.lower() in OTHER_FILES:
        yield FileOutcome(path, "skipped", reason=OTHER_FILES[path.suffix.lower()])


def _is_trace(folder: Path) -> bool:
    """Whether a folder is a trace: it has Parquet files, with the tables of a format."""
    from tracewarehouse.formats.databases import SUFFIX

    try:
        return any(name.endswith(SUFFIX) for name in os.listdir(folder)) and is_trace_folder(folder)  # noqa: PTH208
    except OSError:  # reported by the walk
        return False


def _identity(path: Path) -> tuple[int, int]:
    info = path.stat()
    return info.st_dev, info.st_ino


def _reason(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"


def survey(
    engine: Engine, files: Sequence[TraceFile], inbox: bool, watch: Watch
) -> tuple[list[Source], list[FileOutcome]]:
    """The sources in the files, in order of path, and the outcomes of the other files."""
    size = len(files) if len(files) <= _FEW_FILES else _FILES_PER_TASK
    chunks = [files[first : first + size] for first in range(0, len(files), size or 1)]
    sources: list[Source] = []
    outcomes: list[FileOutcome] = []

    def on_progress(task: int, number: int, _: int) -> None:
        file = chunks[task][number]
        stored_bytes = max(0, file.stamp[0])
        watch(Progress(file.path, "survey", stored_bytes, stored_bytes))

    for task, results in engine.run([SurveyFiles(tuple(chunk), inbox) for chunk in chunks], on_progress):
        if isinstance(results, TaskFailure):
            outcomes += [file.failed(results, inbox) for file in chunks[task]]
            continue
        for result in results:  # type: ignore[attr-defined]
            if isinstance(result, FileOutcome):
                outcomes.append(result)
            else:
                sources += result
    if sources:  # a simulated job's expected results beside its traces are not worth a line
        outcomes = [each for each in outcomes if (each.state, each.reason) != _EXPECTED_RESULTS]
    return paired(sorted(sources, key=lambda source: source.key)), outcomes


def paired(sources: Sequence[Source]) -> list[Source]:
    """The sources, where a trace of torch has the recordings of its process by other tools beside it.

    Of several recordings of a process of that number and time, these are the ones in the folder of the trace.
    Nsight Systems writes one per process, which may have the name of the trace; NCCL's plug-in one per
    communicator.
    """
    recordings = [source for source in sources if source.format.name.startswith(RECORDINGS)]
    beside: dict[tuple[Path, str], tuple[Source, ...]] = {}
    for trace in sources if recordings else ():
        if trace.part.start_ns is None:
            continue
        for tool in RECORDINGS:
            of_tool = (source for source in recordings if source.format.name.startswith(tool))
            matching = [source for source in of_tool if _is_of_one_process(trace.part, source.part)]
            matching = [one for one in matching if one.file.path.parent == trace.file.path.parent] or matching
            if tool == NSIGHT and len(matching) > 1:
                name = stem(trace.file.path.name)
                matching = [source for source in matching if stem(source.file.path.name) == name]
            if tool != NSIGHT or len(matching) == 1:
                beside[trace.key] = (*beside.get(trace.key, ()), *matching)
    paired_keys = {source.key for matching in beside.values() for source in matching}
    return [replace(one, beside=beside.get(one.key, ())) for one in sources if one.key not in paired_keys]


def _is_of_one_process(trace: Part, recording: Part) -> bool:
    """Whether the processes have one number, and the trace starts while it is recorded, if both say when."""
    start_ns, (first_ns, last_ns) = trace.start_ns or 0, recording.window or (0, 0)
    is_timed = min(start_ns, first_ns) > _EPOCH_NS
    is_at_once = first_ns - _EARLIER_NS <= start_ns <= last_ns
    return trace.process == recording.process and (is_at_once or not is_timed)


class SurveyFiles(Struct, frozen=True):
    """Opens files one after the other; returns the sources or the outcome of each.

    Of objects, the beginning is downloaded first, of all of them at the same time.
    """

    files: tuple[TraceFile, ...]
    inbox: bool

    def run(self, progress: TaskProgress) -> tuple[tuple[Source, ...] | FileOutcome, ...]:
        unread = _fetch_heads(self.files)
        results = []
        for number, file in enumerate(self.files):
            try:
                result = unread.get(file.path) or _sources_in(file)
            except Exception as error:
                result = task_failure(error)
            if self.inbox and file.copy is None and not file.path.exists():
                result = FileOutcome(file.path, "skipped", reason=BY_ANOTHER_PROCESS)
            elif isinstance(result, TaskFailure):
                result = file.failed(result, self.inbox, file.copy)
            results.append(result)
            progress(number, 0)
        return tuple(results)


def _fetch_heads(files: Sequence[TraceFile]) -> dict[Path, TaskFailure]:
    """Downloads the beginnings of the objects among the files, many at once; the failures."""
    objects = [file for file in files if file.copy]
    if not objects:
        return {}
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_IN_FLIGHT, len(objects))) as pool:
        failures = zip(objects, pool.map(_fetch_head, objects), strict=True)
        return {file.path: failure for file, failure in failures if failure}


def _fetch_head(file: TraceFile) -> TaskFailure | None:
    assert file.copy is not None
    try:
        file.fetch(file.copy, HEAD_BYTES)
    except ObjectChanged:  # noticed again by what needs the copy
        return None
    except Exception as error:
        return task_failure(error)
    return None


def _sources_in(file: TraceFile) -> tuple[Source, ...] | FileOutcome:
    """The sources that the beginning of a file shows. Raises TraceFormatError, TwError."""
    path, stamp = file.copy or file.path, file.stamp
    try:
        if file.copy and not (file.copy.exists() and _is_shown_by_head(file)):
            file.fetch(file.copy)
        format_ = detect(path)
    except ObjectChanged:
        return FileOutcome(file.path, "pending", reason=CHANGED, hint="ingest it again later")
    except UnsupportedFormatError as error:
        return other_format(file, error.format)
    parts = format_.open(path).parts()
    if format_.name == _MEMORY_TIMELINE and not file.named:
        # Beside traces, a timeline would split their run by file name: it is ingested only if it is named.
        reason = f"is {DESCRIPTIONS[_MEMORY_TIMELINE]}: name the file to ingest it as a separate run"
        return FileOutcome(file.path, "skipped", reason=reason)
    file = replace(file, parts=len(parts))
    text_bytes = stamp[0] * _TEXT_BYTES_PER_BYTE.get(format_.name, 1)
    if not path.is_dir():
        with path.open("rb") as opened:
            text_bytes *= _TEXT_BYTES_PER_GZIP_BYTE if opened.read(2) == _GZIP else 1
    return tuple(Source(file, format_, part, stamp, text_bytes) for part in parts)


def _is_shown_by_head(file: TraceFile) -> bool:
    """Whether the beginning of the object, which is there, shows its format and ranks."""
    assert file.copy is not None
    if file.copy.stat().st_size == file.stamp[0]:
        return True
    try:
        return detect(file.copy).name in _READ_FROM_HEAD
    except (UnsupportedFormatError, TraceFormatError):
        return False


def other_format(file: TraceFile, kind: str, details: str | None = None) -> FileOutcome:
    """The outcome of a file that no format reads: skipped in a folder, refused if named.

    `details` is what reading the file showed.
    """
    reason = details or f"is {DESCRIPTIONS.get(kind, f'of format {kind}')}"
    if not file.named:
        return FileOutcome(file.path, "skipped", reason=reason)
    hint = REMEDIES.get(kind, TRACES)
    refusal = details or f"{reason}, not a supported trace"
    return FileOutcome(file.path, "refused", reason=refusal, hint=hint)


class UrlPath(PosixPath):
    """The URL of an object as a path, so that names of runs and ranks are derived as from local files."""

    def __str__(self) -> str:
        """The URL; a path has one slash where a URL has two."""
        scheme, separator, location = super().__str__().partition(":/")
        return f"{scheme}://{location}" if separator else scheme

    def absolute(self) -> UrlPath:
        """The path itself."""
        return self


def discover_objects(urls: Iterable[str], warehouse: Objects) -> Discovered:
    """The objects at URLs, in their order; problems are outcomes. Raises StoreUnavailable."""
    from tracewarehouse.storage.remote import source_location

    files: dict[str, TraceFile] = {}
    outcomes: list[FileOutcome] = []
    for url in urls:
        try:
            for file in _objects_at(url, source_location(store_url(url), warehouse)):
                if isinstance(file, FileOutcome):
                    outcomes.append(file)
                elif file.named or str(file.path) not in files:
                    files[str(file.path)] = file
        except (TwError, StoreUnavailable) as error:
            if isinstance(error, StoreUnavailable) and error.is_transient:
                raise
            # Not the URL as given: it may have credentials.
            path = UrlPath(url) if isinstance(error, StoreUnavailable) else UrlPath(url.partition("://")[0])
            outcomes.append(_refused(path, error.message.removeprefix(f"{path}: "), error.hint))
    originals, copies = _without_copies(sorted(files.values(), key=lambda file: file.path.parts))
    return originals, [*outcomes, *copies]


def discover_inbox(warehouse: Objects) -> list[TraceFile]:
    """The traces in the inbox of a warehouse, with their notes. Raises StoreUnavailable."""
    if isinstance(warehouse, LocalObjects):
        local = spooled_files(warehouse.folder)
        return [TraceFile(path, named=False, note=spool_note(path)) for path in local]
    from tracewarehouse.storage.remote import RemoteObjects, source_location

    assert isinstance(warehouse, RemoteObjects)
    place = source_location(StoreUrl(f"{warehouse.url}/{INBOX}", warehouse.place.options), warehouse)
    objects = {one.url: one for one in place.objects() if _is_spooled(one.entry.key.removeprefix(place.key))}
    files = []
    for url, spooled in objects.items():
        if not url.endswith(NOTE_SUFFIX):
            path, note = UrlPath(url), objects.get(url + NOTE_SUFFIX)
            spooled_note = parse_note(path.parent.name, note.read() if note else b"")
            files.append(TraceFile(path, named=False, object=spooled, note=spooled_note))
    return files


def _is_spooled(key: str) -> bool:
    """Whether a key below the inbox is that of a file in the folder of a run."""
    names = key.strip("/").split("/")
    return len(names) == 2 and not names[1].startswith(".")


def _objects_at(url: str, place: SourceLocation) -> Iterator[TraceFile | FileOutcome]:
    if "*" in place.key:
        yield from _matching(url, place)
        return
    named = None if url.endswith("/") or not place.key else place.object()
    if named is not None:
        yield TraceFile(UrlPath(named.url), named=True, object=named)
    elif place.holds(WAREHOUSE):
        hint = hints.fill("{} ingests the inbox of a warehouse", hints.ingest_inbox())
        yield _refused(UrlPath(url), "is a warehouse, not a folder of traces", hint)
    else:
        objects = list(place.objects())
        traces = list(_in_folders(objects, place.key))
        yield from traces or [_nothing(url, bool(objects))]


def _nothing(url: str, is_folder: bool) -> FileOutcome:
    if not is_folder:
        return _refused(UrlPath(url), *_NO_OBJECT)
    hint = f"traces end in {ENDINGS}; name other objects explicitly"
    return _refused(UrlPath(url), "no traces found in this folder", hint)


def _matching(url: str, place: SourceLocation) -> Iterator[TraceFile | FileOutcome]:
    """Objects that match, as if each was named, and the traces in folders that match."""
    pattern = place.key.split("/")
    first_wildcard = next(number for number, part in enumerate(pattern) if "*" in part)
    folder = type(place)(place.bucket, "/".join(pattern[:first_wildcard]))
    objects = [one for one in folder.objects() if _matches(one.entry.key.split("/"), pattern)]
    exact = [one for one in objects if one.entry.key.count("/") == len(pattern) - 1]
    below = [one for one in objects if one.entry.key.count("/") >= len(pattern)]
    traces: list[TraceFile | FileOutcome] = [
        TraceFile(UrlPath(one.url), named=True, object=one) for one in exact
    ]
    traces += _in_folders(below, folder.key)
    hint = "* matches within one folder name or object name"
    yield from traces or [_refused(UrlPath(url), "no object matches", hint)]


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the first names match the parts of a pattern, in which only `*` is special."""
    return len(names) >= len(pattern) and all(
        fnmatchcase(name, part.replace("[", "[[]")) and (part.startswith(".") or not name.startswith("."))
        for name, part in zip(names, pattern, strict=False)
    )


def _in_folders(objects: Sequence[SourceObject], prefix: str) -> Iterator[TraceFile | FileOutcome]:
    """The traces among objects below a prefix, without hidden and temporary ones and those of warehouses."""
    warehouses = tuple(
        one.entry.key.removesuffix(WAREHOUSE) for one in objects if one.entry.key.endswith(f"/{WAREHOUSE}")
    )
    for source_object in objects:
        names = source_object.entry.key.removeprefix(prefix).strip("/").split("/")
        if source_object.entry.key.startswith(warehouses) or any(
            name.startswith(".") or TEMPORARY.search(name) for name in names
        ):
            continue
        path = UrlPath(source_object.url)
        if TRACE_NAMES.search(path.name):
            yield TraceFile(UrlPath(source_object.url), named=False, object=source_object)
        elif path.suffix.lower() in OTHER_FILES:
            yield FileOutcome(path, "skipped", reason=OTHER_FILES[path.suffix.lower()])
