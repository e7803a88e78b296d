"""Random activities that coincide in time, thread and id, with values that only some rules read."""

from __future__ import annotations

from random import Random
from typing import Any

from activity_rows import random_rows, slice_

TEXTS = ("-3", "0", "0.0", "N/A", "1e3", None)
BLOCKS = ((32, 1, 1), (1024, 2, 1), (0, 1, 1), (1024, 1, 1), (-1, -1, 5), (2**40, 2**40, 0), (32, None, 1))
RAW_CATEGORIES = ("kernel", "Kernel", "weird", None)


def odd_rows(seed: int) -> list[dict[str, Any]]:
    """Random rows of every kind that builders read."""
    luck = Random(seed)
    rows = random_rows(seed)
    times = [row["ts_ns"] for row in rows if row["ts_ns"] is not None] or [0]
    for row in rows:
        _twist(luck, row)
    for _ in range(luck.choice((0, 10, 60))):
        rows.append(_new(luck, luck.choice(times)))
    rows += [dict(row) for row in luck.sample(rows, len(rows) // 8)]
    luck.shuffle(rows)
    return rows


def _twist(luck: Random, row: dict[str, Any]) -> None:
    """Adds odd values to an existing row."""
    if row["category"] == "kernel":
        row |= dict(zip(("block_x", "block_y", "block_z"), luck.choice(BLOCKS), strict=True))
        row |= {"pid": luck.choice(("0", "0", "[TP1] 0", None))}
    if row["category"] == "python_function":
        row |= {"python_id": luck.randrange(9), "python_parent_id": luck.choice((None, 1, 2, 50))}
    if luck.random() < 0.05 and row["ph"] not in ("s", "f"):
        row |= {"raw_category": luck.choice(RAW_CATEGORIES)}
    if luck.random() < 0.05:
        row |= {"dur_ns": None, "dur_text": luck.choice(TEXTS)}
    if luck.random() < 0.03:
        row |= {"ts_ns": None, "dur_ns": None, "ts_text": luck.choice(TEXTS)}
    if luck.random() < 0.05:
        row |= {"external_id": luck.choice((0, -1, 2**32 - 1, 2**63 - 1, 5))}


def _new(luck: Random, around: int) -> dict[str, Any]:
    """A flow, an allocation, an unpaired begin or end, or a row that is not an event."""
    ts = luck.choice((around, around + luck.randrange(-3, 4), None))
    place = {"pid": luck.choice(("1", "1", "", None)), "tid": luck.choice(("1", "2", None))}
    row = slice_(None, 0, None) | {"ts_ns": ts} | place
    kind = luck.choice(("flow", "flow", "flow", "memory", "begin_end", "nothing"))
    if kind == "flow":
        category = luck.choice(("ac2g", "fwdbwd", "fwdbwd", None))
        raw = luck.choice((category, "async"))
        ident = luck.choice(("1", "1", "2", "3", None))
        return row | {"ph": luck.choice("stf"), "category": category, "raw_category": raw, "flow_id": ident}
    if kind == "memory":
        more = {"bytes": luck.randrange(-9, 9), "device_type": 1, "event_index": luck.randrange(9)}
        return row | {"ph": luck.choice("iI"), "name": luck.choice(("[memory]", "[memory]", "x"))} | more
    if kind == "begin_end":
        return row | {"ph": luck.choice("BE"), "name": "b", "end_id": luck.choice((None, None, 3, 5))}
    bare = {"ph": luck.choice((None, "i", "X")), "ts_ns": None, "category": None, "raw_category": None}
    return (
        row | bare | {"extra": luck.choice((None, '{"name": 5}', "7")), "ts_text": luck.choice((None, "z"))}
    )
