"""Start, length and their texts, once the base of a file's times is known. Rounding is half away from zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.kineto.kept import DUR_FRACTION, TS_FRACTION, KeptBatch, numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.formats.kineto.pairs import Pairs

# A slice that would be longer than this (28 hours) has lost its start or its end: its length is no length.
LONGEST_NS: Final = 100_000_000_000_000
# A time stamp of 0 is no time where all others are more than this later.
EPOCH_GAP_NS: Final = 3_600_000_000_000
_WHOLE: Final = 1_000_000
_HALF: Final = _WHOLE // 2


@dataclass(frozen=True)
class Clock:
    """What a file's times count from; `zero_is_no_time`: a time of 0 is none."""

    base_ns: int
    zero_is_no_time: bool


class Exact(NamedTuple):
    """Times in ns from the base, rounded down, millionths of one, and which rows have one."""

    ns: NDArray[np.int64]
    fractions: NDArray[np.int64] | None
    valid: NDArray[np.bool_]


class Times(NamedTuple):
    """The columns ts_ns, dur_ns, ts_text, dur_text."""

    ts_ns: pa.Array
    dur_ns: pa.Array
    ts_text: pa.Array
    dur_text: pa.Array


def times(
    batch: KeptBatch, clock: Clock, is_begin: NDArray[np.bool_], no_zero: NDArray[np.bool_], pairs: Pairs | None,
    first: int,
) -> Times:  # fmt: skip
    """The times of a batch whose first row is the event `first`.

    `is_begin` are B rows; in rows of `no_zero` a time of 0 is none where the clock says so.
    """
    ts, dur = _read(batch, "ts", TS_FRACTION), _read(batch, "dur", DUR_FRACTION)
    start, start_ok = _rounded(ts, clock.base_ns)
    if clock.zero_is_no_time:
        is_zero = (ts.ns == 0) & no_zero
        start_ok &= ~is_zero if ts.fractions is None else ~(is_zero & (ts.fractions == 0))
    end, end_ok = _rounded(_sum(ts, dur), clock.base_ns)
    end_ok &= dur.ns >= 0
    if pairs is not None:
        _set_ends(end, end_ok, pairs, first, clock)
    length, fits = _difference(end, start)
    length_ok = start_ok & end_ok & fits & (length <= LONGEST_NS)
    ts_text = _ts_text(batch, ts, start, start_ok, clock)
    dur_text = _dur_text(batch, dur, length, length_ok, is_begin)
    length[~length_ok] = 0
    start = np.where(start_ok, start, 0)
    return Times(numbers(start, start_ok), numbers(length, length_ok), ts_text, dur_text)


def printed(ns: NDArray[np.int64]) -> pa.Array:
    """Times that are not negative as microseconds: whole, or with three decimals."""
    us, rest = np.divmod(ns, 1000)
    whole = pc.cast(pa.array(us), pa.string())
    decimals = pc.utf8_lpad(pc.cast(pa.array(rest), pa.string()), 3, "0")
    return pc.if_else(pa.array(rest == 0), whole, pc.binary_join_element_wise(whole, decimals, "."))


def _read(batch: KeptBatch, name: str, fraction: str) -> Exact:
    ns, valid = batch.ints(name)
    column = batch.arrow(fraction)
    fractions = None if column is None else batch.ints(fraction)[0].astype(np.int64)
    return Exact(ns, fractions, valid)


def _sum(a: Exact, b: Exact) -> Exact:
    ns = a.ns + b.ns
    valid = a.valid & b.valid & ~_overflowed(a.ns, b.ns, ns)
    if a.fractions is None or b.fractions is None:
        return Exact(ns, None, valid)
    carry, fractions = np.divmod(a.fractions + b.fractions, _WHOLE)
    return Exact(ns + carry, fractions, valid)


def _rounded(time: Exact, base_ns: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Whole nanoseconds since the epoch, and where they fit 64 bits."""
    base = np.int64(base_ns)
    ns = time.ns + base
    valid = time.valid & ~_overflowed(time.ns, base, ns) if base_ns else time.valid.copy()
    if time.fractions is not None:
        ns += np.where(ns >= 0, time.fractions >= _HALF, time.fractions > _HALF)
    return ns, valid


def _overflowed(
    a: NDArray[np.int64], b: NDArray[np.int64] | np.int64, total: NDArray[np.int64]
) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = ((a ^ total) & (b ^ total)) < 0
    return found


def _difference(a: NDArray[np.int64], b: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    found = a - b
    return found, ((a ^ b) & (a ^ found)) >= 0


def _set_ends(
    end: NDArray[np.int64], end_ok: NDArray[np.bool_], pairs: Pairs, first: int, clock: Clock
) -> None:
    """The ends of begin events are the times of their end events."""
    here = pairs.within(first, len(end))
    rows = pairs.begins[here] - first
    ns, fractions = pairs.end_ts[here], pairs.end_fractions[here].astype(np.int64)
    end[rows], end_ok[rows] = _rounded(Exact(ns, fractions, np.ones(len(rows), np.bool_)), clock.base_ns)


def _ts_text(
    batch: KeptBatch, ts: Exact, start: NDArray[np.int64], start_ok: NDArray[np.bool_], clock: Clock
) -> pa.Array:
    """The file's digits where printing `ts_ns` less the base does not give them."""
    text = _texts(batch, "ts", ts.valid & ~start_ok)
    changed = _changed(ts) & start_ok & (start >= clock.base_ns)
    return _without_printed(text, start - np.int64(clock.base_ns), changed)


def _dur_text(
    batch: KeptBatch, dur: Exact, length: NDArray[np.int64], length_ok: NDArray[np.bool_],
    is_begin: NDArray[np.bool_],
) -> pa.Array:  # fmt: skip
    """The file's digits where printing `dur_ns` does not give them, and always those of a begin event."""
    text = _texts(batch, "dur", dur.valid & (~length_ok | is_begin))
    return _without_printed(text, length, _changed(dur) & length_ok & ~is_begin)


def _changed(time: Exact) -> NDArray[np.bool_]:
    """The rows where the file's digits may be kept though printing gives them."""
    return np.full(len(time.ns), time.fractions is not None)


def _texts(batch: KeptBatch, name: str, wanted: NDArray[np.bool_]) -> pa.Array:
    """The file's digits; where the scanner left them out, only in the wanted rows."""
    text = batch.column(f"{name}_text", pa.string())
    rows = np.flatnonzero(wanted & text.is_null().to_numpy(zero_copy_only=False))
    if not rows.size:
        return text
    mask = np.zeros(batch.rows, np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(text, pa.array(mask), printed(batch.ints(name)[0][rows]))


def _without_printed(text: pa.Array, ns: NDArray[np.int64], rows: NDArray[np.bool_]) -> pa.Array:
    """The texts, without those of the given rows that printing gives."""
    places = np.flatnonzero(rows)
    if not places.size or text.null_count == len(text):
        return text
    equal = pc.fill_null(pc.equal(text.take(pa.array(places)), printed(ns[places])), False)
    drop = np.zeros(len(rows), np.bool_)
    drop[places] = equal.to_numpy(zero_copy_only=False)
    return pc.if_else(pa.array(drop), pa.scalar(None, pa.string()), text)
