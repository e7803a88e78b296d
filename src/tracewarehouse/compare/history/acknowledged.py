"""Acknowledgements: why a metric changed at a run; they are stored, removed and matched with its changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracewarehouse.compare.history.series import Change, HistoryData
from tracewarehouse.compare.metric import Metric
from tracewarehouse.errors import ParamError, TwError
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Store, acknowledgement_key

_RUNS_NAMED = 8  # in a hint


@dataclass(frozen=True)
class Acknowledgement:
    """Why a metric changed at a run, identified by its content (`source`)."""

    metric: str
    run: str
    source: str
    why: str


def _acknowledged_name(metric: Metric) -> str:
    """The metric without a version, so that an acknowledgement applies to the next version too."""
    filters = ",".join(sorted(f"{column.name}={value}" for column, value in metric.filters))
    return f"{metric.contract.name}.{metric.column.name}" + (f"[{filters}]" if filters else "")


def acknowledge(store: Store, metric: Metric, run: SelectedRun, why: str | None) -> None:
    """Stores why the metric changed at a run; None removes it.

    Raises ParamError for an empty text, TwError if there is nothing to remove.
    """
    name, source = _acknowledged_name(metric), run.version.source
    key = acknowledgement_key(name, run.run, source)
    if why is None:
        known = acknowledgements(store, metric)
        if (run.run, source) not in known:
            raise _no_acknowledgement(metric, run, sorted({each for each, _ in known}))
        store.forget_acknowledged(key)
        return
    if not why.strip():
        raise ParamError(f"the acknowledgement of {run.run} is empty", "give a reason for the change")
    store.acknowledge(key, vars(Acknowledgement(name, run.run, source, why.strip())))


def _no_acknowledgement(metric: Metric, run: SelectedRun, known: Sequence[str]) -> TwError:
    shown = ", ".join(known[:_RUNS_NAMED]) + (", …" if len(known) > _RUNS_NAMED else "")
    hint = f"acknowledged: {shown}" if known else "no run has one"
    return TwError(f"{run.run} has no acknowledgement of {metric}", hint)


def acknowledgements(store: Store, metric: Metric) -> dict[tuple[str, str], str]:
    """(run, source) → reason, for the metric."""
    name = _acknowledged_name(metric)
    stored = [Acknowledgement(**fields) for fields in store.acknowledged()]
    return {(each.run, each.source): each.why for each in stored if each.metric == name}


def notices_on_acknowledged(
    history: HistoryData, stored: Sequence[str], removed: Sequence[str]
) -> Iterator[str]:
    """Where an acknowledgement at these runs (`RUN@vN`) is not what the history shows."""
    for run in stored:
        changes = _changes_at(history, run)
        if not changes:
            yield _no_change(history, run)
        yield from (_shown(each) for each in changes if each.acknowledged_at not in (None, run))
    for run in removed:
        yield from (_shown(each) for each in _changes_at(history, run) if each.why is not None)


def _changes_at(history: HistoryData, run: str) -> list[Change]:
    return [change for series in history.series for change in series.changes if run in change.nearby]


def _no_change(history: HistoryData, run: str) -> str:
    if any(point.selector == run for series in history.series for point in series.points):
        return f"no change point of {history.measured} at {run}"
    return f"{run} is not in this history"


def _shown(change: Change) -> str:
    return f"the change at {change.after} is acknowledged at {change.acknowledged_at}: {change.why}"
