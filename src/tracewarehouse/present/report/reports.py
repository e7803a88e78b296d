"""The reports: on one run, on what changed between two runs or groups of runs, and on many runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.compare.diff.diff import Diff
from tracewarehouse.compare.diff.levels import OWN_WORK
from tracewarehouse.compare.history.read import metric_history
from tracewarehouse.compare.metric.expression import Measured, parse_metric
from tracewarehouse.compare.metric.values import measure
from tracewarehouse.display_names import CATEGORIES, LEVELS, base_category, category_name
from tracewarehouse.errors import TwError
from tracewarehouse.findings import attributed, check_runs
from tracewarehouse.hints import cli_text
from tracewarehouse.present.plot.charts import Bar, Point, bar_chart, point_chart, strip_chart
from tracewarehouse.present.plot.parts import format_short
from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.communication import communication_section
from tracewarehouse.present.report.data import READ, ReportData, mean_parts, report_data
from tracewarehouse.present.report.document import (
    MAX_ROWS,
    Card,
    Command,
    Figure,
    MetricValue,
    Page,
    RunRow,
    Section,
    Share,
    Table,
    Tile,
    Verdict,
    and_list,
    changes_card,
    chart_card,
    diff_command,
    distinct_durations,
    duration,
    percent,
    result_table,
    sentence,
    shell_quoted,
)
from tracewarehouse.present.report.findings import (
    finding_groups,
    findings_section,
    flight_section,
    run_verdict,
    sentences,
    skipped_checks,
    subject_sentence,
)
from tracewarehouse.present.report.host import (
    graphs_section,
    host_section,
    inference_section,
    inference_tiles,
)
from tracewarehouse.present.report.kernels import kernels_section, modules_sections, work_section
from tracewarehouse.present.report.memory import memory_section, snapshot_section, snapshot_sections
from tracewarehouse.present.report.overview import (
    STACK_ORDER,
    few,
    limits_section,
    overview_section,
    quality_section,
    run_facts,
    run_line,
    run_tiles,
)
from tracewarehouse.present.report.timeline import median_steps, timeline_section
from tracewarehouse.query.selection import Selection
from tracewarehouse.result import Result
from tracewarehouse.runs.recording import recording_verdict
from tracewarehouse.runs.rows import damaged_runs, run_info
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage.model import UnreadableRun
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    from tracewarehouse.compare.diff.breakdown import Breakdown
    from tracewarehouse.compare.diff.change import Change
    from tracewarehouse.compare.diff.levels import Row
    from tracewarehouse.compare.history.history import History, Series
    from tracewarehouse.runs.rows import RunInfo


_SECTIONS: dict[str, Callable[[ReportData], Section]] = {
    "kernels": kernels_section,
    "work": work_section,
    "communication": communication_section,
    "memory": memory_section,
    "host": host_section,
    "data quality": quality_section,
}
# Computed before the others: what only they read is freed, and needs no memory beside large results.
_FIRST = ("work", "host")
# Part of a page → results with many rows that no part after it reads: most of the memory of a page.
_LAST_READ = {
    "overview": ("gpu_timeline", "drawn", "others"),
    "kernels": ("launch_stats", "module_summary"),
    "work": ("op_work_summary", "roofline"),
    "memory": ("memory_curve", "queue_length"),
    "host": ("name_summary",),
}


def one_run(side: Selection, info: RunInfo, findings: Result, notify: Callable[[str], object]) -> Page:
    """The report of a run with its findings; `notify` receives progress messages."""
    with report_data(side) as data:
        for group in finding_groups(findings.rows())[:1]:
            data.place = group[0]["rank"], group[0]["step"]
        notify("computing overview")
        sections = [
            *timeline_section(data, findings),
            *findings_section(data, findings),
            *snapshot_section(data),
            *flight_section(data),
            overview_section(data),
            *inference_section(data),
            *graphs_section(data),
        ]
        data.forget(*_LAST_READ["overview"])
        built: dict[str, list[Section]] = {}
        for name in sorted(_SECTIONS, key=lambda name: name not in _FIRST):
            notify(f"computing {name}")
            built[name] = [_SECTIONS[name](data), *(modules_sections(data) if name == "kernels" else ())]
            data.forget(*_LAST_READ.get(name, ()))
        sections += chain.from_iterable(built[name] for name in _SECTIONS)
        limits = limits_section(data, info, *skipped_checks(findings))
        return Page(
            name=data.run,
            title=data.run,
            subtitle=run_line(data, info),
            facts=run_facts(data, info),
            verdict=run_verdict(data, findings),
            tiles=(*inference_tiles(data), *run_tiles(data)),
            sections=(*(section for section in sections if not section.is_empty), limits),
            footer=f"tracewarehouse {__version__}, {data.selected.selector}",
            recording=recording_verdict(findings.recording),
        )


_SEVERITIES = {"slower": "critical", "faster": "passed", "no change": "passed"}
# Levels of the breakdown that need modules, or input shapes.
_OF_WORK = ("modules", "work")
_NOISE = {"run": "estimated across runs", "step": "estimated across steps of these runs only"}


def two_runs(
    change: Change,
    times: Sequence[Measured],
    history: History | None,
    runs: Sequence[Selection],
    notify: Callable[[str], object],
) -> Page:
    """The comparison, the step times of both sides, and the history of step times if it is recorded.

    `runs` are one run of each side, whose median steps are drawn one above the other.
    """
    notify("computing the page")
    timelines, host = median_steps(runs)
    verdict_cards = (_comparability_card(change), _step_times_card(times))
    sections = (
        Section("verdict", "Verdict", sentence(change.line), verdict_cards),
        *timelines,
        *_breakdown_sections(change),
        *host,
        *snapshot_sections(change),
        *_history_section(change, history),
        *_limits_section(change),
    )
    return Page(
        name=f"{_side_name(change.base)}-{_side_name(change.head)}",
        title=f"{_side_name(change.base)} → {_side_name(change.head)}",
        subtitle="What changed, and whether it is significant",
        facts=tuple(_facts(change)),
        verdict=_change_verdict(change),
        tiles=tuple(_tiles(change)),
        sections=sections,
        footer=f"tracewarehouse {__version__}",
        recording=change.recording,
    )


def _side_name(runs: Sequence[str]) -> str:
    return runs[0] if len(runs) == 1 else f"{runs[0]} and {len(runs) - 1} more"


def _facts(change: Change) -> Iterator[tuple[str, str]]:
    yield "Base", ", ".join(change.base)
    yield "Head", ", ".join(change.head)
    breakdown = change.breakdown
    if breakdown:
        sample = breakdown.per.partition(":")[0]
        yield (
            "Compared",
            f"{breakdown.base_intervals:,} of base, {breakdown.head_intervals:,} of head: "
            f"one per {sample} and rank",
        )
    yield "Noise", _NOISE.get(change.verdict.sample, "unknown: one sample per side")


def _change_verdict(change: Change) -> Verdict:
    """The verdict of the comparison, and the part that changed the most."""
    price = ""
    if change.breakdown:
        late = [sentence(change.late_rank)] if change.late_rank else []
        price = " ".join([*late, _breakdown_summary(change.breakdown)])
    elif change.no_breakdown_reason:
        price = sentence(f"no breakdown: {change.no_breakdown_reason}")
    return Verdict(
        sentence(change.line),
        _SEVERITIES.get(change.verdict.word, ""),
        price,
        commands=(Command(diff_command(change.base, change.head), "the comparison"),),
        word=change.verdict.outcome,
    )


def _tiles(change: Change) -> Iterator[Tile]:
    verdict = change.verdict
    breakdown = change.breakdown
    measured = "step time" if verdict.sample != "window" else "time of the window"
    if verdict.base_median_ns is not None or breakdown is None:
        times = (verdict.base_median_ns, verdict.head_median_ns)
        note = "median step" if verdict.sample != "window" else "mean window"
    else:
        times = (float(breakdown.base_mean), float(breakdown.head_mean))
        note = f"mean {breakdown.whole}"
    for name, ns in zip(("base", "head"), times, strict=True):
        yield Tile(name, duration(ns), note, "verdict", name)
    if verdict.change is not None:
        has_interval = verdict.low is not None and verdict.high is not None
        interval = f"{_signed_percent(verdict.low)} to {_signed_percent(verdict.high)}"
        yield Tile("change", _signed_percent(verdict.change), interval if has_interval else "no interval")
    yield Tile("verdict", verdict.outcome, measured)


def _signed_percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f} %"


def _signed_duration(ns: float) -> str:
    return f"+{duration(ns)}" if ns > 0 else duration(ns)


def _limits_section(change: Change) -> Iterator[Section]:
    """What the comparison cannot show, at the end of the page."""
    statements = [change.verdict.reason] if change.verdict.reason else []
    statements += [f"no breakdown: {change.no_breakdown_reason}"] if change.no_breakdown_reason else []
    statements += [*change.breakdown.notices, *change.breakdown.incomplete] if change.breakdown else ()
    if statements:
        summary = "What limits the conclusions on this page."
        yield Section(
            "limits", "Limits of this comparison", summary, statements=tuple(map(sentence, statements))
        )


def _comparability_card(change: Change) -> Card:
    warnings = [difference.message for difference in change.differences if difference.is_warning]
    others = [each.message for each in change.differences if not each.is_warning]
    text = f"Warning: {and_list(warnings)}." if warnings else "The two sides are comparable."
    other_sentence = f"Other differences: {'; '.join(others)}." if others else "No other differences found."
    return Card("Comparability", f"{text} {other_sentence}")


def _step_times_card(times: Sequence[Measured]) -> Card:
    lanes = {}
    for name, side in zip(("base", "head"), times, strict=True):
        ticks = [(value, f"{run.run}: {duration(value)}") for run in side.runs for value in run.steps]
        lanes[name] = (name, ticks)
    if not all(ticks for _, ticks in lanes.values()):
        return Card("Step times", "Base or head has no complete step, so step times cannot be compared.")
    counts = and_list([f"{plural(len(ticks), 'step')} of {name}" for name, (_, ticks) in lanes.items()])
    title = "Each complete step, mean over ranks; long mark: median"
    return chart_card("Step times", f"{counts}.", title, strip_chart(lanes))


def _breakdown_sections(change: Change) -> Iterator[Section]:
    breakdown = change.breakdown
    if breakdown is None:
        yield Section("breakdown", "Breakdown", f"No breakdown: {change.no_breakdown_reason}.")
        return
    yield Section(
        "breakdown",
        "Breakdown",
        _breakdown_summary(breakdown),
        (_waterfall_card(breakdown), _changes_card(breakdown, "categories", "phases and kinds")),
        (_table(change, breakdown, "breakdown"), _table(change, breakdown, "categories")),
    )
    levels = {"kernels": "kernels and idle causes", "operators": "operators and idle causes"}
    levels |= {name: name for name in _OF_WORK if _is_known(breakdown, name)}
    yield Section(
        "kernels",
        "Kernels and operators",
        _kernels_summary(breakdown),
        tuple(_changes_card(breakdown, name, kinds) for name, kinds in levels.items()),
        tuple(_table(change, breakdown, name) for name in levels),
    )
    if len({row.part.rpartition(" ")[0] for row in breakdown.level("ranks").rows}) > 1:
        cards = (_changes_card(breakdown, "ranks", "ranks"),)
        yield Section(
            "ranks", "Ranks", _ranks_summary(breakdown), cards, (_table(change, breakdown, "ranks"),)
        )


def _is_known(breakdown: Breakdown, level: str) -> bool:
    """Whether the traces have modules, or FLOP and bytes of operators."""
    parts = (row.part for row in breakdown.level(level).rows if not row.part.startswith(("(", "idle_")))
    return level == "modules" and any(parts) or any(part.endswith(("(flop)", "(bytes)")) for part in parts)


def _breakdown_summary(breakdown: Breakdown) -> str:
    base, head = float(breakdown.base_mean), float(breakdown.head_mean)
    largest = breakdown.level("breakdown").rows[0]
    return (
        f"The mean {breakdown.whole} went from {' to '.join(distinct_durations(base, head))}"
        f" ({_signed_duration(head - base)}); largest contribution: {category_name(largest.part)},"
        f" {_signed_duration(float(largest.delta))}."
    )


def _kernels_summary(breakdown: Breakdown) -> str:
    rows = [row for row in breakdown.level("kernels").rows if row.delta]
    slower = sum(row.delta > 0 for row in rows)
    significant = sum(bool(row.test and row.test.significant) for row in rows)
    return (
        f"Kernels and idle causes: {slower:,} slower, {len(rows) - slower:,} faster;"
        f" {significant:,} significant."
    )


def _ranks_summary(breakdown: Breakdown) -> str:
    note = "A straggler shows as own time; on the other ranks its delay shows as waiting."
    own = [row for row in breakdown.level("ranks").rows if row.part.endswith(OWN_WORK)]
    if not own:
        return note
    most_changed = max(own, key=lambda row: abs(row.delta))
    rank = most_changed.part.removesuffix(OWN_WORK)
    return f"The own time of {rank} changed the most, {_signed_duration(float(most_changed.delta))}. {note}"


def _waterfall_card(breakdown: Breakdown) -> Card:
    """Base, the change of each category on top of the one before, head; the axis starts below them all."""
    per = breakdown.per.partition(":")[2] or breakdown.per
    running = float(breakdown.base_mean)
    bars = [_level("base", per, running)]
    for row in breakdown.level("breakdown").rows:
        delta = float(row.delta)
        if delta:
            name, change = category_name(row.part), _signed_duration(delta)
            description = f"{name}: {_from_to(row)}, {change}"
            bars.append(Bar(name, delta, base_category(row.part), change, description, start=running))
        running += delta
    bars.append(_level("head", per, running))
    ends = [bar.end for bar in bars] + [bar.start for bar in bars[1:-1]]
    low = max(0.0, min(ends) - 0.25 * (max(ends) - min(ends)))
    axis = f"; the axis starts at {duration(low)}" if low else ""
    text = f"The categories sum exactly to the change, {_signed_duration(float(breakdown.delta))}."
    title = f"Base, categories, head{axis}"
    return chart_card("From base to head", text, title, bar_chart(bars, low=low))


def _level(side: str, per: str, ns: float) -> Bar:
    time = duration(ns)
    return Bar(f"{side}: mean {per}", ns, side, time, f"{side}: {time}", is_level=True)


def _changes_card(breakdown: Breakdown, level: str, kinds: str) -> Card:
    """The largest changes of a level."""
    title = f"Largest changes {LEVELS[level].partition(' (')[0]}"
    changes = [
        (category_name(row.part), float(row.delta), _change_description(row))
        for row in breakdown.level(level).rows
        if row.delta
    ]
    caption = "Slower to the right, faster to the left"
    return changes_card(title, caption, kinds, changes, _signed_duration)


def _from_to(row: Row) -> str:
    return " to ".join(distinct_durations(float(row.base), float(row.head)))


def _change_description(row: Row) -> str:
    significance = ""
    if row.test and row.test.tested:
        significance = ", significant" if row.test.significant else ", not significant"
    kind = f" ({row.change})" if row.change else ""
    change = _signed_duration(float(row.delta))
    return f"{category_name(row.part)}: {_from_to(row)}, {change}{kind}{significance}"


def _table(change: Change, breakdown: Breakdown, level: str) -> Table:
    result = breakdown.level(level).result()
    rows = result.head(MAX_ROWS).rows()
    fields = [
        field
        for field in result.columns()
        if field.name != "level" and any(row[field.name] is not None for row in rows)
    ]
    title = LEVELS[level]
    command = f"{diff_command(change.base, change.head)} --level {level}"
    return result_table(result, level, f"{title[:1].upper()}{title[1:]}", command, fields)


def _history_section(change: Change, history: History | None) -> Iterator[Section]:
    if history is None:
        return
    compared = {*change.base, *change.head}
    series = [
        each
        for each in history.series
        if len(names := {point.name for point in each.known}) > 2 and names & compared
    ]
    if not series:
        return
    cards = [_series_card(each, change, history) for each in series]
    runs = plural(sum(len(each.points) for each in series), "recorded run")
    changes = plural(sum(len(each.changes) for each in series), "level change")
    yield Section("history", "History", f"{runs}, {changes} of the step time.", tuple(cards))


def _series_card(series: Series, change: Change, history: History) -> Card:
    categories = {**dict.fromkeys(change.base, "base"), **dict.fromkeys(change.head, "head")}
    points = []
    for number, point in enumerate(series.known, 1):
        text, category = f"{point.name}: {duration(point.value)}", categories.get(point.name, "plain")
        points.append(Point(number, point.value or 0.0, category, text, point.level))
    changes = [f"{each.before} → {each.after} {percent(each.change or 0, 1)}" for each in series.changes]
    text = f"Level changes: {'; '.join(changes)}." if changes else "No level change."
    title = f"{history.metric} of the recorded runs in time order"
    chart = point_chart(points, "step time", history.unit)
    return chart_card(series.name or "Step time over runs", text, title, chart)


RowValues = dict[str, Any]
_MAX_LABELS = 3


def many_runs(side: Selection, findings: Result, measured: Sequence[Measured], notify: Notify) -> Page:
    """The page, with runs in the order of their start; `findings` and `measured` are those of all runs."""
    runs = side.selected()
    notify("computing steps")
    summary = side.analyze("step_summary")
    steps = _steps(summary)
    notify("computing breakdowns")
    parts = mean_parts(side, summary)
    names = [each.run for each in runs]
    times = {run: time for run in names if (time := _time(steps.get(run, []), parts.get(run, {})))}
    # The label keys whose values differ between runs.
    labels_of_runs = [each.version.labels for each in runs]
    keys = dict.fromkeys(key for each in labels_of_runs for key in each)
    labels = [key for key in keys if len({each.get(key) for each in labels_of_runs}) > 1][:_MAX_LABELS]
    worst = _worst(findings, {each.run: len(each.ranks) for each in runs})
    rows = tuple(
        replace(
            _run_row(each, labels, steps, parts, times, worst),
            metrics=tuple(_metric_value(metric, each.run) for metric in measured),
        )
        for each in runs
    )
    explained = [f"{each.metric}: {each.per}. {each.metric.column.doc}" for each in measured]
    damaged = damaged_runs((UnreadableRun(run, "", why) for run, why in side.noted.items()), len(runs))
    statements = (*explained, *map(cli_text, damaged))
    return Page(
        name="runs",
        title=plural(len(runs), "run"),
        subtitle="One row per run, in order of their start",
        facts=(("Runs", ", ".join(names)),),
        verdict=_runs_verdict(times),
        tiles=(),
        sections=(
            Section("runs", "Runs", _summary(labels, times), runs=rows, statements=statements),
            Section("times", "Times", "Each point is a run.", (_times_card(times),)),
            *_costs(side),
        ),
        footer=f"tracewarehouse {__version__}",
        legend=tuple(name for name in CATEGORIES if any(name in part for part in parts.values())),
    )


def _costs(side: Selection) -> Iterator[Section]:
    """What costs most by month, if results of the runs are recorded."""
    titles = {"kernel_fleet": "Kernels", "collective_fleet": "Collectives", "finding_fleet": "Findings"}
    results = {name: side.analyze(name, period="month") for name in titles}
    tables = tuple(
        result_table(rows, name, titles[name], f"tw show {name} --period month")
        for name, rows in results.items()
        if len(rows)
    )
    notices = dict.fromkeys(cli_text(notice) for rows in results.values() for notice in rows.notices)
    if tables:
        summary = "By month, from recorded results, the largest first."
        yield Section("costs", "What costs most", summary, tables=tables, statements=tuple(notices))


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


class _Time(Struct, frozen=True):
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


def _worst(findings: Result, ranks: Mapping[str, int]) -> dict[str, tuple[str, str]]:
    """Run → severity and first sentence of its worst finding."""
    rows: dict[str, list[RowValues]] = {}
    for row in findings.rows():
        rows.setdefault(row["run_id"], []).append(row)
    worst = {}
    for run, run_rows in rows.items():
        group = finding_groups(run_rows)[0]
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
    run, run_labels = selected.run, selected.version.labels
    run_parts, step_ns = parts.get(run, {}), [ns for _, ns in steps.get(run, ())]
    total_ns = sum(run_parts.values())
    severity, finding = worst.get(run, ("", "No findings."))
    time = times.get(run)
    comparable_ns = [*_of_kind(times, time.whole).values()] if time else []
    return RunRow(
        name=run,
        labels=tuple(f"{key}={run_labels[key]}" for key in labels if key in run_labels),
        ranks=len(selected.ranks),
        time=duration(time.ns if time else None),
        time_ns=time.ns if time else None,
        time_of=time.whole if time and time.whole != _compared(times) else "",
        change=_change(time.ns, comparable_ns[0]) if time else "",
        width=time.ns / max(comparable_ns) if time else 0.0,
        steps=few([ns / max(step_ns) for ns in step_ns]),
        shares=tuple(
            Share(name, ns / total_ns, f"{CATEGORIES[name]}: {duration(ns)}, {percent(ns, total_ns)}")
            for name in STACK_ORDER
            if (ns := run_parts.get(name))
        ),
        severity=severity,
        finding=finding,
        command=f"tw report {shlex.quote(run)}",
    )


def _metric_value(measured: Measured, run: str) -> MetricValue:
    metric = measured.metric
    run_value = next(each for each in measured.runs if each.run == run)
    if run_value.value is None:
        return MetricValue(str(metric), "-", None, run_value.reason or "")
    return MetricValue(str(metric), format_short(run_value.value, metric.column.unit), run_value.value)


def _change(time_ns: float, first_ns: float) -> str:
    """The difference from the first run with a time of the same kind."""
    if not first_ns or time_ns == first_ns:
        return ""
    return f"{100 * (time_ns / first_ns - 1):+.1f} %"


def _runs_verdict(times: Mapping[str, _Time]) -> Verdict:
    whole = _compared(times)
    times_ns = _of_kind(times, whole)
    if not times_ns:
        return Verdict("None of these runs has steps or GPU activities, so their times cannot be compared.")
    fastest, slowest = min(times_ns, key=times_ns.__getitem__), max(times_ns, key=times_ns.__getitem__)
    best, worst = duration(times_ns[fastest]), duration(times_ns[slowest])
    if len(times_ns) == 1:
        return Verdict(f"{fastest} is the only run with times: its {whole} takes {best}.")
    first, last = ("fastest", "slowest") if whole == _STEP else ("shortest", "longest")
    others = len(times) - len(times_ns)
    meaning = "the median complete step" if whole == _STEP else "the GPU window, whatever ran in it"
    price = f"Times are {meaning}, mean over ranks; parts are those of the mean {whole}."
    if others:
        other = "a complete step" if whole == _STEP else "only a GPU window"
        price += f" {plural(others, 'run')} without {other} {'is' if others == 1 else 'are'} not compared."
    return Verdict(
        f"{fastest} is the {first} of {plural(len(times_ns), 'run')}: its {whole} takes {best}; "
        f"{slowest} is the {last} ({worst}, {_times(times_ns[slowest] / times_ns[fastest])} times as long).",
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
    time_kind = _WINDOW if kinds == {_WINDOW} else "median complete step"
    return f"Time: {time_kind}; change: against the first run.{by}"


def _times_card(times: Mapping[str, _Time]) -> Card:
    whole = _compared(times)
    points = [
        Point(number, ns, "head", f"{run}: {duration(ns)}", None)
        for number, (run, ns) in enumerate(_of_kind(times, whole).items(), 1)
    ]
    quantity = "step time" if whole == _STEP else whole
    figures = (Figure(f"{quantity} by run", point_chart(points, quantity, "ns")),) if points else ()
    return Card("Time over runs", "In order of the runs' start.", figures)


Notify = Callable[[str], object]


def one_run_page(run: Selection, notify: Notify) -> Page:
    """The report of the only run of a selection."""
    # The stacks are of one rank: they share views with the others only if there is no other one.
    (selected,) = run.selected()
    stacks = ("host_stacks",) if len(selected.ranks) == 1 else ()
    run.will_read(map(run.catalog.get, (*READ, *stacks)))
    run = attributed(run)
    if run.has_workers:
        return run.in_worker(partial(one_run_page, notify=str))  # progress does not leave a worker
    info = run_info(run.store, run.catalog, run.selected()[0], run.level)
    findings = check_runs(run, notify=lambda rule: notify(f"checking {rule}"))
    return one_run(run, info, findings, notify)


def two_runs_page(selection: Selection, compared: Diff, notify: Notify) -> Page:
    """The report on what changed between two sides."""
    notify("comparing")
    change = compared.changes()
    times = measure(parse_metric("step_time", selection.catalog), compared.base, compared.head)
    one_each = [selection.one_run(side[0]) for side in (change.base, change.head)]
    try:
        step_times = metric_history(selection, "step_time")
    except TwError:  # no results are recorded
        step_times = None
    return two_runs(change, times, step_times, one_each, notify)


def many_runs_page(selection: Selection, metrics: Iterable[str], notify: Notify) -> Page:
    """The report on all selected runs, with a column for each metric. Raises ParamError."""
    if selection.has_workers:
        selection.will_read(map(selection.catalog.get, ("step_summary", "step_account", "window_account")))
        selection = attributed(selection)
        return selection.in_worker(partial(many_runs_page, metrics=tuple(metrics), notify=str))
    parsed = [parse_metric(text, selection.catalog) for text in metrics]
    findings = check_runs(selection, notify=lambda rule: notify(f"checking {rule}"))
    notify("measuring")
    measured = [measured for metric in parsed for measured in measure(metric, selection)]
    return many_runs(selection, findings, measured, notify)
