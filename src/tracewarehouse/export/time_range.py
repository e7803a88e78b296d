"""Time range of an export for each rank, by the rank's own clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import ParamError
from tracewarehouse.exact_text import rank_list
from tracewarehouse.export.clocks import Clock
from tracewarehouse.export.finding_markers import FindingRows, worst_occurrence
from tracewarehouse.export.overlay_events import TimeRange
from tracewarehouse.export.request import ExportRequest, Moment
from tracewarehouse.query.connections import connection
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Versions

RankRows = Mapping[int, Mapping[str, Any]]  # rank → its row of `ranks`

# On host and device together: from the first start to the last end.
_STEP = """
SELECT
  rank,
  least(host_start_ns, device_start_ns) AS from_ns,
  greatest(host_start_ns + host_ns, device_start_ns + device_ns) AS to_ns
FROM steps
WHERE step = $step
"""


def time_ranges(
    store: Versions,
    catalog: Catalog,
    selected: SelectedRun,
    request: ExportRequest,
    ranks: RankRows,
    clocks: Mapping[int, Clock],
    findings: FindingRows,
) -> dict[int, TimeRange]:
    """The time range of each rank. Raises ParamError if no rank has events in it.

    Requested times are those of the clock that ranks are aligned to.
    """
    if request.step is not None:
        ranges = _step_ranges(store, catalog, selected, request.step)
    elif request.around is not None:
        rank, occurrence = worst_occurrence(request.around, findings, selected.run)
        ranges = _on_each_clock(occurrence, clocks, clocks[rank])
    else:
        ranges = _on_each_clock(_requested_range(request, ranks, clocks), clocks, Clock())
    margin_ns = request.margin_ns
    widened = {rank: (start - margin_ns, end + margin_ns) for rank, (start, end) in ranges.items()}
    _check_not_empty(widened, ranks, selected.run)
    return widened


def _step_ranges(store: Versions, catalog: Catalog, selected: SelectedRun, step: int) -> dict[int, TimeRange]:
    with connection(store, catalog, [selected], [catalog.get("steps")]) as con:
        rows = con.execute(_STEP, {"step": step}).fetchall()
        known = [number for (number,) in con.execute("SELECT DISTINCT step FROM steps").fetchall()]
    ranges = {rank: (start, end) for rank, start, end in rows}
    missing = sorted(set(selected.ranks) - set(ranges))
    if missing:
        hint = (
            f"it has steps {rank_list(known)}"
            if known
            else hints.Hint("it has no steps; use start and end", "it has no steps; use --from and --to")
        )
        raise ParamError(f"{selected.run} rank {rank_list(missing)} has no step {step}", hint)
    return ranges


def _requested_range(request: ExportRequest, ranks: RankRows, clocks: Mapping[int, Clock]) -> TimeRange:
    timed = {rank: row for rank, row in ranks.items() if _has_times(row)}
    if not timed:
        raise ParamError("no event has a time", "export the entire trace")
    first = min(row["start_ns"] - clocks[rank].offset_ns for rank, row in timed.items())
    last = max(row["end_ns"] - clocks[rank].offset_ns for rank, row in timed.items()) + 1
    start, end = _resolve(request.start, first, first), _resolve(request.end, first, last)
    if start >= end:
        raise ParamError("the time range is empty", f"the trace is {(last - first) / 1e6:g} ms long")
    return start, end


def _on_each_clock(times: TimeRange, clocks: Mapping[int, Clock], clock: Clock) -> dict[int, TimeRange]:
    """A time range by one clock, by the clock of each rank."""
    start, end = times[0] - clock.offset_ns, times[1] - clock.offset_ns
    return {rank: (start + each.offset_ns, end + each.offset_ns) for rank, each in clocks.items()}


def _resolve(moment: Moment | None, first: int, default: int) -> int:
    if moment is None:
        return default
    return first + moment.ns if moment.since_start else moment.ns


def _has_times(row: Mapping[str, Any]) -> bool:
    return row["start_ns"] is not None and row["end_ns"] is not None


def _check_not_empty(ranges: Mapping[int, TimeRange], ranks: RankRows, run: str) -> None:
    """Raises ParamError if no rank has events in its time range."""
    timed = {rank: row for rank, row in ranks.items() if _has_times(row)}
    for rank, row in timed.items():
        from_ns, to_ns = ranges[rank]
        if from_ns <= row["end_ns"] and to_ns > row["start_ns"]:
            return
    rank, row = next(iter(timed.items()))
    length = f"{(row['end_ns'] - row['start_ns']) / 1e6:g} ms"
    raise ParamError(
        f"{run} has no events in this time range",
        f"rank {rank} has events from {row['start_ns']} to {row['end_ns']} ns ({length});"
        " numbers without a unit are such times",
    )
