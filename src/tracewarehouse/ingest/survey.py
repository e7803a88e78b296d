"""What each file is before any is read as a whole: its format, and what its beginning says of its rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tracewarehouse.engines import Engine, Failure, TaskProgress, attempt
from tracewarehouse.formats.base import Format, Part
from tracewarehouse.formats.other_formats import DESCRIPTIONS, UnsupportedFormatError
from tracewarehouse.ingest import inbox
from tracewarehouse.ingest.discover import Candidate
from tracewarehouse.ingest.outcome import FileOutcome, Options, Progress, Watch

# Size and time of change: they differ when someone wrote to the file in between.
Mark: TypeAlias = tuple[int, int]

TRACES = (
    "supported are Chrome JSON with a list of events (torch.profiler's export_chrome_trace)"
    " and SQLite exports of Nsight Systems (nsys export --type sqlite)"
)
MEMORY_TIMELINE = "memory_timeline"
# Compressed traces are 10 to 17 times as large as text; memory is planned for the most.
_TEXT_BYTES_PER_GZIP_BYTE = 17
_GZIP = b"\x1f\x8b"
# As many files are opened in this process without asking engine.
_FEW_FILES = 64
_FILES_PER_TASK = 32


@dataclass(frozen=True)
class Surveyed:
    """A source that may become a rank; `mark` is from before it was opened, `text_bytes` an estimate."""

    path: Path
    mark: Mark
    format: Format
    part: Part
    text_bytes: int
    dropped: inbox.Dropped | None = None


@dataclass(frozen=True)
class Opened:
    """What the beginning of a file says. `format` None: it is a file of `kind`, which nothing here reads."""

    mark: Mark
    kind: str
    format: Format | None = None
    parts: tuple[Part, ...] = ()
    text_bytes: int = 0


@dataclass(frozen=True)
class Open:
    """Opens files, one after the other; gives an Opened or a Failure for each."""

    paths: tuple[Path, ...]

    def run(self, progress: TaskProgress) -> tuple[Opened | Failure, ...]:
        found = []
        for number, path in enumerate(self.paths):
            opened = attempt(_OpenOne(path), progress)
            assert isinstance(opened, Opened | Failure)
            found.append(opened)
            progress(number, 0)
        return tuple(found)


@dataclass(frozen=True)
class _OpenOne:
    path: Path

    def run(self, progress: TaskProgress) -> Opened:
        from tracewarehouse.formats.registry import detect

        before = mark(self.path)
        try:
            found = detect(self.path)
        except UnsupportedFormatError as error:
            return Opened(before, error.format)
        parts = found.open(self.path).parts()
        return Opened(before, found.name, found, parts, text_bytes(self.path, before[0]))


def mark(path: Path) -> Mark:
    """What changes when someone writes to a file; (-1, -1) where there is none."""
    try:
        found = path.stat()
    except OSError:
        return -1, -1
    return found.st_size, found.st_mtime_ns


def text_bytes(path: Path, stored_bytes: int) -> int:
    """About how much text a file holds."""
    with path.open("rb") as file:
        is_compressed = file.read(2) == _GZIP
    return stored_bytes * _TEXT_BYTES_PER_GZIP_BYTE if is_compressed else stored_bytes


def survey(
    engine: Engine, files: Sequence[Candidate], options: Options, watch: Watch
) -> tuple[list[Surveyed], list[FileOutcome]]:
    """The sources among the files, in order of path, and what becomes of the other files."""
    size = len(files) if len(files) <= _FEW_FILES else _FILES_PER_TASK
    chunks = [files[first : first + size] for first in range(0, len(files), size or 1)]
    sources: list[Surveyed] = []
    others: list[FileOutcome] = []

    def told(task: int, number: int, _: int) -> None:
        path = chunks[task][number].path
        stored_bytes = max(0, mark(path)[0])
        watch(Progress(path, "survey", stored_bytes, stored_bytes))

    tasks = [Open(tuple(one.path for one in chunk)) for chunk in chunks]
    for task, found in engine.run(tasks, told):
        chunk = chunks[task]
        each = [found] * len(chunk) if isinstance(found, Failure) else found
        for file, opened in zip(chunk, each, strict=True):  # type: ignore[call-overload]
            _judge(file, opened, options, sources, others)
    return sorted(sources, key=lambda one: (one.path, one.part.name)), others


def _judge(
    file: Candidate,
    opened: Opened | Failure,
    options: Options,
    sources: list[Surveyed],
    others: list[FileOutcome],
) -> None:
    path = file.path
    if options.inbox and not path.exists():
        others.append(FileOutcome(path, "skipped", reason="already ingested by another process"))
    elif isinstance(opened, Failure):
        others.append(_failed(path, opened))
    elif opened.format is None:
        others.append(other_format(file, opened.kind))
    elif opened.format.name == MEMORY_TIMELINE and not file.named:
        # Beside traces a timeline would split their run by names of files: it is ingested where it is named.
        reason = f"is {DESCRIPTIONS[MEMORY_TIMELINE]}: name it, and it becomes a run of its own"
        others.append(FileOutcome(path, "skipped", reason=reason))
    else:
        dropped = inbox.dropped(path) if options.inbox else None
        sources += (
            Surveyed(path, opened.mark, opened.format, part, opened.text_bytes, dropped)
            for part in opened.parts
        )


def _failed(path: Path, failure: Failure) -> FileOutcome:
    reason = failure.message.removeprefix(f"{path}: ")
    return FileOutcome(path, "refused", reason=reason, hint=failure.hint, details=failure.details)


def other_format(file: Candidate, kind: str) -> FileOutcome:
    """What becomes of a file that no format here reads: in a folder such files are no surprise."""
    reason = f"is {DESCRIPTIONS.get(kind, f'of format {kind}')}"
    if not file.named:
        return FileOutcome(file.path, "skipped", reason=reason)
    return FileOutcome(file.path, "refused", reason=f"{reason}, not a supported trace", hint=TRACES)
