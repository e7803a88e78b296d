"""The timeline of a run and its flame view: the step and slices of a page, as its script reads them.

Each track has one base64 text of variable-length integers (7 bits per byte, low bits first). For each slice:
start since the start of the slice before, duration, category * 2 + (1 if it combines several slices), name
(0: none), operator, rank waited for + 1 (0: none); for a combination then its total duration and its number
of slices.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.display_names import category_name
from tracewarehouse.exact_text import one_line
from tracewarehouse.present.report.data import ReportData, Row, breakdown, report_data
from tracewarehouse.present.report.document import FlameView, Section, TimelineView, duration
from tracewarehouse.present.report.findings import finding_groups
from tracewarehouse.query.selection import Selection
from tracewarehouse.result import Result

MAX_SLICES = 60_000  # of the step; more are combined into bins
_MAX_OVERVIEW = 15_000  # of the recording outside the step
_MAX_RANKS = 64
_MAX_DETAILED_RANKS = 8  # with streams and threads, if the run has more than _MAX_DETAILED_RANKS ranks
_LONGEST = 3  # of each category and track are never combined

# Slices shorter than a bin are combined per track, category and bin, with their exact total.
_BINNED = """
WITH marked AS (
  SELECT *, dur_ns >= {bin_ns} OR coalesce(event_id IN ({named}), FALSE) OR row_number() OVER (
    PARTITION BY rank, lane, track, category ORDER BY dur_ns DESC, start_ns
  ) <= {longest} AS is_whole
  FROM ({slices})
)
SELECT rank, lane, track, category, start_ns, dur_ns, dur_ns AS total_ns, 1 AS count, name, op_name, waits_for
FROM marked WHERE is_whole
UNION ALL
SELECT rank, lane, track, category, min(start_ns), max(start_ns + dur_ns) - min(start_ns),
  sum(dur_ns)::BIGINT, count(*), NULL, NULL, NULL
FROM marked WHERE NOT is_whole
GROUP BY rank, lane, track, category, start_ns // {width_ns}
ORDER BY rank, lane, track, start_ns, dur_ns DESC, category
"""
_MEDIAN_STEP = """
WITH each AS (SELECT step, avg(period_ns) AS ns FROM step_summary WHERE NOT partial GROUP BY step)
SELECT step FROM each ORDER BY abs(ns - (SELECT median(ns) FROM each)), step LIMIT 1
"""


class Timeline(Struct, frozen=True):
    """Slices of ranks by lane and track, by a common clock that starts at `origin_ns`.

    `marks` are worst occurrences of findings: `rank`, `from` and `to` since the origin, and `rule`.
    `start_ns` and `end_ns` are the initial view. Within it, slices shorter than `bin_ns` are combined, in the
    rest of the recording those shorter than `overview_bin_ns`; 0 if none are.
    """

    run: str
    step: int | None
    origin_ns: int
    start_ns: int
    end_ns: int
    bin_ns: int
    overview_bin_ns: int
    rows: Sequence[Row]
    firsts: Mapping[int, int]  # the first event of each rank
    ranks: tuple[int, ...]
    detailed: tuple[int, ...]  # the ranks with streams and threads
    marks: Sequence[Mapping[str, object]]
    median_rank: int | None
    note: str = ""


def timeline(data: ReportData, findings: Sequence[Mapping[str, Any]]) -> Timeline | None:
    """The timeline of the step with the worst finding, else of the median step, else of the recording.

    `findings` are the rows of `tw check`, the worst first. None if there is nothing to draw.
    """
    offsets, note = _offsets(data)
    step = _step(data, findings)
    data.result_as("step_slices", "timeline", **({} if step is None else {"only_step": step}))
    ranks = _ranks(data, findings)
    if not ranks:
        return None
    detailed = ranks if len(ranks) <= _MAX_DETAILED_RANKS else _focus(data, ranks, findings)
    inside, outside = _slices(data, step, ranks, detailed, offsets)
    named = ", ".join(str(row["event_id"]) for row in findings if row["event_id"] is not None) or "-1"
    rows, bin_ns = _within(data, inside, MAX_SLICES, named)
    around, overview_bin_ns = _within(data, outside, _MAX_OVERVIEW, "-1") if outside else ([], 0)
    if not rows:
        return None
    start_ns, end_ns = _view(data, step, rows, offsets)
    origin_ns = min(row["start_ns"] for row in (*rows, *around))
    marks = [
        {
            "rank": row["rank"],
            "from": row["from_ns"] - offset - origin_ns,
            "to": row["to_ns"] - offset - origin_ns,
            "rule": row["rule"],
        }
        for row in findings
        if row["from_ns"] is not None and (offset := offsets.get(row["rank"])) is not None
    ]
    return Timeline(
        data.run,
        step,
        origin_ns,
        start_ns,
        end_ns,
        bin_ns,
        overview_bin_ns,
        (*rows, *around),
        {rank: start - offsets.get(rank, 0) for rank, start in _starts(data).items()},
        ranks,
        detailed,
        marks[:_MAX_RANKS],
        _median_rank(data, ranks),
        note + _left_out(data, ranks, detailed),
    )


def _offsets(data: ReportData) -> tuple[dict[int, int], str]:
    """The clock offset of each rank; those that cannot be compared are aligned at their first slice."""
    ranks = ", ".join(map(str, data.selected.ranks))
    rows = data.side.query(
        f"SELECT rank, offset_ns, reference_rank FROM clock_offsets WHERE rank IN ({ranks})"
    ).rows()
    if len({row["reference_rank"] for row in rows}) <= 1:
        return {row["rank"]: row["offset_ns"] for row in rows}, ""
    starts = _starts(data)
    offsets = {rank: starts.get(rank, data.start_ns) - data.start_ns for rank in data.selected.ranks}
    return offsets, "The clocks of these ranks cannot be compared; each rank begins at its first event. "


def _starts(data: ReportData) -> dict[int, int]:
    """The first timestamp of each rank that has one."""
    starts = ((each.rank, each.facts.get("start_ns")) for each in data.selected.by_rank)
    return {rank: start for rank, start in starts if isinstance(start, int)}


def median_step(data: ReportData) -> int | None:
    """The complete step with the median period over ranks; None without complete steps."""
    if not data.has_rows("step_summary"):
        return None
    rows = data.rows(_MEDIAN_STEP)
    return int(rows[0]["step"]) if rows else None


def _step(data: ReportData, findings: Sequence[Mapping[str, Any]]) -> int | None:
    """The step of the worst finding if it is known, else the median step; None without complete steps."""
    if not data.has_rows("step_summary"):
        return None
    complete = {row["step"] for row in data.rows("SELECT step FROM step_summary WHERE NOT partial")}
    if findings and findings[0].get("step") in complete:
        return int(findings[0]["step"])
    return median_step(data)


def _ranks(data: ReportData, findings: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """The drawn ranks: all of them, or those with findings and an even choice of the others."""
    rows = data.rows(
        "SELECT DISTINCT rank FROM (SELECT rank FROM step_slices UNION ALL SELECT rank FROM gpu_timeline)"
        " ORDER BY rank",
        "gpu_timeline",
    )
    ranks = [row["rank"] for row in rows]
    if len(ranks) <= _MAX_RANKS:
        return tuple(ranks)
    first = list(dict.fromkeys(row["rank"] for row in findings if row["rank"] in set(ranks)))[
        : _MAX_RANKS // 2
    ]
    others = [rank for rank in ranks if rank not in set(first)]
    every = len(others) / (_MAX_RANKS - len(first))
    return tuple(sorted([*first, *(others[int(at * every)] for at in range(_MAX_RANKS - len(first)))]))


def _focus(data: ReportData, ranks: Sequence[int], findings: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """The ranks of the worst findings and the median rank."""
    worst = [row["rank"] for row in findings if row["rank"] in set(ranks)]
    median = _median_rank(data, ranks)
    chosen = dict.fromkeys([*worst[:1], *([] if median is None else [median]), *worst, *ranks])
    return tuple(sorted([*chosen][: _MAX_DETAILED_RANKS // 2]))


def _median_rank(data: ReportData, ranks: Sequence[int]) -> int | None:
    """The drawn rank with the median computation time."""
    listed = ", ".join(map(str, ranks))
    rows = data.rows(
        f"""
        SELECT rank, coalesce(sum(segment_ns) FILTER (category = 'compute'), 0) AS ns
        FROM gpu_timeline WHERE rank IN ({listed}) GROUP BY rank ORDER BY ns, rank
        """
    )
    return int(rows[(len(rows) - 1) // 2]["rank"]) if rows else None


def _slices(
    data: ReportData,
    step: int | None,
    ranks: Sequence[int],
    detailed: Sequence[int],
    offsets: Mapping[int, int],
) -> tuple[str, str]:
    """The SELECTs of the slices of the step, and of the GPU time in the rest of the recording."""
    shift = " ".join(f"WHEN {rank} THEN {offset}" for rank, offset in offsets.items() if offset)
    offset = f"(CASE rank {shift} ELSE 0 END)" if shift else "0"
    listed, with_detail = (", ".join(map(str, each)) for each in (ranks, detailed))
    # Names of the segments of the GPU lane, from the activities of the step.
    segments = f"""
    SELECT rank, 'gpu' AS lane, 'all' AS track, category, gpu_timeline.start_ns - {offset} AS start_ns,
      segment_ns AS dur_ns, gpu_timeline.event_id, named.name, named.op_name, waits_for
    FROM gpu_timeline
    LEFT JOIN (SELECT rank, event_id, name, op_name FROM step_slices WHERE lane = 'stream') AS named
      USING (rank, event_id)
    WHERE rank IN ({listed})
    """
    tracks = f"""
    SELECT rank, lane, track, category, start_ns - {offset} AS start_ns, dur_ns, event_id, name, op_name,
      NULL::INTEGER AS waits_for
    FROM step_slices WHERE rank IN ({with_detail})
    """
    if step is None:
        return f"{segments} UNION ALL {tracks}", ""
    inside = f"{segments} AND step = {step} UNION ALL {tracks}"
    rest = segments.replace("'gpu' AS lane", "'rest' AS lane")
    return inside, f"{rest} AND step IS DISTINCT FROM {step} AND category <> 'idle_outside'"


def _within(data: ReportData, slices: str, limit: int, named: str) -> tuple[list[Row], int]:
    """The slices, combined into bins if there are more than `limit`; the bin width, 0 without bins."""

    def binned(bin_ns: int) -> str:
        width = bin_ns or 1
        return _BINNED.format(slices=slices, bin_ns=bin_ns, width_ns=width, named=named, longest=_LONGEST)

    def count(select: str) -> int:
        return int(data.row(f"SELECT count(*) AS count FROM ({select})")["count"])

    bin_ns = 0
    if count(slices) > limit:
        bin_ns = next((width for width in _WIDTHS_NS if count(binned(width)) <= limit), _WIDTHS_NS[-1])
    return data.rows(binned(bin_ns)), bin_ns


_WIDTHS_NS = [digit * 10**power for power in range(3, 11) for digit in (1, 2, 5)]


def _view(
    data: ReportData, step: int | None, rows: Sequence[Row], offsets: Mapping[int, int]
) -> tuple[int, int]:
    """The earliest start and the latest end of the step over ranks, or of the recording.

    A recording that is mostly outside of the GPU window (warm-up, loading) begins with the GPU window.
    """
    gpu = [row for row in rows if row["lane"] == "gpu" and row["category"] != "idle_outside"]
    if step is not None and not gpu:
        periods = data.side.query(
            f"SELECT rank, period_start_ns, period_ns FROM steps WHERE step = {step}"
        ).rows()
        starts = [row["period_start_ns"] - offsets.get(row["rank"], 0) for row in periods]
        ends = [start + row["period_ns"] for start, row in zip(starts, periods, strict=True)]
        return min(starts), max(ends)
    window, entire = _extent(gpu or rows), _extent(rows)
    is_most = 2 * (window[1] - window[0]) >= entire[1] - entire[0]
    return entire if step is None and is_most else window


def _extent(rows: Sequence[Row]) -> tuple[int, int]:
    return min(row["start_ns"] for row in rows), max(row["start_ns"] + row["dur_ns"] for row in rows)


def _left_out(data: ReportData, ranks: Sequence[int], detailed: Sequence[int]) -> str:
    parts = []
    if len(ranks) < data.ranks:
        parts.append(f"{len(ranks)} of {data.ranks:,} ranks are drawn.")
    if len(detailed) < len(ranks):
        listed = ", ".join(map(str, detailed))
        parts.append(f"Streams and threads are drawn for ranks {listed}.")
    return " ".join(parts)


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
    "call": "idle_queued",
}


def timeline_json(drawn: Timeline) -> str:
    """The data of the timeline, safe inside a script element."""
    # Text → its number, in order of first use.
    names: dict[str, int] = {"": 0}
    categories: dict[str, int] = {}
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
            "slices": _packed(slices, drawn.origin_ns, names, categories),
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
        "marks": drawn.marks,
        "names": [_shortened(name) for name in names],
        "categories": [
            {
                "key": key,
                "name": _CATEGORIES.get(key) or category_name(key),
                "color": _COLORS.get(key, key),
            }
            for key in categories
        ],
        "tracks": tracks,
    }
    return _script_json(value)


def _script_json(value: Mapping[str, Any]) -> str:
    """The value as JSON text, safe inside a script element."""
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


def _packed(rows: Iterable[Row], origin_ns: int, names: dict[str, int], categories: dict[str, int]) -> str:
    packed = bytearray()
    for number in _numbers(rows, origin_ns, names, categories):
        while number > 127:
            packed.append(number & 127 | 128)
            number >>= 7
        packed.append(number)
    return b64encode(packed).decode()


def _numbers(
    rows: Iterable[Row], origin_ns: int, names: dict[str, int], categories: dict[str, int]
) -> Iterator[int]:
    before = origin_ns
    for row in rows:
        is_combined = row["count"] > 1 or row["total_ns"] != row["dur_ns"]
        yield row["start_ns"] - before
        yield row["dur_ns"]
        yield 2 * categories.setdefault(row["category"], len(categories)) + is_combined
        yield names.setdefault(row["name"] or "", len(names))
        yield names.setdefault(row["op_name"] or "", len(names))
        yield 0 if row["waits_for"] is None else row["waits_for"] + 1
        if is_combined:
            yield row["total_ns"]
            yield row["count"]
        before = row["start_ns"]


MAX_FRAMES = 3_000
# The color of each category of the training thread, and its name on the page.
HOST_CATEGORIES: Mapping[str, tuple[str, str]] = {
    "data_loading": ("idle_dataloader", "data loading"),
    "operator": ("hidden_comm", "operator"),
    "call": ("idle_sync", "runtime call"),
    "python": ("exposed_comm", "Python"),
    "annotation": ("other", "annotation"),
    "other_slice": ("exposed_memory", "other slice"),
    "waiting": ("comm_wait", "waiting for a collective"),
    "unrecorded": ("idle_queued", "not recorded"),
}


def flame_view(data: ReportData, rank: int | None) -> FlameView | None:
    """The stacks of a rank, else of the first one, in the median step or, without steps, in its recording.

    None if no slice has another one inside.
    """
    chosen = data.selected.ranks[0] if rank is None else rank
    step = median_step(data)
    params = {} if step is None else {"only_step": step}
    rows = data.side.select(ranks=chosen).analyze_or_skip("host_stacks", **params).rows()
    if max((row["depth"] for row in rows), default=0) < 2:
        return None
    what = "the recording" if step is None else f"step {step}"
    length = duration(sum(row["self_ns"] for row in rows))
    option = "" if step is None else f" --only-step {step}"
    command = f"tw show host_stacks --run {data.selected.selector} --rank {chosen}{option}"
    return FlameView(flame_json(rows), f"Training thread of rank {chosen} in {what}, {length}", command)


def flame_json(rows: Sequence[Row]) -> str:
    """The frames as JSON text; small ones are combined by caller and category.

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
    return _script_json(value)


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


def median_steps(runs: Sequence[Selection]) -> tuple[list[Section], list[Section]]:
    """A median step of each side: its timeline, on one scale, and what the training thread runs in it."""
    views, flames = [], []
    for side in runs:
        with report_data(side) as data:
            views.append(_timeline_view(data))
            flames.append(flame_view(data, None))
    drawn = [view for view in views if view is not None]
    stacks = tuple(
        replace(view, label=f"{name}: {view.label}")
        for name, view in zip(("Base", "Head"), flames, strict=False)
        if view is not None
    )
    both = "Base above, head below"
    timelines = Section("timeline", "Timelines", f"{both}, on one scale; both move together.")
    host = Section("host", "Host", f"{both}: host time of a median step as stacks, each on its own scale.")
    return (
        [replace(timelines, timelines=tuple(drawn))] if len(drawn) == len(runs) else [],
        [replace(host, flames=stacks)] if stacks else [],
    )


def _timeline_view(data: ReportData) -> TimelineView | None:
    drawn = timeline(data, [])
    if drawn is None:
        return None
    what = "the recording" if drawn.step is None else f"median step {drawn.step}"
    note = f"{data.run}: {what}, {duration(drawn.end_ns - drawn.start_ns)}. {drawn.note}"
    return TimelineView(timeline_json(drawn), f"{data.run}, {what}", note)


def timeline_section(data: ReportData, findings: Result) -> Iterator[Section]:
    """The section; none if there is nothing to draw."""
    worst_first = [row for group in finding_groups(findings.rows()) for row in group]
    drawn = timeline(data, worst_first)
    if drawn is None:
        return
    what = "Recording" if drawn.step is None else f"Step {drawn.step}"
    title = "Timeline" if drawn.step is None else f"Timeline of step {drawn.step}"
    view = TimelineView(timeline_json(drawn), f"{what} of {data.run}", drawn.note)
    yield Section("timeline", title, _summary(data, drawn), timelines=(view,))


def _summary(data: ReportData, drawn: Timeline) -> str:
    length = duration(drawn.end_ns - drawn.start_ns)
    what = "The recording" if drawn.step is None else f"Step {drawn.step}"
    lanes = "threads" if breakdown(data) is None else "GPU time, streams and launching threads"
    ranks = "" if data.ranks == 1 else f" of {len(drawn.ranks)} ranks"
    text = f"{what}, {length}: {lanes}{ranks}."
    if drawn.bin_ns:
        text += f" Slices shorter than {duration(drawn.bin_ns)} are combined; their totals are exact."
    return text
