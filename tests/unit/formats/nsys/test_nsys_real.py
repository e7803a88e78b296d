"""Real Nsight Systems exports, if available: totals equal a brute-force sweep over the database rows."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pytest

import tracewarehouse as tw
from conftest import real_traces

FOLDER: Final = real_traces()
NAMES: Final = ("mfu_2gpu_after", "mfu_2gpu_before")
COMPUTE, COMMUNICATION, MEMORY = 4, 2, 1

pytestmark = pytest.mark.skipif(FOLDER is None, reason="no folder of real traces")


def export(name: str) -> Path:
    assert FOLDER is not None
    return FOLDER / "nsys-sqlite-before-after" / f"{name}.sqlite"


def activities(path: Path) -> dict[int, list[tuple[int, int, int]]]:
    """Process → start, end and class of its GPU activities."""
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as con:
        texts = dict(con.execute("SELECT id, value FROM StringIds"))
        for table in ("KERNEL", "MEMCPY", "MEMSET"):
            name = "demangledName" if table == "KERNEL" else "NULL"
            sql = f"SELECT globalPid, start, end, {name} FROM CUPTI_ACTIVITY_KIND_{table}"
            for process, start, end, text in con.execute(sql):
                kind = COMPUTE if table == "KERNEL" else MEMORY
                kind = COMMUNICATION if "nccl" in texts.get(text, "").lower() else kind
                found[process >> 24 & 0xFFFFFF].append((start, end, kind))
    con.close()
    return found


def sweep(rows: list[tuple[int, int, int]]) -> dict[str, int]:
    """Time by the most important class that runs."""
    edges = sorted([(start, 1, kind) for start, _, kind in rows] + [(end, -1, kind) for _, end, kind in rows])
    open_ = {COMPUTE: 0, COMMUNICATION: 0, MEMORY: 0}
    total: dict[str, int] = defaultdict(int)
    last = edges[0][0]
    for time, change, kind in edges:
        names = {COMPUTE: "compute_ns", COMMUNICATION: "exposed_comm_ns", MEMORY: "exposed_memory_ns"}
        name = next((text for key, text in names.items() if open_[key]), "idle_ns")
        total[name] += time - last
        last = time
        open_[kind] += change
    return dict(total)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    found = tw.open(tmp_path_factory.mktemp("nsys") / "warehouse")
    for name in NAMES:
        found.ingest(export(name), run=name)
    return found


def rows(warehouse: tw.Warehouse, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in warehouse.query(sql).rows()]


@pytest.mark.parametrize("name", NAMES)
def test_breakdown_equals_a_sweep(warehouse: tw.Warehouse, name: str) -> None:
    found = {row["rank"]: row for row in warehouse.select(runs=name).analyze("temporal_breakdown").rows()}
    for rank, process in enumerate(sorted(activities(export(name)))):
        expected = sweep(activities(export(name))[process])
        assert {key: found[rank][key] for key in expected} == expected


@pytest.mark.parametrize("name", NAMES)
def test_totals_equal_those_of_the_tables(warehouse: tw.Warehouse, name: str) -> None:
    sql = "SELECT rank, count(*), sum(dur_ns)::BIGINT FROM kernels"
    sql += f" WHERE run_id = '{name}' GROUP BY 1 ORDER BY 1"
    by_process = sorted(activities(export(name)).items())
    expected = [
        (rank, len(found), sum(end - start for start, end, _ in found))
        for rank, (_, found) in enumerate(by_process)
    ]
    assert rows(warehouse, sql) == expected


def test_counts_of_the_newer_export(warehouse: tw.Warehouse) -> None:
    where = "run_id = 'mfu_2gpu_after'"
    sql = "SELECT activity, count(*), sum(dur_ns)::BIGINT, sum(bytes)::BIGINT FROM kernels"
    sql += f" WHERE {where} GROUP BY 1"
    assert sorted(rows(warehouse, sql)) == [
        ("kernel", 3587, 488835406, None),
        ("memcpy", 904, 5086674, 7195376896),
        ("memset", 242, 187423, 968),
    ]
    assert rows(warehouse, f"SELECT count(*) FROM runtime WHERE {where}") == [(6682,)]
    assert rows(warehouse, f"SELECT count(*) FROM syncs WHERE {where}") == [(334,)]
    sql = f"SELECT sum(rows)::BIGINT FROM data_quality WHERE {where} AND rule = 'before_window'"
    assert rows(warehouse, sql) == [(14,)] or rows(warehouse, sql)[0][0] >= 10
    sql = f"SELECT count(*), count(sequence_number) FROM events WHERE {where} AND category = 'cpu_op'"
    assert rows(warehouse, sql) == [(16633, 8241)]


def test_collectives_match_across_the_ranks_of_a_file(warehouse: tw.Warehouse) -> None:
    sql = ("SELECT count(*), count(DISTINCT instance_id) FROM collective_matches"
           " WHERE run_id = 'mfu_2gpu_after' AND collective = 'all_to_all'")  # fmt: skip
    assert rows(warehouse, sql) == [(60, 30)]


def test_a_comparison_has_verdict_and_breakdown(warehouse: tw.Warehouse) -> None:
    found = warehouse.diff("mfu_2gpu_before", "mfu_2gpu_after")
    assert found is not None
