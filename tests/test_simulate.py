"""The simulator: its traces look like torch's, what is planted shows, and the analyses give its truth."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import ROOT, real_traces
from tracewarehouse.catalog import Catalog
from tracewarehouse.errors import ParamError, TwError, UnknownName
from tracewarehouse.simulation import KINDS, Injection

ANALYSES = (
    "temporal_breakdown",
    "comm_comp_overlap",
    "kernel_summary",
    "launch_stats",
    "coverage",
    "quality",
    "step_summary",
)
WITNESSED: frozenset[str] = frozenset()  # analyses that a brute-force witness covers instead
SMALL = {"steps": 2, "layers": 2, "hidden": 256, "sequence": 256}
LAYOUTS: dict[str, dict[str, Any]] = {
    "one": {"ranks": 1},
    "data": {"ranks": 2, "counters": True},
    "tensor": {"ranks": 4, "tensor": 2, "dependent_launch": True},
    "pipeline": {"ranks": 4, "pipeline": 2, "microbatches": 2},
    "sharded": {"ranks": 2, "sharded": True, "dialect": "epoch"},
    "experts": {"ranks": 2, "experts": True, "gpu": "A100", "stacks": False},
    "amd": {"ranks": 2, "tensor": 2, "gpu": "MI300X"},
    "old": {"ranks": 2, "gpu": "V100", "dialect": "old"},
    "graphs": {"ranks": 2, "tensor": 2, "mode": "inference", "graphs": True},
}
PLANTED = {
    "slow-rank": "slow-rank:rank=1,what=compute,factor=2",
    "slow-kernel": "slow-kernel:kernel=gemm,percent=30",
    "extra-kernel": "extra-kernel:us=80",
    "removed-kernel": "removed-kernel:kernel=dropout",
    "renamed-kernel": "renamed-kernel:kernel=gelu,to=gelu_of_another_library",
    "dataloader-stall": "dataloader-stall:step=1,ms=8",
    "blocking-item": "blocking-item",
    "no-overlap": "no-overlap",
    "slow-link": "slow-link:group=data0,factor=10",
    "long-collective": "long-collective:group=data0,collective=2,ms=4",
    "growing-memory": "growing-memory:mb=64",
    "clock": "clock:rank=1,offset_us=1500.25,drift_ppm=30",
    "missing-rank": "missing-rank:rank=1",
    "truncated-window": "truncated-window:rank=0,from_ms=1,to_ms=3",
    "before-window": "before-window:rank=0,count=25",
    "lost-gpu": "lost-gpu:share=0.2",
}


def read(folder: Path, rank: int = 0) -> dict[str, Any]:
    """A rank's trace as Python's own JSON reads it."""
    trace: dict[str, Any] = json.loads(gzip.decompress((folder / f"rank{rank}.json.gz").read_bytes()))
    return trace


def section(folder: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a section of the truth."""
    found = json.loads((folder / "truth.json").read_text(encoding="utf-8"))["sections"][name]
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def check(wh: tw.Warehouse, run: str, folder: Path) -> None:
    """Every analysis with a section of the truth equals it in all columns of the section."""
    for name in ANALYSES:
        truth = section(folder, name)
        columns = list(truth[0]) if truth else ["rank"]
        answers = [row for row in wh.select(runs=run).run(name).rows() if row["rank"] is not None]
        told = sorted(repr([row[column] for column in columns]) for row in answers)
        assert told == sorted(repr(list(row.values())) for row in truth), f"{run}: {name}"


def test_every_analysis_has_a_truth_or_a_witness() -> None:
    known = {contract.name for contract in Catalog.load().analyses()}
    assert known - set(ANALYSES) - WITNESSED == set()


def agree(tmp_path: Path, seeds: range) -> None:
    wh = tw.open(tmp_path / "warehouse")
    for layout, knobs in LAYOUTS.items():
        for seed in seeds:
            tw.simulate(tmp_path / "sim" / f"{layout}-{seed}", seed=seed, **SMALL, **knobs)
    report = wh.ingest(tmp_path / "sim")
    assert {each.state for each in report.files} == {"whole", "skipped"}  # skipped: truth.json
    for folder in sorted((tmp_path / "sim").iterdir()):
        check(wh, f"sim.{folder.name}" if f"sim.{folder.name}" in wh.store.runs() else folder.name, folder)


def test_analyses_give_the_truth(tmp_path: Path) -> None:
    agree(tmp_path, range(3))


@pytest.mark.deep
def test_analyses_give_the_truth_of_many_seeds(tmp_path: Path) -> None:
    agree(tmp_path, range(20))


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tw.Warehouse]:
    """A run without trouble, `none`, and one for each thing to plant, by its kind, in a warehouse."""
    folder = tmp_path_factory.mktemp("planted")
    knobs: dict[str, Any] = {"ranks": 2, "layers": 2, "steps": 3, "noise": tw.simulation.Noise(0, 0, 0, 0)}
    tw.simulate(folder / "sim" / "none", **knobs)
    for kind, text in PLANTED.items():
        tw.simulate(folder / "sim" / kind, injections=[text], **knobs)
    wh = tw.open(folder / "warehouse")
    wh.ingest(folder / "sim")
    return folder / "sim", wh


def test_everything_that_can_be_planted_is_tested() -> None:
    assert set(PLANTED) == set(KINDS)


@pytest.mark.parametrize("kind", PLANTED)
def test_truth_holds_where_something_is_planted(planted: tuple[Path, tw.Warehouse], kind: str) -> None:
    folder, wh = planted
    check(wh, kind, folder / kind)
    told = json.loads((folder / kind / "truth.json").read_text(encoding="utf-8"))["injected"]
    assert [each["kind"] for each in told] == [kind]


def lengths(folder: Path, rank: int, part: str) -> list[float]:
    return [e["dur"] for e in read(folder, rank)["traceEvents"] if e["ph"] == "X" and part in e["name"]]


def names(folder: Path, rank: int = 0) -> list[str]:
    return [event["name"] for event in read(folder, rank)["traceEvents"]]


def only(rows: list[dict[str, Any]], **where: object) -> list[dict[str, Any]]:
    return [row for row in rows if all(row[key] == value for key, value in where.items())]


def test_a_slow_rank_lets_the_other_wait(planted: tuple[Path, tw.Warehouse]) -> None:
    folder = planted[0] / "slow-rank"
    assert sum(lengths(folder, 1, "gemm")) == pytest.approx(2 * sum(lengths(folder, 0, "gemm")), rel=0.01)
    worst = section(folder, "straggler")[0]
    others = [row["wait_ns"] for row in only(section(folder, "collectives"), rank=0)]
    assert worst["rank"] == 1
    assert worst["caused_wait_ns"] == sum(others)


def test_a_slow_host_and_slow_data_make_idle_time(tmp_path: Path) -> None:
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


def test_a_slow_kernel_takes_longer(planted: tuple[Path, tw.Warehouse]) -> None:
    slow, usual = (sum(lengths(planted[0] / name, 0, "gemm")) for name in ("slow-kernel", "none"))
    assert slow == pytest.approx(1.3 * usual, rel=0.001)


def test_kernels_come_go_and_change_their_names(planted: tuple[Path, tw.Warehouse]) -> None:
    folder = planted[0]
    assert sum("clone_mul" in name for name in names(folder / "extra-kernel")) == 3
    assert any("dropout" in name for name in names(folder / "none"))
    assert not any("dropout" in name for name in names(folder / "removed-kernel"))
    renamed, usual = names(folder / "renamed-kernel"), names(folder / "none")
    assert renamed.count("gelu_of_another_library") == sum("GeluCUDA" in name for name in usual) > 0
    assert not any("GeluCUDA" in name for name in renamed)


def test_a_stall_lies_in_its_step(planted: tuple[Path, tw.Warehouse]) -> None:
    stalled, usual = (lengths(planted[0] / name, 0, "DataLoader)") for name in ("dataloader-stall", "none"))
    assert [round(one - other, 3) for one, other in zip(stalled, usual, strict=True)] == [0, 8_000, 0]


def test_items_block_the_host(planted: tuple[Path, tw.Warehouse]) -> None:
    assert names(planted[0] / "blocking-item").count("aten::item") == 3
    assert "aten::item" not in names(planted[0] / "none")
    assert max(lengths(planted[0] / "blocking-item", 0, "cudaStreamSynchronize")) > 100


def test_communication_is_exposed(planted: tuple[Path, tw.Warehouse]) -> None:
    folder = planted[0]
    exposed = {
        name: section(folder / name, "comm_comp_overlap")[0] for name in ("none", "no-overlap", "slow-link")
    }
    assert exposed["none"]["overlap_ns"] > 0 == exposed["no-overlap"]["overlap_ns"]
    assert exposed["slow-link"]["comm_ns"] > 2 * exposed["none"]["comm_ns"]
    slow, usual = (section(folder / name, "collectives") for name in ("slow-link", "none"))
    pairs = [(one["transfer_ns"], other["transfer_ns"]) for one, other in zip(slow, usual, strict=True)]
    assert all(one == pytest.approx(10 * other, abs=10) for one, other in pairs)


def test_one_collective_is_long(planted: tuple[Path, tw.Warehouse]) -> None:
    long, usual = (section(planted[0] / name, "collectives") for name in ("long-collective", "none"))
    more = {
        row["number"]: row["transfer_ns"] - other["transfer_ns"]
        for row, other in zip(long, usual, strict=True)
    }
    assert {number: ns for number, ns in more.items() if ns} == {2: 4_000_000}
    assert max(lengths(planted[0] / "long-collective", 0, "nccl")) > 4_000


def test_memory_grows(planted: tuple[Path, tw.Warehouse]) -> None:
    events = read(planted[0] / "growing-memory")["traceEvents"]
    total = [event["args"]["Total Allocated"] for event in events if event["name"] == "[memory]"]
    ends = [section(planted[0] / name, "memory_peak")[0]["end_bytes"] for name in ("growing-memory", "none")]
    assert ends[0] - ends[1] == 3 * 64_000_000
    assert total[-1] == ends[0]


def test_a_clock_is_off_and_drifts(planted: tuple[Path, tw.Warehouse]) -> None:
    off, usual = (
        [event["ts"] for event in read(planted[0] / name, 1)["traceEvents"] if event.get("cat") == "kernel"]
        for name in ("clock", "none")
    )
    shifts = [one - other for one, other in zip(off, usual, strict=True)]
    assert shifts[0] == pytest.approx(1500.25, abs=0.2)
    assert shifts[-1] - shifts[0] == pytest.approx((usual[-1] - usual[0]) * 30e-6, abs=0.01)


def test_a_rank_is_missing(planted: tuple[Path, tw.Warehouse]) -> None:
    folder, wh = planted
    assert [path.name for path in sorted((folder / "missing-rank").iterdir())] == [
        "rank0.json.gz",
        "truth.json",
    ]
    rules = wh.select(runs="missing-rank").quality().rows()
    assert [row["rule"] for row in rules if row["rank"] is None] == ["ranks_missing"]


def test_a_window_is_cut(planted: tuple[Path, tw.Warehouse]) -> None:
    events = read(planted[0] / "truncated-window")["traceEvents"]
    host = [event for event in events if event.get("cat") in ("cpu_op", "cuda_runtime")]
    whole = read(planted[0] / "truncated-window", 1)["traceEvents"]
    first = min(event["ts"] for event in whole if event["ph"] == "X")
    assert min(event["ts"] for event in host) >= first + 999
    assert max(event["ts"] + event["dur"] for event in host) <= first + 3_001
    assert len(events) < len(whole)


def test_rows_have_no_launch_or_launches_no_row(planted: tuple[Path, tw.Warehouse]) -> None:
    folder = planted[0]
    before = only(section(folder / "before-window", "quality"), rank=0, rule="before_window")
    assert [row["rows"] for row in before] == [25]
    launches = only(section(folder / "lost-gpu", "quality"), rule="launch_without_gpu_row")
    kept, usual = (len(section(folder / name, "launch_stats")) for name in ("lost-gpu", "none"))
    assert sum(row["rows"] for row in launches) == usual - kept > 0


def test_same_knobs_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        tw.simulate(tmp_path / name, ranks=4, tensor=2, seed=3, **SMALL)
    tw.simulate(tmp_path / "other", ranks=4, tensor=2, seed=4, **SMALL)
    for rank in range(4):
        one, two, other = (
            (tmp_path / name / f"rank{rank}.json.gz").read_bytes() for name in ("one", "two", "other")
        )
        assert one == two != other
    assert (tmp_path / "one" / "truth.json").read_bytes() == (tmp_path / "two" / "truth.json").read_bytes()


def key_sets(events: list[dict[str, Any]]) -> dict[object, set[tuple[Any, ...]]]:
    """Per phase and category: keys in order, then each argument with its type."""
    found: dict[object, set[tuple[Any, ...]]] = defaultdict(set)
    for event in events:
        args = tuple((key, type(value).__name__) for key, value in event.get("args", {}).items())
        found[event["ph"], event.get("cat")].add((tuple(event), args))
    return found


def test_keys_types_and_order_are_those_of_torch(tmp_path: Path) -> None:
    tw.simulate(tmp_path / "sim", **SMALL)
    events = read(tmp_path / "sim")["traceEvents"]
    # Rows of NCCL's messages: no such thing on a CPU, see the test below.
    ours = key_sets([event for event in events if event["name"] != "record_param_comms"])
    torchs = key_sets(read(ROOT / "tests" / "data" / "gloo-cpu")["traceEvents"])
    for kind in (("X", "Trace"), ("M", None), ("i", None), ("X", "user_annotation"), ("X", "cpu_op")):
        assert ours[kind] == torchs[kind]
    for kind in (("X", "python_function"), ("i", "cpu_instant_event"), ("s", "fwdbwd"), ("f", "fwdbwd")):
        assert ours[kind] == torchs[kind]


@pytest.mark.parametrize(
    ("gpu", "name", "newer"),
    [
        ("A100", "hta-singles/a100_nccl_pg_config_rank0of2.json.gz", {"Seq"}),
        ("MI300X", "amd-misc/mi300_ddp_resnet18_no_pool.json.gz", set()),
    ],
)
def test_gpu_rows_are_those_of_torch(tmp_path: Path, gpu: str, name: str, newer: set[str]) -> None:
    folder = real_traces()
    if folder is None:
        pytest.skip("no real traces here")
    tw.simulate(tmp_path / "sim", gpu=gpu, dialect="epoch", **SMALL)
    ours = key_sets(read(tmp_path / "sim")["traceEvents"])
    torchs = key_sets(json.loads(gzip.decompress((folder / name).read_bytes()))["traceEvents"])
    for category in ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_runtime"):
        assert ours["X", category], category
        for keys, args in ours["X", category]:
            # The order is compared where torch keeps one: what an operator adds comes from a hash map.
            known = {(each, frozenset(types)) for each, types in torchs["X", category]}
            assert (keys, frozenset(pair for pair in args if pair[0] not in newer)) in known, args
    for phase in ("s", "f"):
        assert ours[phase, "ac2g"] == torchs[phase, "ac2g"]


def test_sections_add_up(tmp_path: Path) -> None:
    tw.simulate(tmp_path / "sim", ranks=4, tensor=2, **SMALL)
    idle: dict[int, int] = defaultdict(int)
    for row in section(tmp_path / "sim", "idle_breakdown"):
        idle[row["rank"]] += row["idle_ns"]
    breakdown = section(tmp_path / "sim", "temporal_breakdown")
    assert dict(idle) == {row["rank"]: row["idle_ns"] for row in breakdown}
    met = section(tmp_path / "sim", "collectives")
    assert all(row["wait_ns"] + row["transfer_ns"] == row["dur_ns"] for row in met)
    rounds = {(row["group"], row["number"]) for row in met}
    waits = {
        key: min(row["wait_ns"] for row in met if (row["group"], row["number"]) == key) for key in rounds
    }
    assert set(waits.values()) == {0}  # the last one does not wait
    queues = section(tmp_path / "sim", "queue_length")
    launched = section(tmp_path / "sim", "launch_stats")
    assert sum(row["queued_ns"] for row in queues) == sum(row["call_to_start_ns"] for row in launched)


def test_events_are_not_sorted(tmp_path: Path) -> None:
    tw.simulate(tmp_path / "sim", **SMALL)
    times = [event["ts"] for event in read(tmp_path / "sim")["traceEvents"] if "ts" in event]
    assert times != sorted(times)


def test_dialects_print_times_their_way(tmp_path: Path) -> None:
    for dialect in ("new", "epoch", "old"):
        tw.simulate(tmp_path / dialect, dialect=dialect, **SMALL)
    texts = {
        name: gzip.decompress((tmp_path / name / "rank0.json.gz").read_bytes()) for name in ("epoch", "old")
    }
    events = {name: read(tmp_path / name)["traceEvents"] for name in ("new", "epoch", "old")}
    assert '"ts": 1777885200' in texts["epoch"].decode()
    assert all(isinstance(event["ts"], int) for event in events["old"])
    assert {"Operator", "Kernel", "Runtime", "Memcpy", "Memset"} <= {
        event.get("cat") for event in events["old"]
    }
    assert "baseTimeNanoseconds" in read(tmp_path / "new")
    assert "baseTimeNanoseconds" not in read(tmp_path / "epoch")
    assert max(event["ts"] for event in events["new"]) < 9e12 < min(event["ts"] for event in events["epoch"])


def test_memory_does_not_grow_with_the_ranks(tmp_path: Path) -> None:
    code = (
        "import resource, sys, tracewarehouse\n"
        "tracewarehouse.simulate(sys.argv[1], ranks=int(sys.argv[2]), tensor=2, steps=2)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    peaks = []
    for ranks in (4, 64):
        command = [sys.executable, "-c", code, str(tmp_path / str(ranks)), str(ranks)]
        peaks.append(int(subprocess.run(command, capture_output=True, check=True, text=True).stdout))
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize(
    ("knobs", "error", "words"),
    [
        ({"ranks": 3, "tensor": 2}, ParamError, "do not split"),
        ({"ranks": 0}, ParamError, "ranks is 0"),
        ({"gpu": "H1000"}, ParamError, "unknown gpu"),
        ({"graphs": True}, ParamError, "inference"),
        ({"injections": ["slow-ran"]}, UnknownName, "slow-ran"),
        ({"injections": ["slow-link:group=data7"]}, UnknownName, "data7"),
        ({"injections": ["slow-kernel:kernel=gem"]}, UnknownName, "gem"),
        ({"injections": ["removed-kernel:kernel=gemm"]}, ParamError, "cannot be removed"),
        ({"injections": ["long-collective:collective=10000"]}, ParamError, "no collective"),
        ({"injections": ["missing-rank:rank=2"]}, ParamError, "no rank 2"),
    ],
)
def test_knobs_that_make_no_job(
    tmp_path: Path, knobs: dict[str, Any], error: type[TwError], words: str
) -> None:
    with pytest.raises(error, match=words):
        tw.simulate(tmp_path / "sim", **knobs)
    assert not (tmp_path / "sim").exists()


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(TwError, match="not empty"):
        tw.simulate(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_injections_are_written_as_they_are_read() -> None:
    for text in PLANTED.values():
        assert Injection.parse(str(Injection.parse(text))) == Injection.parse(text)
