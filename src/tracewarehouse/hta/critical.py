"""The critical path of a step, an annotation or the whole trace, as HTA's `CPGraph` shows it."""

from __future__ import annotations

import re
from typing import Any

from tracewarehouse.errors import ParamError
from tracewarehouse.hta.traces import US, Opened

MARKS = """
    SELECT name, ts_ns
    FROM annotations
    WHERE device IS NULL AND rank = {rank}
    ORDER BY ts_ns, event_id"""
BOUND_BY = {
    "host": "cpu_bound",
    "host_gap": "cpu_bound",
    "launch": "gpu_kernel_launch_overhead",
    "kernel_gap": "gpu_kernel_kernel_overhead",
    "computation": "gpu_compute_bound",
    "memory": "gpu_compute_bound",
    "communication": "gpu_communication_bound",
}
PARTS = """
    SELECT path.position, path.event_id, path.type, path.category, path.segment_ns, path.start_ns,
        events.name, events.category AS cat, events.pid, events.tid, coalesce(events.stream, -1) AS stream
    FROM critical_path AS path
    LEFT JOIN events USING (run_id, rank, event_id)
    WHERE path.rank = {rank}"""


class CriticalPath:
    """The critical path of one scope of a rank: every moment of it, and what it was spent on."""

    def __init__(self, opened: Opened, rank: int, scope: str) -> None:
        self.opened, self.rank, self.scope = opened, rank, scope

    def get_critical_path_breakdown(self, data_load_events: list[str] | None = None) -> Any:
        """`event_idx, duration, type, s_name, cat, pid, tid, stream, category, bound_by`, in path order.

        Durations are in µs and add up to the length of the scope. `bound_by` is HTA's word for our category.
        """
        frame = self.opened.query(f"{PARTS.format(rank=self.rank)} AND path.scope = {quoted(self.scope)}")
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
        """% of the path by what it is bound by, the largest first."""
        frame = self.get_critical_path_breakdown()
        shares = 100 * frame.groupby("bound_by")["duration"].sum() / frame["duration"].sum()
        return shares.sort_values(ascending=False)


def quoted(text: str) -> str:
    """A string of SQL."""
    return "'" + text.replace("'", "''") + "'"


def critical_path(
    opened: Opened, rank: int, annotation: str, instance: int | tuple[int, int] | None
) -> CriticalPath:
    """Derives the path of the instance-th annotation whose name holds the text; of the whole trace for ''.

    Raises ParamError where there is none.
    """
    if isinstance(instance, tuple):
        raise ParamError(
            "a range of instances has no path of its own", "ask for one instance, or for '' as a whole"
        )
    (rank,) = opened.selected([rank])
    house = opened.house
    if not annotation:
        house.derive("critical_path", opened.run, ranks=rank, whole=True)
        return CriticalPath(_renewed(opened), rank, "trace")
    names = [row["name"] for row in house.query(MARKS.format(rank=rank)).rows()]
    found = [at for at, name in enumerate(names) if annotation in (name or "")]
    place = instance or 0
    if not 0 <= place < len(found):
        count = f"{len(found)} annotations hold {annotation!r}"
        raise ParamError(f"there is no instance {place}: {count}", "instances are numbered from 0")
    name = names[found[place]]
    if step := re.fullmatch(r"ProfilerStep#(\d+)", name):
        house.derive("critical_path", opened.run, ranks=rank, steps=int(step[1]))
        return CriticalPath(_renewed(opened), rank, f"step {step[1]}")
    mark = f"{name}#{names[: found[place]].count(name)}"
    house.derive("critical_path", opened.run, ranks=rank, annotations=mark)
    return CriticalPath(_renewed(opened), rank, f"annotation {mark}")


def _renewed(opened: Opened) -> Opened:
    """The same run in its newest version."""
    return opened.newest()
