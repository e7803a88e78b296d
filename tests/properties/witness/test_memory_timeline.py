"""A raw memory timeline as a run; its categories compared with brute force and known numbers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tracewarehouse as tw
from cli_runner import tw as call
from conftest import real_traces

COLUMNS = (
    "parameter",
    "optimizer_state",
    "input",
    "temporary",
    "activation",
    "gradient",
    "autograd_detail",
    "unknown",
)
Rows = list[list[int]]


def write(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(rows).encode()))
    return path


def drawn(seed: int) -> Rows:
    """A timeline as PyTorch writes it: by time, with earlier allocations at -1."""
    dice = Random(seed)
    times = sorted(dice.choice([-1, dice.randrange(1_700_000_000_000_000_000, 1_700_000_000_000_000_040)])
                   for _ in range(dice.randint(1, 200)))  # fmt: skip
    return [
        [at, 1 if at < 0 else dice.randint(2, 4), dice.randrange(-500, 501, 100), dice.randrange(8)]
        for at in times
    ]


def moments(rows: Rows) -> Iterator[tuple[int | None, list[int]]]:
    """Each time with the bytes of the eight categories after the change."""
    sizes = [0] * len(COLUMNS)
    for number, (at, _, size, category) in enumerate(rows):
        sizes[category] += size
        if number + 1 == len(rows) or rows[number + 1][0] != at:
            yield None if at < 0 else at, list(sizes)


def curve(rows: Rows) -> list[tuple[Any, ...]]:
    return [(number, at, *sizes, sum(sizes)) for number, (at, sizes) in enumerate(moments(rows), 1)]


def categories(rows: Rows) -> list[tuple[Any, ...]]:
    found = list(moments(rows))
    peak_at, peak = max(found, key=lambda each: sum(each[1]))
    table = []
    for number in sorted({row[3] for row in rows}):
        own = [row for row in rows if row[3] == number]
        # A category has no row before its first change.
        times = {None if row[0] < 0 else row[0] for row in own}
        most_at, most = max((each for each in found if each[0] in times), key=lambda each: each[1][number])
        table.append(
            (COLUMNS[number], len(own), sum(row[2] for row in own if row[0] < 0), peak[number], peak_at)
            + (most[number], most_at, found[-1][1][number])
        )
    return sorted(table)


def reported(wh: tw.Warehouse, run: str, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values())[2:] for row in wh.select(runs=run).analyze(name).rows())


def check(wh: tw.Warehouse, run: str, rows: Rows) -> None:
    assert reported(wh, run, "memory_category_curve") == curve(rows)
    assert reported(wh, run, "memory_by_category") == categories(rows)


def test_random_timelines(tmp_path: Path) -> None:
    files = {f"run{seed}": drawn(seed) for seed in range(12)}
    wh = tw.open(tmp_path / "warehouse")
    paths = [write(tmp_path / f"{run}.raw.json.gz", rows) for run, rows in files.items()]
    assert {each.state for each in wh.ingest(*paths).files} == {"intact"}
    for run, rows in files.items():
        check(wh, run, rows)


def test_a_recorded_timeline(tmp_path: Path) -> None:
    """The values at its 744th time and at its peak equal published ones."""
    traces = real_traces()
    if traces is None:
        pytest.skip("no real traces here")
    (path,) = traces.glob("*/memory_timeline.raw.json.gz")
    rows = json.loads(gzip.decompress(path.read_bytes()))
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(path, run="timeline")
    check(wh, "timeline", rows)
    found = reported(wh, "timeline", "memory_category_curve")
    assert len(found) == 7_721
    assert found[744][2:10] == (
        102_440_608, 102_228_128, 19_395_584, 0, 2_618_160_128, 58_417_152, 41_811_968, 25_494_440,
    )  # fmt: skip
    assert max(row[-1] for row in found) == found[762][-1] == 3_082_832_104


def test_it_round_trips(tmp_path: Path) -> None:
    rows = drawn(5)
    path = write(tmp_path / "m.raw.json.gz", rows)
    wh = tw.open(tmp_path / "warehouse")
    (file,) = wh.ingest(path, run="mine", rank=3).files
    assert (file.rank, file.content and file.content.events, file.content and file.content.non_events) == (
        3,
        len(rows),
        0,
    )
    assert json.loads("".join(wh.export_trace("mine")))["traceEvents"] == rows
    assert wh.ingest(path, run="mine", rank=3).files[0].state == "same"
    (row,) = wh.info("mine").ranks.rows()
    times = [row[0] for row in rows if row[0] > 0]
    assert (row["start_ns"], row["end_ns"], row["memory_timeline"]) == (min(times), max(times), True)
    skipped = wh.analyze("temporal_breakdown").skipped
    assert [each.reason for each in skipped] == ["no GPU activities recorded"]


def test_it_is_ingested_if_named(tmp_path: Path) -> None:
    path = write(tmp_path / "traces" / "m.raw.json.gz", drawn(1))
    walked = call("ingest", tmp_path / "traces", "-w", tmp_path / "warehouse")
    assert walked.code == 1 and "name the file to ingest it as a separate run" in walked.err
    named = call("ingest", path, "-w", tmp_path / "warehouse")
    assert named.code == 0 and "ingested 1 rank" in named.out


def test_a_truncated_one_keeps_complete_elements(tmp_path: Path) -> None:
    rows = drawn(2)
    path = tmp_path / "m.raw.json"
    path.write_text(json.dumps(rows)[:-9])
    wh = tw.open(tmp_path / "warehouse")
    (file,) = wh.ingest(path, run="cut", min_age_s=0).files
    assert file.state == "damaged"
    check(wh, "cut", rows[:-1])


def test_other_elements_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text("[[-1, 0, [1, 0], 5], [17, 1, [2, 0], 6]]")
    reported = call("ingest", path, "-w", tmp_path / "warehouse")
    assert reported.code == 1 and "is a PyTorch memory timeline, not a supported trace" in reported.err
