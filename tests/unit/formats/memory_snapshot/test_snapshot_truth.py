"""Memory snapshots of a simulated allocator: what the views compute equals what the allocator knew.

The views run directly on the tables that the reader makes: each snapshot, whole or cut, is a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from conftest import deep
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.duck.engine import connect
from tracewarehouse.formats.pickled import contradictions
from tracewarehouse.formats.pickles.memory_snapshot import walk
from tracewarehouse.formats.pickles.values import Budget
from tracewarehouse.simulation.allocator import MIB, Allocator, OutOfMemory, frames

TABLES = ("snapshot_events", "snapshot_segments", "snapshot_blocks", "snapshot_frames")
CALLS = [frames(("train.py", line, f"call{line}")) for line in range(5)]


def drawn(seed: int, expandable: bool = False) -> Allocator:
    """A random program on a small device: it fails often, and goes on."""
    dice = Random(seed)
    allocator = Allocator(dice.choice([80, 150, 300]) * MIB, dice.choice([0, 30]) * MIB, expandable)
    live: list[int] = []
    pending: list[int] = []
    for _ in range(dice.randint(30, 120)):
        try:
            if dice.random() < 0.6 or not live:
                size = dice.choice(
                    [dice.randint(1, MIB), dice.randint(MIB, 9 * MIB), dice.randint(9, 40) * MIB]
                )
                live.append(allocator.malloc(size, dice.choice(CALLS), dice.choice([0, 0, 0, 7])))
            else:
                address = live.pop(dice.randrange(len(live)))
                waits = dice.random() < 0.2
                allocator.free(address, CALLS[0], pending=waits)
                pending += [address] if waits else []
        except OutOfMemory:
            while live and dice.random() < 0.7:
                allocator.free(live.pop(), CALLS[1])
        if pending and dice.random() < 0.3:
            allocator.complete(pending.pop(0))
    return allocator


class Views:
    """The views on the snapshots of several runs."""

    def __init__(self, snapshots: Mapping[str, dict[str, Any]]) -> None:
        found = {run: walk(snapshot, Budget(10**9)).tables for run, snapshot in snapshots.items()}
        self.catalog = Catalog.load()
        self.found = found
        self.con = connect()
        for name in TABLES:
            rows = [
                table[name].add_column(0, "run_id", pa.array([run] * table[name].num_rows, pa.string()))
                for run, table in found.items()
            ]
            joined = pa.concat_tables([table.unify_dictionaries() for table in rows])
            self.con.register(f"{name}_rows", joined)
            self.con.execute(f"CREATE TABLE {name} AS SELECT 0 AS rank, * FROM {name}_rows")

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a view or analysis without parameters."""
        self._create(self.catalog.get(name))
        found: list[dict[str, Any]] = self.con.sql(f"FROM {name}").to_arrow_table().to_pylist()
        return found

    def _create(self, contract: Contract) -> None:
        for ref in contract.requires:
            if ref.name not in TABLES:
                self._create(self.catalog.get(ref.name))
        self.con.execute(f"CREATE OR REPLACE VIEW {contract.name} AS {contract.body}")


PROGRAMS = [(seed, expandable) for seed in range(12) for expandable in (False, True)]


@pytest.fixture(scope="module")
def programs() -> dict[str, Allocator]:
    return {f"{seed}-{expandable}": drawn(seed, expandable) for seed, expandable in PROGRAMS}


@pytest.fixture(scope="module")
def views(programs: dict[str, Allocator]) -> Views:
    return Views({name: each.snapshot() for name, each in programs.items()})


def test_the_curve_is_what_the_allocator_counted(programs: dict[str, Allocator], views: Views) -> None:
    found: dict[str, list[tuple[int, int, int]]] = {name: [] for name in programs}
    for row in sorted(views.rows("snapshot_states"), key=lambda row: (row["run_id"], row["entry"])):
        found[row["run_id"]].append((row["allocated_bytes"], row["active_bytes"], row["reserved_bytes"]))
    for name, program in programs.items():
        truth = [(usage.allocated, usage.active, usage.reserved) for usage in program.usage]
        assert found[name] == [(0, 0, 0), *truth], name


def test_failures_see_the_free_blocks_of_their_moment(programs: dict[str, Allocator], views: Views) -> None:
    found = {
        (row["run_id"], row["entry"]): (
            row["requested_bytes"], row["device_free_bytes"], row["reserved_bytes"],
            row["free_in_cache_bytes"], row["largest_free_bytes"],
        )
        for row in views.rows("snapshot_failures")
    }  # fmt: skip
    truth = {
        (name, at): (entry["size"], entry["device_free"], usage.reserved, usage.free, usage.largest_free)
        for name, program in programs.items()
        for at, (entry, usage) in enumerate(zip(program.entries, program.usage, strict=True))
        if entry["action"] == "oom"
    }
    assert len(truth) > 50 and found == truth


def test_the_peak_is_divided_completely(programs: dict[str, Allocator], views: Views) -> None:
    rows = views.rows("snapshot_peak")
    for name, program in programs.items():
        own = [row for row in rows if row["run_id"] == name]
        peak = max(usage.active for usage in program.usage)
        assert {row["peak_bytes"] for row in own} == {peak}
        assert sum(row["bytes"] for row in own) == peak
        assert own[0]["peak_entry"] == [usage.active for usage in program.usage].index(peak)


def test_fragmentation_sums_to_the_segments(programs: dict[str, Allocator], views: Views) -> None:
    rows = views.rows("snapshot_fragmentation")
    for name, program in programs.items():
        own = [row for row in rows if row["run_id"] == name]
        assert sum(row["reserved_bytes"] for row in own) == program.usage[-1].reserved
        assert sum(row["external_bytes"] for row in own) == program.usage[-1].free
        assert sum(row["requested_bytes"] for row in own) == program.usage[-1].active
        assert all(row["reserved_bytes"] == row["active_bytes"] + row["external_bytes"] for row in own)
        assert all(row["external_bytes"] == row["stuck_bytes"] + row["releasable_bytes"] for row in own)


def on_own_devices(views: Views) -> dict[str, pa.Table]:
    """The tables of all snapshots, whose devices have other numbers in each."""
    found: dict[str, list[pa.Table]] = {}
    for number, tables in enumerate(views.found.values()):
        for name in ("snapshot_events", "snapshot_segments", "snapshot_blocks"):
            table = tables[name]
            devices = pc.add(table.column("device"), 100 * number)
            at = table.column_names.index("device")
            found.setdefault(name, []).append(table.set_column(at, "device", devices))
    return {name: pa.concat_tables(each) for name, each in found.items()}


def test_nothing_contradicts_itself(views: Views) -> None:
    assert contradictions(on_own_devices(views)) == []


def cuts(program: Allocator) -> Iterator[tuple[str, dict[str, Any]]]:
    for cut in range(len(program.entries) + 1):
        yield f"cut{cut}", program.snapshot(cut)


@pytest.mark.parametrize("expandable", [True, *deep(False)])
def test_a_ring_buffer_cut_anywhere_gives_the_same_curve(expandable: bool) -> None:
    program = drawn(5, expandable)
    views = Views(dict(cuts(program)))
    truth = [(0, 0, 0), *((usage.allocated, usage.active, usage.reserved) for usage in program.usage)]
    found: dict[str, list[tuple[int, int, int]]] = {}
    for row in sorted(views.rows("snapshot_states"), key=lambda row: row["entry"]):
        values = (row["allocated_bytes"], row["active_bytes"], row["reserved_bytes"])
        found.setdefault(row["run_id"], []).append(values)
    for cut in range(len(program.entries) + 1):
        assert found.get(f"cut{cut}", [(0, 0, 0)]) == truth[cut:], cut
    assert any(row["born_before"] for row in views.rows("snapshot_lifetimes"))
    for row in views.rows("snapshot_failures"):
        cut = int(row["run_id"].removeprefix("cut"))
        usage = program.usage[row["entry"] + cut]
        assert (row["reserved_bytes"], row["active_bytes"]) == (usage.reserved, usage.active)
    findings = contradictions(on_own_devices(views))
    assert "snapshot_overrun" not in {rule for rule, _, _ in findings}


def test_contradictions_are_found() -> None:
    program = drawn(3)
    snapshot = program.snapshot()
    trace = snapshot["device_traces"][0]
    first = next(at for at, entry in enumerate(trace) if entry["action"] == "free_completed")
    trace.insert(first + 1, dict(trace[first]))
    snapshot["segments"][0]["active_size"] += 512
    address = trace[first]["addr"]
    tables = walk(snapshot, Budget(10**9)).tables
    turns, totals = contradictions(tables)
    assert turns[1] == 1 and f"{address:#x}" in str(turns[2])
    assert totals[1] == 1
