"""What a scanner of event texts hands out, whichever scanner it is: the native one or the row-by-row one.

A batch holds the elements of the event array in file order, before any rule: times count from the file's
base, categories are spelled as in the file, ids are as in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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
