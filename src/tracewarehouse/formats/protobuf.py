"""Messages of Protocol Buffers, decoded by field number without their definitions.

The fields of many messages are read at once, as arrays. Sizes, nesting and repeated texts are bounded: files
may be hostile.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import values_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tracewarehouse.formats.file_text import Text

    Numbers = NDArray[np.int64]


# Types of fields: a number, content with a length; others have these sizes, or are unknown.
_VARINT, _LENGTH = 0, 2
_UNKNOWN: Final = 1 << 62
_SIZES: Final = (0, 8, 0, _UNKNOWN, _UNKNOWN, 4, _UNKNOWN, _UNKNOWN)
_WIDE: Final = 1
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
_LEAST_REPEATED: Final = 64 << 20


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

    def at(self, places: slice | NDArray[Any]) -> Fields:
        """The fields at these places."""
        return Fields(*(each[places] for each in self))

    def of(self, *numbers: int) -> Fields:
        """The fields with a number."""
        return self.at(np.isin(self.number, numbers))

    def at_most(self, count: int, what: str) -> Fields:
        """The same fields. Raises DamagedError if there are more."""
        if len(self.start) > count:
            raise DamagedError(int(self.start[count]), f"more than {count:,} {what}")
        return self

    def last(self, number: int, messages: int, default: int = 0) -> Numbers:
        """The value of a field in each message."""
        values = np.full(messages, default, np.int64)
        found = self.of(number)
        values[found.message] = found.value
        return values

    def values(self, messages: int, *numbers: int) -> pa.Array:
        """The value of one of these fields in each message; null without it."""
        found = self.of(*numbers)
        return by_row(pa.array(found.value), found.message, messages)


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


def _field(data: memoryview, at: int, end: int) -> tuple[int, int, int, int]:
    """The key of a field, its value, and where its content starts and ends."""
    first = at
    key, at = _varint(data, at, end)
    wire, value = key & 7, 0
    if wire in (_VARINT, _LENGTH):
        value, at = _varint(data, at, end)
    stop = at + (value if wire == _LENGTH else _SIZES[wire])
    if stop > end:
        raise DamagedError(first, "a field that is unknown or longer than its message")
    return key, value if value < 1 << 63 else value - (1 << 64), at, stop


def _run(data: NDArray[np.uint8], at: int, end: int, key: int) -> Numbers:
    """Successive fields with this key of one byte up to a position: key, value, start and end of each.

    Every byte that equals the key may begin a field. Each is linked with the one behind its content; those
    that the first one leads to are found in steps of doubled length.
    """
    bytes_ = data[at:end].astype(np.int64)
    places = np.flatnonzero(bytes_[:-3] == key)
    if not places.size or places[0] or key > 127 or key & 7 != _LENGTH:
        return np.zeros((4, 0), np.int64)
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
    found = np.stack((start, stop))[:, reached[:-1] & is_whole] + at
    return np.concatenate((np.full_like(found[:1], key), np.zeros_like(found[:1]), found))


def _joined(parts: Sequence[Numbers]) -> Fields:
    """Fields of one message, from their keys, values, starts and ends."""
    key, value, begin, stop = np.concatenate([np.zeros((4, 0), np.int64), *parts], axis=1)
    return Fields(np.zeros_like(key), key >> 3, value, begin, stop)


def by_row(values: pa.Array, rows: Numbers, count: int) -> pa.Array:
    """`count` rows, of which these have a value each, of several the last one; null in the others."""
    places = np.full(count, -1)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))


def by_name(
    names: Numbers, rows: Numbers, count: int, values: Sequence[pa.Array]
) -> Iterator[tuple[int, pa.Array]]:
    """A column of `count` rows for each number of a name, from values that have a name and a row each.

    Values are alternatives of different types: a column with values of several types has texts.
    """
    order = np.argsort(names, kind="stable")
    found, first = np.unique(names[order], return_index=True)
    for name, some in zip(found.tolist(), np.split(order, first[1:]), strict=len(found) > 0):
        kinds = (by_row(each.take(pa.array(some)), rows[some], count) for each in values)
        given = [each for each in kinds if each.null_count < count]
        if len(given) > 1:
            given = [pc.coalesce(*(each.cast(pa.string()) for each in given))]
        yield from ((name, each) for each in given)


class Wire(Struct):
    """An encoded message; `left` is how many more fields are read one by one, and bytes of texts repeated."""

    data: NDArray[np.uint8]
    left: int = _MOST_SINGLE_FIELDS
    left_bytes: int = _LEAST_REPEATED

    def whole(self) -> Fields:
        """The message as the content of a field."""
        return Fields(*np.array([[0], [0], [0], [0], [len(self.data)]]))

    def pieces(self, start: int, end: int) -> Iterator[Fields]:
        """The fields of one message, of which there may be many, in pieces."""
        view, at, count, patience = self.data.data, start, 0, 8
        held: list[Numbers] = []
        while at < end:
            singles: list[tuple[int, int, int, int]] = []
            while at < end and len(singles) < min(patience, self.left + 1):
                singles.append(_field(view, at, end))
                at = singles[-1][3]
            if (left := self.left - len(singles)) < 0:
                raise DamagedError(at, "more fields than any profile has")
            self.left, before, window = left, count, _LEAST_WINDOW
            held.append(np.array(singles, np.int64).T)
            while (run := _run(self.data, at, min(at + window, end), singles[-1][0])).size:
                held.append(run)
                at, window = int(run[3, -1]), min(4 * window, _MOST_WINDOW)
                if (count := count + run.shape[1]) > max(_MANY_FIELDS, (at - start) // _LEAST_BYTES):
                    raise DamagedError(at, f"{count:,} events or names that are almost empty")
                if count - before >= _PIECE_FIELDS:
                    break
            if count - before < _FEW:  # searching for short runs takes longer than reading them
                patience = min(2 * patience, _PIECE_FIELDS)
            if sum(each.shape[1] for each in held) >= _PIECE_FIELDS:
                yield _joined(held)
                held.clear()
        yield _joined(held)

    def children(self, given: Fields) -> Fields:
        """The fields of messages that are the content of fields, of which each may have many."""
        found = [Fields(*np.zeros((5, 0), np.int64))]
        for number, (start, end) in enumerate(zip(given.start.tolist(), given.end.tolist(), strict=True)):
            pieces = self.pieces(start, end)
            found += (each._replace(message=np.full_like(each.number, number)) for each in pieces)
        return Fields(*(np.concatenate(each) for each in zip(*found, strict=True)))

    def fields(self, given: Fields) -> Fields:
        """The fields of messages that are the content of fields, of each one field at a time."""
        found: list[tuple[Numbers, ...]] = [(np.zeros(0, np.int64),) * 5]
        rows = np.flatnonzero(given.start < given.end)
        at, end = given.start[rows], given.end[rows]
        for _ in range(_MOST_FIELDS):
            if not rows.size:
                return Fields(*(np.concatenate(each) for each in zip(*found, strict=True)))
            key, begin = _varints(self.data, at, end)
            wire, value, stop = key & 7, np.zeros(len(at), np.int64), begin.copy()
            read = np.flatnonzero((wire == _VARINT) | (wire == _LENGTH))
            value[read], stop[read] = _varints(self.data, begin[read], end[read])
            begin = np.where(wire == _LENGTH, stop, begin)
            with np.errstate(over="ignore"):
                stop = stop + np.where(wire == _LENGTH, value, np.take(_SIZES, wire))
            if (is_bad := (stop < begin) | (stop > end)).any():
                raise DamagedError(int(at[is_bad][0]), "a field that is unknown or longer than its message")
            if (wide := np.flatnonzero(wire == _WIDE)).size:
                value[wide] = self.data[begin[wide, None] + np.arange(8)].view(np.int64).ravel()
            found.append((rows, key >> 3, value, begin, stop))
            left = stop < end
            rows, at, end = rows[left], stop[left], end[left]
        raise DamagedError(int(at[0]), f"a message with more than {_MOST_FIELDS:,} fields")

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

    def named(
        self, given: Fields, ids: Numbers, known: Numbers, texts: pa.Array, longest: int = _LONGEST_TEXT
    ) -> pa.DictionaryArray:
        """In each message the text of a field, else the text whose known ID it has; null without both."""
        places = values_of(pc.index_in(pa.array(ids), pa.array(known)), -1).astype(np.int32)
        places[given.message] = len(texts) + np.arange(len(given.message))
        texts = pa.concat_arrays([texts, self.texts(given.start, given.end, longest)])
        return pa.DictionaryArray.from_arrays(pa.array(places, mask=places < 0), texts)

    def encoded(self, column: pa.Array) -> pa.Array:
        """A column whose texts are encoded, each once. Raises DamagedError if they are repeated too often."""
        if pa.types.is_string(column.type):
            column = column.dictionary_encode()
        if not pa.types.is_dictionary(column.type):
            return column
        used = column.indices.dictionary_encode()
        words = column.dictionary.take(used.dictionary).dictionary_encode()
        codes = words.indices.take(used.indices)
        size = values_of(pc.binary_length(words.dictionary), 0).astype(np.int64)
        self.left_bytes -= int(size[values_of(codes.drop_null(), 0)].sum())
        if self.left_bytes < 0:
            raise DamagedError(0, "names that are repeated too often, of a message")
        return pa.DictionaryArray.from_arrays(codes, words.dictionary)


@contextmanager
def decoded(text: Text, what: str, hint: str, repeated: int) -> Iterator[Wire]:
    """The message in a file. Raises TraceFormatError, also for what is found to be damaged while it is read.

    Texts have at most `repeated` bytes per byte of the file, in small files more.
    """
    if text.cut is not None:
        raise TraceFormatError(text.path, text.cut, hint=hint)
    data = np.frombuffer(text.buffer, np.uint8)
    try:
        yield Wire(data, left_bytes=max(_LEAST_REPEATED, repeated * len(data)))
    except DamagedError as error:
        raise TraceFormatError(text.path, f"not a complete {what}: {error}", hint=hint) from error
