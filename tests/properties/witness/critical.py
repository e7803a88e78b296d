"""The critical path of a step by brute force, from the events alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from witness.trace import Slice, Trace

WAIT_NS = 30_000
ORDER = ["kernel", "sync", "wait", "graph", "stream", "launch", "host", "host_gap", "handover", "earlier"]
ENGINE = re.compile(r"^(autograd::engine::|torch::autograd::)|Backward[0-9]*$")
FOR_ALL = re.compile(r"(device|ctx|context)synchronize", re.IGNORECASE)


@dataclass(frozen=True)
class Sync:
    """An event of the profiler about a wait."""

    kind: str
    device: int
    stream: int
    correlation: int
    wait_on_stream: int | None
    mark: int | None


@dataclass(frozen=True)
class Node:
    """A point in time; `turn` and `key` order points at the same time."""

    at: int
    turn: int
    key: tuple[int, ...]
    event: Slice | None
    side: str
    thread: Any = None

    @property
    def place(self) -> tuple[Any, ...]:
        return self.at, self.turn, self.key, self.side == "end"


@dataclass(frozen=True)
class Lead:
    """A dependency of a node, and when it was over."""

    source: Node
    type: str
    at: int
    event: Slice | None = None
    evidence: str = "recorded"
    explains: bool = True

    @property
    def strength(self) -> tuple[Any, ...]:
        known = ORDER.index(self.type) if self.type in ORDER else len(ORDER)
        return self.at, self.evidence != "inferred", -known, self.source.place


@dataclass(frozen=True)
class Part:
    """A segment of the path."""

    category: str
    evidence: str
    event_id: int | None
    start: int
    length: int


@dataclass
class Graph:
    """A scope: its nodes and their dependencies."""

    rank: Rank
    nodes: list[Node]
    leads: dict[Node, list[Lead]] = field(default_factory=dict)

    def decisive(self, node: Node) -> Lead:
        return max(self.leads[node], key=lambda lead: lead.strength)

    def path(self) -> list[Part]:
        """The path from the start of the scope to its end."""
        parts: list[Part] = []
        node = self.nodes[-1]
        while node is not self.nodes[0]:
            lead = self.decisive(node)
            if lead.type != "end":
                parts.append(self.part(lead, node))
            node = lead.source
        return parts[::-1]

    def part(self, lead: Lead, node: Node) -> Part:
        category, evidence = lead.type, lead.evidence
        if lead.type == "kernel" and lead.event:
            category = lead.event.kind
        elif lead.type in ("stream", "graph", "wait"):
            category = "kernel_gap"
        elif lead.type == "handover":
            category = "host_gap"
        if not lead.explains:
            category, evidence = "unknown_wait", "inferred"
        event_id = lead.event.event_id if lead.event else None
        return Part(category, evidence, event_id, lead.source.at, node.at - lead.source.at)

    def owner(self, part: Part) -> tuple[str | None, str | None]:
        """(enclosing operator, name) of the activity of a segment."""
        trace = self.rank.trace
        every = {each.event_id: each for each in (*trace.ops, *trace.calls, *trace.gpu)}
        event = None if part.event_id is None else every[part.event_id]
        if event is None:
            return None, None
        op = event if event in trace.ops else trace.op(self.rank.call.get(event, event))
        return op.name if op else None, event.name

    def within(self, event: Slice | None, name: str) -> bool:
        """Whether an operator with this name encloses the launch of a GPU activity."""
        call = self.rank.call.get(event) if event else None
        return call is not None and any(
            op.thread == call.thread and op.name == name and op.start <= call.start and call.end <= op.end
            for op in self.rank.trace.ops
        )

    def weight(self, lead: Lead, node: Node) -> int:
        """The minimum time of a dependency."""
        if lead is self.decisive(node):
            return node.at - lead.source.at
        return lead.at - lead.source.at if lead.type == "earlier" else 0

    def longest(self, scale: Any) -> int:
        """The longest path with scaled dependencies: repeats over all of them until nothing changes."""
        length = dict.fromkeys(self.nodes, 0)
        moved = True
        while moved:
            moved = False
            for node, leads in self.leads.items():
                for lead in leads:
                    way = length[lead.source] + round(self.weight(lead, node) * scale(lead))
                    if way > length[node]:
                        length[node], moved = way, True
        return length[self.nodes[-1]]


def read_syncs(path: Path) -> list[Sync]:
    """The events of the profiler about waits, in file order."""
    found = []
    for event in json.loads(path.read_text())["traceEvents"]:
        if event.get("cat") == "cuda_sync":
            arg = event["args"]
            if "device" in arg:
                found.append(
                    Sync(
                        arg.get("cuda_sync_kind", event["name"]),
                        arg["device"],
                        arg["stream"],
                        arg["correlation"],
                        arg.get("wait_on_stream"),
                        arg.get("wait_on_cuda_event_record_corr_id"),
                    )
                )
    return found


class Rank:
    """The dependencies of each GPU activity and each blocking call of a rank."""

    def __init__(self, trace: Trace, syncs: list[Sync]) -> None:
        self.trace, self.syncs = trace, syncs
        self.call = {row: trace.launch(row) for row in trace.gpu}

    def before(self, rows: list[Slice], at: int) -> Slice | None:
        """The activity with a duration that ends last, up to a time."""
        done = [row for row in rows if row.length and row.end <= at]
        return max(done, key=lambda row: (row.end, row.start, row.event_id), default=None)

    def put(self, device: int, stream: int, later: Any) -> dict[int, list[Slice]]:
        """Start of a launching call → its activities on the stream."""
        found: dict[int, list[Slice]] = {}
        for row, call in self.call.items():
            if call and (row.device, row.stream) == (device, stream) and later(call.start):
                found.setdefault(call.start, []).append(row)
        return found

    def last_put(self, device: int, stream: int, until: int) -> Slice | None:
        """The activity that ends last among those launched last on a stream before a time."""
        puts = self.put(device, stream, lambda at: at < until)
        lasting = {at: some for at, rows in puts.items() if (some := [row for row in rows if row.length])}
        rows = lasting[max(lasting)] if lasting else []
        return max(rows, key=lambda row: (row.end, row.event_id), default=None)

    def marked(self, sync: Sync) -> list[Slice]:
        """The call that recorded the awaited event."""
        if (sync.mark or 0) <= 0:
            return []
        return [c for c in self.trace.calls if c.correlation == sync.mark and "EventRecord" in c.name]

    def caller(self, sync: Sync) -> Slice | None:
        return min(
            (call for call in self.trace.calls if call.correlation == sync.correlation),
            key=lambda call: (call.start, call.event_id),
            default=None,
        )

    def waits(self) -> Iterator[tuple[Slice, Slice]]:
        """(waiting activity, awaited activity) from the profiler's events about stream waits."""
        for sync in self.syncs:
            if sync.kind != "Stream Wait Event":
                continue
            call = self.caller(sync)
            for mark in self.marked(sync):
                source = self.last_put(sync.device, sync.wait_on_stream or 0, mark.start)
                puts = self.put(sync.device, sync.stream, lambda at, c=call: c is not None and at >= c.start)
                if source is None or not puts:
                    continue
                first = min(puts[min(puts)], key=lambda row: (row.start, row.event_id))
                if source.end <= first.start:
                    yield first, source

    def starts(self, row: Slice) -> list[tuple[Slice, str, str, int, bool]]:
        """(source, type, evidence, end, explains) of an activity."""
        found: list[tuple[Slice, str, int, int]] = []
        call = self.call[row]
        if call and call.start <= row.start:
            found.append((call, "launch", call.start, min(call.end, row.start)))
        lane = [o for o in self.trace.gpu if (o.device, o.stream) == (row.device, row.stream)]
        graph = [o for o in self.trace.gpu if call and "GraphLaunch" in call.name and self.call[o] is call]
        waits = [source for first, source in self.waits() if first is row]
        for type_, source in (
            ("stream", self.before(lane, row.start)),
            ("graph", self.before(graph, row.start)),
            *(("wait", source) for source in waits),
        ):
            if source is not None:
                found.append((source, type_, source.end, source.end))
        links = [(s, t, "recorded", at, row.start - until <= WAIT_NS) for s, t, at, until in found]
        until = max(((at, until) for _, _, at, until in found), default=(0, None))[1]
        near = self.before([o for o in self.trace.gpu if o.device == row.device], row.start)
        unexplained = until is None or row.start - until > WAIT_NS
        if near and unexplained and row.start - near.end <= WAIT_NS and near.end > (until or -1):
            links.append((near, "wait", "inferred", near.end, True))
        return list(dict.fromkeys(links))

    def returns(self, call: Slice) -> tuple[Slice | None, str] | None:
        """(activity, evidence) of a blocking call; None for a long wait without a known reason."""
        found = [(row, evidence) for row, evidence in self.awaited(call) if call.start < row.end <= call.end]
        if found:
            return max(found, key=lambda item: (item[0].end, item[0].event_id))
        long = "ynchronize" in call.name and call.length > WAIT_NS
        return (None, "inferred") if long else None

    def awaited(self, call: Slice) -> Iterator[tuple[Slice, str]]:
        for row, launch in self.call.items():
            blocks = launch is call and ("Async" not in call.name or "ageable" in row.name)
            if blocks and row.category in ("gpu_memcpy", "Memcpy") and row.length:
                yield row, "name"
        if "ynchronize" not in call.name:
            return
        for device, stream, until, evidence in self.targets(call):
            last = self.last_put(device, stream, until)
            if last:
                yield last, evidence
            lane = [row for row in self.trace.gpu if (row.device, row.stream) == (device, stream)]
            early = self.before([r for r in lane if self.trace.launch_state(r) == "before_window"], call.end)
            if early:
                yield early, evidence

    def targets(self, call: Slice) -> Iterator[tuple[int, int, int, str]]:
        """(device, stream, latest launch time, evidence)."""
        lanes = sorted({(row.device, row.stream) for row in self.trace.gpu})
        rows = [s for s in self.syncs if s.kind != "Stream Wait Event" and self.caller(s) is call]
        for sync in rows:
            if sync.kind == "Context Sync":
                yield from ((*lane, call.start, "recorded") for lane in lanes if lane[0] == sync.device)
            elif sync.kind == "Stream Sync":
                yield sync.device, sync.stream, call.start, "recorded"
            else:
                yield from (
                    (sync.device, sync.wait_on_stream or 0, m.start, "recorded") for m in self.marked(sync)
                )
        if rows:
            return
        if FOR_ALL.search(call.name):
            yield from ((*lane, call.start, "name") for lane in lanes)
            return
        own = [
            (c.start, r)
            for r, c in self.call.items()
            if c and c.thread == call.thread and c.start < call.start
        ]
        if own:
            latest = [row for at, row in own if at == max(own, key=lambda item: item[0])[0]]
            ends = {
                (r.device, r.stream): max(
                    (o.end for o in latest if (o.device, o.stream) == (r.device, r.stream) and o.length),
                    default=-1,
                )
                for r in latest
            }
            device, stream = max(ends, key=lambda lane: (ends[lane], lane))
            yield device, stream, call.start, "inferred"


def graph(rank: Rank, step: Slice) -> Graph:
    """The nodes of a step and their dependencies."""
    trace = rank.trace
    inside = lambda slice_: slice_ is not None and step.start <= slice_.start < step.end  # noqa: E731
    host = [each for each in (*trace.ops, *trace.calls) if inside(each)]
    rows = [row for row in trace.gpu if inside(rank.call[row]) and row.start >= step.start]
    end = max([step.end, *(row.end for row in rows)])
    first = Node(step.start, 0, (), None, "start", step.thread)
    half = Node(step.end, 3, (), None, "host_end", step.thread)
    last = Node(end, 7, (), None, "end")
    node: dict[tuple[Slice, str], Node] = {}
    for each in host:
        key = (each.start, -each.length, each.event_id)
        turns = (3, 2) if each.length else (4, 4)
        back = (-key[0], -key[1], -key[2]) if each.length else key
        node[each, "start"] = Node(each.start, turns[0], key, each, "start", each.thread)
        node[each, "end"] = Node(each.end, turns[1], back, each, "end", each.thread)
    for row in rows:
        node[row, "start"] = Node(row.start, 5, (row.event_id,), row, "start")
        node[row, "end"] = Node(row.end, 1 if row.length else 6, (row.event_id,), row, "end")
    nodes = sorted((n for n in (first, half, last, *node.values()) if n.at <= end), key=lambda n: n.place)
    made = Graph(rank, nodes, {n: [] for n in nodes[1:]})
    _on_host(rank, made, step)
    for row in rows:
        made.leads[node[row, "end"]].append(Lead(node[row, "start"], "kernel", row.start, row))
        _to_row(rank, made, row, node)
    for call in (c for c in trace.calls if inside(c) and c.end <= end):
        known = rank.returns(call)
        if known and known[0]:
            _from(
                made,
                node[call, "end"],
                node.get((known[0], "end")),
                "sync",
                known[1],
                known[0].end,
                call,
                True,
            )
    for lane in {(row.device, row.stream) for row in rows}:
        ends = [node[row, "end"] for row in rows if (row.device, row.stream) == lane]
        final = max(ends, key=lambda n: n.place)
        made.leads[last].append(Lead(final, "end", final.at))
    made.leads[last].append(Lead(half, "end", half.at))
    return made


def _from(
    made: Graph,
    to: Node,
    source: Node | None,
    type_: str,
    evidence: str,
    at: int,
    event: Slice,
    explains: bool,
) -> None:
    """A dependency from a node of the scope, or from its start if the source is before it."""
    if source is not None:
        made.leads[to].append(Lead(source, type_, at, event, evidence, explains))
    elif at > made.nodes[0].at:
        made.leads[to].append(Lead(made.nodes[0], "earlier", at, event))


def _to_row(rank: Rank, made: Graph, row: Slice, node: dict[tuple[Slice, str], Node]) -> None:
    to = node[row, "start"]
    for source, type_, evidence, at, explains in rank.starts(row):
        found = node.get((source, "start" if type_ == "launch" else "end"))
        _from(made, to, found, type_, evidence, at, row, explains)
    if all(lead.type == "earlier" for lead in made.leads[to]):
        made.leads[to].append(Lead(made.nodes[0], "unknown_wait", made.nodes[0].at, row, "inferred"))


def _on_host(rank: Rank, made: Graph, step: Slice) -> None:
    """Dependencies along each thread, and between threads."""
    lanes: dict[Any, list[Node]] = {}
    for n in made.nodes:
        if n.thread is not None and n is not made.nodes[0]:
            lanes.setdefault(n.thread, []).append(n)
    engines = {
        n.thread for lane in lanes.values() for n in lane
        if n.event and ENGINE.search(n.event.name) and n.thread != step.thread
    }  # fmt: skip
    outer: list[tuple[Node, bool]] = []
    for thread, lane in lanes.items():
        open_: list[Slice] = []
        for number, n in enumerate(lane):
            before = lane[number - 1] if number else None
            made.leads[n].append(_along(rank, made.nodes[0], before, n, open_))
            if n.side == "start" and n.event:
                if not open_:
                    outer.append((n, thread in engines))
                open_.append(n.event)
            elif n.event:
                open_.remove(n.event)
                if not open_:
                    outer.append((n, thread in engines))
            elif not open_:
                outer.append((n, False))
    outer = [(n, engine) for n, engine in outer if engine or n.thread == step.thread]
    for n, engine in outer:
        gone = [o for o, other in outer if o.side == "end" and other != engine and o.place < n.place]
        if n.side != "end" and gone:
            source = max(gone, key=lambda o: o.place)
            made.leads[n].append(Lead(source, "handover", source.at, None, "inferred"))


def _along(rank: Rank, first: Node, before: Node | None, n: Node, open_: list[Slice]) -> Lead:
    """The dependency of a node on its thread."""
    if before is None:
        return Lead(first, "host_gap", first.at)
    if not open_:
        return Lead(before, "host_gap", before.at)
    owner = before.event if before.side == "start" else n.event if n.side == "end" else open_[-1]
    known = rank.returns(owner) if owner in rank.trace.calls and owner else None
    if known and known[0] is None:
        return Lead(before, "unknown_wait", before.at, owner, "inferred")
    return Lead(before, "host", before.at, owner)
