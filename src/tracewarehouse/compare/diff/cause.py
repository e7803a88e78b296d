"""What a change is due to, in a line each: a late rank, the largest row, and what waiting is not known."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from statistics import median
from typing import TYPE_CHECKING

from tracewarehouse.compare.diff.levels import WAIT, ZERO, awaited_rank
from tracewarehouse.display_names import category_name
from tracewarehouse.present.render.names import short_name
from tracewarehouse.present.render.text import one_line, show

if TYPE_CHECKING:
    from tracewarehouse.compare.diff.breakdown import Breakdown
    from tracewarehouse.compare.diff.levels import Row

_LEAST_OWN, _LEAST_WAIT = 0.05, 0.1  # shares of the change, from which a late rank is named
_LEAST_CAUSE = 0.2  # share of the change, from which the largest row is its cause
# Beyond this many times the change of the step, a row is not a part of it: others went the other way.
_OFFSET = 2
_ALL = 0.995
_UNMATCHED = "exposed_unassigned"


def causes(parts: Breakdown, is_unchanged: bool) -> Iterator[str]:
    """The late rank, or the largest row; and collectives that are not matched.

    If the step as a whole `is_unchanged`, only a row that changed significantly is worth a line.
    """
    late = late_rank(parts)
    if late is not None:
        yield late
    elif (row := largest_row(parts)) is not None and (not is_unchanged or _is_significant(row)):
        yield _row_text(row, parts)
    if (note := unmatched(parts)) is not None:
        yield note


def late_rank(parts: Breakdown) -> str | None:
    """The rank whose own time changed by far the most, where the others wait longer, or shorter, for it.

    None if nothing waits, or collectives are not matched, so that waiting is not known.
    """
    own = [row for row in parts.level("ranks").rows if row.part.endswith(" own") and row.base]
    toward = 1 if parts.delta > 0 else -1
    change, waits = toward * parts.delta, toward * waiting(parts)
    if len(own) < 2 or not change or waits < _LEAST_WAIT * change:
        return None
    last, *others = sorted(own, key=lambda row: -toward * row.delta)
    typical, delta = median(toward * row.delta for row in others), toward * last.delta
    if not _is_significant(last) or delta - typical < _LEAST_OWN * change or delta < 3 * abs(typical):
        return None
    changed = float(last.delta / last.base)
    name, share = last.part.removesuffix(" own"), float((waits + delta) / change)
    ns, verb = show(float(delta * len(own)), "ns"), "grew" if toward > 0 else "shrank"
    state = "is late" if toward > 0 else "is no longer late"
    cause = f"{name} {state}: its own time {verb} by {100 * abs(changed):.0f} % ({ns})"
    # More than all of it if other ranks wait where they were idle before.
    part = "all" if share > _ALL else f"{100 * share:.0f} %"
    return f"{cause}; with the waiting of the others that is {part} of the change"


def waiting(parts: Breakdown) -> Fraction:
    """The change of exposed waits for other ranks."""
    rows = parts.level("breakdown").rows
    return sum((row.delta for row in rows if row.part == WAIT or awaited_rank(row.part)), start=ZERO)


def largest_row(parts: Breakdown) -> Row | None:
    """The kernel or idle cause that changed most in the direction of the step; None without such a row."""
    level = parts.level("kernels")
    toward = [row for row in level.rows if row.delta * parts.delta > 0]
    if not toward or abs(toward[0].delta) < _LEAST_CAUSE * abs(parts.delta):
        return None
    return toward[0]


def unmatched(parts: Breakdown) -> str | None:
    """That waiting is not known, if communication that is not matched across ranks changed noticeably."""
    rows = {row.part: row for row in parts.level("breakdown").rows}
    row = rows.get(_UNMATCHED)
    if row is None or not row.delta or abs(row.delta) < _LEAST_WAIT * abs(parts.delta):
        return None
    delta = show(float(row.delta), "ns")
    return f"note: collectives behind {delta} of the change are not matched across ranks: waiting is unknown"


def _is_significant(row: Row) -> bool:
    return row.test is not None and row.test.significant


def _row_text(row: Row, parts: Breakdown) -> str:
    if abs(row.delta) > _OFFSET * abs(parts.delta):
        text = _offset_text(row, parts)
    else:
        text = f"largest part: {_changed(row)} of the {_signed(parts.delta)} change"
    if _is_significant(row):
        return text
    return f"{text}, not {'tested' if row.test is None else 'significant'}"


def _offset_text(row: Row, parts: Breakdown) -> str:
    """A row that changed by more than the step, and the largest that went the other way, the larger first."""
    other = next((each for each in parts.level("kernels").rows if each.delta * row.delta < 0), None)
    both = sorted((each for each in (row, other) if each), key=lambda each: -abs(each.delta))
    return f"parts cancel out: {' and '.join(map(_changed, both))}"


def _changed(row: Row) -> str:
    name = one_line(short_name(row.part)) if row.calls is not None else category_name(row.part)
    return f"{name} {row.change}, {_signed(row.delta)}"


def _signed(ns: Fraction) -> str:
    return f"{'+' if ns > 0 else ''}{show(float(ns), 'ns')}"
