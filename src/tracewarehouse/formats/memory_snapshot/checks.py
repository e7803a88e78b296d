"""Contradictions in a snapshot: between trace entries and blocks, and between segments and their blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
