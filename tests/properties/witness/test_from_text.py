"""Summaries that no other witness covers, computed in plain Python from the text of simulated traces."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from statistics import median_low
from typing import Any

import pytest

import tracewarehouse as tw
from simulated import SMALL

Event = dict[str, Any]
Rows = list[dict[str, Any]]
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
KINDS = ("computation", "communication", "memory")  # what counts first, where several run
FRAME = re.compile(r"(.+)\((\d+)\): (.+)")


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """A run of training and one of a server, two ranks each."""
    folder = tmp_path_factory.mktemp("text")
    tw.simulate(folder / "sim/trained", ranks=2, seed=3, **{**SMALL, "steps": 3})
    tw.simulate(folder / "sim/served", ranks=2, seed=3, mode="inference", **{**SMALL, "steps": 4})
    wh = tw.open(folder / "warehouse")
    wh.ingest(folder / "sim", jobs=1)
    wh.record(analyses=["kernel_summary"])
    return wh


def ranks(wh: tw.Warehouse, run: str) -> Iterator[tuple[int, list[Event]]]:
    """The events of each rank, with `start`, `end` in ns, and `kind` on the GPU."""
    for rank in (0, 1):
        path = Path(wh.root).parent / f"sim/{run}/rank{rank}.json.gz"
        events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
        for each in events:
            if each["ph"] == "X":
                each["start"] = int(each["ts"] * 1000)
                each["end"] = each["start"] + int(each["dur"] * 1000)
        yield rank, [each for each in events if each["ph"] == "X"]


def on_gpu(events: Sequence[Event]) -> list[Event]:
    return [each for each in events if each["cat"] in ON_GPU]


def kind(activity: Event) -> str:
    if activity["cat"] != "kernel":
        return "memory"
    return "communication" if "nccl" in activity["name"].lower() else "computation"


def launches(events: Sequence[Event]) -> dict[int, Event]:
    return {each["args"]["correlation"]: each for each in events if each["cat"] == "cuda_runtime"}


def around(outer: Event, inner: Event) -> bool:
    same = (outer["pid"], outer["tid"]) == (inner["pid"], inner["tid"])
    return same and outer["start"] <= inner["start"] and inner["end"] <= outer["end"]


def parts(activities: Sequence[Event], start: int, end: int) -> Counter[str]:
    """The time from start to end by what runs: the first of KINDS, or idle."""
    edges = sorted({start, end} | {edge for a in activities for edge in (a["start"], a["end"])})
    found: Counter[str] = Counter()
    for one, other in zip(edges, edges[1:], strict=False):
        if start <= one and other <= end:
            running = {kind(each) for each in activities if each["start"] <= one and other <= each["end"]}
            found[next((each for each in KINDS if each in running), "idle")] += other - one
    return found


def rows_of(wh: tw.Warehouse, run: str, analysis: str, rank: int) -> Rows:
    return [row for row in wh.select(run).analyze(analysis).rows() if row["rank"] == rank]


@pytest.mark.parametrize("run", ["trained", "served"])
def test_analyzed_account(wh: tw.Warehouse, run: str) -> None:
    for rank, events in ranks(wh, run):
        found = {row["category"]: row["category_ns"] for row in rows_of(wh, run, "analyzed_account", rank)}
        sql = f"SELECT start_ns, end_ns FROM analyzed_intervals WHERE run_id = '{run}' AND rank = {rank}"
        activities, wanted = on_gpu(events), Counter[str]()
        base = min(each["start"] for each in events)
        first = wh.query(
            f"SELECT min(ts_ns) AS ns FROM events WHERE run_id = '{run}' AND rank = {rank}"
        ).rows()
        for row in wh.query(sql).rows():
            shift = base - first[0]["ns"]
            wanted += parts(activities, row["start_ns"] + shift, row["end_ns"] + shift)
        assert found == wanted and found["computation"] > 0


def hosts(events: Sequence[Event]) -> Iterator[tuple[Event, Event, bool]]:
    """Each activity with its launch, or the forward of the operator that backward runs it for.

    A collective in backward belongs to no operator.
    """
    calls = launches(events)
    numbered = [each for each in events if each["cat"] == "cpu_op" and "Sequence number" in each["args"]]
    for activity in on_gpu(events):
        call = calls[activity["args"]["correlation"]]
        for op in numbered if kind(activity) != "communication" else ():
            if "Backward" in op["name"] and around(op, call):
                number = op["args"]["Sequence number"]
                forward = [
                    each
                    for each in numbered
                    if each["args"]["Sequence number"] == number and "Backward" not in each["name"]
                ]
                if forward:
                    yield activity, min(forward, key=lambda each: each["end"] - each["start"]), True
                    break
        else:
            yield activity, call, False


@pytest.mark.parametrize("run", ["trained", "served"])
def test_source_summary(wh: tw.Warehouse, run: str) -> None:
    for rank, events in ranks(wh, run):
        frames = [each for each in events if each["cat"] == "python_function" and FRAME.match(each["name"])]
        wanted: dict[str | None, list[int]] = defaultdict(lambda: [0, 0, 0])
        for activity, host, is_backward in hosts(events):
            outer = [each for each in frames if around(each, host) and not each["name"].startswith("torch/")]
            name = None
            if outer:
                inner = max(outer, key=lambda each: (each["start"], -each["end"], each["args"]["Python id"]))
                name = FRAME.sub(r"\1:\2 \3", inner["name"])
            ns = activity["end"] - activity["start"]
            for at, value in enumerate((1, ns, ns if is_backward else 0)):
                wanted[name][at] += value
        rows = rows_of(wh, run, "source_summary", rank)
        found = {row["source"]: [row["count"], row["gpu_sum_ns"], row["backward_ns"]] for row in rows}
        assert found == wanted and len(found) > 4


def test_serving_summary(wh: tw.Warehouse) -> None:
    for rank, events in ranks(wh, "served"):
        steps = sorted(
            (each for each in events if each["cat"] == "user_annotation" and "generation" in each["name"]),
            key=lambda each: each["start"],
        )
        calls, activities = launches(events), on_gpu(events)
        work = [[a for a in activities if around(step, calls[a["args"]["correlation"]])] for step in steps]
        starts = [min(each["start"] for each in of_step) for of_step in work]
        ends = [max(each["end"] for each in of_step) for of_step in work]
        within, between = Counter[str](), Counter[str]()
        for start, end, after in zip(starts, ends, [*starts[1:], None], strict=True):
            within += parts(activities, start, min(end, after or end))
            if after:
                between += parts(activities, min(end, after), after)
        span_ns = max(ends[-1], steps[-1]["end"]) - steps[0]["start"]
        requests = [int(re.search(r"generation_(\d+)", step["name"])[1]) for step in steps]  # type: ignore[index]
        (row,) = rows_of(wh, "served", "serving_summary", rank)
        assert (row["phase"], row["steps"], row["span_ns"]) == ("decode", len(steps), span_ns)
        assert (row["requests"], row["tokens"]) == (median_low(requests), sum(requests))
        assert row["tokens_per_s"] == pytest.approx(sum(requests) * 1e9 / span_ns)
        gaps = [after - start for start, after in zip(starts, starts[1:], strict=False)]
        assert row["time_per_token_ns"] == median_low(gaps)
        names = ("compute_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns")
        assert [row[name] for name in names] == [within[each] for each in (*KINDS, "idle")]
        assert (row["gpu_ns"], row["between_ns"]) == (within.total(), between.total())
        assert row["gap_ns"] == between["idle"]


def test_collective_fleet(wh: tw.Warehouse) -> None:
    wanted: Counter[str] = Counter()
    whole = 0
    for _, events in ranks(wh, "trained"):
        for each in on_gpu(events):
            ns = each["end"] - each["start"]
            whole += ns
            if kind(each) == "communication":
                wanted["all_reduce" if "AllReduce" in each["name"] else "broadcast"] += ns
    rows = wh.analyze("collective_fleet").rows()
    assert {row["name"]: row["sum_ns"] for row in rows} == wanted
    assert sum(row["share"] for row in rows) == pytest.approx(wanted.total() / whole)
