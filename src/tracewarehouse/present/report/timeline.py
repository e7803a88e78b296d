"""The timeline of a run: selects the step and the slices that the page contains, and their totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracewarehouse.present.report.data import ReportData, Row

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


@dataclass(frozen=True)
class Mark:
    """The worst occurrence of a finding: a rank, and an interval by its clock."""

    rank: int
    start_ns: int
    end_ns: int
    rule: str


@dataclass(frozen=True)
class Timeline:
    """Slices of ranks by lane and track, by a common clock that starts at `origin_ns`.

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
    marks: tuple[Mark, ...]
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
    marks = tuple(
        Mark(row["rank"], row["from_ns"] - offset, row["to_ns"] - offset, row["rule"])
        for row in findings
        if row["from_ns"] is not None and (offset := offsets.get(row["rank"])) is not None
    )
    return Timeline(
        data.run,
        step,
        min(row["start_ns"] for row in (*rows, *around)),
        start_ns,
        end_ns,
        bin_ns,
        overview_bin_ns,
        (*rows, *around),
        _firsts(data, offsets),
        ranks,
        detailed,
        marks[:_MAX_RANKS],
        _median_rank(data, ranks),
        note + _left_out(data, ranks, detailed),
    )


def _offsets(data: ReportData) -> tuple[dict[int, int], str]:
    """The clock offset of each rank; those that cannot be compared are aligned at their first slice."""
    ranks = ", ".join(map(str, data.selected.ranks))
    rows = data.side.query_all(
        f"SELECT rank, offset_ns, reference_rank FROM clock_offsets WHERE rank IN ({ranks})"
    ).rows()
    if len({row["reference_rank"] for row in rows}) <= 1:
        return {row["rank"]: row["offset_ns"] for row in rows}, ""
    starts = {each.rank: each.facts.get("start_ns") for each in data.selected.by_rank}
    offsets = {rank: start - data.start_ns if isinstance(start, int) else 0 for rank, start in starts.items()}
    return offsets, "The clocks of these ranks cannot be compared; each rank begins at its first event. "


def _firsts(data: ReportData, offsets: Mapping[int, int]) -> dict[int, int]:
    starts = {each.rank: each.facts.get("start_ns") for each in data.selected.by_rank}
    return {rank: start - offsets.get(rank, 0) for rank, start in starts.items() if isinstance(start, int)}


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
    for row in findings[:1]:
        if row.get("step") in complete:
            return int(row["step"])
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
    count = data.row(f"SELECT count(*) AS count FROM ({slices})")["count"]
    bin_ns = 0
    if count > limit:
        bin_ns = next(
            (width for width in _WIDTHS_NS if _count(data, slices, width, named) <= limit), _WIDTHS_NS[-1]
        )
    return data.rows(_binned(slices, bin_ns, named)), bin_ns


_WIDTHS_NS = [digit * 10**power for power in range(3, 11) for digit in (1, 2, 5)]


def _binned(slices: str, bin_ns: int, named: str) -> str:
    return _BINNED.format(slices=slices, bin_ns=bin_ns, width_ns=bin_ns or 1, named=named, longest=_LONGEST)


def _count(data: ReportData, slices: str, bin_ns: int, named: str) -> int:
    count: int = data.row(f"SELECT count(*) AS count FROM ({_binned(slices, bin_ns, named)})")["count"]
    return count


def _view(
    data: ReportData, step: int | None, rows: Sequence[Row], offsets: Mapping[int, int]
) -> tuple[int, int]:
    """The earliest start and the latest end of the step over ranks, or of the recording.

    A recording that is mostly outside of the GPU window (warm-up, loading) begins with the GPU window.
    """
    gpu = [row for row in rows if row["lane"] == "gpu" and row["category"] != "idle_outside"]
    if step is not None and not gpu:
        periods = data.side.query_all(
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
