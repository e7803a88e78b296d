"""The tables of a memory snapshot: events, segments, blocks and call stacks. Runs in the child process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from tracewarehouse.formats.pickles.values import (
    Budget,
    Records,
    RefusedPickleError,
    Stacks,
    Tables,
    dictionaries,
    items,
    mapping,
    scalars,
)

_NS_PER_US: Final = 1000
# Two names of one state.
_STATES: Final = {"active_awaiting_free": "active_pending_free"}
_NO_POOL: Final = (0, 0)
_ROWS: Final = 16_384


def walk(root: object, budget: Budget) -> Tables:
    """The tables of the loaded values, whose entries it removes to save memory.

    Raises RefusedPickleError if they are not a memory snapshot.
    """
    top = mapping(root, "the top level")
    if "segments" not in top:
        raise RefusedPickleError("has no list of segments")
    unusable: Counter[str] = Counter()
    stacks = Stacks(budget, unusable)
    events = _events(top.get("device_traces"), stacks, budget, unusable)
    segments = _located(dictionaries(top["segments"], "segments", budget), unusable)
    tables = {
        "snapshot_events": events,
        "snapshot_segments": _segments(segments, stacks, unusable),
        "snapshot_blocks": _blocks(segments, stacks, budget, unusable),
    }
    tables["snapshot_frames"] = stacks.table()
    settings = scalars(top.get("allocator_settings"), budget)
    return Tables(tables, {}, {"allocator_settings": settings} if settings else {}, unusable)


def _located(segments: list[dict[str, Any]], unusable: Counter[str]) -> list[dict[str, Any]]:
    """The segments whose device and address are numbers: no table has a place for the others."""
    records = Records(segments, Counter(), "segments")
    places = zip(records.ints("device").to_pylist(), records.ints("address").to_pylist(), strict=True)
    kept = [one for one, place in zip(segments, places, strict=True) if None not in place]
    if lost := len(segments) - len(kept):
        unusable["segments without a device or address, which are skipped"] = lost
    return kept


def _events(traces: object, stacks: Stacks, budget: Budget, unusable: Counter[str]) -> pa.Table:
    """The entries of all devices; the index of a trace is the number of its device."""
    per_device = [
        dictionaries(trace, f"device_traces[{device}]", budget)
        for device, trace in enumerate(items(traces, "device_traces", budget))
    ]
    is_shared = len(set(map(id, per_device))) < len(per_device)
    tables = [_event_table([], 0, 0, stacks, unusable)]
    for device, rows in enumerate(per_device):
        for first in range(0, len(rows), _ROWS):
            part = rows[first : first + _ROWS]
            tables.append(_event_table(part, device, first, stacks, unusable))
            if not is_shared:  # columns take the place of the values
                rows[first : first + _ROWS] = [{}] * len(part)
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _event_table(
    rows: Sequence[Mapping[str, Any]], device: int, first: int, stacks: Stacks, unusable: Counter[str]
) -> pa.Table:
    records = Records(rows, unusable, "events")
    return pa.table({
        "device": pa.repeat(pa.scalar(device, pa.int64()), len(rows)),
        "entry": pa.array(range(first, first + len(rows)), pa.int64()),
        "ts_ns": records.ints("time_us", scale=_NS_PER_US),
        "action": records.texts("action"),
        "address": records.ints("addr"),
        "bytes": records.ints("size"),
        "device_free_bytes": records.ints("device_free"),
        "stream": records.ints("stream", signed=True),
        "pool": _pools(records, "pool_id", "segment_pool_id"),
        "stack_id": pa.array(stacks.numbers(records.values("frames")), pa.int64()),
        "context": records.texts("compile_context"),
        "user_metadata": records.texts("user_metadata"),
    })  # fmt: skip


def _segments(rows: Sequence[Mapping[str, Any]], stacks: Stacks, unusable: Counter[str]) -> pa.Table:
    records = Records(rows, unusable, "segments")
    return pa.table({
        "device": records.ints("device"),
        "address": records.ints("address"),
        "total_bytes": records.ints("total_size"),
        "allocated_bytes": records.ints("allocated_size"),
        "active_bytes": records.ints("active_size"),
        "requested_bytes": records.ints("requested_size"),
        "stream": records.ints("stream", signed=True),
        "kind": records.texts("segment_type"),
        "pool": _pools(records, "segment_pool_id"),
        "expandable": records.flags("is_expandable"),
        "stack_id": pa.array(stacks.numbers(records.values("frames")), pa.int64()),
    })  # fmt: skip


def _blocks(
    segments: Sequence[Mapping[str, Any]], stacks: Stacks, budget: Budget, unusable: Counter[str]
) -> pa.Table:
    """The blocks of all segments. Older releases record no addresses: blocks then follow each other."""
    blocks: list[dict[str, Any]] = []
    owner: list[Mapping[str, Any]] = []
    addresses: list[Any] = []
    for at, segment in enumerate(segments):
        own = dictionaries(segment.get("blocks"), f"segments[{at}].blocks", budget)
        blocks += own
        owner += [segment] * len(own)
        addresses += _addresses(own, segment.get("address"))
    records = Records(blocks, unusable, "blocks")
    states = [_STATES.get(one, one) if type(one) is str else one for one in records.values("state")]
    owners = [segment.get("address") for segment in owner]
    return pa.table({
        "device": records.ints("device", [segment.get("device") for segment in owner]),
        "address": records.ints("address", addresses),
        "segment_address": records.ints("segment_address", owners),
        "bytes": records.ints("size"),
        "requested_bytes": records.ints("requested_size"),
        "state": records.texts("state", states),
        "stack_id": pa.array(stacks.numbers(records.values("frames")), pa.int64()),
    })  # fmt: skip


def _addresses(blocks: Sequence[Mapping[str, Any]], first: object) -> list[Any]:
    """The address of each block; null from the first block on whose position is unknown."""
    found: list[Any] = []
    at = first
    for block in blocks:
        own = block.get("address", at)
        found.append(own)
        size = block.get("size")
        at = own + size if type(own) is int and type(size) is int else None
    return found


def _pools(records: Records, *keys: str) -> pa.Array:
    """Private memory pools as `0:1`; null for the default pool."""
    return records.texts(keys[0], [_pool(pool) for pool in records.values(*keys)])


def _pool(pool: object) -> str | None:
    if not isinstance(pool, tuple | list) or len(pool) != 2 or tuple(pool) == _NO_POOL:  # JSON has no tuples
        return None
    are_numbers = all(type(part) is int and abs(part) < 2**63 for part in pool)
    return f"{pool[0]}:{pool[1]}" if are_numbers else None
