"""The interface of a format reader: detection, the parts of a file, and their tables as Arrow batches.

Data flows file → format → `activities` (and tables that a format fills itself) → table builders. Nothing
above this module depends on which profiler wrote a file.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse.formats.redact.rules import NO_POLICY, Policy
from tracewarehouse.formats.redact.text import Redaction as Redaction
from tracewarehouse.formats.redact.text import Redactor

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


Status = Literal["intact", "repaired", "damaged"]
# Called with the number of bytes of text read so far.
Progress = Callable[[int], None]
# The table from which the builders derive all other tables of a rank.
ACTIVITIES = "activities"


class Part(Struct, frozen=True):
    """The part of a file that describes one rank. `name` is "" if the file holds a single rank.

    `rank`, `world_size`, `job` and `window` are known before the complete file is read; None if unknown.
    `window` is the start and end of the profiling window, in ns since the epoch; a trace of torch has a
    `start_ns`. `addition` names what the part adds to a rank that a trace may describe as well; it is "" for
    a trace. `process` is its number.
    """

    name: str = ""
    rank: int | None = None
    world_size: int | None = None
    job: str | None = None
    window: tuple[int, int] | None = None
    addition: str = ""
    process: int | None = None
    start_ns: int | None = None


Answer = TypeVar("Answer")


def once_per_file(read: Callable[..., Answer]) -> Callable[..., Answer]:
    """The function of a path, called once for each unchanged file; the answers for some files are kept."""

    @lru_cache(maxsize=64)
    def kept(path: Path, state: object, *args: object) -> Answer:
        return read(path, *args)

    def found(path: Path, *args: object) -> Answer:
        # The files of a folder may change without it.
        stats = [file.stat() for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
        return kept(path, tuple((stat.st_mtime_ns, stat.st_size) for stat in stats), *args)

    return found


def numbered(names: Sequence[str]) -> tuple[Part, ...]:
    """Parts with these names; of several, the rank is the place."""
    return tuple(Part(name, rank=at if len(names) > 1 else None) for at, name in enumerate(names))


# The reason of a loss behind a complete trace: no writer will continue such a file.
AFTER_THE_END: Final = "bytes after the end of the trace"
_MAX_RANK: Final = 999_999


class Loss(Struct, frozen=True):
    """A byte range that belongs to no event or header. An empty range marks a position that was repaired.

    `events_lost` is None if unknown. Offsets refer to the decompressed text (for UTF-16, to its UTF-8
    encoding).
    """

    byte_from: int
    byte_to: int
    events_lost: int | None
    reason: str


class Defect(Struct, frozen=True):
    """A row of `data_quality` that the reader detects: rule, affected rows and an example."""

    rule: str
    rows: int
    example: str


class Outcome(Struct, frozen=True):
    """Facts about a source that are known after its last batch.

    `digest` is the SHA-256 of the content (decompressed if the file is compressed) and `text_bytes` the size
    of that content. `header_json` is the metadata of the file as one JSON object without secrets.
    `base_time_ns` is the origin of the times in the file, 0 if they are absolute. `rank` and `world_size`
    are the values that the file reports.
    """

    digest: str
    header_json: str
    text_bytes: int
    stored_bytes: int
    status: Status = "intact"
    events: int = 0
    base_time_ns: int = 0
    rank: int | None = None
    world_size: int | None = None
    losses: tuple[Loss, ...] = ()
    redactions: tuple[Redaction, ...] = ()
    repaired: int = 0
    findings: tuple[Defect, ...] = ()
    # Columns of `ranks` taken from the header: device_name, host, framework_version, ….
    facts: Mapping[str, object] = field(default_factory=dict)

    def without_secrets(self, redactor: Redactor) -> Outcome:
        """The outcome with secrets in the texts of facts and findings replaced."""

        def clean(value: Any) -> Any:
            return redactor.clean(value)[0] if isinstance(value, str) else value

        return replace(
            self,
            findings=tuple(replace(each, example=clean(each.example)) for each in self.findings),
            facts={key: clean(value) for key, value in self.facts.items()},
        )


class Ints(NamedTuple):
    """Integers with a validity mask; the value is 0 where `valid` is False."""

    values: NDArray[np.int64]
    valid: NDArray[np.bool_]


class Doubles(NamedTuple):
    """Floating-point numbers with a validity mask; the value is 0 where `valid` is False."""

    values: NDArray[np.float64]
    valid: NDArray[np.bool_]


def number(value: object) -> int | None:
    """A non-negative number that may be written as text; None for anything else."""
    if isinstance(value, bool):
        return None
    # Python raises an error for thousands of digits.
    if isinstance(value, str) and len(value) < 100 and value.strip().isdecimal():
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < 2**31 else None


def rank_number(value: object) -> int | None:
    """The same for a rank."""
    found = number(value)
    return found if found is not None and found <= _MAX_RANK else None


def valid_of(column: pa.Array) -> NDArray[np.bool_]:
    """Which values of an array are not null."""
    first, count, bits = column.offset, len(column), column.buffers()[0]
    if bits is None or not column.null_count:
        return np.full(count, not column.null_count)
    bytes_ = np.frombuffer(bits, np.uint8)[first // 8 : (first + count + 7) // 8]
    return np.unpackbits(bytes_, bitorder="little").view(np.bool_)[first % 8 : first % 8 + count]


def values_of(column: pa.Array, null: float) -> NDArray[Any]:
    """The values of an array of numbers, and a number where they are null; read-only."""
    return (column.fill_null(null) if column.null_count else column).to_numpy()  # type: ignore[no-any-return]


def array_of(values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """An array of the values, without a copy if they are numbers; null where `valid` is False."""
    import pyarrow as pa

    type_, is_bits = pa.from_numpy_dtype(values.dtype), values.dtype == np.bool_
    data = np.packbits(values, bitorder="little") if is_bits else np.ascontiguousarray(values)
    bits = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(type_, len(values), [bits, pa.py_buffer(data)])


class Source(Protocol):
    """The tables of one part as Arrow batches, in an order that depends only on the content of the file."""

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        """Table name → batches without `run_id` and `rank`; `activities` may be missing.

        The columns are those of the table's contract, in any order. A missing column is null in every row.
        A text column may be dictionary-encoded. Secrets in texts are replaced here, by a `Redactor` with the
        salt and policy of the request: nothing after a source looks for them in tables.
        """

    def outcome(self) -> Outcome:
        """The facts about the source. Call it after the last batch of every table."""


class TraceFile(Protocol):
    """An open file whose events are not read yet."""

    def parts(self) -> tuple[Part, ...]:
        """The parts of the file, one per rank."""

    def read(self, part: Part, request: Request, /) -> Source:
        """Reads a part. Raises TraceFormatError if nothing in it can be read."""


class Format(Protocol):
    """A file format. `version` increases when the same bytes produce different rows."""

    name: ClassVar[str]
    version: ClassVar[int]

    @abstractmethod
    def detect(self, path: Path, head: bytes) -> bool:
        """Whether the content has this format; `head` is the beginning of the (decompressed) content.

        `path` may be a folder; `head` is then empty.
        """

    def open(self, path: Path) -> TraceFile:
        """Opens a file; reads only its beginning. Raises TraceFormatError with a hint."""


class Request(Struct, frozen=True):
    """Options for reading a part.

    `salt` is the salt of the warehouse for redacted values, `policy` modifies the rules of redaction. `spill`
    is the folder for temporary files, which are unlinked when opened. `progress` is called with the number of
    bytes read so far. `exact` forces the Python scanner, which produces the same rows as the native one. If
    the content has `known_digest`, `tables` is empty and `outcome` is valid immediately. `time_unit`
    overrides the time unit of the file.
    """

    salt: bytes
    spill: Path
    progress: Progress | None = None
    exact: bool = False
    known_digest: str | None = None
    time_unit: Literal["us", "ns"] | None = None
    policy: Policy = NO_POLICY


class SourceType(Protocol):
    """What reads a part of a file: a class of sources. Raises TraceFormatError."""

    def __call__(self, path: Path, part: Part, request: Request, /) -> Source: ...


class PartFormat(Format):
    """A Format whose parts a Source reads; by default one part, which adds `addition` to a rank."""

    version: ClassVar[int] = 1
    source: ClassVar[SourceType]
    addition: ClassVar[str] = ""

    def parts(self, path: Path) -> tuple[Part, ...]:
        """The parts of a file. Raises TraceFormatError if there is none."""
        return (Part(addition=self.addition),)

    def open(self, path: Path) -> PartFile:
        """The file; nothing is read yet. Raises TraceFormatError if it is incomplete."""
        return PartFile(partial(self.parts, path), partial(self.source, path))


class PartFile(NamedTuple):
    """A TraceFile."""

    parts: Callable[[], tuple[Part, ...]]
    read: Callable[[Part, Request], Source]
