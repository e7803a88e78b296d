"""What a change of the mean is due to: ranks that the others wait for, a new blocking call, growing memory.

What all ranks gain does not make a rank late: only what goes beyond the change of the others counts.
"""

from __future__ import annotations

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
_APART = 3  # times that of the next rank, from which a rank's own change is far larger
_LEAST_BEYOND = 0.5  # share of a rank's own change that the change of the others does not explain
SYNC = "idle_sync"
_AFTER_SYNC = ("idle_host", "idle_call", "idle_latency")  # where a blocking call has emptied the queue


class Late(Struct, frozen=True):
    """Ranks whose own time changed by far the most; `part` of the change is due to them, with all waiting.

    `cause` is the row of one's own time that changed most beyond the others', `is_most` if by half of all.
    """

    ranks: Sequence[Row]
    others: Sequence[Row]
    part: Fraction
    cause: Row | None
    is_most: bool


def late_ranks(parts: Breakdown, blocking: str | None) -> Late | None:
    """The ranks that the others wait longer for, or no longer; None if no rank differs that much.

    None, too, if nothing waits, collectives are not matched, or a side lacks a rank.
    """
    own = [row for row in parts.level("ranks").rows if row.part.endswith(OWN)]
    toward = 1 if parts.delta > 0 else -1
    change, waits = toward * parts.delta, toward * waiting(parts)
    if len(own) < 2 or waits < LEAST_PART * change or not all(row.base and row.head for row in own):
        return None
    order = sorted(zip(_beyond(own, own, toward), range(len(own)), strict=True), reverse=True)
    # The ranks before the widest gap, at most half of them.
    gaps = [(one - other, at) for at, ((one, _), (other, _)) in enumerate(pairwise(order), start=1)]
    count = max(gaps[: len(own) // 2])[1]
    late, others = ([own[at] for _, at in half] for half in (order[:count], order[count:]))
    excess = _beyond(late, others, toward)
    pairs = zip(late, excess, strict=True)
    is_own = all(beyond >= _LEAST_BEYOND * toward * row.delta > 0 for row, beyond in pairs)
    is_apart = min(excess) > _APART * max(_beyond(others, others, toward))
    if not is_own or not is_apart or sum(excess) < _LEAST_OWN * change:
        return None
    cause, of_cause = _cause(parts, late, others, toward, blocking)
    is_most = of_cause * len(late) >= sum(excess) * len(own) / 2
    return Late(sorted(late, key=lambda row: row.part), others, waits + sum(excess, ZERO), cause, is_most)


def _beyond(rows: Sequence[Row], others: Sequence[Row], toward: int) -> list[Fraction]:
    """How much more each row changed than the median of others, by amount or by share, whichever is more."""
    amount = median(toward * each.delta for each in others)
    share = median(toward * each.delta / each.base if each.base else ZERO for each in others)
    return [toward * row.delta - max(amount, share * row.base) for row in rows]


def waiting(parts: Breakdown) -> Fraction:
    """The change of waits for other ranks: exposed ones of the GPU, or those of the host in collectives."""
    rows = parts.level("breakdown").rows
    return sum((row.delta for row in rows if row.part in (WAIT, "waiting") or awaited_rank(row.part)), ZERO)


def _cause(
    parts: Breakdown, late: Sequence[Row], others: Sequence[Row], toward: int, blocking: str | None
) -> tuple[Row | None, Fraction]:
    """The row of the own time of a late rank that changed most beyond that of the others, and by how much."""
    ranks, found = {row.part for row in late}, []
    for (rank, name), row in parts.own.items():
        if rank in ranks:
            theirs = [parts.own.get((each.part, name), Row(name, ZERO, ZERO)) for each in others]
            found.append((_beyond([row], theirs, toward)[0], row))
    found.sort(key=lambda each: -each[0])
    cause = first_cause([row for beyond, row in found if beyond > 0], blocking)
    return cause, next((beyond for beyond, row in found if row is cause), ZERO)


def first_cause(rows: Sequence[Row], blocking: str | None) -> Row | None:
    """The first row; the idle time after a new blocking call instead, if the first follows from it."""
    first = next(iter(rows), None)
    if first is None or blocking is None or first.part not in _AFTER_SYNC:
        return first
    return next((row for row in rows if row.part == SYNC), first)


_BLOCKING = """
SELECT
  call.name || coalesce(' under ' || op.name, '') AS name,
  count(DISTINCT (run_id, rank, wait_id)) AS calls,
  sum(segment_ns)::BIGINT AS ns
FROM device_segments AS segment
SEMI JOIN (SELECT * FROM steps WHERE NOT partial) AS complete USING (run_id, rank, step)
JOIN (SELECT run_id, rank, event_id AS wait_id, name, op_id FROM runtime) AS call
  USING (run_id, rank, wait_id)
LEFT JOIN (SELECT run_id, rank, event_id AS op_id, name FROM events) AS op USING (run_id, rank, op_id)
WHERE cause = 'sync'
GROUP BY 1
"""
_MORE_CALLS = 1.5


def new_blocking_call(parts: Breakdown, base: Selection, head: Selection) -> str | None:
    """The blocking call with the longest idle time after it, if head makes more of them than base."""
    sync = next((row for row in parts.level("breakdown").rows if row.part == SYNC), None)
    if parts.per != "step" or sync is None or sync.delta < LEAST_PART * abs(parts.delta):
        return None
    before, after = ({row["name"]: row for row in side.query_all(_BLOCKING).rows()} for side in (base, head))
    if not after:
        return None
    most = max(after, key=lambda name: after[name]["ns"])
    calls = before.get(most, {"calls": 0})["calls"] / parts.base_intervals
    return most if after[most]["calls"] / parts.head_intervals > _MORE_CALLS * calls else None


# The highest peak of a step, and the most that a device's memory grows by from each step's end to the next.
_ALLOCATED = """
WITH
  ended AS (
    SELECT
      run_id, rank, device, step, max(allocated_bytes) AS peak, arg_max(allocated_bytes, position) AS bytes
    FROM memory_changes
    SEMI JOIN (SELECT * FROM steps WHERE NOT partial) AS complete USING (run_id, rank, step)
    WHERE device_type <> 0 AND allocated_bytes IS NOT NULL
    GROUP BY ALL
  ),
  grown AS (
    SELECT *, bytes - lag(bytes) OVER (PARTITION BY run_id, rank, device ORDER BY step) AS growth FROM ended
  )
SELECT max(peak) AS peak, greatest(max(growth), 0) AS growth
FROM (SELECT max(peak) AS peak, min(growth) AS growth FROM grown GROUP BY run_id, rank, device)
"""
_NOTICEABLE_MEMORY = 0.01  # of the peak of base, and as growth per step of what is allocated


def memory_notes(base: Selection, head: Selection) -> Iterator[str]:
    """How allocated memory grows from step to step, or its peak changed; only if both sides recorded it."""
    ranks = [rank for side in (base, head) for each in side.selected() for rank in each.version.by_rank]
    if not all(rank.facts.get("memory_events") for rank in ranks):
        return
    before, after = (side.query_all(_ALLOCATED).rows()[0] for side in (base, head))
    if not before["peak"] or not after["peak"]:
        return
    (less, _), (more, name) = sorted([(before["growth"], "base"), (after["growth"], "head")])
    change = after["peak"] / before["peak"] - 1
    if more > _NOTICEABLE_MEMORY * before["peak"] and more > 2 * less:
        other = "base" if name == "head" else "head"
        rest = f"by {show(less, 'bytes')} in {other}" if less else f"not in {other}"
        yield f"allocated memory grows by {show(more, 'bytes')} per step in {name}, {rest}"
    elif abs(change) >= _NOTICEABLE_MEMORY:
        peaks = f"{show(before['peak'], 'bytes')} → {show(after['peak'], 'bytes')}"
        yield f"peak of allocated memory {peaks}, {100 * change:+.1f} %"
