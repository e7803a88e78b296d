"""Queue depth of each stream by brute force: all activities are checked at every time."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from witness.answers import Row
from witness.trace import Slice, Trace

FULL = 2  # the random traces have no queue as long as the default


def streams(trace: Trace) -> Iterator[tuple[Row, list[Slice], list[tuple[int, int]]]]:
    """Each stream with its activities, and when those with a launch entered and left the queue."""
    for device, stream in sorted({(row.device, row.stream) for row in trace.gpu}):
        rows = [row for row in trace.gpu if (row.device, row.stream) == (device, stream)]
        calls = [(trace.launch(row), row.start) for row in rows]
        waits = [(min(call.start, start), start) for call, start in calls if call is not None]
        yield {"device": device, "stream": stream}, rows, waits


def moments(waits: list[tuple[int, int]]) -> list[int]:
    """The times of all changes."""
    return sorted({at for wait in waits for at in wait})


def length(waits: list[tuple[int, int]], at: int) -> int:
    """The queue depth after all changes at a time."""
    return sum(came <= at < went for came, went in waits)


def pieces(waits: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(depth, ns) between adjacent times."""
    times = moments(waits)
    return [
        (length(waits, start), end - start) for start, end in zip(times, [*times[1:], times[-1]], strict=True)
    ]


def changes(waits: list[tuple[int, int]]) -> list[int]:
    """The depth after each change: at each time first the launches one by one, then the starts."""
    found: list[int] = []
    for at in moments(waits):
        before = sum(came < at <= went for came, went in waits)
        most = before + sum(came == at for came, _ in waits)
        found += [*range(before + 1, most + 1), *range(most - 1, length(waits, at) - 1, -1)]
    return found


def queue_length(trace: Trace) -> list[Row]:
    """The series."""
    return [
        lane
        | {
            "ts_ns": at,
            "launched": sum(came == at for came, _ in waits),
            "started": sum(went == at for _, went in waits),
            "queue_length": rows_in,
            "dur_ns": held,
        }
        for lane, _, waits in streams(trace)
        if waits
        for at, (rows_in, held) in zip(moments(waits), pieces(waits), strict=True)
    ]


def queue_length_summary(trace: Trace) -> list[Row]:
    """Its statistics, by change and by time."""
    return [
        lane
        | {"launched": len(waits), "launch_unknown": len(rows) - len(waits)}
        | (_summary(waits) if waits else dict.fromkeys(SUMMARY))
        for lane, rows, waits in streams(trace)
    ]


SUMMARY = ("span_ns", "queued_ns", "waiting_ns", "waiting", "max_length", "change_mean", "time_mean") + tuple(
    f"{kind}_p{share}" for kind in ("change", "time") for share in (50, 95, 99)
)


def _summary(waits: list[tuple[int, int]]) -> Row:
    span = max(went for _, went in waits) - min(came for came, _ in waits)
    lengths, times = changes(waits), [each for each in pieces(waits) if each[1]]
    waited = sum(went - came for came, went in waits)
    waiting = sum(ns for rows, ns in times if rows)
    values = (span, waited, waiting, waiting / span if span else None, max(lengths))
    means = (sum(lengths) / len(lengths), waited / span if span else None)
    weights = [(each, 1) for each in lengths], times
    shares = [_share(each, Fraction(share, 100)) for each in weights for share in (50, 95, 99)]
    return dict(zip(SUMMARY, (*values, *means, *shares), strict=True))


def _share(weighted: list[tuple[int, int]], share: Fraction) -> int | None:
    """The smallest value that at least this share of the weight does not exceed."""
    total = sum(weight for _, weight in weighted)
    for value in sorted({value for value, _ in weighted}):
        if sum(weight for each, weight in weighted if each <= value) >= share * total:
            return value
    return None


def queue_blocked(trace: Trace) -> list[Row]:
    """Time with a full queue."""
    return [lane | _blocked(waits) for lane, _, waits in streams(trace)]


def _blocked(waits: list[tuple[int, int]]) -> Row:
    if not waits:
        return {"span_ns": None, "blocked_ns": None, "share": None}
    times = pieces(waits)
    span, full = sum(ns for _, ns in times), sum(ns for rows, ns in times if rows >= FULL)
    return {"span_ns": span, "blocked_ns": full, "share": full / span if span else None}
