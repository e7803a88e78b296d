"""Host time of one rank and one step as a flame view: frames by stack, with exact self times."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tracewarehouse.exact_text import one_line
from tracewarehouse.present.report.data import ReportData, Row
from tracewarehouse.present.report.document import FlameView
from tracewarehouse.present.report.text import duration
from tracewarehouse.present.report.timeline import median_step

MAX_FRAMES = 3_000
_MAX_NAME = 160  # characters; the middle of a longer name is left out
# The color of each category of the training thread, and its name on the page.
HOST_CATEGORIES: Mapping[str, tuple[str, str]] = {
    "data_loading": ("idle_dataloader", "data loading"),
    "operator": ("hidden_comm", "operator"),
    "call": ("idle_sync", "runtime call"),
    "python": ("exposed_comm", "Python"),
    "annotation": ("other", "annotation"),
    "other_slice": ("exposed_memory", "other slice"),
    "unrecorded": ("idle_other", "not recorded"),
}


def flame_view(data: ReportData, rank: int | None) -> FlameView | None:
    """The stacks of a rank, else of the first one, in the median step or, without steps, in its recording.

    None if no slice has another one inside.
    """
    chosen = data.selected.ranks[0] if rank is None else rank
    step = median_step(data)
    params = {} if step is None else {"only_step": step}
    rows = data.side.select(ranks=chosen).run_or_skip("host_stacks", **params).rows()
    if max((row["depth"] for row in rows), default=0) < 2:
        return None
    what = "the recording" if step is None else f"step {step}"
    length = duration(sum(row["self_ns"] for row in rows))
    option = "" if step is None else f" --only-step {step}"
    command = f"tw show host_stacks --run {data.selected.selector} --rank {chosen}{option}"
    return FlameView(flame_json(rows), f"Training thread of rank {chosen} in {what}, {length}", command)


def flame_json(rows: Sequence[Row]) -> str:
    """The frames, safe inside a script element; small ones are combined by caller and category.

    `frames` has [caller's index or -1, category, name, count, self time] for each, callers first; a
    combination has name -1 and the number of its frames as its count.
    """
    names: dict[str, int] = {}
    largest = sorted(rows, key=lambda row: (row["node_id"] is not None, -row["total_ns"], row["depth"]))
    ordered = sorted(
        largest[:MAX_FRAMES], key=lambda row: (row["depth"], -row["total_ns"], row["node_id"] or -1)
    )
    places = {row["node_id"]: at for at, row in enumerate(ordered) if row["node_id"] is not None}
    categories = [*HOST_CATEGORIES]
    frames = [
        [
            places.get(row["parent_id"], -1),
            categories.index(row["category"]),
            names.setdefault(_shortened(row["name"] or "no slice recorded"), len(names)),
            row["count"],
            row["self_ns"],
        ]
        for row in ordered
    ]
    combined = _combined(rows, places)
    frames += [[at, categories.index(key), -1, count, ns] for (at, key), (count, ns) in combined.items()]
    value: dict[str, Any] = {
        "categories": [[key, color, name] for key, (color, name) in HOST_CATEGORIES.items()],
        "names": [*names],
        "frames": frames,
    }
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _combined(rows: Sequence[Row], places: Mapping[int, int]) -> dict[tuple[int, str], tuple[int, int]]:
    """(kept caller's index, category) → number and self time of the frames below it that are left out."""
    callers = {row["node_id"]: row["parent_id"] for row in rows}
    sums: dict[tuple[int, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in rows:
        node = row["node_id"]
        if node is None or node in places:
            continue
        while node is not None and node not in places:
            node = callers[node]
        key = (-1 if node is None else places[node], row["category"])
        count, ns = sums[key]
        sums[key] = (count + 1, ns + row["self_ns"])
    return sums


def _shortened(name: str) -> str:
    name = one_line(name)
    half = _MAX_NAME // 2
    return name if len(name) <= _MAX_NAME else f"{name[:half]} … {name[-half:]}"
