"""Changes of a history that should fail a job: new, not acknowledged, and for the worse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tracewarehouse.compare.history.series import Change, HistoryData, Series
from tracewarehouse.durations import age_ns
from tracewarehouse.errors import ExpressionError, UnknownName
from tracewarehouse.present.render.text import show

FailOn = Literal["worse", "any"]
NEWEST = 12  # runs whose changes count by default


@dataclass(frozen=True)
class FailingChange:
    """A change that fails, with the series it is in."""

    series: str
    change: Change
    text: str


def failing_changes(
    history: HistoryData, fail_on: FailOn = "worse", since: str | None = None
) -> tuple[FailingChange, ...]:
    """The changes whose first run is at or behind `since`, by default among the newest `NEWEST` runs.

    `since` is the name of a run or an age such as `7d`, counted from the newest run. Acknowledged changes
    pass; `worse` counts only changes in the wrong direction, or of a metric without a goal any. Raises
    UnknownName, ExpressionError.
    """
    _check_since(history, since)
    found = []
    for series in history.series:
        first = _first_position(series, since)
        for change, position in zip(series.changes, series.change_positions, strict=True):
            is_bad = fail_on == "any" or history.verdict(change) != "better"
            if position >= first and is_bad and change.why is None:
                found.append(FailingChange(series.name, change, _text(history, series, change)))
    return tuple(found)


def _check_since(history: HistoryData, since: str | None) -> None:
    if since is None or age_ns(since) is not None:
        return
    names = {point.name for series in history.series for point in series.points}
    if since not in names:
        if since[:1].isdigit():
            raise ExpressionError(
                f"not an age or a run: {since}", "for example 7d, 24h, or the name of a run"
            )
        raise UnknownName("run", since, names)


def _first_position(series: Series, since: str | None) -> int:
    """The index in `known` from which changes count."""
    known = series.known
    if since is None:
        return len(known) - NEWEST
    names = [point.name for point in known]
    if since in names:
        return names.index(since)
    start: int | None = next((point.time_ns for point in series.points if point.name == since), None)
    age = age_ns(since)
    if age is not None and known:
        start = known[-1].time_ns - age
    if start is None:
        return len(known)
    return next((at for at, point in enumerate(known) if point.time_ns >= start), len(known))


def _text(history: HistoryData, series: Series, change: Change) -> str:
    levels = f"{show(change.old, history.unit)} → {show(change.new, history.unit)}"
    where = history.measured + (f" ({series.name})" if series.name else "")
    return f"{where}: {levels}, {change.effect}, between {change.before} and {change.after}"
