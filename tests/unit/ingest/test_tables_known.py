"""Real traces compared with numbers of another tool.

HolisticTraceAnalysis 0.6.1 with its defaults leaves out the rows of the last step, which it finds through
their launch, and counts rows before the first step in.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import real_traces
from table_cases import rows, tables_of
from tracewarehouse.duck import engine

ALEXNET = "hta-singles/a100_critical_path_alexnet.json.gz"
LEFT_OUT = "coalesce(kernels.step, -1) < (SELECT max(step) FROM steps)"

# idle, computation, other work, window; in ns
SPLITS = {
    "hta-singles/a100_nccl_pg_config_rank0of2.json.gz": (336_419_714, 76_935_828, 22_232_019, 435_587_561),
    "hta-singles/v100_df_index_resolver_rank1of2.json.gz": (
        643_612_000, 496_485_000, 256_572_000, 1_396_669_000,
    ),
    "trace-diff-hta/control.json.gz": (62_119_000, 234_760_000, 86_525_000, 383_404_000),
}  # fmt: skip

# rows, mean length of kernel and call, mean delay from the return of the call, never below 0; in ns
LAUNCHES = {
    "hta-singles/v100_df_index_resolver_rank1of2.json.gz": (17_832, 42_230, 8_800, 576_500),
    "trace-diff-hta/control.json.gz": (7_875, 52_560, 14_610, 2_014_610),
    ALEXNET: (98, 675_540, 31_771_590, 400_850),
}

# duration of the unions of computation and of memcpy and memset; in ns
UNIONS = {
    ALEXNET: (10_630_000, 55_511_000),
    "hta-singles/a100_critical_path_simple_add.json.gz": (10_670_000, 39_088_000),
}


def tables_of_real(name: str) -> engine.Connection:
    folder = real_traces()
    if folder is None:
        pytest.skip("no real traces here")
    return tables_of(Path(folder, name))


def spans(con: engine.Connection, kinds: str, where: str = "true") -> list[tuple[int, int]]:
    sql = f"SELECT ts_ns, ts_ns + dur_ns FROM kernels WHERE kind {kinds} AND {where} ORDER BY ts_ns"
    return [(start, end) for start, end in rows(con, sql)]


def union(parts: list[tuple[int, int]]) -> int:
    total, reached = 0, -(2**62)
    for start, end in parts:
        total += max(end - max(start, reached), 0)
        reached = max(reached, end)
    return total


@pytest.mark.deep
@pytest.mark.parametrize("name", SPLITS)
def test_split_of_the_window(name: str) -> None:
    con = tables_of_real(name)
    everything = spans(con, "IS NOT NULL", LEFT_OUT)
    window = max(end for _, end in everything) - everything[0][0]
    busy, computation = union(everything), union(spans(con, "= 'computation'", LEFT_OUT))
    assert (window - busy, computation, busy - computation, window) == SPLITS[name]


@pytest.mark.parametrize("name", UNIONS)
def test_unions_of_kinds(name: str) -> None:
    con = tables_of_real(name)
    assert (union(spans(con, "= 'computation'")), union(spans(con, "= 'memory'"))) == UNIONS[name]


LARGE = [pytest.param(name, marks=pytest.mark.deep) for name in LAUNCHES if name != ALEXNET]


@pytest.mark.parametrize("name", [ALEXNET, *LARGE])
def test_means_of_launches(name: str) -> None:
    con = tables_of_real(name)
    where = "true" if name == ALEXNET else LEFT_OUT
    sql = f"""
        SELECT count(*), avg(kernels.dur_ns), avg(runtime.dur_ns), avg(greatest(return_to_start_ns, 0))
        FROM correlations
        JOIN kernels ON kernels.event_id = kernel_id
        JOIN runtime ON runtime.event_id = correlations.runtime_id
        WHERE {where}"""
    count, *means = rows(con, sql)[0]
    assert count == LAUNCHES[name][0]
    assert means == pytest.approx(LAUNCHES[name][1:], abs=6)
