"""Expected results of memory analyses for a trace, by brute force, event by event."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Device = tuple[int | None, int | None]


@dataclass(frozen=True)
class Change:
    """An allocation or free, and its operator."""

    event_id: int
    at: int | None
    args: Row
    op_id: int | None
    op: str | None
    step: int | None

    @property
    def bytes(self) -> int:
        return int(self.args["Bytes"])

    @property
    def total(self) -> int | None:
        return self.args.get("Total Allocated")


def read(path: Path) -> dict[Device, list[Change]]:
    """The events of each device, in file order."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    trace = json.loads(text, parse_float=Decimal)
    events = [_timed(event, trace.get("baseTimeNanoseconds", 0)) for event in trace["traceEvents"]]
    found: dict[Device, list[Change]] = defaultdict(list)
    for event_id, event in enumerate(events):
        if event["name"] == "[memory]":
            device = (event["args"].get("Device Type"), event["args"].get("Device Id"))
            found[device].append(_change(event_id, event, events))
    return found


def _timed(event: Row, base_ns: int) -> Row:
    """The event with its times in ns."""
    if "ts" not in event:
        return event
    start = base_ns + int(Decimal(event["ts"]) * 1000)
    return {**event, "start": start, "end": start + int(Decimal(event.get("dur", 0)) * 1000)}


def usable(changes: list[Change]) -> list[Change]:
    """Those with time and bytes, sorted by time, the profiler's number, and without it frees first."""
    there = [each for each in changes if each.at is not None and each.args.get("Bytes") is not None]

    def place(each: Change) -> tuple[Any, ...]:
        number, address = each.args.get("Ev Idx"), each.args.get("Addr")
        keys = [(value is None, value) for value in (number, each.bytes, address)]
        return (each.at, *keys, each.event_id)

    return sorted(there, key=place)


def _change(event_id: int, event: Row, events: list[Row]) -> Change:
    at = event.get("start")
    around, step = [], None
    for number, other in enumerate(events):
        if other["ph"] != "X" or at is None:
            continue
        start, end = other["start"], other["end"]
        if not start <= at < end:
            continue
        if other["name"].startswith("ProfilerStep#"):
            step = int(other["name"].partition("#")[2])
        elif other["cat"] == "cpu_op" and other["tid"] == event["tid"]:
            around.append((-start, end, number, other["name"]))
    inner = min(around, default=(0, 0, None, None))
    return Change(event_id, at, event["args"], inner[2], inner[3], step)


def memory_curve(changes: list[Change]) -> list[Row]:
    rows, net = [], 0
    for position, each in enumerate(usable(changes), 1):
        net += each.bytes
        rows.append(
            {"position": position, "ts_ns": each.at, "bytes": each.bytes, "net_bytes": net}
            | {"allocated_bytes": each.total, "reserved_bytes": each.args.get("Total Reserved")}
        )
    return rows


def memory_peak(changes: list[Change]) -> list[Row]:
    there = usable(changes)
    row: Row = dict.fromkeys(
        ("peak_bytes", "peak_at_ns", "peak_step", "peak_reserved_bytes", "reserved_at_ns", "start_bytes")
        + ("end_bytes", "unexplained_bytes")
    )
    row |= {"changes": len(there), "unusable": len(changes) - len(there)}
    row |= {"net_bytes": sum(each.bytes for each in there)}
    row["peak_net_bytes"] = max([0, *(each["net_bytes"] for each in memory_curve(changes))])
    reported = [each for each in there if each.total is not None]
    for each in reported:
        if row["peak_bytes"] is None or (each.total or 0) > row["peak_bytes"]:
            row |= {"peak_bytes": each.total, "peak_at_ns": each.at, "peak_step": each.step}
    for each in there:
        reserved = each.args.get("Total Reserved")
        if reserved is not None and (
            row["peak_reserved_bytes"] is None or reserved > row["peak_reserved_bytes"]
        ):
            row |= {"peak_reserved_bytes": reserved, "reserved_at_ns": each.at}
    if reported:
        row |= {"start_bytes": (reported[0].total or 0) - reported[0].bytes, "end_bytes": reported[-1].total}
        known = sum(each.bytes for each in reported)
        row["unexplained_bytes"] = row["end_bytes"] - row["start_bytes"] - known
        if reported[0].args["Device Type"] == 0:  # its totals begin with the profiler
            row["start_bytes"] = None
    return [row]


def memory_by_op(changes: list[Change]) -> list[Row]:
    ops: dict[str | None, list[Change]] = defaultdict(list)
    for each in usable(changes):
        ops[each.op].append(each)
    rows = []
    for op, part in ops.items():
        gained = [each.bytes for each in part if each.bytes >= 0]
        lost = [-each.bytes for each in part if each.bytes < 0]
        rows.append(
            {"op": op, "calls": len({each.op_id for each in part} - {None}), "allocations": len(gained)}
            | {"frees": len(lost), "allocated_bytes": sum(gained), "freed_bytes": sum(lost)}
            | {"net_bytes": sum(gained) - sum(lost), "largest_bytes": max(gained, default=None)}
        )
    return rows


def memory_live(changes: list[Change]) -> list[Row]:
    """The heap, replayed until the peak."""
    (peak,) = memory_peak(changes)
    if peak["peak_bytes"] is None:
        return []
    heap: dict[int, Change] = {}
    for each in usable(changes):
        address = each.args.get("Addr")
        if address is not None:
            heap.pop(address, None)
            if each.bytes > 0:
                heap[address] = each
        if each.total == peak["peak_bytes"]:
            break
    rows: list[Row] = [
        {
            "event_id": each.event_id,
            "origin": "window",
            "bytes": each.bytes,
            "address": address,
            "op": each.op,
        }
        | {"op_id": each.op_id, "step": each.step, "allocated_ns": each.at}
        | {"age_ns": peak["peak_at_ns"] - (each.at or 0)}
        for address, each in heap.items()
    ]
    rest = peak["peak_bytes"] - sum(each.bytes for each in heap.values())
    nothing = dict.fromkeys(("event_id", "address", "op", "op_id", "step", "allocated_ns", "age_ns"))
    return [*rows, {**nothing, "origin": "rest", "bytes": rest}]
