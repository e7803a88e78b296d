"""Columns in memory and columns in a file return the same values."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tracewarehouse.formats.base import array_of
from tracewarehouse.ingest.columns import Columns, SpilledColumns

WORDS = ["kernel", "cpu_op", "é\u2028", "", "aten::mm", "x" * 300]
SCHEMA = pa.schema(
    [
        ("event_id", pa.int64()),
        ("ts_ns", pa.int64()),
        ("stream", pa.int64()),
        ("occupancy", pa.float64()),
        ("repaired", pa.bool_()),
        ("name", pa.dictionary(pa.int32(), pa.string())),
        ("args", pa.string()),
        ("nothing", pa.int64()),
        ("no_text", pa.dictionary(pa.int32(), pa.string())),
    ]
)


def batch(draw: random.Random, first: int, rows: int) -> pa.RecordBatch:
    """Random rows; each batch has another order of dictionary words."""
    words = draw.sample(WORDS, k=draw.randint(1, len(WORDS)))

    def maybe(value: object) -> object:
        return value if draw.random() < 0.8 else None

    some = range(rows)
    columns = [
        pa.array(range(first, first + rows), pa.int64()),
        pa.array([1_700_000_000_000_000_000 + draw.randrange(10**9) for _ in some], pa.int64()),
        pa.array([maybe(draw.choice([-1, 7, 300, 70_000, 2**40])) for _ in some], pa.int64()),
        pa.array([maybe(draw.random()) for _ in some], pa.float64()),
        pa.array([draw.random() < 0.1 for _ in some], pa.bool_()),
        pa.DictionaryArray.from_arrays(
            pa.array([maybe(draw.randrange(len(words))) for _ in some], pa.int32()),
            pa.array(words, pa.string()),
        ),
        pa.array([maybe("{" + "a" * draw.randrange(40) + "ü}") for _ in some], pa.string()),
        pa.nulls(rows, pa.int64()),
        pa.DictionaryArray.from_arrays(pa.nulls(rows, pa.int32()), pa.array([], pa.string())),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


@pytest.fixture(params=range(5))
def both(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Columns, SpilledColumns, random.Random]]:
    draw = random.Random(request.param)
    batches, first = [], 0
    for _ in range(draw.randint(1, 5)):
        batches.append(batch(draw, first, draw.choice([1, 7, 64, 1000])))
        first += batches[-1].num_rows
    memory = Columns.read(pa.RecordBatchReader.from_batches(SCHEMA, batches))
    spilled = SpilledColumns.spill(pa.RecordBatchReader.from_batches(SCHEMA, batches), tmp_path)
    assert list(tmp_path.iterdir()) == []  # the file is unlinked while it is in use
    yield memory, spilled, draw
    spilled.close()


def test_both_hold_the_same_rows(both: tuple[Columns, SpilledColumns, random.Random]) -> None:
    memory, spilled, draw = both
    assert spilled.rows == memory.rows > 0
    picked = np.array([draw.randrange(memory.rows) for _ in range(20)])
    low = draw.randrange(memory.rows)
    for rows in (None, slice(low, low + 50), np.sort(picked), picked, np.empty(0, np.int64)):
        for name in SCHEMA.names:
            assert spilled.texts(name, rows).to_pylist() == memory.texts(name, rows).to_pylist(), name
            assert spilled.arrow(name, rows).to_pylist() == memory.arrow(name, rows).to_pylist(), name
        for name in ("event_id", "ts_ns", "stream", "nothing", "never given"):
            for one, other in zip(spilled.ints(name, rows), memory.ints(name, rows), strict=True):
                assert one.dtype == other.dtype and one.tolist() == other.tolist(), name
        assert spilled.flags("repaired", rows).tolist() == memory.flags("repaired", rows).tolist()


def test_codes_decode_to_the_same_texts(both: tuple[Columns, SpilledColumns, random.Random]) -> None:
    memory, spilled, draw = both
    for name in ("name", "args", "no_text", "never given"):
        texts = memory.texts(name).to_pylist()
        for columns in (memory, spilled):
            codes, words = columns.codes(name)
            assert [None if code < 0 else words[code].as_py() for code in codes.tolist()] == texts
            assert len(set(words.to_pylist())) == len(words)
    selected = memory.codes("name").is_one_of(["kernel", ""])
    assert selected.tolist() == [text in ("kernel", "") for text in memory.texts("name").to_pylist()]
    assert spilled.codes("name").is_one_of(["kernel", ""]).tolist() == selected.tolist()
    picked = np.array([draw.randrange(memory.rows) for _ in range(20)])
    for rows in (slice(None), slice(3, 70), np.sort(picked), picked, np.empty(0, np.int64)):
        for columns in (memory, spilled):
            assert columns.is_one_of("name", ["kernel", ""], rows).tolist() == selected[rows].tolist()
            assert columns.valid("ts_ns", rows).tolist() == memory.ints("ts_ns").valid[rows].tolist()
            codes, words = columns.codes("args", rows)
            texts = [None if code < 0 else words[code].as_py() for code in codes.tolist()]
            assert texts == memory.texts("args").take(pa.array(np.arange(memory.rows)[rows])).to_pylist()


def test_computed_columns_are_columns_like_others(
    both: tuple[Columns, SpilledColumns, random.Random],
) -> None:
    memory, spilled, draw = both
    values = np.array([draw.randrange(-(2**62), 2**62) for _ in range(memory.rows)])
    valid = np.array([draw.random() < 0.5 for _ in range(memory.rows)])
    for columns in (memory, spilled):
        columns.put("depth", values, valid)
        columns.put("crosses", valid)
        assert columns.ints("depth").values.tolist() == np.where(valid, values, 0).tolist()
        assert columns.flags("crosses").tolist() == valid.tolist()
        columns.put("depth", values)
        assert columns.ints("depth").valid.all() and columns.ints("depth").values.tolist() == values.tolist()
    assert [columns.has(name) for columns in (memory, spilled) for name in ("depth", "nothing", "other")] == [
        True, False, False, True, False, False,
    ]  # fmt: skip


def test_a_rank_is_freed_without_a_garbage_collection() -> None:
    rank = Columns(3, {"ts_ns": pa.chunked_array([[1, 2, 3]])})
    assert rank.parts == (rank,) and len(rank.ints("ts_ns").values) == 3
    left = weakref.ref(rank)
    gc.disable()
    try:
        del rank
        assert left() is None
    finally:
        gc.enable()


def test_numbers_with_nulls_are_those_of_arrow() -> None:
    numbers, valid = np.arange(40)[::2], np.arange(20) % 3 > 0
    for values in (numbers, numbers.astype(np.int32), numbers / 3, numbers > 7):
        for known in (valid, valid | True, valid & False):
            found = array_of(values, known)
            found.validate(full=True)
            assert found.equals(pa.array(values, mask=~known)), values.dtype
