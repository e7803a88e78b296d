"""Blame as part of the warehouse, the ranks it names on simulated jobs, its laws, and real traces."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cli_runner
import sketch
import tracewarehouse as tw
from conftest import deep
from ingesting import files_under
from tracewarehouse.errors import ParamError
from tracewarehouse.warehouse import Warehouse

SMALL = {"ranks": 8, "steps": 6, "layers": 2, "stacks": False, "memory": False, "syncs": False}
TENSOR = {"tensor": 2}
PIPELINE = {"pipeline": 4, "layers": 4, "microbatches": 4, "steps": 8}
BOTH = {"tensor": 2, "pipeline": 2, "microbatches": 4}
SLOW = "slow-rank:rank={},what=compute,factor=1.5"
OFF = ["clock:rank=1,offset_us=500,drift_ppm=20", "clock:rank=4,offset_us=-300,drift_ppm=-10"]
# Name → layout, faults. The truth of each run says which ranks are to be named, and why.
RUNS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "tensor": (TENSOR, [SLOW.format(3)]),
    "pipeline": (PIPELINE, [SLOW.format(3)]),
    "missing-slow": (TENSOR, [SLOW.format(3), "missing-rank:rank=3"]),
}
RARE_RUNS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "both": (BOTH, [SLOW.format(5)]),
    "nothing": (TENSOR, []),
    "loading": (TENSOR, ["slow-rank:rank=6,what=data,factor=30"]),
    "copies": (TENSOR, ["slow-rank:rank=2,what=copies,factor=300"]),
    "two": ({**TENSOR, "steps": 8}, [SLOW.format(1), SLOW.format(6)]),
}
MORE_RUNS: dict[str, tuple[dict[str, Any], list[str]]] = {
    **RUNS,
    **RARE_RUNS,
    "data": ({}, [SLOW.format(6)]),
    "experts": ({"experts": True}, [SLOW.format(0)]),
    "host": ({"hidden": 256, "sequence": 256}, ["slow-rank:rank=2,what=host,factor=2"]),
    "clocks": (TENSOR, [SLOW.format(4), *OFF]),
    "missing": (TENSOR, [SLOW.format(3), "missing-rank:rank=0"]),
    "slow-link": (TENSOR, ["slow-link:group=tensor1,factor=4"]),
}


def simulated(folder: Path, runs: dict[str, tuple[dict[str, Any], list[str]]], seed: int = 0) -> Warehouse:
    """A warehouse with these runs, and their wait_attribution."""
    for name, (layout, faults) in runs.items():
        tw.simulate(folder / "traces" / name, **{**SMALL, **layout, "seed": seed, "injections": faults})
    wh = tw.open(folder / "warehouse")
    wh.ingest(folder / "traces", jobs=1)
    for name in runs:
        wh.derive("wait_attribution", name)
    return wh


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wait_attribution")


@pytest.fixture(scope="module")
def wh(folder: Path) -> Warehouse:
    return simulated(folder, RUNS)


@pytest.fixture(scope="module")
def rare_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rare")


@pytest.fixture(scope="module")
def rare(rare_folder: Path) -> Warehouse:
    return simulated(rare_folder, RARE_RUNS)


def named(wh: Warehouse, run: str) -> dict[int, str]:
    """Rank → the cause of most waits attributed to it, of each rank that is named, most waits first."""
    found: dict[int, str] = {}
    for row in wh.select(runs=run).straggler_causes().rows():
        if row["is_named"]:
            found.setdefault(row["rank"], row["cause"])
    return found


def injected(folder: Path, run: str) -> dict[int, str]:
    """Rank → cause, as the simulator knows them."""
    truth = json.loads((folder / "traces" / run / "truth.json").read_text(encoding="utf-8"))
    return dict(truth["sections"]["wait_attribution"]["rows"])


@pytest.mark.parametrize("run", RUNS)
def test_the_injected_ranks_are_named_with_their_causes(folder: Path, wh: Warehouse, run: str) -> None:
    assert named(wh, run) == injected(folder, run)
    assert bool(injected(folder, run)) == (run != "missing-slow")


@pytest.mark.deep
@pytest.mark.parametrize("run", RARE_RUNS)
def test_the_ranks_of_rare_faults_are_named(rare_folder: Path, rare: Warehouse, run: str) -> None:
    assert named(rare, run) == injected(rare_folder, run)
    assert bool(injected(rare_folder, run)) == (run != "nothing")
    test_the_parts_of_waits_add_up(rare, run)


@pytest.mark.parametrize("run", ["tensor", "pipeline"])
def test_a_slow_rank_gets_most_of_the_blame(folder: Path, wh: Warehouse, run: str) -> None:
    (slow,) = injected(folder, run)
    rows = wh.select(runs=run).straggler_causes().rows()
    assert sum(row["share"] for row in rows if row["rank"] == slow) > 0.85
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    findings = wh.select(runs=run).slow_rank(warning_share=0.01).rows()
    assert {row["rank"] for row in findings if row["severity"] != "none"} == {slow}


def test_who_is_not_named_has_a_reason(wh: Warehouse) -> None:
    rows = wh.straggler_causes().rows()
    assert all((row["reason"] is None) == row["is_named"] for row in rows)
    reasons = {row["reason"] for row in rows if not row["is_named"]}
    assert {
        "too small a part of the step",
        "late because of communication that is slow or not matched",
    } <= reasons


@pytest.mark.parametrize("run", RUNS)
def test_the_parts_of_waits_add_up(wh: Warehouse, run: str) -> None:
    part = wh.select(runs=run)
    waits = "SELECT instance_id, rank, wait_ns FROM collective_arrivals WHERE wait_ns > 0"
    parts = "SELECT instance_id, waiter_rank AS rank, sum(wait_ns)::BIGINT AS wait_ns"
    parts += " FROM wait_attribution GROUP BY ALL"
    assert part.query(f"({waits}) EXCEPT ({parts}) UNION ALL (({parts}) EXCEPT ({waits}))").rows() == []
    matrix = part.wait_matrix().rows()
    assert sum(row["attributed_ns"] for row in matrix) == sum(row["wait_ns"] for row in matrix) > 0
    kinds = ("wait_ns", "pair_wait_ns", "warmup_wait_ns", "drain_wait_ns", "possible_wait_ns")
    assert all(row["total_wait_ns"] == sum(row[kind] for kind in kinds) for row in matrix)


def test_a_pipeline_waits_by_design(wh: Warehouse) -> None:
    """Waits in sends and receives are many, most of them while it fills, and none is attributed to a rank."""
    part = wh.select(runs="pipeline")
    matrix = part.wait_matrix().polars()
    pairs, warmup, drain = (
        matrix[name].sum() for name in ("pair_wait_ns", "warmup_wait_ns", "drain_wait_ns")
    )
    assert pairs + warmup + drain > matrix["wait_ns"].sum() > 0
    kept = "SELECT sum(pair_wait_ns)::BIGINT AS wait_ns FROM collective_arrivals WHERE last_rank <> rank"
    assert part.query(kept).rows() == [{"wait_ns": pairs + warmup + drain}]
    # The first stage receives nothing before its first computation.
    stages = part.pipeline_bubbles().polars().select("rank", "stage").unique()
    filling = matrix.filter(pl.col("warmup_wait_ns") > 0).join(stages, on="rank")["stage"]
    assert set(filling) == {1, 2, 3}


def blame_rows(
    wh: Warehouse, run: str, rename: Callable[[int], int] = lambda rank: rank
) -> Counter[tuple[Any, ...]]:
    """The rows of wait_attribution by what does not depend on names of ranks, which are mapped."""
    rows = wh.query(
        "SELECT rank, waiter_rank, step, depth, cause, certain, wait_ns"
        f" FROM wait_attribution WHERE run_id = '{run}'"
    ).rows()
    return Counter(
        (rename(row["rank"]), rename(row["waiter_rank"]), *(row[key] for key in row if "rank" not in key))
        for row in rows
    )


def amounts(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Charged rank, waiting rank, step and cause → wait time."""
    found: Counter[tuple[Any, ...]] = Counter()
    for rank, waiter, step, _, cause, _, wait_ns in rows.elements():
        found[rank, waiter, step, cause] += wait_ns
    return found


def renamed(text: str, rename: Callable[[int], int]) -> str:
    """A trace of a rank whose number, and those in its groups, are renamed."""
    trace = json.loads(text)
    info = trace["distributedInfo"]
    info["rank"] = rename(info["rank"])
    for group in info["pg_config"]:
        group["ranks"] = sorted(rename(rank) for rank in group["ranks"])
    for event in trace["traceEvents"]:
        args = event.get("args", {})
        if "Process Group Ranks" in args:
            ranks = json.loads(args["Process Group Ranks"])
            args["Process Group Ranks"] = json.dumps(sorted(map(rename, ranks)))
    return json.dumps(trace)


def permuted(rank: int) -> int:
    """Another order of the 8 ranks."""
    return (3 * rank + 1) % 8


@pytest.mark.deep
def test_numbers_of_ranks_make_no_difference(rare_folder: Path, rare: Warehouse, tmp_path: Path) -> None:
    """Up to rounding: clocks are aligned with that of the lowest rank, and the last rank gets remainders."""
    import gzip

    for path in (rare_folder / "traces" / "both").glob("rank*.json.gz"):
        text = renamed(gzip.decompress(path.read_bytes()).decode(), permuted)
        number = json.loads(text)["distributedInfo"]["rank"]
        target = tmp_path / "traces" / "both" / f"rank{number}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    other = tw.open(tmp_path / "warehouse")
    other.ingest(tmp_path / "traces", jobs=1)
    other.derive("wait_attribution", "both")
    back = {permuted(rank): rank for rank in range(8)}
    same, found = amounts(blame_rows(rare, "both")), amounts(blame_rows(other, "both", back.__getitem__))
    assert all(abs(same[key] - found[key]) <= 20 for key in {*same, *found})
    assert max(same.values()) > 100_000 and sum(same.values()) == sum(found.values())
    assert {back[rank]: cause for rank, cause in named(other, "both").items()} == named(rare, "both")
    limits = [
        each.query("SELECT DISTINCT null_p99 FROM wait_attribution_basis WHERE run_id = 'both'").rows()[0][
            "null_p99"
        ]
        for each in (rare, other)
    ]
    assert limits[0] == pytest.approx(limits[1], rel=1e-4)


@pytest.mark.deep
def test_the_order_of_files_makes_no_difference(folder: Path, wh: Warehouse, tmp_path: Path) -> None:
    other = tw.open(tmp_path / "warehouse")
    for path in sorted((folder / "traces" / "tensor").glob("rank*.json.gz"), reverse=True):
        other.ingest(path, run="tensor")
    other.derive("wait_attribution", "tensor")
    assert blame_rows(other, "tensor") == blame_rows(wh, "tensor")


def test_what_is_derived_is_not_derived_again(wh: Warehouse) -> None:
    files = files_under(wh.root)
    assert wh.derive("wait_attribution", "tensor").version is None
    assert files_under(wh.root) == files
    assert wh.verify() == []
    with pytest.raises(ParamError, match="wait_attribution has no scopes"):
        wh.derive("wait_attribution", "tensor", ranks=0)


@pytest.fixture(scope="module")
def underived(folder: Path, wh: Warehouse, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with a run that lacks its last rank and has no wait_attribution."""
    root = tmp_path_factory.mktemp("underived") / "warehouse"
    paths = [folder / "traces" / "tensor" / f"rank{rank}.json.gz" for rank in range(7)]
    tw.open(root).ingest(*paths, run="job", jobs=1)
    return root


def test_the_command_and_blame_that_is_out_of_date_once_a_rank_comes(
    folder: Path, underived: Path, tmp_path: Path
) -> None:
    wh = tw.open(shutil.copytree(underived, tmp_path / "warehouse"))
    assert {each.reason for each in wh.straggler_causes().skipped} == {"wait_attribution is not derived"}
    done = cli_runner.tw("derive", "wait_attribution", "job", "-w", wh.root)
    assert done.out == "job@v2: 7 ranks\n"
    assert (
        cli_runner.tw("derive", "wait_attribution", "job", "-w", wh.root).out
        == "job: already derived: 7 ranks\n"
    )
    assert not wh.straggler_causes().skipped
    wh.ingest(folder / "traces" / "tensor" / "rank7.json.gz", run="job")
    reasons = {each.reason for each in wh.straggler_causes().skipped}
    assert reasons == {
        "wait_attribution is not derived for the ranks that the run has now",
        "wait_attribution is not derived",
    }
    assert {row["attributed_ns"] for row in wh.stragglers().rows()} == {None}
    assert {row["wait_attribution"] for row in wh.query("SELECT wait_attribution FROM ranks").rows()} == {
        False
    }
    assert wh.derive("wait_attribution", "job").version is not None
    assert named(wh, "job") == {3: "computation"}


LAUNCH = "ncclDevKernel_AllReduce 0 {}"
REDUCE = f'a {{}} gpu s20 {LAUNCH} "Collective name"=allreduce "Process Group Name"={{}} "Group size"=2\n'


@pytest.mark.parametrize(
    ("traces", "reason"),
    [
        (
            REDUCE.format(0, 30, "x") + REDUCE.format(1, 20, "y"),
            "no collective is matched with another rank (2 are not)",
        ),
        (
            REDUCE.format(0, 20, "x") + REDUCE.format(1, 20, "x"),
            "no rank waited for another one at a collective",
        ),
    ],
)
def test_without_blame_the_reason_is_named(tmp_path: Path, traces: str, reason: str) -> None:
    sketch.write(traces, tmp_path / "traces")
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(tmp_path / "traces", jobs=1)
    wh.derive("wait_attribution", "a")
    found = wh.straggler_causes()
    assert found.rows() == [] and {each.reason for each in found.skipped} == {reason}


def test_without_blame_no_rank_is_called_a_straggler_where_groups_nest(underived: Path) -> None:
    (row,) = (row for row in tw.open(underived).slow_rank().rows() if row["severity"] != "none")
    assert row["confidence"] == "low" and "tw derive wait_attribution" in row["advice"]


TRACES = Path(os.environ.get("TW_TRACES", "/nonexistent"))


@pytest.mark.deep
@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the real traces: set TW_TRACES")
@pytest.mark.parametrize("run", ["multirank-gloo-cpu-4r", *deep("multirank-dlrm-v100-8r")])
def test_real_collectives_overlap_in_aligned_time(tmp_path: Path, run: str) -> None:
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(TRACES / run, jobs=1)
    wh.derive("wait_attribution", run)
    apart = wh.query(
        "SELECT instance_id FROM collective_arrivals WHERE instance_id IS NOT NULL GROUP BY instance_id "
        "HAVING max(aligned_start_ns - coalesce(uncertainty_ns, 0)) "
        "> min(aligned_start_ns + dur_ns + coalesce(uncertainty_ns, 0))"
    )
    assert apart.rows() == []
    states = wh.query("SELECT DISTINCT state FROM collective_arrivals").rows()
    assert [row["state"] for row in states] == ["complete"]


@pytest.mark.deep
@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the real traces: set TW_TRACES")
def test_the_rank_that_sleeps_while_it_loads_a_batch(tmp_path: Path) -> None:
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(TRACES / "multirank-gloo-cpu-4r")
    wh.derive("wait_attribution", "multirank-gloo-cpu-4r")
    first, *_ = wh.straggler_causes().rows()
    assert (first["rank"], first["cause"], first["steps_first"]) == (2, "data", 3)
    assert first["share"] > 0.9 and first["reason"] == "too few steps to rule out chance"
    groups = wh.query(
        "SELECT collective, members, group_source, count(*) AS count FROM collective_matches "
        "GROUP BY ALL ORDER BY collective"
    )
    assert [tuple(row.values()) for row in groups.rows()] == [
        ("all_gather", 2, "elimination", 12),
        ("all_reduce", 4, "elimination", 24),
    ]


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(1, 20))
def test_more_seeds(tmp_path: Path, seed: int) -> None:
    runs = {name: (dict(layout, steps=12), faults) for name, (layout, faults) in MORE_RUNS.items()}
    wh = simulated(tmp_path, runs, seed)
    wrong = {run: named(wh, run) for run in runs if named(wh, run) != injected(tmp_path, run)}
    assert not wrong
