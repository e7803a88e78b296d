"""Operators with what they launched: delays, sequences, counters of the hardware."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import polars as pl

import tracewarehouse as tw
from witness.hta.breakdowns import LOAD
from witness.hta.callgraph import graph
from witness.hta.frame import Frame, Rank, frames
from witness.hta.method import US, Method, Table, columns
from witness.hta.oracle import OPERATORS
from witness.hta.rules import Fails, Rules
from witness.hta.spans import order, order_down

LAUNCH = re.compile(r"(cuda.*LaunchKernel)|(cuLaunchKernel)|(^runFunction)")
Launch = tuple[str, str, int, int, str]  # operator, what makes it one occurrence, two delays, GPU activity


# Delays of aten operators


def delays(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """(rank, operator, sequence): count, mean from operator to call, mean from call to GPU activity."""
    frame = frames(ranks, rules)[0]
    launches = _by_time(frame) if "nesting" in rules else _by_thread(frame)
    occurrences: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
    for operator, place, to_call, to_row, name in launches:
        occurrences[operator, place].append((to_call, to_row, name))
    if not occurrences and "nesting" in rules:
        raise Fails("KeyError", 14, "no launch lies in an aten operator: the table has no columns")
    grouped: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    for (operator, _), rows in occurrences.items():
        sequence = " | ".join(name for *_, name in rows)
        grouped[frame.rank, operator, sequence].append(rows[0][:2])
    return {
        key: (len(rows), *(sum(each) / len(rows) for each in zip(*rows, strict=True)))
        for key, rows in grouped.items()
    }


def _by_thread(frame: Frame) -> Iterable[Launch]:
    """By the operator that our tables name, kernels only, in the order of their calls."""
    calls = frame.rows.select(runtime_id="index", call="ts")
    ops = frame.rows.select(op_id="index", op="name", op_ts="ts")
    rows = frame.gpu.filter(pl.col("kind") != "memory").join(calls, on="runtime_id").join(ops, on="op_id")
    rows = rows.filter(pl.col("op").str.starts_with("aten::")).sort("call", "ts", "index")
    for op_id, op, op_ts, call, ts, name in rows.select("op_id", "op", "op_ts", "call", "ts", "name").rows():
        yield op, str(op_id), call - op_ts, ts - call, name


def _by_time(frame: Frame) -> Iterable[Launch]:
    """By the last aten operator of any thread that holds the call."""
    ops = frame.rows.filter(pl.col("name").str.starts_with("aten::"))
    starts, ends = ops["ts"].to_numpy(), (ops["ts"] + ops["dur"]).to_numpy()
    names, threads = ops["name"].to_list(), ops["tid"].to_list()
    kernels: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for partner, ts, name in frame.gpu.select("partner", "ts", "name").rows():
        kernels[partner].append((ts, name))
    calls = frame.rows.filter([bool(LAUNCH.match(name or "")) for name in frame.rows["name"]])
    for index, ts, dur in calls.select("index", "ts", "dur").rows():
        holding = np.flatnonzero((starts <= ts) & (ends >= ts + dur))
        if not len(holding):
            continue
        at = holding[order_down(starts[holding])[0]]
        if len(kernels[index]) != 1:
            raise Fails("ValueError", 3, "a call has another number of GPU activities than one")
        ((start, name),) = kernels[index]
        yield names[at], f"{threads[at]} {starts[at]}", ts - int(starts[at]), start - ts, name


def delays_said(answer: Any) -> Table:
    names = ("aten_op_name", "kernel_sequence", "occurrence_count")
    found: Table = {}
    for rank, table in answer.items():
        rows = columns(table, *names, "avg_aten_op_launch_delay", "avg_runtime_delay")
        for op, sequence, count, to_call, to_row in rows:
            found[int(rank), op, sequence.replace(" -> ", " | ")] = (count, US * to_call, US * to_row)
    return found


def delays_ours(warehouse: tw.Warehouse) -> Table:
    rows = warehouse.analyze("op_kernel_delays", with_memory=False).rows()
    first = min((row["rank"] for row in rows), default=0)
    return {
        (row["rank"], row["name"], row["kernels"]): (
            row["count"],
            (row["op_to_kernel_ns"] - row["launch_to_kernel_ns"]) / row["count"],
            row["launch_to_kernel_ns"] / row["count"],
        )
        for row in rows
        if row["rank"] == first and row["name"].startswith("aten::")
    }


# Sequences of kernels

LEAST = 3


def sequences(operator: str) -> Callable[[tuple[Rank, ...], Rules], Table]:
    """(operator, sequence): count, time of its GPU activities, time of the operators."""

    def model(ranks: tuple[Rank, ...], rules: Rules) -> Table:
        if "nesting" in rules:
            return _shallowest(ranks, rules, operator)
        return _outermost(frames(ranks, rules)[0], operator)

    return model


def _outermost(frame: Frame, operator: str) -> Table:
    parents = dict(frame.rows.filter("nests").select("index", "parent_id").rows())
    wanted = frame.rows.filter(
        (pl.col("category") == "cpu_op") & pl.col("name").str.contains(operator, literal=True)
    )
    ops = {at: (name, ts, dur) for at, name, ts, dur in wanted.select("index", "name", "ts", "dur").rows()}
    calls = frame.rows.select(runtime_id="index", call="ts")
    rows = (
        frame.gpu.filter(pl.col("op_id").is_not_null())
        .join(calls, on="runtime_id")
        .sort("call", "ts", "index")
    )
    launched: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for op_id, call, name, dur in rows.select("op_id", "call", "name", "dur").rows():
        outer, at = None, op_id
        while at is not None:
            if at in ops and ops[at][1] + ops[at][2] > call:
                outer = at
            at = parents.get(at)
        if outer is not None:
            launched[outer].append((name, dur))
    return _added((ops[at][0], ops[at][2], rows) for at, rows in launched.items())


def _shallowest(ranks: tuple[Rank, ...], rules: Rules, operator: str) -> Table:
    found = graph(ranks, rules - {"nesting"})
    depths = found.depths()
    rows = found.frame.rows
    wanted = rows.filter(pl.col("name").str.contains(operator, literal=True))
    if wanted.is_empty():
        return {}
    least = min(depths.get(at, -1) for at in wanted["index"])
    about = {at: (name, ts, dur) for at, name, ts, dur in rows.select("index", "name", "ts", "dur").rows()}
    occurrences = []
    for at, name, dur in wanted.select("index", "name", "dur").rows():
        if depths.get(at, -1) == least:
            kernels = [each for each in found.below(at) if each in found.kernels and each in about]
            starts = np.array([about[each][1] for each in kernels], dtype=np.int64)
            occurrences.append((name, dur, [about[kernels[n]][::2] for n in order(starts)]))
    return _added(occurrences)


def _added(occurrences: Iterable[tuple[str, int, list[tuple[str, int]]]]) -> Table:
    found: dict[tuple[Any, ...], tuple[int, int, int]] = {}
    for name, dur, kernels in occurrences:
        if len(kernels) >= LEAST:
            key = (name, " | ".join(kernel for kernel, _ in kernels))
            count, gpu, host = found.get(key, (0, 0, 0))
            found[key] = (count + 1, gpu + sum(each for _, each in kernels), host + dur)
    return dict(found)


def sequences_said(answer: Any) -> Table:
    if not answer:
        return {}
    found: Table = {}
    rows = columns(answer, "pattern", "count", "GPU kernel duration (us)", "CPU op duration (us)")
    for pattern, count, gpu, host in rows:
        name, *kernels = pattern.split("|")
        found[name, " | ".join(kernels)] = (count, US * gpu, US * host)
    return found


def sequences_ours(operator: str) -> Callable[[tw.Warehouse], Table]:
    def ours(warehouse: tw.Warehouse) -> Table:
        rows = warehouse.analyze("kernel_sequences", operator=operator, min_kernels=LEAST).rows()
        first = _first_rank(warehouse)
        return {
            (row["name"], row["kernels"]): (row["count"], row["kernel_sum_ns"], row["op_sum_ns"])
            for row in rows
            if row["rank"] == first
        }

    return ours


def _first_rank(warehouse: tw.Warehouse) -> int:
    return int(warehouse.query("SELECT min(rank) AS rank FROM ranks", limits=None).rows()[0]["rank"])


# Counters of the hardware


def cupti(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """(range,): kernel, operators around its call, outermost first."""
    rows = frames(ranks, rules)[0].rows
    ranges = rows.filter(pl.col("cat") == "cuda_profiler_range").sort("ts", "index")
    calls = rows.filter(
        (pl.col("cat") == "cuda_runtime") & pl.col("name").str.starts_with("cudaLaunchKernel")
    )
    if len(ranges) != len(calls) or ranges.is_empty():
        return {}
    parents = dict(rows.filter("nests").select("index", "parent_id").rows())
    ops = dict(rows.filter(pl.col("cat") == "cpu_op").select("index", "name").rows())
    found: Table = {}
    for (at, name), call in zip(
        ranges.select("index", "name").rows(), calls.sort("ts", "index")["index"], strict=True
    ):
        stack = []
        node = parents.get(call)
        while node is not None:
            if node in ops:
                stack.append(ops[node])
            node = parents.get(node)
        found[at,] = (name, " > ".join(reversed(stack)))
    return found


def cupti_said(answer: Any) -> Table:
    found: Table = {}
    for table in answer[:1]:
        for at, name, stack in columns(table, "index", "name", "op_stack"):
            found[at,] = (name, " > ".join(stack))
    return found


def cupti_ours(warehouse: tw.Warehouse) -> Table:
    rows = warehouse.analyze("cupti_counters").rows()
    return {(row["event_id"],): (row["name"], " > ".join(row["op_stack"] or [])) for row in rows}


METHODS = [
    Method(
        "get_aten_op_kernels_and_delay",
        (*LOAD, "stream", "nesting"),
        delays_said,
        delays,
        delays_ours,
        within=(0, 0.6, 0.6),
    ),
    *(
        Method(
            f"get_frequent_cuda_kernel_sequences({operator})",
            (*LOAD, "stream", "nesting"),
            sequences_said,
            sequences(operator),
            sequences_ours(operator),
            within=(0, 0.5, 0.5),
        )
        for operator in OPERATORS
    ),
    Method("get_cupti_counter_data_with_operators", LOAD, cupti_said, cupti, cupti_ours),
]
