"""Pickles of plain values, or the same as JSON: CUDA memory snapshots, and flight recorder dumps of PyTorch.

A snapshot has segments and trace entries, which may contradict each other; a dump has the last collectives
that a rank called.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats import file_text
from tracewarehouse.formats.pickles.reader import PlainSource
from tracewarehouse.formats.source_tables import RecordFormat
from tracewarehouse.late_regex import late_regex

if TYPE_CHECKING:
    from numpy.typing import NDArray


_ACTIVE: Final = ("active_allocated", "active_pending_free")
# The order of equal addresses: entries first, then the block at the end.
_ALLOC, _FREE = 1, 0


def unbalanced(events: pa.Table, blocks: pa.Table) -> tuple[int, str]:
    """How often an address is allocated twice in a row, freed twice in a row, or ends unlike its block."""
    moves = events.filter(pc.is_in(events.column("action"), pa.array(["alloc", "free_completed"])))
    moves = moves.filter(pc.is_valid(moves.column("address")))
    final = blocks.filter(pc.is_in(blocks.column("state"), pa.array(_ACTIVE)))
    final = final.filter(pc.is_valid(final.column("address")))
    device = np.concatenate([_ints(moves, "device"), _ints(final, "device")])
    address = np.concatenate([_ints(moves, "address"), _ints(final, "address")])
    last = np.iinfo(np.int64).max
    entry = np.concatenate([_ints(moves, "entry"), np.full(final.num_rows, last)])
    kind = pc.equal(moves.column("action"), "alloc").to_numpy().astype(np.int64)
    # An active block continues its allocation: it takes the place of the free that would come next.
    kind = np.concatenate([kind, np.full(final.num_rows, _FREE)])
    order = np.lexsort((entry, address, device))
    device, address, entry, kind = device[order], address[order], entry[order], kind[order]
    same = (device[1:] == device[:-1]) & (address[1:] == address[:-1])
    wrong = np.flatnonzero(same & (kind[1:] == kind[:-1]))
    ends = np.flatnonzero(np.append(~same, len(kind) > 0) & (kind == _ALLOC))
    at = np.concatenate([wrong, ends])
    if not len(at):
        return 0, ""
    first = at[np.argmin(entry[at])]
    return len(at), f"device {device[first]}, address {address[first]:#x}"


def disagreeing_segments(segments: pa.Table, blocks: pa.Table) -> tuple[int, str]:
    """The segments whose active bytes are not the sum of their active blocks."""
    active = blocks.filter(pc.is_in(blocks.column("state"), pa.array(_ACTIVE)))
    sums = active.select(["device", "segment_address", "bytes"]).group_by(["device", "segment_address"])
    summed = sums.aggregate([("bytes", "sum")])
    known = {(row["device"], row["segment_address"]): row["bytes_sum"] or 0 for row in summed.to_pylist()}
    rows = segments.select(["device", "address", "active_bytes"]).to_pylist()
    wrong = [
        row
        for row in rows
        if row["active_bytes"] is not None
        and row["active_bytes"] != known.get((row["device"], row["address"]), 0)
    ]
    if not wrong:
        return 0, ""
    first = wrong[0]
    own = known.get((first["device"], first["address"]), 0)
    return len(wrong), (
        f"segment {first['address']:#x}: active_size {first['active_bytes']} B, its active blocks {own} B"
    )


def _ints(table: pa.Table, name: str) -> NDArray[np.int64]:
    found: NDArray[np.int64] = pc.fill_null(table.column(name), -1).to_numpy()
    return found


SNAPSHOT: Final = "memory_snapshot"
RECORDER: Final = "flight_recorder"
# How far into a pickle its keys are searched for.
_SEARCHED_BYTES: Final = 4096
# The recorder may hold thousands of entries before the keys that follow them.
_JSON_KEYS: Final = late_regex(rb'"(?:comm_lib_version|nccl_version|pg_config|pg_status)"')
_RECORD: Final = b'"collective_seq_id"'


class MemorySnapshotSource(PlainSource):
    """A Source that fills the tables of snapshots."""

    walk = SNAPSHOT
    what = "a memory snapshot"

    def check(self, tables: Mapping[str, pa.Table]) -> None:
        """Entries that contradict the blocks, and segments whose totals contradict their blocks."""
        rows, example = unbalanced(tables["snapshot_events"], tables["snapshot_blocks"])
        self._notes.add("snapshot_overrun", rows, example)
        rows, example = disagreeing_segments(tables["snapshot_segments"], tables["snapshot_blocks"])
        self._notes.add("snapshot_segments_disagree", rows, example)


class MemorySnapshotFormat(RecordFormat):
    """A Format."""

    name = SNAPSHOT
    source = MemorySnapshotSource

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a pickle, which only reading it shows to hold a snapshot, or a snapshot as JSON."""
        if head.lstrip()[:1] == b"{":
            return (
                b'"device_traces"' in head and file_text.object_format(file_text.top_keys(head)) == SNAPSHOT
            )
        return not path.is_dir() and file_text.is_pickle(path, head)


class FlightRecorderSource(PlainSource):
    """A Source that fills `flight_records`."""

    walk = RECORDER
    what = "a flight recorder dump"


class FlightRecorderFormat(RecordFormat):
    """A Format."""

    name = RECORDER
    source = FlightRecorderSource

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a pickle or JSON with the keys of a dump."""
        if path.is_dir():
            return False
        if head.lstrip()[:1] == b"{":
            start = head[:_SEARCHED_BYTES]
            return b'"traceEvents"' not in head and (
                _RECORD in start or (_JSON_KEYS.search(start) is not None and b'"entries"' in head)
            )
        if not file_text.is_pickle(path, head):
            return False
        start = head[:_SEARCHED_BYTES]
        return any(key in start for key in (b"pg_config", b"collective_seq_id", b"pg_status"))
