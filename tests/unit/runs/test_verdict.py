"""The verdict on a run: ranks that start late, are of another attempt, or are missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sketch
import tracewarehouse as tw
from tracewarehouse.runs.recording import NO_BASIS, SOUND, USABLE, recording_verdict

MS = 1_000_000
WORLD = '{"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 4}}'
# Run → the start and the end of each rank's recording in ms.
WINDOWS: dict[str, list[tuple[float, float]]] = {
    "together": [(0, 50), (0.9, 50), (0, 49)],
    "late": [(0, 50), (0, 50), (20, 50)],
    "most late": [(0, 50), (20, 50), (20, 50)],
    "late for its steps": [(0, 50), (9, 50), (0, 50)],
    "less than 1 ms": [(0, 4), (0, 4), (0.9, 4)],
    "stops early": [(0, 50), (0, 50), (0, 20)],
    "stops early, clock behind": [(0, 50), (0, 50), (-1, 20)],
    "late and stops early": [(0, 50), (0, 50), (20, 40)],
    "clock ahead": [(0, 50), (0, 50), (30, 80)],
    "clock behind": [(0, 50), (0, 50), (-30, 20)],
    "two clocks": [(0, 50), (-30, 20), (30, 80)],
    "two ranks": [(0, 50), (30, 80)],
    "apart": [(0, 50), (0, 50), (5_000, 5_050)],
    "clock ahead by more": [(0, 50), (0, 50), (300, 350)],
    "late and ahead": [(0, 50), (0, 50), (50, 80)],
}
STEPPED = "late for its steps"  # its rank 0 has steps of 5 ms


def trace(run: str, rank: int, start: float, end: float, collective: bool = True) -> Iterator[str]:
    head = f"{run.replace(',', '').replace(' ', '-')} {rank}"
    begin, until = round((1_000 + start) * MS), round((1_000 + end) * MS)
    yield f"{head} op t1 aten::mm {begin} {until - begin}"
    yield f"{head} call t1 cudaLaunchKernel {begin + 100} 100 id=1"
    yield f"{head} gpu s7 {'ncclDevKernel_AllReduce' if collective else 'k'} {begin + 1_000} 1000 id=1"
    for step in range(8) if run == STEPPED and rank == 0 else ():
        at = begin + (1 + 5 * step) * MS
        yield f"{head} step t1 {step} {at} {5 * MS}"
        yield f"{head} call t1 cudaLaunchKernel {at + 100} 100 id={step + 10}"
        yield f"{head} gpu s7 k {at + 1_000} 1000 id={step + 10}"


@pytest.fixture(scope="module")
def reasons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[tuple[int | None, str], Any]]:
    """Run → rank and reason → the row, limits only."""
    folder = tmp_path_factory.mktemp("recording")
    lines = [
        line
        for run, windows in WINDOWS.items()
        for rank, window in enumerate(windows)
        for line in trace(run, rank, *window)
    ]
    for run, collective in (("missing", True), ("independent", False)):
        lines += [line for rank in (0, 2) for line in trace(run, rank, 0, 50, collective)]
        lines += [f"{run} {rank} header {WORLD}".replace('"rank": 0', f'"rank": {rank}') for rank in (0, 2)]
    sketch.write("\n".join(lines), folder / "traces")
    wh = tw.open(folder / "warehouse")
    wh.ingest(folder / "traces", jobs=1)
    found: dict[str, dict[tuple[int | None, str], Any]] = defaultdict(dict)
    for row in wh.query("SELECT * FROM recording").rows():
        found[row["run_id"].removeprefix("traces.").replace("-", " ")] |= (
            {(row["rank"], row["reason"]): row} if row["level"] == "limit" else {}
        )
    return found


@pytest.mark.parametrize(
    "run",
    [
        "together",
        "less than 1 ms",
        "stops early, clock behind",
        STEPPED,
        "stops early",
        "clock ahead",
        "clock behind",
        "two clocks",
        "two ranks",
    ],
)
def test_recordings_that_start_together_have_no_limit(reasons: Any, run: str) -> None:
    assert reasons[run.replace(",", "")] == {}


def test_a_rank_that_starts_late_is_named_with_the_time(reasons: Any) -> None:
    assert reasons["late"].keys() == {(2, "late_start")}
    row = reasons["late"][2, "late_start"]
    assert (row["state"], row["affected_ns"]) == (USABLE, 20 * MS)
    assert "20.0 ms" in row["text"]
    assert reasons["most late"].keys() == {(1, "late_start"), (2, "late_start")}
    assert reasons["late and ahead"].keys() == {(2, "late_start")}
    assert reasons["late and stops early"][2, "late_start"]["affected_ns"] == 20 * MS
    assert reasons["clock ahead by more"].keys() == {(2, "late_start")}  # more than clocks are off


def test_ranks_of_another_attempt_leave_no_basis(reasons: Any) -> None:
    assert reasons["apart"].keys() == {(None, "mixed_attempts")}
    row = reasons["apart"][None, "mixed_attempts"]
    assert (row["state"], row["ranks"], row["rows"]) == (NO_BASIS, "2", 1)


def test_missing_ranks_matter_if_ranks_communicate(reasons: Any) -> None:
    assert reasons["missing"].keys() == {(None, "ranks_missing")}
    row = reasons["missing"][None, "ranks_missing"]
    assert (row["state"], row["ranks"], row["rows"]) == (USABLE, "1, 3", 2)
    assert reasons["independent"] == {}


def test_a_damaged_rank_lacks_steps_that_another_has(tmp_path: Path) -> None:
    lines = [line for rank in range(2) for line in trace(STEPPED, rank, 0, 50)]
    lines += [line.replace(" 0 ", " 1 ", 1) for line in lines if " step " in line]
    _, cut = sketch.write("\n".join(lines), tmp_path / "traces")
    text = cut.read_text()
    cut.write_text(text[: text.index("ProfilerStep#5")])
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(tmp_path / "traces", jobs=1, min_age_s=0)
    (row,) = wh.query("SELECT text FROM recording WHERE reason = 'lost_events'").rows()
    assert row["text"].endswith("; 3 of the 8 steps of other ranks are missing")


def test_the_verdict_is_one_line_with_each_reason_once(reasons: Any) -> None:
    assert recording_verdict([]) == SOUND
    late = list(reasons["most late"].values())
    line = recording_verdict(late)
    assert line.startswith(f"{USABLE}: rank 1 and 1 more: ") and line.count("20.0 ms") == 1
    both = recording_verdict([*late, *reasons["apart"].values()])
    assert both.startswith(f"{NO_BASIS}: ") and both.count("; ") >= 1 and "attempt" in both
