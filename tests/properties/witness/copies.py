"""Memory bandwidth by brute force: every copy is checked at every time, in exact fractions."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

from witness.answers import Row
from witness.trace import Slice, Trace

Lane = tuple[int, str]


def lanes(trace: Trace) -> dict[Lane, list[Slice]]:
    """The memcpys and memsets of each device and direction."""
    found: dict[Lane, list[Slice]] = defaultdict(list)
    for row in trace.gpu:
        if row.kind == "memory":
            found[row.device, "Memset" if row.name.startswith("Memset") else row.name.split()[1]].append(row)
    return found


def timed(rows: list[Slice]) -> list[Slice]:
    """Those with a duration and a number of bytes."""
    return [row for row in rows if row.length and row.args.get("bytes") is not None]


def pieces(rows: list[Slice]) -> list[tuple[int, int, int, Fraction]]:
    """(start, ns, running copies, bytes per ns) between all starts and ends."""
    times = sorted({at for row in rows for at in (row.start, row.end)})
    found = []
    for start, end in zip(times, [*times[1:], *times[-1:]], strict=True):
        running = [row for row in rows if row.start <= start < row.end]
        speed = sum((Fraction(row.args["bytes"], row.length) for row in running), Fraction())
        found.append((start, end - start, len(running), speed))
    return found


def memory_bandwidth(trace: Trace) -> list[Row]:
    """The series over all streams of a device."""
    return [
        {"device": device, "stream": None, "direction": direction, "ts_ns": start, "copies": copies,
         "bandwidth_bytes_per_ns": float(speed), "dur_ns": held}
        for (device, direction), rows in lanes(trace).items()
        for start, held, copies, speed in pieces(timed(rows))
    ]  # fmt: skip


def memory_bandwidth_summary(trace: Trace) -> list[Row]:
    """Its statistics over the time with running copies."""
    return [
        {
            "device": device,
            "direction": direction,
            "count": len(rows),
            "unusable": len(rows) - len(timed(rows)),
        }
        | _summary(timed(rows))
        for (device, direction), rows in lanes(trace).items()
    ]


def _summary(rows: list[Slice]) -> Row:
    speeds = [(speed, held) for _, held, copies, speed in pieces(rows) if copies]
    size, active = sum(row.args["bytes"] for row in rows), sum(held for _, held in speeds)
    found = {"bytes": size, "active_ns": active, "mean_bytes_per_ns": size / active if active else None}
    for share in (50, 95, 100):
        name = "max" if share == 100 else f"p{share}"
        found[f"{name}_bytes_per_ns"] = _share(speeds, share) if speeds else None
    return found


def _share(speeds: list[tuple[Fraction, int]], share: int) -> float:
    """The lowest value that is not exceeded for this percentage of the time."""
    total = sum(held for _, held in speeds)
    return float(
        next(
            speed
            for speed in sorted({speed for speed, _ in speeds})
            if 100 * sum(held for each, held in speeds if each <= speed) >= share * total
        )
    )
