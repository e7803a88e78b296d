"""A timeline as the JSON text that the page's script reads: names once, slices as packed integers.

Each track has one base64 text of variable-length integers (7 bits per byte, low bits first). For each slice:
start since the start of the slice before, duration, category * 2 + (1 if it combines several slices), name
(0: none), operator, rank waited for + 1 (0: none); for a combination then its total duration and its number
of slices.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from tracewarehouse.display_names import category_name
from tracewarehouse.exact_text import one_line
from tracewarehouse.present.report.data import Row
from tracewarehouse.present.report.timeline import Timeline

_MAX_NAME = 160  # characters; the middle of a longer name is left out
_CATEGORIES = {
    "communication": "communication",
    "memory": "memcpy/memset",
    "annotation": "annotation",
    "dataloader": "waiting for data",
    "operator": "operator",
    "launch": "launch call",
    "blocking": "blocking call",
    "call": "runtime call",
}
# The color of each category of streams and threads; the others are colors themselves.
_COLORS = {
    "communication": "exposed_transfer",
    "memory": "exposed_memory",
    "annotation": "base",
    "dataloader": "idle_dataloader",
    "operator": "hidden_comm",
    "launch": "plain",
    "blocking": "idle_sync",
    "call": "idle_other",
}


class _Codes:
    """Consecutive numbers for texts, in order of first use."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._numbers = {text: at for at, text in enumerate(texts)}

    def of(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def texts(self) -> list[str]:
        return [*self._numbers]


def timeline_json(drawn: Timeline) -> str:
    """The data of the timeline, safe inside a script element."""
    names, categories = _Codes([""]), _Codes()
    rows = sorted(
        drawn.rows,
        key=lambda row: (row["rank"], row["lane"], row["track"], row["start_ns"], -row["dur_ns"]),
    )
    prefixes: dict[tuple[int, str], set[str]] = {}
    for row in rows:
        prefixes.setdefault((row["rank"], row["lane"]), set()).add(row["track"].partition("/")[0])
    tracks = [
        {
            "rank": rank,
            "lane": lane,
            "name": _track_name(lane, track, prefixes[rank, lane]),
            "slices": _packed(list(slices), drawn.origin_ns, names, categories),
        }
        for (rank, lane, track), slices in groupby(
            rows, key=lambda row: (row["rank"], row["lane"], row["track"])
        )
    ]
    value: dict[str, Any] = {
        "run": drawn.run,
        "step": drawn.step,
        "from": drawn.start_ns - drawn.origin_ns,
        "to": drawn.end_ns - drawn.origin_ns,
        "bin": drawn.bin_ns,
        "overviewBin": drawn.overview_bin_ns,
        "first": {str(rank): ns - drawn.origin_ns for rank, ns in drawn.firsts.items()},
        "median": drawn.median_rank,
        "detailed": drawn.detailed,
        "marks": [
            {
                "rank": mark.rank,
                "from": mark.start_ns - drawn.origin_ns,
                "to": mark.end_ns - drawn.origin_ns,
                "rule": mark.rule,
            }
            for mark in drawn.marks
        ],
        "names": [_shortened(name) for name in names.texts()],
        "categories": [
            {
                "key": key,
                "name": _CATEGORIES.get(key) or category_name(key),
                "color": _COLORS.get(key, key),
            }
            for key in categories.texts()
        ],
        "tracks": tracks,
    }
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _track_name(lane: str, track: str, prefixes: set[str]) -> str:
    """The stream or thread, with its device or process if the rank has several."""
    if lane in ("gpu", "rest"):
        return "GPU"
    return f"{lane} {track if len(prefixes) > 1 else track.partition('/')[2]}"


def _shortened(name: str) -> str:
    name = one_line(name)
    half = _MAX_NAME // 2
    return name if len(name) <= _MAX_NAME else f"{name[:half]} … {name[-half:]}"


def _packed(rows: Sequence[Row], origin_ns: int, names: _Codes, categories: _Codes) -> str:
    return b64encode(bytes(_bytes(_numbers(rows, origin_ns, names, categories)))).decode()


def _numbers(rows: Sequence[Row], origin_ns: int, names: _Codes, categories: _Codes) -> Iterator[int]:
    before = origin_ns
    for row in rows:
        is_combined = row["count"] > 1 or row["total_ns"] != row["dur_ns"]
        yield row["start_ns"] - before
        yield row["dur_ns"]
        yield 2 * categories.of(row["category"]) + is_combined
        yield names.of(row["name"] or "")
        yield names.of(row["op_name"] or "")
        yield 0 if row["waits_for"] is None else row["waits_for"] + 1
        if is_combined:
            yield row["total_ns"]
            yield row["count"]
        before = row["start_ns"]


def _bytes(numbers: Iterable[int]) -> Iterator[int]:
    for number in numbers:
        while number > 127:
            yield number & 127 | 128
            number >>= 7
        yield number
