"""The segments of a rank between all adjacent edges, by brute force: their activity, or the idle cause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from witness import answers, idle
from witness.answers import Row
from witness.trace import Slice, Trace

KINDS = ("computation", "communication", "memory", "other")
PARTS = {"computation": "compute", "memory": "exposed_memory", "other": "other"}
DATA = "enumerate(DataLoader)#"


class Wait(NamedTuple):
    """When the wait of a matched collective ends, and whether all ranks of its group are in the run."""

    end: int
    is_complete: bool


Waits = Mapping[int, Wait]  # by event id


@dataclass(frozen=True)
class Piece:
    """A segment from one edge to the next: its activity, or the idle cause and the gap that contains it."""

    start: int
    end: int
    step: int | None
    owner: Slice | None
    cause: str | None = None
    gap: idle.Gap | None = None


def pieces(trace: Trace, more: Iterable[int] = ()) -> Iterator[Piece]:
    """All segments of a rank, split at additional times."""
    data = [note for note in trace.notes + trace.ops if note.name.startswith(DATA)]
    periods = list(_periods(trace))
    edges = {edge for row in trace.gpu + data for edge in (row.start, row.end)}
    edges |= {row.end + call.length for row in trace.gpu for call in trace.calls}  # ends of sync
    usual = idle.usual_latency(trace)
    edges |= {edge for call in trace.calls for edge in (call.start, call.end, call.end + usual)}
    edges |= set(more)
    bounds = {edge for row in trace.gpu for edge in (row.start, row.end)}
    bounds |= {edge for _, start, end in periods for edge in (start, end)}
    first, last = min(bounds), max(bounds)
    cuts = sorted(bounds | {edge for edge in edges if first < edge < last})
    for start, end in zip(cuts, cuts[1:], strict=False):
        step = next((number for number, since, until in periods if since <= start < until), None)
        owner = _owner(trace, start, end)
        if owner is None:
            yield Piece(start, end, step, None, *_idle(trace, data, usual, start, end))
        else:
            yield Piece(start, end, step, owner)


def _periods(trace: Trace) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of each step's period."""
    start = min((step.start for step in trace.steps), default=0)
    for row in answers.step_summary(trace):
        yield row["step"], start, start + row["period_ns"]
        start += row["period_ns"]


def _owner(trace: Trace, start: int, end: int) -> Slice | None:
    running = [row for row in trace.gpu if row.start <= start and row.end >= end]
    return min(running, key=lambda row: (KINDS.index(row.kind), row.start, row.event_id), default=None)


def _idle(trace: Trace, data: list[Slice], usual: int, start: int, end: int) -> tuple[str, idle.Gap | None]:
    edges = {edge for row in trace.gpu for edge in (row.start, row.end)}
    before, after = [edge for edge in edges if edge <= start], [edge for edge in edges if edge >= end]
    if not before or not after:
        return "outside", None
    found = idle.gaps(trace, trace.gpu, min(edges), max(edges))
    gap = next(each for each in found if each.start == max(before))
    launch = idle.pending(trace, trace.gpu, gap, usual)
    if isinstance(launch, str):
        return launch, gap
    begins, returns, starts = launch.edges
    if start >= begins:
        return "call" if start < returns else "latency" if start < starts else "queued", gap
    call = launch.call
    assert call is not None
    waits = [wait for wait in _blocking(trace, call.thread) if wait.start <= gap.start < wait.end]
    furthest = max(waits, key=lambda wait: (wait.end, -wait.start), default=None)
    if furthest is not None and start < gap.start + furthest.length:
        return "sync", gap
    waited = any(note.thread == call.thread and note.start <= start and note.end >= end for note in data)
    return ("dataloader" if waited else "host"), gap


def _blocking(trace: Trace, thread: object) -> Iterator[Slice]:
    """Calls of a thread that wait for the device."""
    for call in trace.calls:
        if call.thread == thread and "synchronize" in call.name.lower():
            yield call
    for row in trace.gpu:
        call = trace.launch(row)
        copies = row.category in ("gpu_memcpy", "Memcpy")
        if copies and call is not None and call.thread == thread and row.end <= call.end:
            yield call


def gap_ns(piece: Piece) -> int:
    """The duration of the gap that contains the segment."""
    assert piece.gap is not None
    return piece.gap.end - piece.gap.start


def waited_in(trace: Trace, piece: Piece) -> Slice:
    """The blocking call before the launch that an idle segment waits for; the one that ends last."""
    assert piece.gap is not None
    launch = idle.pending(trace, trace.gpu, piece.gap, 0)
    assert isinstance(launch, idle.Launch) and launch.call is not None
    call = launch.call
    waits = [wait for wait in _blocking(trace, call.thread) if wait.start <= piece.gap.start < wait.end]
    return max(waits, key=lambda wait: (wait.end, -wait.start))


class Analyzed(NamedTuple):
    """The analyzed intervals of a rank: the number of its complete steps, and their periods."""

    steps: int
    periods: list[tuple[int, int]]

    @property
    def total_ns(self) -> int:
        """The duration of all."""
        return sum(end - start for start, end in self.periods)

    @property
    def has_holes(self) -> bool:
        """Whether incomplete steps are left out between complete ones."""
        return any(start > end for (_, end), (start, _) in pairwise(self.periods))

    @property
    def edges(self) -> list[int]:
        """Starts and ends."""
        return [edge for period in self.periods for edge in period]

    def of(self, found: Iterable[Piece]) -> list[Piece]:
        """The segments inside; they are cut at the edges."""
        return [each for each in found if any(start <= each.start < end for start, end in self.periods)]


def analyzed(trace: Trace) -> Analyzed:
    """The complete steps of a rank, or the GPU window if there are none."""
    partial = {row["step"] for row in answers.step_summary(trace) if row["partial"]}
    whole = [(start, end) for step, start, end in _periods(trace) if step not in partial and end > start]
    window = min(row.start for row in trace.gpu), max(row.end for row in trace.gpu)
    return Analyzed(len(whole), whole or [window])


def step_account(trace: Trace, waits: Waits) -> list[Row]:
    """Time of each step's period by category."""
    sums: dict[tuple[int, str], int] = defaultdict(int)
    periods: dict[int, int] = defaultdict(int)
    for piece in pieces(trace, within(trace, ends(waits))):
        if piece.step is not None:
            sums[piece.step, part(piece, waits)] += piece.end - piece.start
            periods[piece.step] += piece.end - piece.start
    return [
        {"step": step, "category": name, "category_ns": ns, "share": ns / periods[step]}
        for (step, name), ns in sums.items()
    ]


def ends(waits: Waits) -> list[int]:
    """When the waits end."""
    return [wait.end for wait in waits.values()]


def within(trace: Trace, moments: Iterable[int]) -> list[int]:
    """Those within the rank's GPU activities: an edge beyond them would make a separate segment."""
    first, last = min(row.start for row in trace.gpu), max(row.end for row in trace.gpu)
    return [moment for moment in moments if first < moment < last]


def part(piece: Piece, waits: Waits) -> str:
    """The category of a piece that is cut where waits end."""
    if piece.owner is not None and piece.owner.kind == "communication":
        wait = waits.get(piece.owner.event_id)
        if wait is not None and piece.end <= wait.end:
            return "exposed_wait"
        return "exposed_transfer" if wait is not None and wait.is_complete else "exposed_unassigned"
    if piece.owner is not None:
        return PARTS[piece.owner.kind]
    return f"idle_{piece.cause}"


def step_kernels(trace: Trace) -> list[Row]:
    """The exclusive time of each kernel in each step's period, and how often it started there."""
    counts: dict[tuple[int, str, str], int] = defaultdict(int)
    sums: dict[tuple[int, str, str], int] = defaultdict(int)
    for row in trace.gpu:
        for number, start, end in _periods(trace):
            if start <= row.start < end:
                counts[number, row.kind, row.name] += 1
    for piece in pieces(trace):
        if piece.step is not None and piece.owner is not None:
            sums[piece.step, piece.owner.kind, piece.owner.name] += piece.end - piece.start
    columns = ("step", "kind", "name", "count", "exclusive_ns")
    keys = dict.fromkeys([*counts, *sums])
    return [dict(zip(columns, (*key, counts[key], sums[key]), strict=True)) for key in keys]


def spans(trace: Trace, annotation: str | None) -> dict[int, tuple[int, int]]:
    """The window, or each occurrence of the annotation that is not within an earlier one."""
    if annotation is None:
        return {1: (min(row.start for row in trace.gpu), max(row.end for row in trace.gpu))}
    notes = [note for note in trace.notes if note.name == annotation and note.length]
    notes.sort(key=_turn)
    found = [
        (note.start, note.end)
        for place, note in enumerate(notes)
        if all(note.start >= other.end for other in notes[:place])
    ]
    return dict(enumerate(found, 1))


def _turn(note: Slice) -> tuple[int, int, int]:
    return note.start, -note.length, note.event_id


def window_account(trace: Trace, annotation: str | None, waits: Waits) -> dict[tuple[int, str], int]:
    """Time of each interval by category; time beyond all segments is outside."""
    sums: dict[tuple[int, str], int] = defaultdict(int)
    for number, (start, end) in spans(trace, annotation).items():
        cuts = (start, end, *within(trace, ends(waits)))
        inside = [piece for piece in pieces(trace, cuts) if start <= piece.start and piece.end <= end]
        for piece in inside:
            sums[number, part(piece, waits)] += piece.end - piece.start
        beyond = end - start - sum(piece.end - piece.start for piece in inside)
        if beyond:
            sums[number, "idle_outside"] += beyond
    return sums


def window_kernels(trace: Trace, annotation: str | None) -> dict[tuple[int, str, str], list[int]]:
    """Activities that start in each interval, their full durations, and the exclusive time of each kernel."""
    sums: dict[tuple[int, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for number, (start, end) in spans(trace, annotation).items():
        for row in trace.gpu:
            if start <= row.start < end:
                found = sums[number, row.kind, row.name]
                found[:2] = found[0] + 1, found[1] + row.length
        for piece in pieces(trace, (start, end)):
            if piece.owner is not None and start <= piece.start and piece.end <= end:
                sums[number, piece.owner.kind, piece.owner.name][2] += piece.end - piece.start
    return sums
