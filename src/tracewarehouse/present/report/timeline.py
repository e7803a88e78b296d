"""The timeline of a run and its flame view: the step and slices of a page, as its script reads them.

Slices and frames are base64 texts of variable-length integers (7 bits per byte, low bits first). For each
slice of a track: start since the start of the slice before, duration, kind; of a combination then its total
duration and its number of slices. A kind is [category, name (0: none), operator, rank waited for + 1
(0: none), whether it combines several slices].
"""

from __future__ import annotations

from base64 import b64encode
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.display_names import category_name
from tracewarehouse.exact_text import one_line, rank_list
from tracewarehouse.present.report.data import ReportData, Row, breakdown, report_data
from tracewarehouse.present.report.document import (
    FlameView,
    Section,
    TimelineView,
    duration,
    script_json,
)
from tracewarehouse.present.report.findings import MAX_FINDINGS, Group, finding_groups, jump
from tracewarehouse.query.selection import Selection
from tracewarehouse.result import Result

MAX_SLICES = 20_000  # of the drawn steps; more are combined into bins
_MAX_OVERVIEW = 5_000  # of the recording outside of them
_MAX_RANKS = 64
_MAX_DETAILED_RANKS = 8  # with streams and threads, if the run has more than _MAX_DETAILED_RANKS ranks
_LONGEST = 3  # of each category and track are never combined
# Bins are this much wider in steps with a finding, and in steps beside them, than at the finding itself.
_OF_STEP, _OF_NEIGHBOR = 16, 64

# With the factor of the time at which a slice begins, and whether it is never combined.
_WEIGHED = """
SELECT slices.*, coalesce(factor, {default}) AS factor,
  coalesce(event_id IN ({named}), FALSE) OR row_number() OVER (
    PARTITION BY slices.rank, lane, track, category ORDER BY dur_ns DESC, start_ns
  ) <= {longest} AS is_whole
FROM ({slices}) AS slices
ASOF LEFT JOIN (VALUES {factors}) AS factors (rank, from_ns, factor)
  ON factors.rank = slices.rank AND factors.from_ns <= slices.start_ns
"""
# Slices shorter than a bin are combined per track, category, step and bin, with their exact total.
_BINNED = """
SELECT rank, lane, track, category, step, start_ns, dur_ns, dur_ns AS total_ns, 1 AS count,
  name, op_name, waits_for
FROM {slices} WHERE is_whole OR dur_ns >= {bin_ns} * factor
UNION ALL
SELECT rank, lane, track, category, step, min(start_ns), max(start_ns + dur_ns) - min(start_ns),
  sum(dur_ns)::BIGINT, count(*), NULL, NULL, NULL
FROM {slices} WHERE NOT (is_whole OR dur_ns >= {bin_ns} * factor)
GROUP BY rank, lane, track, category, step, start_ns // greatest({bin_ns} * factor, 1)
ORDER BY rank, lane, track, start_ns, dur_ns DESC, category
"""
# A collective on the host waits first; one on a GPU is split in the GPU lane.
_WAIT_PARTS = """
SELECT rank, 'thread' AS lane, event_id, 'host_wait' AS category, 0 AS after_ns, wait_ns AS part_ns,
  last_rank AS waits_for
FROM collective_waits WHERE wait_ns > 0
UNION ALL
SELECT rank, 'thread', event_id, NULL, wait_ns, dur_ns - wait_ns, NULL FROM collective_waits WHERE wait_ns > 0
"""
_MEDIAN_STEP = """
WITH each AS (SELECT step, avg(period_ns) AS ns FROM step_summary WHERE NOT partial GROUP BY step)
SELECT step FROM each ORDER BY abs(ns - (SELECT median(ns) FROM each)), step LIMIT 1
"""


class Span(Struct, frozen=True):
    """A time on a rank, by the common clock: of a step, or of a mark, with the `key` of a finding's link.

    `factor` is how much wider bins are in it than at a finding.
    """

    rank: int
    start_ns: int
    end_ns: int
    step: int = -1
    key: str = ""
    factor: int = 1


class Timeline(Struct, frozen=True):
    """Slices of ranks by lane and track, by a common clock; `zero_ns` is the first event of the run.

    `start_ns` and `end_ns` are the initial view, that of `step`. `steps` are drawn with names, streams and
    threads. `spans` are times with the duration below which slices are combined in them, in the rest of the
    recording those shorter than `overview_bin_ns`; 0 if none are.
    """

    run: str
    step: int | None
    steps: tuple[int, ...]
    zero_ns: int
    start_ns: int
    end_ns: int
    spans: Sequence[tuple[int, int, int]]
    overview_bin_ns: int
    rows: Sequence[Row]
    ranks: tuple[int, ...]
    detailed: tuple[int, ...]  # the ranks with streams and threads
    marks: Sequence[Span]  # the worst occurrence of each finding
    median_rank: int | None
    note: str = ""


def timeline(data: ReportData, groups: Sequence[Group]) -> Timeline | None:
    """The timeline of the steps of the worst occurrences, and of those beside them.

    Without findings it is that of the median step, without complete steps of the recording. `groups` are
    findings, the worst first. None if there is nothing to draw.
    """
    offsets, zero_ns, note = _clocks(data)
    marks = list(_marks(groups, offsets))
    periods = _periods(data, offsets)
    finding_steps, steps = _steps(data, marks, periods)
    only = {"only_steps": ",".join(map(str, steps))} if steps else {}
    worst = [row for group in groups for row in group]
    first = list(dict.fromkeys([mark.rank for mark in marks] + [row["rank"] for row in worst]))
    ranks = _ranks(data, first, only)
    data.result_as("drawn", "timeline", ranks or None, **only)
    detailed = ranks if len(ranks) <= _MAX_DETAILED_RANKS else _focus(data, ranks, first)
    if not ranks:
        return None
    detail_spans = list(_spans(marks, periods, finding_steps, steps, ranks))
    inside, outside = _slices(data, steps, ranks, detailed, offsets)
    named_events = [row["event_id"] for row in worst if row["event_id"] is not None]
    rows, bin_ns = _within(data, "inside_steps", inside, MAX_SLICES, detail_spans, named_events)
    around, overview_bin_ns = _within(data, "outside_steps", outside, _MAX_OVERVIEW) if outside else ([], 0)
    if not rows:
        return None
    home = finding_steps[0] if finding_steps else None
    start_ns, end_ns = _view(home, rows, periods)
    drawn = detail_spans if steps else [*detail_spans, Span(ranks[0], *_extent(rows), factor=_OF_STEP)]
    return Timeline(
        run=data.run,
        step=home,
        steps=steps,
        zero_ns=zero_ns,
        start_ns=start_ns,
        end_ns=end_ns,
        spans=[*dict.fromkeys((each.start_ns, each.end_ns, bin_ns * each.factor) for each in drawn)],
        overview_bin_ns=overview_bin_ns,
        rows=(*rows, *around),
        ranks=ranks,
        detailed=detailed,
        marks=marks,
        median_rank=_median_rank(data, ranks),
        note=note + _left_out(data, ranks, detailed),
    )


def _steps(
    data: ReportData, marks: Sequence[Span], periods: Sequence[Span]
) -> tuple[list[int], tuple[int, ...]]:
    """The steps with a mark, else the median one; and these with the steps beside them."""
    marked_steps = list(dict.fromkeys(step for mark in marks for step in _steps_of(mark, periods)))
    median = median_step(data) if periods and not marked_steps else None
    marked_steps += [] if median is None else [median]
    beside = {step + by for step in marked_steps for by in (-1, 0, 1)}
    return marked_steps, tuple(sorted(beside & {period.step for period in periods}))


def _spans(
    marks: Sequence[Span],
    periods: Sequence[Span],
    marked_steps: Sequence[int],
    steps: Sequence[int],
    ranks: Sequence[int],
) -> Iterator[Span]:
    """The periods of drawn steps, and the times of marks with half of their length on each side."""
    for period in periods:
        if period.step in steps:
            yield replace(period, factor=_OF_STEP if period.step in marked_steps else _OF_NEIGHBOR)
    for mark in marks:
        half = (mark.end_ns - mark.start_ns) // 2 + 1
        for rank in ranks:
            yield Span(rank, mark.start_ns - half, mark.end_ns + half)


def _clocks(data: ReportData) -> tuple[dict[int, int], int, str]:
    """The clock offset of each rank, and the first event; ranks without a common clock begin at theirs.

    They are those of the entire run, also if only some of its ranks are selected.
    """
    whole = replace(data.selected, ranks=data.selected.version.ranks)
    rows = data.side.over([whole]).query("SELECT rank, offset_ns, reference_rank FROM clock_offsets").rows()
    starts = {
        each.rank: start for each in whole.by_rank if isinstance(start := each.facts.get("start_ns"), int)
    }
    if len({row["reference_rank"] for row in rows}) <= 1:
        offsets = {row["rank"]: row["offset_ns"] for row in rows}
        first = min((start - offsets.get(rank, 0) for rank, start in starts.items()), default=data.start_ns)
        return offsets, first, ""
    offsets = {rank: starts.get(rank, data.start_ns) - data.start_ns for rank in whole.ranks}
    note = "The clocks of these ranks cannot be compared; each rank begins at its first event. "
    return offsets, data.start_ns, note


def _marks(groups: Sequence[Group], offsets: Mapping[int, int]) -> Iterator[Span]:
    """The worst occurrence of each finding on the page that has one."""
    for group in groups[:MAX_FINDINGS]:
        timed = (row for row in group if row["from_ns"] is not None and row["rank"] in offsets)
        for row in islice(timed, 1):
            start, end = (row[name] - offsets[row["rank"]] for name in ("from_ns", "to_ns"))
            yield Span(row["rank"], start, end, key=jump(row))


def _periods(data: ReportData, offsets: Mapping[int, int]) -> list[Span]:
    """The steps of all ranks; none without complete ones."""
    if not data.has_rows("step_summary") or median_step(data) is None:
        return []
    rows = data.side.query("SELECT rank, step, period_start_ns, period_ns FROM steps").rows()
    starts = (row["period_start_ns"] - offsets.get(row["rank"], 0) for row in rows)
    return [
        Span(row["rank"], start, start + row["period_ns"], row["step"])
        for row, start in zip(rows, starts, strict=True)
    ]


def _steps_of(mark: Span, periods: Iterable[Span]) -> list[int]:
    """The first and the last step that a mark overlaps."""
    steps = sorted(
        period.step
        for period in periods
        if period.rank == mark.rank and period.start_ns <= mark.end_ns and period.end_ns > mark.start_ns
    )
    return [steps[0], steps[-1]] if steps else []


def median_step(data: ReportData) -> int | None:
    """The complete step with the median period over ranks; None without complete steps."""
    if not data.has_rows("step_summary"):
        return None
    rows = data.rows(_MEDIAN_STEP)
    return int(rows[0]["step"]) if rows else None


def _ranks(data: ReportData, worst: Sequence[int], only: Mapping[str, str]) -> tuple[int, ...]:
    """The drawn ranks: all of them, or those with findings and an even choice of the others."""
    drawable = {row["rank"] for row in data.rows("SELECT DISTINCT rank FROM gpu_timeline", "gpu_timeline")}
    if others := [rank for rank in data.selected.ranks if rank not in drawable]:
        data.result_as("others", "timeline", others, **only)
        drawable |= {row["rank"] for row in data.rows("SELECT DISTINCT rank FROM others")}
    ranks = sorted(drawable)
    if len(ranks) <= _MAX_RANKS:
        return tuple(ranks)
    preferred = [rank for rank in worst if rank in set(ranks)][: _MAX_RANKS // 2]
    others = [rank for rank in ranks if rank not in set(preferred)]
    count = _MAX_RANKS - len(preferred)
    evenly = [others[number * len(others) // count] for number in range(count)]
    return tuple(sorted([*preferred, *evenly]))


def _focus(data: ReportData, ranks: Sequence[int], worst: Sequence[int]) -> tuple[int, ...]:
    """The ranks of the worst findings and the median rank."""
    worst = [rank for rank in worst if rank in set(ranks)]
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
    steps: Sequence[int],
    ranks: Sequence[int],
    detailed: Sequence[int],
    offsets: Mapping[int, int],
) -> tuple[str, str]:
    """The SELECTs of the slices of the steps, and of the GPU time in the rest of the recording."""
    data.result("collective_waits")
    shift = " ".join(f"WHEN {rank} THEN {offset}" for rank, offset in offsets.items() if offset)
    offset = f"(CASE rank {shift} ELSE 0 END)" if shift else "0"
    listed, with_detail = (", ".join(map(str, each)) for each in (ranks, detailed))
    # Names of the segments of the GPU lane, from the activities of the steps.
    segments = f"""
    SELECT rank, 'gpu' AS lane, 'all' AS track, category, gpu_timeline.start_ns - {offset} AS start_ns,
      segment_ns AS dur_ns, gpu_timeline.event_id, named.name, named.op_name, waits_for, gpu_timeline.step
    FROM gpu_timeline
    LEFT JOIN (SELECT rank, event_id, name, op_name FROM drawn WHERE lane = 'stream') AS named
      USING (rank, event_id)
    WHERE rank IN ({listed})
    """
    tracks = f"""
    SELECT rank, lane, track, coalesce(part.category, drawn.category) AS category,
      start_ns - {offset} + coalesce(part.after_ns, 0) AS start_ns, coalesce(part.part_ns, dur_ns) AS dur_ns,
      event_id, name, op_name, part.waits_for, NULL::BIGINT AS step
    FROM drawn
    LEFT JOIN ({_WAIT_PARTS}) AS part USING (rank, lane, event_id)
    WHERE rank IN ({with_detail})
    """
    if not steps:
        return f"{segments} UNION ALL {tracks}", ""
    is_drawn = f"coalesce(step IN ({', '.join(map(str, steps))}), FALSE)"
    inside = f"{segments} AND {is_drawn} UNION ALL {tracks}"
    outside = segments.replace("'gpu' AS lane", "'rest' AS lane")
    return inside, f"{outside} AND NOT {is_drawn} AND category <> 'idle_outside'"


def _within(
    data: ReportData,
    name: str,
    slices: str,
    limit: int,
    spans: Sequence[Span] = (),
    named: Sequence[int] = (),
) -> tuple[list[Row], int]:
    """The slices, combined into bins if there are more than `limit`; the smallest bin, 0 without bins."""
    factors = [*_factors(spans)] or [(-1, 0, 1)]
    weighed = _WEIGHED.format(
        slices=slices,
        default=_OF_STEP,
        named=", ".join(map(str, named)) or "-1",
        longest=_LONGEST,
        factors=", ".join(map(str, factors)),
    )
    data.keep(name, weighed)

    def is_small(bin_ns: int) -> bool:
        select = _BINNED.format(slices=name, bin_ns=bin_ns)
        return int(data.row(f"SELECT count(*) AS count FROM ({select})")["count"]) <= limit

    number = 0 if is_small(0) else bisect_left(_WIDTHS_NS, True, 1, len(_WIDTHS_NS) - 1, key=is_small)
    return data.rows(_BINNED.format(slices=name, bin_ns=_WIDTHS_NS[number])), _WIDTHS_NS[number]


_WIDTHS_NS = [0, *(digit * 10**power for power in range(1, 11) for digit in (1, 2, 5))]


def _factors(spans: Sequence[Span]) -> Iterator[tuple[int, int, int]]:
    """The smallest factor of the spans of a rank, as (rank, time from which it holds, factor)."""
    by_rank: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        by_rank[span.rank].append(span)
    for rank, own in by_rank.items():
        for edge in sorted({edge for span in own for edge in (span.start_ns, span.end_ns)}):
            covering = (span.factor for span in own if span.start_ns <= edge < span.end_ns)
            yield rank, edge, min(covering, default=_OF_STEP)


def _view(step: int | None, rows: Sequence[Row], periods: Sequence[Span]) -> tuple[int, int]:
    """The earliest start and the latest end of the step over ranks, or of the recording.

    A recording that is mostly outside of the GPU window (warm-up, loading) begins with the GPU window.
    """
    gpu = [row for row in rows if row["lane"] == "gpu" and row["category"] != "idle_outside"]
    if step is not None:
        step_rows = [row for row in gpu if row["step"] == step]
        own = [period for period in periods if period.step == step]
        return (
            _extent(step_rows)
            if step_rows
            else (min(each.start_ns for each in own), max(each.end_ns for each in own))
        )
    window, entire = _extent(gpu or rows), _extent(rows)
    is_most = 2 * (window[1] - window[0]) >= entire[1] - entire[0]
    return entire if is_most else window


def _extent(rows: Sequence[Row]) -> tuple[int, int]:
    return min(row["start_ns"] for row in rows), max(row["start_ns"] + row["dur_ns"] for row in rows)


def _left_out(data: ReportData, ranks: Sequence[int], detailed: Sequence[int]) -> str:
    sentences = []
    if len(ranks) < data.ranks:
        sentences.append(f"{len(ranks)} of {data.ranks:,} ranks are drawn.")
    if len(detailed) < len(ranks):
        listed = ", ".join(map(str, detailed))
        sentences.append(f"Streams and threads are drawn for ranks {listed}.")
    return " ".join(sentences)


_MAX_NAME = 160  # characters; the middle of a longer name is left out
# The color of each category of streams and threads, and its name; the others are colors themselves.
_CATEGORIES = {
    "communication": ("exposed_transfer", "communication"),
    "memory": ("exposed_memory", "memcpy/memset"),
    "annotation": ("base", "annotation"),
    "dataloader": ("idle_dataloader", "waiting for data"),
    "host_wait": ("comm_wait", "waiting for another rank"),
    "operator": ("hidden_comm", "operator"),
    "launch": ("plain", "launch call"),
    "blocking": ("idle_sync", "blocking call"),
    "call": ("head", "runtime call"),
}


def timeline_json(drawn: Timeline) -> str:
    """The data of the timeline, safe inside a script element."""
    origin_ns = min(drawn.zero_ns, *(row["start_ns"] for row in drawn.rows))
    # Text → its number, in order of first use.
    names: dict[str, int] = {"": 0}
    categories: dict[str, int] = {}
    kinds: dict[_Kind, int] = {}
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
            "slices": _packed(_numbers(slices, origin_ns, names, categories, kinds)),
        }
        for (rank, lane, track), slices in groupby(
            rows, key=lambda row: (row["rank"], row["lane"], row["track"])
        )
    ]
    value: dict[str, Any] = {
        "run": drawn.run,
        "step": drawn.step,
        "steps": drawn.steps,
        "zero": drawn.zero_ns - origin_ns,
        "from": drawn.start_ns - origin_ns,
        "to": drawn.end_ns - origin_ns,
        "spans": [[start - origin_ns, end - origin_ns, bin_ns] for start, end, bin_ns in drawn.spans],
        "overviewBin": drawn.overview_bin_ns,
        "median": drawn.median_rank,
        "marks": [
            {
                "key": mark.key,
                "rank": mark.rank,
                "from": mark.start_ns - origin_ns,
                "to": mark.end_ns - origin_ns,
            }
            for mark in drawn.marks
        ],
        "names": [_shortened(name) for name in names],
        "categories": [
            {"key": key, "name": name, "color": color}
            for key in categories
            for color, name in [_CATEGORIES.get(key) or (key, category_name(key))]
        ],
        "kinds": [*kinds],
        "tracks": tracks,
    }
    return script_json(value)


def _track_name(lane: str, track: str, prefixes: set[str]) -> str:
    """The stream or thread, with its device or process if the rank has several."""
    if lane in ("gpu", "rest"):
        return "GPU"
    return f"{lane} {track if len(prefixes) > 1 else track.partition('/')[2]}"


def _shortened(name: str) -> str:
    name = one_line(name)
    half = _MAX_NAME // 2
    return name if len(name) <= _MAX_NAME else f"{name[:half]} … {name[-half:]}"


def _packed(numbers: Iterable[int]) -> str:
    packed = bytearray()
    for number in numbers:
        while number > 127:
            packed.append(number & 127 | 128)
            number >>= 7
        packed.append(number)
    return b64encode(packed).decode()


_Kind = tuple[int, int, int, int, int]


def _numbers(
    rows: Iterable[Row],
    origin_ns: int,
    names: dict[str, int],
    categories: dict[str, int],
    kinds: dict[_Kind, int],
) -> Iterator[int]:
    previous_ns = origin_ns
    for row in rows:
        is_combined = row["count"] > 1 or row["total_ns"] != row["dur_ns"]
        kind = (
            categories.setdefault(row["category"], len(categories)),
            names.setdefault(row["name"] or "", len(names)),
            names.setdefault(row["op_name"] or "", len(names)),
            0 if row["waits_for"] is None else row["waits_for"] + 1,
            int(is_combined),
        )
        yield row["start_ns"] - previous_ns
        yield row["dur_ns"]
        yield kinds.setdefault(kind, len(kinds))
        if is_combined:
            yield row["total_ns"]
            yield row["count"]
        previous_ns = row["start_ns"]


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


def flame_view(data: ReportData, rank: int | None = None, step: int | None = None) -> FlameView | None:
    """The stacks of a rank, else of the first one, in a step, else the median one or the recording.

    None if no slice has another one inside.
    """
    chosen = data.selected.ranks[0] if rank is None else rank
    step = median_step(data) if step is None else step
    params = {} if step is None else {"only_step": step}
    rows = data.side.select(ranks=chosen).analyze_or_skip("host_stacks", **params).rows()
    if max((row["depth"] for row in rows), default=0) < 2:
        return None
    scope = "the recording" if step is None else f"step {step}"
    length = duration(sum(row["self_ns"] for row in rows))
    option = "" if step is None else f" --only-step {step}"
    command = f"tw show host_stacks --run {data.selected.selector} --rank {chosen}{option}"
    return FlameView(flame_json(rows), f"Training thread of rank {chosen} in {scope}, {length}", command)


def flame_json(rows: Sequence[Row]) -> str:
    """The frames as JSON text; small ones are combined by caller and category.

    `frames` has the caller's number (0: none; those of frames begin at 1), category, name's number, count and
    self time of each, callers first; a combination has name 0 and the number of its frames as its count.
    """
    names: dict[str, int] = {}
    largest = sorted(rows, key=lambda row: (row["node_id"] is not None, -row["total_ns"], row["depth"]))
    ordered = sorted(
        largest[:MAX_FRAMES], key=lambda row: (row["depth"], -row["total_ns"], row["node_id"] or -1)
    )
    places = {row["node_id"]: nth for nth, row in enumerate(ordered, 1) if row["node_id"] is not None}
    categories = [*HOST_CATEGORIES]
    frames = [
        [
            places.get(row["parent_id"], 0),
            categories.index(row["category"]),
            names.setdefault(_shortened(row["name"] or "no slice recorded"), 1 + len(names)),
            row["count"],
            row["self_ns"],
        ]
        for row in ordered
    ]
    combined = _combined(rows, places)
    frames += [[nth, categories.index(key), 0, count, ns] for (nth, key), (count, ns) in combined.items()]
    value: dict[str, Any] = {
        "categories": [[key, color, name] for key, (color, name) in HOST_CATEGORIES.items()],
        "names": [*names],
        "frames": _packed(chain.from_iterable(frames)),
    }
    return script_json(value)


def _combined(rows: Sequence[Row], places: Mapping[int, int]) -> dict[tuple[int, str], tuple[int, int]]:
    """(kept caller's number, category) → number and self time of the frames below it that are left out."""
    callers = {row["node_id"]: row["parent_id"] for row in rows}
    sums: dict[tuple[int, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in rows:
        node = row["node_id"]
        if node is None or node in places:
            continue
        while node is not None and node not in places:
            node = callers[node]
        key = (0 if node is None else places[node], row["category"])
        count, ns = sums[key]
        sums[key] = (count + 1, ns + row["self_ns"])
    return sums


def median_steps(runs: Sequence[Selection]) -> tuple[list[Section], list[Section]]:
    """A median step of each side: its timeline, on one scale, and what the training thread runs in it."""
    views, flames = [], []
    for side in runs:
        with report_data(side) as data:
            views.append(_timeline_view(data))
            flames.append(flame_view(data))
    drawn = [view for view in views if view is not None]
    stacks = tuple(
        replace(view, label=f"{name}: {view.label}")
        for name, view in zip(("Base", "Head"), flames, strict=False)
        if view is not None
    )
    order = "Base above, head below"
    timelines = Section("timeline", "Timelines", f"{order}, on one scale; both move together.")
    host = Section("host", "Host", f"{order}: host time of a median step as stacks, each on its own scale.")
    return (
        [replace(timelines, timelines=tuple(drawn))] if len(drawn) == len(runs) else [],
        [replace(host, flames=stacks)] if stacks else [],
    )


def _timeline_view(data: ReportData) -> TimelineView | None:
    drawn = timeline(data, [])
    if drawn is None:
        return None
    scope = "the recording" if drawn.step is None else f"median step {drawn.step}"
    note = f"{data.run}: {scope}, {duration(drawn.end_ns - drawn.start_ns)}. {drawn.note}"
    return TimelineView(timeline_json(drawn), f"{data.run}, {scope}", note)


def timeline_section(data: ReportData, findings: Result) -> Iterator[Section]:
    """The section; none if there is nothing to draw."""
    drawn = timeline(data, finding_groups(findings.rows()))
    if drawn is None:
        return
    scope = _drawn(drawn)
    title = f"Timeline of {scope}" if drawn.steps else "Timeline"
    view = TimelineView(timeline_json(drawn), f"{scope[0].upper()}{scope[1:]} of {data.run}", drawn.note)
    yield Section("timeline", title, _summary(data, drawn), timelines=(view,))


def _drawn(drawn: Timeline) -> str:
    if not drawn.steps:
        return "the recording"
    return f"step{'s' if len(drawn.steps) > 1 else ''} {rank_list(drawn.steps)}"


def _summary(data: ReportData, drawn: Timeline) -> str:
    scope = _drawn(drawn)
    lanes = "threads" if breakdown(data) is None else "GPU time, streams and launching threads"
    ranks = "" if data.ranks == 1 else f" of {len(drawn.ranks)} ranks"
    length = duration(drawn.end_ns - drawn.start_ns)
    first = f" The first view is step {drawn.step}, {length}." if drawn.steps else f" It takes {length}."
    text = f"{scope[0].upper()}{scope[1:]}: {lanes}{ranks}.{first}"
    if shortest := max((bin_ns for _, _, bin_ns in drawn.spans), default=0):
        text += (
            f" Slices shorter than {duration(shortest)} are combined where no finding is, with exact totals."
        )
    return text
