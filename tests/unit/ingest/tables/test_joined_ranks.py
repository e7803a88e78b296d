"""Small ranks that are built together have the tables, facts and findings that each has alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from activity_rows import Row, call, columns_of, gpu, random_rows, slice_, step

import tracewarehouse
from conftest import deep_seeds
from tracewarehouse.errors import TwError
from tracewarehouse.formats.base import Outcome
from tracewarehouse.ingest.columns import Columns
from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.tables import build as build_module
from tracewarehouse.ingest.tables.build import Built, RankTables, _Builders, build

SEEDS = [range(2), *deep_seeds(2, 200)]
# Ids, threads, devices and times that are those of the other ranks, and steps without a number in the name.
PLAIN = [
    slice_("op", 0, 100, shapes="[[2, 2], [2, 2]]"),
    slice_("aten::mm", 1, 50, shapes="[[2, 2], [2, 2]]", dtypes='["float", "float"]'),
    call("cudaLaunchKernel", 2, 3, 1),
    gpu("gemm", 10, 5, 1),
    gpu("gemm", 8, 9, 7),
    slice_("[memory]", 4, None, "cpu_instant_event", bytes=8) | {"ph": "i"},
    slice_("gpu", 4, None, None, args='{"busy": 1}') | {"ph": "C"},
    slice_("flow", 1, None, "fwdbwd", flow_id="1") | {"ph": "s"},
    slice_("train step 3", 0, 40, "user_annotation"),
    slice_("train step 4", 50, 40, "user_annotation"),
]
MODULES = [
    step(1, 0, 90),
    slice_("nn.Module: Linear_0", 0, 60, "python_function", args='{"Python module id": 0}'),
    slice_("aten::linear", 1, 9, sequence_number=4),
    call("cudaLaunchKernel", 2, 3, 1),
    gpu("gemm", 10, 5, 1, device=1),
    slice_("autograd::engine::evaluate_function: MmBackward0", 70, 9, sequence_number=4, forward_thread=1),
    call("cudaLaunchKernel", 72, 3, 2),
    gpu("gemm", 80, 5, 2, device=1),
]


def made(ranks: list[tuple[int, list[Row]]]) -> tuple[tuple[Built, ...], dict[str, list[dict[str, Any]]]]:
    """What is known of each rank, and the rows of all tables, with their rank."""
    found: dict[str, list[dict[str, Any]]] = {}

    def add(name: str, rows: Any) -> None:
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches(rows)
        if "rank" not in table.column_names:
            table = table.append_column("rank", pa.array([ranks[0][0]] * len(table), pa.int32()))
        found[name] = table.to_pylist()

    given = [
        RankTables(rank, {"activities": columns_of(rows)}, Outcome(f"{rank}", "{}", 9, 9))
        for rank, rows in ranks
    ]
    assert all(rank.is_joinable for rank in given)
    return build(given, rules_of(), add), found


def check(*ranks: list[Row]) -> None:
    numbered = [(3 * number, rows) for number, rows in enumerate(ranks)]
    built, found = made(numbered)
    alone = [made([each]) for each in numbered]
    assert built == tuple(known for (known,), _ in alone)
    for name, rows in found.items():
        assert rows == [row for _, tables in alone for row in tables[name]], name


@pytest.mark.parametrize("seeds", SEEDS)
def test_random_ranks(seeds: range) -> None:
    for seed in seeds:
        check(random_rows(seed), PLAIN, random_rows(seed + 1), random_rows(seed + 2))


def test_ranks_of_different_kinds() -> None:
    check(PLAIN, MODULES, [], PLAIN, [slice_("late", 2**60, 5, "odd")], MODULES)


def test_ranks_whose_times_are_years_apart() -> None:
    check(PLAIN, [row | {"ts_ns": (row["ts_ns"] or 0) + 2**59} for row in MODULES], PLAIN)


def test_a_column_that_some_ranks_lack() -> None:
    """Dictionary-encoded, plain, or missing."""
    plain = Columns(2, {"name": pa.chunked_array([["a", "b"]]), "ts_ns": pa.chunked_array([[1, 2]])})
    coded = Columns(1, {"name": pa.chunked_array([["b"]]).dictionary_encode()})
    joined = Columns.joined([coded, plain, coded])
    assert joined.texts("name").to_pylist() == ["b", "a", "b", "b"]
    assert joined.ints("ts_ns").valid.tolist() == [False, True, True, False]
    assert joined.bounds.tolist() == [0, 1, 3, 4]


def test_rows_without_an_id_have_no_rank() -> None:
    """As a new table may have them; alone, a rank needs none."""
    rows = pa.table({"rate": [1.5, 2.5]})
    builders = _Builders([], rules_of(), columns=Columns.joined([columns_of(PLAIN), columns_of(MODULES)]))
    with pytest.raises(TwError, match="rates has no event_id, kernel_id or runtime_id") as raised:
        builders.by_rank("rates", rows, rows)
    assert "a table of each rank" in str(raised.value.hint)


@pytest.mark.parametrize("ids", [{"correlation": 2**60}, {"python_id": -5}])
def test_ids_out_of_range_are_not_joined(ids: dict[str, int]) -> None:
    columns = columns_of([slice_("op", 0, 1, **ids)])
    assert not RankTables(0, {"activities": columns}, Outcome("", "{}", 9, 9)).is_joinable


def test_a_rank_that_cannot_be_built_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails after its tables were passed on, which are dropped; the others are built again, alone."""
    calls: list[list[int]] = []

    def failing(ranks: Sequence[RankTables], *rest: Any) -> tuple[Built, ...]:
        calls.append([rank.rank for rank in ranks])
        found = build(ranks, *rest)
        if 1 in calls[-1]:
            raise ValueError("odd")
        return found

    monkeypatch.setattr(build_module, "build", failing)
    tracewarehouse.simulate(tmp_path / "job", ranks=3, layers=1, steps=2)
    warehouse = tracewarehouse.open(tmp_path / "wh")
    found = warehouse.ingest(tmp_path / "job", run="job", jobs=1)
    assert calls == [[0, 1, 2], [0], [1], [2]]
    (refused,) = [file for file in found.files if file.state == "refused" and "rank1" in file.path.name]
    assert "odd" in str(refused.reason)
    rows = warehouse.query(
        "SELECT rank, count(*) AS n, max(event_id) + 1 AS m FROM events GROUP BY 1", limits=None
    )
    assert sorted((row["rank"], row["n"] == row["m"]) for row in rows.rows()) == [(0, True), (2, True)]
