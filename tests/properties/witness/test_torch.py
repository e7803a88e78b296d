"""The profiler's own sums equal those of our rows under PyTorch's rules. CPU runs only."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import tracewarehouse as tw
from conftest import ROOT, real_traces
from witness import torch_rules as rules

DATA = ROOT / "tests" / "data"
Key = tuple[str, bool]
Rows = list[dict[str, Any]]
Said = dict[Key, tuple[int, float, float]]
GPU = ("kernel", "cuda_runtime", "cuda_driver", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "overhead")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """All traces."""
    warehouse = tw.open(tmp_path_factory.mktemp("torch"))
    report = warehouse.ingest(DATA / "torch-cpu", DATA / "gloo-cpu", jobs=1)
    assert [file.state for file in report.files] == ["intact"] * 7
    return warehouse


@pytest.fixture(scope="module")
def recorded(warehouse: tw.Warehouse) -> dict[str, tuple[Rows, Said]]:
    """The rows of each trace in the warehouse, and the profiler's averages."""
    ops = json.loads((DATA / "torch-cpu.key_averages.json").read_text())
    gloo = json.loads((DATA / "gloo-cpu.key_averages.json").read_text())
    found = {}
    for kind, said in ops.items():
        reported = {(name, annotation): (calls, total, own) for name, annotation, calls, total, own in said}
        found[kind] = (rows(warehouse, kind, 0), reported)
    for rank, said in enumerate(gloo.values()):  # these were saved by name alone, without Python frames
        here = rows(warehouse, "gloo-cpu", rank)
        names = {rules.rewritten(row["name"]): row["category"] == "user_annotation" for row in here}
        found[f"gloo {rank}"] = (here, {(name, names[name]): tuple(each) for name, each in said.items()})
    return found


def rows(warehouse: tw.Warehouse, run: str, rank: int) -> Rows:
    return (
        warehouse.select(runs=run, ranks=rank)
        .query(
            """
        SELECT category, name, pid, tid, ts_ns, dur_ns
        FROM events WHERE ph IN ('X', 'i') ORDER BY event_id""",
            limits=None,
        )
        .rows()
    )


def apart(found: rules.Averages, said: Said) -> dict[Key, object]:
    """The names whose calls differ, or whose total or own time differs by more than 1 ns for each call."""
    wrong: dict[Key, object] = {}
    for key, (calls, total_us, own_us) in said.items():
        count, total, own = found.get(key, (0, 0, 0))
        far = max(abs(total - 1_000 * total_us), abs(own - 1_000 * own_us))
        if count != calls or far > calls:
            wrong[key] = (said[key], found.get(key))
    return wrong


TRACES = ("threads", "memory", "stacks", "gloo 0", "gloo 1", "gloo 2", "gloo 3")


@pytest.mark.parametrize("trace", TRACES)
def test_calls_total_and_self_time_equal_those_of_the_profiler(
    trace: str, recorded: dict[str, tuple[Rows, Said]]
) -> None:
    here, said = recorded[trace]
    assert not [row for row in here if row["category"] in GPU]
    found = rules.key_averages(here)
    assert len(said) > 60 and apart(found, said) == {}
    more = found.keys() - said.keys()
    assert not more if trace in ("threads", "memory", "stacks") else only_frames(more, here)


@pytest.mark.parametrize("trace", TRACES)
def test_the_analysis_has_calls_and_times_of_the_profiler(
    trace: str, warehouse: tw.Warehouse, recorded: dict[str, tuple[Rows, Said]]
) -> None:
    kind, _, rank = trace.partition(" ")
    selected = warehouse.select(runs="gloo-cpu" if rank else kind, ranks=int(rank or 0))
    rows = selected.key_averages().rows()
    found = {
        (row["name"], row["is_annotation"]): (row["count"], row["cpu_total_ns"], row["self_cpu_ns"])
        for row in rows
    }
    here, said = recorded[trace]
    assert len(found) == len(rows) and apart(found, said) == {}
    assert {key: found[key] for key in said} == {
        key: value for key, value in rules.key_averages(here).items() if key in said
    }
    assert {row["device_total_ns"] for row in rows} == {None}


@pytest.mark.parametrize("trace", ("stacks", "gloo 0"))
@pytest.mark.parametrize("by_stack", (False, True))
def test_without_frames_their_time_is_that_of_what_is_around_them(
    trace: str, by_stack: bool, warehouse: tw.Warehouse, recorded: dict[str, tuple[Rows, Said]]
) -> None:
    kind, _, rank = trace.partition(" ")
    selected = warehouse.select(runs="gloo-cpu" if rank else kind, ranks=int(rank or 0))
    found: dict[Key, list[int]] = {}
    for row in selected.key_averages(frames=False, by_stack=by_stack).rows():
        of_name = found.setdefault((row["name"], row["is_annotation"]), [0, 0, 0])
        for at, column in enumerate(("count", "cpu_total_ns", "self_cpu_ns")):
            of_name[at] += row[column]
    here = [row for row in recorded[trace][0] if row["category"] != "python_function"]
    assert {key: tuple(value) for key, value in found.items()} == rules.key_averages(here)


@pytest.mark.deep
@pytest.mark.skipif(real_traces() is None, reason="needs the real traces")
def test_the_five_innermost_frames_are_those_of_the_profiler(tmp_path: Path) -> None:
    folder = cast(Path, real_traces()) / "pytorch-cpu"
    said = json.loads(gzip.decompress((folder / "key_averages.json.gz").read_bytes()))
    wanted = Counter(
        (row["key"], " < ".join(row["stack"]) or None, row["count"], round(1000 * row["cpu"]))
        for row in said["lm_torch213_by_stack_5"]
    )
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(folder / "lm_torch213.json.gz", run="lm", jobs=1)
    rows = wh.select("lm").key_averages(by_stack=True).rows()
    assert Counter((row["name"], row["stack"], row["count"], row["cpu_total_ns"]) for row in rows) == wanted


def only_frames(keys: set[Key], here: Rows) -> bool:
    frames = {row["name"] for row in here if row["category"] == "python_function"}
    return bool(keys) and all(name in frames and not annotation for name, annotation in keys)


def any_child(events: list[rules.Event]) -> None:
    """Like `build_tree`, except for events that extend beyond the end of their parent."""
    last: dict[object, list[rules.Event]] = {}
    for event in events:
        around = last.setdefault(event.thread, [])
        while around and event.start >= around[-1].end:
            around.pop()
        if around and not event.is_async:
            around[-1].children.append(event)
            event.parent = around[-1]
        if not event.is_async:
            around.append(event)


def with_utilities(row: dict[str, Any]) -> bool:
    return row["category"] in rules.COUNTED


def one_thread(row: dict[str, Any], parsed: Callable[[Any], rules.Event] = rules.parsed) -> rules.Event:
    return parsed({**row, "pid": 0, "tid": 0})


WITHOUT: dict[str, Callable[..., Any]] = {
    "counts": with_utilities,
    "parsed": one_thread,
    "rewritten": lambda name: name,
    "is_async": lambda name, annotation: False,
    "memory_outside": lambda events, memory: [],
    "build_tree": any_child,
    "without_repeats": lambda events: events,
    "own": lambda event: event.total,
}


@pytest.mark.parametrize("rule", WITHOUT)
def test_each_rule_is_needed(
    rule: str, recorded: dict[str, tuple[Rows, Said]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, rule, WITHOUT[rule])
    assert any(apart(rules.key_averages(here), said) for here, said in recorded.values())
