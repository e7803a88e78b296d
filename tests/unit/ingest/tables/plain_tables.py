"""The tables by their definitions, comparing every row with every other: the slow reference of the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from activity_rows import SENTINELS, Row

from witness import recording, trace
from witness.stack import Place, Slice, nest

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
CALL = ("cuda_runtime", "cuda_driver")
NO_HOST_SLICE = (*DEVICE, "gpu_user_annotation", "cuda_event", "cuda_sync", "Trace", "ac2g")
NO_STEP = (*DEVICE, "gpu_user_annotation", "cuda_event", "Trace")
LOADER = "enumerate(DataLoader)#"
FARTHEST_NS = 100_000_000_000_000


def is_slice(row: Row) -> bool:
    return row["ph"] in ("X", "B") and row["dur_ns"] is not None and row["ts_ns"] is not None


def end(row: Row) -> int:
    return int(row["ts_ns"] + row["dur_ns"])


def lane(row: Row) -> tuple[bool, str, str]:
    return row["category"] == "user_annotation", row["pid"] or "", row["tid"] or ""


def places(rows: Sequence[Row]) -> dict[int, Place]:
    """The position of each host slice in the tree."""
    selected = [n for n, row in enumerate(rows) if is_slice(row) and row["category"] not in NO_HOST_SLICE]
    lanes = {each: n for n, each in enumerate(sorted({lane(rows[n]) for n in selected}))}
    return nest(Slice(n, lanes[lane(rows[n])], rows[n]["ts_ns"], end(rows[n])) for n in selected)


def pairs(number: int | None) -> bool:
    return number is not None and number > 0 and number not in SENTINELS


def calls(rows: Sequence[Row]) -> list[int]:
    return [n for n, row in enumerate(rows) if is_slice(row) and row["category"] in CALL]


def gpu_activities(rows: Sequence[Row]) -> list[int]:
    return [n for n, row in enumerate(rows) if is_slice(row) and row["category"] in DEVICE]


def launched_by(rows: Sequence[Row], found: dict[int, Place]) -> dict[int, tuple[int, str]]:
    """GPU activity → the call that launched it, and what links them."""
    links: dict[int, tuple[int, str]] = {}
    for kernel in gpu_activities(rows):
        if pairs(rows[kernel].get("correlation")):
            call, via = _by_id(rows, kernel), "correlation"
        else:
            call, via = _by_flow(rows, kernel, found), "flow"
        if call is not None:
            links[kernel] = call, via
    return links


def _by_id(rows: Sequence[Row], kernel: int) -> int | None:
    identity, ts = rows[kernel]["correlation"], rows[kernel]["ts_ns"]
    same = [n for n in calls(rows) if rows[n].get("correlation") == identity]
    if _merged(rows) and same:
        owner = _owner(rows, kernel)
        same = [n for n in same if rows[n]["pid"] == owner]
    same.sort(key=lambda n: (rows[n]["ts_ns"], -end(rows[n]), n))
    outer = [n for at, n in enumerate(same) if all(end(rows[other]) < end(rows[n]) for other in same[:at])]
    near = [n for n in outer if abs(rows[n]["ts_ns"] - ts) <= FARTHEST_NS]
    return min(near, key=lambda n: (rows[n]["ts_ns"] > ts, abs(rows[n]["ts_ns"] - ts), n), default=None)


def _merged(rows: Sequence[Row]) -> set[int]:
    """The ids that calls of several processes use."""
    processes: dict[int, set[str | None]] = {}
    for n in calls(rows):
        if pairs(rows[n].get("correlation")):
            processes.setdefault(rows[n]["correlation"], set()).add(rows[n]["pid"])
    return {identity for identity, users in processes.items() if len(users) > 1}


def _nearest(rows: Sequence[Row], kernel: int) -> int | None:
    """The call with the id of an activity that is nearest in the file."""
    same = [n for n in calls(rows) if rows[n].get("correlation") == rows[kernel]["correlation"]]
    return min(same, key=lambda n: (abs(n - kernel), n), default=None)


def _owner(rows: Sequence[Row], kernel: int) -> str | None:
    """The process of nearly all nearest calls of the stream, else of the nearest one."""
    where = [rows[kernel].get(name) for name in ("device", "stream", "pid")]
    votes = [
        rows[call]["pid"]
        for n in gpu_activities(rows)
        if pairs(rows[n].get("correlation"))
        and [rows[n].get(name) for name in ("device", "stream", "pid")] == where
        if (call := _nearest(rows, n)) is not None
    ]
    most = max(votes, key=votes.count)
    if votes.count(most) >= 0.9 * len(votes):
        return most
    own = _nearest(rows, kernel)
    assert own is not None
    return rows[own]["pid"]


def _by_flow(rows: Sequence[Row], kernel: int, found: dict[int, Place]) -> int | None:
    row = rows[kernel]
    begins = [
        tail
        for head in rows
        if head["ph"] == "f" and head["category"] == "ac2g"
        if head["ts_ns"] == row["ts_ns"] and (head["pid"], head["tid"]) == (row["pid"], row["tid"])
        for tail, other in enumerate(rows)
        if other["ph"] == "s" and other["ts_ns"] is not None and head.get("flow_id") is not None
        if (other["raw_category"], other.get("flow_id")) == (head["raw_category"], head["flow_id"])
    ]
    if not begins:
        return None
    begin = rows[max(begins, key=lambda n: (rows[n]["ts_ns"], -n))]
    if begin["pid"] is None or begin["tid"] is None:
        return None
    here = [
        n
        for n in calls(rows)
        if (rows[n]["pid"], rows[n]["tid"]) == (begin["pid"], begin["tid"])
        and rows[n]["ts_ns"] <= begin["ts_ns"]
    ]
    if not here:
        return None
    latest = max(found[n].pre for n in here)
    around = [
        n for n in calls(rows) if found[n].pre <= latest <= found[n].post and end(rows[n]) >= begin["ts_ns"]
    ]
    return max(around, key=lambda n: found[n].pre, default=None)


def open_around(rows: Sequence[Row], found: dict[int, Place], call: int) -> list[int]:
    """The slices that enclose a call and have not ended when it starts, outermost first."""
    here = found[call].pre
    around = [n for n, place in found.items() if place.pre < here <= place.post]
    return sorted((n for n in around if end(rows[n]) > rows[call]["ts_ns"]), key=lambda n: found[n].pre)


def _module(row: Row) -> bool:
    return row["category"] in ("cpu_op", "python_function") and (row["name"] or "").startswith("nn.Module: ")


def _pass(row: Row) -> str | None:
    name, category = row["name"] or "", row["category"]
    if category == "python_function":
        return "recompute" if ": recompute_fn" in name else None
    if category == "cpu_op" and name == "autograd::engine::evaluate_function: CheckpointFunctionBackward":
        return "recompute"
    if category == "cpu_op" and name.startswith(_BACKWARD):
        return "backward"
    if category in ("cpu_op", "user_annotation"):
        return next((p for start, p in _STARTS.items() if name.startswith(start)), None)
    return None


_BACKWARD = ("autograd::engine::evaluate_function: ", "torch.distributed.ddp.reducer::")
_STARTS = {"Optimizer.": "optimizer", "enumerate(DataLoader)#": "data"}


def belongs_to(rows: Sequence[Row], found: dict[int, Place], call: int) -> dict[str, Any]:
    """The attribution of a call."""
    around = open_around(rows, found, call)
    ops = [n for n in around if rows[n]["category"] == "cpu_op"]
    modules = [n for n in around if _module(rows[n])]
    notes = _notes(rows, found, call)
    reporting = [(rows[n]["ts_ns"], 0, found[n].pre, _pass(rows[n])) for n in around if _pass(rows[n])]
    noted = [(rows[n]["ts_ns"], 1, found[n].pre, _pass(rows[n])) for n in notes if _pass(rows[n])]
    latest = max(reporting + noted, default=None)
    names = [rows[n]["name"] for n in around if n in ops or n in modules]
    return {
        "op_id": ops[-1] if ops else None,
        "top_op_id": ops[0] if ops else None,
        "module_id": modules[-1] if modules else None,
        "collective_id": next((n for n in reversed(ops) if rows[n].get("has_collective")), None),
        "annotation_id": notes[-1] if notes else None,
        "pass": latest[3] if latest else "forward" if ops else "other",
        "path_sig": " > ".join(name for name in names if name is not None) or None,
    }


def _notes(rows: Sequence[Row], found: dict[int, Place], call: int) -> list[int]:
    ts, place = rows[call]["ts_ns"], (rows[call]["pid"], rows[call]["tid"])
    if None in place:
        return []
    all_notes = [n for n in found if rows[n]["category"] == "user_annotation"]
    begun = [n for n in all_notes if (rows[n]["pid"], rows[n]["tid"]) == place and rows[n]["ts_ns"] <= ts]
    if not begun:
        return []
    latest = max(found[n].pre for n in begun)
    around = [n for n in all_notes if found[n].pre <= latest <= found[n].post and end(rows[n]) > ts]
    return sorted(around, key=lambda n: found[n].pre)


def marks(rows: Sequence[Row]) -> list[tuple[int, int, int, int]]:
    """Start, row, end and step of each step annotation."""
    found = []
    for n, row in enumerate(rows):
        number = (row["name"] or "").removeprefix("ProfilerStep#")
        is_mark = row["category"] in ("user_annotation", "cpu_op") and is_slice(row)
        if is_mark and row["name"] != number and number.isdigit() and int(number) < 2**63:
            found.append((row["ts_ns"], n, end(row), int(number)))
    return found


def step_at(rows: Sequence[Row], ts: int) -> int | None:
    """The step that a time belongs to."""
    around = [mark for mark in marks(rows) if mark[0] <= ts < mark[2]]
    return max(around)[3] if around else None


def steps_of_rows(rows: Sequence[Row], links: dict[int, tuple[int, str]]) -> list[int | None]:
    """The step of each row."""
    found: list[int | None] = []
    for n, row in enumerate(rows):
        if n in links:
            found.append(step_at(rows, rows[links[n][0]]["ts_ns"]))
        elif row["ts_ns"] is None or row["ph"] not in tuple("XBEiICPR") or row["category"] in NO_STEP:
            found.append(None)
        else:
            found.append(step_at(rows, row["ts_ns"]))
    return found


@dataclass(frozen=True)
class Linked(trace.Trace):
    """The calls and GPU activities of the rows, with the links between them."""

    rows: Sequence[Row] = ()
    by_id: Mapping[int, trace.Slice] = field(default_factory=dict)
    links: Mapping[int, tuple[int, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[Row], links: dict[int, tuple[int, str]]) -> Linked:
        made = {n: _made(n, rows[n]) for n in (*calls(rows), *gpu_activities(rows))}
        gpu, host = ([made[n] for n in found] for found in (gpu_activities(rows), calls(rows)))
        steps = [_made(n, rows[n]) for _, n, _, _ in marks(rows)]
        return cls(gpu, host, [], steps, rows=rows, by_id=made, links=links)

    def launch(self, row: trace.Slice) -> trace.Slice | None:
        return self.by_id[self.links[row.event_id][0]] if row.event_id in self.links else None

    def step(self, call: trace.Slice | None) -> int | None:
        return None if call is None else step_at(self.rows, call.start)


def _made(n: int, row: Row) -> trace.Slice:
    args = {name: -1 if row.get(name) is None else row[name] for name in ("device", "stream")}
    args["correlation"] = row["correlation"] if pairs(row.get("correlation")) else None
    return trace.Slice(
        n, row["category"], row["name"], (row["pid"], row["tid"]), row["ts_ns"], end(row), args
    )


class Recording(recording.Recording):
    """What the rows lack; places of host slices say what is inside what."""

    def __init__(self, linked: Linked, found: dict[int, Place]) -> None:
        super().__init__(linked)
        self.linked, self.found = linked, found

    def is_inner(self, call: trace.Slice) -> bool:
        return self.found[call.event_id].parent_id in calls(self.linked.rows)


def cut(rows: Sequence[Row], links: dict[int, tuple[int, str]]) -> list[Row]:
    """The rows, malformed durations of GPU activities cut."""
    lengths = {each.event_id: each.length for each in recording.cut(Linked.of(rows, links))}
    return [{**row, "dur_ns": lengths[n]} if n in lengths else row for n, row in enumerate(rows)]


def step_table(
    rows: Sequence[Row], found: dict[int, Place], links: dict[int, tuple[int, str]]
) -> list[dict[str, Any]]:
    """The rows of `steps`."""
    step_of, gpu = steps_of_rows(rows, links), gpu_activities(rows)
    host = (min((rows[n]["ts_ns"] for n in found), default=0), max((end(rows[n]) for n in found), default=0))
    device = (min((rows[n]["ts_ns"] for n in gpu), default=0), max((end(rows[n]) for n in gpu), default=0))
    table, done, lacks = [], None, Recording(Linked.of(rows, links), found)
    by_step = {number: [m for m in marks(rows) if m[3] == number] for *_, number in marks(rows)}
    for number, own in sorted(by_step.items(), key=lambda each: (min(each[1])[0], each[0])):
        start, event_id = min(own)[:2]
        last = max(m[2] for m in own)
        kernels = [n for n in gpu if step_of[n] == number]
        first_gpu = min((rows[n]["ts_ns"] for n in kernels), default=None)
        last_gpu = max((end(rows[n]) for n in kernels), default=None)
        begin = start if done is None else done
        reached = last_gpu if last_gpu is not None else last
        highest = reached if not table else max(reached, table[-1]["_highest"])
        done = max(start, highest)
        incomplete = lacks.incomplete(number, [lacks.linked.by_id[n] for n in kernels])
        touches = start <= host[0] or last >= host[1]
        if first_gpu is not None and last_gpu is not None:
            touches |= first_gpu <= device[0] or last_gpu >= device[1]
        if touches and incomplete != "lost_records":
            incomplete = "cut_off"
        is_last = (start, number) == max((min(m)[0], each) for each, m in by_step.items())
        if incomplete is None and is_last and not kernels and _only_loads(rows, start, last):
            incomplete = "no_work"
        table.append({
            "step": number, "event_id": event_id, "host_start_ns": start, "host_ns": last - start,
            "device_start_ns": first_gpu,
            "device_ns": None if first_gpu is None or last_gpu is None else last_gpu - first_gpu,
            "period_start_ns": begin, "period_ns": done - begin, "partial": incomplete is not None,
            "incomplete": incomplete, "_highest": highest,
        })  # fmt: skip
    for row in table:
        del row["_highest"]
    return sorted(table, key=lambda row: row["step"])


def _only_loads(rows: Sequence[Row], start: int, until: int) -> bool:
    """Whether what begins in an interval is the loading of data, or part of it."""
    loads = [row for row in rows if is_slice(row) and str(row["name"]).startswith(LOADER)]
    work = [row for row in rows if row["category"] in ("cpu_op", *CALL) and is_slice(row)]
    return any(start <= row["ts_ns"] < until for row in loads) and all(
        any(load["ts_ns"] <= row["ts_ns"] < end(load) for load in loads)
        for row in work
        if start <= row["ts_ns"] < until
    )


def launch_and_idle(rows: Sequence[Row], links: dict[int, tuple[int, str]]) -> list[tuple[Any, ...]]:
    """The launch of each GPU activity (name, duration, time since its start) and the idle time before it."""
    activities = gpu_activities(rows)
    return [(*_launch(rows, n, links), *_idle(rows, n, activities, links)) for n in activities]


def _launch(rows: Sequence[Row], n: int, links: dict[int, tuple[int, str]]) -> tuple[Any, ...]:
    if n not in links:
        return None, None, None
    call = rows[links[n][0]]
    return call["name"], call["dur_ns"], rows[n]["ts_ns"] - call["ts_ns"]


def _idle(
    rows: Sequence[Row], n: int, activities: Sequence[int], links: dict[int, tuple[int, str]]
) -> tuple[int | None, int | None]:
    def order(m: int) -> tuple[Any, ...]:
        known = m in links
        return rows[m]["ts_ns"], end(rows[m]), not known, rows[links[m][0]]["ts_ns"] if known else 0, m

    def stream(m: int) -> tuple[Any, ...]:
        return tuple(-1 if rows[m].get(name) is None else rows[m][name] for name in ("device", "stream"))

    earlier = [m for m in activities if stream(m) == stream(n) and order(m) < order(n)]
    if not earlier:
        return None, None
    reached, previous = max((end(rows[m]), m) for m in earlier)
    idle_ns = max(rows[n]["ts_ns"] - reached, 0)
    return idle_ns, previous if idle_ns else None
