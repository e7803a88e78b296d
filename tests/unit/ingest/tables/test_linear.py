"""Deep nesting, ids that thousands of rows share, slices that all cross: linear in time and memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from activity_rows import Built, build_tables

from conftest import deep
from tracewarehouse.ingest.columns import Columns
from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.tables import attribution, kernels, launches, nesting
from tracewarehouse.ingest.tables.model import LONGEST


def columns_of(**columns: Any) -> Columns:
    """Slices of one thread with these columns; a single text applies to all rows."""
    rows = len(columns["ts_ns"])
    given = {"ph": "X", "pid": "1", "tid": "1", "category": "cpu_op", "name": "op"} | columns
    return Columns.read(pa.table({name: _column(value, rows) for name, value in given.items()}).to_reader())


def _column(value: Any, rows: int) -> pa.Array:
    column = pa.array([value] * rows if isinstance(value, str) else value)
    return column.dictionary_encode() if pa.types.is_string(column.type) else column


def measured(columns: Columns) -> tuple[Built, float, int]:
    """The tables, and the CPU seconds and bytes needed to build them."""
    build_tables(columns_of(ts_ns=[0], dur_ns=[1]))  # the rules are read once per process
    begun = time.process_time()
    built = build_tables(columns)
    seconds = time.process_time() - begun
    tracemalloc.start()
    build_tables(columns)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return built, seconds, peak


@pytest.mark.deep
def test_twenty_thousand_calls_and_gpu_activities_of_one_id() -> None:
    count = 20_000
    start = np.arange(count) * 10
    built, seconds, peak = measured(
        columns_of(
            ts_ns=np.concatenate((start, start + 5)),
            dur_ns=np.full(2 * count, 3),
            category=["cuda_runtime"] * count + ["kernel"] * count,
            name=["cudaLaunchKernel"] * count + ["gemm"] * count,
            correlation=np.full(2 * count, 7),
        )
    )
    assert built.rows("kernels", "runtime_id") == list(range(count))
    assert len(built.rows("correlations")) == count
    assert seconds < 5 and peak < 60_000_000


def nested_launches(count: int, crossing: bool) -> Mapping[str, Any]:
    """Operators that each launch one GPU activity; they nest, or each outlives its parent."""
    order = np.arange(count)
    start, launch = order * 4, order * 4 + 1
    length = np.full(count, 4 * count + 4) if crossing else 4 * (2 * count - 2 * order)
    return {
        "ts_ns": np.concatenate((start, launch, launch + 1)),
        "dur_ns": np.concatenate((length, np.full(2 * count, 1))),
        "category": ["cpu_op"] * count + ["cuda_runtime"] * count + ["kernel"] * count,
        "name": ["op"] * count + ["cudaLaunchKernel"] * count + ["gemm"] * count,
        "correlation": np.concatenate((np.zeros(count, np.int64), order + 1, order + 1)),
    }


@pytest.mark.parametrize("crossing", [True, *deep(False)])
def test_six_thousand_nested_operators_that_each_launch(crossing: bool) -> None:
    count = 6_000
    columns = columns_of(**nested_launches(count, crossing))
    begun = time.process_time()
    built = build_tables(columns)
    assert time.process_time() - begun < 10
    assert built.rows("kernels", "op_id") == list(range(count))
    assert set(built.rows("kernels", "top_op_id")) == {0}
    assert columns.ints("depth").values.max() == count + 1
    texts = built.rows("kernels", "path_sig")
    assert texts[LONGEST - 1] == " > ".join(["op"] * LONGEST)
    assert texts[LONGEST] == texts[-1] == " > ".join(["…"] + ["op"] * LONGEST)


def test_texts_of_deep_paths_are_not_all_in_memory_at_once() -> None:
    columns, rules = columns_of(**nested_launches(3_000, crossing=False)), rules_of()
    nest = nesting.nest(columns, rules)
    calls = launches.find_calls(columns, rules, nest)
    launched = launches.find_launches(columns, rules, nest, calls)
    owned = attribution.attribute_calls(columns, nest, calls, launched)
    classes = kernels.classify(columns, rules, launched, owned)
    slabs = [
        slab["path_sig"].nbytes
        for slab in kernels.kernels(columns, launched, owned, classes, kernels.stream_idle(columns, launched))
    ]
    assert len(slabs) > 4 and max(slabs) < 4_000_000


def test_operators_that_each_end_while_their_children_go_on() -> None:
    # At each call all but the last few operators have ended, though their ancestors' slices continue.
    count, alive = 6_000, 5
    rows = dict(nested_launches(count, crossing=True))
    rows["dur_ns"] = np.concatenate((np.full(count, 4 * alive), np.full(2 * count, 1)))
    built, seconds, peak = measured(columns_of(**rows))
    tops = [max(n - alive + 1, 0) for n in range(count)]
    assert built.rows("kernels", "op_id", "top_op_id") == list(zip(range(count), tops, strict=True))
    assert built.rows("kernels", "path_sig")[-1] == " > ".join(["op"] * alive)
    assert seconds < 10 and peak < 100_000_000


@pytest.mark.parametrize("crossing", [False, True])
def test_a_hundred_thousand_levels_and_as_many_slices_after_them(crossing: bool) -> None:
    count = 100_000
    order = np.arange(count)
    length = np.full(count, 2 * count) if crossing else 4 * count - 2 * order
    columns = columns_of(
        ts_ns=np.concatenate((order, 5 * count + 2 * order)),
        dur_ns=np.concatenate((length, np.full(count, 1))),
    )
    begun = time.process_time()
    found = nesting.nest(columns, rules_of())
    seconds = time.process_time() - begun
    assert np.array_equal(found.rows, np.arange(2 * count))
    assert np.array_equal(columns.ints("depth").values, np.concatenate((order + 1, np.ones(count))))
    above = columns.ints("parent_id")
    assert np.array_equal(np.flatnonzero(above.valid), order[1:])
    assert np.array_equal(above.values[1:count], order[:-1])
    assert np.array_equal(found.post[:count], np.full(count, count))
    assert columns.flags("crosses").any() == crossing
    assert seconds < 5


@pytest.mark.deep
def test_memory_grows_with_the_rows() -> None:
    peaks = []
    for count in (2_000, 16_000):
        rows = dict(nested_launches(count, crossing=False))
        rows["dur_ns"] = np.concatenate((np.full(count, 4), np.full(2 * count, 1)))
        peaks.append(measured(columns_of(**rows))[2])
    assert peaks[1] < 10 * peaks[0]


@pytest.mark.deep
def test_a_thousand_lanes_and_a_thousand_groups_of_flows() -> None:
    count = 20_000
    order = np.arange(count)
    lanes = [str(n % 1_000) for n in range(count)]
    built, seconds, _ = measured(
        columns_of(
            ts_ns=np.concatenate((order * 10, order * 10 + 2, order * 10 + 5, order * 10 + 5)),
            dur_ns=pa.array([4] * count + [None] * count + [3] * count + [None] * count, pa.int64()),
            ph=["X"] * count + ["s"] * count + ["X"] * count + ["f"] * count,
            category=["cuda_runtime"] * count + ["ac2g"] * count + ["kernel"] * count + ["ac2g"] * count,
            raw_category=["x"] * count + ["ac2g"] * count + ["kernel"] * count + ["ac2g"] * count,
            tid=lanes + lanes + ["7"] * 2 * count,
            flow_id=["none"] * count + [str(n) for n in order] + ["none"] * count + [str(n) for n in order],
        )
    )
    assert built.rows("kernels", "runtime_id") == order.tolist()
    assert set(built.rows("correlations", "via")) == {"flow"}
    assert seconds < 10


@pytest.mark.deep
def test_paths_below_many_crossing_slices_are_found_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attribution, "_SLAB", 100)
    count, crossing, calls = 2_500, np.arange(LONGEST), np.arange(2_000, 4_500)
    columns = columns_of(
        ts_ns=np.concatenate((crossing, calls, calls + 1)),
        dur_ns=np.concatenate((np.where(crossing == 0, 1_500, 9_000), np.zeros(2 * count, np.int64))),
        category=["cpu_op"] * LONGEST + ["cuda_runtime"] * count + ["kernel"] * count,
        name=[f"op{at}" for at in crossing] + ["cudaLaunchKernel"] * count + ["gemm"] * count,
        correlation=np.concatenate((np.zeros(LONGEST, np.int64), calls, calls)),
    )
    built, _, peak = measured(columns)
    assert set(built.rows("kernels", "path_sig")) == {" > ".join(f"op{at}" for at in crossing[1:])}
    assert peak < 12_000_000, f"{peak:,} bytes"
