"""HolisticTraceAnalysis 0.6.1 as a further witness: classes and launches, over just the rows HTA looks at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import deep, real_traces, with_deep
from ingesting import take_each
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.duck import engine
from witness.test_hta import FILES, HTA_LAUNCHES, HTA_ROWS

# `get_gpu_kernel_breakdown`: whole µs. HTA shows no class `other`, and these traces have none.
CLASSES = {
    "df_index": {"computation": 496_485, "communication": 238_274, "memory": 18_298},
    "control": {
        "computation": 151_685,
        "communication": 69_110,
        "memory": 16_328,
        "computation+communication": 55_152,
        "computation+memory": 20_762,
        "communication+memory": 1_087,
        "computation+communication+memory": 7_161,
    },
    "test": {
        "computation": 267_839,
        "communication": 53_846,
        "memory": 92_887,
        "computation+communication": 129_148,
        "computation+memory": 30_501,
        "communication+memory": 5_512,
        "computation+communication+memory": 1_728,
    },
    "alexnet": {"computation": 10_630, "memory": 55_511},
    "simple_add": {"computation": 10_670, "memory": 39_088},
}
# `get_cuda_kernel_launch_stats`: rows, short kernels, runtime outliers, delay outliers.
LAUNCHES = {
    "df_index": (17_832, 9_686, 2, 6_605),
    "control": (7_875, 3_042, 25, 5_111),
    "test": (8_310, 4_551, 65, 8_142),
    "alexnet": (98, 23, 11, 43),
    "simple_add": (98, 29, 10, 22),
}


# `get_gpu_user_annotation_breakdown` of nccl: µs summed, and how many.
ANNOTATIONS = {
    "DistributedDataParallel.forward": (195_524, 2),
    "Optimizer.step#SGD.step": (18_712, 2),
    "nccl:all_reduce": (24_216, 10),
    "nccl:broadcast": (81, 4),
    "## backward ##": (1_279, 2),
}
# HTA rounds starts up and ends down.
WHOLE_US = "((ts_ns + dur_ns) // 1000 - (ts_ns + 999) // 1000)"


# Stored for the deep tests only.
RARE = ("df_index", "test", "alexnet")


def traces(names: Iterable[str]) -> list[object]:
    """Names of traces as parameters, the rare ones of the deep tests."""
    return [*sorted(set(names) - set(RARE)), *deep(*sorted(set(names) & set(RARE)))]


@pytest.fixture(scope="module")
def warehouse(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Those traces, each a run."""
    folder = real_traces()
    if folder is None:
        pytest.skip("no real traces here")
    house = tw.open(tmp_path_factory.mktemp("hta"))
    names = [name for name in (*LAUNCHES, "nccl") if name not in RARE or with_deep(request)]
    files = {name: folder / FILES[name] for name in names}
    take_each(house, files, tmp_path_factory.mktemp("links"))
    return house


def over_hta_rows(
    warehouse: Any, run: str, analysis: str, params: dict[str, Any] | None = None, **rows: str
) -> list[dict[str, Any]]:
    """The rows of an analysis that sees only the GPU activities HTA looks at, and of other tables `rows`."""
    catalog = Catalog.load()
    contract = catalog.get(analysis)
    selected = warehouse.select(runs=[run])
    with engine.connect() as con:
        for each in catalog.closure(contract):
            if each.kind == "view" or each.is_constant:
                con.execute(f"CREATE VIEW {each.name} AS {each.body}")
            elif each.kind == "table" and each.ref in _tables(catalog, contract):
                sql = HTA_ROWS if each.name == "kernels" else f"SELECT * FROM {each.name}"
                sql = rows.get(each.name, sql)
                con.register(f"{each.name}_rows", selected.query(sql, limits=None).arrow())
                con.execute(f"CREATE TABLE {each.name} AS SELECT * FROM {each.name}_rows")
        return list(engine.execute(con, contract, params or {}).to_pylist())


def _tables(catalog: Catalog, contract: Any) -> set[Any]:
    """What it reads itself or through views."""
    found = set(contract.requires)
    for ref in contract.requires:
        if catalog.contracts[ref].kind == "view":
            found |= _tables(catalog, catalog.contracts[ref])
    return found


@pytest.mark.parametrize("name", traces(CLASSES))
def test_classes_are_what_hta_says(name: str, warehouse: Any) -> None:
    rows = over_hta_rows(warehouse, name, "kernel_type_breakdown")
    # HTA cuts off what is less than a µs in each piece of time.
    assert {row["class"]: row["class_ns"] for row in rows} == {
        kinds: 1_000 * said for kinds, said in CLASSES[name].items()
    }


@pytest.mark.parametrize("name", traces(LAUNCHES))
def test_launches_are_what_hta_says(name: str, warehouse: Any) -> None:
    rows = over_hta_rows(warehouse, name, "launch_summary")
    known = [row for row in rows if row["state"] == "known" and f"'{row['api']}'" in HTA_LAUNCHES]
    columns = ("launches", "short_kernels", "runtime_outliers", "delay_outliers")
    assert tuple(sum(row[column] for row in known) for column in columns) == LAUNCHES[name]


def test_short_kernels_of_a_trace_below_us_are_what_hta_rounds_to(warehouse: Any) -> None:
    # HTA rounds starts up and ends down to whole µs before it compares, our times are in ns: 1,380 are short.
    sql = f"""
        SELECT count(*) AS launches, count(*) FILTER (kernel.us < call.us AND call.us <= 50) AS short
        FROM (SELECT run_id, runtime_id, {WHOLE_US} AS us FROM ({HTA_ROWS})) AS kernel
        JOIN (SELECT run_id, event_id, name, {WHOLE_US} AS us FROM runtime) AS call
            ON call.run_id = kernel.run_id AND call.event_id = kernel.runtime_id
        WHERE call.name IN {HTA_LAUNCHES}"""
    assert warehouse.select(runs=["nccl"]).query(sql).rows() == [{"launches": 2_516, "short": 1_347}]


def test_annotations_are_what_hta_says(warehouse: Any) -> None:
    # HTA drops what begins in the last step, the copies on the GPU by their own start, and rounds.
    rows = f"""
        SELECT * REPLACE (1000 * {WHOLE_US} AS dur_ns) FROM annotations
        WHERE ts_ns < (SELECT max(host_start_ns) FROM steps)"""
    found = over_hta_rows(warehouse, "nccl", "annotation_breakdown", annotations=rows)
    copies = {row["name"]: (row["sum_ns"] // 1_000, row["count"]) for row in found if row["on_gpu"]}
    assert copies == ANNOTATIONS


def test_the_most_frequent_sequence_is_what_hta_says(warehouse: Any) -> None:
    rows = over_hta_rows(warehouse, "control", "kernel_sequences", {"operator": "aten::linear"})
    assert (rows[0]["count"], rows[0]["kernel_sum_ns"], rows[0]["op_sum_ns"]) == (10, 986_000, 1_123_000)
