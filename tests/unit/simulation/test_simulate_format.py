"""The simulator: its files look like those of PyTorch."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import ROOT, deep, real_traces
from simulated import SMALL, read

Kinds = dict[tuple[str, object], set[tuple[Any, ...]]]
CPU = [("X", "cpu_op"), ("X", "user_annotation"), ("X", "python_function"), ("i", "cpu_instant_event")]
CPU += [("s", "fwdbwd"), ("f", "fwdbwd"), ("X", "Trace")]
MARKS = [("i", "Iteration Start: PyTorch Profiler"), ("i", "Record Window End")]
NAMES = [("M", "process_name"), ("M", "process_labels"), ("M", "thread_name")]
SORTS = [("M", "process_sort_index"), ("M", "thread_sort_index")]
GPU = [("X", name) for name in ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_runtime")]
GPU += [("s", "ac2g"), ("f", "ac2g")]
OLD = [("X", name) for name in ("Operator", "Runtime", "Kernel", "Memcpy", "Memset", "Trace")]
OLD += [("s", "async"), ("f", "async"), ("i", "[memory]")]


def kinds(events: list[dict[str, Any]], *, ordered: bool = True) -> Kinds:
    """By phase and category (or name without a category): the keys in order, and the type of each argument.

    `ordered=False`: arguments as a set, for what torch keeps in a hash map.
    """
    found: Kinds = defaultdict(set)
    for event in events:
        args = [(key, type(value).__name__) for key, value in event.get("args", {}).items()]
        kept = tuple(args) if ordered else frozenset(args)
        found[event["ph"], event.get("cat") or event["name"]].add((tuple(event), kept))
    return found


def real(*names: str) -> list[dict[str, Any]]:
    """The events of real traces."""
    folder = real_traces()
    if folder is None:
        pytest.skip("no real traces here")
    events = []
    for name in names:
        text = (folder / name).read_bytes()
        text = gzip.decompress(text) if text.startswith(b"\x1f\x8b") else text
        events += json.loads(text)["traceEvents"]
    return events


def recorded() -> dict[str, Any]:
    """A trace that torch 2.13 recorded without a GPU."""
    return read(ROOT / "tests" / "data" / "gloo-cpu")


def test_host_events_match_torch(tmp_path: Path) -> None:
    tw.simulate(tmp_path / "sim", **SMALL)
    events = read(tmp_path / "sim")["traceEvents"]
    # Events of NCCL messages do not exist on a CPU; see the test below.
    ours = kinds([event for event in events if event["name"] != "record_param_comms"])
    torchs = kinds(recorded()["traceEvents"])
    for kind in [*CPU, *MARKS, *NAMES, *SORTS]:
        assert ours[kind] == torchs[kind], kind


def test_the_header_matches_torch(tmp_path: Path) -> None:
    tw.simulate(tmp_path / "sim", **SMALL)
    ours, torchs = read(tmp_path / "sim"), recorded()
    assert list(ours)[:2] == list(torchs)[:2]
    assert list(ours)[-5:] == list(torchs)[-5:]
    assert set(ours) - set(torchs) == {"cupti_version", "cuda_runtime_version", "cuda_driver_version"}
    assert {key: type(ours[key]) for key in ours if key in torchs} == {
        key: type(torchs[key]) for key in torchs if key in ours
    }
    assert list(ours["distributedInfo"])[:5] == list(torchs["distributedInfo"])[:5]
    one, other = (each["distributedInfo"]["pg_config"][0] for each in (ours, torchs))
    assert {key: type(value) for key, value in one.items()} == {
        key: type(value) for key, value in other.items()
    }


def unfinished(event: dict[str, Any]) -> bool:
    return event["ph"] == "X" and event["args"].get("finished") is False


def test_unfinished_slices_match_torch(tmp_path: Path) -> None:
    tw.simulate(tmp_path / "sim", injections=["truncated-window:to_ms=0.2"], **SMALL)
    ends = [event for event in read(tmp_path / "sim")["traceEvents"] if unfinished(event)]
    (mark,) = (event for event in ends if event["name"] == "ProfilerStep#1")
    # As torch 2.13 wrote a record_function that was open when the profiler stopped.
    assert list(mark["args"]) == ["External id", "Record function id", "finished", "Ev Idx"]


def blocks(events: list[dict[str, Any]]) -> list[str]:
    """The order of kinds of events in a file, without repetitions."""
    of = {"cpu_op": "op", "user_annotation": "op", "fwdbwd": "op", "cpu_instant_event": "memory"}
    of |= {"python_function": "python", "Trace": "end"}
    cli: list[str] = []
    for event in events:
        kind = of.get(event.get("cat", ""), "gpu") if "cat" in event else "mark"
        if not cli or cli[-1] != kind:
            cli.append(kind)
    return cli


def test_event_order_matches_torch(tmp_path: Path) -> None:
    tw.simulate(tmp_path / "sim", **{**SMALL, "steps": 1})
    ours = read(tmp_path / "sim")["traceEvents"]
    assert blocks(ours) == ["mark", "op", "memory", "python", "gpu", "end", "mark"]
    bert = real("h100-vs-mi300-hf/h100_bert-small.json.gz")
    assert blocks(bert)[:4] == ["op", "memory", "python", "gpu"]
    # Operators by thread, in time order; a flow follows the operator that it starts at.
    for events in (ours, real("amd-misc/mi300_ddp_resnet18_no_pool.json.gz")):
        for category in ("cpu_op", "python_function", "cuda_runtime", "kernel"):
            rows = [event for event in events if event.get("cat") == category]
            threads = [row["tid"] for row in rows]
            if category == "cpu_op":
                assert threads == sorted(threads, key=list(dict.fromkeys(threads)).index)
            for thread in set(threads):
                times = [row["ts"] for row in rows if row["tid"] == thread]
                assert times == sorted(times), category
        places = {
            event["id"]: events[place - 1]["cat"]
            for place, event in enumerate(events)
            if event["ph"] == "s" and event["cat"] == "fwdbwd"
        }
        assert set(places.values()) == {"cpu_op"}


NVIDIA = [f"h100-vs-mi300-hf/h100_{name}.json.gz" for name in ("bert-small", "qwen1.5-0.5b-chat")] + [
    "hta-singles/a100_nccl_pg_config_rank0of2.json.gz",
    "hta-singles/a100_triton_example.json.gz",
]
AMD = ["amd-misc/mi300_ddp_resnet18_no_pool.json.gz", "h100-vs-mi300-hf/mi300_bert-small.json.gz"]
GRAPHS = ["inference-graphs-mi300/vllm_decode_full__graph_execution.json.gz"]
SYNCS = ["hta-singles/a100_critical_path_alexnet.json.gz", "hta-singles/a100_event_sync.json.gz"]
V100 = [f"before-after-resnet50-v100/num_workers_{name}.pt.trace.json.gz"
        for name in ("0__worker0.1623143089861", "4__worker0.1623212756351")]  # fmt: skip
DRIVER = ("X", "cuda_driver")
HOST = [("X", "cpu_op"), ("X", "user_annotation"), ("s", "fwdbwd"), ("f", "fwdbwd")]


EPOCH_A100 = {"gpu": "A100", "dialect": "epoch"}
EPOCH_MI300 = {"gpu": "MI300X", "dialect": "epoch"}


@pytest.mark.parametrize(
    ("settings", "files", "compared"),
    [
        ({"gpu": "H100"}, NVIDIA, [*GPU, DRIVER]),
        ({"gpu": "H100"}, SYNCS, [("X", "cuda_sync")]),
        ({"gpu": "MI300X"}, AMD, GPU),
        *deep(
            ({"gpu": "MI300X", "mode": "inference", "graphs": True}, [*AMD, *GRAPHS], [("X", "kernel")]),
            ({"gpu": "V100", "dialect": "old"}, V100, [*OLD, *NAMES, *MARKS]),
            (EPOCH_A100, [*NVIDIA, *AMD], [*GPU, DRIVER, *HOST, *NAMES, *SORTS, *MARKS]),
            (EPOCH_MI300, [*AMD, *NVIDIA], [*GPU, *HOST, *NAMES, *SORTS, *MARKS, *CPU]),
            ({"gpu": "V100", "dialect": "old", "stacks": False}, V100, [("X", "Kernel"), ("X", "Runtime")]),
        ),
    ],
    ids=["h100", "syncs", "mi300-new", "graphs", "old", "a100", "mi300", "old-without-stacks"],
)
def test_events_match_real_traces(
    tmp_path: Path, settings: dict[str, Any], files: list[str], compared: list[tuple[str, str]]
) -> None:
    theirs = real(*files)
    extra = (
        ["extra-kernel:us=10"] if "graphs" not in settings else []
    )  # a Triton kernel: a call of the driver
    tw.simulate(tmp_path / "sim", injections=extra, **SMALL, **settings)
    events = read(tmp_path / "sim")["traceEvents"]
    messages = {"record_param_comms"} | {event["name"] for event in events if "nccl" in event["name"]}
    plain = [event for event in events if event["name"] not in messages]
    ours, torchs = kinds(plain), kinds(theirs)
    for kind in compared:
        assert ours[kind], kind
        assert ours[kind] <= torchs[kind], kind
    # The arguments of a collective are in the order of a hash map, and the newest PyTorch adds its number.
    ours = kinds([event for event in events if event["name"] in messages], ordered=False)
    torchs = kinds(theirs, ordered=False)
    for kind in set(ours) & {("X", "kernel"), ("X", "cpu_op"), ("X", "Kernel")} & set(compared):
        for keys, args in ours[kind]:
            assert (keys, args - {("Seq", "int")}) in torchs[kind], kind


def test_counters_match_the_plugin(tmp_path: Path) -> None:
    tw.simulate(tmp_path / "sim", counters=True, **SMALL)
    counters = [event for event in read(tmp_path / "sim")["traceEvents"] if event["ph"] == "C"]
    assert len(counters) == SMALL["steps"]
    assert all(0 < event["args"]["GPU Utilization"] <= 1 for event in counters)
    theirs = kinds(real("odd/kineto_gpu_metrics_expected.json"))
    kind = ("C", "GPU 0 Utilization")
    assert kinds(counters)[kind] <= theirs[kind]


def test_events_are_not_sorted(tmp_path: Path) -> None:
    tw.simulate(tmp_path / "sim", **SMALL)
    times = [event["ts"] for event in read(tmp_path / "sim")["traceEvents"] if "ts" in event]
    assert times != sorted(times)


def test_dialects_have_their_own_time_format(tmp_path: Path) -> None:
    for dialect in ("new", "epoch", "old"):
        tw.simulate(tmp_path / dialect, dialect=dialect, **SMALL)
    texts = {
        name: gzip.decompress((tmp_path / name / "rank0.json.gz").read_bytes()) for name in ("epoch", "old")
    }
    events = {name: read(tmp_path / name)["traceEvents"] for name in ("new", "epoch", "old")}
    assert '"ts": 1777885200' in texts["epoch"].decode()
    assert all(isinstance(event["ts"], int) for event in events["old"])
    assert {"Operator", "Kernel", "Runtime", "Memcpy", "Memset"} <= {
        event.get("cat") for event in events["old"]
    }
    assert "baseTimeNanoseconds" in read(tmp_path / "new")
    assert "baseTimeNanoseconds" not in read(tmp_path / "epoch")
    assert max(event["ts"] for event in events["new"]) < 9e12 < min(event["ts"] for event in events["epoch"])
