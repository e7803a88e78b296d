"""The page on what changed between two runs, or two sets of runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tracewarehouse.plot import PAGE
from tracewarehouse.plot.bars import Bar, bars
from tracewarehouse.plot.lines import Dot, dots, strips
from tracewarehouse.report.content import Part, Picture, Section, Table, Tile
from tracewarehouse.report.document import Page
from tracewarehouse.report.wording import MEANINGS, and_list, label, part, plural, time
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    from tracewarehouse.diff.breakdown import Breakdown
    from tracewarehouse.diff.change import Change
    from tracewarehouse.diff.levels import Row
    from tracewarehouse.history import History, Line
    from tracewarehouse.metric import Measured

TOP, ROWS = 12, 50
_CAPTIONS = {
    "breakdown": "By what the devices did, or why they stood idle",
    "kernels": "By kernel",
    "operators": "By operator",
    "categories": "By pass and kind",
    "ranks": "By rank",
}


def two_runs(
    change: Change, times: Sequence[Measured], past: History | None, say: Callable[[str], None]
) -> Page:
    """All of it: the comparison, the step times of both sides, the history of step times if recorded."""
    say("working out the page")
    sections = [_verdict(change, times), *_account(change), *_history(change, past)]
    account = change.breakdown
    parts = [row.part for row in account.level("breakdown").rows] if account else []
    return Page(
        name=f"{_named(change.base)}-{_named(change.head)}",
        title=f"{_named(change.base)} → {_named(change.head)}",
        subtitle="What changed, whether it is more than noise, and where the time went",
        facts=tuple(_facts(change)),
        tiles=tuple(_tiles(change)),
        unknown=tuple(_unknown(change)),
        sections=tuple(sections),
        made=f"Made by tracewarehouse {__version__}.",
        meanings=("base", "head", *(name for name in MEANINGS if name in parts), "longer", "shorter"),
    )


def _named(runs: Sequence[str]) -> str:
    return runs[0] if len(runs) == 1 else f"{runs[0]} and {len(runs) - 1} more"


def _facts(change: Change) -> Iterator[tuple[str, str]]:
    yield "Base", ", ".join(change.base)
    yield "Head", ", ".join(change.head)
    if change.breakdown:
        units = change.breakdown.per.partition(":")[0]
        account = change.breakdown
        yield (
            "Compared",
            f"{account.base_intervals:,} of base, {account.head_intervals:,} of head: "
            f"each {units} of each rank",
        )
    yield (
        "Noise",
        {"run": "known over runs", "step": "known over steps of these runs only"}.get(
            change.verdict.unit, "not known: one window per side"
        ),
    )


def _tiles(change: Change) -> Iterator[Tile]:
    said = change.verdict
    yield Tile("base", time(said.base_median_ns), "median step")
    yield Tile("head", time(said.head_median_ns), "median step")
    if said.change is not None:
        known = said.low is not None and said.high is not None
        spread = f"{_signed(said.low)} to {_signed(said.high)}" if known else "how sure is not known"
        yield Tile("change", _signed(said.change), spread)
    yield Tile("verdict", said.word, "by the step time")


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f} %"


def _unknown(change: Change) -> Iterator[str]:
    if change.verdict.reason:
        yield f"{change.verdict.reason[0].upper()}{change.verdict.reason[1:]}."
    if change.no_breakdown_reason:
        yield f"Where the time went: {change.no_breakdown_reason}."
    if change.breakdown:
        for notice in change.breakdown.notices:
            yield f"{notice[0].upper()}{notice[1:]}."


def _verdict(change: Change, times: Sequence[Measured]) -> Section:
    return Section(
        "verdict",
        "Verdict",
        f"{change.line[:1].upper()}{change.line[1:]}.",
        (_comparable(change), _spread(times)),
    )


def _comparable(change: Change) -> Part:
    hard = [each.message for each in change.differences if each.hard]
    soft = [each.message for each in change.differences if not each.hard]
    said = f"Not comparable: {and_list(hard)}. " if hard else "Both sides can be compared. "
    told = f"They differ in this, too: {'; '.join(soft)}." if soft else "No other difference is known."
    return Part("Comparable?", said + told)


def _spread(times: Sequence[Measured]) -> Part:
    lanes = {
        name: (
            name,
            [(value, f"{run.run}: {time(value)}") for run in side.runs for value in run.steps],
        )
        for name, side in zip(("base", "head"), times, strict=True)
    }
    if not all(ticks for _, ticks in lanes.values()):
        return Part("Step times", "A side has no complete step, so how steps are spread is not known.")
    counts = and_list([f"{plural(len(ticks), 'step')} of {name}" for name, (_, ticks) in lanes.items()])
    picture = Picture(
        "Each complete step, mean of its ranks; long: the median", strips(lanes, "period", "ns", PAGE)
    )
    return Part("Step times", f"{counts}.", (picture,))


def _account(change: Change) -> Iterator[Section]:
    account = change.breakdown
    if account is None:
        yield Section("account", "Account", f"There is no breakdown: {change.no_breakdown_reason}.")
        return
    base, head = float(account.base_mean), float(account.head_mean)
    first = account.level("breakdown").rows[0]
    said = (
        f"The mean {account.per} went from {time(base)} to {time(head)} ({_time(head - base)}); "
        f"the largest part of that is {MEANINGS.get(first.part, first.part)}, {_time(float(first.delta))}."
    )
    yield Section(
        "account",
        "Account",
        said,
        (_waterfall(account), _movers(account, "categories", "By pass and kind", "passes and kinds")),
        (_table(change, account, "breakdown"), _table(change, account, "categories")),
    )
    yield Section(
        "kernels",
        "Kernels and operators",
        _lead(account, "kernels", "kernel or idle cause"),
        (
            _movers(account, "kernels", "Kernels that changed the step", "kernels and causes"),
            _movers(account, "operators", "Operators that changed the step", "operators and causes"),
        ),
        (_table(change, account, "kernels"), _table(change, account, "operators")),
    )
    if len({row.part.rpartition(" ")[0] for row in account.level("ranks").rows}) > 1:
        yield Section(
            "ranks",
            "Ranks",
            _of_ranks(account),
            (_movers(account, "ranks", "Ranks that changed the step", "ranks"),),
            (_table(change, account, "ranks"),),
        )


def _of_ranks(account: Breakdown) -> str:
    own = [row for row in account.level("ranks").rows if row.part.endswith(" own")]
    told = "A late rank's own time grows; of the others, which wait for it, only their communication does."
    if not own:
        return told
    most = max(own, key=lambda row: abs(row.delta))
    rank = most.part.removesuffix(" own")
    return f"The own time of {rank} changed the most, {_time(float(most.delta))}. {told}"


def _time(ns: float) -> str:
    return f"+{time(ns)}" if ns > 0 else time(ns)


def _lead(account: Breakdown, name: str, what: str) -> str:
    rows = [row for row in account.level(name).rows if row.delta]
    longer = sum(row.delta > 0 for row in rows)
    certain = sum(bool(row.test and row.test.significant) for row in rows)
    said = f"Of what changed by {what}, {longer:,} took longer and {len(rows) - longer:,} shorter"
    return f"{said}; {certain:,} by more than their noise."


def _waterfall(account: Breakdown) -> Part:
    """Base, each part's change on top of the one before, head; the axis is cut below them all."""
    per = account.per.partition(":")[2] or account.per
    running = float(account.base_mean)
    told = [Bar(f"base: mean {per}", running, "base", time(running), f"base: {time(running)}")]
    level = account.level("breakdown")
    for row in level.rows:
        delta = float(row.delta)
        if delta:
            name = MEANINGS.get(row.part, row.part)
            words = f"{name}: {time(float(row.base))} to {time(float(row.head))}, {_time(delta)}"
            told.append(Bar(name, delta, row.part, _time(delta), words, start=running))
        running += delta
    told.append(Bar(f"head: mean {per}", running, "head", time(running), f"head: {time(running)}"))
    ends = [each.start + each.value for each in told] + [each.start for each in told[1:-1]]
    low = max(0.0, min(ends) - 0.25 * (max(ends) - min(ends)))
    cut = f"; the axis begins at {time(low)}" if low else ""
    said = f"Parts add up to the change, {_time(float(account.delta))}, exactly."
    return Part("From base to head", said, (Picture(f"Base, parts, head{cut}", bars(told, PAGE, low=low)),))


def _movers(account: Breakdown, name: str, title: str, what: str) -> Part:
    rows = [row for row in account.level(name).rows if row.delta]
    if not rows:
        return Part(title, "Nothing changed.")
    shown = rows[:TOP]
    told = [
        Bar(
            label(MEANINGS.get(row.part, row.part)),
            float(row.delta),
            _way(row),
            _time(float(row.delta)),
            _words(row),
        )
        for row in shown
    ]
    rest = sum(float(row.delta) for row in rows[TOP:])
    said = (
        f"{len(shown)} of {len(rows):,} {what}; the others add {_time(rest)}."
        if len(rows) > TOP
        else f"All {what} that changed."
    )
    return Part(title, said, (Picture("Longer to the right, shorter to the left", bars(told, PAGE)),))


def _way(row: Row) -> str:
    return "longer" if row.delta > 0 else "shorter"


def _words(row: Row) -> str:
    sure = ""
    if row.test and row.test.tested:
        sure = ", more than noise" if row.test.significant else ", not more than noise"
    change = f" ({row.change})" if row.change else ""
    name = MEANINGS.get(row.part, row.part)
    return (
        f"{name}: {time(float(row.base))} to {time(float(row.head))}, {_time(float(row.delta))}{change}{sure}"
    )


def _table(change: Change, account: Breakdown, name: str) -> Table:
    result = account.level(name).result()
    assert result.contract is not None
    rows = result.head(ROWS).rows()
    kept = {each for each in result.table.column_names if any(row[each] is not None for row in rows)} - {
        "level"
    }
    fields = [each for each in result.columns() if each.name in kept]
    sides = " ".join(shlex.quote(",".join(side)) for side in (change.base, change.head))
    return Table(
        name=name,
        caption=_CAPTIONS[name],
        fields=tuple(fields),
        docs=tuple(column.doc for column in result.contract.columns if column.name in kept),
        rows=[[row[each.name] for each in fields] for row in rows],
        total=len(result),
        command=f"tw diff {sides} --level {name}",
    )


def _history(change: Change, past: History | None) -> Iterator[Section]:
    lines = [] if past is None else [line for line in past.lines if _holds(line, change)]
    if past is None or not lines:
        return
    parts = [_line(line, change, past) for line in lines]
    changes = sum(len(line.changes) for line in lines)
    runs = plural(sum(len(line.dots) for line in lines), "recorded run")
    said = f"Over {runs} the level of the step time changed {changes} time{'' if changes == 1 else 's'}."
    yield Section("history", "History", said, tuple(parts))


def _holds(line: Line, change: Change) -> bool:
    known = {dot.name for dot in line.dots if dot.value is not None}
    return bool(known & {*change.base, *change.head}) and len(known) > 2


def _line(line: Line, change: Change, past: History) -> Part:
    marks = {**dict.fromkeys(change.base, "base"), **dict.fromkeys(change.head, "head")}
    known = [dot for dot in line.dots if dot.value is not None]
    told = [
        Dot(at, dot.value or 0.0, marks.get(dot.name, "plain"), f"{dot.name}: {time(dot.value)}", dot.level)
        for at, dot in enumerate(known, 1)
    ]
    steps = [f"{each.before} → {each.after} {part(each.change or 0, 1)}" for each in line.changes]
    said = f"Level changes: {'; '.join(steps)}." if steps else "No change of level."
    title = f"{past.metric}, run by run in time order"
    return Part(
        line.name or "Step time over runs",
        said,
        (Picture(title, dots(told, "step time", "run", past.unit, PAGE)),),
    )
