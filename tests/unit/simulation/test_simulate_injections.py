"""Simulator: each injected fault is visible in the trace and in the expected results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from simulated import INJECTED, read, section, simulate_injections, truth
from tracewarehouse.simulation.truth import CAUSES

# See test_simulate_recording.py.
OF_RECORDINGS = ("skew-start", "restart", "merge-files", "malformed-duration", "graph-gap")


@pytest.fixture(scope="module")
def injected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs with injected faults."""
    folder = tmp_path_factory.mktemp("injected")
    simulate_injections(folder, [kind for kind in INJECTED if kind not in OF_RECORDINGS])
    return folder


def lengths(folder: Path, rank: int, part: str) -> list[float]:
    return [e["dur"] for e in read(folder, rank)["traceEvents"] if e["ph"] == "X" and part in e["name"]]


def names(folder: Path, rank: int = 0) -> list[str]:
    return [event["name"] for event in read(folder, rank)["traceEvents"]]


def only(rows: list[dict[str, Any]], **where: object) -> list[dict[str, Any]]:
    return [row for row in rows if all(row[key] == value for key, value in where.items())]


def test_a_slow_rank_makes_others_wait(injected: Path) -> None:
    folder = injected / "slow-rank"
    assert sum(lengths(folder, 1, "gemm")) == pytest.approx(2 * sum(lengths(folder, 0, "gemm")), rel=0.01)
    worst = section(folder, "straggler")[0]
    others = [row["wait_ns"] for row in only(section(folder, "collectives"), rank=0)]
    assert worst["rank"] == 1
    assert worst["caused_wait_ns"] == sum(others)


@pytest.mark.parametrize(
    ("what", "factor", "more"),
    [
        ("compute", 2, []),
        ("compute", 2, ["blocking-item"]),  # where the host waits for the GPU, it is late because of it
        ("host", 4, []),
        ("data", 100, []),
    ],
)
def test_truth_names_the_straggler_and_cause(tmp_path: Path, what: str, factor: int, more: list[str]) -> None:
    injected = f"slow-rank:rank=5,what={what},factor={factor}"
    tw.simulate(tmp_path / "sim", ranks=8, tensor=2, layers=2, injections=[injected, *more])
    rows = section(tmp_path / "sim", "straggler")
    assert (rows[0]["rank"], rows[0]["cause"]) == (5, what)
    assert all(sum(row[f"{each}_ns"] for each in CAUSES) == row["caused_wait_ns"] for row in rows)
    met = section(tmp_path / "sim", "collectives")
    assert sum(row["caused_wait_ns"] for row in rows) == sum(row["wait_ns"] for row in met)
    # The other rank of its tensor group is late too, but only because it waited for rank 5.
    late = {
        row["rank"]: row["cause"] for row in rows if row["caused_wait_ns"] > rows[0]["caused_wait_ns"] / 10
    }
    assert set(late.values()) <= {what, "communication"}


def test_slow_host_and_slow_data_cause_idle_time(tmp_path: Path) -> None:
    for what, factor in (("host", 4), ("data", 400)):
        slow = f"slow-rank:rank=0,what={what},factor={factor}"
        tw.simulate(tmp_path / what, ranks=1, injections=[slow])
    tw.simulate(tmp_path / "none", ranks=1)
    idle = {
        name: section(tmp_path / name, "temporal_breakdown")[0]["idle_ns"]
        for name in ("none", "host", "data")
    }
    assert idle["none"] < idle["data"]
    assert idle["none"] < idle["host"]
    assert sum(lengths(tmp_path / "data", 0, "DataLoader")) > 300 * sum(
        lengths(tmp_path / "none", 0, "DataLoader")
    )
    assert sum(lengths(tmp_path / "host", 0, "LaunchKernel")) > 3 * sum(
        lengths(tmp_path / "none", 0, "LaunchKernel")
    )


def test_a_slow_kernel_takes_longer(injected: Path) -> None:
    slow, usual = (sum(lengths(injected / name, 0, "gemm")) for name in ("slow-kernel", "none"))
    assert slow == pytest.approx(1.3 * usual, rel=0.001)


def test_kernels_are_added_removed_and_renamed(injected: Path) -> None:
    assert sum("clone_mul" in name for name in names(injected / "extra-kernel")) == 3
    assert any("dropout" in name for name in names(injected / "none"))
    assert not any("dropout" in name for name in names(injected / "removed-kernel"))
    renamed, usual = names(injected / "renamed-kernel"), names(injected / "none")
    assert renamed.count("gelu_of_another_library") == sum("GeluCUDA" in name for name in usual) > 0
    assert not any("GeluCUDA" in name for name in renamed)


def test_a_stall_is_in_its_step(injected: Path) -> None:
    stalled, usual = (lengths(injected / name, 0, "DataLoader)") for name in ("dataloader-stall", "none"))
    assert [round(one - other, 3) for one, other in zip(stalled, usual, strict=True)] == [0, 8_000, 0]


def test_blocking_items_block_the_host(injected: Path) -> None:
    assert names(injected / "blocking-item").count("aten::item") == 3
    assert "aten::item" not in names(injected / "none")
    assert max(lengths(injected / "blocking-item", 0, "cudaStreamSynchronize")) > 100


def test_communication_is_exposed(injected: Path) -> None:
    exposed = {
        name: section(injected / name, "comm_comp_overlap")[0] for name in ("none", "no-overlap", "slow-link")
    }
    assert exposed["none"]["overlap_ns"] > 0 == exposed["no-overlap"]["overlap_ns"]
    assert exposed["slow-link"]["comm_ns"] > 2 * exposed["none"]["comm_ns"]
    slow, usual = (section(injected / name, "collectives") for name in ("slow-link", "none"))
    pairs = [(one["transfer_ns"], other["transfer_ns"]) for one, other in zip(slow, usual, strict=True)]
    assert all(one == pytest.approx(10 * other, abs=10) for one, other in pairs)


def test_one_collective_is_prolonged(injected: Path) -> None:
    long, usual = (section(injected / name, "collectives") for name in ("long-collective", "none"))
    more = {
        row["number"]: row["transfer_ns"] - other["transfer_ns"]
        for row, other in zip(long, usual, strict=True)
    }
    assert {number: ns for number, ns in more.items() if ns} == {2: 4_000_000}
    assert max(lengths(injected / "long-collective", 0, "nccl")) > 4_000


def test_memory_leaks(injected: Path) -> None:
    events = read(injected / "growing-memory")["traceEvents"]
    total = [event["args"]["Total Allocated"] for event in events if event["name"] == "[memory]"]
    ends = [section(injected / name, "memory_peak")[0]["end_bytes"] for name in ("growing-memory", "none")]
    assert ends[0] - ends[1] == 3 * 64_000_000
    assert total[-1] == ends[0]


def test_a_clock_has_offset_and_drift(injected: Path) -> None:
    rows = section(injected / "clock", "clocks")
    assert [(row["offset_ns"], row["drift_ppb"]) for row in rows] == [(0, 0), (1_500_250, 30_000)]
    off, usual = (
        [event["ts"] for event in read(injected / name, 1)["traceEvents"] if event.get("cat") == "kernel"]
        for name in ("clock", "none")
    )
    shifts = [one - other for one, other in zip(off, usual, strict=True)]
    assert shifts[0] == pytest.approx(1500.25, abs=0.2)
    assert shifts[-1] - shifts[0] == pytest.approx((usual[-1] - usual[0]) * 30e-6, abs=0.01)


def test_a_rank_is_missing(injected: Path, tmp_path: Path) -> None:
    assert [path.name for path in sorted((injected / "drop-ranks").iterdir())] == [
        "rank0.json.gz",
        "truth.json",
    ]
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(injected / "drop-ranks", run="missing")
    rules = wh.select(runs="missing").quality().rows()
    assert [row["rule"] for row in rules if row["rank"] is None] == ["ranks_missing"]
    assert truth(injected / "drop-ranks")["missing_ranks"] == [1]


def test_a_window_is_truncated(injected: Path) -> None:
    events = read(injected / "truncated-window")["traceEvents"]
    host = [event for event in events if event.get("cat") in ("cpu_op", "cuda_runtime")]
    whole = read(injected / "truncated-window", 1)["traceEvents"]
    first = min(event["ts"] for event in whole if event["ph"] == "X")
    assert min(event["ts"] for event in host) >= first + 399
    assert max(event["ts"] + event["dur"] for event in host) <= first + 1_201
    assert len(events) < len(whole)
    ends = [event for event in events if event["ph"] == "X" and event["args"].get("finished") is False]
    assert {round(event["ts"] + event["dur"] - first) for event in ends} == {1_200}  # cut, and said so
    frames = [event for event in events if event.get("cat") == "python_function"]
    known = {event["args"]["Python id"] for event in frames}
    assert {event["args"]["Python parent id"] for event in frames} <= known | {None}
    assert (
        sum(event["ts"] == min(frame["ts"] for frame in frames) for event in frames) > 2
    )  # open at the start


def test_lost_launches_and_lost_activities(injected: Path) -> None:
    before = only(section(injected / "before-window", "quality"), rank=0, rule="before_window")
    assert [row["rows"] for row in before] == [25]
    launches = only(section(injected / "lose-records", "quality"), rule="launch_without_gpu_activity")
    kept, usual = (len(section(injected / name, "launch_stats")) for name in ("lose-records", "none"))
    assert sum(row["rows"] for row in launches) == usual - kept > 0
    linked = [row for row in section(injected / "lost-launch", "launch_stats") if row["runtime_id"] is None]
    assert 0 < len(linked) < usual / 3
    found = only(section(injected / "lost-launch", "quality"), rule="missing_launch")
    assert sum(row["rows"] for row in found) == len(linked)
    starts = [e["id"] for e in read(injected / "lost-launch")["traceEvents"] if e["ph"] == "s"]
    assert len(starts) < len([e["id"] for e in read(injected / "none")["traceEvents"] if e["ph"] == "s"])
