"""All tables of a rank: their order and their columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from activity_rows import call, columns_of, gpu, slice_, step

from tracewarehouse.duck.arrow import schema_of
from tracewarehouse.errors import TwError
from tracewarehouse.formats.base import Loss, Outcome
from tracewarehouse.ingest.columns import Columns
from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.tables import build as build_module
from tracewarehouse.ingest.tables import events as module
from tracewarehouse.ingest.tables.build import Built, RankTables, build
from tracewarehouse.ingest.tables.model import KEYS
from tracewarehouse.ingest.tables.quality import ADDED_TABLES, Coverage

OUTCOME = Outcome(digest="", header_json="{}", text_bytes=9, stored_bytes=9, base_time_ns=5)
ROWS = [
    step(1, 0, 90),
    slice_("op", 1, 50, shapes="[[1]]"),
    call("cudaLaunchKernel", 2, 3, 1),
    gpu("ncclDevKernel_AllReduce", 10, 5, 1),
    slice_("[memory]", 4, None, "cpu_instant_event", bytes=8) | {"ph": "i"},
    slice_("gpu", 4, None, None, args='{"busy": 1}') | {"ph": "C"},
    slice_("flow", 1, None, "fwdbwd", flow_id="1") | {"ph": "s"},
    slice_("wait", 60, 3, "cuda_sync"),
]
TIMELINE = {"event_id": [0, 1], "ts_ns": pa.array([7, None], pa.int64()), "bytes": [4, None]}
Tables = Mapping[str, Columns | pa.Table]


def made(tables: Tables, outcome: Outcome = OUTCOME) -> tuple[Built, dict[str, Any]]:
    """What is known of the rank, and its tables in the order in which they were added."""
    found: dict[str, Any] = {}

    def add(name: str, rows: Any) -> None:
        assert name not in found
        found[name] = rows if isinstance(rows, pa.Table) else pa.Table.from_batches(rows)

    (built,) = build([RankTables(3, tables, outcome)], rules_of(), add)
    return built, found


def test_every_stored_table_has_its_columns() -> None:
    _, found = made({"activities": columns_of(ROWS)})
    contracts = {each.name: each for each in rules_of().catalog.stored_tables()}
    assert set(found) == set(contracts)
    for name, rows in found.items():
        wanted = [(field.name, field.type) for field in schema_of(contracts[name])][2:]
        types = [each.value_type if pa.types.is_dictionary(each) else each for each in rows.schema.types]
        assert list(zip(rows.schema.names, types, strict=True)) == wanted, name
    empty = {name for name, rows in found.items() if not rows.num_rows}
    assert empty == {"op_work", "modules", "kernel_modules", "data_quality", "memory_timeline", *ADDED_TABLES}


def test_dictionaries_repeat_no_word() -> None:
    """Parquet stores the texts of a dictionary that does, and the dictionary beside them."""
    frames = [
        slice_(f"nn.Module: Linear_{at}", at, 1, "python_function", args='{"Python module id": 0}')
        for at in (0, 2)
    ]
    _, found = made({"activities": columns_of([*ROWS, *frames])})
    for name, rows in found.items():
        for column in rows.unify_dictionaries().itercolumns():
            if pa.types.is_dictionary(column.type) and column.num_chunks:
                words = column.chunk(0).dictionary.to_pylist()
                assert len(words) == len(set(words)), name


def test_rows_without_null_where_the_contract_has_none() -> None:
    _, found = made({"activities": columns_of(ROWS)})
    for contract in rules_of().catalog.stored_tables():
        rows = found[contract.name]
        never = [column.name for column in contract.columns[2:] if not column.null]
        assert [name for name in never if rows.column(name).null_count] == [], contract.name


def test_builders_give_every_column_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new column that its builder does not know would be null in every run, without an error."""
    given: dict[str, set[str]] = {}
    declared = build_module._declared

    def recorded(table: str, schema: pa.Schema, rows: pa.Table) -> pa.Table:
        given[table] = set(rows.schema.names)
        return declared(table, schema, rows)

    monkeypatch.setattr(build_module, "_declared", recorded)
    module = slice_("nn.Module: Linear_0", 0, 20, "python_function", args='{"Python module id": 0}')
    made({"activities": columns_of([*ROWS, module, slice_("aten::mm", 1, 5, shapes="[[2, 2], [2, 2]]")])})
    of_formats = {"memory_timeline", *ADDED_TABLES}
    contracts = {c.name: c for c in rules_of().catalog.stored_tables() if c.name not in of_formats}
    assert given == {name: {c.name for c in each.columns} - set(KEYS) for name, each in contracts.items()}


def test_a_column_without_nulls_may_not_be_missing() -> None:
    with pytest.raises(TwError, match="memory_timeline lacks event_id"):
        made({"memory_timeline": pa.table({"ts_ns": [7]})})


def test_the_largest_table_comes_first() -> None:
    assert list(made({"activities": columns_of(ROWS)})[1])[0] == "events"


def test_what_is_known_of_the_rank() -> None:
    known, found = made({"activities": columns_of(ROWS)}, OUTCOME)
    assert known.coverage == Coverage(5, 5, 5)
    assert known.quality == {} and not found["data_quality"].num_rows
    facts = known.facts
    assert (facts["base_time_ns"], facts["events"], facts["steps"], facts["gpu_activities"]) == (5, 8, 1, 1)
    assert (
        facts["counters"] and facts["memory_events"] and facts["collectives"] and not facts["memory_timeline"]
    )


def test_what_a_rank_lacks() -> None:
    facts = made({"activities": columns_of(ROWS[:2])})[0].facts
    assert not (facts["counters"] or facts["memory_events"] or facts["collectives"] or facts["gpu"])


def test_quality_counts_rows_by_rule() -> None:
    rows = [*ROWS, slice_("odd", 70, 1, "odd"), slice_("odd", 80, 1, "odd")]
    lost = Outcome("", "{}", 9, 9, losses=(Loss(1, 2, 4, "x"),))
    assert made({"activities": columns_of(rows)}, lost)[0].quality == {
        "lost_events": 4,
        "unknown_category": 2,
    }


def test_slabs_are_built_lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}
    monkeypatch.setattr(module.events, "__defaults__", (3,))
    columns = columns_of(ROWS)
    build([RankTables(3, {"activities": columns}, OUTCOME)], rules_of(), found.__setitem__)
    assert not isinstance(found["events"], pa.Table)
    rows = pa.Table.from_batches(found["events"])
    assert rows.column("event_id").to_pylist() == list(range(8))
    assert rows.column("name").to_pylist() == [row["name"] for row in ROWS]


def test_a_memory_timeline_alone() -> None:
    timeline = pa.table({**TIMELINE, "element": pa.array([None, '"x"'], pa.string())})
    known, found = made({"memory_timeline": timeline})
    assert [name for name, rows in found.items() if rows.num_rows] == ["memory_timeline", "data_quality"]
    assert found["memory_timeline"].column("action").to_pylist() == [None, None]
    assert known.quality == {"non_event": 1} and known.coverage == Coverage(0, 0, 0)
    assert (known.facts["events"], known.facts["non_events"], known.facts["start_ns"]) == (2, 1, 7)


def test_a_rank_without_any_table() -> None:
    known, found = made({})
    assert not any(rows.num_rows for rows in found.values())
    assert known.facts["events"] == 0


def test_tables_of_the_format_are_stored_unchanged() -> None:
    values = pa.table({"event_id": [3], "series": ["x"], "value": [2.5]})
    _, found = made({"activities": columns_of(ROWS), "counters": values})
    assert found["counters"].select(["event_id", "series", "value"]).to_pylist() == values.to_pylist()
    assert found["counters"].column("name").to_pylist() == [None]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"couters": pa.table({"event_id": [1]})}, "couters is not a stored table"),
        ({"kernel_rules": pa.table({"rule_id": [1]})}, "kernel_rules is not a stored table"),
        ({"counters": pa.table({"event_id": [1], "color": ["red"]})}, "counters has no column color"),
        ({"counters": pa.table({"event_id": ["one"]})}, "counters: event_id is string, not int64"),
        ({"counters": pa.table({"name": pa.array([5]).dictionary_encode()})}, "counters: name is dictionary"),
    ],
)
def test_tables_that_no_contract_declares(tables: Tables, message: str) -> None:
    with pytest.raises(TwError, match=message):
        made(tables)
