"""Messages of Protocol Buffers, decoded by field number without their definitions.

The fields of many messages are read at once, as arrays. Sizes, nesting and repeated texts are bounded: files
may be hostile.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tracewarehouse.formats.base import values_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]


# Types of fields: a number, 8 bytes, content with a length, 4 bytes.
_VARINT, _FIXED_64, LENGTH, _FIXED_32 = 0, 1, 2, 5
# Larger messages are not of profiles.
_MOST_FIELDS: Final = 1_000
_MANY_FIELDS: Final = 500_000
_LEAST_BYTES: Final = 12
_LONGEST_TEXT: Final = 2_048
_TEXT_BYTES: Final = 1 << 22
_LEAST_WINDOW: Final = 1 << 12
_MOST_WINDOW: Final = 1 << 20
_FEW: Final = 64
_MOST_SINGLE_FIELDS: Final = 500_000
_PIECE_FIELDS: Final = 1 << 16
_LEAST_REPEATED: Final = 32 << 20


class DamagedError(ValueError):
    """The message is not valid at this offset."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(f"{reason} at byte {at:,}")


class Fields(NamedTuple):
    """Fields of messages: the message and number of each, its value, and where its content starts and ends.

    They are in order of their position in each message. Only fields with a length have content.
    """

    message: Numbers
    number: Numbers
    value: Numbers
    start: Numbers
    end: Numbers

    def of(self, number: int) -> Fields:
        """The fields with a number."""
        return Fields(*(each[self.number == number] for each in self))

    def last(self, number: int, messages: int, default: int = 0) -> Numbers:
        """The value of a field in each message."""
        values = np.full(messages, default, np.int64)
        found = self.of(number)
        values[found.message] = found.value
        return values


def _varints(data: NDArray[np.uint8], at: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
    """The numbers at these positions, and the positions behind them."""
    values, at, unread = np.zeros(len(at), np.uint64), at.copy(), np.arange(len(at))
    for shift in range(0, 70, 7):
        here = at[unread]
        if (is_cut := here >= end[unread]).any():
            raise DamagedError(int(here[is_cut][0]), "a message ends inside a number")
        bytes_ = data[here]
        values[unread] |= (bytes_ & 127).astype(np.uint64) << np.uint64(shift)
        at[unread] += 1
        unread = unread[bytes_ >= 128]
        if not unread.size:
            return values.view(np.int64), at
    raise DamagedError(int(at[unread[0]]), "a number of more than 10 bytes")


def _fields(data: NDArray[np.uint8], starts: Numbers, ends: Numbers) -> Fields:
    """The fields of many messages, of which one field each is read at a time."""
    found: list[tuple[Numbers, ...]] = [(np.zeros(0, np.int64),) * 5]
    rows = np.flatnonzero(starts < ends)
    at, end = starts[rows], ends[rows]
    for _ in range(_MOST_FIELDS):
        if not rows.size:
            columns = (np.concatenate(each) for each in zip(*found, strict=True))
            return Fields(*columns)
        key, begin = _varints(data, at, end)
        wire, is_number = key & 7, (key & 7) == _VARINT
        value, stop = np.zeros(len(at), np.int64), begin.copy()
        read = np.flatnonzero(is_number | (wire == LENGTH))
        value[read], stop[read] = _varints(data, begin[read], end[read])
        begin = np.where(wire == LENGTH, stop, begin)
        with np.errstate(over="ignore"):
            stop = np.select(
                [is_number, wire == _FIXED_64, wire == LENGTH, wire == _FIXED_32],
                [stop, begin + 8, begin + value, begin + 4],
                -1,
            )
        if (is_bad := (stop < begin) | (stop > end)).any():
            raise DamagedError(int(at[is_bad][0]), "a field that is unknown or longer than its message")
        if (wide := np.flatnonzero(wire == _FIXED_64)).size:
            value[wide] = data[begin[wide, None] + np.arange(8)].view(np.int64).ravel()
        found.append((rows, key >> 3, value, begin, stop))
        left = stop < end
        rows, at, end = rows[left], stop[left], end[left]
    raise DamagedError(int(at[0]), f"a message with more than {_MOST_FIELDS:,} fields")


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """The number at a position, and the position behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, at
    raise DamagedError(at, "a message ends inside a number, or the number has more than 10 bytes")


def field_at(data: memoryview, at: int, end: int) -> tuple[int, int, int, int]:
    """The key of a field, its value, and where its content starts and ends."""
    first = at
    key, at = _varint(data, at, end)
    wire, value = key & 7, 0
    if wire in (_VARINT, LENGTH):
        value, at = _varint(data, at, end)
    stop = at + (0, 8, value, end, end, 4, end, end)[wire]
    if stop > end:
        raise DamagedError(first, "a field that is unknown or longer than its message")
    return key, value if value < 1 << 63 else value - (1 << 64), at, stop


def _run(data: NDArray[np.uint8], at: int, end: int, key: int) -> tuple[Numbers, Numbers]:
    """Where the contents of successive fields with this key of one byte start and end, up to a position.

    Every byte that equals the key may begin a field. Each is linked with the one behind its content; those
    that the first one leads to are found in steps of doubled length.
    """
    bytes_ = data[at:end].astype(np.int64)
    places = np.flatnonzero(bytes_[:-3] == key)
    if not places.size or places[0]:
        return places[:0], places[:0]
    one, two, three = (bytes_[places + number] for number in (1, 2, 3))
    is_long, is_longer = one >= 128, (one >= 128) & (two >= 128)
    start = places + 2 + is_long + is_longer
    size = (one & 127) | np.where(is_long, (two & 127) << 7, 0) | np.where(is_longer, three << 14, 0)
    stop = start + size
    is_whole = (stop <= len(bytes_)) & ~(is_longer & (three >= 128))
    number_of = np.full(len(bytes_) + 1, len(places))
    number_of[places] = np.arange(len(places))
    link = np.full(len(places) + 1, len(places))
    link[:-1][is_whole] = number_of[stop[is_whole]]
    reached = np.zeros(len(places) + 1, np.bool_)
    reached[0], count = True, 0
    while (now := int(np.count_nonzero(reached))) > count:
        reached[link[reached]] = True
        link, count = link[link], now
    found = reached[:-1] & is_whole
    return start[found] + at, stop[found] + at


def _ordered(singles: list[tuple[int, int, int, int]], runs: list[NDArray[np.int64]]) -> Fields:
    """Fields that were read one by one, and in runs, in order of their position in one message."""
    fields = np.concatenate([np.array(singles, np.int64).reshape(-1, 4).T, *runs], axis=1)
    key, value, begin, stop = fields[:, np.argsort(fields[3], kind="stable")]
    return Fields(np.zeros(len(key), np.int64), key >> 3, value, begin, stop)


def by_row(values: pa.Array, rows: Numbers, count: int) -> pa.Array:
    """`count` rows, of which these have a value each, of several the last one; null in the others."""
    places = np.full(count, -1)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))


class Wire(Struct):
    """An encoded message; `left` is how many more fields are read one by one, and bytes of texts repeated."""

    data: NDArray[np.uint8]
    left: int = _MOST_SINGLE_FIELDS
    left_bytes: int = _LEAST_REPEATED

    def children(self, start: int, end: int) -> Fields:
        """The fields of one message."""
        pieces = zip(*self.pieces(start, end), strict=True)
        return Fields(*(np.concatenate(each) for each in pieces))

    def pieces(self, start: int, end: int) -> Iterator[Fields]:
        """The fields of one message, of which there may be many, in pieces; there is at least one."""
        view, at, before, same, patience, window = self.data.data, start, -1, 0, 8, _LEAST_WINDOW
        singles: list[tuple[int, int, int, int]] = []
        runs: list[NDArray[np.int64]] = []
        count, held = 0, 0
        while at < end:
            if held + len(singles) >= _PIECE_FIELDS:
                yield _ordered(singles, runs)
                singles, runs, held = [], [], 0
            singles.append(field_at(view, at, end))
            (key, _, _, at), self.left = singles[-1], self.left - 1
            if self.left < 0:
                raise DamagedError(at, "more fields than any profile has")
            same = same + 1 if key == before and key < 128 and key & 7 == LENGTH else 0
            before = key
            if same < patience:
                continue
            found = 0
            while held < _PIECE_FIELDS and (run := _run(self.data, at, min(at + window, end), key))[0].size:
                runs.append(np.stack((np.full_like(run[0], key), np.zeros_like(run[0]), *run)))
                found, held = found + len(run[0]), held + len(run[0])
                at, window = int(run[1][-1]), min(4 * window, _MOST_WINDOW)
                if (count := count + len(run[0])) > max(_MANY_FIELDS, (at - start) // _LEAST_BYTES):
                    raise DamagedError(at, f"{count:,} events or names that are almost empty")
            same, window = 0, _LEAST_WINDOW
            # Searching for short runs takes longer than reading them.
            patience *= 2 if found < _FEW and held < _PIECE_FIELDS else 1
        yield _ordered(singles, runs)

    def fields(self, given: Fields) -> Fields:
        """The fields of messages that are the content of fields."""
        return _fields(self.data, given.start, given.end)

    def texts(self, start: Numbers, end: Numbers, longest: int = _LONGEST_TEXT) -> pa.Array:
        """Texts, cut to a length."""
        size = np.minimum(end - start, longest)
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(size)))
        content = np.empty(offsets[-1], np.uint8)
        # Places take more memory than texts: only those of some texts are known at a time.
        edges = np.unique(np.searchsorted(offsets, np.arange(0, offsets[-1] + _TEXT_BYTES, _TEXT_BYTES)))
        for first, last in pairwise(np.minimum(edges, len(size)).tolist()):
            begin, end_ = offsets[first], offsets[last]
            shift = np.repeat(start[first:last] - offsets[first:last], size[first:last])
            content[begin:end_] = self.data[np.arange(begin, end_) + shift]
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content)]
        found = pa.Array.from_buffers(pa.string(), len(size), buffers)
        try:
            found.validate(full=True)
        except pa.ArrowInvalid:
            bytes_ = pa.Array.from_buffers(pa.binary(), len(size), buffers)
            found = pa.array([each.decode(errors="replace") for each in bytes_.to_pylist()], pa.string())
        return found

    def texts_of(self, fields: Fields, messages: int, longest: int = _LONGEST_TEXT) -> pa.Array:
        """The text of a field in each message, null without it."""
        return by_row(self.texts(fields.start, fields.end, longest), fields.message, messages)

    def repeated(self, texts: pa.Array, places: pa.Array) -> pa.Array:
        """The texts at these places, null for null."""
        size = values_of(pc.binary_length(texts), 0).astype(np.int64)
        known = values_of(places, -1)
        self.left_bytes -= int(size[known[known >= 0]].sum())
        if self.left_bytes < 0:
            raise DamagedError(0, "names that are repeated too often, of a message")
        return pa.DictionaryArray.from_arrays(places.cast(pa.int32()), texts)
