"""Time ranges and merged ranks: which events are kept, and that the output is a valid trace."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import sketch
import tracewarehouse as tw
from chrome_format import Event, faults, lies_on, load, slices_by_thread, thread
from cli_runner import tw as run_tw
from conftest import real_traces
from tracewarehouse.errors import ParamError, UnknownName

OURS = "overlay"

# The time range is [100, 200).
CUT = """
    a 0 raw {"ph": "B", "name": "pair", "pid": 1000, "tid": 9, "ts": 0.05}
    a 0 raw {"ph": "E", "name": "pair", "pid": 1000, "tid": 9, "ts": 0.15}
    a 0 raw {"ph": "E", "name": "no begin", "pid": 1000, "tid": 8, "ts": 0.15}
    a 0 raw {"ph": "B", "name": "no end", "pid": 1000, "tid": 7, "ts": 0.15}
    a 0 raw {"ph": "b", "name": "spans it", "cat": "x", "id": 1, "pid": 1000, "tid": 1, "ts": 0.05}
    a 0 raw {"ph": "e", "name": "spans it", "cat": "x", "id": 1, "pid": 1000, "tid": 1, "ts": 0.25}
    a 0 raw {"ph": "b", "name": "never ends", "cat": "x", "id": 2, "pid": 1000, "tid": 1, "ts": 0.15}
    a 0 op t1 ends_as_it_begins   50  50
    a 0 op t1 reaches_in          60  41
    a 0 op t1 around               0 400
    a 0 op t1 inside             110 10
    a 0 op t1 of_no_length       100 0
    a 0 op t1 of_no_length_after 200 0
    a 0 op t1 reaches_out        199 50
    a 0 op t1 begins_as_it_ends  200 10
    a 0 call t1 cudaLaunchKernel  80 25 id=1
    a 0 gpu  s7 both_in          190 60 id=1
    a 0 call t1 cudaLaunchKernel 120 5 id=2
    a 0 gpu  s7 launched_in      260 20 id=2
    a 0 call t1 cudaLaunchKernel  20 5 id=3
    a 0 gpu  s7 launched_before   90 15 id=3
    a 0 flow ac2g 1 t1:80 s7:190
    a 0 flow ac2g 2 t1:120 s7:260
    a 0 flow ac2g 3 t1:20 s7:90
    a 0 raw {"ph": "f", "name": "ac2g", "cat": "ac2g", "id": 4, "pid": 0, "tid": 7, "ts": 0.19, "bp": "e"}
    a 0 count Memory 5 90
    a 0 count Memory 6 150
    a 0 raw {"ph": "i", "name": "now", "pid": 1000, "tid": 1, "ts": 0.120, "s": "t"}
    a 0 raw {"ph": "i", "name": "later", "pid": 1000, "tid": 1, "ts": 0.200, "s": "t"}
    a 0 raw {"ph": "M", "name": "process_name", "pid": 1000, "tid": 0, "ts": 0, "args": {"name": "python"}}
"""
KEPT = {
    "process_name",
    "pair",
    "spans it",
    "reaches_in",
    "around",
    "inside",
    "of_no_length",
    "reaches_out",
    "cudaLaunchKernel",
    "both_in",
    "launched_before",
    "ac2g",
    "Memory",
    "now",
}


def written(warehouse: tw.Warehouse, run: str, rank: Any = None, **options: Any) -> dict[str, Any]:
    """The document, which must be a valid trace."""
    document = load("".join(warehouse.export_trace(run, rank, **options)))
    assert faults(document["traceEvents"]) == []
    return document


def theirs(document: dict[str, Any]) -> list[Event]:
    """The original events: added ones have the category overlay, on separate tracks."""
    mine = {
        (event["pid"], event["tid"])
        for event in document["traceEvents"]
        if event.get("cat") == OURS and event["ph"] == "X"
    }
    return [
        event
        for event in document["traceEvents"]
        if event.get("cat") != OURS and (event["ph"] != "M" or (event["pid"], event.get("tid")) not in mine)
    ]


def ours(document: dict[str, Any], phase: str = "X") -> list[Event]:
    return [each for each in document["traceEvents"] if each.get("cat") == OURS and each["ph"] == phase]


@pytest.fixture(scope="module")
def cut_house(tmp_path_factory: pytest.TempPathFactory) -> tuple[tw.Warehouse, dict[str, Any]]:
    """The synthetic trace and its text."""
    folder = tmp_path_factory.mktemp("cut")
    sketch.write(CUT, folder)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "a" / "rank0.json", run="a")
    return warehouse, load((folder / "a" / "rank0.json").read_text())


def test_a_time_range_keeps_overlapping_slices_complete(
    cut_house: tuple[tw.Warehouse, dict[str, Any]],
) -> None:
    warehouse, original = cut_house
    found = theirs(written(warehouse, "a", start=100, end=200))
    assert {event["name"] for event in found} == KEPT
    counted = Counter(event["name"] for event in found)
    assert {name: count for name, count in counted.items() if count > 1} == {
        "pair": 2,
        "spans it": 2,
        "cudaLaunchKernel": 2,
        "ac2g": 2,
    }
    assert [event for event in found if event["ph"] == "C"][0]["args"] == {"Memory": 6}
    places = [original["traceEvents"].index(event) for event in found]
    assert places[0] == len(original["traceEvents"]) - 1, "what names a process comes first"
    assert places[1:] == sorted(places[1:])


def test_a_time_range_changes_no_digit(
    cut_house: tuple[tw.Warehouse, dict[str, Any]], tmp_path: Path
) -> None:
    warehouse, _ = cut_house
    text = "".join(warehouse.export_trace("a", start=100, end=200, plain=True))
    source = (warehouse.root.parent / "a" / "rank0.json").read_text()
    exact = [json.loads(each, parse_int=str, parse_float=str)["traceEvents"] for each in (text, source)]
    assert [event for event in exact[0] if event not in exact[1]] == []


@pytest.mark.deep
def test_a_time_range_is_described_in_the_header(cut_house: tuple[tw.Warehouse, dict[str, Any]]) -> None:
    warehouse, original = cut_house
    document = written(warehouse, "a", start=100, end=200)
    description = document.pop("tracewarehouse")
    assert description == {
        "run": "a@v1",
        "time_range": "cut",
        "ranks": [{"rank": 0, "clock_offset_ns": 0, "from_ns": "100", "to_ns": "200"}],
        "notes": [],
    }
    del document["traceEvents"]
    assert document == {key: value for key, value in original.items() if key != "traceEvents"}
    (mark,) = (event for event in ours(written(warehouse, "a", start=100, end=200)) if event["name"] == "cut")
    assert (1_000 * mark["ts"], 1_000 * mark["dur"]) == (100, 100)


@pytest.mark.deep
def test_default_additions_of_a_time_range(cut_house: tuple[tw.Warehouse, dict[str, Any]]) -> None:
    warehouse, _ = cut_house
    idle = warehouse.idle_intervals().rows()
    assert [(row["start_ns"], row["idle_ns"]) for row in idle] == [(105, 85), (250, 10)]
    document = written(warehouse, "a", start=100, end=200)
    drawn = {
        (event["name"], 1_000 * event["ts"], 1_000 * event["dur"])
        for event in ours(document)
        if "severity" not in event["args"]  # findings
    }
    assert drawn == {("cut", 100, 100), (f"idle: {idle[0]['cause']}", 105, 85)}
    queue = [(1_000 * event["ts"], event["args"]["activities"]) for event in ours(document, "C")]
    # One activity is queued when the range begins: id 1 is launched at 80, id 2 at 120.
    assert queue == [(100, 1), (120, 2), (190, 1)]
    assert ours(written(warehouse, "a", start=100, end=200, overlays=["steps"], counters=[]), "C") == []
    assert ours(written(warehouse, "a", start=100, end=200, plain=True)) == []


@pytest.mark.deep
def test_times_with_a_unit_are_since_the_first_event(tmp_path: Path) -> None:
    sketch.write("a 0 op t1 first 5000 10\na 0 op t1 second 9000 10\n", tmp_path)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "a" / "rank0.json", run="a")

    def names(**options: Any) -> list[str]:
        return [event["name"] for event in theirs(written(warehouse, "a", plain=True, **options))]

    assert names(end="4us") == ["first"]
    assert names(start="4us") == ["second"]
    assert names(start=9000) == ["second"]
    assert names(start="9000") == ["second"]
    assert names(start="1us", end="2us", margin="3us") == ["first", "second"]
    with pytest.raises(ParamError, match="has no events in this time range") as raised:
        warehouse.export_trace("a", start=1, end=5000)
    assert raised.value.hint is not None and "from 5000 to 9010 ns (0.00401 ms)" in raised.value.hint
    with pytest.raises(ParamError, match="the time range is empty"):
        warehouse.export_trace("a", start=9000, end="1us")
    with pytest.raises(ParamError, match=r"'1\.5' is not a whole number of ns"):
        warehouse.export_trace("a", start="1.5")
    with pytest.raises(ParamError, match="step both select a time range"):
        warehouse.export_trace("a", start=1, step=2)
    with pytest.raises(ParamError, match="margin needs a time range"):
        warehouse.export_trace("a", margin=2)
    with pytest.raises(ParamError, match="plain=True adds no tracks"):
        warehouse.export_trace("a", end="4us", plain=True, overlays=["idle"])
    with pytest.raises(ParamError, match="rank 0 has no step 3"):
        warehouse.export_trace("a", step=3)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """Four simulated ranks; the clock of rank 1 is 1500250 ns ahead."""
    folder = tmp_path_factory.mktemp("job")
    settings: dict[str, Any] = {"ranks": 4, "tensor": 2, "steps": 3, "layers": 2}
    tw.simulate(folder / "sim", injections=["clock:rank=1,offset_us=1500.25,drift_ppm=0"], **settings)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "sim", run="job", jobs=1)
    return warehouse


def original(warehouse: tw.Warehouse, rank: int) -> list[Event]:
    data = (warehouse.root.parent / "sim" / f"rank{rank}.json.gz").read_bytes()
    events: list[Event] = load(gzip.decompress(data).decode())["traceEvents"]
    return events


def by_brute_force(events: list[Event], start: Decimal, end: Decimal) -> list[Event]:
    """The same rules, checked event by event."""
    kept = [
        event
        for event in events
        if event["ph"] == "M"
        or (event["ph"] in "iC" and start <= event["ts"] < end)
        or (
            event["ph"] == "X"
            and event["ts"] < end
            and (event["ts"] >= start or event["ts"] + event["dur"] > start)
        )
    ]
    slices = slices_by_thread(kept)
    begins = {(thread(event), event["ts"]) for event in kept if event["ph"] == "X"}
    tips = [
        event
        for event in events
        if event["ph"] in "sf"
        and (
            (thread(event), event["ts"]) in begins or (start <= event["ts"] < end and lies_on(event, slices))
        )
    ]
    ends = {phase: {(e["cat"], e["id"]) for e in tips if e["ph"] == phase} for phase in "sf"}
    flows = [event for event in tips if (event["cat"], event["id"]) in ends["s"] & ends["f"]]
    return [event for event in events if event in kept or event in flows]


@pytest.mark.parametrize(("start_us", "end_us"), [(0, 300), (1_200, 1_300), (2_000, 4_500), (100, 101)])
def test_a_time_range_selects_events_by_the_rules(job: tw.Warehouse, start_us: int, end_us: int) -> None:
    events = original(job, 1)
    first = min(event["ts"] for event in events if event["ph"] == "X")
    expected = by_brute_force(events, first + start_us, first + end_us)
    document = written(job, "job", 1, start=f"{start_us}us", end=f"{end_us}us", plain=True)
    found = document["traceEvents"]
    names = [event for event in expected if event["ph"] == "M"]
    assert found[: len(names)] == names
    assert found[len(names) :] == [event for event in expected if event["ph"] != "M"]


def test_a_step_is_exported_on_host_and_device(job: tw.Warehouse) -> None:
    (step,) = job.query("SELECT * FROM steps WHERE rank = 1 AND step = 2").rows()
    document = written(job, "job", 1, step=2)
    (described,) = document["tracewarehouse"]["ranks"]
    assert int(described["from_ns"]) == min(step["host_start_ns"], step["device_start_ns"])
    assert int(described["to_ns"]) == max(
        step["host_start_ns"] + step["host_ns"], step["device_start_ns"] + step["device_ns"]
    )
    launched = job.query("SELECT count(*) AS rows FROM kernels WHERE rank = 1 AND step = 2").rows()
    kernels = [event for event in theirs(document) if event.get("cat") == "kernel"]
    assert len(kernels) >= launched[0]["rows"]
    periods = {event["name"] for event in ours(document) if "host ns" in event["args"]}
    assert periods == {"step 1", "step 2"}


@pytest.mark.deep
def test_a_time_range_that_is_ingested_again_has_the_same_events(job: tw.Warehouse, tmp_path: Path) -> None:
    text = "".join(job.export_trace("job", 1, step=2))
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen" / "rank1.json").write_text(text)
    again = tw.open(tmp_path / "again")
    again.ingest(tmp_path / "seen", run="seen")
    kept = theirs(load(text))
    columns = "ph, raw_category, name, pid, tid, ts_ns, dur_ns, ts_text, dur_text, flow_id, args, extra"
    everything = job.query(f"SELECT {columns} FROM events WHERE rank = 1").rows()
    found = again.query(f"SELECT {columns} FROM events WHERE coalesce(raw_category, '') <> '{OURS}'").rows()
    named = [row for row in found if row["ph"] != "M"]
    assert len(named) == len([event for event in kept if event["ph"] != "M"]) > 1_000
    there = Counter(json.dumps(row, sort_keys=True) for row in everything)
    assert not Counter(json.dumps(row, sort_keys=True) for row in named) - there
    mine = again.query(f"SELECT DISTINCT category FROM events WHERE raw_category = '{OURS}'").rows()
    assert mine == [{"category": OURS}]
    assert len(again.query("SELECT event_id FROM kernels").rows()) == len(
        [event for event in kept if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    )
    once_more = written(again, "seen", start="1ms", end="2ms")
    assert once_more["tracewarehouse"]["run"] == "seen@v1", "the previous range is not in the header"


def test_merged_ranks_have_aligned_clocks(job: tw.Warehouse, tmp_path: Path) -> None:
    exported = job.export_trace("job", range(4), start="3ms", end="6ms")
    assert exported.notices == ("clocks of ranks 0-3 are aligned to rank 0, within 0 µs",)
    text = "".join(exported)
    document = load(text)
    events = document["traceEvents"]
    assert faults(events) == []
    assert document["tracewarehouse"]["ranks"][1]["clock_offset_ns"] == 1_500_250
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    indexes = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
    in_order = [names[pid].partition(":")[0] for pid in sorted(names, key=lambda pid: indexes[pid])]
    assert in_order == sorted(in_order)
    assert set(in_order) == {f"rank {rank}" for rank in range(4)}
    assert {event["pid"] for event in events} == set(names)
    check_ids(events)
    check_times(job, text, document)


def check_ids(events: list[Event]) -> None:
    """No correlation and no flow links two ranks."""
    ranks = {e["pid"]: e["args"]["name"].partition(":")[0] for e in events if e["name"] == "process_name"}
    owners: dict[Any, set[str]] = {}
    for event in events:
        if event.get("cat") != OURS and "correlation" in event.get("args", {}):
            owners.setdefault(("correlation", event["args"]["correlation"]), set()).add(ranks[event["pid"]])
        if event["ph"] in "sf":
            owners.setdefault((event["cat"], event["id"]), set()).add(ranks[event["pid"]])
    assert len(owners) > 500
    assert [key for key, ranks in owners.items() if len(ranks) > 1] == []


def check_times(job: tw.Warehouse, text: str, document: dict[str, Any]) -> None:
    """Times minus the clock offset of the rank, to the nanosecond; durations unchanged."""
    base = document["baseTimeNanoseconds"]
    ranks = {
        e["pid"]: int(e["args"]["name"].removeprefix("rank ").partition(":")[0])
        for e in document["traceEvents"]
        if e["name"] == "process_name"
    }
    offsets = {each["rank"]: each["clock_offset_ns"] for each in document["tracewarehouse"]["ranks"]}
    rows = job.query("SELECT rank, name, ts_ns, dur_ns FROM kernels").rows()
    stored = {(row["rank"], row["name"], row["ts_ns"] - offsets[row["rank"]], row["dur_ns"]) for row in rows}
    found = {
        (ranks[e["pid"]], e["name"], int(1_000 * e["ts"]) + base, int(1_000 * e["dur"]))
        for e in document["traceEvents"]
        if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    }
    assert len(found) > 300
    assert found <= stored


@pytest.mark.deep
def test_launches_are_linked_in_merged_ranks(job: tw.Warehouse, tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen" / "all.json").write_text("".join(job.export_trace("job", [0, 1, 2, 3], plain=True)))
    again = tw.open(tmp_path / "again")
    again.ingest(tmp_path / "seen", run="seen")
    linked = "SELECT count(*) AS linked, sum(return_to_start_ns) AS late_ns FROM correlations"
    assert again.query(linked).rows() == job.query(linked).rows()
    counted = "SELECT category, count(*) AS rows FROM events WHERE ph <> 'M' GROUP BY ALL ORDER BY ALL"
    assert again.query(counted).rows() == job.query(counted).rows()


@pytest.mark.deep
def test_clocks_that_cannot_be_aligned_are_reported(tmp_path: Path) -> None:
    lines = [f"a {rank} op t1 work {1_000 * rank} 100" for rank in (0, 1, 2)]
    sketch.write("\n".join(lines), tmp_path)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "a", run="a", jobs=1)
    exported = warehouse.export_trace("a", [0, 2])
    assert exported.notices[0] == "rank 2: clock not aligned, no GPU collective connects it to rank 0"
    document = load("".join(exported))
    assert [1_000 * event["ts"] for event in theirs(document) if event["name"] == "work"] == [0, 2_000]
    assert document["tracewarehouse"]["notes"] == list(exported.notices)


@pytest.fixture(scope="module")
def stalled(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """Two simulated ranks that wait for data in step 2; the clock of rank 1 is 1500250 ns ahead."""
    folder = tmp_path_factory.mktemp("stalled")
    faults = ["clock:rank=1,offset_us=1500.25,drift_ppm=0", "dataloader-stall:step=2,ms=8"]
    tw.simulate(folder / "sim", injections=faults, ranks=2, steps=4, layers=2)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "sim", run="stalled", jobs=1)
    return warehouse


@pytest.mark.deep
def test_export_around_the_worst_occurrence_of_a_finding(stalled: tw.Warehouse) -> None:
    found = [row for row in stalled.check().rows() if row["rule"] == "input_bound"]
    assert found
    worst = found[0]
    document = written(stalled, "stalled", around="input_bound", margin="2ms")
    (described,) = document["tracewarehouse"]["ranks"]
    assert (described["rank"], document["tracewarehouse"]["time_range"]) == (
        worst["rank"],
        "around input_bound",
    )
    assert int(described["from_ns"]) == worst["from_ns"] - 2_000_000
    assert int(described["to_ns"]) == worst["to_ns"] + 2_000_000
    base = document["baseTimeNanoseconds"]
    marks = {
        e["name"]: (int(1_000 * e["ts"]) + base, int(1_000 * e["dur"]))
        for e in ours(document)
        if "severity" in e["args"]
    }
    length = worst["to_ns"] - worst["from_ns"]
    assert marks[f"input_bound: {worst['subject']}"] == (worst["from_ns"], length)
    other = next(row for row in found if row["rank"] != worst["rank"])["rank"]
    beside = load("".join(stalled.export_trace("stalled", [worst["rank"], other], around="input_bound")))
    spans = {
        each["rank"]: int(each["to_ns"]) - int(each["from_ns"]) for each in beside["tracewarehouse"]["ranks"]
    }
    assert spans == dict.fromkeys((0, 1), length + 2_000_000)
    starts = {each["rank"]: int(each["from_ns"]) for each in beside["tracewarehouse"]["ranks"]}
    assert starts[1] - starts[0] == 1_500_250


def test_a_missing_finding_is_an_error(cut_house: Any) -> None:
    with pytest.raises(UnknownName, match="unknown finding: input"):
        cut_house[0].export_trace("a", around="input")
    with pytest.raises(ParamError, match="a has no finding input_bound"):
        cut_house[0].export_trace("a", around="input_bound")


def test_on_the_command_line(job: tw.Warehouse, tmp_path: Path) -> None:
    target = tmp_path / "step2.json.gz"
    words = ("export", "trace", "job", "-w", job.root)
    plain = (*words, "--rank", "0", "--plain")
    done = run_tw(*words, "--rank", "0,1", "--step", "2", "--margin", "50us", "-o", target, "--json")
    assert (done.code, json.loads(done.out)["result"]) == (
        0,
        [{"path": str(target), "run": "job", "ranks": [0, 1]}],
    )
    assert done.errors == ["clocks of ranks 0-1 are aligned to rank 0, within 0 µs"]
    assert faults(load(gzip.decompress(target.read_bytes()).decode())["traceEvents"]) == []
    assert run_tw(*plain, "--step", "2", "-o", target).errors[0] == f"tw: {target} already exists"
    beside = job.root.parent / "sim" / "step2.json"
    assert run_tw(*plain, "--step", "2", "-o", beside).code == 1
    assert not beside.exists()
    done = run_tw(*plain, "--step", "9")
    assert (done.code, done.errors[1]) == (1, "hint: it has steps 1-3")
    assert run_tw(*words, "--rank", "x").code == 2


DLRM = "multirank-dlrm-v100-8r/worker{}_step_12.{}.pt.trace.json.gz"
RESNET = "before-after-resnet50-v100/num_workers_0__worker0.1623143089861.pt.trace.json.gz"
REAL: dict[str, tuple[list[str], dict[str, Any]]] = {
    "amd": (["amd-misc/mi300_torch_compile_triton.json.gz"], {"start": "1ms"}),
}
DEEP_REAL: dict[str, tuple[list[str], dict[str, Any]]] = {
    "two of DLRM": (
        [DLRM.format(0, 1694128201545), DLRM.format(3, 1694128201557)],
        {"start": "2ms", "end": "8ms"},
    ),
    "ascend": (["ascend/trace_view.json"], {"start": "2ms", "end": "6ms"}),
    "DDP": (["amd-misc/mi300_ddp_resnet18_no_pool.json.gz"], {"start": "20ms", "end": "30ms"}),
    "old": ([RESNET], {"step": 6}),
    "gloo": (["multirank-gloo-cpu-4r"], {"start": "20ms", "end": "40ms"}),
    "DLRM": (["multirank-dlrm-v100-8r"], {"start": "2ms", "end": "8ms"}),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", [*REAL, *(pytest.param(name, marks=pytest.mark.deep) for name in DEEP_REAL)])
def test_time_ranges_of_real_traces_are_valid(name: str, tmp_path: Path) -> None:
    folder = real_traces()
    if folder is None:
        pytest.skip("no real traces here")
    files, options = (REAL | DEEP_REAL)[name]
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(*(folder / file for file in files), run="real", jobs=1)
    ranks = [row["rank"] for row in warehouse.query("SELECT rank FROM ranks").rows()]
    document = written(warehouse, "real", ranks, **options)
    assert len(theirs(document)) > 50
    assert ours(document)
    if len(ranks) == 1:
        check_digits(warehouse, folder / files[0], options)


def check_digits(warehouse: tw.Warehouse, source: Path, options: dict[str, Any]) -> None:
    """The kept events are unchanged in the file."""
    data = source.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    part = "".join(warehouse.export_trace("real", plain=True, **options))
    found, there = (json.loads(each, parse_int=str, parse_float=str) for each in (part, text))
    rows = there["traceEvents"] if isinstance(there, dict) else there
    known = Counter(json.dumps(row, sort_keys=True) for row in rows)
    assert not Counter(json.dumps(row, sort_keys=True) for row in found["traceEvents"]) - known
