"""Gates on sizes, percentiles of steps and absent kernels, as commands with their exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from cli_runner import tw as call
from tracewarehouse.simulation import Noise

SETTINGS: dict[str, Any] = {"ranks": 2, "layers": 1, "hidden": 256, "sequence": 256, "stacks": False}
ADDED = "triton_poi_fused_clone_mul_0"


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    folder = tmp_path_factory.mktemp("gates")
    settings = {**SETTINGS, "noise": Noise(0, 0.01, 0, 0)}
    tw.simulate(folder / "sim" / "short", steps=4, **settings)
    tw.simulate(folder / "sim" / "more", steps=4, injections=["extra-kernel:us=80"], **settings)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "sim", jobs=1)
    return warehouse


def codes(wh: tw.Warehouse, base: str, head: str, *gates: str) -> list[int]:
    """The exit code for each gate on its own."""
    return [call("diff", base, head, "-w", wh.root, "--gate", gate).code for gate in gates]


def test_a_size_is_that_of_the_rank_with_the_most(wh: tw.Warehouse) -> None:
    sql = "SELECT max(total_allocated_bytes) AS most FROM memory_events"
    most = wh.select("more").query(sql).rows()[0]["most"]
    metric = "memory_peak.peak_bytes"
    gates = (f"{metric}<={most}B", f"{metric}<={most - 1}B")
    assert codes(wh, "short", "more", *gates) == [0, 3]


@pytest.mark.deep
def test_a_size_has_a_unit(wh: tw.Warehouse) -> None:
    metric = "memory_peak.peak_bytes"
    assert codes(wh, "short", "more", f"{metric}<=80GiB", f"{metric}<=1MiB") == [0, 3]


@pytest.mark.deep
def test_a_percentile_takes_a_hundred_steps(wh: tw.Warehouse, tmp_path: Path) -> None:
    settings = {**SETTINGS, "ranks": 1, "memory": False, "noise": Noise(0, 0.01, 0, 0)}
    tw.simulate(tmp_path / "long", steps=102, **settings)
    wh.ingest(tmp_path / "long", jobs=1)
    rows = wh.select("long").query("SELECT period_ns FROM steps WHERE NOT partial").rows()
    steps = sorted(row["period_ns"] for row in rows)
    p99 = steps[-(-99 * len(steps) // 100) - 1]
    assert len(steps) >= 100 and p99 < steps[-1]
    gates = (f"p99(step_time)<={p99}ns", f"p99(step_time)<={p99 - 1}ns", f"max(step_time)<={p99}ns")
    assert codes(wh, "short", "long", *gates) == [0, 3, 3]
    done = call("diff", "long", "short", "-w", wh.root, "--gate", "p99(step_time)<=1s")
    assert done.code == 5 and "p99 needs 100 complete steps per run; there are 4" in done.out


def test_a_kernel_must_not_come_back(wh: tw.Warehouse) -> None:
    guard = f"absent(kernel_summary.count[name={ADDED}])"
    assert codes(wh, "more", "short", guard) == [0]
    assert codes(wh, "short", "more", guard) == [3]


def test_a_gate_file_has_comments_and_names_with_a_number_sign(wh: tw.Warehouse, tmp_path: Path) -> None:
    path = tmp_path / "gates.txt"
    guard = "absent(kernel_summary.count[name=f<g::{lambda()#1}>(int)])"
    path.write_text(f"# guards\n{guard}  # until 2.9\n", encoding="utf-8-sig")
    done = call("diff", "short", "more", "-w", wh.root, "--gate-file", path)
    assert done.code == 0 and f"{guard}" in done.out and "until" not in done.out
    path.write_bytes(b"abc\xff")
    done = call("diff", "short", "more", "-w", wh.root, "--gate-file", path)
    assert done.code == 2 and f"{path} is not UTF-8 text: byte 3 is invalid" in done.err


def test_options_of_gates_without_a_gate_are_wrong_usage(wh: tw.Warehouse, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("# none yet\n\n")
    done = call("diff", "short", "more", "-w", wh.root, "--gate-file", empty)
    assert done.code == 2 and f"no gates in {empty}" in done.err and done.out == ""
    report = tmp_path / "gates.xml"
    for option in (("--allow-inconclusive",), ("--junit", report)):
        done = call("diff", "short", "more", "-w", wh.root, *option)
        assert done.code == 2 and f"{option[0]} needs --gate or --gate-file" in done.err
    assert not report.exists()
    done = call("diff", "short", "more", "kernel_summary", "-w", wh.root, "--junit", report)
    assert done.code == 2 and "--junit cannot be combined with an analysis" in done.err
    done = call("history", "step_time", "--since", "7d", "-w", wh.root)
    assert done.code == 2 and "--since needs --fail-on-change" in done.err
