"""Times of events: absolute start and duration, begin/end pairs, and a check of the time unit.

Times are rounded half away from zero. On each thread, an end event closes the most recent open begin event.

Some writers record nanoseconds instead of microseconds. Each of two signs is sufficient: memcpys whose
recorded bandwidth does not match their bytes and duration, and times that are out of range as microseconds
but lie in this century as nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tracewarehouse.formats.base import Finding
from tracewarehouse.formats.kineto.columns import DUR_FRACTION, TS_FRACTION, BufferedBatch, numbers
from tracewarehouse.formats.kineto.distinct_values import read_tokens

if TYPE_CHECKING:
    from tracewarehouse.formats.kineto.columns import BatchColumns


# A longer slice (28 hours) has a wrong start or end: its duration is invalid.
LONGEST_NS: Final = 100_000_000_000_000
# A timestamp of 0 is invalid if all others are later than this.
EPOCH_GAP_NS: Final = 3_600_000_000_000
_WHOLE: Final = 1_000_000
_HALF: Final = _WHOLE // 2
_MOST: Final = 2**63 - 1


@dataclass(frozen=True)
class Clock:
    """The origin of the times in a file; `zero_is_invalid`: a time of 0 means that there is none."""

    base_ns: int
    zero_is_invalid: bool


class Exact(NamedTuple):
    """Times in ns since the base time, rounded down; millionths of a nanosecond; validity mask."""

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
    batch: BufferedBatch, clock: Clock, is_begin: NDArray[np.bool_], no_zero: NDArray[np.bool_],
    pairs: EventPairs | None, first: int,
) -> Times:  # fmt: skip
    """The times of a batch whose first row is the event `first`.

    `is_begin` are B rows. In rows of `no_zero`, a time of 0 is invalid if `clock.zero_is_invalid`.
    """
    ts, dur = _read(batch, "ts", TS_FRACTION), _read(batch, "dur", DUR_FRACTION)
    start, start_ok = _rounded(ts, clock.base_ns)
    if clock.zero_is_invalid:
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
    """Non-negative times as microseconds, as integers or with three decimals."""
    us, rest = np.divmod(ns, 1000)
    whole = pc.cast(pa.array(us), pa.string())
    decimals = pc.utf8_lpad(pc.cast(pa.array(rest), pa.string()), 3, "0")
    return pc.if_else(pa.array(rest == 0), whole, pc.binary_join_element_wise(whole, decimals, "."))


def _read(batch: BufferedBatch, name: str, fraction: str) -> Exact:
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
    return Exact(ns + carry, fractions, valid & ~((carry > 0) & (ns == _MOST)))


def _rounded(time: Exact, base_ns: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Integer nanoseconds since the epoch, and whether they fit 64 bits."""
    base = np.int64(base_ns)
    ns = time.ns + base
    valid = time.valid & ~_overflowed(time.ns, base, ns) if base_ns else time.valid.copy()
    if time.fractions is not None:
        up = np.where(ns >= 0, time.fractions >= _HALF, time.fractions > _HALF)
        valid &= ~(up & (ns == _MOST))
        ns += up
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
    end: NDArray[np.int64], end_ok: NDArray[np.bool_], pairs: EventPairs, first: int, clock: Clock
) -> None:
    """Sets the ends of begin events to the times of their end events."""
    here = pairs.within(first, len(end))
    rows = pairs.begins[here] - first
    ns, fractions = pairs.end_ts[here], pairs.end_fractions[here].astype(np.int64)
    end[rows], end_ok[rows] = _rounded(Exact(ns, fractions, pairs.end_valid[here]), clock.base_ns)


def _ts_text(
    batch: BufferedBatch, ts: Exact, start: NDArray[np.int64], start_ok: NDArray[np.bool_], clock: Clock
) -> pa.Array:
    """The digits of the file where formatting `ts_ns` minus the base time does not reproduce them."""
    text = _texts(batch, "ts", ts.valid & ~start_ok)
    changed = _changed(ts) & start_ok & (start >= clock.base_ns)
    return _without_printed(text, start - np.int64(clock.base_ns), changed)


def _dur_text(
    batch: BufferedBatch, dur: Exact, length: NDArray[np.int64], length_ok: NDArray[np.bool_],
    is_begin: NDArray[np.bool_],
) -> pa.Array:  # fmt: skip
    """The digits of the file where formatting `dur_ns` does not reproduce them, and for begin events."""
    text = _texts(batch, "dur", dur.valid & (~length_ok | is_begin))
    return _without_printed(text, length, _changed(dur) & length_ok & ~is_begin)


def _changed(time: Exact) -> NDArray[np.bool_]:
    """The rows that may store digits of the file although formatting reproduces them."""
    return np.full(len(time.ns), time.fractions is not None)


def _texts(batch: BufferedBatch, name: str, wanted: NDArray[np.bool_]) -> pa.Array:
    """The digits of the file; where the scanner omitted them, only in the wanted rows."""
    text = batch.column(f"{name}_text", pa.string())
    rows = np.flatnonzero(wanted & text.is_null().to_numpy(zero_copy_only=False))
    if not rows.size:
        return text
    mask = np.zeros(batch.rows, np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(text, pa.array(mask), printed(batch.ints(name)[0][rows]))


def _without_printed(text: pa.Array, ns: NDArray[np.int64], rows: NDArray[np.bool_]) -> pa.Array:
    """The texts, without those of the given rows that formatting reproduces."""
    places = np.flatnonzero(rows)
    if not places.size or text.null_count == len(text):
        return text
    equal = pc.fill_null(pc.equal(text.take(pa.array(places)), printed(ns[places])), False)
    drop = np.zeros(len(rows), np.bool_)
    drop[places] = equal.to_numpy(zero_copy_only=False)
    return pc.if_else(pa.array(drop), pa.scalar(None, pa.string()), text)


class BeginEndEvents(NamedTuple):
    """B and E events: id, kind, time in s, ns and millionths of a nanosecond, JSON of pid and tid."""

    ids: NDArray[np.int64]
    is_begin: NDArray[np.bool_]
    seconds: NDArray[np.int64]
    ns: NDArray[np.int64]
    fractions: NDArray[np.int32]
    pids: pa.Array
    tids: pa.Array


# Limit of 64 bits of nanoseconds.
_MOST_SECONDS: Final = 2**63 // 10**9


@dataclass(frozen=True)
class EventPairs:
    """Begin events in order, their end events, and the end times: ns since the base time and millionths.

    `end_valid` is False where the time exceeds 64 bits.
    """

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    end_ts: NDArray[np.int64]
    end_fractions: NDArray[np.int32]
    end_valid: NDArray[np.bool_]

    def within(self, first: int, count: int) -> slice:
        """The pairs whose begin event is one of the `count` events from `first` on."""
        low, high = np.searchsorted(self.begins, [first, first + count])
        return slice(int(low), int(high))


def match_pairs(found: Sequence[BeginEndEvents]) -> EventPairs:
    """Matches begin events with their end events.

    Both have the same level on their thread, which is the number of open begin events. The end of a begin
    event is the next event on its level.
    """
    ids, is_begin, seconds, ns, fractions = (np.concatenate([one[at] for one in found]) for at in range(5))
    tracks = _tracks(found)
    order = np.lexsort((ids, fractions, ns, seconds, tracks))
    ids, is_begin, seconds, ns, fractions, tracks = (
        values[order] for values in (ids, is_begin, seconds, ns, fractions, tracks)
    )
    levels = _levels(is_begin.astype(np.bool_), tracks)
    by_level = np.lexsort((np.arange(len(ids)), levels, tracks))
    here, after = by_level[:-1], by_level[1:]
    pair = (
        is_begin[here] & ~is_begin[after] & (tracks[here] == tracks[after]) & (levels[here] == levels[after])
    )
    begins, ends = here[pair], after[pair]
    by_begin = np.argsort(ids[begins])
    begins, ends = begins[by_begin], ends[by_begin]
    seconds, ns = seconds[ends], ns[ends]
    valid = np.abs(seconds) < _MOST_SECONDS
    ts = np.where(valid, seconds, 0) * 10**9 + ns
    return EventPairs(ids[begins], ids[ends], ts, fractions[ends], valid)


def _levels(is_begin: NDArray[np.bool_], tracks: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of open begin events on the thread of each event, with the event itself or its begin."""
    steps = np.where(is_begin, 1, -1).cumsum()
    starts = np.flatnonzero(np.diff(tracks, prepend=-1))
    before = np.concatenate([[0], steps])[starts]
    lengths = np.diff(np.append(starts, len(tracks)))
    levels: NDArray[np.int64] = steps - np.repeat(before, lengths) + ~is_begin
    return levels


def _tracks(found: Sequence[BeginEndEvents]) -> NDArray[np.int64]:
    """A number per thread: equal if process and thread ids are equal as text."""
    pid, tid = (
        _numbers(pa.concat_arrays([getattr(one, name) for one in found])) for name in ("pids", "tids")
    )
    return pid.astype(np.int64) << 32 | tid


def _numbers(tokens: pa.Array) -> NDArray[np.int64]:
    """Numbers that are equal if the tokens are equal as text; 0 for null."""
    encoded = tokens.dictionary_encode()
    texts = read_tokens(encoded.dictionary.to_pylist()).texts
    numbers = {text: at for at, text in enumerate(dict.fromkeys(texts), 1)}
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    found: NDArray[np.int64] = np.array([*(numbers[text] for text in texts), 0], np.int64)[codes]
    return found


RULE: Final = "time_unit"
_COPY: Final = "gpu_memcpy"
# The median of bytes / (bandwidth * duration) is 1 to 2.4 if times are microseconds.
_LEAST_RATIO: Final = 0.1
_MOST_RATIO: Final = 10.0
_COPIES_KEPT: Final = 100_000
# Nanoseconds of the years 2000 to 2099, as digits; as microseconds they exceed 64 bits of ns.
_NS_OF_THIS_CENTURY: Final = r"^(9[4-9][0-9]{16}|[123][0-9]{18}|40[0-9]{17})(\.[0-9]+)?$"


@dataclass
class TimeUnit:
    """Collects the signs of a wrong time unit, batch by batch."""

    late: int = 0
    timed: int = 0
    ratios: list[NDArray[np.float64]] = field(default_factory=list)
    _copies: int = 0

    def add_times(self, columns: BatchColumns) -> None:
        """Counts valid times, and times that are plausible only as nanoseconds."""
        if "ts" in columns.ints:
            self.timed += int(columns.ints["ts"][1].sum())
        texts = columns.texts.get("ts_text")
        if texts is None:
            return
        found = pc.fill_null(pc.match_substring_regex(texts, _NS_OF_THIS_CENTURY), False)
        no_time = ~columns.ints["ts"][1] if "ts" in columns.ints else np.ones(columns.rows, np.bool_)
        self.late += int((found.to_numpy(zero_copy_only=False) & no_time).sum())

    def add_copies(self, batch: pa.RecordBatch) -> None:
        """Collects the bandwidth ratios of memcpys."""
        category = batch.column("category")
        place = pc.index(category.dictionary, _COPY).as_py()
        if place < 0 or self._copies >= _COPIES_KEPT:
            return
        rows = pc.indices_nonzero(pc.fill_null(pc.equal(category.indices, place), False))
        columns = [batch.column(name).take(rows) for name in ("bytes", "bandwidth_bytes_per_ns", "dur_ns")]
        size, bandwidth, length = (
            pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) for column in columns
        )
        usable = (size > 0) & (bandwidth > 0) & (length > 0)
        self._copies += int(usable.sum())
        self.ratios.append(size[usable] / (bandwidth[usable] * length[usable]))

    def finding(self) -> Finding | None:
        """The finding if the time unit is implausible, else None."""
        if self.late > self.timed:
            example = "times are too late for microseconds, and of our days as nanoseconds"
            return Finding(RULE, self.late, f"{example}: ingest with --time-unit ns")
        ratios = np.concatenate(self.ratios) if self.ratios else np.zeros(0)
        if not ratios.size or _LEAST_RATIO <= (median := float(np.median(ratios))) <= _MOST_RATIO:
            return None
        times, what = (1 / median, "longer") if median < 1 else (median, "shorter")
        hint = ": ingest with --time-unit ns if its times are nanoseconds" if median < 1 else ""
        example = f"copies take {times:.0f} times {what} than their bandwidth and bytes say{hint}"
        return Finding(RULE, int(ratios.size), example)
