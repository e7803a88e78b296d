"""The scanner interface: the text of an event array in, batches of columns out.

Two scanners implement it. The native scanner fills the columns; the Python scanner flags every row ODD, and
the row reader fills flagged rows from their text. Both lead to the same activities, regardless of the sizes
of the pieces of text; only the batch boundaries may differ.

A batch holds the elements of the event array in file order, before any rule is applied: times are relative to
the base time of the file, categories and ids are verbatim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol

from tracewarehouse.formats.base import Doubles as Doubles
from tracewarehouse.formats.base import Ints as Ints

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


BATCH_ROWS: Final = 122_880
# A batch ends early if its texts exceed this size or a dictionary overflows.
BATCH_BYTES: Final = 64 << 20
# A dictionary that exceeds these limits restarts empty with the next batch.
DICTIONARY_MAX_VALUES: Final = 1 << 20
DICTIONARY_MAX_BYTES: Final = 128 << 20

# Flags of a row.
# ODD: the element is not an event with the usual keys and types. Only `text` is set; the row reader fills the
# row. Its strings may be missing from `new_strings` and the dictionaries: search its text for secrets.
ODD: Final = 1
# SLOW: a known argument is repeated or has an unexpected type. All typed arguments are null; the row reader
# fills them from `text`. The other columns are valid; COLLECTIVE may be missing. Search its text, too.
SLOW: Final = 2
COLLECTIVE: Final = 4  # `args` has the key "Collective name" at its top level
SUBNS: Final = 8  # a time has sub-nanosecond digits: the row reader rounds it

# Dictionary-encoded columns: codes index `dictionaries` of the same batch. A dictionary starts with the
# values of the previous batch and grows until it overflows; then it restarts empty and `restarted` names it.
# ph, cat, name, extra, and the text arguments are decoded strings; pid and tid are JSON tokens (a string
# keeps its quotes); shapes and dtypes are minified JSON text. extra is a JSON object with `bp` and `s`.
CODES: Final = (
    "ph", "cat", "name", "pid", "tid", "extra", "shapes", "dtypes",
    "collective", "process_group", "group_ranks", "collective_dtype", "sync_kind",
)  # fmt: skip
# ts and dur in ns since the base time of the file; the others are verbatim arguments.
INTS: Final = (
    "ts", "dur", "correlation", "external_id", "stream", "stream_id", "device", "device_id", "bytes",
    "sequence_number", "forward_thread", "python_id", "python_parent_id", "module_id",
    "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread",
    "shared_memory_bytes", "graph_id", "graph_node_id", "group_size", "in_elements", "out_elements",
    "collective_sequence", "device_type", "address", "total_allocated_bytes", "total_reserved_bytes",
    "event_index", "wait_on_stream", "wait_on_event", "wait_on_correlation",
)  # fmt: skip
DOUBLES: Final = ("occupancy_percent", "blocks_per_sm", "warps_per_sm", "bandwidth")
# args: minified, otherwise verbatim. ts_text, dur_text: only if formatting the ns does not reproduce the
# digits of the file. flow_id: the JSON id as text. text: the complete element, minified, only of rows with a
# flag other than COLLECTIVE.
TEXTS: Final = ("args", "flow_id", "ts_text", "dur_text", "text")

# Argument keys of each typed column; the first one that is present and not null wins.
KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "correlation": ("correlation",),
    "external_id": ("External id", "external id"),
    "stream": ("stream",),
    "stream_id": ("Stream Id",),
    "device": ("device",),
    "device_id": ("Device Id",),
    "bytes": ("bytes", "Bytes"),
    "sequence_number": ("Sequence number",),
    "forward_thread": ("Fwd thread id",),
    "python_id": ("Python id",),
    "python_parent_id": ("Python parent id",),
    "module_id": ("Python module id",),
    "shapes": ("Input Dims", "Input dims"),
    "dtypes": ("Input type",),
    "grid": ("grid",),
    "block": ("block",),
    "registers_per_thread": ("registers per thread",),
    "shared_memory_bytes": ("shared memory",),
    "occupancy_percent": ("est. achieved occupancy %",),
    "blocks_per_sm": ("blocks per SM",),
    "warps_per_sm": ("warps per SM",),
    "bandwidth": ("memory bandwidth (GB/s)",),
    "graph_id": ("graph id",),
    "graph_node_id": ("graph node id",),
    "collective": ("Collective name",),
    "process_group": ("Process Group Name",),
    "group_ranks": ("Process Group Ranks",),
    "group_size": ("Group size",),
    "collective_dtype": ("dtype",),
    "in_elements": ("In msg nelems",),
    "out_elements": ("Out msg nelems",),
    "collective_sequence": ("Seq",),
    "device_type": ("Device Type",),
    "address": ("Addr",),
    "total_allocated_bytes": ("Total Allocated",),
    "total_reserved_bytes": ("Total Reserved",),
    "event_index": ("Ev Idx", "Profiler Event Index"),
    "sync_kind": ("cuda_sync_kind",),
    "wait_on_stream": ("wait_on_stream",),
    "wait_on_event": ("wait_on_cuda_event_id",),
    "wait_on_correlation": ("wait_on_cuda_event_record_corr_id",),
}

# Columns that depend on arguments only.
TYPED_INTS: Final = tuple(name for name in INTS if name in KEYS or name[:-2] in ("grid", "block"))
TYPED_TEXTS: Final = tuple(name for name in CODES if name in KEYS)


@dataclass(frozen=True)
class Batch:
    """Consecutive elements of the event array; a column that is null in every row is missing.

    `codes` are -1 where null. `new_strings` are the strings to search for secrets in addition to the
    dictionaries (which hold all strings of shapes and dtypes): distinct keys of untyped arguments and string
    values of 8 bytes or more in `args` and `flow_id` that first occur in this batch, with their escapes. None
    if there are too many: then each row must be searched. `restarted` names the dictionaries that do not
    start with the values of the previous batch.

    The arrays of `codes`, `ints`, `doubles` and `flags` are writable. A reference to one of them keeps the
    memory of the complete batch alive.
    """

    rows: int
    codes: Mapping[str, NDArray[np.int32]]
    ints: Mapping[str, Ints]
    doubles: Mapping[str, Doubles]
    texts: Mapping[str, pa.Array]
    flags: NDArray[np.uint8]
    new_strings: pa.Array | None
    dictionaries: Mapping[str, pa.Array]
    restarted: frozenset[str] = frozenset()


# A longer element may contain a string that is too long to store.
LONGEST_BYTES: Final = 64 << 20
# Limit of an element: offsets in a text column have 32 bits.
MOST_BYTES: Final = 1 << 30


class State(IntEnum):
    """The state of a scanner after the text it was fed."""

    MORE = 0  # inside the array: feed more text
    CLOSED = 1  # at the `]` that closed the array
    REFUSED = 2  # at an element or a separator that is not strict JSON in UTF-8
    TOO_LONG = 3  # at the beginning of an element longer than `longest_bytes`


class RefusedError(ValueError):
    """The text is not an array of strict JSON."""


class Scanner(Protocol):
    """Reads the elements of one event array; the text starts after its `[`.

    Call `feed` while the state is MORE and there is text, then `flush`, which may change the state, too. If
    the text ends in state MORE, the array is not closed. Elements of any JSON type are rows. An array that is
    not strict JSON is refused at the first invalid element or separator; the rows before it are returned as
    usual.

    TOO_LONG: either raise `longest_bytes` (up to MOST_BYTES, above which the element is refused) and continue
    to feed, or remove the element with `take_rest` and feed a shorter one in its place, then the text after
    it. Memory is bounded by a small multiple of `longest_bytes`.

    Raises MemoryError.
    """

    longest_bytes: int

    @property
    def state(self) -> State: ...

    @property
    def offset(self) -> int:
        """Number of fed bytes that were read: up to `]`, or up to the first unread element."""

    @property
    def rows(self) -> int:
        """Number of elements read so far, including those of returned batches."""

    def feed(self, piece: bytes | bytearray | memoryview) -> list[Batch]:
        """Reads a piece, which may end anywhere; returns the batches that are full."""

    def feed_array(self, array: bytes | bytearray | memoryview) -> list[Batch]:
        """Reads a complete array, from `[` to `]`, as further elements; returns the batches that are full.

        Only valid between elements. `longest_bytes` does not apply. Raises RefusedError if the text is not an
        array of strict JSON, after reading the elements before the invalid one.
        """

    def flush(self) -> Batch | None:
        """Returns the rows since the last batch; call it until it returns None."""

    def take_rest(self) -> bytes:
        """Removes and returns the fed text from `offset` on; after CLOSED, the text from `]` on."""
