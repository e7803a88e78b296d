"""The records of an ingest: a file, a source in it that becomes a rank, its run and rank, and its commit."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.engines import StoreFailed, TaskFailure
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.file_text import files_of, is_compressed_database, unpack_database
from tracewarehouse.ingest.inbox import NOTE_SUFFIX, SpoolNote, remove
from tracewarehouse.ingest.outcome import BY_ANOTHER_PROCESS, Content, FileOutcome, State

if TYPE_CHECKING:
    from tracewarehouse.formats.base import Format, Part, Status
    from tracewarehouse.storage.model import RankSource
    from tracewarehouse.storage.remote import SourceObject

# Size and modification time: a difference means that the file was written to.
FileStamp: TypeAlias = tuple[int, int]
# First start and last end of the slices of a source; None if none has a time.
TimeWindow: TypeAlias = tuple[int | None, int | None]

# Tools that may record a process beside torch, by the beginning of their formats.
NSIGHT: Final = "nsys"
NCCL: Final = "nccl_profiler"
RECORDINGS: Final = (NSIGHT, NCCL)
CHANGED: Final = "changed while it was read"
_GONE: Final = "no such object: it was deleted after it was listed"


class ObjectChanged(TraceFormatError):
    """An object that was replaced after it was listed."""


class TraceFile(Struct, frozen=True):
    """A file to survey; `named` if the caller named the file itself, not a folder.

    `object` is the object of a store that has the file, `copy` the path of its copy on the machine of the
    call, decompressed if the file is a database. `note` is what the trace handler wrote about the file,
    `parts` the number of its sources.
    """

    path: Path
    named: bool
    object: SourceObject | None = None
    copy: Path | None = None
    note: SpoolNote | None = None
    parts: int = 1

    def __fspath__(self) -> str:
        """Its path: a file that was found before can be ingested as it was found."""
        return str(self.path)

    @property
    def stamp(self) -> FileStamp:
        """Size and time of change now; of an object, when it was listed."""
        return self.object.stamp if self.object else file_stamp(self.path)

    def with_copy(self, copies: Path) -> TraceFile:
        """The file with a copy in a folder of the call, if it is an object or a compressed database."""
        if self.object is None and not is_compressed_database(self.path):
            return self
        place = self.object.url if self.object else str(self.path)
        name = self.object.entry.key.rpartition("/")[2] if self.object else self.path.stem
        return replace(self, copy=copies / sha256(os.fsencode(place)).hexdigest()[:16] / name)

    def take_out(self) -> None:
        """Removes the file and its note from the inbox. Raises StoreUnavailable."""
        if self.object is not None:
            self.object.delete(f"{self.object.entry.key}{NOTE_SUFFIX}")
        else:
            remove(self.path)

    def local(self, folder: Path) -> Path:
        """The file, or the path for its copy: of an earlier one on this machine, else in the folder."""
        if self.copy is None:
            return self.path
        return self.copy if self.copy.exists() else folder / "copies" / self.copy.parent.name / self.copy.name

    def fetch(self, copy: Path, up_to: int | None = None) -> None:
        """Completes a copy. Raises TraceFormatError, StoreUnavailable."""
        if self.object is None:
            if not copy.exists():
                unpack_database(self.path, copy)
            return
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            is_same = self.object.download(copy, up_to)
        except FileNotFoundError:
            raise TraceFormatError(self.object.url, _GONE, hint="ingest the folder again") from None
        if not is_same:
            copy.unlink(missing_ok=True)
            raise ObjectChanged(self.object.url, CHANGED, hint="ingest it again later")

    def failed(self, failure: TaskFailure, inbox: bool, copy: Path | None = None) -> FileOutcome:
        """The outcome of the file after a failure to read its copy, for an object, else the file itself.

        `inbox`: another process may have ingested the file meanwhile.
        """
        if inbox and (_GONE in failure.message if self.object else not self.path.exists()):
            return FileOutcome(self.path, "skipped", reason=BY_ANOTHER_PROCESS)
        message, hint = failure.message, failure.hint
        if copy:
            message = message.replace(str(copy), str(self.path))
            # A hint has a separate form for the command line, which a plain text lacks.
            hint = hint.replace(str(copy), str(self.path)) if hint and str(copy) in hint else hint
        reason = message.removeprefix(f"{self.path}: ")
        unanswered = isinstance(failure, StoreFailed) and failure.transient
        state: State = "pending" if unanswered else "refused"
        return FileOutcome(
            self.path, state, reason=reason, hint=hint, details=failure.details, unanswered=unanswered
        )


def file_stamp(path: Path) -> FileStamp:
    """Size and modification time of the files of a trace; (-1, -1) if it does not exist."""
    try:
        stats = [file.stat() for file in files_of(path)]
    except OSError:
        return -1, -1
    return sum(stat.st_size for stat in stats), max((stat.st_mtime_ns for stat in stats), default=-1)


class Target(Struct, frozen=True):
    """The run and rank that a source is stored as; without a run it is only read.

    `world_size` is that of the trace, else of its name; `notes` report conflicts, `named_after` says what
    named the run, unless that is obvious.
    """

    run: str = ""
    rank: int = 0
    world_size: int | None = None
    window_number: int | None = None
    notes: tuple[str, ...] = ()
    named_after: str = ""


class RankCommit(Struct, frozen=True):
    """What reading a whole source showed, and where its tables are.

    `rank` and `world_size` are those in the source. `is_known`: it was only read enough to see that it is
    stored already. `place` is the run and rank that the tables were built for, None if they were not; they
    are in a commit, by its name, or staged in a folder. `apart` says why recordings of the same process by
    other tools are not joined: name of the file, colon, reason.
    """

    digest: str
    status: Status
    text_bytes: int
    rank: int | None = None
    world_size: int | None = None
    window: TimeWindow = (None, None)
    is_known: bool = False
    content: Content | None = None
    place: tuple[str, int] | None = None
    uid: str = ""
    commit: str = ""
    staged: Path | None = None
    apart: tuple[str, ...] = ()


class Source(Struct, frozen=True):
    """A part of a file that becomes a rank.

    `stamp` is from before the file was opened, `text_bytes` an estimate. `published` and `unpublished` are
    what is stored as its target, the latter by a call that was interrupted; `is_current` if a build now would
    equal what is published. `beside` are recordings of the same process by other tools.
    """

    file: TraceFile
    format: Format
    part: Part
    stamp: FileStamp
    text_bytes: int
    target: Target = Target()
    published: RankSource | None = None
    is_current: bool = False
    unpublished: RankSource | None = None
    commit: RankCommit | None = None
    beside: tuple[Source, ...] = ()

    @property
    def key(self) -> tuple[Path, str]:
        """Path and part, the identity of the source in a call."""
        return self.file.path, self.part.name

    @property
    def rank(self) -> int | None:
        """The rank in the file: as its beginning says, or the whole file once that is read."""
        return self.commit.rank if self.commit else self.part.rank

    @property
    def world_size(self) -> int | None:
        """The world size in the file, else in the note of the trace handler."""
        in_file = self.commit.world_size if self.commit else self.part.world_size
        return self.file.note.world_size if in_file is None and self.file.note else in_file

    @property
    def committed(self) -> RankCommit:
        """The commit of a source that was read."""
        assert self.commit is not None
        return self.commit

    @property
    def is_damaged(self) -> bool:
        """Whether reading the whole source lost something."""
        return self.commit is not None and self.commit.status == "damaged"

    @property
    def is_built(self) -> bool:
        """Whether its tables were built for its target."""
        return self.commit is not None and self.commit.place == (self.target.run, self.target.rank)

    @property
    def known(self) -> RankSource | None:
        """What is stored as its target and need not be built again: equal content is not read completely."""
        return self.published if self.is_current else self.unpublished

    def may_replace(self, status: Status, text_bytes: int, replace: bool) -> bool:
        """Whether it may replace other content. Publishing decides finally, by what is stored then."""
        stored = self.published
        if stored is None or replace:
            return True
        return stored.status == "damaged" and (status != "damaged" or text_bytes > stored.text_bytes)

    def outcome(
        self, state: State, reason: str | None = None, hint: str | None = None, content: Content | None = None
    ) -> FileOutcome:
        """The outcome of a source that has a target."""
        run, rank, notes = self.target.run, self.target.rank, self.target.notes
        return FileOutcome(self.file.path, state, run, rank, reason, hint, notes, content)
