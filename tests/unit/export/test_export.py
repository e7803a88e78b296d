"""`tw export trace` with counters and overlays: a valid trace with the original events unchanged."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import sketch
import tracewarehouse as tw
from cli_runner import tw as run_tw
from conftest import ROOT, deep, real_traces
from tracewarehouse.errors import ParamError, UnknownName
from tracewarehouse.export.overlays import COUNTERS, OVERLAYS

Event = dict[str, Any]
EVERYTHING = {"counters": tuple(COUNTERS), "overlays": tuple(OVERLAYS)}
FIRST_STEPS = ROOT / "tests" / "data" / "first-steps"
NUMBERS = (int, Decimal)

REAL = {
    "hta-singles/a100_nccl_pg_config_rank0of2.json.gz": EVERYTHING,
    "hta-singles/a100_critical_path_alexnet.json.gz": EVERYTHING,
    "amd-misc/mi250_minitoy_train_ROCm6_2_kineto.json.gz": EVERYTHING,
    "ascend/trace_view.json": EVERYTHING,
    "linear-2080ti/linear_kineto.json.gz": EVERYTHING,
    "inference-graphs-mi300/sglang_decode__Qwen3-8B_decode.json.gz": EVERYTHING,
    "odd/cpu_only_rank-34of300.pt.trace.json.gz": {},
}


def exported(warehouse: tw.Warehouse, run: str, rank: int | None = None, **more: Any) -> str:
    """The entire text."""
    return "".join(warehouse.export_trace(run, rank, **more))


def exact(text: str) -> Any:
    """JSON with numbers as text; raises ValueError for NaN and Infinity."""
    return json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_number)


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not valid JSON")


def read(text: str) -> list[Event]:
    """The events with exact times."""
    events: list[Event] = json.loads(text, parse_float=Decimal)["traceEvents"]
    return events


# The required keys of each added phase, with their types.
TIMED: dict[str, Callable[[Any], bool]] = {"ts": lambda value: isinstance(value, NUMBERS)}
NAMED: dict[str, Callable[[Any], bool]] = {
    "name": lambda value: isinstance(value, str),
    "pid": lambda value: isinstance(value, (int, str)),
}
PHASES: dict[str, dict[str, Callable[[Any], bool]]] = {
    "M": NAMED | {"args": lambda value: isinstance(value, dict) and len(value) == 1},
    "C": NAMED
    | TIMED
    | {"args": lambda value: bool(value) and all(isinstance(each, NUMBERS) for each in value.values())},
    "X": NAMED
    | TIMED
    | {
        "tid": lambda value: isinstance(value, (int, str)),
        "dur": lambda value: isinstance(value, NUMBERS) and value >= 0,
    },
    "s": NAMED | TIMED | {"id": lambda value: isinstance(value, (int, str)), "cat": bool},
    "f": NAMED | TIMED | {"id": lambda value: isinstance(value, (int, str)), "cat": bool},
}


def check_format(added: list[Event], original: list[Event]) -> None:
    """Each added event has the required keys; slices nest; tracks have a name; flows have both ends."""
    for event in added:
        wrong = [key for key, right in PHASES[event["ph"]].items() if not right(event.get(key))]
        assert not wrong, (event, wrong)
    taken = {(event.get("pid"), event.get("tid")) for event in original if isinstance(event, dict)}
    named = {(event["pid"], event["tid"]) for event in added if event["ph"] == "M"}
    assert not named & taken
    drawn = {(event["pid"], event["tid"]) for event in added if event["ph"] == "X"}
    assert drawn == named
    check_nesting(added)
    ends = {phase: sorted(str(event["id"]) for event in added if event["ph"] == phase) for phase in "sf"}
    assert ends["s"] == ends["f"]


def check_nesting(added: list[Event]) -> None:
    """On each track, a slice is within the previous one or after it, in the order of the file."""
    tracks: dict[Any, list[tuple[Decimal, Decimal]]] = defaultdict(list)
    for event in added:
        if event["ph"] != "X":
            continue
        start, end = Decimal(event["ts"]), Decimal(event["ts"]) + Decimal(event["dur"])
        open_slices = tracks[event["pid"], event["tid"]]
        while open_slices and open_slices[-1][1] <= start and open_slices[-1] != (start, end):
            open_slices.pop()
        assert not open_slices or open_slices[-1][0] <= start <= end <= open_slices[-1][1], event
        open_slices.append((start, end))


def check(warehouse: tw.Warehouse, run: str, source: Path, more: Any, rank: int | None = None) -> list[Event]:
    """Checks that the export is valid and starts with the unchanged original; returns the added events."""
    data = source.read_bytes()
    original = exact((gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode())
    first = original["traceEvents"] if isinstance(original, dict) else original
    if "critical_path" in more.get("overlays", ()):
        warehouse.derive("critical_path", run, ranks=rank)
    text = exported(warehouse, run, rank, **more)
    found = exact(text)
    assert found["traceEvents"][: len(first)] == first
    if isinstance(original, dict):
        assert {key: found[key] for key in found if key != "traceEvents"} == {
            key: original[key] for key in original if key != "traceEvents"
        }
    events = read(text)
    check_format(events[len(first) :], events[: len(first)])
    return events[len(first) :]


def test_all_additions_together_give_a_valid_trace(tmp_path: Path) -> None:
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(FIRST_STEPS / "rank1.json.gz", run="first-steps", jobs=1)
    added = check(warehouse, "first-steps", FIRST_STEPS / "rank1.json.gz", EVERYTHING, 1)
    assert {event["ph"] for event in added} >= {"C", "X", "M"}


@pytest.mark.deep
@pytest.mark.parametrize("dialect", ["new", *deep("epoch", "old")])
def test_times_have_the_units_of_the_trace(dialect: str, tmp_path: Path) -> None:
    tw.simulate(tmp_path / "sim", ranks=1, steps=2, layers=2, dialect=dialect)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "sim" / "rank0.json.gz", run="sim")
    added = check(warehouse, "sim", tmp_path / "sim" / "rank0.json.gz", EVERYTHING)
    base = warehouse.info("sim").ranks.rows()[0]["base_time_ns"]
    assert (base > 0) == (dialect == "new")
    drawn = {
        (event["name"], 1_000 * Decimal(event["ts"]) + base): event["args"]
        for event in added
        if event["ph"] == "C"
    }
    rows = warehouse.select("sim").queue_length().rows()
    speeds = warehouse.select("sim").memory_bandwidth().rows()
    assert len(drawn) == len(rows) + len(speeds) > 100
    for row in rows:
        counted = drawn[f"queue_length stream {row['stream']}", row["ts_ns"]]
        assert counted == {"activities": row["queue_length"]}
    for row in speeds:
        counted = drawn[f"memory_bandwidth {row['direction']}", row["ts_ns"]]
        assert counted == {"GB/s": Decimal(repr(row["bandwidth_bytes_per_ns"]))}


@pytest.mark.deep
def test_added_events_change_no_result(tmp_path: Path) -> None:
    before = tw.open(tmp_path / "before")
    before.ingest(FIRST_STEPS / "rank0.json.gz", run="first")
    before.derive("critical_path", "first")
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen" / "rank0.json").write_text(exported(before, "first", **EVERYTHING), encoding="utf-8")
    after = tw.open(tmp_path / "after")
    after.ingest(tmp_path / "seen" / "rank0.json", run="first")
    count = len(before.query("SELECT event_id FROM events").rows())
    for sql in (
        f"SELECT * EXCLUDE (pre, post) FROM events WHERE event_id < {count} ORDER BY event_id",
        "SELECT * FROM kernels ORDER BY event_id",
        "SELECT * FROM runtime ORDER BY event_id",
        "SELECT * FROM correlations ORDER BY kernel_id",
    ):
        assert after.query(sql).rows() == before.query(sql).rows()
    for name in ("temporal_breakdown", "kernel_summary", "launch_stats", "coverage", "step_summary"):
        assert after.analyze(name).rows() == before.analyze(name).rows(), name
    rules = {row["rule"] for row in after.analyze("quality").rows()}
    assert rules - {row["rule"] for row in before.analyze("quality").rows()} == {"unknown_category"}


ANNOTATED = """
    # Activities of a stream; step and forward enclose their launches. k2 begins before k1 ends, and truncates
    # it.
    a 0 step t1 1            0 100
    a 0 ann  t1 forward     10  50
    a 0 call t1 cudaLaunchKernel 12 5 id=1
    a 0 gpu  s7 k1         200 100 id=1
    a 0 call t1 cudaLaunchKernel 20 5 id=2
    a 0 gpu  s7 k2         280 120 id=2
    a 0 call t1 cudaLaunchKernel 70 5 id=3
    a 0 gpu  s7 k3         400  50 id=3
    a 0 call t1 cudaLaunchKernel 120 5 id=4
    a 0 gpu  s7 k4         500  50 id=4
    a 0 step t1 2          150 100
    a 0 call t1 cudaLaunchKernel 160 5 id=5
    a 0 gpu  s7 k5         600  50 id=5
"""


def test_annotations_cover_the_activities_launched_within(tmp_path: Path) -> None:
    sketch.write(ANNOTATED, tmp_path)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "a" / "rank0.json", run="a")
    added = check(warehouse, "a", tmp_path / "a" / "rank0.json", {"overlays": ["annotations"]})
    slices = [event for event in added if event["ph"] == "X"]
    assert [(e["name"], 1_000 * e["ts"], 1_000 * e["dur"], e["args"]["GPU activities"]) for e in slices] == [
        ("ProfilerStep#1", 200, 250, 3),
        ("forward", 200, 200, 2),
        ("ProfilerStep#2", 600, 50, 1),
    ]
    (name,) = (event["args"]["name"] for event in added if event["name"] == "thread_name")
    assert name == "stream 7 annotations"


SEQUENCES = """
    # Two operators launch the same three kernels, a third one others; k without operator splits the second.
    a 0 op   t1 aten::linear   0 40
    a 0 op   t1 aten::addmm    5 30
    a 0 call t1 cudaLaunchKernel 10 2 id=1
    a 0 gpu  s7 gemm         100 10 id=1
    a 0 call t1 cudaLaunchKernel 15 2 id=2
    a 0 gpu  s7 bias         110 10 id=2
    a 0 call t1 cudaLaunchKernel 20 2 id=3
    a 0 gpu  s20 relu        125 10 id=3
    a 0 op   t1 aten::linear  50 40
    a 0 call t1 cudaLaunchKernel 60 2 id=4
    a 0 gpu  s7 gemm         140 10 id=4
    a 0 call t1 cudaLaunchKernel 65 2 id=5
    a 0 gpu  s7 bias         160 10 id=5
    a 0 call t1 cudaLaunchKernel 70 2 id=6
    a 0 gpu  s20 relu        175 10 id=6
    a 0 gpu  s7 k            152  5
    a 0 op   t1 aten::mul    100 10
    a 0 call t1 cudaLaunchKernel 105 2 id=7
    a 0 gpu  s7 mul          200 10 id=7
"""


def test_sequences_cover_their_activities(tmp_path: Path) -> None:
    sketch.write(SEQUENCES, tmp_path)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "a" / "rank0.json", run="a")
    added = check(warehouse, "a", tmp_path / "a" / "rank0.json", {"overlays": ["kernel_sequences"]})
    tracks = {event["tid"]: event["args"]["name"] for event in added if event["name"] == "thread_name"}
    slices = [
        (tracks[e["tid"]], e["name"], 1_000 * e["ts"], 1_000 * e["dur"], e["args"]["occurrences"])
        for e in added
        if e["ph"] == "X"
    ]
    assert sorted(slices) == [
        ("stream 20 kernel sequences", "aten::linear #1", 125, 10, 2),
        ("stream 20 kernel sequences", "aten::linear #1", 175, 10, 2),
        ("stream 7 kernel sequences", "aten::linear #1", 100, 20, 2),
        ("stream 7 kernel sequences", "aten::linear #1", 140, 10, 2),
        ("stream 7 kernel sequences", "aten::linear #1", 160, 10, 2),
    ]


def test_each_occurrence_of_a_sequence_is_drawn(tmp_path: Path) -> None:
    tw.simulate(tmp_path / "sim", ranks=1, steps=2, layers=2)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "sim" / "rank0.json.gz", run="sim")
    added = read(exported(warehouse, "sim", overlays=["kernel_sequences"]))
    found: dict[tuple[str, int, int], set[int]] = defaultdict(set)
    for event in added:
        if event.get("cat") == "overlay":
            args = event["args"]
            key = (event["name"].rpartition(" #")[0], args["occurrences"], args["sequence"])
            found[key].add(args["operator"])
    rows = warehouse.select("sim").kernel_sequences().rows()
    assert sorted((name, count) for name, count, _ in found) == sorted((r["name"], r["count"]) for r in rows)
    assert all(len(operators) == count for (_, count, _), operators in found.items())


CRITICAL = """
    # gap to 10, mm to 20, its launch to 30, gemm to 90, back on the host at 100, and a gap to the end at 120
    a 0 step t1 5 0 120
    a 0 op t1 aten::mm 10 30
    a 0 call t1 cudaLaunchKernel 20 10 id=1
    a 0 gpu s7 gemm 30 60 id=1
    a 0 call t1 cudaDeviceSynchronize 50 50
"""


def test_the_critical_path_has_a_track_and_flows(tmp_path: Path) -> None:
    sketch.write(CRITICAL, tmp_path)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "a" / "rank0.json", run="a")
    with pytest.raises(ParamError, match="critical_path is not derived"):
        warehouse.export_trace("a", overlays=["critical_path"])
    added = check(warehouse, "a", tmp_path / "a" / "rank0.json", {"overlays": ["critical_path"]})
    assert [(e["name"], 1_000 * e["ts"], 1_000 * e["dur"]) for e in added if e["ph"] == "X"] == [
        ("host_gap", 0, 10),
        ("host: aten::mm", 10, 10),
        ("launch: gemm", 20, 10),
        ("computation: gemm", 30, 60),
        ("sync: cudaDeviceSynchronize", 90, 10),
        ("host_gap", 100, 20),
    ]
    flows = sorted((e["id"], e["ph"] == "f", e["tid"], 1_000 * e["ts"]) for e in added if e["ph"] in "sf")
    assert flows == [(1, False, 1, 20), (1, True, 7, 30), (2, False, 7, 89), (2, True, 1, 99)]
    (name,) = (event["args"]["name"] for event in added if event["name"] == "thread_name")
    assert name == "critical path of step 5"


@pytest.mark.parametrize("name", [*deep(*list(REAL)[:-1]), list(REAL)[-1]])
def test_real_traces_with_all_additions(name: str, tmp_path: Path) -> None:
    folder = real_traces()
    if folder is None:
        pytest.skip("no real traces here")
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(folder / name, run="real")
    check(warehouse, "real", folder / name, REAL[name])


def test_missing_data_of_an_addition_is_an_error(tmp_path: Path) -> None:
    sketch.write("a 0 gpu s7 k1 0 10\na 0 gpu s7 k2 20 10\n", tmp_path)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "a" / "rank0.json", run="a")
    with pytest.raises(ParamError, match="a rank 0: queue_length: no launches recorded"):
        warehouse.export_trace("a", counters=["queue_length"])
    with pytest.raises(ParamError, match="a rank 0: kernels_by_annotation: no launches recorded"):
        warehouse.export_trace("a", overlays=["annotations"])
    assert check(warehouse, "a", tmp_path / "a" / "rank0.json", {"counters": ["memory_bandwidth"]}) == []
    for overlays in (["annotation"], "annotation"):
        with pytest.raises(UnknownName, match="unknown overlay: annotation"):
            warehouse.export_trace("a", overlays=overlays)


def test_the_output_is_a_new_file_in_another_folder(tmp_path: Path) -> None:
    traces, house = tmp_path / "traces", tmp_path / "warehouse"
    sketch.write("a 0 gpu s7 'Memset (Device)' 0 10 bytes=5\n", traces)
    source = traces / "a" / "rank0.json"
    run_tw("ingest", source, "--run", "a", "-w", house)
    words = ("export", "trace", "a", "--counters", "memory_bandwidth", "-w", house, "-o")
    done = run_tw(*words, source.with_name("seen.json"))
    assert (done.code, done.errors[1]) == (1, "hint: choose another folder")
    assert [path.name for path in source.parent.iterdir()] == ["rank0.json"]
    target = tmp_path / "seen.json.gz"
    assert run_tw(*words, target).code == 0
    kept = target.read_bytes()
    done = run_tw(*words, target)
    assert done.code == 1
    assert done.errors == [f"tw: {target} already exists", "hint: choose a new file name"]
    assert target.read_bytes() == kept
    assert len(json.loads(gzip.decompress(kept))["traceEvents"]) == 3


def test_help_lists_counters_and_overlays() -> None:
    help_text = run_tw("export", "trace", "--help-all").out
    assert [name for name in (*COUNTERS, *OVERLAYS) if name not in help_text] == []
