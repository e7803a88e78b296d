"""The report on many runs: a row per run with its step time, the parts of a step and its worst finding."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from tracewarehouse.compare.metric import Measured
from tracewarehouse.display_names import CATEGORIES
from tracewarehouse.present.plot import PAGE
from tracewarehouse.present.plot.lines import Point, point_chart
from tracewarehouse.present.plot.theme import COLORS, format_short
from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.account import mean_parts
from tracewarehouse.present.report.document import (
    Card,
    Command,
    Figure,
    MetricValue,
    Page,
    RunRow,
    Section,
    Share,
    Verdict,
)
from tracewarehouse.present.report.text import duration, percent, shell_quoted
from tracewarehouse.present.report.verdict import finding_groups, sentences, subject_sentence
from tracewarehouse.result import Result
from tracewarehouse.runs.selection import SelectedRun, Selection, run_attributes
from tracewarehouse.version import __version__

Row = Mapping[str, Any]
_MAX_LABELS = 3
_MAX_STEPS = 40
_STACK_ORDER = [name for name in COLORS if name in CATEGORIES]


def many_runs(
    side: Selection, findings: Result, measured: Sequence[Measured], notify: Callable[[str], None]
) -> Page:
    """The page, with runs in the order of their start; `findings` and `measured` are those of all runs."""
    runs = side.selected()
    notify("computing steps")
    summary = side.run("step_summary")
    steps = _steps(summary)
    notify("computing breakdowns")
    parts = mean_parts(side, summary)
    names = [each.run for each in runs]
    found = {run: _time(steps.get(run, []), parts.get(run, {})) for run in names}
    times = {run: time for run, time in found.items() if time is not None}
    labels = _differing_labels(runs)
    worst = _worst(findings, {each.run: len(each.ranks) for each in runs})
    rows = tuple(
        replace(
            _run_row(each, labels, steps, parts, times, worst),
            metrics=tuple(_metric_value(metric, each.run) for metric in measured),
        )
        for each in runs
    )
    return Page(
        name="runs",
        title=plural(len(runs), "run"),
        subtitle="One row per run, in order of their start",
        facts=(("Runs", ", ".join(names)),),
        verdict=_verdict(times),
        tiles=(),
        sections=(
            Section("runs", "Runs", _summary(labels, times), runs=rows, statements=_explained(measured)),
            Section("times", "Times", "Each point is a run.", (_times_card(times),)),
        ),
        footer=f"tracewarehouse {__version__}",
        legend=tuple(name for name in CATEGORIES if any(name in each for each in parts.values())),
    )


def _steps(result: Result) -> dict[str, list[tuple[int, float]]]:
    """Run → (step, mean period over its ranks), complete steps only."""
    periods: dict[str, dict[int, list[int]]] = {}
    for row in result.rows():
        if not row["partial"]:
            periods.setdefault(row["run_id"], {}).setdefault(row["step"], []).append(row["period_ns"])
    return {
        run: [(step, sum(values) / len(values)) for step, values in sorted(by_step.items())]
        for run, by_step in periods.items()
    }


@dataclass(frozen=True)
class _Time:
    """The time of a run, and what takes it: `step` or `GPU window`. Only times of one kind are compared."""

    ns: float
    whole: str


_STEP, _WINDOW = "step", "GPU window"


def _time(steps: Sequence[tuple[int, float]], parts: Mapping[str, float]) -> _Time | None:
    """The median complete step, else the GPU window."""
    if steps:
        return _Time(float(median(ns for _, ns in steps)), _STEP)
    return _Time(sum(parts.values()), _WINDOW) if parts else None


def _of_kind(times: Mapping[str, _Time], whole: str) -> dict[str, float]:
    return {run: time.ns for run, time in times.items() if time.whole == whole}


def _compared(times: Mapping[str, _Time]) -> str:
    """The kind of time that most runs have; steps if as many have steps."""
    return max((_STEP, _WINDOW), key=lambda whole: len(_of_kind(times, whole)))


def _differing_labels(runs: Sequence[SelectedRun]) -> list[str]:
    """The label keys whose values differ between runs."""
    labels = [run_attributes(each.version).labels for each in runs]
    keys = dict.fromkeys(key for each in labels for key in each)
    return [key for key in keys if len({each.get(key) for each in labels}) > 1][:_MAX_LABELS]


def _worst(findings: Result, ranks: Mapping[str, int]) -> dict[str, tuple[str, str]]:
    """Run → severity and first sentence of its worst finding."""
    rows: dict[str, list[Row]] = {}
    for row in findings.rows():
        rows.setdefault(row["run_id"], []).append(row)
    worst = {}
    for run, of_run in rows.items():
        group = finding_groups(of_run)[0]
        worst[run] = (group[0]["severity"], sentences(subject_sentence(group, ranks[run]))[0])
    return worst


def _run_row(
    selected: SelectedRun,
    labels: Sequence[str],
    steps: Mapping[str, Sequence[tuple[int, float]]],
    parts: Mapping[str, Mapping[str, float]],
    times: Mapping[str, _Time],
    worst: Mapping[str, tuple[str, str]],
) -> RunRow:
    run, known = selected.run, run_attributes(selected.version).labels
    own, each = parts.get(run, {}), [ns for _, ns in steps.get(run, ())]
    whole = sum(own.values())
    severity, finding = worst.get(run, ("", "No findings."))
    time = times.get(run)
    alike = [*_of_kind(times, time.whole).values()] if time else []
    return RunRow(
        name=run,
        labels=tuple(f"{key}={known[key]}" for key in labels if key in known),
        ranks=len(selected.ranks),
        time=duration(time.ns if time else None),
        time_ns=time.ns if time else None,
        time_of=time.whole if time and time.whole != _compared(times) else "",
        change=_change(time.ns, alike[0]) if time else "",
        width=time.ns / max(alike) if time else 0.0,
        steps=tuple(ns / max(each) for ns in each) if 1 < len(each) <= _MAX_STEPS else (),
        shares=tuple(_share(name, own[name], whole) for name in _STACK_ORDER if own.get(name)),
        severity=severity,
        finding=finding,
        command=f"tw report {shlex.quote(run)}",
    )


def _metric_value(measured: Measured, run: str) -> MetricValue:
    metric, unit = measured.metric, measured.metric.column.unit
    found = next(each for each in measured.runs if each.run == run)
    if found.value is None:
        return MetricValue(str(metric), "-", None, found.reason or "")
    return MetricValue(str(metric), format_short(found.value, unit), found.value)


def _explained(measured: Sequence[Measured]) -> tuple[str, ...]:
    """What the values of each metric refer to."""
    return tuple(f"{each.metric}: {each.per}. {each.metric.column.doc}" for each in measured)


def _share(name: str, ns: float, whole_ns: float) -> Share:
    text = f"{CATEGORIES[name]}: {duration(ns)}, {percent(ns, whole_ns)}"
    return Share(name, ns / whole_ns, text)


def _change(time_ns: float, first_ns: float) -> str:
    """The difference from the first run with a time of the same kind."""
    if not first_ns or time_ns == first_ns:
        return ""
    return f"{100 * (time_ns / first_ns - 1):+.1f} %"


def _verdict(times: Mapping[str, _Time]) -> Verdict:
    whole = _compared(times)
    known = _of_kind(times, whole)
    if not known:
        return Verdict("None of these runs has steps or GPU activities, so their times cannot be compared.")
    fastest, slowest = min(known, key=lambda run: known[run]), max(known, key=lambda run: known[run])
    best, worst = duration(known[fastest]), duration(known[slowest])
    if len(known) == 1:
        return Verdict(f"{fastest} is the only run with times: its {whole} takes {best}.")
    ratio = known[slowest] / known[fastest]
    others = len(times) - len(known)
    of = "the median complete step, mean over ranks" if whole == _STEP else "the GPU window, mean over ranks"
    price = f"Times are {of}; parts are those of the mean {whole}."
    if others:
        other = "a complete step" if whole == _STEP else "only a GPU window"
        price += f" {plural(others, 'run')} without {other} {'is' if others == 1 else 'are'} not compared."
    return Verdict(
        f"{fastest} is the fastest of {plural(len(known), 'run')}: its {whole} takes {best}; "
        f"{slowest} is the slowest ({worst}, {_times(ratio)} times as long).",
        price=price,
        commands=(Command(f"tw diff {shell_quoted(fastest)} {shell_quoted(slowest)}", "why they differ"),),
    )


def _times(ratio: float) -> str:
    """A ratio with three digits."""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.2f}"


def _summary(labels: Sequence[str], times: Mapping[str, _Time]) -> str:
    by = f" Labels that differ: {', '.join(labels)}." if labels else ""
    kinds = {time.whole for time in times.values()}
    if len(kinds) > 1:
        return (
            f"Time: median complete step, or GPU window; change: against the first run of the same kind.{by}"
        )
    what = _WINDOW if kinds == {_WINDOW} else "median complete step"
    return f"Time: {what}; change: against the first run.{by}"


def _times_card(times: Mapping[str, _Time]) -> Card:
    whole = _compared(times)
    points = [
        Point(at, ns, "head", f"{run}: {duration(ns)}", None)
        for at, (run, ns) in enumerate(_of_kind(times, whole).items(), 1)
    ]
    quantity = "step time" if whole == _STEP else whole
    figures = (
        (Figure(f"{quantity} by run", point_chart(points, quantity, "run", "ns", PAGE)),) if points else ()
    )
    return Card("Time over runs", "In order of the runs' start.", figures)
