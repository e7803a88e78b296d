"""The test data in the repository equals the output of its scripts."""

from __future__ import annotations

import gzip
import json
import re
import runpy
from pathlib import Path

import pytest

import tracewarehouse as tw

DATA = Path(__file__).parents[1] / "data"
MADE: dict[str, bytes] = runpy.run_path(str(DATA / "make_first_steps.py"))["files"]()


def content(name: str, stored: bytes) -> bytes:
    # Another release of zlib may compress the same content to other bytes.
    return gzip.decompress(stored) if name.endswith(".gz") else stored


@pytest.mark.parametrize("name", sorted(MADE))
def test_first_steps_is_fresh(name: str) -> None:
    stored = (DATA / name).read_bytes()
    assert content(name, stored) == content(name, MADE[name]), "run: python tests/data/make_first_steps.py"


def test_first_steps_has_no_other_file() -> None:
    folder = DATA / "first-steps"
    stored = {f"first-steps/{path.name}" for path in folder.iterdir()}
    assert stored == {name for name in MADE if name.startswith("first-steps/")}


def test_first_steps_says_that_it_is_synthetic() -> None:
    for name in MADE:
        if name.endswith(".gz"):
            assert b'"synthetic"' in gzip.decompress((DATA / name).read_bytes())


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """A warehouse with the runs of the repository."""
    warehouse = tw.open(tmp_path_factory.mktemp("own"))
    report = warehouse.ingest(DATA / "first-steps", DATA / "gloo-cpu", jobs=1)
    assert [file.state for file in report.files] == ["intact"] * 8
    return warehouse


def test_first_steps_shows_its_slow_rank(own: tw.Warehouse) -> None:
    rows = {row["rank"]: row for row in own.select(runs="first-steps").analyze("temporal_breakdown").rows()}
    others = [rank for rank in rows if rank != 2]
    # The slow rank waits for its data loader; the others wait for it in the first all_reduce of each step.
    assert all(rows[2]["idle_ns"] > 2 * rows[rank]["idle_ns"] > 0 for rank in others)
    assert all(rows[rank]["exposed_comm_ns"] > 3 * rows[2]["exposed_comm_ns"] > 0 for rank in others)


@pytest.mark.deep
def test_first_steps_has_what_the_analyses_need(own: tw.Warehouse) -> None:
    run = own.select(runs="first-steps")
    has_not = {
        "host",
        "memory_events",
        "memory_timeline",
        "kernel_counters",
        "critical_path",
        "wait_attribution",
    }
    has_not |= {"cpu_only", "gpu_metrics"}
    has_not |= {"snapshot", "flight_records", "kernel_metrics", "execution_nodes"}
    for contract in own.catalog.analyses():
        assert bool(run.analyze(contract.name).skipped) == bool(has_not.intersection(contract.needs)), (
            contract.ref
        )
    steps = run.analyze("step_summary").rows()
    assert len(steps) == 12 and not any(row["partial"] for row in steps)
    arguments = run.query(
        "SELECT DISTINCT collective, group_size, dtype FROM kernels WHERE kind = 'communication'"
    )
    assert {row["collective"] for row in arguments.rows()} == {"allreduce", "_allgather_base"}


def test_gloo_has_shapes_stacks_modules_and_memory(own: tw.Warehouse) -> None:
    facts = own.info("gloo-cpu").ranks.rows()
    assert [(row["rank"], row["world_size"], row["backend"]) for row in facts] == [
        (rank, 4, "gloo") for rank in range(4)
    ]
    for fact in ("shapes", "stacks", "modules", "memory_events"):
        assert all(row[fact] for row in facts), fact
    assert not any(row["gpu"] for row in facts)


@pytest.mark.parametrize("rank", range(4))
def test_gloo_operators_equal_those_of_the_profiler(rank: int, own: tw.Warehouse) -> None:
    said = json.loads((DATA / "gloo-cpu.key_averages.json").read_text())[f"rank{rank}"]
    rows = (
        own.select(runs="gloo-cpu", ranks=rank)
        .query("""
        SELECT regexp_replace(name, '^ProfilerStep#.*', 'ProfilerStep*') AS name, count(*) AS count,
            sum(dur_ns)::BIGINT AS total_ns
        FROM events WHERE category IN ('cpu_op', 'user_annotation') GROUP BY ALL""")
        .rows()
    )
    found = {row["name"]: row for row in rows}
    assert found.keys() == said.keys()
    for name, (count, total_us, _) in said.items():
        assert found[name]["count"] == count
        assert found[name]["total_ns"] == pytest.approx(1_000 * total_us, rel=0, abs=2), name


@pytest.mark.parametrize("rank", range(4))
def test_self_time_of_operators_equals_that_of_the_profiler(rank: int, own: tw.Warehouse) -> None:
    said = json.loads((DATA / "gloo-cpu.key_averages.json").read_text())[f"rank{rank}"]
    found = {row["name"]: row for row in own.select(runs="gloo-cpu", ranks=rank).op_summary().rows()}
    annotations = own.select(runs="gloo-cpu", ranks=rank).annotation_breakdown().rows()
    assert said.keys() - found.keys() == {
        re.sub("^ProfilerStep#.*", "ProfilerStep*", row["name"]) for row in annotations
    }
    for name, row in found.items():
        count, total_us, own_us = said[name]
        assert row["count"] == count
        assert row["host_ns"] == pytest.approx(1_000 * total_us, rel=0, abs=2), name
        assert row["host_self_ns"] == pytest.approx(1_000 * own_us, rel=0, abs=2), name
        assert row["kernel_sum_ns"] is None
