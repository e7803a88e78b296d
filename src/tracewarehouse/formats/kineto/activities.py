"""Buffered batches to record batches of `activities`, once the complete file has been scanned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.kineto import distinct_values
from tracewarehouse.formats.kineto.columns import HAS_COLLECTIVE, BufferedBatch, Coded, numbers
from tracewarehouse.formats.kineto.distinct_values import Category, numbers_array, read_tokens
from tracewarehouse.formats.kineto.scanner import TYPED_INTS
from tracewarehouse.formats.kineto.times import Clock, times

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.formats.kineto.columns import Dictionaries
    from tracewarehouse.formats.kineto.times import EventPairs

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


@dataclass(frozen=True)
class FileContext:
    """Facts about the complete file that every row depends on.

    `devices` are the pids, as text, that denote devices; `repaired` are event ids in ascending order.
    """

    clock: Clock
    devices: frozenset[str] = frozenset()
    pairs: EventPairs | None = None
    repaired: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


class _Ids(NamedTuple):
    """Distinct process or thread ids: texts, and per token the position of its text and its parsed values."""

    texts: pa.Array
    places: NDArray[np.int32]
    numbers: tuple[NDArray[np.int64], NDArray[np.bool_]]
    last_numbers: tuple[NDArray[np.int64], NDArray[np.bool_]]
    keeps_type: NDArray[np.bool_]
    tokens: list[str]


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
        types: dict[str, pa.DataType] = dict.fromkeys(("event_id", "ts_ns", "dur_ns", "end_id"), pa.int64())
        types |= dict.fromkeys((*(set(TYPED_INTS) - _ROLE_DEPENDENT), "stream", "device"), pa.int64())
        types |= dict.fromkeys(("category", "pid", "tid", "extra", *_TEXTS), CODED)
        types |= {name: pa.string() for name, source in _TEXTS.items() if source in self._dictionaries.plain}
        types |= dict.fromkeys(("ts_text", "dur_text", "flow_id", "args"), pa.string())
        types |= dict.fromkeys(
            ("occupancy", "blocks_per_sm", "warps_per_sm", "bandwidth_bytes_per_ns"), pa.float64()
        )
        types |= {"has_collective": pa.bool_(), "repaired": pa.bool_()}
        return pa.schema([(name, types[name]) for name in COLUMNS])

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
        columns |= {"pid": _id_texts(pid), "tid": _id_texts(tid)}
        no_zero = (ph.codes >= 0) & ~is_m
        columns |= times(batch, self._context.clock, is_b, no_zero, self._context.pairs, first)._asdict()
        columns |= self._streams(batch, kinds, pid, tid)
        columns |= {
            name: batch.column(name, pa.int64()) for name in TYPED_INTS if name not in _ROLE_DEPENDENT
        }
        columns |= double_columns(batch)
        columns |= {name: batch.column(name, pa.string()) for name in ("flow_id", "args")}
        columns["extra"] = self._extra(batch, pid, tid)
        columns["end_id"] = self._ends(first, batch.rows)
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

    def _ids(self, batch: BufferedBatch, name: str) -> tuple[NDArray[np.int32], _Ids]:
        found = batch.coded(name, self._dictionaries)
        ids = self._once(name, found.values, _read_ids)
        return found.codes, ids

    def _kinds(
        self, batch: BufferedBatch, cat: Coded, is_x: NDArray[np.bool_], is_b: NDArray[np.bool_],
        pid: tuple[NDArray[np.int32], _Ids],
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
        found = [distinct_values.category(raw, is_slice=is_slice) for raw in values.to_pylist()]
        return np.array([self._number(category) for category in found], np.int32)

    def _by_name(
        self, batch: BufferedBatch, rows: NDArray[np.int64], pid: tuple[NDArray[np.int32], _Ids]
    ) -> NDArray[np.int32]:
        """The categories of slices that have none in the file."""
        names = batch.coded("name", self._dictionaries)
        codes, ids = pid
        is_device = np.array([text in self._context.devices for text in ids.texts.to_pylist()], np.bool_)
        on_device = np.append(is_device, False)[np.append(ids.places, -1)[codes[rows]]]
        found = np.zeros(len(rows), np.int32)
        for selected, infer in (
            (on_device, distinct_values.infer_on_device),
            (~on_device, distinct_values.infer_on_host),
        ):
            used, places = np.unique(names.codes[rows[selected]], return_inverse=True)
            if used.size:
                categories = infer(names.values.take(_codes(used)))
                found[selected] = np.array([self._number(one) for one in categories], np.int32)[places]
        return found

    def _number(self, category: Category) -> int:
        if category == distinct_values.NOTHING:
            return 0
        return self._categories.setdefault(category, len(self._categories) + 1)

    def _category_texts(self, kinds: NDArray[np.int32]) -> pa.Array:
        texts = list(dict.fromkeys(category.name for category in self._categories))
        places = {text: at for at, text in enumerate(texts)}
        to_place = np.array([-1, *(places[category.name] for category in self._categories)], np.int32)
        return _dictionary(to_place[kinds], pa.array(texts, pa.string()))

    def _streams(
        self, batch: BufferedBatch, kinds: NDArray[np.int32],
        pid: tuple[NDArray[np.int32], _Ids], tid: tuple[NDArray[np.int32], _Ids],
    ) -> dict[str, pa.Array]:  # fmt: skip
        """Stream and device; which fields hold them depends on the role of the category."""
        roles = [None, *(category.role for category in self._categories)]
        is_role = {role: np.array([one == role for one in roles])[kinds] for role in _DEVICE_ROLES}
        stream, stream_ok = batch.ints("stream")
        at_end, at_end_ok = _id_numbers(tid, "last_numbers")
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
        process, older = _id_numbers(pid, "numbers"), batch.ints("device_id")
        other = np.where(on_device, process[0], older[0]), np.where(on_device, process[1], older[1])
        return {"stream": numbers(found, valid), "device": numbers(*_first(batch.ints("device"), other))}

    def _extra(
        self, batch: BufferedBatch, pid: tuple[NDArray[np.int32], _Ids], tid: tuple[NDArray[np.int32], _Ids]
    ) -> pa.Array:
        """`extra`, with pid and tid where their text does not show whether they are numbers or strings."""
        found = batch.coded("extra", self._dictionaries)
        loses = [np.append(~ids.keeps_type, False)[codes] for codes, ids in (pid, tid)]
        rows = np.flatnonzero(loses[0] | loses[1])
        if not rows.size:
            return _dictionary(*found)
        key = np.stack(
            [
                found.codes[rows],
                *(np.where(lost, ids[0], -1)[rows] for lost, ids in zip(loses, (pid, tid), strict=True)),
            ]
        )
        distinct, places = np.unique(key, axis=1, return_inverse=True)
        values = found.values.to_pylist()
        made = [
            _with_ids(None if extra < 0 else values[extra], pid[1].tokens, p, tid[1].tokens, t)
            for extra, p, t in distinct.T.tolist()
        ]
        codes = found.codes.copy()
        codes[rows] = len(values) + places.reshape(-1)
        encoded = pa.array([*values, *made], pa.string()).dictionary_encode()
        to_place = np.append(encoded.indices.to_numpy(zero_copy_only=False), -1).astype(np.int32)
        return _dictionary(to_place[codes], encoded.dictionary)

    def _ends(self, first: int, count: int) -> pa.Array:
        ends, valid = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        if (pairs := self._context.pairs) is not None:
            here = pairs.within(first, count)
            rows = pairs.begins[here] - first
            ends[rows], valid[rows] = pairs.ends[here], True
        return numbers(ends, valid)


def _with_ids(extra: str | None, pids: list[str], pid: int, tids: list[str], tid: int) -> str:
    parts = [f'"{key}": {of[at]}' for key, of, at in (("pid", pids, pid), ("tid", tids, tid)) if at >= 0]
    return "{" + ", ".join([*parts, *([extra[1:-1]] if extra else [])]) + "}"


def _read_ids(values: pa.Array) -> _Ids:
    tokens = values.to_pylist()
    found = read_tokens(tokens)
    encoded = pa.array(found.texts, pa.string()).dictionary_encode()
    places = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    keeps = np.array(found.keeps_type, np.bool_)
    numbers, last = numbers_array(found.numbers), numbers_array(found.last_numbers)
    return _Ids(encoded.dictionary, places, numbers, last, keeps, tokens)


def _id_texts(found: tuple[NDArray[np.int32], _Ids]) -> pa.Array:
    codes, ids = found
    return _dictionary(np.append(ids.places, np.int32(-1))[codes], ids.texts)


def _id_numbers(
    found: tuple[NDArray[np.int32], _Ids], name: str
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The number in the id of each row."""
    codes, ids = found
    values, valid = getattr(ids, name)
    return np.append(values, 0)[codes], np.append(valid, False)[codes]


def _first(
    a: tuple[NDArray[np.int64], NDArray[np.bool_]], b: tuple[NDArray[np.int64], NDArray[np.bool_]]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The first number of each pair that is valid."""
    return np.where(a[1], a[0], np.where(b[1], b[0], 0)), a[1] | b[1]


def _is(found: Coded, text: str) -> NDArray[np.bool_]:
    place = pc.index(found.values, text).as_py()
    return found.codes == place if place >= 0 else np.zeros(len(found.codes), np.bool_)


def _codes(codes: NDArray[np.int32]) -> pa.Array:
    is_null = codes < 0
    return pa.array(codes, pa.int32(), mask=is_null) if is_null.any() else pa.array(codes, pa.int32())


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
