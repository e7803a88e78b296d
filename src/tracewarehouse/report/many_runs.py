"""The report on many runs: a row per run with its step time, the parts of a step and its worst finding."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from tracewarehouse.display_names import CATEGORIES
from tracewarehouse.metric import Measured
from tracewarehouse.plot import PAGE
from tracewarehouse.plot.lines import Point, point_chart
from tracewarehouse.plot.theme import COLORS, format_short
from tracewarehouse.render.text import plural
from tracewarehouse.report.account import mean_parts
from tracewarehouse.report.document import (
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
from tracewarehouse.report.text import duration, percent, shell_quoted
from tracewarehouse.report.verdict import finding_groups, subject_sentence
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
    times = {run: _time_ns(steps.get(run, []), parts.get(run, {})) for run in names}
    labels = _differing_labels(runs)
    worst = _worst(findings, {each.run: len(each.ranks) for each in runs})
    first = next((ns for ns in times.values() if ns), None)
    longest = max((ns for ns in times.values() if ns), default=None)
    rows = tuple(
        replace(
            _run_row(each, labels, steps, parts, times[each.run], first, longest, worst),
            metrics=tuple(_metric_value(metric, each.run) for metric in measured),
        )
        for each in runs
    )
    has_steps = any(steps.values())
    return Page(
        name="runs",
        title=plural(len(runs), "run"),
        subtitle="One row per run, in order of their start",
        facts=(("Runs", ", ".join(names)),),
        verdict=_verdict(times, "step" if has_steps else "GPU window"),
        tiles=(),
        sections=(
            Section("runs", "Runs", _summary(labels, has_steps), runs=rows, statements=_explained(measured)),
            Section("times", "Times", "Each point is a run.", (_times_card(times, has_steps),)),
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


def _time_ns(steps: Sequence[tuple[int, float]], parts: Mapping[str, float]) -> float | None:
    """The median complete step, else the GPU window."""
    if steps:
        return float(median(ns for _, ns in steps))
    return sum(parts.values()) or None


def _differing_labels(runs: Sequence[SelectedRun]) -> list[str]:
    """The label keys whose values differ between runs."""
    labels = [run_attributes(each.version).labels for each in runs]
    keys = dict.fromkeys(key for each in labels for key in each)
    return [key for key in keys if len({each.get(key) for each in labels}) > 1][:_MAX_LABELS]


def _worst(findings: Result, ranks: Mapping[str, int]) -> dict[str, tuple[str, str]]:
    """Run → severity and sentence of its worst finding."""
    rows: dict[str, list[Row]] = {}
    for row in findings.rows():
        rows.setdefault(row["run_id"], []).append(row)
    worst = {}
    for run, of_run in rows.items():
        group = finding_groups(of_run)[0]
        worst[run] = (group[0]["severity"], subject_sentence(group, ranks[run]))
    return worst


def _run_row(
    selected: SelectedRun,
    labels: Sequence[str],
    steps: Mapping[str, Sequence[tuple[int, float]]],
    parts: Mapping[str, Mapping[str, float]],
    time_ns: float | None,
    first_ns: float | None,
    longest_ns: float | None,
    worst: Mapping[str, tuple[str, str]],
) -> RunRow:
    run, known = selected.run, run_attributes(selected.version).labels
    own, each = parts.get(run, {}), [ns for _, ns in steps.get(run, ())]
    whole = sum(own.values())
    severity, finding = worst.get(run, ("", "No findings."))
    return RunRow(
        name=run,
        labels=tuple(f"{key}={known[key]}" for key in labels if key in known),
        ranks=len(selected.ranks),
        time=duration(time_ns),
        time_ns=time_ns,
        change=_change(time_ns, first_ns),
        width=time_ns / longest_ns if time_ns and longest_ns else 0.0,
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


def _change(time_ns: float | None, first_ns: float | None) -> str:
    """The difference from the first run."""
    if not time_ns or not first_ns or time_ns == first_ns:
        return ""
    return f"{100 * (time_ns / first_ns - 1):+.1f} %"


def _verdict(times: Mapping[str, float | None], whole: str) -> Verdict:
    known = {run: ns for run, ns in times.items() if ns}
    if not known:
        return Verdict("None of these runs has steps or GPU activities, so their times cannot be compared.")
    fastest, slowest = min(known, key=lambda run: known[run]), max(known, key=lambda run: known[run])
    best, worst = duration(known[fastest]), duration(known[slowest])
    if len(known) == 1:
        return Verdict(f"{fastest} is the only run with times: its {whole} takes {best}.")
    ratio = known[slowest] / known[fastest]
    return Verdict(
        f"{fastest} is the fastest of {plural(len(known), 'run')}: its {whole} takes {best}; "
        f"{slowest} is the slowest ({worst}, {_times(ratio)} times as long).",
        price=f"Times are the median complete {whole}, mean over ranks; parts are those of the mean {whole}.",
        commands=(Command(f"tw diff {shell_quoted(fastest)} {shell_quoted(slowest)}", "why they differ"),),
    )


def _times(ratio: float) -> str:
    """A ratio with two decimals, a large one without."""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2f}"


def _summary(labels: Sequence[str], has_steps: bool) -> str:
    by = f" Labels that differ: {', '.join(labels)}." if labels else ""
    what = "median complete step" if has_steps else "GPU window"
    return f"Time: {what}; change: against the first run.{by}"


def _times_card(times: Mapping[str, float | None], has_steps: bool) -> Card:
    points = [
        Point(at, ns, "head", f"{run}: {duration(ns)}", None)
        for at, (run, ns) in enumerate(times.items(), 1)
        if ns
    ]
    quantity = "step time" if has_steps else "GPU window"
    figures = (
        (Figure(f"{quantity} by run", point_chart(points, quantity, "run", "ns", PAGE)),) if points else ()
    )
    return Card("Time over runs", "In order of the runs' start.", figures)
