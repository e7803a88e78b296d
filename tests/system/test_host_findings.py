"""Findings of training jobs without a GPU: each injected fault triggers its rule, and no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import sketch
import tracewarehouse as tw

MS, STEPS, STEP_MS = 1_000_000, 5, 20
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@dataclass(frozen=True)
class Job:
    """Milliseconds per step on the training thread of rank 1; rank 0 has no fault. The rest is Python."""

    load: float = 0.2
    copy: float = 0.5
    attention: float = 3.0

    def parts(self) -> list[tuple[str, str, float]]:
        """What a step runs: kind of line, name and length in ms."""
        copies = [("op", "aten::copy_", self.copy / 4)] * 4
        operators = [("op", f"aten::{name}", 2.0) for name in ("mm", "addmm", "gelu")]
        loader = ("ann", LOADER, self.load)
        return [loader, *copies, *operators, ("op", "aten::flash_attention", self.attention)]


FAULTS = {
    "none": Job(),
    "slow-loader": Job(load=6.0),
    "conversions": Job(copy=7.0),
    "slow-operator": Job(attention=11.0),
}


def lines(run: str, rank: int, job: Job) -> Iterator[str]:
    """The sketch of a rank: steps of one length, and one more that is cut off."""
    for step in range(STEPS):
        at = step * STEP_MS * MS
        yield f"{run} {rank} step t1 {step + 1} {at} {STEP_MS * MS}"
        yield f"{run} {rank} py t1 'train.py(10): step' {at + MS // 10} {STEP_MS * MS - MS // 5}"
        at += MS // 2
        for kind, name, length_ms in job.parts():
            yield f"{run} {rank} {kind} t1 '{name}' {at} {round(length_ms * MS)}"
            at += round(length_ms * MS) + MS // 20


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    folder = tmp_path_factory.mktemp("jobs")
    text = [
        line
        for run, job in FAULTS.items()
        for rank, each in enumerate((Job(), job))
        for line in lines(run, rank, each)
    ]
    sketch.write("\n".join(text) + "\n", folder / "traces")
    made = tw.open(folder / "warehouse")
    made.ingest(folder / "traces", jobs=1)
    return made


@pytest.fixture(scope="module")
def found(wh: tw.Warehouse) -> Sequence[dict[str, Any]]:
    """The findings of all runs."""
    return wh.check().rows()


@pytest.mark.parametrize(
    ("fault", "rule", "culprit", "ms"),
    [
        (
            "slow-loader",
            "host_data_loading",
            LOADER,
            6,
        ),
        ("conversions", "host_copies", "aten::copy_", 7),
        ("slow-operator", "host_operators", "aten::flash_attention", 11),
    ],
)
def test_an_injected_fault_triggers_its_rule_on_its_rank(
    found: Sequence[dict[str, Any]], fault: str, rule: str, culprit: str, ms: int
) -> None:
    (row,) = [row for row in found if row["run_id"] == fault]
    assert (row["rule"], row["rank"], row["culprit"]) == (rule, 1, culprit)
    assert row["saving_step_ns"] == ms * MS and culprit in row["observation"]


def test_a_job_without_fault_has_no_finding(found: Sequence[dict[str, Any]]) -> None:
    assert found and [row for row in found if row["run_id"] == "none"] == []


@pytest.mark.deep
def test_the_report_begins_with_the_injected_fault(wh: tw.Warehouse) -> None:
    verdict = wh.report("slow-loader").verdict
    assert verdict.sentence.startswith("Rank 1: the training thread loads data, or waits for it, for 6.0 ms")
