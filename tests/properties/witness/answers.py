"""Expected results of analyses for one rank, by brute force."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from witness.recording import Recording
from witness.trace import Slice, Trace, devices, step_number

Row = dict[str, Any]
ULPS = 4


def pieces(rows: list[Slice]) -> Iterator[tuple[int, set[str]]]:
    """(duration, running kinds) between all adjacent edges: each activity is checked in each segment."""
    edges = sorted({edge for row in rows for edge in (row.start, row.end)})
    for start, end in zip(edges, edges[1:], strict=False):
        yield end - start, {row.kind for row in rows if row.start <= start and row.end >= end}


def temporal_breakdown(trace: Trace) -> list[Row]:
    """Exclusive breakdown of each device's window."""
    answer = []
    for device, rows in devices(trace.gpu).items():
        split: dict[str, int] = defaultdict(int)
        for length, kinds in pieces(rows):
            first = [kind for kind in ("computation", "communication", "memory") if kind in kinds]
            split[first[0] if first else "idle"] += length
        window = max(row.end for row in rows) - min(row.start for row in rows)
        answer.append(
            {
                "device": device,
                "window_ns": window,
                "busy_ns": window - split["idle"],
                "compute_ns": split["computation"],
                "exposed_comm_ns": split["communication"],
                "exposed_memory_ns": split["memory"],
                "other_ns": 0,
                "idle_ns": split["idle"],
            }
        )
    return answer


def union(rows: Iterable[Slice]) -> int:
    """The union of the activities: sorted by start and merged while they touch."""
    total, end = 0, None
    for row in sorted(rows, key=lambda row: row.start):
        fresh = row.start if end is None else max(row.start, end)
        total += max(row.end - fresh, 0)
        end = row.end if end is None else max(row.end, end)
    return total


def breakdown_by_unions(trace: Trace) -> list[Row]:
    """`temporal_breakdown` and `comm_comp_overlap` again, from unions of more and more kinds."""
    answer = []
    for device, rows in devices(trace.gpu).items():
        kinds = {kind: [row for row in rows if row.kind == kind] for kind in {row.kind for row in rows}}
        compute = kinds.get("computation", [])
        comm = kinds.get("communication", [])
        both, busy, window = union(compute + comm), union(rows), max(row.end for row in rows)
        answer.append(
            {
                "device": device,
                "window_ns": window - min(row.start for row in rows),
                "busy_ns": busy,
                "compute_ns": union(compute),
                "exposed_comm_ns": both - union(compute),
                "exposed_memory_ns": busy - both,
                "comm_ns": union(comm),
                "overlap_ns": union(compute) + union(comm) - both,
            }
        )
    return answer


def comm_comp_overlap(trace: Trace) -> list[Row]:
    """Time with communication, and with both communication and computation."""
    answer = []
    for device, rows in devices(trace.gpu).items():
        comm = sum(length for length, kinds in pieces(rows) if "communication" in kinds)
        both = sum(length for length, kinds in pieces(rows) if {"communication", "computation"} <= kinds)
        answer.append(
            {
                "device": device,
                "comm_ns": comm,
                "overlap_ns": both,
                "exposed_ns": comm - both,
                "overlap": both / comm if comm else None,
            }
        )
    return answer


def kernel_summary(trace: Trace) -> list[Row]:
    """Statistics of each name."""
    groups: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for row in trace.gpu:
        groups[row.device, row.kind, row.name].append(row.length)
    return [
        {"device": device, "kind": kind, "name": name} | statistics(sorted(lengths))
        for (device, kind, name), lengths in sorted(groups.items())
    ]


def statistics(lengths: list[int]) -> Row:
    """Statistics of sorted durations."""
    return {
        "count": len(lengths),
        "sum_ns": sum(lengths),
        "min_ns": lengths[0],
        "p50_ns": _quantile(lengths, Fraction(50, 100)),
        "p95_ns": _quantile(lengths, Fraction(95, 100)),
        "p99_ns": _quantile(lengths, Fraction(99, 100)),
        "max_ns": lengths[-1],
        "mean_ns": sum(lengths) / len(lengths),
        "std_ns": _deviation(lengths),
    }


def _quantile(ordered: list[int], share: Fraction) -> int:
    """The smallest value that at least a `share` of all values does not exceed."""
    return next(value for at, value in enumerate(ordered, 1) if Fraction(at, len(ordered)) >= share)


def _deviation(values: list[int]) -> float | None:
    """The sample standard deviation, its square root computed in integers to 30 decimals."""
    count = len(values)
    if count < 2:
        return None
    mean = Fraction(sum(values), count)
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    return math.isqrt(variance.numerator * 10**60 // variance.denominator) / 10**30


def launch_stats(trace: Trace) -> list[Row]:
    """Each GPU activity and its call."""
    return [_launch(row, trace.launch(row)) for row in trace.gpu]


def _launch(row: Slice, call: Slice | None) -> Row:
    return {
        "kernel_id": row.event_id,
        "runtime_id": call and call.event_id,
        "api": call and call.name,
        "name": row.name,
        "kind": row.kind,
        "device": row.device,
        "stream": row.stream,
        "call_ns": call and call.length,
        "kernel_ns": row.length,
        "return_to_start_ns": call and row.start - call.end,
        "call_to_start_ns": call and row.start - call.start,
    }


def launch_coverage(trace: Trace) -> list[Row]:
    """GPU time by the state of its launch."""
    states = {"known": "launch_known", "before_window": "before_window", "missing": "missing"}
    answer = []
    for device, rows in devices(trace.gpu).items():
        sums = {
            f"{name}_ns": sum(row.length for row in rows if trace.launch_state(row) == state)
            for state, name in states.items()
        }
        answer.append({"device": device, "gpu_ns": sum(row.length for row in rows)} | sums)
    return answer


def coverage(trace: Trace) -> list[Row]:
    """The same as shares, with the share that has an operator, and that of graph launches."""
    answer = []
    launched = Counter(call.event_id for row in trace.gpu if (call := trace.launch(row)))
    for known, rows in zip(launch_coverage(trace), devices(trace.gpu).values(), strict=True):
        total = known["gpu_ns"]
        sums = {name.removesuffix("_ns"): known[name] for name in known if name not in ("device", "gpu_ns")}
        graph_ns = 0
        sums["with_op"] = 0
        for row in rows:
            call = trace.launch(row)
            if call is not None and "GraphLaunch" in (call.name or "") and launched[call.event_id] > 1:
                graph_ns += row.length
            elif trace.op(call) is not None:
                sums["with_op"] += row.length
        ratios = {state: length / total if total else None for state, length in sums.items()}
        in_graph = {"graph_ns": graph_ns, "in_graph": graph_ns / total if total else None}
        answer.append(known | {"with_op_ns": sums["with_op"]} | in_graph | ratios)
    return answer


def step_summary(trace: Trace) -> list[Row]:
    """The columns of `steps` that the analysis has."""
    return [{name: row[name] for name in row if name != "incomplete"} for row in steps(trace)]


def steps(trace: Trace) -> list[Row]:
    """Host and device spans of each step, the periods between their ends, and why it is incomplete."""
    answer = []
    done: int | None = None
    notes = [note for note in trace.notes if note.category == "user_annotation"]
    host = [*trace.ops, *trace.calls, *trace.steps, *trace.frames, *notes]
    recording = Recording(trace)
    for step in sorted(trace.steps, key=lambda step: step.start):
        number = step_number(step)
        rows = [row for row in trace.gpu if trace.step(trace.launch(row)) == number]
        end = max((row.end for row in rows), default=step.end)
        began = step.start if done is None else done
        done = max(end, began, step.start)
        incomplete = recording.incomplete(number, rows)
        if incomplete != "lost_records" and (_touches([step], host) or _touches(rows, trace.gpu)):
            incomplete = "cut_off"
        answer.append(
            {
                "step": number,
                "host_ns": step.length,
                "device_ns": end - min(row.start for row in rows) if rows else None,
                "period_ns": done - began,
                "partial": incomplete is not None,
                "incomplete": incomplete,
            }
        )
    return answer


def _touches(part: list[Slice], whole: list[Slice]) -> bool:
    """Whether the step touches the start or end of the recording."""
    if not part:
        return False
    start, end = min(row.start for row in whole), max(row.end for row in whole)
    return min(row.start for row in part) <= start or max(row.end for row in part) >= end


def same(found: object, wanted: object) -> bool:
    """Equality; floats within a few units in the last place."""
    if isinstance(found, float) and isinstance(wanted, float):
        return abs(found - wanted) <= ULPS * math.ulp(wanted)
    return found == wanted


def by_grain(rows: Iterable[Row], grain: tuple[str, ...]) -> dict[tuple[Any, ...], Row]:
    """The rows by key."""
    return {tuple(row[name] for name in grain): row for row in rows}
