"""Collectives across ranks compared with the simulator: waits, transfers, stragglers, clock offsets."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import deep, with_deep

WAITS_FOR_ALL = ("allreduce", "all_gather", "reduce_scatter", "all_to_all")
SMALL = {"steps": 2, "layers": 2, "hidden": 256, "sequence": 256, "stacks": False, "memory": False}
OFF = ["clock:rank=1,offset_us=5000", "clock:rank=2,offset_us=-5000"]
DRIFTS = [OFF[0], "clock:rank=2,offset_us=-5000,drift_ppm=20"]
LAYOUTS: dict[str, dict[str, Any]] = {
    "data": {"ranks": 4, "injections": DRIFTS},
    "mesh": {"ranks": 4, "tensor": 2, "injections": OFF},
    "pipeline": {"ranks": 8, "pipeline": 2, "tensor": 2, "microbatches": 2, "injections": OFF},
    "sharded": {"ranks": 4, "sharded": True, "dialect": "epoch", "injections": DRIFTS},
    "experts": {"ranks": 4, "experts": True, "gpu": "A100"},
    "amd": {"ranks": 4, "tensor": 2, "gpu": "MI300X", "injections": DRIFTS},
    "old": {"ranks": 4, "gpu": "V100", "dialect": "old", "injections": DRIFTS},
    "graphs": {"ranks": 4, "tensor": 2, "mode": "inference", "graphs": True},
    "slow": {"ranks": 4, "injections": ["slow-rank:rank=2,what=compute,factor=2"]},
    "missing": {"ranks": 4, "injections": ["missing-rank:rank=0"]},
    "lost": {"ranks": 4, "dialect": "epoch", "injections": ["lost-gpu:share=0.1"]},
    "cut": {"ranks": 4, "steps": 4, "injections": ["truncated-window:rank=1,from_ms=2,to_ms=5"]},
}
RARE = ("sharded", "experts", "amd", "old", "graphs", "lost")  # simulated for the deep tests only


class Run:
    """A simulated run: its truth and the results of analyses."""

    def __init__(self, answers: dict[str, list[dict[str, Any]]], name: str, folder: Path) -> None:
        self.truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))["sections"]
        own = {key: [row for row in rows if row["run_id"] == name] for key, rows in answers.items()}
        self.waits, self.stragglers, self.clocks = own["waits"], own["stragglers"], own["clocks"]

    def section(self, name: str) -> list[dict[str, Any]]:
        """The rows of a section of the truth."""
        found = self.truth[name]
        return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]

    def met(self) -> list[dict[str, Any]]:
        """Collectives that wait for all ranks, from the scheduler."""
        return [row for row in self.section("collectives") if row["name"] in WAITS_FOR_ALL]

    def matched(self) -> list[dict[str, Any]]:
        """Collectives that wait for all ranks, as matched by the analysis."""
        return [row for row in self.waits if row["wait_ns"] is not None]


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("stragglers")
    names = [name for name in LAYOUTS if name not in RARE or with_deep(request)]
    for name in names:
        tw.simulate(folder / "sim" / name, **(SMALL | LAYOUTS[name]))
    wh = tw.open(folder / "warehouse")
    wh.ingest(folder / "sim", jobs=1)
    answers = {
        "waits": wh.collective_waits().rows(),
        "stragglers": wh.stragglers().rows(),
        "clocks": wh.query("SELECT * FROM clock_offsets ORDER BY rank").rows(),
    }
    return {name: Run(answers, name, folder / "sim" / name) for name in names}


# No drift, nothing lost, times in ns.
@pytest.mark.parametrize("name", ["mesh", "pipeline", "slow", *deep("experts", "graphs")])
def test_waits_and_transfers_equal_those_of_the_scheduler(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    wanted = Counter((r["rank"], r["wait_ns"], r["transfer_ns"], r["dur_ns"]) for r in run.met())
    found = Counter((r["rank"], r["wait_ns"], r["transfer_ns"], r["dur_ns"]) for r in run.matched())
    assert wanted and found == wanted
    assert {row["state"] for row in run.matched()} == {"complete"}


@pytest.mark.parametrize("name", ["data", *deep("sharded", "amd", "old")])
def test_drift_and_microsecond_times_have_a_bounded_error(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    wanted = sorted((r["rank"], r["transfer_ns"], r["wait_ns"]) for r in run.met())
    found = sorted((r["rank"], r["transfer_ns"], r["wait_ns"]) for r in run.matched())
    assert [row[0] for row in found] == [row[0] for row in wanted]
    for estimate, true in zip(found, wanted, strict=True):
        assert abs(estimate[1] - true[1]) <= 2_000, (estimate, true)
    assert abs(sum(r[2] for r in found) - sum(r[2] for r in wanted)) <= 2_000 * len(found)


@pytest.mark.parametrize("name", ["data", "mesh", "pipeline", *deep("sharded", "amd", "old")])
def test_injected_clock_offsets_are_estimated_within_5_us(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    true = {row["rank"]: row["offset_ns"] for row in run.section("clocks")}
    assert len(run.clocks) == len(true)
    for row in run.clocks:
        expected = true[row["rank"]] - true[row["reference_rank"]]
        assert abs(row["offset_ns"] - expected) <= 5_000
        assert row["uncertainty_ns"] <= 2_500


def test_sends_and_receives_link_stages_that_share_no_collective(runs: dict[str, Run]) -> None:
    assert {row["reference_rank"] for row in runs["mesh"].clocks} == {0}
    assert {row["reference_rank"] for row in runs["pipeline"].clocks} == {0}


def test_every_send_is_matched_with_its_receive(runs: dict[str, Run]) -> None:
    run = runs["pipeline"]
    true = {(r["rank"], r["group"], r["number"]): r for r in run.section("collectives")}
    pairs = [row for row in run.waits if row["direction"]]
    assert len(pairs) == sum(row["name"] in ("send", "recv") for row in true.values()) > 0
    for row in pairs:
        expected = true[row["rank"], row["process_group"], row["sequence"]]
        assert (row["state"], row["members"], row["dur_ns"]) == ("complete", 2, expected["dur_ns"])
        assert (row["pair_wait_ns"], row["wait_ns"]) == (expected["wait_ns"], None)
        assert abs(row["rank"] - row["peer"]) == 4


def test_with_exact_clocks_starts_and_durations_agree(runs: dict[str, Run]) -> None:
    meetings: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in runs["slow"].matched():
        meetings[row["instance_id"]].append(row)
    for rows in meetings.values():
        longest = max(row["wait_ns"] for row in rows)
        assert {row["late_ns"] + row["wait_ns"] for row in rows} == {longest}


def test_the_slow_rank_is_named(runs: dict[str, Run]) -> None:
    met: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for row in runs["slow"].met():
        met[row["group"], row["number"]][row["rank"]] = row["wait_ns"]
    caused: dict[int, int] = defaultdict(int)
    for waits in met.values():
        caused[min(waits, key=lambda rank: (waits[rank], rank))] += sum(waits.values())
    found = runs["slow"].stragglers
    assert {row["rank"]: row["caused_wait_ns"] for row in found} == {rank: caused[rank] for rank in range(4)}
    assert found[0]["rank"] == 2 and found[0]["share"] > 0.9
    assert sum(row["wait_ns"] for row in found) == sum(row["caused_wait_ns"] for row in found)
    assert sum(row["arrived_last"] for row in found) == len(met)


def test_a_missing_rank_leaves_partial_collectives(runs: dict[str, Run]) -> None:
    run = runs["missing"]
    assert {row["state"] for row in run.waits} == {"partial"}
    assert [row["reference_rank"] for row in run.clocks] == [1, 1, 1]
    assert all(row["partial"] == row["collectives"] > 0 for row in run.stragglers)


@pytest.mark.deep
def test_lost_activities_never_cause_a_wrong_match(runs: dict[str, Run]) -> None:
    run = runs["lost"]
    true = {(row["rank"], row["dur_ns"]): row["transfer_ns"] for row in run.met()}
    for row in run.matched():
        if row["state"] == "complete":
            assert row["transfer_ns"] == true[row["rank"], row["dur_ns"]]
    assert {"ambiguous"} < {row["state"] for row in run.waits}


def test_a_window_that_begins_late_is_matched_by_sequence_number(runs: dict[str, Run]) -> None:
    run = runs["cut"]
    true = {(row["rank"], row["group"], row["number"]): row["dur_ns"] for row in run.met()}
    for row in run.matched():
        assert row["dur_ns"] == true[row["rank"], row["process_group"], row["sequence"]]
    assert {"complete", "late_start"} == {row["state"] for row in run.waits}
    assert not any(row["wait_ns"] for row in run.waits if row["state"] == "late_start")
