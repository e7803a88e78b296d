"""`tw diff` names the injected fault in its first line: five layouts, faults of the host and of the device.

Each fault is compared with the same job without it, with other noise. Of every comparison all levels sum to
both means, and what is printed follows from other printed values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from tracewarehouse.compare.diff.change import Change
from tracewarehouse.present.answers import change_text
from tracewarehouse.simulation import Noise

NOISE = Noise(0, 0.002, 0.005, 0)
ANY: dict[str, Any] = {"steps": 6, "layers": 2, "stacks": False, "memory": False, "noise": NOISE}
HOST: dict[str, Any] = {"hidden": 256, "sequence": 256}  # bound by the host
LAYOUTS: dict[str, dict[str, Any]] = {
    "single": {"ranks": 1},
    "ddp": {"ranks": 8},
    "fsdp": {"ranks": 4, "sharded": True},
    "moe": {"ranks": 4, "experts": True},
    "tp-pp": {"ranks": 4, "tensor": 2, "pipeline": 2, "microbatches": 2},
}
LEAST = 0.005  # of the mean step, from which a change has to be named
NAMED = 0.97  # of these

Texts = tuple[tuple[str, ...], ...]
DATA = (("waiting for data",),)
ITEM = (("after a blocking call",),)
LAUNCH = (("waiting for launch",), ("inside the launching call",))


@dataclass(frozen=True)
class Fault:
    """Injections, and what a first line that names them contains: all texts of one of these tuples.

    `late` are the ranks that are late because of it; a control has no texts, and no rank may be late.
    """

    name: str
    injections: tuple[str, ...]
    named: Texts = ()
    late: tuple[int, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


def fault(
    name: str, injections: str, named: Texts = (), late: tuple[int, ...] = (), **settings: Any
) -> Fault:
    """A fault with injections that are separated by blanks."""
    return Fault(name, tuple(injections.split()), named, late, settings)


def late(rank: int, name: str, injections: str, named: Texts, **settings: Any) -> Fault:
    """A fault of one rank, which is late, with its cause on the same line."""
    lines = tuple((f"rank {rank} is late", *texts) for texts in named)
    return fault(f"{name}-of-a-rank", injections, lines, (rank,), **settings)


GEMM, EXTRA = (("gemm", "slower"),), (("triton_poi_fused_clone_mul_0 added",),)
# Of a kernel that runs in the forward pass only; in the backward pass it is one of several products.
REMOVED = (("fused_dropout_kernel_vec", "removed"), ("vectorized_elementwise_kernel", "fewer calls"))
COPIES = (("Memcpy HtoD",), ("memcpy",))
STAGE = (("ranks 2 and 3 are late", "gemm", "slower"),)
SLOW, ALL_DATA = "slow-rank:rank=2,what=compute", "slow-rank:what=data"
ANYWHERE = (
    fault("slow-kernel", "slow-kernel:kernel=gemm,percent=30", GEMM),
    fault("hardly-slower-kernel", "slow-kernel:kernel=gemm,percent=2", GEMM),
    fault("extra-kernel", "extra-kernel:us=80", EXTRA),
    fault("removed-kernel", "removed-kernel:kernel=dropout", REMOVED),
    fault("renamed-kernel", "renamed-kernel:kernel=gelu,to=gelu_of_another_library"),
    fault("stalled-loader", "dataloader-stall:step=2,ms=8", DATA),
    fault("slow-loader", "slow-rank:what=data,factor=8", DATA, **HOST),
    fault("slow-dispatch", "slow-rank:what=host,factor=1.4", LAUNCH, **HOST),
    fault("blocking-item", "blocking-item", ITEM),
    fault("blocking-item-on-host", "blocking-item", ITEM, **HOST),
    fault("stalled-host", "recompilation:step=3,ms=6", LAUNCH, **HOST),
    fault("copies", "exposed-copies:mb=16", COPIES),
    fault("elementwise", "slow-elementwise:mb=64,count=3,bandwidth=0.3", (("elementwise",),)),
    fault("no-change", ""),
    fault("hidden-dispatch", "slow-rank:what=host,factor=1.05"),
)
RANKS = (
    late(2, "compute", f"{SLOW},factor=1.3", (("gemm", "slower"),)),
    late(1, "hardly-compute", "slow-rank:rank=1,what=compute,factor=1.03", (("gemm", "slower"),)),
    late(3, "kernel", "slow-kernel:kernel=gemm,percent=25,rank=3", (("gemm", "slower"),)),
    late(1, "extra-kernel", "extra-kernel:us=300,rank=1", (("clone_mul_0 added",),)),
    late(2, "loader", "slow-rank:rank=2,what=data,factor=20", DATA, **HOST),
    late(3, "stalled-loader", "dataloader-stall:step=2,ms=8,rank=3", DATA),
    late(1, "dispatch", "slow-rank:rank=1,what=host,factor=2", LAUNCH, **HOST),
    late(2, "stalled-host", "recompilation:step=3,ms=9,rank=2", LAUNCH, **HOST),
    fault("missing-rank", "drop-ranks:rank=1"),
    fault("clock", "clock:rank=1,offset_us=800,drift_ppm=20"),
)
OF_LAYOUT: dict[str, tuple[Fault, ...]] = {
    "single": (
        fault("two-blocking-calls", "blocking-item host-blocked", ITEM),
        fault("loader-and-dispatch", f"{ALL_DATA},factor=20 slow-rank:what=host,factor=1.1", DATA, **HOST),
    ),
    "ddp": (
        fault("no-overlap", "no-overlap", (("AllReduce", "more exposed"),)),
        fault("slow-link", "slow-link:group=data0,factor=3", (("AllReduce", "slower"),)),
        late(2, "two-causes", f"{SLOW},factor=1.3 slow-kernel:kernel=gemm,percent=10", GEMM),
        late(5, "item-and-loader", "blocking-item slow-rank:rank=5,what=data,factor=40", DATA, **HOST),
    ),
    "fsdp": (
        fault("slow-link", "slow-link:group=data0,factor=3", (("AllGather",), ("ReduceScatter",))),
    ),
    "moe": (
        fault("slow-link", "slow-link:group=data0,factor=3", (("SendRecv",), ("AllReduce",))),
        # Its all-to-all sends more, which takes all ranks longer.
        fault("imbalance", "imbalance:rank=1,factor=2", (("SendRecv", "slower"),), (1,)),
        late(3, "more-work", "more-work:rank=3,factor=1.5", (("gemm",),)),
    ),
    "tp-pp": (
        fault("slow-tensor-link", "slow-link:group=tensor0,factor=4", (("AllReduce",),)),
        fault("slow-stage", "slow-stage:stage=1,factor=1.4", STAGE, (2, 3)),
    ),
}  # fmt: skip


def faults(layout: str) -> list[Fault]:
    """All faults of a layout."""
    ranks = () if layout == "single" else RANKS
    return [*ANYWHERE, *ranks, *OF_LAYOUT[layout]]


def compared(folder: Path, layout: str, chosen: list[Fault]) -> Iterator[tuple[Fault, Change, str]]:
    """Each fault compared with the job without it, and the text of the comparison."""
    bases = {bool(each.settings): each.settings for each in chosen}
    runs: dict[str, tuple[Mapping[str, Any], tuple[str, ...]]]
    runs = {f"base-{int(of_host)}": (settings, ()) for of_host, settings in bases.items()}
    runs |= {each.name: (each.settings, each.injections) for each in chosen}
    for name, (settings, injections) in runs.items():
        seed = not name.startswith("base")
        job = {**ANY, **LAYOUTS[layout], **settings, "injections": list(injections), "seed": int(seed)}
        tw.simulate(folder / "sim" / name, **job)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "sim", jobs=1)
    for each in chosen:
        base = f"base-{int(bool(each.settings))}"
        change = warehouse.diff(base, each.name).changes()
        yield each, change, change_text(change, ("breakdown", "kernels", "ranks"), 10, None)


def check(each: Fault, change: Change, printed: str) -> str | None:
    """What is wrong with the first line; None if it names the fault, or does not have to."""
    check_sums(change)
    check_text(printed)
    first = change.causes[0] if change.causes else "no line"
    parts = change.breakdown
    assert parts is not None
    size = float(parts.delta / parts.base_mean)
    first_lines = "\n".join(change.causes)
    attributed = {
        int(rank)
        for rank in re.findall(
            r"\d+", " ".join(re.findall(r"ranks? [\d and]+ (?:is|are) (?:no longer )?late", first_lines))
        )
    }
    if attributed - {*each.late}:
        return f"{size:+.1%} innocent: {first}"
    if (
        abs(size) < LEAST
        or not each.named
        or any(all(part in first for part in texts) for texts in each.named)
    ):
        return None
    return f"{size:+.1%} {first}"


def check_sums(change: Change) -> None:
    """All levels sum to both means: exactly, and in whole ns."""
    parts = change.breakdown
    assert parts is not None
    for level in parts.levels:
        assert (level.base, level.head) == (parts.base_mean, parts.head_mean), level.name
        rows = level.result().rows()
        assert sum(row["base_ns"] for row in rows) == round(parts.base_mean)
        assert sum(row["head_ns"] for row in rows) == round(parts.head_mean)
        assert all(row["delta_ns"] == row["head_ns"] - row["base_ns"] for row in rows)
    own = {row.part: row for row in parts.level("ranks").rows}
    ranks = dict.fromkeys(rank for rank, _ in parts.own)
    for rank in ranks:
        rows_of_rank = [row for (of, _), row in parts.own.items() if of == rank]
        for side in ("base", "head"):
            assert sum(getattr(row, side) for row in rows_of_rank) == len(ranks) * getattr(own[rank], side)


SCALES = {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9}
TIME = r"([+-]?\d[\d,]*(?:\.\d+)?) (ns|µs|ms|s)\b"


def times(text: str) -> list[tuple[float, float]]:
    """Each printed time in ns, and half of the unit of its last digit."""
    found = []
    for number, unit in re.findall(TIME, text):
        digits = len(number.partition(".")[2])
        found.append((float(number.replace(",", "")) * SCALES[unit], SCALES[unit] * 10**-digits / 2))
    return found


def check_text(printed: str) -> None:
    """Printed changes are differences, shares and sums of printed values, up to the last digit."""
    means = times(next(line for line in printed.splitlines() if line.startswith("mean step ")))[:2]
    change = means[1][0] - means[0][0]
    exact = means[0][1] + means[1][1]
    for line in printed.splitlines():
        if match := re.search(rf"of the {TIME} change", line):
            ((total, rounded),) = times(match[0])
            assert abs(total - change) <= exact + rounded, line
        cells = times(line)
        if len(cells) >= 3 and re.search(
            r"  (longer|shorter|added|removed|replaced|\w+ calls|slower|faster|\w+ exposed)", line
        ):
            (base, a), (head, b), (delta, c), *_ = cells
            assert abs(head - base - delta) <= a + b + c, line


HANDFUL = ("stalled-loader-of-a-rank", "kernel-of-a-rank", "blocking-item-on-host", "clock")


def test_a_handful_is_named(tmp_path: Path) -> None:
    chosen = [each for each in faults("fsdp") if each.name in HANDFUL]
    assert len(chosen) == len(HANDFUL)
    assert [found for each in compared(tmp_path, "fsdp", chosen) if (found := check(*each))] == []


@pytest.mark.deep
def test_injected_faults_are_named_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missed, counted = [], Counter[str]()
    for layout in LAYOUTS:
        for each, change, printed in compared(tmp_path / layout, layout, faults(layout)):
            wrong = check(each, change, printed)
            size = abs(change.breakdown.delta / change.breakdown.base_mean) if change.breakdown else 0
            is_counted = bool(each.named) and size >= LEAST
            counted["comparisons"] += 1
            counted["counted"] += is_counted
            counted[layout] += is_counted
            assert wrong is None or "innocent" not in wrong, (layout, each.name, wrong)
            if wrong:
                missed.append(f"{layout} {each.name}: {wrong}")
    with capsys.disabled():
        print(f"\n{dict(counted)}, missed {len(missed)}:", *missed, sep="\n  ")
    assert counted["comparisons"] >= 67
    assert len(missed) <= (1 - NAMED) * counted["counted"]
