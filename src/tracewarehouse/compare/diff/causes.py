"""What a change of the mean is due to: ranks that the others wait for, a new blocking call, growing memory.

What all ranks gain is no rank's own: only what goes beyond the change of the others counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from msgspec import Struct

from tracewarehouse.compare.diff.levels import WAIT, ZERO, Row, awaited_rank
from tracewarehouse.present.render.text import show

if TYPE_CHECKING:
    from tracewarehouse.compare.diff.breakdown import Breakdown
    from tracewarehouse.query.selection import Selection

OWN = " own"
LEAST_PART = 0.1  # share of the change, from which waiting, or a blocking call, is a cause
_LEAST_OWN = 0.05  # share of the change, from which a late rank is named
_APART = 3  # times that of the next rank, from which a rank's own change stands out
_LEAST_BEYOND = 0.5  # share of a rank's own change that the change of the others does not explain
_WAITING = "waiting"  # of the host, in collectives
SYNC = "idle_sync"
_AFTER_SYNC = ("idle_host", "idle_call", "idle_latency")  # where a blocking call has emptied the queue


class Late(Struct, frozen=True):
    """Ranks whose own time changed by far the most, and what of the change is due to them, with all waiting.

    `cause` is the row of their own time that changed most beyond the others', times the number of ranks.
    """

    ranks: tuple[Row, ...]
    others: tuple[Row, ...]
    part: Fraction
    excess: Fraction
    cause: Row | None
    cause_excess: Fraction


def late_ranks(parts: Breakdown, blocking: str | None) -> Late | None:
    """The ranks that the others wait longer for, or no longer; None if no rank stands out.

    None, too, if nothing waits, collectives are not matched, or a side lacks a rank.
    """
    own = [row for row in parts.level("ranks").rows if row.part.endswith(OWN)]
    toward = 1 if parts.delta > 0 else -1
    change, waits = toward * parts.delta, toward * waiting(parts)
    if not change or waits < LEAST_PART * change or not all(row.base and row.head for row in own):
        return None
    own = sorted(own, key=lambda row: -_beyond(row, own, toward))
    for count in range(1, len(own) // 2 + 1):
        late, others = own[:count], own[count:]
        excess = [_beyond(row, others, toward) for row in late]
        is_apart = min(excess) > _APART * max(_beyond(row, others, toward) for row in others)
        is_own = all(
            toward * row.delta > 0 and beyond >= _LEAST_BEYOND * abs(row.delta)
            for row, beyond in zip(late, excess, strict=True)
        )
        if is_apart and is_own and sum(excess) >= _LEAST_OWN * change:
            cause, of_cause = _cause(parts, late, others, toward, blocking)
            part = Fraction(waits + sum(excess))
            late.sort(key=lambda row: row.part)
            return Late(tuple(late), tuple(others), part, sum(excess, ZERO), cause, of_cause)
    return None


def _beyond(row: Row, others: Sequence[Row], toward: int) -> Fraction:
    """How much more a row changed than the median of others, by amount or by share, whichever is more."""
    amount = median(toward * each.delta for each in others)
    share = median(toward * each.delta / each.base if each.base else ZERO for each in others)
    return toward * row.delta - max(amount, share * row.base)


def waiting(parts: Breakdown) -> Fraction:
    """The change of waits for other ranks, on the GPU only exposed ones."""
    rows = parts.level("breakdown").rows
    waits = [row for row in rows if row.part in (WAIT, _WAITING) or awaited_rank(row.part)]
    return sum((row.delta for row in waits), start=ZERO)


def _cause(
    parts: Breakdown, late: Sequence[Row], others: Sequence[Row], toward: int, blocking: str | None
) -> tuple[Row | None, Fraction]:
    """The row of the own time of late ranks that changed most beyond that of the others, and by how much."""
    names = dict.fromkeys(name for rank, name in parts.own if rank == late[0].part)
    found: dict[Row, Fraction] = {}
    for name in names:
        mine, theirs = (
            [parts.own.get((rank.part, name), Row(name, ZERO, ZERO)) for rank in ranks]
            for ranks in (late, others)
        )
        beyond = sum((_beyond(row, theirs, toward) for row in mine), ZERO)
        found[_scaled(mine, Fraction(len(late) + len(others), len(late)))] = beyond
    rows = sorted((row for row in found if found[row] > 0), key=lambda row: -found[row])
    first = first_cause(rows, sum((row.delta for row in rows), ZERO), blocking)
    return (first, found[first]) if first else (None, ZERO)


def _scaled(rows: Sequence[Row], factor: Fraction) -> Row:
    """The sum of rows, times a factor."""

    def total(name: str) -> Fraction:
        return factor * sum((getattr(row, name) or ZERO for row in rows), ZERO)

    has_calls = any(row.base_count is not None for row in rows)
    return Row(
        rows[0].part,
        total("base"),
        total("head"),
        base_count=total("base_count") if has_calls else None,
        head_count=total("head_count") if has_calls else None,
        base_sum=total("base_sum"),
        head_sum=total("head_sum"),
    )


def first_cause(rows: Sequence[Row], change: Fraction, blocking: str | None) -> Row | None:
    """The first row; the new blocking call instead, if the first is what follows from it."""
    if rows and blocking and rows[0].part in _AFTER_SYNC:
        sync = [row for row in rows if row.part == SYNC and abs(row.delta) >= LEAST_PART * abs(change)]
        return next(iter(sync), rows[0])
    return rows[0] if rows else None


_BLOCKING = """
SELECT
  call.name || coalesce(' under ' || op.name, '') AS name,
  count(DISTINCT (segment.run_id, segment.rank, segment.wait_id)) AS calls,
  sum(segment.segment_ns)::BIGINT AS ns
FROM device_segments AS segment
JOIN steps ON steps.run_id = segment.run_id AND steps.rank = segment.rank AND steps.step = segment.step
JOIN runtime AS call
  ON call.run_id = segment.run_id AND call.rank = segment.rank AND call.event_id = segment.wait_id
LEFT JOIN events AS op ON op.run_id = call.run_id AND op.rank = call.rank AND op.event_id = call.op_id
WHERE segment.cause = 'sync' AND NOT steps.partial
GROUP BY 1
"""
_MORE_CALLS = 1.5


def new_blocking_call(parts: Breakdown, base: Selection, head: Selection) -> str | None:
    """The blocking call with the longest idle time after it, if head makes more of them than base."""
    rows = {row.part: row for row in parts.level("breakdown").rows}
    sync = rows.get(SYNC)
    if parts.per != "step" or sync is None or sync.delta < LEAST_PART * abs(parts.delta):
        return None
    sides = [
        {
            row["name"]: (row["calls"] / intervals, row["ns"] / intervals)
            for row in side.query_all(_BLOCKING).rows()
        }
        for side, intervals in ((base, parts.base_intervals), (head, parts.head_intervals))
    ]
    longer = {name: ns - sides[0].get(name, (0, 0))[1] for name, (_, ns) in sides[1].items()}
    most = max(longer, key=lambda name: (longer[name], name), default="")
    calls = [side.get(most, (0, 0))[0] for side in sides]
    return most if calls[1] > _MORE_CALLS * calls[0] else None


_ALLOCATED = """
SELECT
  steps.run_id,
  steps.rank,
  change.device,
  steps.step,
  arg_max(change.allocated_bytes, change.position) AS end_bytes,
  max(change.allocated_bytes) AS peak_bytes
FROM memory_changes AS change
JOIN steps
  ON steps.run_id = change.run_id
  AND steps.rank = change.rank
  AND change.ts_ns BETWEEN steps.host_start_ns AND steps.host_start_ns + steps.host_ns
WHERE change.device_type <> 0 AND change.allocated_bytes IS NOT NULL AND NOT steps.partial
GROUP BY steps.run_id, steps.rank, change.device, steps.step
ORDER BY steps.run_id, steps.rank, change.device, steps.step
"""
_NOTICEABLE_MEMORY = 0.01  # of the peak of base, and as growth per step of what is allocated


def memory_notes(base: Selection, head: Selection) -> Iterator[str]:
    """How allocated memory grows from step to step, or its peak changed; only if both sides recorded it."""
    for side in (base, head):
        if not all(
            rank.facts.get("memory_events") for each in side.selected() for rank in each.version.by_rank
        ):
            return
    before, after = (_allocated(side) for side in (base, head))
    if before is None or after is None:
        return
    for name, one, other in (("head", after, before), ("base", before, after)):
        if one.growth > _NOTICEABLE_MEMORY * one.peak and one.growth > 2 * other.growth:
            rest = f"by {show(other.growth, 'bytes')} in" if other.growth > 0 else "not in"
            also = {"head": "base", "base": "head"}[name]
            yield f"allocated memory grows by {show(one.growth, 'bytes')} per step in {name}, {rest} {also}"
            return
    if abs(after.peak - before.peak) >= _NOTICEABLE_MEMORY * before.peak:
        change = f"{100 * (after.peak / before.peak - 1):+.1f} %"
        yield f"peak of allocated memory {show(before.peak, 'bytes')} → {show(after.peak, 'bytes')}, {change}"


class _Allocated(Struct, frozen=True):
    """Bytes: the highest peak of a step, and the most that the ends of a device's steps grow by."""

    peak: int
    growth: int


def _allocated(side: Selection) -> _Allocated | None:
    ends: dict[tuple[object, ...], list[int]] = defaultdict(list)
    peak = 0
    for row in side.query_all(_ALLOCATED).rows():
        ends[row["run_id"], row["rank"], row["device"]].append(row["end_bytes"])
        peak = max(peak, row["peak_bytes"])
    # Growth from each step to the next: the least of a device.
    growth = [
        min(after - before for before, after in pairwise(each)) for each in ends.values() if len(each) > 2
    ]
    return _Allocated(peak, max(*growth, 0, 0)) if peak else None
