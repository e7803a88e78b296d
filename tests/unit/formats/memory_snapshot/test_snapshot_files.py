"""Memory snapshots from the front door: alone, beside a trace, zipped, as JSON, replaced, and real ones."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import sketch
import tracewarehouse as tw
from cli_runner import tw as call
from conftest import real_traces
from processes import use_of_snapshot
from tracewarehouse.formats.pickles.reader import read_plain
from tracewarehouse.simulation.allocator import MIB, Allocator, OutOfMemory, frames

STEP = frames(("/env/torch/nn/modules/module.py", 9, "_call_impl"), ("/job/train.py", 31, "step"))


def failing(blocks: int = 3) -> Allocator:
    """A device that is full."""
    device = Allocator((20 * blocks + 4) * MIB)
    for _ in range(blocks):
        device.malloc(20 * MIB, STEP)
    with pytest.raises(OutOfMemory):
        device.malloc(20 * MIB, STEP)
    return device


def test_a_snapshot_alone_answers_why_it_ran_out(tmp_path: Path) -> None:
    path = failing().dump(tmp_path / "oom_rank3.pickle")
    warehouse = ("-w", tmp_path / "w")
    done = call("ingest", path, "--run", "R", *warehouse)
    assert done.code == 0 and "rank 3" in done.out and "tw show snapshot_oom --run R" in done.out
    shown = call("show", "snapshot_oom", "--run", "R", "--columns", "rank,verdict,explanation", *warehouse)
    assert shown.out.splitlines()[1].startswith("3,capacity,20.0 MiB were requested on GPU 0: 60.0 MiB were")
    assert call("verify", *warehouse).code == 0
    assert "already stored" in call("ingest", path, "--run", "R", *warehouse).out


def test_a_snapshot_without_a_failure_says_so(tmp_path: Path) -> None:
    device = Allocator(64 * MIB)
    device.malloc(20 * MIB, STEP)
    path = device.dump(tmp_path / "fine_rank0.pickle")
    assert call("ingest", path, "--run", "R", "-w", tmp_path / "w").code == 0
    shown = call("show", "snapshot_oom", "--run", "R", "-w", tmp_path / "w")
    assert shown.code == 0 and "hint: these snapshots record no failed allocation" in shown.err


@pytest.mark.deep
def test_a_report_says_why_it_ran_out(tmp_path: Path) -> None:
    warehouse, report = ("-w", tmp_path / "w"), tmp_path / "R.html"
    assert call("ingest", failing().dump(tmp_path / "oom_rank3.pickle"), "--run", "R", *warehouse).code == 0
    assert call("report", "R", "-o", report, *warehouse).code == 0
    text = report.read_text(encoding="utf-8")
    assert "Out of memory on rank 3: capacity" in text and "train.py:31 step" in text


def test_traces_and_snapshots_of_a_folder_are_one_run(tmp_path: Path) -> None:
    trace = "job 0 op t1 aten::mm 10 30\njob 1 op t1 aten::mm 10 30\n"
    sketch.write(trace, tmp_path)
    for rank in (0, 1):
        failing(rank + 1).dump(tmp_path / "job" / f"snapshot_rank{rank}.pickle")
    wh = tw.open(tmp_path / "w")
    wh.ingest(tmp_path / "job")
    found = wh.query("SELECT rank, snapshot, source_format FROM ranks").rows()
    assert [tuple(row.values()) for row in found] == [(0, True, "kineto"), (1, True, "kineto")]
    assert len(wh.query("FROM rank_sources").rows()) == 4
    assert len(wh.query("FROM snapshot_events").rows()) == 8 and len(wh.query("FROM events").rows()) == 2
    wh.ingest(tmp_path / "job")
    assert len(wh.query("FROM rank_sources").rows()) == 4


def test_segments_without_a_place_are_skipped_and_counted(tmp_path: Path) -> None:
    block = {"size": 64, "state": "active_allocated", "address": 4096}
    segment = {"device": 0, "address": 4096, "total_size": 128, "blocks": [block]}
    lost = [{**segment, "device": None}, {**segment, "device": "0"}, {**segment, "address": 2**64}]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"device_traces": [], "segments": [segment, *lost]}), encoding="utf-8")
    wh = tw.open(tmp_path / "w")
    wh.ingest(path, run="R")
    for table in ("snapshot_segments", "snapshot_blocks"):
        assert [row["device"] for row in wh.query(f"SELECT device FROM {table}").rows()] == [0]
    found = wh.query("SELECT example, rows FROM data_quality WHERE rule = 'unusable_value'").rows()
    assert found == [{"example": "segments without a device or address, which are skipped", "rows": 3}]


@pytest.mark.deep
def test_many_short_allocations_are_drawn_as_a_line(tmp_path: Path) -> None:
    """No block is wide enough to be visible, and nothing failed."""
    device = Allocator(64 * MIB)
    for _ in range(400):
        device.free(device.malloc(MIB, STEP))
    wh = tw.open(tmp_path / "w")
    wh.ingest(device.dump(tmp_path / "s.pickle"), run="R")
    text = "".join(wh.report("R").html())
    assert "No findings. Active memory peaked at 1 MiB of 2 MiB reserved (rank 0, GPU 0)." in text
    assert "Infinity" not in text and "train.py:31 step" in text


@pytest.mark.deep
def test_a_second_snapshot_of_a_rank_needs_replace(tmp_path: Path) -> None:
    failing().dump(tmp_path / "a_rank0.pickle")
    failing(2).dump(tmp_path / "b_rank0.pickle")
    warehouse = ("--run", "R", "-w", tmp_path / "w")
    assert call("ingest", tmp_path / "a_rank0.pickle", *warehouse).code == 0
    refused = call("ingest", tmp_path / "b_rank0.pickle", *warehouse)
    assert refused.code == 1 and "already exists with different content" in refused.err
    assert call("ingest", tmp_path / "b_rank0.pickle", "--replace", *warehouse).code == 0


@pytest.mark.deep
def test_packed_and_json_snapshots_give_the_same_rows(tmp_path: Path) -> None:
    snapshot = failing().snapshot()
    (tmp_path / "a.pickle.gz").write_bytes(gzip.compress(pickle.dumps(snapshot)))
    (tmp_path / "b.json").write_text(json.dumps(snapshot), encoding="utf-8")
    (tmp_path / "c.pickle").write_bytes(pickle.dumps(snapshot, 0))
    with pa.CompressedOutputStream(str(tmp_path / "d.pickle.zst"), "zstd") as out:
        out.write(pickle.dumps(snapshot))
    wh = tw.open(tmp_path / "w")
    tables = ("snapshot_events", "snapshot_segments", "snapshot_blocks", "snapshot_frames")
    found: dict[str, list[Any]] = {}
    for name in ("a.pickle.gz", "b.json", "c.pickle", "d.pickle.zst"):
        wh.ingest(tmp_path / name, run=name)
        sql = "SELECT * EXCLUDE (run_id) FROM {} WHERE run_id = '{}'"
        found[name] = [wh.query(sql.format(table, name)).rows() for table in tables]
    assert found["a.pickle.gz"] == found["b.json"] == found["c.pickle"] == found["d.pickle.zst"]


def before_and_after(folder: Path) -> None:
    """Ingests two snapshots of a device as runs."""
    wh = tw.open(folder / "w")
    for name, blocks in (("before", 1), ("after", 3)):
        device = Allocator(100 * MIB)
        for _ in range(blocks):
            device.malloc(20 * MIB, STEP)
        wh.ingest(device.dump(folder / f"{name}.pickle"), run=name)


def test_two_snapshots_are_compared_by_call(tmp_path: Path) -> None:
    before_and_after(tmp_path)
    done = call("diff", "before", "after", "-w", tmp_path / "w")
    assert "memory at the peak by call" in done.out
    assert "train.py:31 step    20.0 MiB    60.0 MiB     40.0 MiB" in done.out


@pytest.mark.deep
def test_two_snapshots_are_compared_in_a_report(tmp_path: Path) -> None:
    before_and_after(tmp_path)
    assert call("report", "before", "after", "-o", tmp_path / "page.html", "-w", tmp_path / "w").code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "The peak of active memory went from 20 MiB to 60 MiB (+40 MiB)." in page
    assert "train.py:31 step, forward: 20 MiB to 60 MiB" in page


def test_a_secret_in_a_snapshot_is_redacted(tmp_path: Path) -> None:
    secret = "hf" + "_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"
    device = Allocator(64 * MIB)
    device.malloc(MIB, frames((f"/job/{secret}/train.py", 3, "step")))
    wh = tw.open(tmp_path / "w")
    wh.ingest(device.dump(tmp_path / "s.pickle"), run="R")
    assert secret not in str(wh.query("FROM snapshot_frames").rows())
    assert wh.query("SELECT redacted FROM ranks").rows() == [{"redacted": 1}]


def test_mock_data_of_a_real_recorder(tmp_path: Path) -> None:
    traces = real_traces()
    if traces is None:
        pytest.skip("no real traces")
    wh = tw.open(tmp_path / "w")
    wh.ingest(traces / "memory-snapshot" / "mosaic_output.pickle", run="mosaic")
    counted = wh.query("SELECT action, count(*) AS n FROM snapshot_events GROUP BY action").rows()
    assert {row["action"]: row["n"] for row in counted} == {"alloc": 520, "free_completed": 520}
    sizes = [len(wh.query(f"FROM {name}").rows()) for name in ("snapshot_segments", "snapshot_blocks")]
    assert sizes == [5, 17]
    assert "snapshot_segments_disagree" in {row["rule"] for row in wh.select("mosaic").quality().rows()}


@pytest.mark.deep
def test_300_000_entries_cost_little(tmp_path: Path) -> None:
    """Under 2 CPU s and four times the size of the file: equal stacks are kept once while it is loaded."""
    dice = Random(1)
    calls = [{"filename": f"/env/torch/m{at % 40}.py", "line": at, "name": f"f{at}"} for at in range(3000)]
    stacks = [[dice.choice(calls) for _ in range(25)] for _ in range(2000)]
    trace = []
    for at in range(150_000):
        entry = {"addr": 512 * (at % 4000), "size": 512, "stream": 0, "time_us": 1_760_000_000_000_000 + at}
        more = {"compile_context": "N/A", "user_metadata": ""}
        trace += [
            {"action": action, **entry, **more, "frames": list(dice.choice(stacks))}
            for action in ("alloc", "free_completed")
        ]
    path = tmp_path / "large.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))

    small = tmp_path / "small.pickle"
    small.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}))
    runs, (_, least) = [use_of_snapshot(path) for _ in range(3)], use_of_snapshot(small)
    size = path.stat().st_size
    with path.open("rb") as file:
        found = read_plain(path, file, "memory_snapshot", "a memory snapshot", tmp_path)
    assert found.tables["snapshot_events"].num_rows == 300_000
    # Other processes on the same cores make it slower.
    assert min(cpu_s for cpu_s, _ in runs) < 2
    assert max(peak for _, peak in runs) - least < 4 * size
