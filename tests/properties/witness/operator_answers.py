"""Expected results of analyses of classes, launches and operators for one rank, by brute force.

Operators and annotations are looked for by time alone: around a moment of a thread are those that started
before it, in the order of nesting, and end after it. No tree is built.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from witness.answers import Row, pieces, statistics, union
from witness.trace import Slice, Trace, devices, nesting

Launch = tuple[Slice | None, list[Slice]]  # a call, if known, and its GPU activities
Key = tuple[str | None, str | None]  # the name of an operator and its input shapes
NO_OPERATOR: Key = (None, None)
KINDS = ("computation", "communication", "memory", "other")
LAUNCH = re.compile(r"launch.*kernel|graphlaunch|memcpy|memset", re.IGNORECASE)


def kernel_type_breakdown(trace: Trace) -> list[Row]:
    """Time by the kinds that run at once."""
    answer = []
    for device, rows in devices(trace.gpu).items():
        split: dict[str, int] = defaultdict(int)
        for length, kinds in pieces(rows):
            split["+".join(kind for kind in KINDS if kind in kinds)] += length
        split.pop("", None)
        busy = sum(split.values())
        answer += [
            {"device": device, "class": name, "class_ns": length, "share": length / busy}
            for name, length in split.items()
        ]
    return answer


def comm_by_group(trace: Trace) -> list[Row]:
    """Communication of each group, and its overlap with computation."""
    answer = []
    for device, rows in devices(trace.gpu).items():
        computation = [row for row in rows if row.kind == "computation"]
        groups: dict[str | None, list[Slice]] = defaultdict(list)
        for row in rows:
            if row.kind == "communication":
                groups[row.args.get("Process Group Name")].append(row)
        for group, comm in groups.items():
            total = union(comm)
            hidden = total + union(computation) - union(comm + computation)
            answer.append(
                {
                    "device": device,
                    "process_group": group,
                    "comm_ns": total,
                    "overlap_ns": hidden,
                    "exposed_ns": total - hidden,
                    "overlap": hidden / total if total else None,
                }
            )
    return answer


def launch_summary(
    trace: Trace, runtime_cutoff_ns: int = 50_000, delay_cutoff_ns: int = 100_000
) -> list[Row]:
    """Calls by function, each with its activities on one device."""
    found: dict[tuple[int | None, str, str | None], list[tuple[Slice | None, list[Slice]]]] = defaultdict(
        list
    )
    launched = set()
    for device, rows in devices(trace.gpu).items():
        by_call: dict[int | None, list[Slice]] = defaultdict(list)
        for row in rows:
            call = trace.launch(row)
            by_call[call and call.event_id].append(row)
        for rows_of_call in by_call.values():
            call = trace.launch(rows_of_call[0])
            if call is not None:
                launched.add(call.event_id)
                found[device, "known", call.name].append((call, rows_of_call))
                continue
            for row in rows_of_call:
                found[device, trace.launch_state(row), None].append((None, [row]))
    ids = {row.correlation for row in trace.gpu} - {None, 0, -1}
    for call in trace.calls:
        if LAUNCH.search(call.name) and call.event_id not in launched:
            state = "shared_id" if call.correlation in ids else "no_gpu_activity"
            found[None, state, call.name].append((call, []))
    return [
        {"device": device, "state": state, "api": api} | _launches(parts, runtime_cutoff_ns, delay_cutoff_ns)
        for (device, state, api), parts in found.items()
    ]


def _launches(parts: list[Launch], runtime_cutoff: int, delay_cutoff: int) -> Row:
    calls = [(call, rows) for call, rows in parts if call is not None]
    quick = [(call, rows) for call, rows in calls if rows and call.length <= runtime_cutoff]
    late = [call for call, rows in calls if rows and min(row.start for row in rows) > call.end + delay_cutoff]
    return {
        "recognized": bool(LAUNCH.search(calls[0][0].name)) if calls else None,
        "launches": len(calls),
        "gpu_activities": sum(len(rows) for _, rows in parts),
        "short_kernels": sum(sum(row.length for row in rows) < call.length for call, rows in quick),
        "runtime_outliers": sum(call.length > runtime_cutoff for call, _ in calls),
        "delay_outliers": len(late),
        "call_ns": sum(call.length for call, _ in calls),
        "gpu_ns": sum(row.length for _, rows in parts for row in rows),
    }


def annotation_breakdown(trace: Trace) -> list[Row]:
    """Annotations by name, on the host and on each device."""
    groups: dict[tuple[bool, int | None, str], list[Slice]] = defaultdict(list)
    for note in trace.notes:
        on_gpu = note.category == "gpu_user_annotation"
        groups[on_gpu, int(note.thread[0]) if on_gpu else None, note.name].append(note)
    return [
        {"on_gpu": on_gpu, "device": device, "name": name, "union_ns": union(notes)}
        | _statistics(sorted(note.length for note in notes))
        for (on_gpu, device, name), notes in groups.items()
    ]


def _statistics(lengths: list[int]) -> Row:
    wanted = ("count", "sum_ns", "min_ns", "p50_ns", "max_ns", "mean_ns", "std_ns")
    return {name: value for name, value in statistics(lengths).items() if name in wanted}


def kernels_by_annotation(trace: Trace) -> list[Row]:
    """Each GPU activity with the annotations enclosing the start of its call."""
    answer = []
    for row in trace.gpu:
        call = trace.launch(row)
        notes = [] if call is None else _open(trace.notes, call)
        answer.append(
            {
                "kernel_id": row.event_id,
                "name": row.name,
                "launch_state": trace.launch_state(row),
                "kernel_ns": row.length,
                "depth": len(notes),
                "annotation_id": notes[-1].event_id if notes else None,
                "annotation": notes[-1].name if notes else None,
                "path": " > ".join(note.name for note in notes) or None,
            }
        )
    return answer


def _open(notes: Iterable[Slice], call: Slice) -> list[Slice]:
    """The annotations on the thread of the call that enclose its start, outermost first."""
    held = [note for note in notes if note.thread == call.thread and note.start <= call.start < note.end]
    return sorted(held, key=nesting)


def op_summary(trace: Trace, by_shapes: bool = False) -> list[Row]:
    """Operators by name, with host time by thread and the GPU activities launched within them."""

    def key(op: Slice) -> Key:
        shapes = op.args.get("Input Dims") if by_shapes else None
        return op.name, None if shapes is None else json.dumps(shapes, separators=(",", ":"))

    threads: dict[tuple[Key, Any], list[Slice]] = defaultdict(list)
    for op in trace.ops:
        threads[key(op), op.thread].append(op)
    host: dict[Key, int] = defaultdict(int)
    for (name, _), ops in threads.items():
        host[name] += union(ops)
    own_time = Counter(dict.fromkeys(host, 0))
    for op, length in _innermost_time(trace.ops):
        own_time[key(op)] += length
    own: dict[Key, list[Slice]] = defaultdict(list)
    every: dict[Key, list[Slice]] = defaultdict(list)
    for row in trace.gpu:
        held = _holders(trace, row)
        own[key(held[-1]) if held else NO_OPERATOR].append(row)
        for name in {key(op) for op in held} or {NO_OPERATOR}:
            every[name].append(row)
    count = Counter(key(op) for op in trace.ops)
    names = [*host, *([NO_OPERATOR] if NO_OPERATOR in own else [])]
    return [
        {
            "name": name[0],
            "shapes": name[1],
            "count": count[name],
            "host_ns": host.get(name, 0),
            "host_self_ns": own_time[name],
        }
        | _gpu_time("kernel_self", own[name], bool(trace.gpu))
        | _gpu_time("kernel", every[name], bool(trace.gpu))
        for name in names
    ]


def _innermost_time(ops: list[Slice]) -> Iterator[tuple[Slice, int]]:
    """Each segment of a thread's time between two edges, with the open operator that began last."""
    threads: dict[Any, list[Slice]] = defaultdict(list)
    for op in ops:
        threads[op.thread].append(op)
    for members in threads.values():
        edges = sorted({edge for op in members for edge in (op.start, op.end)})
        for start, end in zip(edges, edges[1:], strict=False):
            running = [op for op in members if op.start <= start and op.end >= end]
            if running:
                yield max(running, key=nesting), end - start


def _gpu_time(what: str, rows: list[Slice], known: bool) -> Row:
    together = sum(union(part) for part in devices(rows).values())
    found = {"count": len(rows), "sum_ns": sum(row.length for row in rows), "union_ns": together}
    return {f"{what}_{name}": value if known else None for name, value in found.items()}


def _holders(trace: Trace, row: Slice) -> list[Slice]:
    """The operators enclosing the launch of a GPU activity, outermost first."""
    call = trace.launch(row)
    return [] if call is None else around(trace.ops, call)


def _innesting(trace: Trace, rows: Iterable[Slice]) -> list[tuple[Slice, Slice]]:
    """(call, GPU activity) in launch order."""
    pairs = [(call, row) for row in rows if (call := trace.launch(row)) is not None]
    return sorted(pairs, key=lambda pair: (pair[0].start, pair[1].start, pair[1].event_id))


def op_kernel_delays(trace: Trace, with_memory: bool = True) -> list[Row]:
    """The activities that each operator launched directly, and the delay of the first one."""
    occurrences: dict[Slice, list[Slice]] = defaultdict(list)
    for row in trace.gpu:
        held = _holders(trace, row)
        if held and (with_memory or row.kind != "memory"):
            occurrences[held[-1]].append(row)
    groups: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for op, rows in occurrences.items():
        pairs = _innesting(trace, rows)
        call, first = pairs[0]
        delays = (first.start - op.start, first.start - call.start, sum(row.length for row in rows))
        groups[op.name, " | ".join(row.name for _, row in pairs)].append(delays)
    return [
        {
            "name": name,
            "kernels": kernels,
            "kernel_count": kernels.count(" | ") + 1,
            "count": len(found),
            "kernel_sum_ns": sum(total for _, _, total in found),
            "op_to_kernel_ns": sum(delay for delay, _, _ in found),
            "launch_to_kernel_ns": sum(delay for _, delay, _ in found),
            "mean_op_to_kernel_ns": sum(delay for delay, _, _ in found) / len(found),
            "mean_launch_to_kernel_ns": sum(delay for _, delay, _ in found) / len(found),
        }
        for (name, kernels), found in groups.items()
    ]


def kernel_sequences(
    trace: Trace,
    operator: str = "",
    min_kernels: int = 3,
    by_stream: bool = False,
    with_memory: bool = True,
) -> list[Row]:
    """All activities launched within the outermost matching operators."""
    occurrences: dict[tuple[Slice, int | None, int | None], list[Slice]] = defaultdict(list)
    for row in trace.gpu:
        held = [op for op in _holders(trace, row) if operator in op.name]
        if held and (with_memory or row.kind != "memory"):
            place = (row.device, row.stream) if by_stream else (None, None)
            occurrences[held[0], *place].append(row)
    groups: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    for (op, device, stream), rows in occurrences.items():
        kernels = " | ".join(row.name for _, row in _innesting(trace, rows))
        if len(rows) >= min_kernels:
            groups[op.name, device, stream, kernels].append((sum(row.length for row in rows), op.length))
    return [
        {
            "name": name,
            "device": device,
            "stream": stream,
            "kernels": kernels,
            "kernel_count": kernels.count(" | ") + 1,
            "count": len(found),
            "kernel_sum_ns": sum(total for total, _ in found),
            "op_sum_ns": sum(length for _, length in found),
        }
        for (name, device, stream, kernels), found in groups.items()
    ]


def around(slices: Iterable[Slice], inner: Slice) -> list[Slice]:
    """The slices of the same thread that enclose the start of `inner`, outermost first."""
    before = [
        each
        for each in slices
        if each.thread == inner.thread and nesting(each) < nesting(inner) and each.end > inner.start
    ]
    return sorted(before, key=nesting)


def name_summary(trace: Trace, by_step: bool = False) -> list[Row]:
    """Host slices and GPU activities by name, per step or in total."""
    groups: dict[tuple[int | None, bool, str, str], list[int]] = defaultdict(list)
    notes = [note for note in trace.notes if note.category == "user_annotation"]
    for row in (*trace.ops, *trace.calls, *trace.frames, *notes):
        step = trace.step(row) if by_step else None
        groups[step, False, row.category, row.name].append(row.length)
    for row in trace.gpu:
        step = trace.step(trace.launch(row)) if by_step else None
        groups[step, True, row.kind, row.name].append(row.length)
    return [
        {"step": step, "on_gpu": on_gpu, "category": category, "name": name}
        | {"count": len(lengths), "sum_ns": sum(lengths)}
        for (step, on_gpu, category, name), lengths in groups.items()
    ]
