"""Flows, allocations and quality rules by their definitions, row by row: the slow reference of the tests."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from activity_rows import SENTINELS, Row
from plain_tables import calls, end, gpu_activities, launched_by, open_around, pairs, places

Hit = tuple[str, int, int | None]
KNOWN = {"kernel", "gpu_memcpy", "gpu_memset", "cpu_op", "cuda_runtime", "cuda_driver", "user_annotation"}
KNOWN |= {"python_function", "overhead", "ac2g", "cuda_sync", "gpu_user_annotation", "cuda_event", "Trace"}
KNOWN |= {"Kernel", "fwdbwd", "async"}
LAUNCHES = re.compile(r"(?i)launch.*kernel|graphlaunch|memcpy|memset")


def starts(rows: Sequence[Row]) -> dict[int, int | None]:
    """Row of a flow's end → row of its start."""
    found: dict[int, int | None] = {}
    for n, row in enumerate(rows):
        if row["ph"] == "s":
            found[n] = n
        elif row["ph"] in ("t", "f"):
            found[n] = min(_tails(rows, row), default=(0, 0, 0, None))[-1]
    return found


def _tails(rows: Sequence[Row], tip: Row) -> Iterator[tuple[int, int, int, int]]:
    """Starts of the flow, the matching one first: before the end, close to it, early in the file."""
    for n, row in enumerate(rows):
        same = row["ph"] == "s" and row["raw_category"] == tip["raw_category"]
        if not same or tip.get("flow_id") is None or row.get("flow_id") != tip["flow_id"]:
            continue
        if row["ts_ns"] is None or tip["ts_ns"] is None:
            yield (2, 0, n, n)
        else:
            yield (row["ts_ns"] > tip["ts_ns"], abs(row["ts_ns"] - tip["ts_ns"]), n, n)


def bound(rows: Sequence[Row]) -> dict[int, int]:
    """Row of a flow → the operator that starts at the same time."""
    found, nested = {}, places(rows)
    for n, row in enumerate(rows):
        if row["ph"] not in ("s", "t", "f") or row["category"] in ("ac2g", None):
            continue
        key = (row["pid"], row["tid"], row["ts_ns"])
        here = [o for o in nested if rows[o]["category"] == "cpu_op" and None not in key]
        here = [o for o in here if (rows[o]["pid"], rows[o]["tid"], rows[o]["ts_ns"]) == key]
        if here:
            found[n] = max(here, key=lambda o: nested[o].pre)
    return found


def operators(rows: Sequence[Row]) -> dict[int, int | None]:
    """Row of an allocation → the operator that is open at that time."""
    found: dict[int, int | None] = {}
    nested = places(rows)
    for n, row in enumerate(rows):
        if row["ph"] not in ("i", "I") or row["name"] != "[memory]":
            continue
        found[n] = None
        if None in (row["pid"], row["tid"], row["ts_ns"]):
            continue
        here = [
            o for o in nested
            if rows[o]["category"] != "user_annotation" and rows[o]["ts_ns"] <= row["ts_ns"]
            if (rows[o]["pid"], rows[o]["tid"]) == (row["pid"], row["tid"])
        ]  # fmt: skip
        if here:
            latest = max(here, key=lambda o: (rows[o]["ts_ns"], nested[o].pre))
            around = [*open_around(rows, nested, latest), latest]
            open_ = [o for o in around if rows[o]["category"] == "cpu_op" and end(rows[o]) > row["ts_ns"]]
            found[n] = open_[-1] if open_ else None
    return found


def hits(rows: Sequence[Row]) -> list[Hit]:
    """Rule, row and affected time of every row that a rule applies to."""
    return [*_times(rows), *_shapes(rows), *_host(rows), *_device(rows), *_calls(rows), *_streams(rows)]


def _times(rows: Sequence[Row]) -> Iterator[Hit]:
    ended = {row["end_id"] for row in rows if row.get("end_id") is not None}
    for n, row in enumerate(rows):
        length, start = row.get("dur_text") or "", row.get("ts_text")
        negative, zero = length.startswith("-"), start is not None and _number(start) == 0
        if row["ph"] in ("X", "B") and row["dur_ns"] is None and negative:
            yield "negative_duration", n, None
        if row["ph"] in ("X", "B") and row["ts_ns"] is None and zero:
            yield "epoch_zero", n, None
        unusable = row["dur_ns"] is None and not negative and (row["ts_ns"] is not None or not zero)
        if row["ph"] == "X" and unusable:
            yield "invalid_time", n, None
        if row["ph"] == "B" and row.get("end_id") is None or row["ph"] == "E" and n not in ended:
            yield "unpaired_begin_end", n, None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _shapes(rows: Sequence[Row]) -> Iterator[Hit]:
    frames = {row["python_id"] for row in rows if row.get("python_id") is not None}
    seen = set()
    for n, row in enumerate(rows):
        bare = row["name"] is None and row["ts_ns"] is None and row.get("ts_text") is None
        if row["ph"] is None or bare and '"name"' not in (row.get("extra") or ""):
            yield "non_event", n, None
        if row["raw_category"] is not None and row["raw_category"] not in KNOWN:
            yield "unknown_category", n, row["dur_ns"]
        key = tuple(row[name] for name in ("ts_ns", "dur_ns", "pid", "tid", "name", "category"))
        if row["ph"] in ("X", "B") and row["ts_ns"] is not None and row["dur_ns"] is not None:
            if key in seen:
                yield "duplicate_slice", n, row["dur_ns"]
            seen.add(key)
        if row.get("python_parent_id") is not None and row["python_parent_id"] not in frames:
            yield "dangling_frame", n, row["dur_ns"]
        ids = (row.get("correlation"), row.get("external_id"))
        if any(each in SENTINELS and each != 0 for each in ids):
            yield "sentinel_id", n, None


def _host(rows: Sequence[Row]) -> Iterator[Hit]:
    for n, place in places(rows).items():
        if place.crosses:
            assert place.parent_id is not None
            yield "crossing_slice", n, end(rows[n]) - end(rows[place.parent_id])
    yield from (("flow_without_start", n, None) for n, start in starts(rows).items() if start is None)


def _device(rows: Sequence[Row]) -> Iterator[Hit]:
    links = launched_by(rows, places(rows))
    first_linked: dict[tuple[int, int], int] = {}
    for n in links:
        where = _stream(rows[n])
        first_linked[where] = min(first_linked.get(where, rows[n]["ts_ns"]), rows[n]["ts_ns"])
    processes = defaultdict(set)
    for n in gpu_activities(rows):
        processes[rows[n]["device"]].add(rows[n]["pid"])
    callers = defaultdict(set)
    for n in calls(rows):
        if pairs(rows[n]["correlation"]):
            callers[rows[n]["correlation"]].add(rows[n]["pid"])
    launching = {rows[call]["pid"] for call, _ in links.values()} - {None}
    is_merged = any(len(each - {None}) > 1 for each in callers.values())
    first = min(launching, default=None)
    for n in gpu_activities(rows):
        row, before = rows[n], first_linked.get(_stream(rows[n]))
        if n not in links:
            early = before is not None and row["ts_ns"] < before
            yield "before_window" if early else "missing_launch", n, row["dur_ns"]
        elif links[n][1] == "flow":
            yield "launch_by_flow", n, row["dur_ns"]
        if n in links and rows[links[n][0]]["ts_ns"] > row["ts_ns"]:
            yield "start_before_launch", n, rows[links[n][0]]["ts_ns"] - row["ts_ns"]
        sides = [row.get(f"block_{axis}") for axis in "xyz"]
        if None not in sides and not 1 <= sides[0] * sides[1] * sides[2] <= 1024:
            yield "invalid_block_size", n, row["dur_ns"]
        others = processes[row["device"]] - {None}
        is_later = row["device"] is not None and row["pid"] is not None and row["pid"] != min(others)
        if is_later or is_merged and n in links and rows[links[n][0]]["pid"] not in (None, first):
            yield "multiple_processes", n, row["dur_ns"]


def _stream(row: Row) -> tuple[int, int]:
    return (-1 if row["device"] is None else row["device"], -1 if row["stream"] is None else row["stream"])


def _calls(rows: Sequence[Row]) -> Iterator[Hit]:
    links = launched_by(rows, places(rows))
    launching = {call for call, _ in links.values()}
    ids = {rows[n]["correlation"] for n in links if pairs(rows[n]["correlation"])}
    of_call: dict[int, list[int]] = defaultdict(list)
    for n in sorted(links, key=lambda n: (rows[n]["ts_ns"], n)):
        name = rows[links[n][0]]["name"]
        if name is not None and "GraphLaunch" not in name:
            of_call[links[n][0]].append(n)
    rule = "many_activities_per_launch"
    yield from ((rule, n, rows[n]["dur_ns"]) for all_ in of_call.values() for n in all_[1:])
    for n in calls(rows):
        row = rows[n]
        launches = row["name"] is not None and LAUNCHES.search(row["name"]) is not None
        if n in launching and row["name"] is not None and not launches:
            yield "unknown_launch", n, row["dur_ns"]
        if launches and n not in launching and row["correlation"] not in ids:
            yield "launch_without_gpu_activity", n, row["dur_ns"]
    yield from (("correlation_reused", n, None) for n in _repeated_ids(rows))


def _repeated_ids(rows: Sequence[Row]) -> Iterator[int]:
    """Calls with the id of an earlier one of their process that they are no part of."""
    for n in calls(rows):
        row = rows[n]
        same = [
            o
            for o in calls(rows)
            if pairs(row["correlation"]) and rows[o]["correlation"] == row["correlation"]
        ]
        same.sort(key=lambda o: (rows[o]["ts_ns"], -end(rows[o]), o))
        outer = [o for at, o in enumerate(same) if all(end(rows[e]) < end(rows[o]) for e in same[:at])]
        if n in outer[1:] and rows[outer[outer.index(n) - 1]]["pid"] == row["pid"]:
            yield n


def _streams(rows: Sequence[Row]) -> Iterator[Hit]:
    reached: dict[Any, int] = {}
    for n in sorted(gpu_activities(rows), key=lambda n: (rows[n]["ts_ns"], rows[n]["dur_ns"], n)):
        row, where = rows[n], _stream(rows[n])
        if where in reached and reached[where] > row["ts_ns"]:
            yield "stream_overlap", n, min(reached[where], end(row)) - row["ts_ns"]
        reached[where] = max(reached.get(where, end(row)), end(row))


def summed(found: Sequence[Hit]) -> dict[str, tuple[int, int | None, int]]:
    """Rule → number of rows, affected time, first row."""
    by_rule: dict[str, list[Hit]] = defaultdict(list)
    for hit in found:
        by_rule[hit[0]].append(hit)
    return {
        rule: (len(of), _total([ns for _, _, ns in of if ns is not None]), min(n for _, n, _ in of))
        for rule, of in by_rule.items()
    }


def _total(lengths: list[int]) -> int | None:
    total = sum(lengths)
    return total if lengths and -(2**63) <= total < 2**63 else None
