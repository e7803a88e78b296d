"""The simulator: its settings, its memory use, and invalid settings."""

from __future__ import annotations

import subprocess
import sys
from math import log
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from simulated import INJECTED, SMALL, read, section, truth
from tracewarehouse.cli.demo import simulate as command
from tracewarehouse.errors import ParamError, TwError, UnknownName
from tracewarehouse.simulation import Injection, Job, Noise
from tracewarehouse.simulation.kernels import NAMES, REMOVABLE
from tracewarehouse.simulation.kernels import Noise as Factors


def test_the_same_settings_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        tw.simulate(tmp_path / name, ranks=4, tensor=2, seed=3, **SMALL)
    tw.simulate(tmp_path / "other", ranks=4, tensor=2, seed=4, **SMALL)
    for rank in range(4):
        one, two, other = (
            (tmp_path / name / f"rank{rank}.json.gz").read_bytes() for name in ("one", "two", "other")
        )
        assert one == two != other
    assert (tmp_path / "one" / "truth.json").read_bytes() == (tmp_path / "two" / "truth.json").read_bytes()


def test_every_setting_is_an_option() -> None:
    options = {parameter.name for parameter in command.params}
    settings = {*Job.__struct_fields__} - {"noise"} | {f"noise_{name}" for name in Noise.__struct_fields__}
    assert settings <= options


def test_noise_applies_to_run_step_and_kernel(tmp_path: Path) -> None:
    spreads = {"none": (0, 0, 0, 0), "run": (0.3, 0, 0, 0), "step": (0, 0.3, 0, 0), "kernel": (0, 0, 0.3, 0)}
    gemms, cli = {}, {}
    for name, spread in spreads.items():
        tw.simulate(tmp_path / name, ranks=1, noise=Noise(*spread), **{**SMALL, "hidden": 2048})
        events = read(tmp_path / name)["traceEvents"]
        gemms[name] = [e["dur"] for e in events if e.get("cat") == "kernel" and "gemm" in e["name"]]
        cli[name] = truth(tmp_path / name)
    ratios = {
        name: [one / other for one, other in zip(gemms[name], gemms["none"], strict=True)] for name in gemms
    }
    half = len(ratios["step"]) // 2
    factors = cli["step"]["step_factors"]
    assert cli["none"]["step_factors"] == [1.0, 1.0]
    assert ratios["run"] == pytest.approx([cli["run"]["run_factor"]] * 2 * half, rel=0.001)
    assert ratios["step"] == pytest.approx([factors[0]] * half + [factors[1]] * half, rel=0.001)
    assert factors[0] != factors[1] != 1
    assert max(ratios["kernel"]) / min(ratios["kernel"]) > 1.5


def test_outliers_follow_students_t() -> None:
    for share, most, least in ((0.0, 0.001, 0.0), (1.0, 0.05, 0.015)):  # beyond 4 sigma: 0.006 %, 2.8 %
        noise = Factors(Job(steps=4_000, noise=Noise(0, 0.1, 0, share)))
        far = [step for step in range(4_000) if abs(log(noise.step(step))) > 0.4]
        assert least <= len(far) / 4_000 <= most


def test_machines_and_links_differ(tmp_path: Path) -> None:
    def cli(name: str, column: str, **settings: Any) -> int:
        folder = tmp_path / "-".join(map(str, [name, *settings, *settings.values()]))
        if not folder.exists():
            tw.simulate(folder, noise=Noise(0, 0, 0, 0), ranks=4, **{**SMALL, "hidden": 1024, **settings})
        return sum(row[column] for row in section(folder, name))

    compute = ("temporal_breakdown", "compute_ns")
    assert cli(*compute, gpu="V100") > 2 * cli(*compute, gpu="A100") > 2 * cli(*compute, gpu="H100")
    transfer = ("collectives", "transfer_ns")
    assert cli(*transfer, link_gb_per_s=40) > 2 * cli(*transfer)
    assert cli(*transfer, ranks_per_node=2) > 2 * cli(*transfer)
    assert cli(*transfer, ranks_per_node=2, network_gb_per_s=5) > 2 * cli(*transfer, ranks_per_node=2)
    calls = ("launch_stats", "call_ns")
    assert cli(*calls, launch_ns=9_000) == pytest.approx(2 * cli(*calls), rel=0.01)


@pytest.mark.deep
def test_memory_is_constant_in_ranks(tmp_path: Path) -> None:
    code = (
        "import resource, sys, tracewarehouse\n"
        "tracewarehouse.simulate(sys.argv[1], ranks=int(sys.argv[2]), tensor=2, steps=1, layers=2,\n"
        "    hidden=256, stacks=False, memory=False)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    peaks = []
    for ranks in (8, 256):
        command = [sys.executable, "-c", code, str(tmp_path / str(ranks)), str(ranks)]
        peaks.append(int(subprocess.run(command, capture_output=True, check=True, text=True).stdout))
    assert peaks[1] < 1.2 * peaks[0]


def test_a_full_queue_blocks_the_launch(tmp_path: Path) -> None:
    big = {"ranks": 1, "layers": 8, "hidden": 2048, "steps": 2, "sequence": 2048}
    for limit in (10, 1024):
        tw.simulate(tmp_path / str(limit), queue_limit=limit, **big)
    longest, calls = (
        {limit: max(row[key] for row in section(tmp_path / str(limit), name)) for limit in (10, 1024)}
        for name, key in (("queue_length_summary", "max_length"), ("launch_stats", "call_ns"))
    )
    assert longest[10] == 11  # ten that wait, and the one whose call blocks
    assert longest[1024] > 100
    assert calls[10] > 10 * calls[1024]


def test_workers_prefetch(tmp_path: Path) -> None:
    waits = {}
    for workers in (0, 1, 4):
        folder = tmp_path / str(workers)
        tw.simulate(folder, ranks=1, load_us=2_000, workers=workers, noise=Noise(0, 0, 0, 0), steps=8)
        events = read(folder)["traceEvents"]
        waits[workers] = [event["dur"] for event in events if "DataLoaderIter.__next__" in event["name"]]
        assert len(waits[workers]) == 8
    assert min(waits[0]) > 2_000  # each step pays in full
    assert 20 < max(waits[1][2:]) < 2_000  # a batch is made while the step before it runs
    assert max(waits[4][4:]) < 100  # four at a time are faster than the steps


def test_workers_prefetch_at_most_two_batches(tmp_path: Path) -> None:
    stall = "dataloader-stall:step=10,ms=20"
    tw.simulate(tmp_path / "sim", ranks=1, load_us=100, workers=1, steps=12, injections=[stall])
    events = read(tmp_path / "sim")["traceEvents"]
    waits = [event["dur"] for event in events if "DataLoaderIter.__next__" in event["name"]]
    step = max(event["dur"] for event in events if "ProfilerStep" in event["name"] and event["dur"] < 5_000)
    assert 20_000 - 2 * step < waits[10] < 20_000 - step


def test_a_captured_step_has_one_launch(tmp_path: Path) -> None:
    tw.simulate(tmp_path / "sim", ranks=2, graphs=True, **SMALL)
    launches = section(tmp_path / "sim", "launch_stats")
    apis = [row["api"] for row in launches]
    assert apis.count("cudaGraphLaunch") > 0.9 * len(apis)
    graphs = {(row["rank"], row["runtime_id"]) for row in launches if row["api"] == "cudaGraphLaunch"}
    assert len(graphs) == 2 * SMALL["steps"]
    assert any("AllReduce" in row["name"] and row["api"] == "cudaGraphLaunch" for row in launches)


def test_pipeline_stages_run_in_sequence(tmp_path: Path) -> None:
    tw.simulate(tmp_path / "sim", ranks=2, pipeline=2, mode="inference", **SMALL)
    names = [{event["name"] for event in read(tmp_path / "sim", rank)["traceEvents"]} for rank in (0, 1)]
    assert "aten::embedding" in names[0] - names[1]
    assert "aten::item" in names[1] - names[0]
    assert {row["name"] for row in section(tmp_path / "sim", "collectives")} == {"send", "recv"}


def test_dependent_kernels_overlap_on_their_stream(tmp_path: Path) -> None:
    for name in ("on", "off"):
        tw.simulate(tmp_path / name, ranks=1, dependent_launch=name == "on", **{**SMALL, "hidden": 1024})
    rules = {
        name: {row["rule"]: row for row in section(tmp_path / name, "quality")} for name in ("on", "off")
    }
    assert "stream_overlap" not in rules["off"]
    assert rules["on"]["stream_overlap"]["rows"] > 5


@pytest.mark.parametrize("kernel", REMOVABLE)
def test_the_model_runs_without_a_kernel(tmp_path: Path, kernel: str) -> None:
    plain, without = tmp_path / "plain", tmp_path / "without"
    tw.simulate(plain, ranks=2, **SMALL)
    tw.simulate(without, ranks=2, injections=[f"removed-kernel:kernel={kernel}"], **SMALL)
    kept, usual = (
        {row["name"]: row["count"] for row in section(folder, "kernel_summary")}
        for folder in (without, plain)
    )
    gone = {name for name in usual if name not in kept}
    assert gone >= {NAMES[kernel][0]} or kernel == "add"  # sums are also what dropout goes back by
    assert sum(kept.values()) < sum(usual.values())


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"ranks": 3, "tensor": 2}, ParamError, "not divisible"),
        ({"ranks": 0}, ParamError, "ranks is 0"),
        ({"gpu": "H1000"}, ParamError, "unknown gpu"),
        ({"workers": -1}, ParamError, "workers is -1"),
        ({"queue_limit": 0}, ParamError, "queue_limit is 0"),
        ({"launch_ns": 10**23}, ParamError, "launch_ns is 1000"),
        ({"injections": ["slow-rank:rank=1,factor=nan"]}, ParamError, "slow-rank: factor is nan"),
        ({"injections": ["lost-gpu:share=1.5"]}, ParamError, "between 0 and 1"),
        ({"injections": ["slow-ran"]}, UnknownName, "slow-ran"),
        ({"injections": ["slow-link:group=data7"]}, UnknownName, "data7"),
        ({"injections": ["slow-kernel:kernel=gem"]}, UnknownName, "gem"),
        ({"injections": ["removed-kernel:kernel=gemm"]}, ParamError, "cannot be removed"),
        ({"injections": ["long-collective:collective=10000"]}, ParamError, "no collective"),
        ({"injections": ["missing-rank:rank=2"]}, ParamError, "no rank 2"),
        ({"injections": ["clock:rank=0,step=1"]}, ParamError, "does not accept step"),
        ({"injections": ["slow-link:group=data0,rank=1"]}, ParamError, "does not accept rank"),
        ({"injections": ["slow-stage:stage=1"]}, ParamError, "no stage 1"),
        ({"injections": ["slow-stage:stage=0,rank=1"]}, ParamError, "does not accept rank"),
        ({"injections": ["more-work:rank=0,what=layers"]}, ParamError, "what=layers"),
        ({"injections": ["slow-elementwise:bandwidth=0"]}, ParamError, "bandwidth is 0"),
        ({"injections": ["host-blocked"], "graphs": True}, ParamError, "needs training without graphs"),
        ({"injections": ["recompilation:step=1"], "mode": "inference"}, ParamError, "needs training"),
    ],
)
def test_invalid_settings_are_refused(
    tmp_path: Path, settings: dict[str, Any], error: type[TwError], words: str
) -> None:
    with pytest.raises(error, match=words):
        tw.simulate(tmp_path / "sim", **settings)
    assert not (tmp_path / "sim").exists()


def test_a_nonempty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(TwError, match="not empty"):
        tw.simulate(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_injections_round_trip_as_text() -> None:
    for text in INJECTED.values():
        assert Injection.parse(str(Injection.parse(text))) == Injection.parse(text)
