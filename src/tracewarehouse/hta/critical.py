"""The critical path of a step, an annotation or the entire trace, like HTA's `CPGraph`."""

from __future__ import annotations

import re
from typing import Any

from tracewarehouse.errors import ParamError
from tracewarehouse.hta.traces import US, LoadedTraces

ANNOTATIONS = """
    SELECT name, ts_ns
    FROM annotations
    WHERE device IS NULL AND rank = {rank}
    ORDER BY ts_ns, event_id"""
MOST_NAMES = 8
BOUND_BY = {
    "host": "cpu_bound",
    "host_gap": "cpu_bound",
    "launch": "gpu_kernel_launch_overhead",
    "kernel_gap": "gpu_kernel_kernel_overhead",
    "computation": "gpu_compute_bound",
    "memory": "gpu_compute_bound",
    "communication": "gpu_communication_bound",
}
SEGMENTS = """
    SELECT path.position, path.event_id, path.type, path.category, path.segment_ns, path.start_ns,
        events.name, events.category AS cat, events.pid, events.tid, coalesce(events.stream, -1) AS stream
    FROM critical_path AS path
    LEFT JOIN events USING (run_id, rank, event_id)
    WHERE path.rank = {rank}"""


class CriticalPath:
    """The critical path of one scope of a rank, as segments that cover its entire time.

    It is not a graph. HTA's `critical_path_nodes`, `critical_path_edges_set`, `critical_path_events_set`,
    `node_list`, `nodes`, `edges` and all that networkx adds to them are missing:
    `get_critical_path_breakdown()` has the events of the path, in order.
    """

    def __init__(self, traces: LoadedTraces, rank: int, scope: str) -> None:
        self.traces, self.rank, self.scope = traces, rank, scope

    def __getattr__(self, name: str) -> Any:
        message = f"the critical path has no {name}: it is not a graph, but a table of segments"
        error = AttributeError(message, name=name, obj=self)
        error.add_note("hint: get_critical_path_breakdown() has its events, in order")
        raise error

    def get_critical_path_breakdown(self, data_load_events: list[str] | None = None) -> Any:
        """`event_idx, duration, type, s_name, cat, pid, tid, stream, category, bound_by`, in path order.

        Durations are in µs and sum to the duration of the scope. `bound_by` is HTA's name of the category.
        """
        frame = self.traces.query(
            f"{SEGMENTS.format(rank=self.rank)} AND path.scope = {sql_string(self.scope)}"
        )
        frame = frame.sort_values("position", ignore_index=True)
        frame["duration"] = frame.segment_ns / US
        frame["bound_by"] = [BOUND_BY.get(each, each) for each in frame.category]
        for pattern in data_load_events or []:
            loads = frame.name.fillna("").str.contains(pattern, regex=True) & (frame.bound_by == "cpu_bound")
            frame.loc[loads, "bound_by"] = "data_loading"
        frame = frame.rename(columns={"event_id": "event_idx", "name": "s_name"})
        names = [
            "event_idx",
            "duration",
            "type",
            "s_name",
            "cat",
            "pid",
            "tid",
            "stream",
            "category",
            "bound_by",
        ]
        return frame[names]

    def summary(self) -> Any:
        """Share of the path in % by `bound_by`, largest first."""
        frame = self.get_critical_path_breakdown()
        shares = 100 * frame.groupby("bound_by")["duration"].sum() / frame["duration"].sum()
        return shares.sort_values(ascending=False)


def sql_string(text: str) -> str:
    """A SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def critical_path(
    traces: LoadedTraces, rank: int, annotation: str, instance: int | tuple[int, int] | None
) -> CriticalPath:
    """Derives the critical path of an annotation instance, or of the entire trace for ''.

    `annotation` matches a part of the name. Raises ParamError if there is no such instance.
    """
    if isinstance(instance, tuple):
        raise ParamError(
            "a range of instances is not supported", "use one instance, or '' for the entire trace"
        )
    (rank,) = traces.select_ranks([rank])
    warehouse = traces.warehouse
    if not annotation:
        warehouse.derive("critical_path", traces.run, ranks=rank, entire_trace=True)
        return CriticalPath(_newest(traces), rank, "trace")
    names = [row["name"] for row in warehouse.query_all(ANNOTATIONS.format(rank=rank)).rows()]
    matches = [index for index, name in enumerate(names) if annotation in (name or "")]
    number = instance or 0
    if not matches:
        raise ParamError(f"rank {rank} has no annotation that contains {annotation!r}", _known(names))
    if not 0 <= number < len(matches):
        count = f"{len(matches)} annotations contain {annotation!r}"
        raise ParamError(f"there is no instance {number}: {count}", "instances are numbered from 0")
    name = names[matches[number]]
    if step := re.fullmatch(r"ProfilerStep#(\d+)", name):
        warehouse.derive("critical_path", traces.run, ranks=rank, steps=int(step[1]))
        return CriticalPath(_newest(traces), rank, f"step {step[1]}")
    scope = f"{name}#{names[: matches[number]].count(name)}"
    warehouse.derive("critical_path", traces.run, ranks=rank, annotations=scope)
    return CriticalPath(_newest(traces), rank, f"annotation {scope}")


def _known(names: list[str | None]) -> str:
    """The first names of annotations, and how many more there are."""
    known = list(dict.fromkeys(name for name in names if name))
    more = len(known) - MOST_NAMES
    listed = ", ".join(known[:MOST_NAMES]) or "none"
    return f"annotations: {listed}" + (f" and {more} more" if more > 0 else "")


def _newest(traces: LoadedTraces) -> LoadedTraces:
    """The newest version of the same run."""
    return traces.newest()
