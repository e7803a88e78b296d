"""What a change of the mean is due to, in words: late ranks or the largest row, a new blocking call, memory.

Also where the spread between runs comes from.
What all ranks gain does not make a rank late: only what goes beyond the change of the others counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from msgspec import Struct

from tracewarehouse.compare.diff.breakdown import WINDOW, Breakdown
from tracewarehouse.compare.diff.levels import OWN_WORK, WAIT, ZERO, Row, awaited_rank
from tracewarehouse.compare.diff.pairing import MATRIX_PRODUCT, RETYPED, is_conversion, role_of
from tracewarehouse.compare.stats.two_sample import variance_shares
from tracewarehouse.display_names import category_name
from tracewarehouse.present.render.text import one_line, short_name, show

if TYPE_CHECKING:
    from tracewarehouse.query.selection import Selection

_LEAST_PART = 0.1  # share of the change, from which waiting, or a blocking call, is a cause
_LEAST_OWN = 0.05  # share of the change, from which a late rank is named
_APART = 3  # times that of the next rank, from which a rank's own change is far larger
_LEAST_BEYOND = 0.5  # share of a rank's own change that the change of the others does not explain
_ALIKE = 2  # up to this many times, rates of change are alike
_MOST_ALIKE = 0.7  # share of the time in other kernels, from which a rank is slower in all of them
_LEAST_OTHER_KERNELS = 3
_SYNC = "idle_sync"
_AFTER_SYNC = ("idle_host", "idle_call", "idle_latency")  # where a blocking call has emptied the queue


class Late(Struct, frozen=True):
    """Ranks whose own time changed by far the most; `part` of the change is due to them, with all waiting.

    `cause` is the row of one's own time that changed most beyond the others', `is_most` if by half of all,
    `is_even` if most of the own time in other kernels changed at a similar rate, as on a slow GPU.
    """

    ranks: Sequence[Row]
    others: Sequence[Row]
    part: Fraction
    cause: Row | None
    is_most: bool
    is_even: bool


def late_ranks(parts: Breakdown, blocking: str | None) -> Late | None:
    """The ranks that the others wait longer for, or no longer; None if no rank differs that much.

    None, too, if nothing waits, collectives are not matched, or a side lacks a rank.
    """
    rows = [row for row in parts.level("ranks").rows if row.part.endswith(OWN_WORK)]
    toward = 1 if parts.delta > 0 else -1
    change, waits = toward * parts.delta, toward * waiting(parts)
    if len(rows) < 2 or waits < _LEAST_PART * change or not all(row.base and row.head for row in rows):
        return None
    order = sorted(zip(_beyond(rows, rows, toward), range(len(rows)), strict=True), reverse=True)
    # The ranks before the widest gap, at most half of them.
    gaps = [(more - less, index) for index, ((more, _), (less, _)) in enumerate(pairwise(order), start=1)]
    count = max(gaps[: len(rows) // 2])[1]
    late, others = ([rows[index] for _, index in indexed] for indexed in (order[:count], order[count:]))
    excess = _beyond(late, others, toward)
    excess_by_row = zip(late, excess, strict=True)
    is_own = all(beyond >= _LEAST_BEYOND * toward * row.delta > 0 for row, beyond in excess_by_row)
    is_apart = min(excess) > _APART * max(_beyond(others, others, toward))
    if not is_own or not is_apart or sum(excess) < _LEAST_OWN * change:
        return None
    cause, beyond_by_row = _cause(parts, late, others, toward, blocking)
    of_cause = next((beyond for beyond, row in beyond_by_row if row is cause), ZERO)
    is_most = of_cause * len(late) >= sum(excess) * len(rows) / 2
    part, is_even = waits + sum(excess, ZERO), _is_even(cause, beyond_by_row)
    return Late(sorted(late, key=lambda row: row.part), others, part, cause, is_most, is_even)


def _beyond(rows: Sequence[Row], others: Sequence[Row], toward: int) -> list[Fraction]:
    """How much more each row changed than the median of others, by amount or by share, whichever is more."""
    amount = median(toward * other.delta for other in others)
    share = median(toward * other.delta / other.base if other.base else ZERO for other in others)
    return [toward * row.delta - max(amount, share * row.base) for row in rows]


def waiting(parts: Breakdown) -> Fraction:
    """The change of waits for other ranks: exposed ones of the GPU, or those of the host in collectives."""
    rows = parts.level("breakdown").rows
    return sum((row.delta for row in rows if row.part in (WAIT, "waiting") or awaited_rank(row.part)), ZERO)


def _cause(
    parts: Breakdown, late: Sequence[Row], others: Sequence[Row], toward: int, blocking: str | None
) -> tuple[Row | None, list[tuple[Fraction, Row]]]:
    """The row of own time that changed most beyond that of the others, and all rows with that change."""
    ranks, candidates = {row.part for row in late}, []
    for (rank, name), row in parts.own.items():
        if rank in ranks:
            theirs = [parts.own.get((peer.part, name), Row(name, ZERO, ZERO)) for peer in others]
            candidates.append((_beyond([row], theirs, toward)[0], row))
    candidates.sort(key=lambda peer: -peer[0])
    return first_cause([row for beyond, row in candidates if beyond > 0], blocking), candidates


def _is_even(cause: Row | None, beyond_by_row: Sequence[tuple[Fraction, Row]]) -> bool:
    """Whether most of the time in other kernels than the cause changed at a rate like its own."""
    kernels = [
        (beyond / row.base, row) for beyond, row in beyond_by_row if row.calls is not None and row.base
    ]
    own_rate = next((rate for rate, row in kernels if row is cause), ZERO)
    others = [(rate, row.base) for rate, row in kernels if row is not cause]
    alike = sum((base for rate, base in others if own_rate < _ALIKE * rate < _ALIKE**2 * own_rate), ZERO)
    return len(others) >= _LEAST_OTHER_KERNELS and alike >= _MOST_ALIKE * sum(base for _, base in others)


def first_cause(rows: Sequence[Row], blocking: str | None) -> Row | None:
    """The first row; the idle time after a new blocking call instead, if the first follows from it."""
    first = next(iter(rows), None)
    if first is None or blocking is None or first.part not in _AFTER_SYNC:
        return first
    return next((row for row in rows if row.part == _SYNC), first)


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
    sync = next((row for row in parts.level("breakdown").rows if row.part == _SYNC), None)
    if parts.per != "step" or sync is None or sync.delta < _LEAST_PART * abs(parts.delta):
        return None
    before, after = ({row["name"]: row for row in side.query(_BLOCKING).rows()} for side in (base, head))
    if not after:
        return None
    longest = max(after, key=lambda name: after[name]["ns"])
    calls = before.get(longest, {"calls": 0})["calls"] / parts.base_intervals
    return longest if after[longest]["calls"] / parts.head_intervals > _MORE_CALLS * calls else None


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
    ranks = [rank for side in (base, head) for run in side.selected() for rank in run.version.by_rank]
    if not all(rank.facts.get("memory_events") for rank in ranks):
        return
    before, after = (side.query(_ALLOCATED).rows()[0] for side in (base, head))
    if not before["peak"] or not after["peak"]:
        return
    (smaller, _), (larger, name) = sorted([(before["growth"], "base"), (after["growth"], "head")])
    change = after["peak"] / before["peak"] - 1
    if larger > _NOTICEABLE_MEMORY * before["peak"] and larger > 2 * smaller:
        other_side = "base" if name == "head" else "head"
        comparison = f"by {show(smaller, 'bytes')} in {other_side}" if smaller else f"not in {other_side}"
        yield f"allocated memory grows by {show(larger, 'bytes')} per step in {name}, {comparison}"
    elif abs(change) >= _NOTICEABLE_MEMORY:
        peaks = f"{show(before['peak'], 'bytes')} → {show(after['peak'], 'bytes')}"
        yield f"peak of allocated memory {peaks}, {100 * change:+.1f} %"


_LEAST_CAUSE = 0.2  # share of the change, from which the largest row is its cause
_LEAST_CHANGE = 0.01  # of the mean of base, from which a late rank is named that did not change significantly
_MOST = 0.5  # share of the change, from which a late rank comes before the largest row; of a row
_LEAST_OTHERS = 0.1  # share of a late rank's own change, from which that of the others is reported
# Beyond this many times the change of the step, a row is not a part of it: others went the other way.
_OFFSET = 2
_ALL = 0.995
_UNMATCHED = "exposed_unassigned"
# Share of the window by which the windows of two recordings differ that a fixed time of recording ends.
_SAME_LENGTH = 0.001
_FIXED_LENGTH = (
    "note: both windows have the same length, as if recording stopped after a fixed time: the rows show what"
    " ran in it, not whether it is faster; mark steps to compare speed"
)


def causes(parts: Breakdown, is_unchanged: bool, blocking: str | None = None) -> Iterator[str]:
    """The late rank, or the largest row, the larger of both first; and collectives that are not matched.

    If the step as a whole `is_unchanged`, only what changed significantly is worth a line. `blocking` is a
    blocking call that only head makes. In recordings of a fixed length, no row is a cause.
    """
    if parts.per == WINDOW and abs(parts.delta) < _SAME_LENGTH * parts.base_mean:
        if any(row.delta for row in parts.level("kernels").rows):
            yield _FIXED_LENGTH
        return
    late = late_ranks(parts, blocking)
    lines = [] if late is None or is_unchanged and not _is_certain(late) else [_late_text(late, parts)]
    if late is None or late.part < _MOST * abs(parts.delta) or not any(lines):
        row = largest_row(parts, blocking)
        if row is not None and (not is_unchanged or _is_significant(row)):
            lines.insert(0, _waiting_text(row, parts, blocking) or _largest_text(row, parts, blocking))
    yield from filter(None, lines)
    if (note := unmatched(parts)) is not None:
        yield note


def late_rank(parts: Breakdown, blocking: str | None = None) -> str | None:
    """The rank whose own time changed by far the most, where the others wait longer, or shorter, for it.

    None if nothing waits, or collectives are not matched, so that waiting is not known.
    """
    late = late_ranks(parts, blocking)
    return None if late is None else _late_text(late, parts)


def _is_certain(late: Late) -> bool:
    return all(map(_is_significant, late.ranks))


def _late_text(late: Late, parts: Breakdown) -> str | None:
    """The late ranks with their cause; None if they are neither significant nor most of a notable change."""
    change, is_certain = abs(parts.delta), _is_certain(late)
    if not is_certain and (late.part < _MOST * change or change < _LEAST_CHANGE * parts.base_mean):
        return None
    names = [row.part.removesuffix(OWN_WORK).removeprefix("rank ") for row in late.ranks]
    ranks, whose = (
        (f"ranks {' and '.join(names)} are", "their") if names[1:] else (f"rank {names[0]} is", "its")
    )
    ranks = f"{len(names)} ranks are" if len(names) > _MOST_NAMED else ranks
    count = len(late.ranks) + len(late.others)
    sentence = f"{ranks} {'late' if parts.delta > 0 else 'no longer late'}: {whose} own time"
    sentence += f" {_grew(late.ranks, count)}"
    if late.cause is not None:
        how = f"across most of {whose} kernels, most of all" if late.is_even else ""
        how = how or ("mostly" if late.is_most else "largest part")
        sentence += f", {how} {_changed(late.cause, parts.per)}"
    common = sum((row.delta for row in late.others), ZERO) / len(late.others)
    if common * parts.delta > 0 and abs(common) >= _LEAST_OTHERS * abs(late.ranks[0].delta):
        sentence += f"; that of the others {_grew(late.others, count)}"
    share = float(late.part / change)
    # More than all of it if other ranks wait where they were idle before.
    share_text = "all" if share > _ALL else f"{100 * share:.0f} %"
    sentence += f"; with the waiting of the others that is {share_text} of the change"
    return sentence if is_certain else f"{sentence}, not significant"


def _grew(own: Sequence[Row], count: int) -> str:
    """By how much the own times of ranks changed on average; rows are divided by the `count` of ranks."""
    delta, base = sum((row.delta for row in own), ZERO), sum((row.base for row in own), ZERO)
    changed, ns = 100 * abs(float(delta / base)), show(float(abs(delta) * count / len(own)), "ns")
    return f"{'grew' if delta > 0 else 'shrank'} by {changed:.0f} % ({ns})"


def largest_row(parts: Breakdown, blocking: str | None = None) -> Row | None:
    """The kernel or idle cause that changed most in the direction of the step; None without such a row.

    What waits in a collective is named as that, and a new blocking call before what follows from it.
    """
    rows = parts.level("kernels").rows
    toward = [row for row in rows if row.delta * parts.delta > 0]
    if not toward or abs(toward[0].delta) < _LEAST_CAUSE * abs(parts.delta):
        return None
    return first_cause(toward, blocking)


def _largest_text(row: Row, parts: Breakdown, blocking: str | None) -> str:
    """The row; after a new blocking call, also that call, and the largest row if it follows from it."""
    sentence = _row_text(row, parts)
    if blocking is None or row.part != _SYNC:
        return sentence
    largest = largest_row(parts)
    if largest is None or largest.part == _SYNC:
        return f"{sentence}: {blocking}, new in head"
    sentence = sentence.replace("largest part", "first part")
    return f"{sentence}: {blocking}, new in head, from which follows {_changed(largest, parts.per)}"


def _waiting_text(row: Row, parts: Breakdown, blocking: str | None) -> str | None:
    """Waiting, if that is most of a collective's row, and the largest row of the ranks' own time."""
    own_names = {name for _, name in parts.own}
    waits = waiting(parts)
    is_known = bool(own_names) and row.part not in own_names and unmatched(parts) is None
    if not is_known or _MOST * abs(row.delta) > abs(waits) or waits * row.delta < 0:
        return None
    sentence = f"largest part: waiting for other ranks, {_signed(waits)} of the {_signed(parts.delta)} change"
    kernels = parts.level("kernels").rows
    toward = [kernel for kernel in kernels if kernel.part in own_names and kernel.delta * row.delta > 0]
    first_row = first_cause(toward, blocking)
    if first_row is not None and abs(first_row.delta) >= _LEAST_PART * abs(parts.delta):
        sentence += f"; of the ranks' own time, {_changed(first_row, parts.per)}"
    return sentence if _is_significant(row) else f"{sentence}, not significant"


def unmatched(parts: Breakdown) -> str | None:
    """That waiting is not known, if communication that is not matched across ranks changed noticeably."""
    rows = {row.part: row for row in parts.level("breakdown").rows}
    row = rows.get(_UNMATCHED)
    if row is None or not row.delta or abs(row.delta) < _LEAST_PART * abs(parts.delta):
        return None
    delta = show(float(row.delta), "ns")
    return f"note: collectives behind {delta} of the change are not matched across ranks: waiting is unknown"


def _is_significant(row: Row) -> bool:
    return row.test is not None and row.test.significant


def _row_text(row: Row, parts: Breakdown) -> str:
    """The row, or, if it changed by more than the step, also the largest that went the other way."""
    if (converted := _conversions(row, parts)) is not None:
        sentence = converted
    elif abs(row.delta) > _OFFSET * abs(parts.delta):
        kernels = parts.level("kernels").rows
        opposite = next((kernel for kernel in kernels if kernel.delta * row.delta < 0), None)
        both = sorted((kernel for kernel in (row, opposite) if kernel), key=lambda kernel: -abs(kernel.delta))
        sentence = f"parts cancel out: {' and '.join(_changed(kernel, parts.per) for kernel in both)}"
    else:
        level = "" if parts.on_host else " by kernel"
        sentence = f"largest part{level}: {_changed(row, parts.per)} of the {_signed(parts.delta)} change"
    if _is_significant(row):
        return sentence
    return f"{sentence}, not {'tested' if row.test is None else 'significant'}"


def _conversions(row: Row, parts: Breakdown) -> str | None:
    """What another data type gains, and what conversions cost; None unless the row is one of them."""
    rows = [kernel for kernel in parts.level("kernels").rows if kernel.calls is not None]
    faster = [kernel for kernel in rows if (kernel.joined or "").startswith(RETYPED) and kernel.delta < 0]
    more_often = [kernel for kernel in rows if kernel.change in ("added", "more calls")]
    casts = [kernel for kernel in more_often if is_conversion(kernel.part)]
    if row not in (*faster, *casts) or not faster or not casts:
        return None
    gain, cost = (abs(sum((kernel.delta for kernel in side), ZERO)) for side in (faster, casts))
    dtypes = (faster[0].joined or "").removeprefix(RETYPED)
    subject = f"quantization ({dtypes})" if dtypes.endswith(("8", "4")) else dtypes
    roles = {role_of(kernel.part) for kernel in faster}
    kernels = "matrix products" if roles == {MATRIX_PRODUCT} else "kernels"
    cancel = "parts cancel out: " if min(gain, cost) * _OFFSET > max(gain, cost) else ""
    gained, lost = show(float(gain), "ns"), show(float(cost), "ns")
    return f"{cancel}{subject} gained {gained} in {kernels} and costs {lost} in casts"


def _changed(row: Row, per: str) -> str:
    name = one_line(short_name(row.part)) if row.calls is not None else category_name(row.part)
    count = f"{float(row.head_count or 0):,.1f}".removesuffix(".0")
    calls = f", {count} call{'s' * (count != '1')} per {per}" if row.change == "added" else ""
    return f"{name} {row.change}{calls}, {_signed(row.delta)}"


def _signed(ns: Fraction) -> str:
    return f"{'+' if ns > 0 else ''}{show(float(ns), 'ns')}"


_MOST_NAMED = 3
_LEAST = 0.1  # share of the variance, from which a part is named
_MOST_OF_RANKS = 0.6  # of the spread of own times, from which one rank is named


class Share(Struct, frozen=True):
    """The share of the variance between replicates that a row contributes; all of a level sum to 1.

    It is negative for a row that is shorter where the whole is longer.
    """

    level: str
    name: str
    share: float


def spread(parts: Breakdown) -> tuple[Share, ...]:
    """The rows of kernels and of ranks, the largest share first; empty with too few runs or steps."""
    shares: list[Share] = []
    for name in ("kernels", "ranks"):
        rows = parts.level(name).rows
        values = variance_shares([(row.base_replicates, row.head_replicates) for row in rows]) or ()
        of_level = [Share(name, row.part, value) for row, value in zip(rows, values, strict=False)]
        shares += sorted(of_level, key=lambda share: (-share.share, share.name))
    return tuple(shares)


def spread_notes(parts: Breakdown) -> Iterator[str]:
    """The kernels and idle causes, and the rank, that most of the spread comes from."""
    shares, between = spread(parts), f"{parts.replicate}s"
    kernels = [row for row in shares if row.level == "kernels" and row.share >= _LEAST][:_MOST_NAMED]
    if kernels:
        listed = ", ".join(f"{_name(share.name)} ({100 * share.share:.0f} %)" for share in kernels)
        yield f"the spread between {between} comes from {listed}"
    own = [row for row in shares if row.level == "ranks" and row.name.endswith(OWN_WORK)]
    total = sum(max(row.share, 0.0) for row in own)
    # A late rank lengthens the steps of the others as much, by waiting: compare own times only.
    if len(own) > 1 and own[0].share >= max(_LEAST, _MOST_OF_RANKS * total):
        rank, share = own[0].name.removesuffix(OWN_WORK), own[0].share / total
        yield f"{rank} varies most: {100 * share:.0f} % of the spread of the ranks' own times"


def _name(part: str) -> str:
    name = category_name(part)
    return name if name != part else one_line(short_name(part))
