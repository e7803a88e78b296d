"""What a scanner of event texts hands out, whichever scanner it is: the native one or the row-by-row one.

A batch holds the elements of the event array in file order, before any rule: times count from the file's
base, categories are spelled as in the file, ids are as in the file.


The interface of a scanner: text of an event array in, batches of columns out.

Two scanners implement it. The native one fills the columns; the row-by-row one may flag any row ODD, for the
path that reads flagged rows. Either way the same text gives the same activities, whatever the sizes of the
pieces that it is fed in; where batches end may differ.
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
# A batch ends early where its texts are longer than this, or where a dictionary is full.
BATCH_BYTES: Final = 64 << 20
# A dictionary is full with so many words or bytes; it restarts empty with the next batch.
WORDS_MOST: Final = 1 << 20
WORDS_BYTES: Final = 128 << 20

# Flags of a row.
# ODD: not an event of known keys and types; only `text` holds it, all other columns are null, and the row
# path fills the row. Its strings may be in no `new_strings` and no dictionary: its text must be searched.
ODD: Final = 1
# SLOW: a known argument is repeated or of an odd type; all typed arguments are null, and the row path fills
# them from `text`. Its other columns hold, COLLECTIVE may be missing; its text must be searched, too.
SLOW: Final = 2
COLLECTIVE: Final = 4  # `args` has the key "Collective name" at its top level
SUBNS: Final = 8  # a time has digits below a nanosecond: the row path rounds it

# Dictionary-encoded columns: codes of a batch point into `words` of that batch. Those begin with the words of
# the batch before and grow, until a dictionary is full: then it restarts empty, and `restarted` names it.
# ph, cat, name, extra, and the text arguments are decoded strings; pid and tid are JSON tokens (a string
# keeps its quotes); shapes and dtypes are minified JSON text. extra is the JSON object of `bp` and `s`.
CODES: Final = (
    "ph", "cat", "name", "pid", "tid", "extra", "shapes", "dtypes",
    "collective", "process_group", "group_ranks", "collective_dtype", "sync_kind",
)  # fmt: skip
# ts and dur in ns from the file's base; the rest are arguments as the file has them.
INTS: Final = (
    "ts", "dur", "correlation", "external_id", "stream", "stream_id", "device", "device_id", "bytes",
    "sequence_number", "forward_thread", "python_id", "python_parent_id", "module_id",
    "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread",
    "shared_memory_bytes", "graph_id", "graph_node_id", "group_size", "in_elements", "out_elements",
    "collective_sequence", "device_type", "address", "total_allocated_bytes", "total_reserved_bytes",
    "event_index", "wait_on_stream", "wait_on_event", "wait_on_correlation",
)  # fmt: skip
DOUBLES: Final = ("occupancy_percent", "blocks_per_sm", "warps_per_sm", "bandwidth")
# args: minified, otherwise verbatim. ts_text, dur_text: only where printing the ns does not give the file's
# digits. flow_id: the JSON id as text. text: the whole element, minified, only of rows that have a flag but
# COLLECTIVE.
TEXTS: Final = ("args", "flow_id", "ts_text", "dur_text", "text")

# Argument key(s) of each typed column; of two the first that is present and not null wins.
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

# Columns that are made from arguments alone.
TYPED_INTS: Final = tuple(name for name in INTS if name in KEYS or name[:-2] in ("grid", "block"))
TYPED_TEXTS: Final = tuple(name for name in CODES if name in KEYS)


@dataclass(frozen=True)
class Batch:
    """Consecutive elements of the event array; a column that is null in every row is missing.

    `codes` are -1 where null. `new_strings` are the distinct keys of arguments that no column is made from,
    and string values of 8 bytes or more in `args` and `flow_id`, first seen in this batch, as they stand in
    the file (escapes and all): what is to be searched for secrets besides `words` (which hold all strings of
    shapes and dtypes). None where there were too many to keep: then each row must be searched. `restarted`
    are the dictionaries that do not begin with the words of the batch before.

    The arrays of `codes`, `ints`, `doubles` and `flags` belong to the batch and may be written to. Whoever
    keeps one keeps the memory of the whole batch.
    """

    rows: int
    codes: Mapping[str, NDArray[np.int32]]
    ints: Mapping[str, Ints]
    doubles: Mapping[str, Doubles]
    texts: Mapping[str, pa.Array]
    flags: NDArray[np.uint8]
    new_strings: pa.Array | None
    words: Mapping[str, pa.Array]
    restarted: frozenset[str] = frozenset()


# An element that is longer than this may hold a string that is better hashed than kept.
LONGEST_BYTES: Final = 64 << 20
# No element may be longer: positions in a column of texts have 32 bits.
MOST_BYTES: Final = 1 << 30


class State(IntEnum):
    """Where a scanner stands after the text it was fed."""

    MORE = 0  # inside the array: it reads on
    CLOSED = 1  # at the `]` that closed the array
    REFUSED = 2  # at an element or a separator that is not strict JSON in UTF-8
    TOO_LONG = 3  # at the beginning of an element longer than `longest_bytes`


class RefusedError(ValueError):
    """A text that was said to be an array of strict JSON is none."""


class Scanner(Protocol):
    """Reads the elements of one event array; begins behind its `[`.

    `feed` in state MORE until the state is another one or the text ends; then `flush`, which may still change
    the state. Where the text ends in state MORE, the array was not closed. Elements of every JSON type are
    rows; an array that holds no strict JSON is refused at the first element or separator that is wrong, and
    the rows before it are handed out as usual.

    TOO_LONG: either raise `longest_bytes` (up to MOST_BYTES, beyond which the element is refused) and feed
    on, or take the element out with `take_rest` and feed a shorter text in its place, then what follows.
    Memory is bounded by a few times `longest_bytes`.

    Raises MemoryError where memory is short.
    """

    longest_bytes: int

    @property
    def state(self) -> State: ...

    @property
    def offset(self) -> int:
        """Bytes of what `feed` got that were read: up to `]`, or to the element that is not read yet."""

    @property
    def rows(self) -> int:
        """Elements read so far, those of batches that were handed out included."""

    def feed(self, piece: bytes | bytearray | memoryview) -> list[Batch]:
        """Reads on; the batches that became full. The piece may end anywhere and is not kept."""

    def feed_array(self, array: bytes | bytearray | memoryview) -> list[Batch]:
        """Reads a whole array of strict JSON, from `[` to `]`, as further elements; the full batches.

        Only between elements: not where a piece ended inside one. `longest_bytes` does not apply. Raises
        RefusedError where it is no array of strict JSON; the elements before the wrong one have been read.
        """

    def flush(self) -> Batch | None:
        """The rows since the last batch, read from all text there is; call it until it is None."""

    def take_rest(self) -> bytes:
        """The fed text from `offset` on, which the scanner forgets: it goes on with what is fed next.

        After CLOSED this is the text from `]` on.
        """
