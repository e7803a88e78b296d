"""The lines that name the largest part of a change, late ranks and growing memory."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import real_traces
from tracewarehouse.compare.diff.causes import causes
from tracewarehouse.compare.diff.levels import Row
from tracewarehouse.display_names import category_name


def parts(**deltas: int) -> Any:
    """A breakdown with rows of these changes in µs, at every level the same."""
    rows = [Row(name, Fraction(0), Fraction(1000 * delta)) for name, delta in deltas.items()]
    rows.sort(key=lambda row: -abs(row.delta))
    delta = sum(row.delta for row in rows)
    return SimpleNamespace(
        per="step", on_host=False, delta=delta, own={}, level=lambda _: SimpleNamespace(rows=rows)
    )


@pytest.mark.parametrize(
    ("deltas", "wanted"),
    [
        ({"host": 80, "sync": 20}, "largest part by kernel: {host} longer, +80 µs of the +100 µs change"),
        ({"host": 150, "sync": -50}, "largest part by kernel: {host} longer, +150 µs of the +100 µs change"),
        ({"host": 900, "sync": -800}, "parts cancel out: {host} longer, +900 µs and {sync} shorter, -800 µs"),
        ({"host": 800, "sync": -799}, "parts cancel out: {host} longer, +800 µs and {sync} shorter, -799 µs"),
        (
            {"host": 9, "sync": 9, "unknown": -17},
            "parts cancel out: {other} shorter, -17 µs and {host} longer, +9 µs",
        ),
    ],
)
def test_a_part_is_not_called_a_part_of_a_far_smaller_total(deltas: dict[str, int], wanted: str) -> None:
    (line,) = causes(parts(**{f"idle_{name}": delta for name, delta in deltas.items()}), is_unchanged=False)
    names = {name: category_name(f"idle_{name}") for name in ("host", "sync")}
    named = wanted.format(**names, other=category_name("idle_unknown"))
    assert line.replace(".000", "") == f"{named}, not tested"


def test_windows_of_one_length_say_nothing_of_speed() -> None:
    found = parts(idle_host=900, idle_sync=-899)
    found.per, found.base_mean = "window", Fraction(10_000_000)
    (line,) = causes(found, is_unchanged=False)
    assert line.startswith("note: both windows have the same length") and "not whether it is faster" in line
    found.base_mean = Fraction(900_000)
    (line,) = causes(found, is_unchanged=False)
    assert line.startswith("parts cancel out")


BEFORE = 1000  # the own time of a rank in base, in µs


def of_ranks(changes: Mapping[str, tuple[int | None, int]], kernels: int = 0) -> Any:
    """A breakdown of ranks whose own time and waiting changed by this many µs; None: head lacks the rank.

    Of the change of each rank's own time, `kernels` are of a kernel and the rest is waiting for data.
    """
    ranks, own, waits = [], {}, 0
    for name, (change, wait) in changes.items():
        head = 0 if change is None else BEFORE + change
        part = f"rank {name} (own work)"
        ranks.append(Row(part, Fraction(BEFORE * 1000, len(changes)), Fraction(head * 1000, len(changes))))
        rest = head - BEFORE - kernels
        own[part, "gemm"] = Row(
            "gemm", Fraction(600_000), Fraction(600_000 + 1000 * kernels), Fraction(1), Fraction(1)
        )
        own[part, "idle_dataloader"] = Row("idle_dataloader", Fraction(0), Fraction(1000 * rest))
        waits += wait
    waiting = Row("exposed_wait", Fraction(0), Fraction(1000 * waits, len(changes)))
    levels = {"ranks": ranks, "breakdown": [waiting], "kernels": []}
    return SimpleNamespace(
        per="step",
        delta=sum(row.delta for row in ranks) + waiting.delta,
        base_mean=Fraction(BEFORE * 1000),
        own=own,
        level=lambda name: SimpleNamespace(rows=levels[name]),
    )


def test_a_late_rank_has_its_cause() -> None:
    (line,) = causes(of_ranks({"0": (0, 400), "1": (400, 0), "2": (0, 400), "3": (0, 400)}), False)
    assert line.replace(".000", "") == (
        "rank 1 is late: its own time grew by 40 % (400 µs), mostly idle: waiting for data longer, +400 µs;"
        " with the waiting of the others that is all of the change, not significant"
    )


@pytest.mark.parametrize(
    ("slowdown", "wanted"), [(0.3, "across most of its kernels, most of all gemm"), (0, "mostly gemm")]
)
def test_a_slow_gpu_is_not_a_slow_kernel(slowdown: float, wanted: str) -> None:
    """The other kernels of the late rank are as much slower as the one that changes most, or not at all."""
    found = of_ranks({"0": (0, 400), "1": (400, 0), "2": (0, 400), "3": (0, 400)})
    for part, name in list(found.own):
        if name == "idle_dataloader":
            del found.own[part, name]
        is_late = part.startswith("rank 1")
        times = {
            "gemm": (600_000, 0.4),
            "relu": (50_000, slowdown),
            "norm": (40_000, slowdown),
            "add": (30_000, slowdown),
        }
        for kernel, (ns, slower) in times.items():
            head = Fraction(round(ns * (1 + slower * is_late)))
            found.own[part, kernel] = Row(
                kernel, Fraction(ns), head, Fraction(1), Fraction(1), Fraction(ns), head
            )
    (line,) = causes(found, False)
    assert f"its own time grew by 40 % (400.000 µs), {wanted} slower, +240.000 µs" in line


def test_what_all_ranks_gain_is_not_a_rank_s_own() -> None:
    """The kernel is slower on all ranks, so that it is not why a rank is late."""
    ranks = {"0": (100, 300), "1": (400, 0), "2": (100, 300), "3": (100, 300)}
    (line,) = causes(of_ranks(ranks, kernels=100), False)
    assert "mostly idle: waiting for data longer, +300" in line
    assert (
        "; that of the others grew by 10 % (100.000 µs); with the waiting of the others that is 75 %" in line
    )


@pytest.mark.parametrize(
    "ranks",
    [
        {"0": (400, 100), "1": (400, 0), "2": (400, 100), "3": (450, 0)},  # all of them
        {"0": (0, 300), "1": (None, 0), "2": (0, 300), "3": (300, 0)},  # head lacks a rank
        {"0": (0, 300), "1": (300, 0), "2": (150, 150), "3": (75, 225)},  # some more, some less
        {"0": (0, 2), "1": (0, 2), "2": (2, 0), "3": (0, 2)},  # hardly
        {"0": (0, 0), "1": (300, 0), "2": (0, 0), "3": (0, 0)},  # no rank waits
    ],
)
def test_no_innocent_rank_is_late(ranks: dict[str, tuple[int | None, int]]) -> None:
    assert not [line for line in causes(of_ranks(ranks), False) if "late" in line]


def test_several_ranks_are_late() -> None:
    (line,) = causes(of_ranks({"0": (0, 400), "1": (0, 400), "2": (400, 0), "3": (420, 0)}), False)
    assert line.startswith("ranks 2 and 3 are late: their own time grew by 41 % (410.000 µs)")


def test_growth_of_memory_is_named(tmp_path: Path) -> None:
    job: dict[str, Any] = {
        "ranks": 1,
        "layers": 2,
        "hidden": 256,
        "sequence": 256,
        "steps": 4,
        "stacks": False,
    }
    runs: dict[str, dict[str, Any]] = {
        "base": {},
        "leak": {"injections": ["growing-memory:mb=64"]},
        "off": {"memory": False},
        "larger": {"batch": 8},
    }
    for name, other in runs.items():
        tw.simulate(tmp_path / "sim" / name, **{**job, **other})
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "sim", jobs=1)
    memory = {name: warehouse.diff("base", name).changes().memory for name in runs if name != "base"}
    grows = "allocated memory grows by 61.0 MiB per step in {}, not in {}"
    assert memory["leak"] == (grows.format("head", "base"),)
    assert warehouse.diff("leak", "base").changes().causes[-1] == grows.format("base", "head")
    assert memory["off"] == ()
    assert memory["larger"][0].startswith("peak of allocated memory ")


# While all other ranks wait in gloo:all_reduce, rank 2 computes: in ms after 4,962,000 s, of each step.
SPANS = ((570_830, 571_670), (571_920, 572_880), (573_120, 574_150), (574_430, 575_220), (575_540, 576_560))


@pytest.mark.deep
@pytest.mark.skipif(real_traces() is None, reason="needs the real traces")
def test_ranks_wait_in_gloo(tmp_path: Path) -> None:
    """The real recording of a slow rank, compared with one in which that rank takes 30 % of the time."""
    folder = real_traces()
    assert folder is not None

    def moved(us: float) -> float:
        spans = [[1e3 * (4_962_000_000 + end) for end in span] for span in SPANS]
        return us - sum(0.7 * (min(max(us, start), end) - start) for start, end in spans)

    for rank in range(4):
        path = folder / "pytorch-cpu" / f"ddp_slow_rank{rank}.json.gz"
        trace = json.loads(gzip.decompress(path.read_bytes()))
        for name in ("head", "base"):
            written = tmp_path / name / f"rank{rank}.json"
            written.parent.mkdir(exist_ok=True)
            written.write_text(json.dumps(trace))
            for event in (each for each in trace["traceEvents"] if "ts" in each):
                start, end = float(event["ts"]), float(event["ts"]) + event.get("dur", 0)
                event |= {"ts": round(moved(start), 3)}
                event |= {"dur": round(moved(end) - moved(start), 3)} if "dur" in event else {}
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "head", jobs=1)
    warehouse.ingest(tmp_path / "base", jobs=1)
    first = warehouse.diff("base", "head").changes().causes[0]
    assert first.startswith("rank 2 is late: its own time grew by 124 % (649.6")
    assert "mostly operator: aten::mm longer" in first
