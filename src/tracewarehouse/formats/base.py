"""What a format reader must provide: detection, the parts of a file, and their tables as Arrow batches.

Data flows file → format → `activities` (and tables that a format fills itself) → builders. Nothing above
this module knows which profiler wrote a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from tracewarehouse.formats.redact import NO_POLICY, Policy
from tracewarehouse.formats.redact import Redaction as Redaction

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

Status = Literal["intact", "repaired", "damaged"]
# Bytes of text that were read so far.
Progress = Callable[[int], None]
# The table that builders make all tables of a rank from.
ACTIVITIES = "activities"


@dataclass(frozen=True)
class Part:
    """What describes one rank in a file. `name` is "" where a file holds a single rank.

    The hints are what the file says before it is read as a whole; None where it does not say. `window` is
    the start and the end of what was recorded, in ns since the epoch.
    """

    name: str = ""
    rank: int | None = None
    world_size: int | None = None
    job: str | None = None
    window: tuple[int, int] | None = None


@dataclass(frozen=True)
class Loss:
    """Bytes that are in no event or header, or an empty range: a place that was repaired.

    `events_lost` is None where it cannot be known. Bytes count in the decompressed text (UTF-16: in its
    UTF-8 form).
    """

    byte_from: int
    byte_to: int
    events_lost: int | None
    reason: str


@dataclass(frozen=True)
class Finding:
    """A row for `data_quality` that only the reader can know: rows affected, and an example."""

    rule: str
    rows: int
    example: str


@dataclass(frozen=True)
class Outcome:
    """What is known after the last batch of a source.

    `digest` is the sha256 of the content (of decompressed text where there is one), `header_json` the file's
    own metadata as one JSON object without secrets, `text_bytes` the size of the content that `digest` is of.
    `base_time_ns` is what the file's times count from, 0 where they are absolute. `rank` and `world_size`
    are what the file itself says.
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
    findings: tuple[Finding, ...] = ()
    # Columns of `ranks` that the header gives: device_name, host, framework_version, ….
    facts: Mapping[str, object] = field(default_factory=dict)


class Ints(NamedTuple):
    """Whole numbers, and which rows have one; where `valid` is False the number is 0."""

    values: NDArray[np.int64]
    valid: NDArray[np.bool_]


class Doubles(NamedTuple):
    """Floating-point numbers, and which rows have one; where `valid` is False the number is 0."""

    values: NDArray[np.float64]
    valid: NDArray[np.bool_]


class Source(Protocol):
    """A part being read: each table as Arrow batches, in an order that the bytes alone decide."""

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        """Table name → batches without `run_id` and `rank`; `activities` may be missing.

        The columns are those of the table's contract, in any order; one that is left out is null in every
        row. A text column may be dictionary-encoded.
        """

    def outcome(self) -> Outcome:
        """Valid after the last batch of every table."""


class TraceFile(Protocol):
    """A file that was opened, and not yet read as a whole."""

    def parts(self) -> tuple[Part, ...]:
        """What describes one rank each."""

    def read(self, part: Part, request: Request) -> Source:
        """Starts to read a part. Raises TraceFormatError where nothing of it can be read."""


class Format(Protocol):
    """A kind of file. `version` is raised when the same bytes give other rows."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether the content is of this format; `head` is the beginning of the (decompressed) content.

        `path` may be a folder; `head` is then empty.
        """

    def open(self, path: Path) -> TraceFile:
        """Cheap: reads no more than the beginning. Raises TraceFormatError with a remedy."""


@dataclass(frozen=True)
class Request:
    """How a part is to be read.

    `salt` is the warehouse's salt for redacted values, `policy` changes the rules of redaction. `spill` is
    the folder for temporary files, which are unlinked on opening. `progress` is called with the bytes of
    text read so far. `exact` reads row by row what could be read natively; the rows are the same. Where the
    content turns out to have `known_digest`, `tables` is empty and `outcome` valid at once. `time_unit`
    overrides the unit of the file's times.
    """

    salt: bytes
    spill: Path
    progress: Progress | None = None
    exact: bool = False
    known_digest: str | None = None
    time_unit: Literal["us", "ns"] | None = None
    policy: Policy = NO_POLICY
