"""HolisticTraceAnalysis 0.6.1 as a second witness, on traces of HTA's test data.

HTA looks at fewer rows than we do: GPU activities whose launch is in the trace and starts before the last
profiler step (silent inner join, last step dropped). Over just those rows our analyses must give its numbers,
to the µs it prints, unless a rule sets them apart. Those, by trace and with the reason, are in `APART`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import deep, real_traces, with_deep
from ingesting import take_each
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.duck import engine

FILES = {
    "df_index": "hta-singles/v100_df_index_resolver_rank1of2.json.gz",
    "nccl": "hta-singles/a100_nccl_pg_config_rank0of2.json.gz",
    "control": "trace-diff-hta/control.json.gz",
    "test": "trace-diff-hta/test.json.gz",
    "alexnet": "hta-singles/a100_critical_path_alexnet.json.gz",
    "simple_add": "hta-singles/a100_critical_path_simple_add.json.gz",
    "amd": "amd-misc/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "triton": "hta-singles/a100_triton_example.json.gz",
}


# Stored for the deep tests only.
RARE = ("test", "nccl", "alexnet", "amd")


def traces(*names: str) -> list[object]:
    """Names of traces as parameters, the rare ones of the deep tests."""
    return [*(name for name in names if name not in RARE), *deep(*(name for name in names if name in RARE))]


@dataclass(frozen=True)
class Split:
    """What `get_temporal_breakdown` prints, µs: `rest` is all busy time without computation."""

    idle: float
    compute: float
    rest: float
    window: float


# Of nccl the numbers that HTA gives with its rounding to whole µs switched off.
TEMPORAL = {
    "df_index": Split(643_612, 496_485, 256_572, 1_396_669),
    "nccl": Split(336_419.715, 76_935.828, 22_232.019, 435_587.562),
    "control": Split(62_119, 234_760, 86_525, 383_404),
    "test": Split(46_910, 429_216, 152_245, 628_371),
    "alexnet": Split(12_929_684, 10_630, 55_697, 12_996_011),
    "simple_add": Split(16_414_376, 10_670, 39_293, 16_464_339),
    "amd": Split(8_780, 96, 35, 8_911),
    "triton": Split(0, 94, 0, 94),
}
APART = {
    "alexnet": "HTA takes cuda_sync rows for GPU work: a Context Sync of 75,767 µs lengthens the window",
    "simple_add": "HTA takes cuda_sync rows for GPU work",
    "amd": "HTA rounds starts up and ends down to whole µs: each of these short kernels loses up to 2 µs",
    "triton": "HTA takes cpu_op rows that carry a stream for GPU work",
}
OVERLAP = {"df_index": 0.0, "nccl": 14.76, "control": 47.03, "test": 68.8}
# rows, mean host call, mean GPU activity, mean delay clipped at 0; µs, means printed to two decimals.
LAUNCHES = {
    "df_index": (17_832, 8.80, 42.23, 576.5),
    "control": (7_875, 14.61, 52.56, 2_014.61),
    "test": (8_310, 35.85, 64.24, 38_138.18),
    "alexnet": (98, 31_771.59, 675.54, 400.85),
}
# Stream 7: idle time by host_wait, kernel_wait, other; µs.
IDLE = {
    "df_index": (791_330, 16_727, 73_829),
    "control": (102_154, 14_226, 32_183),
    "alexnet": (12_855_007, 104, 0),
    "simple_add": (15_976_739, 91, 0),
}
# A stream, the changes of its queue, and the longest it was. HTA leaves the order of changes at one time to
# chance, so that its means differ.
QUEUES = {
    "df_index": (7, 32_432, 73),
    "nccl": (7, 5_004, 10),
    "control": (7, 14_940, 287),
    "alexnet": (7, 182, 18),
    "simple_add": (7, 182, 5),
    "amd": (0, 32, 1),
}
HTA_LAUNCHES = "('cudaLaunchKernel', 'cudaLaunchKernelExC', 'cudaMemcpyAsync', 'cudaMemsetAsync')"
HTA_ROWS = """
    SELECT kernels.* FROM kernels JOIN events AS launch
        ON launch.run_id = kernels.run_id AND launch.rank = kernels.rank AND launch.event_id = runtime_id
    WHERE launch.ts_ns < coalesce((
        SELECT max(host_start_ns) FROM steps WHERE steps.run_id = kernels.run_id HAVING count(*) > 1
    ), 9223372036854775807)"""


@pytest.fixture(scope="module")
def warehouse(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Those traces, each a run."""
    folder = real_traces()
    if folder is None:
        pytest.skip("no real traces here")
    house = tw.open(tmp_path_factory.mktemp("hta"))
    names = [name for name in FILES if name not in RARE or with_deep(request)]
    take_each(house, {name: folder / FILES[name] for name in names}, tmp_path_factory.mktemp("links"))
    return house


def over_hta_rows(warehouse: Any, name: str, analysis: str) -> dict[str, Any]:
    """The one row of an analysis that sees only the rows HTA looks at."""
    (row,) = all_over_hta_rows(warehouse, name, analysis)
    return row


def all_over_hta_rows(warehouse: Any, name: str, analysis: str) -> list[dict[str, Any]]:
    """All rows of an analysis that sees only the rows HTA looks at."""
    catalog = Catalog.load()
    contract = catalog.get(analysis)
    seen = warehouse.select(runs=[name])
    tables = {"kernels": HTA_ROWS, "correlations": "SELECT * FROM correlations"}
    with engine.connect() as con:
        for table, sql in tables.items():
            con.register("rows", seen.query(sql, limits=None).arrow())
            con.execute(f"CREATE TABLE {table} AS SELECT * FROM rows")
        for view in catalog.closure(contract):
            if view.kind == "view":
                con.execute(f"CREATE VIEW {view.name} AS {view.body}")
        return [dict(row) for row in engine.execute(con, contract, {}).to_pylist()]


@pytest.mark.parametrize("name", traces(*sorted(set(TEMPORAL) - set(APART))))
def test_temporal_breakdown_is_what_hta_says(name: str, warehouse: Any) -> None:
    row, said = over_hta_rows(warehouse, name, "temporal_breakdown"), TEMPORAL[name]
    found = (row["idle_ns"], row["compute_ns"], row["busy_ns"] - row["compute_ns"], row["window_ns"])
    wanted = (said.idle, said.compute, said.rest, said.window)
    # HTA adds floats of µs: it may be off by an ns or two.
    assert found == pytest.approx([1_000 * each for each in wanted], rel=0, abs=2)


@pytest.mark.parametrize("name", traces(*sorted(APART)))
def test_where_hta_differs_it_does(name: str, warehouse: Any) -> None:
    row, said = over_hta_rows(warehouse, name, "temporal_breakdown"), TEMPORAL[name]
    assert row["window_ns"] != 1_000 * said.window or row["compute_ns"] != 1_000 * said.compute, APART[name]


@pytest.mark.parametrize("name", traces("alexnet", "simple_add"))
def test_compute_is_the_same_with_or_without_syncs(name: str, warehouse: Any) -> None:
    assert (
        over_hta_rows(warehouse, name, "temporal_breakdown")["compute_ns"] == 1_000 * TEMPORAL[name].compute
    )


@pytest.mark.parametrize("name", traces(*sorted(OVERLAP)))
def test_overlap_is_what_hta_says(name: str, warehouse: Any) -> None:
    overlap = over_hta_rows(warehouse, name, "comm_comp_overlap")["overlap"]
    assert round(100 * overlap, 2) == OVERLAP[name]


@pytest.mark.parametrize("name", traces(*sorted(LAUNCHES)))
def test_launch_delays_are_what_hta_says(name: str, warehouse: Any) -> None:
    seen = warehouse.select(runs=[name])
    rows = {row["event_id"] for row in seen.query(f"SELECT event_id FROM ({HTA_ROWS})", limits=None).rows()}
    launches = [row for row in seen.analyze("launch_stats").rows() if row["kernel_id"] in rows]
    launches = [row for row in launches if f"'{row['api']}'" in HTA_LAUNCHES]
    delays = [max(0, row["return_to_start_ns"]) for row in launches]
    sums = sum(row["call_ns"] for row in launches), sum(row["kernel_ns"] for row in launches), sum(delays)
    count = len(launches)
    assert (count, *(round(each / 1_000 / count, 2) for each in sums)) == LAUNCHES[name]


@pytest.mark.parametrize("name", traces(*sorted(IDLE)))
def test_idle_time_of_a_stream_is_what_hta_says(name: str, warehouse: Any) -> None:
    rows = [row for row in all_over_hta_rows(warehouse, name, "stream_idle") if row["stream"] == 7]
    found = {row["cause"]: row["idle_ns"] for row in rows}
    causes = ("host_wait", "kernel_wait", "other")
    assert tuple(found.get(cause, 0) // 1_000 for cause in causes) == IDLE[name]


@pytest.mark.deep
def test_rows_that_overlap_are_where_idle_time_differs(warehouse: Any) -> None:
    rows = [row for row in all_over_hta_rows(warehouse, "test", "stream_idle") if row["stream"] == 7]
    found = {row["cause"]: row["idle_ns"] // 1_000 for row in rows}
    assert (found["host_wait"], found["other"]) == (2_960, 41_756)
    assert found["kernel_wait"] > 42_372  # HTA takes the overlaps off: gaps below zero


@pytest.mark.parametrize("name", traces(*sorted(QUEUES)))
def test_queue_is_as_long_as_hta_says(name: str, warehouse: Any) -> None:
    stream, changes, longest = QUEUES[name]
    rows = all_over_hta_rows(warehouse, name, "queue_length_summary")
    (row,) = (row for row in rows if row["stream"] == stream)
    assert (2 * row["launched"], row["max_length"]) == (changes, longest)


def test_all_reduce_of_df_index_is_what_hta_says(warehouse: Any) -> None:
    rows = (
        warehouse.select(runs=["df_index"])
        .query(
            f"""
        SELECT sum(dur_ns)::BIGINT AS sum_ns, max(dur_ns) AS max_ns, count(*) AS count
        FROM ({HTA_ROWS}) WHERE name LIKE '%AllReduce%'""",
            limits=None,
        )
        .rows()
    )
    assert (rows[0]["sum_ns"], rows[0]["max_ns"]) == (238_274_000, 4_979_000)
    assert round(rows[0]["sum_ns"] / 1_000 / rows[0]["count"], 2) == 147.45
