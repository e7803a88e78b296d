"""Flows: which start belongs to an end, and which operator an end is bound to."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from activity_rows import columns_of, flows, slice_

from tracewarehouse.formats.base import Ints
from tracewarehouse.ingest.columns import Columns
from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.tables import events as module
from tracewarehouse.ingest.tables.events import find_flows
from tracewarehouse.ingest.tables.nesting import nest


def flow(ph: str, ts: int | None, ident: str | None = "1", **more: Any) -> dict[str, Any]:
    row = slice_("flow", 0, None, "fwdbwd") | {"ph": ph, "ts_ns": ts, "flow_id": ident}
    return row | more


def table(rows: list[dict[str, Any]]) -> pa.Table:
    columns = columns_of(rows)
    return flows(columns, nest(columns, rules_of()))


def starts(rows: list[dict[str, Any]]) -> list[int | None]:
    return table(rows).column("start_id").to_pylist()


def test_the_last_start_before_the_end_else_the_first_after() -> None:
    assert starts([flow("s", 5), flow("s", 8), flow("f", 8), flow("f", 7), flow("t", 1)]) == [
        0,
        1,
        1,
        0,
        0,
    ]


def test_of_starts_at_one_time_the_first_in_the_file() -> None:
    assert starts([flow("s", 5), flow("s", 5), flow("f", 6), flow("f", 4)]) == [0, 1, 0, 0]


def test_a_start_without_a_time_counts_last() -> None:
    assert starts([flow("s", None), flow("s", 9), flow("f", 3)]) == [0, 1, 1]
    assert starts([flow("s", None), flow("f", 3)]) == [0, 0]


def test_an_end_without_a_time_has_the_first_start_in_the_file() -> None:
    assert starts([flow("s", 9), flow("s", None), flow("f", None)]) == [0, 1, 0]


def test_ids_pair_within_the_category_that_the_file_spells() -> None:
    old = {"category": "ac2g", "raw_category": "async"}
    new = {"category": "ac2g", "raw_category": "ac2g"}
    none = {"category": None, "raw_category": None}
    rows = [flow("s", 1, **old), flow("f", 2, **new), flow("f", 2, **old), flow("s", 1, **none)]
    assert starts([*rows, flow("f", 2, **none), flow("f", 2, "2"), flow("f", 2, None)]) == [
        0, None, 0, 3, 3, None, None
    ]  # fmt: skip


def test_what_has_no_start() -> None:
    columns = columns_of([slice_("op", 0, 9), flow("f", 2, "7"), flow("s", 1), flow("f", 3)])
    assert find_flows(columns, nest(columns, rules_of())).without_start.tolist() == [1]


def test_the_innermost_operator_that_starts_there() -> None:
    rows = [
        slice_("outer", 5, 20),
        slice_("inner", 5, 10),
        slice_("frame", 5, 3, "python_function"),
        slice_("later", 6, 1),
        slice_("elsewhere", 5, 1, tid="2"),
        flow("s", 5),
        flow("f", 6, tid="2"),
        flow("f", 5, category="ac2g", raw_category="ac2g"),
        flow("f", 5, category=None, raw_category=None),
    ]
    assert table(rows).select(["event_id", "slice_id"]).to_pylist() == [
        {"event_id": 5, "slice_id": 1},
        {"event_id": 6, "slice_id": None},
        {"event_id": 7, "slice_id": None},
        {"event_id": 8, "slice_id": None},
    ]


def test_roles_and_texts_are_those_of_the_rows() -> None:
    (row,) = table([slice_("op", 0, 1), flow("t", 4, "38654705663")]).to_pylist()
    assert row == {
        "event_id": 1, "category": "fwdbwd", "flow_id": "38654705663", "name": "flow", "role": "step",
        "pid": "1", "tid": "1", "ts_ns": 4, "start_id": None, "slice_id": None,
    }  # fmt: skip


def test_many_flows_of_one_id_need_little_memory() -> None:
    """Ends and starts of one id were once compared pairwise."""
    count = 200_000
    word = pa.array(["x"]).dictionary_encode()
    texts = {name: word.take(pa.array(np.zeros(count, np.int32))) for name in ("category", "raw_category")}
    phases = pa.DictionaryArray.from_arrays(pa.array(np.arange(count, dtype=np.int32) % 2), ["s", "f"])
    times = {"ts_ns": np.arange(count) // 3, "dur_ns": pa.nulls(count, pa.int64())}
    ids = {"flow_id": pa.array(["7"] * count), "pid": pa.array(["1"] * count), "tid": pa.array(["1"] * count)}
    columns = Columns.read(pa.table({"ph": phases, **texts, **times, **ids}).to_reader())
    nesting = nest(columns, rules_of())
    tracemalloc.start()
    found = flows(columns, nesting)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.num_rows == count and found.column("start_id").null_count == 0
    assert peak_bytes < count * 400


def random_ends(rows: int, ids: int, seed: int) -> module.FlowEnds:
    """Rows of flows, half of them of id 0; few distinct times, some missing, some rows without an id."""
    draw = np.random.default_rng(seed)
    group = np.where(draw.random(rows) < 0.5, 0, draw.integers(-1, ids, rows))
    times = Ints(draw.integers(0, rows // 2, rows), draw.random(rows) < 0.9)
    return module.FlowEnds(np.arange(rows, dtype=np.int32) * 3, draw.random(rows) < 0.3, group, times)


@pytest.mark.parametrize("seed", range(8))
def test_ids_of_very_many_rows_pair_like_any_other(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = random_ends(400, (1, 3, 40)[seed % 3], seed)
    expected = module._starts(ends)
    monkeypatch.setattr(module, "_PART_ENDS", 16)
    assert module._all_starts(ends).tolist() == expected.tolist()
    one = np.flatnonzero(ends.group == 0)
    assert module._starts_of_one(ends, one).tolist() == expected[one].tolist()


def test_an_id_of_very_many_rows_needs_little_memory_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 200_000
    ends = random_ends(rows, 1, 0)
    monkeypatch.setattr(module, "_PART_ENDS", rows // 8)
    tracemalloc.start()
    module._all_starts(ends)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 80 * rows


def test_ids_differ_if_they_are_written_differently() -> None:
    odd = (
        "",
        "0",
        "00",
        "-1",
        "-0",
        "+1",
        "1",
        "01",
        " 1",
        "1.0",
        "1e0",
        "0x1",
        "٣",
        "2199023255552",
        "9" * 25,
    )
    far = (str(2**38 - 1), str(2**38), str(2**38 + 1), str(2**63), None, "a" * 40)
    idents = [*odd, *far]
    for texts in (idents, [ident for ident in idents if ident is None or ident.isdecimal()]):
        rows = [flow(ph, ts, ident) for ts, ph in enumerate("sf") for ident in texts]
        wanted = [None if ident is None else place for place, ident in enumerate(texts)]
        assert starts(rows)[len(texts) :] == wanted
