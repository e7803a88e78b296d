"""What a recording lacks: lost and malformed GPU records, incomplete steps, gaps inside graph launches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sketch
from table_cases import built, read

STEP_NS = 200_000


class Found:
    """The limits of a rank by reason, why its steps are incomplete, and the lengths of its GPU activities."""

    def __init__(self, lines: Iterable[str], folder: Path) -> None:
        (path,) = sketch.write("\n".join(f"a 0 {line}" for line in lines), folder)
        known, tables = built(*read(path))
        self.limits: dict[str, dict[str, Any]] = {
            each["reason"]: each for each in known.facts.get("limits", ())
        }
        self.incomplete = tables["steps"].column("incomplete").to_pylist()
        self.lengths = tables["kernels"].column("dur_ns").to_pylist()
        self.recorded = tables["events"].column("dur_ns").to_pylist()
        self.causes = {*tables["device_segments"].column("cause").to_pylist()} - {None, "outside"}


def launch(at: int, number: int, *, lost: bool = False, name: str = "k", length: int = 100) -> Iterator[str]:
    """A launch, and its activity 1 µs later, unless its record is lost."""
    yield f"call t1 cudaLaunchKernel {at} 100 id={number}"
    if not lost:
        yield f"gpu s7 {name} {at + 1_000} {length} id={number}"


def steps(launches: int, lost: Iterable[int] = (), count: int = 3) -> Iterator[str]:
    """Steps with launches that are numbered from 1, between others; some of them lost their records."""
    total = launches * count + 2
    yield from launch(0, 900_001)
    for step in range(count):
        begin = (step + 1) * STEP_NS
        yield f"step t1 {step} {begin} {STEP_NS}"
        for place in range(launches):
            number = step * launches + place + 1
            yield from launch(begin + 1_000 * (place + 1), number, lost=number in {*lost})
    yield from launch((count + 1) * STEP_NS + 2_000, 900_002)
    yield f"op t1 end {(count + 2) * STEP_NS} {total}"


def test_a_step_that_lost_more_than_1_percent_of_its_launches_is_left_out(tmp_path: Path) -> None:
    found = Found(steps(150, lost=(160, 170)), tmp_path)
    assert found.incomplete == [None, "lost_records", None]
    lost = found.limits.pop("lost_records")
    assert not found.limits
    assert (lost["level"], lost["rows"], lost["steps"]) == ("limit", 2, 1)
    assert lost["share"] == pytest.approx(2 / 452)


def test_fewer_lost_launches_are_reported(tmp_path: Path) -> None:
    found = Found(steps(150, lost=(160,)), tmp_path)
    assert found.incomplete == [None] * 3
    assert [(each["level"], each["rows"]) for each in found.limits.values()] == [("not_recorded", 1)]


def test_exactly_1_percent_is_not_too_much(tmp_path: Path) -> None:
    found = Found(steps(100, lost=(150,)), tmp_path)
    assert found.incomplete == [None] * 3
    assert Found(steps(99, lost=(150,)), tmp_path / "more").incomplete == [None, "lost_records", None]


def test_a_sound_recording_has_no_limits(tmp_path: Path) -> None:
    found = Found(steps(20), tmp_path)
    assert not found.limits and found.incomplete == [None] * 3


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(
            [
                "call t1 cudaStreamBeginCapture 250000 10",
                *launch(250_100, 77, lost=True),
                *(line.replace("t1", "t2") for line in launch(250_150, 78, lost=True)),
                "call t1 cudaStreamEndCapture 250300 10",
            ],
            id="captured",
        ),
        pytest.param(
            [
                "call t1 cudaMemsetAsync 249000 10 id=76",
                "gpu s7 'Memset (Device)' 249500 10 id=76",
                "call t1 cudaMemsetAsync 250000 10 id=77",
            ],
            id="empty fill",
        ),
        pytest.param(["call t1 cudaMemcpyAsync 250000 10 id=77"], id="no copy was recorded"),
        pytest.param(["call t1 cudaGraphLaunch 250000 10 id=77"], id="no graph was recorded"),
        pytest.param(["call t1 cudaStreamSynchronize 250000 10 id=77"], id="launches nothing"),
        pytest.param(["call t1 cuLaunchKernel 201010 10 id=1"], id="the driver's part of a launch"),
    ],
)
def test_calls_that_should_have_no_records_are_not_lost(lines: list[str], tmp_path: Path) -> None:
    assert not Found([*steps(20), *lines], tmp_path).limits


def test_a_launch_after_a_capture_is_lost(tmp_path: Path) -> None:
    lines = [
        "call t1 cudaStreamBeginCapture 250000 10",
        "call t1 cudaStreamEndCapture 250300 10",
        *launch(250_400, 77, lost=True),
    ]
    assert Found([*steps(20), *lines], tmp_path).limits["lost_records"]["rows"] == 1


def window(start: int, end: int) -> list[str]:
    """The marks of the profiler at the start and end of its recording."""
    marks = (("Iteration Start: PyTorch Profiler", start), ("Record Window End", end))
    return [
        f'raw {{"ph": "i", "name": "{name}", "ts": {at / 1000}, "pid": "", "tid": ""}}' for name, at in marks
    ]


def test_what_was_queued_at_the_end_is_cut_off_not_lost(tmp_path: Path) -> None:
    """The GPU is busy to the end with the last kernel, and one more launch waits."""
    end = 4 * STEP_NS
    whole = [*steps(20), *window(0, end + 100_000)]
    lines = [line for line in whole if "id=900002" not in line and "op t1 end" not in line]
    lines += [*launch(end - 2_000, 1_000, length=50_000), *launch(end - 1_500, 1_001, lost=True)]
    found = Found(lines, tmp_path)
    assert not found.limits and found.incomplete == [None, None, "cut_off"]
    idle = Found([*lines, f"call t1 cudaDeviceSynchronize {end + 200_000} 10"], tmp_path / "idle")
    assert idle.incomplete[-1] == "lost_records"


def test_the_window_of_the_profiler_decides_which_steps_are_complete(tmp_path: Path) -> None:
    lines = [line for line in steps(20) if "90000" not in line and "op t1 end" not in line]
    first, last = STEP_NS, 4 * STEP_NS
    assert Found(lines, tmp_path).incomplete == ["cut_off", None, "cut_off"]
    for name, marks, wanted in (
        ("whole", window(first, last + 1), [None] * 3),
        ("late", window(first + 1, last + 1), ["cut_off", None, None]),
        ("open at the end", window(first, last), [None, None, "cut_off"]),
    ):
        assert Found([*lines, *marks], tmp_path / name).incomplete == wanted, name


def test_without_any_gpu_record_nothing_is_lost(tmp_path: Path) -> None:
    found = Found((line for line in steps(20) if not line.startswith("gpu")), tmp_path)
    assert not found.limits and set(found.incomplete) == {None}


LATER = (20_000, 30_000, 40_000)  # when the activities that may be covered start


def covering(length: int, later: Iterable[int] = LATER, stream: str = "s7") -> list[str]:
    """Usual activities, one at 18,500 that is longer, and later ones, usually of the same stream."""
    lines = [line for number in range(9) for line in launch(2_000 * number, number + 1)]
    lines += ["call t1 cudaLaunchKernel 18000 50 id=50", f"gpu s7 k 18500 {length} id=50"]
    lines += [f"call t1 cudaLaunchKernel {18_100 + number} 1 id={at}" for number, at in enumerate(later)]
    return lines + [f"gpu {stream} gemm {at} 100 id={at}" for at in later]


def test_a_malformed_duration_is_cut_where_the_next_activity_starts(tmp_path: Path) -> None:
    found = Found(covering(900_000), tmp_path)
    assert (max(found.recorded), max(found.lengths)) == (900_000, 1_500)
    malformed = found.limits["malformed_duration"]
    assert (malformed["level"], malformed["rows"]) == ("limit", 1)
    assert malformed["affected_ns"] == 900_000 - 1_500


def test_what_is_longer_than_the_step_is_malformed_even_if_its_name_is_long(tmp_path: Path) -> None:
    lines = [
        line.replace(" 100 id", " 200000 id") if " gpu s7 k " in f" {line}" else line
        for line in covering(210_000)
    ]
    assert "malformed_duration" not in Found(lines, tmp_path).limits
    found = Found([*lines, "step t1 1 10000 205000"], tmp_path / "step")
    assert found.limits["malformed_duration"]["rows"] >= 1


OTHERS = {
    "a collective beside others in one graph": [
        "call t1 cudaGraphLaunch 18000 100 id=50",
        "gpu s7 nccl_k 18500 900000 id=50",
        *(f"gpu s7 {name} {at} 100 id=50" for at in LATER for name in ("gemm", "nccl_k")),
    ],
    "covers one": covering(11_500, LATER[:1]),
    "covers one and a part of another": covering(21_500, (20_000, 39_950)),
    "on another stream": covering(900_000, stream="s9"),
    "programmatic dependent launch": [
        line for number in range(9) for line in launch(2_000 * number, number + 1, length=2_500)
    ],
    "less than 10 times as long as others of its name": covering(999, (18_600, 18_700)),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_durations_are_kept(case: str, tmp_path: Path) -> None:
    found = Found(OTHERS[case], tmp_path)
    assert "malformed_duration" not in found.limits
    recorded = zip(OTHERS[case], found.recorded, strict=True)
    assert found.lengths == [length for line, length in recorded if line.startswith("gpu")]


def graph(at: int, number: int, nodes: str, apart: int = 500) -> Iterator[str]:
    """A graph launch whose nodes are named by letters."""
    yield f"call t1 cudaGraphLaunch {at} 100 id={number}"
    for place, node in enumerate(nodes):
        yield f"gpu s7 {node} {at + 1_000 + apart * place} 100 id={number}"


def graphs(*contents: str) -> Iterator[str]:
    """A step per graph launch, between other launches."""
    yield from launch(0, 900_001)
    for step, nodes in enumerate(contents):
        begin = (step + 1) * STEP_NS
        yield f"step t1 {step} {begin} {STEP_NS}"
        yield from graph(begin + 1_000, step + 1, nodes)
    yield from launch((len(contents) + 1) * STEP_NS + 2_000, 900_002)
    yield f"op t1 end {(len(contents) + 2) * STEP_NS} 10"


def test_a_graph_launch_with_fewer_activities_than_others_lost_some(tmp_path: Path) -> None:
    found = Found(graphs("abcda", "abcda", "abda", "abcda"), tmp_path)
    assert found.incomplete == [None, None, "lost_records", None]
    assert (found.limits["lost_records"]["rows"], found.limits["lost_records"]["steps"]) == (1, 1)


def test_one_short_graph_launch_among_many_launches_leaves_the_step_out(tmp_path: Path) -> None:
    many = [line for place in range(150) for line in launch(3 * STEP_NS + 9_000 + 1_000 * place, 100 + place)]
    assert Found([*graphs("abcda", "abcda", "abda"), *many], tmp_path).incomplete == [
        None,
        None,
        "lost_records",
    ]


@pytest.mark.parametrize(
    "contents",
    [("abcda", "abcda", "abda", "abda"), ("abcda", "abcda", "ab"), ("abcda", "abcda", "abxa")],
    ids=["as often", "less than half", "another graph"],
)
def test_other_graphs_are_whole(contents: tuple[str, ...], tmp_path: Path) -> None:
    assert not Found(graphs(*contents), tmp_path).limits


def test_a_gap_inside_a_graph_launch_is_neither_host_nor_launch(tmp_path: Path) -> None:
    found = Found([*launch(0, 9), *graph(1_200, 1, "abc", apart=150_000)], tmp_path)
    gap = found.limits["graph_gap"]
    assert (gap["rows"], gap["affected_ns"]) == (2, 2 * (150_000 - 100))
    assert "graph" in found.causes
    assert not Found([*launch(0, 9), *graph(1_200, 1, "abc", apart=90_000)], tmp_path / "short").limits


@pytest.mark.parametrize("length", [50_000, 90_000])
def test_work_launched_before_the_recording_that_runs_in_complete_steps(tmp_path: Path, length: int) -> None:
    early = [f"gpu s8 early {STEP_NS - 20_000} {length}", f"gpu s8 early {STEP_NS - 10_000} 30_000"]
    of_stream = ["call t1 cudaLaunchKernel 350_000 100 id=7", "gpu s8 k 352_000 100 id=7"]
    found = Found([*early, *steps(150, count=2), *of_stream], tmp_path)
    if length == 50_000:  # 30 µs of 400 µs
        assert not found.limits
    else:
        work = found.limits["work_before"]
        assert (work["level"], work["rows"], work["affected_ns"]) == ("limit", 2, length - 20_000)


def test_a_step_without_gpu_work_beside_work_outside_of_steps(tmp_path: Path) -> None:
    lines = [
        line for line in steps(20) if line.split()[-1] not in {f"id={number}" for number in range(21, 41)}
    ]
    found = Found(lines, tmp_path)
    assert found.incomplete == [None, "no_gpu_work", None]
    assert found.limits["no_gpu_work"]["steps"] == 1


@pytest.mark.parametrize("works", [False, True])
def test_a_last_step_that_only_loads_data(tmp_path: Path, works: bool) -> None:
    """The loop ended in the middle of a cycle of the schedule."""
    lines = ["op t1 before 0 100", "op t1 after 50_000 100", "step t1 2 30_000 5_000"]
    lines += [
        line
        for at in (10_000, 20_000)
        for line in (f"step t1 {at // 20_000} {at} 9_000", f"op t1 aten::mm {at} 100")
    ]
    lines += ['ann t1 "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__" 30_100 4_000']
    lines += ["op t1 aten::stack 30_200 1_000"]
    lines += ["op t1 aten::mm 34_200 100"] if works else []
    found = Found(lines, tmp_path)
    assert found.incomplete == [None, None, None if works else "no_work"]
    assert found.limits.keys() == (set() if works else {"no_work"})


def test_two_processes_in_one_file(tmp_path: Path) -> None:
    other = [
        '{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, '
        f'"ts": {at / 1000}, "dur": 0.1, "args": {{"correlation": {number}}}}}'
        for number in range(1, 21)
        for at in [STEP_NS + 1_000 * number + 10]
    ]
    kernels = [
        '{"ph": "X", "cat": "kernel", "name": "k", "pid": 1, "tid": 7, '
        f'"ts": {at / 1000}, "dur": 0.1, "args": {{"device": 1, "stream": 7, "correlation": {number}}}}}'
        for number in range(1, 21)
        for at in [STEP_NS + 1_000 * number + 1_010]
    ]
    found = Found([*steps(20), *(f"raw {line}" for line in (*other, *kernels))], tmp_path)
    assert found.limits["several_processes"]["rows"] == 20
    assert "several_processes" not in Found(steps(20), tmp_path / "one").limits
