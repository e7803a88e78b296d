"""Memory analyses compared with brute force: random traces as ranks of one run, one query per analysis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import sketch
import tracewarehouse as tw
from conftest import real_traces
from witness import memory

RANKS = 60
NAMES = ("memory_curve", "memory_peak", "memory_by_op", "memory_live")
SEEDS = [20_261, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (1, 2, 3))]


class Heap:
    """A rank under construction: nested operators on two threads, allocations on two devices."""

    def __init__(self, rank: int, dice: Random) -> None:
        self.dice, self.head, self.lines = dice, f"random {rank}", list[str]()
        self.totals = {0: 0, 1: dice.choice([0, 5_000])}
        self.held: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
        self.index = 0
        self.keys = dice.choice(["all", "all", "no address", "old"])

    def draw(self) -> list[str]:
        for thread in (1, 2):
            at = self.dice.randrange(50)
            for _ in range(self.dice.randint(1, 4)):
                at = self.op(thread, at, 2) + self.dice.choice([0, 10])
        self.lines.append("step t1 3 20 60")
        for at in sorted(self.dice.randrange(0, 150, 5) for _ in range(self.dice.randint(0, 40))):
            self.change(at)
        self.dice.shuffle(self.lines)
        return [f"{self.head} {line}" for line in self.lines]

    def op(self, thread: int, at: int, deeper: int) -> int:
        start, end = at, at + self.dice.choice([5, 10])
        for _ in range(self.dice.randint(0, deeper)):
            end = self.op(thread, end, deeper - 1) + self.dice.choice([0, 5])
        self.lines.append(
            f"op t{thread} {self.dice.choice(['aten::mm', 'aten::empty'])} {start} {end - start}"
        )
        return end

    def change(self, at: int) -> None:
        device = self.dice.randint(0, 1)
        held = self.held[device]
        if held and self.dice.random() < 0.45:
            address, size = held.pop(self.dice.randrange(len(held)))
            size = -size
        else:
            address, size = self.dice.randrange(64, 640, 64), self.dice.choice([0, 100, 200, 300])
            held.append((address, size))
        self.totals[device] = max(self.totals[device] + size, 0)
        self.index += 1
        if self.dice.random() < 0.1:
            return  # missing in the trace
        self.tell(self.dice.randint(1, 2), at, device, size, address)

    def tell(self, thread: int, at: int, device: int, size: int, address: int) -> None:
        where = f'"Device Type"={device} "Device Id"={device - 1}'
        more = "" if self.keys == "no address" else f"Addr={address}"
        if self.keys != "old":
            total = self.totals[device]
            more += f' "Ev Idx"={self.index} "Total Reserved"={total + 64}'
            self.lines.append(f"mem t{thread} {size} {total} {at} {where} {more}")
            return
        pid = sketch.HOST_PID + int(self.head.split()[1])
        known = "" if self.dice.random() < 0.1 else f',"Bytes":{size}'
        self.lines.append(
            f'raw {{"ph":"i","s":"t","name":"[memory]","pid":{pid},"tid":{thread},"ts":{sketch.micros(at)},'
            f'"args":{{"Device Type":{device},"Device Id":{device - 1}{known}}}}}'
        )


@pytest.fixture(scope="module", params=SEEDS)
def drawn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[tw.Warehouse, Any]:
    """A warehouse with the random run, and each rank as read by the brute-force check."""
    folder = tmp_path_factory.mktemp("memory")
    lines = [line for rank in range(RANKS) for line in Heap(rank, Random(f"{request.param}/{rank}")).draw()]
    paths = sketch.write("\n".join(lines), folder)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "random", run="random")
    return warehouse, {int(path.stem.removeprefix("rank")): memory.read(path) for path in paths}


def wanted(name: str, ranks: dict[int, Any]) -> list[str]:
    """The expected rows as text, with columns by name."""
    answer: Callable[[list[memory.Change]], list[memory.Row]] = getattr(memory, name)
    return sorted(
        line({"rank": rank, "device_type": kind, "device": device} | row)
        for rank, devices in ranks.items()
        for (kind, device), changes in devices.items()
        for row in answer(changes)
    )


def line(row: memory.Row) -> str:
    return repr(sorted((key, value) for key, value in row.items() if key != "run_id"))


@pytest.mark.parametrize("name", NAMES)
def test_analysis_equals_brute_force(name: str, drawn: tuple[tw.Warehouse, Any]) -> None:
    warehouse, ranks = drawn
    result = warehouse.analyze(name)
    assert {each.rank for each in result.skipped} == {rank for rank, devices in ranks.items() if not devices}
    assert sorted(map(line, result.rows())) == wanted(name, ranks)
    assert len(result) > 100


@pytest.mark.parametrize(
    "place", ["h100-vs-mi300-hf/h100_bert-small.json.gz", "amd-misc/mi300_normalization_layer_test.json.gz"]
)
def test_real_traces_too(place: str, tmp_path: Path) -> None:
    traces = real_traces()
    if traces is None:
        pytest.skip("no real traces here")
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(traces / place, run="real", jobs=1)
    ranks = {0: memory.read(traces / place)}
    for name in NAMES:
        assert sorted(map(line, warehouse.analyze(name).rows())) == wanted(name, ranks), name


def test_categories_sum_to_the_total(drawn: tuple[tw.Warehouse, Any]) -> None:
    """Operators sum to the net change of a device, live allocations to its peak."""
    warehouse, _ = drawn
    peaks = {(row["rank"], row["device_type"]): row for row in warehouse.analyze("memory_peak").rows()}
    net: dict[Any, int] = dict.fromkeys(peaks, 0)
    for row in warehouse.analyze("memory_by_op").rows():
        net[row["rank"], row["device_type"]] += row["net_bytes"]
    assert net == {key: row["net_bytes"] for key, row in peaks.items()}
    live: dict[Any, int] = {}
    for row in warehouse.analyze("memory_live").rows():
        live[row["rank"], row["device_type"]] = live.get((row["rank"], row["device_type"]), 0) + row["bytes"]
    assert live == {key: row["peak_bytes"] for key, row in peaks.items() if row["peak_bytes"] is not None}
