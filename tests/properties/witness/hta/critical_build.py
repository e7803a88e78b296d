"""How HTA makes the graph of its critical path: locks between threads, call stacks, then GPU activities."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass

import polars as pl

from witness.hta.critical_graph import Digraph
from witness.hta.frame import SYNCS, Frame
from witness.hta.nesting import ROOT, threads, visits
from witness.hta.rules import Fails, Rules
from witness.hta.spans import order
from witness.hta.streams import moves_of_hta
from witness.hta.syncs import WAIT_ROW, Waits

HOST = ("cpu_op", "cuda_runtime", "cuda_driver")
LOCKING = frozenset(("cudaHostAlloc", "cudaLaunchKernel", "cudaMemcpyAsync"))
BLOCKING = frozenset(
    (
        *("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventQuery", "cudaEventSynchronize"),
        *("cudaMemcpy", "cudaMemcpyAsync"),
    )
)
FAR_NS = 1_500_000
SYNC = "cuda_sync"
EVENT_SYNC, CONTEXT_SYNC = SYNCS
STREAM_SYNC = "Stream Sync"


@dataclass(frozen=True)
class Node:
    """A start or an end of an event, by its place in the order of time."""

    at: int
    event: int
    ts: int
    is_start: bool


class Critical:
    """The graph over the rows of a window; the whole frame and all `names` describe more of them."""

    def __init__(self, frame: Frame, window: pl.DataFrame, names: Set[str], rules: Rules) -> None:
        self.frame, self.window, self.names, self.rules = frame, window, names, rules
        self.graph = Digraph()
        self.nodes: list[Node] = []
        self.start: dict[int, Node] = {}
        self.end: dict[int, Node] = {}
        self.name = dict(window.select("index", "name").rows())
        self._make_nodes()
        if "lock" in rules:
            self._lock()
        for thread in threads(self._merged()):
            self._stack(thread)
        Rows(self).add()

    def _make_nodes(self) -> None:
        on_gpu = pl.col("gpu") & (pl.col("partner") >= 0)
        rows = self.window.filter(pl.col("cat").is_in(HOST) | on_gpu)
        if rows["index"].is_duplicated().any():
            raise Fails("TypeError", 3, "a row that is there twice has no name")
        starts = rows.select("index", "ts", is_start=True)
        ends = rows.select("index", ts=pl.col("ts") + pl.col("dur"), is_start=False)
        both = pl.concat([starts, ends]).sort("ts", "index", maintain_order=True)
        for at, (event, ts, is_start) in enumerate(both.rows()):
            node = Node(at, event, ts, is_start)
            self.nodes.append(node)
            (self.start if is_start else self.end)[event] = node

    def link(self, source: Node, to: Node, type_: str, free: bool = False, event: int | None = None) -> None:
        """An edge: `free` ones take no time."""
        if source is to:
            raise Fails("AssertionError", 16, "an edge from a node to itself")
        self.graph.add(source.at, to.at, type_, 0 if free else to.ts - source.ts, event)

    def _locks(self, node: Node) -> bool:
        return self.name[node.event] in LOCKING

    def _lock(self) -> None:
        """The call that ends first is taken to have held the runtime's lock."""
        waiting: list[Node] = []
        last: Node | None = None
        for node in filter(self._locks, self.nodes):
            if node.is_start:
                waiting.append(node)
            else:
                while waiting:
                    before = waiting.pop()
                    if before.event == node.event:
                        self.link(before, node, "OPERATOR_KERNEL", event=node.event)
                    else:
                        self.link(before, node, "DEPENDENCY", free=True)
                if last and not last.is_start:
                    self.link(last, node, "DEPENDENCY", free=True)
            last = node

    def _merged(self) -> pl.DataFrame:
        """The rows of the window, those of the only backward thread on that of the only forward one."""
        forward, backward = (self._thread_of(word) for word in ("forward", "autograd"))
        if "threads" not in self.rules or not forward or not backward:
            return self.window
        tid = pl.when(pl.col("tid") == backward).then(pl.lit(forward)).otherwise("tid")
        return self.window.with_columns(tid=tid)

    def _thread_of(self, word: str) -> str:
        """The only thread with such a name; "" where there is none, or several, or it is number 0."""
        named = pl.col("name").str.contains(word, literal=True)
        rows = self.window.filter(named & pl.col("cat").is_in(("cpu_op", "user_annotation")))
        found = rows.select("tid", "text_tid").unique().rows()
        tid, text = found[0] if len(found) == 1 else ("", True)
        return tid or "" if text or tid != "0" else ""

    def _passed_on(self, source: Node, to: Node) -> bool:
        """The lock's edges represent this one."""
        shared = self._locks(source) and self._locks(to) and (source.is_start or not to.is_start)
        return "lock" in self.rules and shared

    def _stack(self, thread: pl.DataFrame) -> None:
        last: Node | None = None
        depth, above = 0, ROOT
        for event, parent, entered in visits(thread):
            if event not in self.start:
                continue
            node = self.start[event] if entered else self.end[event]
            if last is not None and not self._passed_on(last, node):
                self._along(last, node, above, depth)
            last, above = node, parent
            depth += 1 if entered else -1

    def _along(self, last: Node, node: Node, above: int, depth: int) -> None:
        """From one node of a thread to the next."""
        if node.is_start and depth == 0:
            self.link(last, node, "DEPENDENCY", free="gaps" in self.rules)
            return
        blocks = not node.is_start and self.name[node.event] in BLOCKING and "blocking" in self.rules
        left = above if node.is_start else node.event
        event = last.event if last.is_start else left
        self.link(last, node, "OPERATOR_KERNEL", free=blocks, event=event)


@dataclass(frozen=True)
class Row:
    """A GPU activity with the length of its stream's queue after it and after its launch; None if unknown."""

    event: int
    category: str
    name: str
    stream: int
    partner: int
    queue: int | None
    queue_at_launch: int | None
    awaited: int | None  # the launch before the record that it waits for
    at: int


class Rows:
    """What GPU activities and the profiler's rows about waits add to a graph."""

    def __init__(self, critical: Critical) -> None:
        self.to, self.rules = critical, critical.rules
        frame = critical.frame
        self.partner = dict(frame.rows.select("index", "partner").rows())
        self.ts = dict(frame.rows.select("index", "ts").rows())
        queue = self._queue(frame)
        self.waits = Waits(frame, critical.names)
        self.rows = self._rows(queue)
        self.last: dict[int, Node] = {}
        self.scheduled: dict[int, int | None] = {}

    def _queue(self, frame: Frame) -> dict[int, list[int]]:
        """By row the lengths of queues after it, stream by stream."""
        moves = moves_of_hta(frame, self.rules).filter(pl.col("sid").is_not_null())
        if moves.is_empty():
            raise Fails("AssertionError", 9, "no call that counts launches anything: there is no queue")
        found: dict[int, list[int]] = defaultdict(list)
        for _, stream in sorted(moves.group_by("sid", maintain_order=True), key=lambda group: group[0]):
            long = 0
            for at, move in stream.select("index", "move").rows():
                long += move
                found[at].append(long)
        return found

    def _rows(self, queue: dict[int, list[int]]) -> list[Row]:
        """In HTA's order: by start, the profiler's waits by end."""
        wanted = (pl.col("gpu") | pl.col("name").is_in(SYNCS)) & (pl.col("partner") >= 0)
        found = []
        none: list[int | None] = [None]
        columns = ("index", "cat", "name", "sid", "partner", "wait_on_record", "ts", "dur")
        for at, cat, name, stream, partner, record, ts, dur in (
            self.to.window.filter(wanted).select(columns).rows()
        ):
            awaited = (self.waits.before or {}).get(record)
            place = ts + dur if cat == SYNC else ts
            found += [
                Row(at, cat, name, stream, partner, long, at_launch, awaited, place)
                for at_launch in queue.get(partner, none)
                for long in queue.get(at, none)
            ]
        places = pl.Series([row.at for row in found], dtype=pl.Int64).to_numpy()
        return [found[n] for n in order(places, self.to.frame.dtype)]

    def add(self) -> None:
        """All of them."""
        for row in self.rows:
            if row.category == SYNC:
                self._sync(row)
            elif row.event in self.to.start:
                self._kernel(row)

    def _sync(self, row: Row) -> None:
        if row.name in (WAIT_ROW, EVENT_SYNC):
            if row.awaited is not None and row.awaited != -1:
                self._event_sync(row, self.partner[row.awaited])
            return
        if row.name not in (STREAM_SYNC, CONTEXT_SYNC):
            raise Fails("AssertionError", 16, "a wait of a kind that it does not know")
        lasts = self.last.values() if row.name == CONTEXT_SYNC else [self.last.get(row.stream)]
        for node in lasts:
            self._returns(node, row.partner)

    def _event_sync(self, row: Row, source: int) -> None:
        if row.name == EVENT_SYNC:
            self._returns(self.to.end.get(source), row.partner)
            return
        if self.waits.after is None:
            raise Fails("AttributeError", 16, "a stream waits, and no call for it has a name that it knows")
        if row.partner not in self.waits.after:
            raise Fails("KeyError", 16, "a stream waits, and no call for it is known")
        launch = self.waits.after[row.partner]
        if launch >= 0:
            self.scheduled[self.partner[launch]] = source

    def _returns(self, node: Node | None, call: int) -> None:
        to = self.to.end.get(call)
        if node is not None and to is not None:
            self.to.link(node, to, "SYNC_DEPENDENCY", free=True)

    def _kernel(self, row: Row) -> None:
        start, end = self.to.start[row.event], self.to.end[row.event]
        self.to.link(start, end, "OPERATOR_KERNEL", event=row.event)
        source = self.scheduled.get(row.event)
        awaited = None if source is None else self.to.end.get(source)
        if source is not None:
            self.scheduled[row.event] = None
        if awaited is not None:
            self.to.link(awaited, start, "SYNC_DEPENDENCY", free=True)
        last = self.last.get(row.stream)
        if self._was_launched(row, last, awaited):
            call = self.to.start.get(row.partner)
            if call is None:
                raise Fails("AssertionError", 16, "the call that launched a row is none of its nodes")
            self.to.link(call, start, "KERNEL_LAUNCH_DELAY")
        elif last is not None and self._followed(start, last, awaited):
            self.to.link(last, start, "KERNEL_KERNEL_DELAY", event=last.event)
        self.last[row.stream] = end

    def _was_launched(self, row: Row, last: Node | None, awaited: Node | None) -> bool:
        """The queue was empty, and all before it was over when it was launched."""
        return (
            (row.queue_at_launch, row.queue) == (1, 0)
            and (last is None or last.ts < self.ts[row.partner])
            and (awaited is None or awaited.ts < self.ts[row.partner])
        )

    def _followed(self, start: Node, last: Node, awaited: Node | None) -> bool:
        near = start.ts - last.ts < FAR_NS or "limit" not in self.rules
        return near and (awaited is None or awaited.ts < last.ts)


def same_stream(critical: Critical) -> bool:
    """Whether a wait is between rows of one stream, which HTA takes for a sign of a broken graph."""
    stream = dict(critical.window.select("index", "sid").rows())
    nodes = critical.nodes
    return any(
        edge.type == "SYNC_DEPENDENCY"
        and stream[nodes[source].event] != -1
        and stream[nodes[source].event] == stream[nodes[to].event]
        for source, to, edge in critical.graph.edges()
    )
