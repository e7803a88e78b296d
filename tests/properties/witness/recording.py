"""What the recording of a rank lost, by brute force: each call, each GPU activity and each step by itself."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from witness.trace import Slice, Trace

LAUNCH = re.compile("launch|memcpy|memset", re.IGNORECASE)
FACTOR = 10
COMPARED = 8  # how many later activities of a stream an activity is compared with
LOST_SHARE = 0.01


def cut(trace: Trace) -> list[Slice]:
    """The GPU activities; one of malformed duration ends where the next one of its stream starts."""
    lengths: dict[str, list[int]] = defaultdict(list)
    for row in trace.gpu:
        lengths[row.name].append(row.length)
    usual = {name: sorted(each)[(len(each) - 1) // 2] for name, each in lengths.items()}
    longest = max((step.length for step in trace.steps), default=None)
    lanes: dict[object, list[Slice]] = defaultdict(list)
    for row in trace.gpu:
        call = trace.launch(row)
        lanes[row.device, row.stream, call and call.thread[0]].append(row)
    ends: dict[int, int] = {}
    for rows in lanes.values():
        rows.sort(key=lambda row: (row.start, row.length))
        for place, row in enumerate(rows):
            is_long = row.length >= FACTOR * max(usual[row.name], 1)
            is_long |= bool(longest) and row.length > longest
            if not is_long or is_graph(trace.launch(row)):
                continue
            later = rows[place + 1 : place + 1 + COMPARED]
            starts = [other.start for other in later if row.start < other.start < row.end]
            if sum(other.end <= row.end for other in later) >= 2 and starts:
                ends[row.event_id] = min(starts)
    return [replace(row, end=ends.get(row.event_id, row.end)) for row in trace.gpu]


def is_graph(call: Slice | None) -> bool:
    """Whether the call launches a graph."""
    return call is not None and "GraphLaunch" in (call.name or "")


def kind(call: Slice) -> str:
    """What a call launches."""
    if is_graph(call):
        return "graph"
    return next((word for word in ("memset", "memcpy") if word in (call.name or "").lower()), "kernel")


class Recording:
    """The launches of a trace, those without GPU activities, and the steps that are incomplete for it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.contents: dict[Slice, Counter[str]] = defaultdict(Counter)
        for row in trace.gpu:
            if call := trace.launch(row):
                self.contents[call][row.name or ""] += 1

    @cached_property
    def launches(self) -> list[Slice]:
        """The calls that should have GPU activities, without those for another call of their ID."""
        kinds = {kind(call) for call in self.contents}
        ids = {row.correlation for row in self.trace.gpu if self.trace.launch(row)} - {None, 0, -1}
        return [
            call
            for call in self.trace.calls
            if LAUNCH.search(call.name or "") and kind(call) != "memset" and kind(call) in kinds
            if call in self.contents or not (call.correlation in ids or self.is_inner(call))
        ]

    def is_inner(self, call: Slice) -> bool:
        """Whether the call is directly inside another one."""
        outer = [
            row
            for row in (*self.trace.calls, *self.trace.ops, *self.trace.frames)
            if row.thread == call.thread and row != call and _encloses(row, call)
        ]
        closest = max(outer, key=lambda row: (row.start, -row.length, row.event_id), default=None)
        return closest in self.trace.calls

    @cached_property
    def unlinked(self) -> list[Slice]:
        """Launches without a GPU activity."""
        return [call for call in self.launches if call not in self.contents]

    @cached_property
    def queued(self) -> list[Slice]:
        """Launches that were still queued when the recording ended."""
        gpu_end = max((row.end for row in self.trace.gpu), default=0)
        longest = max((row.length for row in self.trace.gpu), default=0)
        if max((call.end for call in self.trace.calls), default=0) - gpu_end > longest:
            return []
        last = max((call.start for call in self.contents), default=0)
        return [call for call in self.unlinked if call.start > last]

    @cached_property
    def short(self) -> list[Slice]:
        """Graph launches with a part of the activities, but more than half, that more launches have."""
        graphs = {call: content for call, content in self.contents.items() if is_graph(call)}
        often = Counter(tuple(sorted(content.items())) for content in graphs.values())
        return [
            call
            for call, content in graphs.items()
            for whole, count in often.items()
            if count > often[tuple(sorted(content.items()))]
            and content < Counter(dict(whole))
            and sum(times for _, times in whole) < 2 * content.total()
        ]

    def incomplete(self, step: int, rows: list[Slice]) -> str | None:
        """Why a step with these GPU activities is incomplete, except for the edges of the recording."""
        lost = {call for call in self.unlinked if call not in self.queued} | set(self.short)
        lost = {call for call in lost if self.trace.step(call) == step}
        of_step = [call for call in self.launches if self.trace.step(call) == step]
        if len(lost) > LOST_SHARE * len(of_step) or any(call in lost for call in self.short):
            return "lost_records"
        if any(self.trace.step(call) == step for call in self.queued):
            return "cut_off"
        is_outside = any(self.trace.step(call) is None for call in self.contents)
        return "no_gpu_work" if is_outside and not rows else None


def _encloses(outer: Slice, inner: Slice) -> bool:
    earlier = (outer.start, -outer.length, outer.event_id) < (inner.start, -inner.length, inner.event_id)
    return earlier and outer.end > inner.start
