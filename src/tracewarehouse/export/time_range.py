"""Which part of the time is wanted of each rank, by its own clock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import ParamError
from tracewarehouse.exact_text import rank_list
from tracewarehouse.export.clocks import Clock
from tracewarehouse.export.finding_markers import Rows, place_of
from tracewarehouse.export.overlay_events import Window
from tracewarehouse.export.request import Asked, Moment
from tracewarehouse.query.connections import connection
from tracewarehouse.runs.selection import SelectedRun

Facts = Mapping[int, Mapping[str, Any]]

# On the host and on the device, whichever begins first and ends last.
_STEP = """
SELECT
  rank,
  least(host_start_ns, device_start_ns) AS from_ns,
  greatest(host_start_ns + host_ns, device_start_ns + device_ns) AS to_ns
FROM steps
WHERE step = $step
"""


def windows(
    root: Path,
    catalog: Catalog,
    selected: SelectedRun,
    asked: Asked,
    facts: Facts,
    clocks: Mapping[int, Clock],
    found: Rows,
) -> dict[int, Window]:
    """Start and end of the part of each rank, the end left out. Raises ParamError where there is none.

    `facts` are rows of `ranks`. Times that were asked for are those of the clock that ranks are brought to.
    """
    if asked.step is not None:
        parts = _of_step(root, catalog, selected, asked.step)
    elif asked.around is not None:
        rank, place = place_of(asked.around, found, selected.run)
        parts = _on_all(place, clocks, clocks[rank])
    else:
        parts = _on_all(_of_times(asked, facts, clocks), clocks, Clock())
    wide = {rank: (start - asked.margin_ns, end + asked.margin_ns) for rank, (start, end) in parts.items()}
    _check_meets(wide, facts, selected.run)
    return wide


def _of_step(root: Path, catalog: Catalog, selected: SelectedRun, step: int) -> dict[int, Window]:
    with connection(root, catalog, [selected], [catalog.get("steps")]) as con:
        rows = con.execute(_STEP, {"step": step}).fetchall()
        known = [number for (number,) in con.execute("SELECT DISTINCT step FROM steps").fetchall()]
    found = {rank: (start, end) for rank, start, end in rows}
    lacking = sorted(set(selected.ranks) - set(found))
    if lacking:
        hint = (
            f"it has steps {rank_list(known)}"
            if known
            else hints.Hint("it has no steps; use start and end", "it has no steps; use --from and --to")
        )
        raise ParamError(f"{selected.run} rank {rank_list(lacking)} has no step {step}", hint)
    return found


def _of_times(asked: Asked, facts: Facts, clocks: Mapping[int, Clock]) -> Window:
    timed = {rank: row for rank, row in facts.items() if _has_time(row)}
    if not timed:
        raise ParamError("no event has a time", "export the whole of it")
    first = min(row["start_ns"] - clocks[rank].offset_ns for rank, row in timed.items())
    last = max(row["end_ns"] - clocks[rank].offset_ns for rank, row in timed.items()) + 1
    start, end = _at(asked.start, first, first), _at(asked.end, first, last)
    if start >= end:
        raise ParamError("no events in this time range", f"it lasts {(last - first) / 1e6:g} ms")
    return start, end


def _on_all(part: Window, clocks: Mapping[int, Clock], of: Clock) -> dict[int, Window]:
    """A stretch of time that one clock tells, by the clock of each rank."""
    start, end = part[0] - of.offset_ns, part[1] - of.offset_ns
    return {rank: (start + clock.offset_ns, end + clock.offset_ns) for rank, clock in clocks.items()}


def _at(moment: Moment | None, first: int, otherwise: int) -> int:
    if moment is None:
        return otherwise
    return first + moment.ns if moment.since_start else moment.ns


def _has_time(row: Mapping[str, Any]) -> bool:
    return row["start_ns"] is not None and row["end_ns"] is not None


def _check_meets(windows: Mapping[int, Window], facts: Facts, run: str) -> None:
    """Raises ParamError where no rank has anything in its part."""
    times = {rank: row for rank, row in facts.items() if _has_time(row)}
    for rank, row in times.items():
        from_ns, to_ns = windows[rank]
        if from_ns <= row["end_ns"] and to_ns > row["start_ns"]:
            return
    rank, row = next(iter(times.items()))
    lasts = f"rank {rank} lasts from {row['start_ns']} to {row['end_ns']} ns"
    raise ParamError(
        f"{run} has nothing in that part",
        f"{lasts}, {(row['end_ns'] - row['start_ns']) / 1e6:g} ms long; a number without unit is such a time",
    )
