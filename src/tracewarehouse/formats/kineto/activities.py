"""Buffered batches to `activities`, once the complete file has been scanned: exact times, categories.

Times are rounded half away from zero. On each thread, an end event closes the most recent open begin event.

Some writers record nanoseconds instead of microseconds. Each of two signs is sufficient: memcpys whose
recorded bandwidth does not match their bytes and duration, and times that are out of range as microseconds
but lie in this century as nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse.formats.base import Defect, array_of
from tracewarehouse.formats.kineto import columns
from tracewarehouse.formats.kineto.columns import (
    DUR_FRACTION,
    HAS_COLLECTIVE,
    TS_FRACTION,
    BufferedBatch,
    Category,
    Coded,
    numbers_array,
    read_tokens,
)
from tracewarehouse.formats.kineto.scanner import TYPED_INTS
from tracewarehouse.formats.source_tables import activity_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.formats.kineto.columns import BatchColumns, Dictionaries

    # Values, and which of them are valid.
    Numbers = tuple[NDArray[np.int64], NDArray[np.bool_]]

# A longer slice (28 hours) has a wrong start or end: its duration is invalid.
LONGEST_NS: Final = 100_000_000_000_000
# A timestamp of 0 is invalid if all others are later than this.
EPOCH_GAP_NS: Final = 3_600_000_000_000
_WHOLE: Final = 1_000_000
_HALF: Final = _WHOLE // 2
_MOST: Final = 2**63 - 1


class Clock(Struct, frozen=True):
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
        # The ends of begin events are the times of their end events.
        here = pairs.within(first, len(end))
        rows = pairs.begins[here] - first
        ns, fractions = pairs.end_ts[here], pairs.end_fractions[here].astype(np.int64)
        end[rows], end_ok[rows] = _rounded(Exact(ns, fractions, pairs.end_valid[here]), clock.base_ns)
    length = end - start
    fits = ((end ^ start) & (end ^ length)) >= 0
    length_ok = start_ok & end_ok & fits & (length <= LONGEST_NS)
    # The digits of the file where formatting a time does not reproduce them, and durations of begin events.
    ts_text = _texts(batch, "ts", ts.valid & ~start_ok)
    if ts.fractions is not None:
        ts_text = _without_printed(
            ts_text, start - np.int64(clock.base_ns), start_ok & (start >= clock.base_ns)
        )
    dur_text = _texts(batch, "dur", dur.valid & (~length_ok | is_begin))
    if dur.fractions is not None:
        dur_text = _without_printed(dur_text, length, length_ok & ~is_begin)
    length[~length_ok] = 0
    start = np.where(start_ok, start, 0)
    return Times(array_of(start, start_ok), array_of(length, length_ok), ts_text, dur_text)


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


def _rounded(time: Exact, base_ns: int) -> Numbers:
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


class EventPairs(Struct, frozen=True):
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


class TimeUnit(Struct):
    """Collects the signs of a wrong time unit, batch by batch."""

    late: int = 0
    timed: int = 0
    ratios: list[NDArray[np.float64]] = field(default_factory=list)
    _copies: int = 0

    def add_times(self, columns: BatchColumns) -> None:
        """Counts valid times, and times that are plausible only as nanoseconds."""
        has_time = columns.ints["ts"][1] if "ts" in columns.ints else np.zeros(columns.rows, np.bool_)
        self.timed += int(has_time.sum())
        if (texts := columns.texts.get("ts_text")) is not None:
            late = pc.match_substring_regex(texts.filter(pa.array(~has_time)), _NS_OF_THIS_CENTURY)
            self.late += pc.sum(late).as_py() or 0

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

    def finding(self) -> Defect | None:
        """The finding if the time unit is implausible, else None."""
        if self.late > self.timed:
            example = "times are too late for microseconds, and of our days as nanoseconds"
            return Defect(RULE, self.late, f"{example}: ingest with --time-unit ns")
        ratios = np.sort(np.concatenate(self.ratios)) if self.ratios else np.zeros(0)
        middle = ratios[(ratios.size - 1) // 2 : ratios.size // 2 + 1]  # np.median imports masked arrays
        if not ratios.size or _LEAST_RATIO <= (median := float(middle.mean())) <= _MOST_RATIO:
            return None
        times, what = (1 / median, "longer") if median < 1 else (median, "shorter")
        hint = ": ingest with --time-unit ns if its times are nanoseconds" if median < 1 else ""
        example = f"copies take {times:.0f} times {what} than their bandwidth and bytes say{hint}"
        return Defect(RULE, int(ratios.size), example)


Made = TypeVar("Made")
CODED: Final = pa.dictionary(pa.int32(), pa.string())
_ALL_STREAMS: Final = 4294967295
_DEVICE_ROLES: Final = ("device", "device_annotation", "device_event", "sync")
# Typed arguments that contribute to more than one column.
_ROLE_DEPENDENT: Final = frozenset(("stream", "stream_id", "device", "device_id"))
# Text columns that are only renamed: column of activities → column of a batch.
_TEXTS: Final = {
    "ph": "ph", "raw_category": "cat", "name": "name", "shapes": "shapes", "dtypes": "dtypes",
    "collective": "collective", "process_group": "process_group", "group_ranks": "group_ranks",
    "collective_dtype": "collective_dtype", "sync_kind": "sync_kind",
}  # fmt: skip


class FileContext(Struct, frozen=True):
    """Facts about the complete file that every row depends on.

    `devices` are the pids, as text, that denote devices; `repaired` are event ids in ascending order.
    """

    clock: Clock
    devices: frozenset[str] = frozenset()
    pairs: EventPairs | None = None
    repaired: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


class _Ids(Struct, frozen=True):
    """Distinct process or thread ids: texts, and per token the position of its text and its parsed values.

    `codes` has the token of each row, -1 for none.
    """

    codes: NDArray[np.int32]
    texts: pa.Array
    places: NDArray[np.int32]
    numbers: Numbers
    last_numbers: Numbers
    keeps_type: NDArray[np.bool_]
    tokens: list[str]

    @classmethod
    def read(cls, values: pa.Array) -> _Ids:
        """Parses distinct tokens, without any rows."""
        tokens = values.to_pylist()
        found = read_tokens(tokens)
        texts = pa.array(found.texts, pa.string()).dictionary_encode()
        return cls(
            np.zeros(0, np.int32),
            texts.dictionary,
            texts.indices.to_numpy(zero_copy_only=False).astype(np.int32),
            numbers_array(found.numbers),
            numbers_array(found.last_numbers),
            np.array(found.keeps_type, np.bool_),
            tokens,
        )

    def rows_of(self, values: Numbers) -> Numbers:
        """The values of each row, of those of each token."""
        return np.append(values[0], 0).take(self.codes), np.append(values[1], False).take(self.codes)

    def column(self) -> pa.Array:
        """The text of each row."""
        return _dictionary(np.append(self.places, np.int32(-1)).take(self.codes), self.texts)


class ActivityBuilder:
    """Builds the record batches of one file; work on distinct values is done once per dictionary."""

    def __init__(self, dictionaries: Dictionaries, context: FileContext) -> None:
        self._dictionaries = dictionaries
        self._context = context
        self._cached: dict[str, tuple[pa.Array, object]] = {}
        self._categories: dict[Category, int] = {}

    @property
    def schema(self) -> pa.Schema:
        """All columns except run_id and rank; a column whose dictionary overflowed has type string."""
        types = {name: activity_type(name) for name in COLUMNS} | {"extra": CODED}
        types |= {name: pa.string() for name, source in _TEXTS.items() if source in self._dictionaries.plain}
        return pa.schema(types)

    def batch(self, found: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """The rows of a buffered batch whose first row is the event `first`."""
        batch = BufferedBatch(found)
        ph, cat = (batch.coded(name, self._dictionaries) for name in ("ph", "cat"))
        is_x, is_b, is_m = (_is(ph, text) for text in ("X", "B", "M"))
        pid, tid = self._ids(batch, "pid"), self._ids(batch, "tid")
        kinds = self._kinds(batch, cat, is_x, is_b, pid)
        columns: dict[str, pa.Array] = {"event_id": pa.array(np.arange(first, first + batch.rows))}
        columns["category"] = self._category_texts(kinds)
        columns |= {name: self._text(batch, source) for name, source in _TEXTS.items()}
        columns |= {"pid": pid.column(), "tid": tid.column()}
        no_zero = (ph.codes >= 0) & ~is_m
        columns |= times(batch, self._context.clock, is_b, no_zero, self._context.pairs, first)._asdict()
        columns |= self._streams(batch, kinds, pid, tid)
        columns |= {
            name: batch.column(name, pa.int64()) for name in TYPED_INTS if name not in _ROLE_DEPENDENT
        }
        columns |= double_columns(batch)
        columns |= {name: batch.column(name, pa.string()) for name in ("flow_id", "args")}
        columns["extra"] = self._extra(batch, pid, tid)
        ends, has_end = np.zeros(batch.rows, np.int64), np.zeros(batch.rows, np.bool_)
        if (pairs := self._context.pairs) is not None:
            here = pairs.within(first, batch.rows)
            rows = pairs.begins[here] - first
            ends[rows], has_end[rows] = pairs.ends[here], True
        columns["end_id"] = array_of(ends, has_end)
        columns[HAS_COLLECTIVE] = batch.column(HAS_COLLECTIVE, pa.bool_())
        columns["repaired"] = _flags_at(self._context.repaired, first, batch.rows)
        return pa.RecordBatch.from_arrays([columns[name] for name in COLUMNS], schema=self.schema)

    def _once(self, name: str, values: pa.Array, make: Callable[[pa.Array], Made]) -> Made:
        """The result of `make` for these values, cached for a dictionary that several batches share."""
        known = self._cached.get(name)
        if known is None or known[0] is not values:
            self._cached[name] = known = (values, make(values))
        return cast(Made, known[1])

    def _text(self, batch: BufferedBatch, name: str) -> pa.Array:
        if name in self._dictionaries.plain:
            found = batch.coded(name, self._dictionaries)
            return found.values.take(_codes(found.codes))
        return _dictionary(*batch.coded(name, self._dictionaries))

    def _ids(self, batch: BufferedBatch, name: str) -> _Ids:
        found = batch.coded(name, self._dictionaries)
        return replace(self._once(name, found.values, _Ids.read), codes=found.codes)

    def _kinds(
        self, batch: BufferedBatch, cat: Coded, is_x: NDArray[np.bool_], is_b: NDArray[np.bool_],
        pid: _Ids,
    ) -> NDArray[np.int32]:  # fmt: skip
        """The category number of each row, 0 for none."""
        kinds = np.zeros(batch.rows, np.int32)
        for slices in (True, False):
            of_values = self._once(f"cat {slices}", cat.values, partial(self._by_spelling, is_slice=slices))
            selected = is_x | is_b if slices else ~(is_x | is_b)
            kinds[selected] = np.append(of_values, 0)[cat.codes[selected]]
        bare = np.flatnonzero(is_x & (cat.codes < 0))
        if bare.size:
            kinds[bare] = self._by_name(batch, bare, pid)
        return kinds

    def _by_spelling(self, values: pa.Array, *, is_slice: bool) -> NDArray[np.int32]:
        return self._numbers(columns.category(raw, is_slice=is_slice) for raw in values.to_pylist())

    def _by_name(self, batch: BufferedBatch, rows: NDArray[np.int64], pid: _Ids) -> NDArray[np.int32]:
        """The categories of slices that have none in the file."""
        names = batch.coded("name", self._dictionaries)
        is_device = np.array([text in self._context.devices for text in pid.texts.to_pylist()], np.bool_)
        on_device = np.append(is_device, False)[np.append(pid.places, -1)[pid.codes[rows]]]
        found = np.zeros(len(rows), np.int32)
        by_process = ((on_device, columns.infer_on_device), (~on_device, columns.infer_on_host))
        for selected, infer in by_process:
            used, places = np.unique(names.codes[rows[selected]], return_inverse=True)
            if used.size:
                found[selected] = self._numbers(infer(names.values.take(_codes(used))))[places]
        return found

    def _numbers(self, categories: Iterable[Category]) -> NDArray[np.int32]:
        """The number of each category, 0 for none; new ones are numbered from 1."""
        known = self._categories
        found = [
            0 if category == columns.NOTHING else known.setdefault(category, len(known) + 1)
            for category in categories
        ]
        return np.array(found, np.int32)

    def _category_texts(self, kinds: NDArray[np.int32]) -> pa.Array:
        texts = list(dict.fromkeys(category.name for category in self._categories))
        places = {text: at for at, text in enumerate(texts)}
        to_place = np.array([-1, *(places[category.name] for category in self._categories)], np.int32)
        return _dictionary(to_place.take(kinds), pa.array(texts, pa.string()))

    def _streams(
        self, batch: BufferedBatch, kinds: NDArray[np.int32],
        pid: _Ids, tid: _Ids,
    ) -> dict[str, pa.Array]:  # fmt: skip
        """Stream and device; which fields hold them depends on the role of the category."""
        roles = [None, *(category.role for category in self._categories)]
        is_role = {role: np.array([one == role for one in roles]).take(kinds) for role in _DEVICE_ROLES}
        stream, stream_ok = batch.ints("stream")
        at_end, at_end_ok = tid.rows_of(tid.last_numbers)
        stream = np.where(is_role["sync"] & stream_ok & (stream == _ALL_STREAMS), -1, stream)
        tagged = is_role["device"] | is_role["device_event"] | is_role["sync"]
        second = _first(batch.ints("stream_id"), (at_end, at_end_ok))
        found, valid = _first((stream, stream_ok), (second[0], second[1] & is_role["device"]))
        valid &= tagged
        annotation = is_role["device_annotation"]
        found = np.where(annotation, at_end, found)
        valid = np.where(annotation, at_end_ok, valid)
        found[~valid] = 0
        on_device = tagged | annotation
        process, older = pid.rows_of(pid.numbers), batch.ints("device_id")
        other = np.where(on_device, process[0], older[0]), np.where(on_device, process[1], older[1])
        return {"stream": array_of(found, valid), "device": array_of(*_first(batch.ints("device"), other))}

    def _extra(self, batch: BufferedBatch, pid: _Ids, tid: _Ids) -> pa.Array:
        """`extra`, with pid and tid where their text does not show whether they are numbers or strings."""
        found = batch.coded("extra", self._dictionaries)
        loses = [np.append(~ids.keeps_type, False).take(ids.codes) for ids in (pid, tid)]
        rows = np.flatnonzero(loses[0] | loses[1])
        if not rows.size:
            return _dictionary(*found)
        lost = [np.where(lose, ids.codes, -1)[rows] for lose, ids in zip(loses, (pid, tid), strict=True)]
        key = np.stack([found.codes[rows], *lost])
        distinct, places = np.unique(key, axis=1, return_inverse=True)
        values = found.values.to_pylist()
        made = [
            _with_ids(None if extra < 0 else values[extra], pid.tokens, p, tid.tokens, t)
            for extra, p, t in distinct.T.tolist()
        ]
        codes = found.codes.copy()
        codes[rows] = len(values) + places.reshape(-1)
        encoded = pa.array([*values, *made], pa.string()).dictionary_encode()
        to_place = np.append(encoded.indices.to_numpy(zero_copy_only=False), -1).astype(np.int32)
        return _dictionary(to_place[codes], encoded.dictionary)


def _with_ids(extra: str | None, pids: list[str], pid: int, tids: list[str], tid: int) -> str:
    parts = [f'"{key}": {of[at]}' for key, of, at in (("pid", pids, pid), ("tid", tids, tid)) if at >= 0]
    return "{" + ", ".join([*parts, *([extra[1:-1]] if extra else [])]) + "}"


def _first(a: Numbers, b: Numbers) -> Numbers:
    """The first number of each pair that is valid."""
    return np.where(a[1], a[0], np.where(b[1], b[0], 0)), a[1] | b[1]


def _is(found: Coded, text: str) -> NDArray[np.bool_]:
    place = pc.index(found.values, text).as_py()
    return found.codes == place if place >= 0 else np.zeros(len(found.codes), np.bool_)


def _codes(codes: NDArray[np.int32]) -> pa.Array:
    return array_of(codes, codes >= 0)


def _dictionary(codes: NDArray[np.int32], values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(_codes(codes), values)


def double_columns(batch: BufferedBatch) -> dict[str, pa.Array]:
    """The floating-point columns."""
    percent = batch.column("occupancy_percent", pa.float64())
    found = {name: batch.column(name, pa.float64()) for name in ("blocks_per_sm", "warps_per_sm")}
    return {
        **found,
        "occupancy": pc.divide(percent, 100.0),
        "bandwidth_bytes_per_ns": batch.column("bandwidth", pa.float64()),  # GB/s are bytes per ns
    }


def _flags_at(ids: NDArray[np.int64], first: int, count: int) -> pa.Array:
    flags = np.zeros(count, np.bool_)
    low, high = np.searchsorted(ids, [first, first + count])
    flags[ids[low:high] - first] = True
    return pa.array(flags)


COLUMNS: Final = (
    "event_id", "ph", "category", "raw_category", "name", "pid", "tid", "ts_ns", "dur_ns", "ts_text",
    "dur_text", "correlation", "external_id", "stream", "device", "bytes", "sequence_number",
    "forward_thread", "python_id", "python_parent_id", "module_id", "shapes", "dtypes", "flow_id", "end_id",
    "args", "extra", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread",
    "shared_memory_bytes", "occupancy", "blocks_per_sm", "warps_per_sm", "bandwidth_bytes_per_ns",
    "graph_id", "graph_node_id", "has_collective", "collective", "process_group", "group_size",
    "group_ranks", "collective_dtype", "in_elements", "out_elements", "collective_sequence", "device_type",
    "address", "total_allocated_bytes", "total_reserved_bytes", "event_index", "sync_kind",
    "wait_on_stream", "wait_on_event", "wait_on_correlation", "repaired",
)  # fmt: skip
