"""The report on what changed between two runs, or two groups of runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tracewarehouse.display_names import CATEGORIES, LEVELS, base_category, category_name
from tracewarehouse.present.plot import PAGE
from tracewarehouse.present.plot.bars import Bar, bar_chart
from tracewarehouse.present.plot.lines import Point, point_chart, strip_chart
from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.document import (
    Card,
    Command,
    Figure,
    Page,
    Section,
    Table,
    Tile,
    Verdict,
)
from tracewarehouse.present.report.median_steps import median_steps
from tracewarehouse.present.report.snapshot_change import snapshot_sections
from tracewarehouse.present.report.text import (
    and_list,
    distinct_durations,
    distinct_labels,
    duration,
    percent,
    sentence,
)
from tracewarehouse.runs.selection import RankSelection
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    from tracewarehouse.compare.diff.breakdown import Breakdown
    from tracewarehouse.compare.diff.change import Change
    from tracewarehouse.compare.diff.levels import Row
    from tracewarehouse.compare.history import History, Series
    from tracewarehouse.compare.metric import Measured

_MAX_BARS, _MAX_ROWS = 12, 50
_SEVERITIES = {"slower": "critical", "faster": "passed", "no change": "passed"}
# Levels of the breakdown that need modules, or input shapes.
_OF_WORK = {"modules": "modules", "work": "work"}
_NOISE = {"run": "estimated across runs", "step": "estimated across steps of these runs only"}


def two_runs(
    change: Change,
    times: Sequence[Measured],
    history: History | None,
    runs: Sequence[RankSelection],
    notify: Callable[[str], None],
) -> Page:
    """The comparison, the step times of both sides, and the history of step times if it is recorded.

    `runs` are one run of each side, whose median steps are drawn one above the other.
    """
    notify("computing the page")
    timelines, host = median_steps(runs)
    breakdown = change.breakdown
    rows = breakdown.level("breakdown").rows if breakdown else ()
    categories = {base_category(row.part) for row in rows}
    sections = (
        _verdict_section(change, times),
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
        verdict=_verdict(change),
        tiles=tuple(_tiles(change)),
        sections=sections,
        footer=f"tracewarehouse {__version__}",
        legend=("base", "head", *(name for name in CATEGORIES if name in categories), "longer", "shorter"),
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


def _verdict(change: Change) -> Verdict:
    """The verdict of the comparison, and the part that changed the most."""
    price = ""
    if change.breakdown:
        late = [sentence(change.late_rank)] if change.late_rank else []
        price = " ".join([*late, _breakdown_summary(change.breakdown)])
    elif change.no_breakdown_reason:
        price = sentence(f"no breakdown: {change.no_breakdown_reason}")
    sides = " ".join(shlex.quote(",".join(side)) for side in (change.base, change.head))
    return Verdict(
        sentence(change.line),
        _SEVERITIES.get(change.verdict.word, ""),
        price,
        commands=(Command(f"tw diff {sides}", "the comparison"),),
        word=change.verdict.word,
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
    yield Tile("verdict", verdict.word, measured)


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


def _verdict_section(change: Change, times: Sequence[Measured]) -> Section:
    cards = (_comparability_card(change), _step_times_card(times))
    return Section("verdict", "Verdict", sentence(change.line), cards)


def _comparability_card(change: Change) -> Card:
    blocking = [each.message for each in change.differences if each.hard]
    others = [each.message for each in change.differences if not each.hard]
    text = f"Not comparable: {and_list(blocking)}." if blocking else "The two sides are comparable."
    more = f"Other differences: {'; '.join(others)}." if others else "No other differences found."
    return Card("Comparability", f"{text} {more}")


def _step_times_card(times: Sequence[Measured]) -> Card:
    lanes = {
        name: (
            name,
            [(value, f"{run.run}: {duration(value)}") for run in side.runs for value in run.steps],
        )
        for name, side in zip(("base", "head"), times, strict=True)
    }
    if not all(ticks for _, ticks in lanes.values()):
        return Card("Step times", "Base or head has no complete step, so step times cannot be compared.")
    counts = and_list([f"{plural(len(ticks), 'step')} of {name}" for name, (_, ticks) in lanes.items()])
    figure = Figure(
        "Each complete step, mean over ranks; long mark: median", strip_chart(lanes, "period", "ns", PAGE)
    )
    return Card("Step times", f"{counts}.", (figure,))


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
    levels |= {name: what for name, what in _OF_WORK.items() if _is_known(breakdown, name)}
    yield Section(
        "kernels",
        "Kernels and operators",
        _kernels_summary(breakdown),
        tuple(_changes_card(breakdown, name, what) for name, what in levels.items()),
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
    return level == "modules" and any(parts) or any(each.endswith(("(flop)", "(bytes)")) for each in parts)


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
    own = [row for row in breakdown.level("ranks").rows if row.part.endswith(" own")]
    if not own:
        return note
    most = max(own, key=lambda row: abs(row.delta))
    rank = most.part.removesuffix(" own")
    return f"The own time of {rank} changed the most, {_signed_duration(float(most.delta))}. {note}"


def _waterfall_card(breakdown: Breakdown) -> Card:
    """Base, the change of each category on top of the one before, head; the axis starts below them all."""
    per = breakdown.per.partition(":")[2] or breakdown.per
    running = float(breakdown.base_mean)
    bars = [Bar(f"base: mean {per}", running, "base", duration(running), f"base: {duration(running)}")]
    for row in breakdown.level("breakdown").rows:
        delta = float(row.delta)
        if delta:
            name, change = category_name(row.part), _signed_duration(delta)
            description = f"{name}: {_from_to(row)}, {change}"
            bars.append(Bar(name, delta, base_category(row.part), change, description, start=running))
        running += delta
    bars.append(Bar(f"head: mean {per}", running, "head", duration(running), f"head: {duration(running)}"))
    ends = [bar.start + bar.value for bar in bars] + [bar.start for bar in bars[1:-1]]
    low = max(0.0, min(ends) - 0.25 * (max(ends) - min(ends)))
    axis = f"; the axis starts at {duration(low)}" if low else ""
    figure = Figure(f"Base, categories, head{axis}", bar_chart(bars, PAGE, low=low))
    text = f"The categories sum exactly to the change, {_signed_duration(float(breakdown.delta))}."
    return Card("From base to head", text, (figure,))


def _changes_card(breakdown: Breakdown, level: str, kinds: str) -> Card:
    """The largest changes of a level."""
    title = f"Largest changes {LEVELS[level].partition(' (')[0]}"
    rows = [row for row in breakdown.level(level).rows if row.delta]
    if not rows:
        return Card(title, "No changes.")
    names = distinct_labels([category_name(row.part) for row in rows[:_MAX_BARS]])
    bars = [
        Bar(
            name,
            float(row.delta),
            "longer" if row.delta > 0 else "shorter",
            _signed_duration(float(row.delta)),
            _change_description(row),
        )
        for name, row in zip(names, rows, strict=False)
    ]
    rest = sum(float(row.delta) for row in rows[_MAX_BARS:])
    text = f"All {kinds} that changed are shown."
    if len(rows) > _MAX_BARS:
        text = f"{len(bars)} of {len(rows):,} {kinds} shown; the rest sum to {_signed_duration(rest)}."
    return Card(title, text, (Figure("Slower to the right, faster to the left", bar_chart(bars, PAGE)),))


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
    assert result.contract is not None
    rows = result.head(_MAX_ROWS).rows()
    names = result.table.column_names
    shown = {name for name in names if name != "level" and any(row[name] is not None for row in rows)}
    fields = [field for field in result.columns() if field.name in shown]
    sides = " ".join(shlex.quote(",".join(side)) for side in (change.base, change.head))
    title = LEVELS[level]
    return Table(
        name=level,
        caption=f"{title[:1].upper()}{title[1:]}",
        fields=tuple(fields),
        docs=tuple(column.doc for column in result.contract.columns if column.name in shown),
        rows=[[row[field.name] for field in fields] for row in rows],
        total=len(result),
        command=f"tw diff {sides} --level {level}",
    )


def _history_section(change: Change, history: History | None) -> Iterator[Section]:
    if history is None:
        return
    compared = {*change.base, *change.head}
    series = [each for each in history.series if _contains_a_compared_run(each, compared)]
    if not series:
        return
    cards = [_series_card(each, change, history) for each in series]
    runs = plural(sum(len(each.points) for each in series), "recorded run")
    changes = plural(sum(len(each.changes) for each in series), "level change")
    yield Section("history", "History", f"{runs}, {changes} of the step time.", tuple(cards))


def _contains_a_compared_run(series: Series, compared: set[str]) -> bool:
    names = {point.name for point in series.known}
    return bool(names & compared) and len(names) > 2


def _series_card(series: Series, change: Change, history: History) -> Card:
    categories = {**dict.fromkeys(change.base, "base"), **dict.fromkeys(change.head, "head")}
    points = [
        Point(
            at,
            point.value or 0.0,
            categories.get(point.name, "plain"),
            f"{point.name}: {duration(point.value)}",
            point.level,
        )
        for at, point in enumerate(series.known, 1)
    ]
    changes = [f"{each.before} → {each.after} {percent(each.change or 0, 1)}" for each in series.changes]
    text = f"Level changes: {'; '.join(changes)}." if changes else "No level change."
    figure = Figure(
        f"{history.metric} of the recorded runs in time order",
        point_chart(points, "step time", "run", history.unit, PAGE),
    )
    return Card(series.name or "Step time over runs", text, (figure,))
