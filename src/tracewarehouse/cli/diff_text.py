"""The change between two runs as text for a terminal, and as a Markdown comment for a pull request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tracewarehouse.display_names import HOST_LEVELS, LEVELS
from tracewarehouse.hints import cli_text
from tracewarehouse.present.render.table import Facts, markdown, shortened, table
from tracewarehouse.present.render.text import one_line, plural, show
from tracewarehouse.result import Field

if TYPE_CHECKING:
    from tracewarehouse.compare.diff.change import Change
    from tracewarehouse.compare.diff.gate import GateResult

_COLUMNS = (
    "name",
    "base_ns",
    "head_ns",
    "delta_ns",
    "share",
    "change",
    "q",
    "significant",
    "calls_ns",
    "speed_ns",
)
# Stay in a narrow table.
_ANSWER = ("delta_ns", "base_ns", "head_ns", "significant")
_GATE_ANSWER = ("outcome", "value", "head", "base")
_HEADINGS = {"share": "of_change"}
_SNAPSHOT = "memory at the peak by call"
_BANDWIDTH = "bus bandwidth by collective, message size and number of ranks"
_SHORT_LEVELS = ("breakdown",)  # a few rows, never folded
_MOST_CHARACTERS = 60_000  # GitHub limits comments to 65,536
_CUT = "\n\n… the rest is left out.\n"
_MARKS = {
    "fail": "## ❌ tw diff: a gate failed\n\n",
    "inconclusive": "## ⚠️ tw diff: inconclusive\n\n",
    "pass": "## ✅ tw diff: all gates hold\n\n",
}
_GOOD = ("no change", "faster")
_GATE_COLUMNS = ("gate", "outcome", "base", "head", "value")
_OUTCOMES = ("fail", "inconclusive", "pass")
Layout = Callable[[Sequence[Field], Sequence[Sequence[object]]], str]


def text(change: Change, levels: Sequence[str], top: int, width: int | None) -> str:
    """Configuration differences, the verdict, gates, and the breakdown by level; lines of `width` columns."""

    def plain(fields: Sequence[Field], rows: Sequence[Sequence[object]]) -> str:
        return "\n".join(table(fields, rows, width=width, keys=("name", "gate"), answer=_ANSWER).lines())

    def titled(title: str, rows: str) -> str:
        return f"{_wrapped(title, width)}\n{rows}"

    parts = [_wrapped(_summary(change, ""), width), *_gate_table(change.gates, width)]
    if change.breakdown is not None:
        parts += [titled(_title(change, name), _level(change, name, top, plain)) for name in levels]
    parts += [titled(title, rows) for title, rows in _noticeable(change, top, plain)]
    return "\n\n".join(parts) + "\n"


def _wrapped(text: str, width: int | None) -> str:
    """The lines of `text`, those longer than `width` wrapped; a name that is longer is shortened."""
    if width is None:
        return text
    fits = partial(wrap, width=width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    text = re.sub(rf"\S{{{width - 1},}}", lambda name: shortened(name[0], width - 2), text)
    return "\n".join("\n".join(fits(line)) for line in text.splitlines())


def markdown_comment(change: Change, levels: Sequence[str], top: int) -> str:
    """The same as Markdown: the verdict visible, levels collapsed."""
    parts = [f"### {change.line}", _summary(change, "- ", verdict=False), *_gates(change.gates)]
    if change.breakdown is not None:
        for name in levels:
            opened = " open" if name in _SHORT_LEVELS else ""
            inner = _level(change, name, top, _markdown)
            part = f"<details{opened}><summary>{_title(change, name)}</summary>\n\n{inner}\n</details>"
            if sum(map(len, parts)) + len(part) < _MOST_CHARACTERS:
                parts.append(part)
    parts += [
        f"<details><summary>{title}</summary>\n\n{inner}\n</details>"
        for title, inner in _noticeable(change, top, _markdown)
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def github_comment(change: Change, levels: Sequence[str], top: int) -> str:
    """A comment of at most 60 kB: the verdict with a mark, failed gates first, and what there is room for.

    The rows of each level are cut before a level is left out, so that the first rows of each remain.
    """
    for rows in (top, top // 2, 3, 1):
        text = f"{_heading(change)}{markdown_comment(change, levels, rows)}"
        if len(text.encode()) <= _MOST_CHARACTERS:
            return text
    cut = text.encode()[: _MOST_CHARACTERS - len(_CUT.encode())].decode(errors="ignore")
    return cut.rpartition("\n")[0] + _CUT


def untested_gates(gates: Sequence[GateResult], why: str, format_: str, width: int | None) -> str:
    """Gates without a comparison, as text or Markdown; with a mark for GitHub."""
    gates = [replace(each, reason=None) for each in gates]  # it is `why`, which is above them
    if format_ == "table":
        return "\n\n".join([_wrapped(why, width), *_gate_table(gates, width)]) + "\n"
    mark = _MARKS["inconclusive"] if format_ == "github" else ""
    return mark + "\n\n".join([f"### {why}", *_gates(gates)]) + "\n"


def _heading(change: Change) -> str:
    """The worst outcome of the gates, else the verdict."""
    outcomes = {each.outcome for each in change.gates}
    worst = next((each for each in _OUTCOMES if each in outcomes), None)
    if worst:
        return _MARKS[worst]
    mark = "✅" if change.verdict.word in _GOOD else "⚠️"
    return f"## {mark} tw diff: {change.verdict.outcome}\n\n"


def _markdown(fields: Sequence[Field], rows: Sequence[Sequence[object]]) -> str:
    return markdown(fields, rows).rstrip("\n")


def _summary(change: Change, mark: str, verdict: bool = True) -> str:
    """The two sides, how they differ, and the verdict."""
    lines = [f"{mark}recording: {change.recording}"]
    lines += [f"{mark}base {_run_list(change.base)}", f"{mark}head {_run_list(change.head)}"]
    lines += [
        f"{mark}{'warning' if each.is_warning else 'note'}: {one_line(cli_text(each.message))}"
        for each in change.differences
    ]
    if verdict:
        lines += ["", change.line]
    lines += [f"{mark}{each}" for each in _remarks(change)]
    if change.no_breakdown_reason:
        lines.append(f"{mark}no breakdown: {cli_text(change.no_breakdown_reason)}")
    return "\n".join(lines)


def _remarks(change: Change) -> Iterator[str]:
    """The causes, how far the verdict holds, and changes that the verdict does not show."""
    yield from change.causes
    if change.verdict.reason and change.verdict.sample == "run":
        yield change.verdict.reason
    changed = _significant_rows(change)
    if changed and change.breakdown and change.verdict.word in ("inconclusive", "no change"):
        of_host = ("operator, call or frame", "operators, calls or frames")
        rows = plural(changed, *(of_host if change.breakdown.on_host else ("kernel",)))
        yield f"the step as a whole: {change.verdict.outcome}; {rows} changed significantly"
    left_out = change.breakdown.incomplete if change.breakdown else ()
    yield from (f"note: {each}" for each in (*change.verdict.notices, *change.spread_notes, *left_out))


def _significant_rows(change: Change) -> int:
    if change.breakdown is None:
        return 0
    rows = change.breakdown.level("kernels").result().rows()
    return sum(bool(row.get("significant")) and not row["name"].startswith("idle_") for row in rows)


def _run_list(runs: Sequence[str]) -> str:
    return (
        runs[0]
        if len(runs) == 1
        else f"{len(runs)} runs: {', '.join(runs[:3])}{', …' if len(runs) > 3 else ''}"
    )


def _title(change: Change, name: str) -> str:
    account = change.breakdown
    assert account is not None
    times = f"{show(float(account.base_mean), 'ns')} → {show(float(account.head_mean), 'ns')}"
    return f"mean {account.whole} {times} {(HOST_LEVELS if account.on_host else LEVELS)[name]}"


def _level(change: Change, name: str, top: int, layout: Layout) -> str:
    assert change.breakdown is not None
    result = change.breakdown.level(name).result(None if name in _SHORT_LEVELS else top)
    known = {field.name: field for field in result.columns()}
    rows = result.rows()
    filled = [name for name in _COLUMNS if name in known and any(row[name] is not None for row in rows)]
    fields = [replace(known[name], name=_HEADINGS.get(name, name)) for name in filled]
    return layout(fields, [[row[name] for name in filled] for row in rows])


def _noticeable(change: Change, top: int, layout: Layout) -> Iterator[tuple[str, str]]:
    """Collectives, and calls that hold memory: title and noticeable changes."""
    for title, comparison in (
        (_BANDWIDTH, change.bandwidth),
        (_SNAPSHOT, change.snapshot),
    ):
        rows = comparison.changed[:top] if comparison else []
        if comparison and rows:
            fields = comparison.rows.columns()
            yield title, layout(fields, [[row[field.name] for field in fields] for row in rows])


def _gates(gates: Sequence[GateResult]) -> Iterator[str]:
    if gates:
        fields = [Field(name, "VARCHAR") for name in (*_GATE_COLUMNS, "reason", "power")]
        rows = [_gate_row(each) for each in _worst_first(gates)]
        yield markdown(fields, rows, code=("gate",)).rstrip("\n")


def _gate_table(gates: Sequence[GateResult], width: int | None) -> Iterator[str]:
    """The gates as a table, and below it the reasons of outcomes and the power, which are sentences."""
    if not gates:
        return
    fields, rows = [Field(name, "VARCHAR") for name in _GATE_COLUMNS], []
    notes: dict[str, list[str]] = {}
    for each in _worst_first(gates):
        *cells, reason, power = _gate_row(each)
        rows.append(cells)
        for note in (reason, power):
            if note is not None:
                notes.setdefault(str(note), []).append(each.gate.text)
    shown = table(fields, rows, width, ("gate",), Facts(), _GATE_ANSWER).lines()
    said = [_wrapped(f"{', '.join(texts)}: {note}", width) for note, texts in notes.items()]
    yield "\n".join([*shown, *said])


def _worst_first(gates: Sequence[GateResult]) -> list[GateResult]:
    return sorted(gates, key=lambda each: _OUTCOMES.index(each.outcome))


def _gate_row(result: GateResult) -> list[object]:
    unit = result.gate.metric.column.unit
    base, head = (None if value is None else show(value, unit) for value in (result.base, result.head))
    reason = None if result.reason is None else cli_text(result.reason)
    value, power = gate_value(result), gate_power(result)
    return [result.gate.text, result.outcome, base, head, value, reason, power]


def gate_power(result: GateResult) -> str | None:
    """How likely the gate fails at its bound and at twice the bound, and what it fails for with 80 %."""
    if result.power_at_bound is None:
        return None
    bound = result.gate.bound
    parts = [
        f"fails in {100 * result.power_at_bound:.0f} % of cases if the true change is {100 * bound:+.1f} %"
    ]
    if result.power_at_twice is not None:
        parts.append(f"in {100 * result.power_at_twice:.0f} % if {200 * bound:+.1f} %")
    if result.detects is not None:
        parts.append(f"in 80 % if {100 * result.detects:+.1f} %")
    return ", ".join(parts)


def gate_value(result: GateResult) -> str | None:
    """The value compared with the bound, with its interval."""
    if result.value is None:
        return None
    if not result.gate.relative:
        return show(result.value, result.gate.metric.column.unit)
    change = f"{100 * result.value:+.1f} %"
    if result.low is None or result.high is None:
        return change
    return f"{change} [{100 * result.low:.1f}, {100 * result.high:.1f}]"
