"""The critical path: HTA's longest path through its own graph, ours what each moment was spent on.

Our own path has its witness in `witness/critical.py`; here it is compared with HTA's rules.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import polars as pl

import tracewarehouse as tw
from tracewarehouse.errors import ParamError
from tracewarehouse.hta.traces import LoadedTraces, critical_path
from witness.hta.breakdowns import LOAD
from witness.hta.critical_build import SYNC, Critical, same_stream
from witness.hta.critical_graph import Edge
from witness.hta.frame import COMMUNICATION, Frame, Rank, frames
from witness.hta.method import US, Method, Table
from witness.hta.pairs import short_name
from witness.hta.rules import Fails, Rules
from witness.hta.syncs import WAIT_ROW

WINDOWS = {
    "critical_path_analysis(ProfilerStep, 0)": ("ProfilerStep", 0),
    "critical_path_analysis(ProfilerStep, 1)": ("ProfilerStep", 1),
    "critical_path_analysis('')": ("", 0),
}
STEP, MOST_ROWS = "ProfilerStep", 40_000
OVERHEAD = {
    "KERNEL_KERNEL_DELAY": "gpu_kernel_kernel_overhead",
    "KERNEL_LAUNCH_DELAY": "gpu_kernel_launch_overhead",
    "DEPENDENCY": "",
    "SYNC_DEPENDENCY": "",
}
RULES = (*LOAD, "stream", "marks", "apis", "path", "lock", "threads", "gaps", "blocking", "limit")


def requested(ranks: tuple[Rank, ...]) -> dict[str, tuple[str, int]]:
    """The windows that HTA is requested for: of a large trace with steps not the whole, for its time."""
    stepped = ranks[0].rows["name"].str.contains(STEP).any()
    whole = not stepped or len(ranks[0].rows) <= MOST_ROWS
    return {name: window for name, window in WINDOWS.items() if window[0] or whole}


def linked(frame: Frame, rules: Rules) -> Frame:
    """The frame with the profiler's rows about waits among GPU activities, and a partner for calls."""
    waits = pl.col("cat") == SYNC
    rows = frame.rows.with_columns(
        gpu=pl.col("gpu") | (waits & (pl.col("arg_stream") != -1)),
        sid=pl.when(waits).then("arg_stream").otherwise("sid"),
    )
    if "many" not in rules:
        rows = rows.with_columns(partner=pl.when(waits).then("sync_call").otherwise("partner").fill_null(-1))
        linked = rows.filter(pl.col("gpu") & (pl.col("partner") >= 0))
        launched = dict(linked.select("partner", "index").rows())
        found = [launched.get(at, partner) for at, partner in rows.select("index", "partner").rows()]
        rows = rows.with_columns(partner=pl.Series(found, dtype=pl.Int64))
    return Frame(frame.rank, rows, frame.dtype)


def window(frame: Frame, annotation: str, instance: int, rules: Rules) -> pl.DataFrame:
    """The rows that start in an instance of an annotation, or were launched in it; in the file's order."""
    rows, inside = frame.rows, pl.lit(True)
    if annotation:
        inside = pl.col("ts").is_between(*_span(rows, annotation, instance, rules))
    host = rows.filter(~pl.col("gpu"))
    calls = host.filter(inside & (pl.col("dur") > 0)).select("index", "partner")
    every = host.select(index="partner", call="index")
    links = frame.gpu.select("index", "name").join(every, on="index", how="left")
    links = links.filter((pl.col("name") == WAIT_ROW) | pl.col("call").is_in(calls["index"].implode()))
    selected = pl.concat([calls.select("index"), links.select("index")]).sort("index")
    return selected.join(rows, on="index", maintain_order="left_right")


def _span(rows: pl.DataFrame, annotation: str, instance: int, rules: Rules) -> tuple[int, int]:
    marks = rows.filter(pl.col("name").str.contains(annotation, literal=True))
    if "marks" not in rules:
        marks = marks.filter(pl.col("category") != "gpu_user_annotation").sort("ts", "index")
    if len(marks) <= instance:
        raise Fails("UndefinedVariableError", 6, "the load left no such instance of the annotation")
    ts, dur = marks.select("ts", "dur").row(instance)
    return ts, ts + dur


@dataclass(frozen=True)
class Found:
    """HTA's path by a set of rules: its parts, and the shape of its graph; or how it fails at either."""

    lengths: Table | Fails
    shape: Table | Fails


def found(ranks: tuple[Rank, ...], rules: Rules, annotation: str, instance: int) -> Found:
    """The path of the first rank; nothing where no name of any rank holds the annotation."""
    names = {name for rank in ranks for name in (*rank.rows["name"].unique(), *rank.rows["cat"].unique())}
    if "path" not in rules or not any(annotation in (name or "") for name in names):
        return Found({}, {})
    if not any(STEP in (name or "") for name in names):
        rules -= {"last_step", "join"}
    if not annotation:
        rules -= {"marks"}
    if not ranks[0].floats:
        rules -= {"rounding"}
    if not ranks[0].unseen:
        rules -= {"last_list"}
    return _found(ranks, rules, annotation, instance)


@lru_cache(maxsize=200)
def _found(ranks: tuple[Rank, ...], rules: Rules, annotation: str, instance: int) -> Found:
    names = {name for rank in ranks for name in rank.rows["name"].unique()}
    try:
        frame = linked(frames(ranks, rules)[0], rules)
        critical = Critical(frame, window(frame, annotation, instance, rules), names, rules)
        nodes = path(critical)
        return Found(lengths_of(critical, nodes), shape_of(critical, nodes))
    except Fails as failed:
        return Found(failed, failed)


def path(critical: Critical) -> list[int]:
    """The longest way; edges against time cost nothing in it. Raises Fails where HTA has none."""
    if same_stream(critical):
        raise Fails("NoPath", 16, "a row waits for another of the same stream")
    nodes = critical.graph.longest(lambda edge: 0 if edge.weight <= -US else edge.weight)
    if len(nodes) < 2:
        raise Fails("AssertionError", 16, "no edge takes time: a path of one node")
    return nodes


def bound(critical: Critical, edge: Edge, streams: dict[int, int]) -> str:
    """What HTA says that the time of an edge was bound by."""
    if edge.type in OVERHEAD:
        return OVERHEAD[edge.type]
    if edge.event not in streams:
        raise Fails("AssertionError", 16, "time between rows of a thread that belongs to none of them")
    if streams[edge.event] < 0:
        return "cpu_bound"
    communicates = COMMUNICATION.match(short_name(critical.name[edge.event]))
    return "gpu_communication_bound" if communicates else "gpu_compute_bound"


def lengths_of(critical: Critical, nodes: list[int]) -> Table:
    """("length",) and each ("bound by",): time."""
    times = Counter[str]()
    streams = dict(critical.window.select("index", "sid").rows())
    for source, to in zip(nodes, nodes[1:], strict=False):
        edge = critical.graph.after[source][to]
        times[bound(critical, edge, streams)] += edge.weight
    return _table(times)


def shape_of(critical: Critical, nodes: list[int]) -> Table:
    """Nodes of the path and a digest of them; edges of the graph by type and their weights."""
    places = json.dumps([(node.event, node.is_start) for node in map(critical.nodes.__getitem__, nodes)])
    digest = hashlib.sha256(places.encode()).hexdigest()[:16]
    edges: Table = {(type_,): row for type_, row in critical.graph.by_type().items()}
    return {("path",): (len(nodes), digest)} | edges


Model = Callable[[tuple[Rank, ...], Rules], Table]


def lengths(annotation: str, instance: int) -> Model:
    """`lengths_of` in a window."""
    return lambda ranks, rules: _given(found(ranks, rules, annotation, instance).lengths)


def shape(annotation: str, instance: int) -> Model:
    """`shape_of` in a window."""
    return lambda ranks, rules: _given(found(ranks, rules, annotation, instance).shape)


def _given(answer: Table | Fails) -> Table:
    if isinstance(answer, Fails):
        raise answer
    return answer


def _table(by_bound: dict[str, Any]) -> Table:
    whole: Table = {("length",): (sum(by_bound.values()),)}
    return whole | {(bound,): (time,) for bound, time in by_bound.items() if bound and time}


def lengths_said(answer: Any) -> Table:
    if answer is None:
        return {}
    return _table({bound: US * time for bound, time in answer["by_bound"].items()})


def lengths_ours(annotation: str, instance: int) -> Callable[[tw.Warehouse], Table]:
    """Our path in the words that our `tracewarehouse.hta` has for it."""

    def ours(warehouse: tw.Warehouse) -> Table:
        (run,) = (
            row["run_id"] for row in warehouse.query("SELECT DISTINCT run_id FROM ranks", limits=None).rows()
        )
        traces = LoadedTraces(warehouse, run)
        try:
            path = critical_path(traces, traces.ranks[0], annotation, instance)
        except ParamError:
            return {}
        times = Counter[str]()
        parts = path.get_critical_path_breakdown()
        for bound_by, time in zip(parts["bound_by"], parts["duration"], strict=True):
            times[bound_by] += round(US * time)
        return _table(times)

    return ours


def shape_said(answer: Any) -> Table:
    if answer is None:
        return {}
    edges = {(type_,): (count, US * weight) for type_, (count, weight) in answer["edges"].items()}
    return {("path",): (answer["nodes"], answer["path"])} | edges


METHODS = [
    method
    for name, requested in WINDOWS.items()
    for method in (
        Method(name, RULES, lengths_said, lengths(*requested), lengths_ours(*requested), witnessed=True),
        Method(name, RULES, shape_said, shape(*requested), note="graph"),
    )
]
