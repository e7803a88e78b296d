"""`prof.key_averages()` of PyTorch 2.13 for a CPU run, computed from our rows.

Each function is one rule of `torch/autograd/profiler.py` (how events are parsed) or `profiler_util.py` (how
they are folded), named in its first line. Together they take rows of `events` to calls, total and own time by
name. Rows that only a GPU makes (runtime calls, kernels, what links them to operators) are no part of it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

COUNTED = ("cpu_op", "user_annotation", "python_function")
MEMORY = "[memory]"
UTILITIES = (
    *("profiler::_record_function_enter", "profiler::_record_function_enter_new"),
    *("profiler::_record_function_exit", "aten::is_leaf", "aten::output_nr", "aten::_version"),
)
WORK_OF_A_GROUP = re.compile(r"(gloo|nccl|mpi|ucc|xccl):\w+")


@dataclass(eq=False)
class Event:
    """A FunctionEvent: an interval on a thread, in ns, and its position in the tree."""

    name: str
    is_annotation: bool
    thread: tuple[object, object]
    start: int
    end: int
    is_async: bool = False
    parent: Event | None = None
    children: list[Event] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.end - self.start


Averages = dict[tuple[str, bool], tuple[int, int, int]]


def key_averages(rows: Iterable[Mapping[str, object]]) -> Averages:
    """`EventList.key_averages`: (name, is annotation) → calls, total and own ns. Rows come by event_id."""
    found = list(rows)
    events = [parsed(row) for row in found if counts(row)]
    events += memory_outside(events, [row for row in found if row["name"] == MEMORY])
    events.sort(key=lambda event: (event.start, -event.end))
    build_tree(events)
    return summed(without_repeats(events))


def counts(row: Mapping[str, object]) -> bool:
    """`_parse_kineto_results` takes every host event, `_filter_name` leaves utilities and memory out."""
    return row["category"] in COUNTED and row["name"] not in UTILITIES


def parsed(row: Mapping[str, object]) -> Event:
    """`_parse_kineto_results` makes a FunctionEvent of an event, under its rewritten name."""
    name, start = str(row["name"]), row["ts_ns"]
    assert isinstance(start, int) and isinstance(row["dur_ns"], int)
    annotation = row["category"] == "user_annotation"
    thread = (row["pid"], row["tid"])
    return Event(
        rewritten(name), annotation, thread, start, start + row["dur_ns"], is_async(name, annotation)
    )


def rewritten(name: str) -> str:
    """`_rewrite_name` puts all steps of the profiler under one name."""
    return "ProfilerStep*" if name.startswith("ProfilerStep#") else name


def is_async(name: str, annotation: bool) -> bool:
    """`KinetoEvent.is_async`, which the trace does not carry: c10d sets it for the work of a process group.

    Such an event is known by its name, BACKEND:COLLECTIVE, which `c10d::Work` gives it as its title.
    """
    return annotation and WORK_OF_A_GROUP.fullmatch(name) is not None


def memory_outside(events: Sequence[Event], memory: Sequence[Mapping[str, object]]) -> list[Event]:
    """`MemRecordsAcc.in_interval`: what is in no event's span, on any thread, is a separate event."""
    times = sorted(int(str(row["ts_ns"])) for row in memory)
    covered = [0] * (len(times) + 1)
    for event in events:
        covered[bisect_left(times, event.start)] += 1
        covered[bisect_right(times, event.end)] -= 1
    for at in range(1, len(covered)):
        covered[at] += covered[at - 1]
    return [
        Event(MEMORY, False, ("memory", at), time, time) for at, time in enumerate(times) if not covered[at]
    ]


def build_tree(events: Sequence[Event]) -> None:
    """`EventList._populate_cpu_children`: the innermost event of a thread that holds all of another.

    An event that extends beyond the end of another is not its child, and closes it. Async events have no
    position.
    """
    threads: dict[object, list[Event]] = defaultdict(list)
    for event in events:
        if not event.is_async:
            threads[event.thread].append(event)
    for part in threads.values():
        around: list[Event] = []
        for event in part:
            while around and (event.start >= around[-1].end or event.end > around[-1].end):
                around.pop()
            if around:
                event.parent = around[-1]
                event.parent.children.append(event)
            around.append(event)


def without_repeats(events: Sequence[Event]) -> list[Event]:
    """`EventList._remove_dup_nodes`: an only child of its parent's name goes, its children move up."""
    kept = list(events)
    while True:
        gone = set()
        for event in kept:
            parent = event.parent
            if parent and parent.name == event.name and len(parent.children) == 1:
                parent.children = event.children
                for child in event.children:
                    child.parent = parent
                gone.add(event)
        if not gone:
            return kept
        kept = [event for event in kept if event not in gone]


def own(event: Event) -> int:
    """`FunctionEvent.self_cpu_time_total`: total less that of the children; nothing where it is async."""
    return 0 if event.is_async else event.total - sum(child.total for child in event.children)


def summed(events: Iterable[Event]) -> Averages:
    """`FunctionEventAvg.add`, by the key of `key_averages`: name, and whether it is an annotation."""
    found: Averages = {}
    for event in events:
        count, total, self_ns = found.get((event.name, event.is_annotation), (0, 0, 0))
        found[event.name, event.is_annotation] = (count + 1, total + event.total, self_ns + own(event))
    return found
