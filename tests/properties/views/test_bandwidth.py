"""Bandwidth, exposed communication and bubbles against the schedule; bandwidth of real jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import deep, real_traces
from simulated import section
from tracewarehouse.simulation import Noise

QUIET = {"noise": Noise(0, 0, 0, 0), "stacks": False, "memory": False}
LAYOUTS: dict[str, dict[str, Any]] = {
    "tensor": {"ranks": 4, "tensor": 2, "layers": 2, "steps": 2},
    "sharded": {"ranks": 4, "sharded": True, "layers": 2, "steps": 2},
    "experts": {"ranks": 4, "experts": True, "layers": 2, "steps": 2},
    "nodes": {"ranks": 4, "tensor": 2, "pipeline": 2, "ranks_per_node": 2, "layers": 2, "microbatches": 2},
}
NAMES = {"allreduce": "all_reduce", "recv": "send"}
FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    **dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), lambda ranks: (ranks - 1) / ranks),
    "send": lambda ranks: 1.0,
}


def simulated(folder: Path, name: str, **settings: Any) -> tw.Warehouse:
    """A warehouse with one simulated run, `name`, in a folder of that name."""
    tw.simulate(folder / name, **{**QUIET, **settings})
    wh = tw.open(folder / "warehouse")
    wh.ingest(folder / name, run=name, jobs=1)
    return wh.select(name)


@pytest.mark.parametrize("layout", ["experts", *deep("tensor", "sharded", "nodes")])
def test_bandwidth_is_that_of_the_schedule(layout: str, tmp_path: Path) -> None:
    """Size and transfer time of every collective; a broadcast has no transfer time."""
    wh = simulated(tmp_path, layout, **LAYOUTS[layout])
    wanted: Counter[tuple[Any, ...]] = Counter()
    for row in section(tmp_path / layout, "collectives"):
        name = NAMES.get(row["name"], row["name"])
        transfer = None if name == "broadcast" else row["transfer_ns"]
        wanted[row["group"], name, row["ranks"], row["bytes"], transfer] += 1
    found: Counter[tuple[Any, ...]] = Counter()
    for row in wh.query("SELECT * FROM collective_instances").rows():
        key = row["group_key"].split()[0], row["collective"], row["members"]
        found[*key, row["message_bytes"], row["transfer_ns"]] += row["members"]
        if row["transfer_ns"] is not None:
            busbw = row["message_bytes"] * FACTORS[row["collective"]](row["members"]) / row["transfer_ns"]
            assert row["busbw_bytes_per_ns"] == pytest.approx(busbw, rel=1e-12)
    assert found == wanted


@pytest.mark.deep
def test_a_slow_link_slows_its_group_only(tmp_path: Path) -> None:
    settings = {"ranks": 8, "tensor": 4, "layers": 2, "steps": 2}
    wh = simulated(tmp_path, "none", **settings)
    slow = simulated(tmp_path, "slow", injections=["slow-link:group=data1,factor=4"], **settings)
    before, after = (bandwidths(each) for each in (wh, slow))
    assert before.keys() == after.keys()
    for key, busbw in before.items():
        factor = 4 if key[0] == "data1" else 1
        assert after[key] == (None if busbw is None else pytest.approx(busbw / factor, rel=1e-4)), key
    for row in slow.analyze("collective_bandwidth").rows():
        if row["collective"] == "all_reduce" and row["group_key"].startswith("data"):
            is_slow = row["group_key"].startswith("data1 ")
            assert row["relative_busbw"] == pytest.approx(0.25 if is_slow else 1, rel=1e-4)
    assert slow.analyze("stragglers").rows()[0]["caused_wait_ns"] >= 0
    assert {row["count"] for row in wh.analyze("slow_network").rows()} == {0}
    found = slow.analyze("slow_network", warning_share=0.001).rows()
    assert {row["rank"] for row in found if row["severity"] != "none"} == {1, 5}  # data1


def bandwidths(wh: tw.Warehouse) -> dict[tuple[str, str, int], float | None]:
    """Group, collective and size bucket → bus bandwidth."""
    return {
        (row["group_key"].split()[0], row["collective"], row["size_bucket_bytes"]): row["busbw_bytes_per_ns"]
        for row in wh.analyze("collective_bandwidth").rows()
    }


def test_link_share_is_of_the_peak_within_a_host(tmp_path: Path) -> None:
    wh = simulated(tmp_path, "one", ranks=2, layers=2, steps=2, gpu="A100")
    wh2 = simulated(tmp_path, "two", ranks=2, layers=2, steps=2, gpu="A100", ranks_per_node=1)
    shares = [row for row in wh.analyze("collective_bandwidth").rows() if row["busbw_bytes_per_ns"]]
    assert shares and all(
        row["link_share"] == pytest.approx(row["busbw_bytes_per_ns"] / 300) for row in shares
    )
    assert all(row["link_share"] is None for row in wh2.analyze("collective_bandwidth").rows())


DLRM = {
    # (collective, bytes): instances, transfer in ns, algorithm and bus bandwidth.
    ("all_reduce", 1_576_964): (1, 86_000, 18.337, 32.089),
    ("all_reduce", 907_840): (1, 69_000, 13.157, 23.025),
    ("all_reduce", 448): (1, 20_000, 0.022, 0.039),
    ("all_to_all", 24_576): (2, 10_000, 2.458, 2.150),
    ("all_to_all", 13_568): (1, 7_000, 1.938, 1.696),
    ("all_to_all", 1_536): (1, 7_000, 0.219, 0.192),
    ("all_to_all", 192): (1, 8_000, 0.024, 0.021),
}


@pytest.mark.deep
@pytest.mark.skipif(real_traces() is None, reason="needs TW_TRACES")
def test_a_real_job_on_8_gpus(tmp_path: Path) -> None:
    wh = tw.open(tmp_path)
    wh.ingest(real_traces() / "multirank-dlrm-v100-8r", run="dlrm", jobs=1)
    rows = wh.analyze("collective_bandwidth").rows()
    found = {
        (row["collective"], row["message_bytes"]): (
            row["instances"],
            row["transfer_p50_ns"],
            round(row["algbw_bytes_per_ns"], 3),
            round(row["busbw_bytes_per_ns"], 3),
        )
        for row in rows
    }
    assert found == DLRM
    assert {row["resolution_ns"] for row in rows} == {1_000}


@pytest.mark.skipif(real_traces() is None, reason="needs TW_TRACES")
@pytest.mark.deep
def test_a_real_job_on_4_cpus_is_as_brute_force_says(tmp_path: Path) -> None:
    """The n-th all_reduce of each size and step is one; its shortest duration is the transfer."""
    import gzip
    import json

    folder = real_traces() / "multirank-gloo-cpu-4r"
    files = sorted(folder.glob("rank?.pt.trace.json.gz"))
    wh = tw.open(tmp_path)
    wh.ingest(*files, run="gloo", jobs=1)
    durations: dict[tuple[int, int], list[int]] = defaultdict(list)
    for path in files:
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        reduced = [each for each in events if each.get("name") == "gloo:all_reduce" and each["ph"] == "X"]
        for number, each in enumerate(sorted(reduced, key=lambda each: each["ts"])):
            (shape,) = each["args"]["Input Dims"]
            size = 4
            for length in shape:
                size *= length
            start, end = round(each["ts"] * 1_000), round((each["ts"] + each["dur"]) * 1_000)
            durations[number, size].append(end - start)
    assert len(durations) == 6 and all(len(each) == 4 for each in durations.values())
    wanted: dict[int, list[float]] = defaultdict(list)
    for (_, size), lengths in durations.items():
        wanted[size].append(size / min(lengths) * 2 * 3 / 4)
    found = {
        row["message_bytes"]: row["busbw_bytes_per_ns"]
        for row in wh.analyze("collective_bandwidth").rows()
        if row["collective"] == "all_reduce"
    }
    assert found.keys() == wanted.keys()
    for size, values in wanted.items():
        assert found[size] == pytest.approx(sorted(values)[len(values) // 2], rel=1e-6)


@pytest.mark.parametrize("layout", ["tensor", *deep("experts", "sharded", "nodes")])
def test_exposed_communication_is_split_as_scheduled(layout: str, tmp_path: Path) -> None:
    """Its parts add up to it; no more is waiting than the schedule has, and nothing is unmatched."""
    wh = simulated(tmp_path, layout, **{**LAYOUTS[layout], "noise": Noise()})
    waited: Counter[int] = Counter()
    for row in section(tmp_path / layout, "collectives"):
        waited[row["rank"]] += row["wait_ns"]
    parts: dict[int, Counter[str]] = defaultdict(Counter)
    for row in wh.analyze("window_account").rows():
        parts[row["rank"]][row["category"]] += row["category_ns"]
    for row in section(tmp_path / layout, "temporal_breakdown"):
        found = parts[row["rank"]]
        assert found["compute"] == row["compute_ns"]
        assert found["exposed_wait"] + found["exposed_transfer"] == row["exposed_comm_ns"]
        assert found["exposed_unassigned"] == 0
        assert 0 <= found["exposed_wait"] <= waited[row["rank"]]
    assert sum(each["exposed_wait"] for each in parts.values()) > 0


@pytest.mark.deep
def test_bubbles_are_those_of_the_schedule(tmp_path: Path) -> None:
    """Stages of nearly equal length, with fast links: the ideal is the lower bound, and nearly reached."""
    settings = {"ranks": 4, "pipeline": 4, "layers": 32, "hidden": 2048, "microbatches": 4, "steps": 3}
    wh = simulated(tmp_path, "fast", link_gb_per_s=100_000, **settings)
    slow = simulated(tmp_path, "slow", link_gb_per_s=5, **settings)
    periods = {
        (row["rank"], row["step"]): row["period_ns"] for row in section(tmp_path / "fast", "step_summary")
    }
    rows = wh.analyze("pipeline_bubbles").rows()
    assert {(row["rank"], row["step"]): row["period_ns"] for row in rows} == periods
    compute: Counter[int] = Counter()
    for row in rows:
        compute[row["rank"]] += row["busy_compute_ns"]
        assert (row["stage"], row["stages"], row["microbatches"]) == (row["rank"], 4, 4)
        assert row["ideal_bubble"] == pytest.approx(3 / 7)
        assert row["bubble_ns"] + row["busy_compute_ns"] == row["period_ns"]
        assert row["wait_recv_ns"] + row["wait_send_ns"] <= row["bubble_ns"]
        if row["step"] > 1 and row["stage"] < 3:  # the last stage has the loss, too
            assert 3 / 7 <= row["bubble"] < 3 / 7 + 0.05
    scheduled = {row["rank"]: row["compute_ns"] for row in section(tmp_path / "fast", "temporal_breakdown")}
    assert compute == scheduled
    for row, other in zip(rows, slow.analyze("pipeline_bubbles").rows(), strict=True):
        assert row["step"] == 1 or other["bubble"] > row["bubble"]


@pytest.mark.deep
def test_there_are_no_bubbles_without_a_pipeline(tmp_path: Path) -> None:
    assert simulated(tmp_path, "data", ranks=2, layers=2, steps=2).analyze("pipeline_bubbles").rows() == []


@pytest.mark.deep
def test_imbalance_of_experts_is_named_and_blames_no_rank(tmp_path: Path) -> None:
    """Every rank sends three times as much to rank 2 as to each other rank."""
    settings = {"ranks": 4, "experts": True, "layers": 2, "steps": 2}
    even = simulated(tmp_path, "even", **settings)
    wh = simulated(tmp_path, "uneven", injections=["imbalance:rank=2,factor=3"], **settings)
    assert {row["out_imbalance"] for row in even.analyze("alltoall_imbalance").rows()} == {1.0}
    splits = "SELECT rank, peer, in_share FROM alltoall_splits WHERE in_share IS NOT NULL"
    assert even.query(splits).rows() == []
    rows = wh.analyze("alltoall_imbalance").rows()
    assert rows and {(row["out_max_rank"], row["out_imbalance"]) for row in rows} == {(2, 2.0)}
    assert {row["in_imbalance"] for row in rows} == {1.0}
    sent = wh.query(splits).rows()
    assert {(row["rank"], row["peer"]) for row in sent} == set(product(range(4), range(4)))
    for row in sent:  # whole tokens
        assert row["in_share"] == pytest.approx((3 if row["peer"] == 2 else 1) / 6, rel=1e-3)
    scheduled = Counter(
        (row["bytes"], row["transfer_ns"])
        for row in section(tmp_path / "uneven", "collectives")
        if row["name"] == "all_to_all"
    )
    instances = wh.query("SELECT * FROM collective_instances WHERE collective = 'all_to_all_v'").rows()
    found: Counter[tuple[int, int]] = Counter()
    for row in instances:
        found[row["message_bytes"], row["transfer_ns"]] += row["members"]
        assert row["algbw_bytes_per_ns"] == row["busbw_bytes_per_ns"]
    assert found == scheduled
    waited = [sum(row["caused_wait_ns"] for row in each.analyze("stragglers").rows()) for each in (even, wh)]
    assert waited[1] <= 1.1 * waited[0]
