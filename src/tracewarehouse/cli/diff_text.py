"""What changed between two runs, as text for a terminal and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tracewarehouse.render.table import markdown, table
from tracewarehouse.render.text import one_line, show
from tracewarehouse.result import Field

if TYPE_CHECKING:
    from tracewarehouse.diff.change import Change
    from tracewarehouse.diff.gate import GateResult

_SHOWN = (
    "part",
    "base_ns",
    "head_ns",
    "delta_ns",
    "share",
    "calls_ns",
    "speed_ns",
    "change",
    "q",
    "significant",
)
_TITLES = {
    "breakdown": "by what the devices did, or why they stood idle",
    "kernels": "by kernel: more or fewer calls, slower or faster calls",
    "operators": "by operator",
    "categories": "by pass and kind",
    "ranks": "by rank",
}
_ENTIRE = ("breakdown",)  # levels of a few rows, never folded
_COMMENT = 60_000  # characters; a comment of a pull request holds 65,536
Layout = Callable[[Sequence[Field], Sequence[Sequence[object]]], str]


def text(change: Change, levels: Sequence[str], top: int, width: int | None) -> str:
    """The whole answer for eyes: what to know first, the verdict, gates, the account level by level."""

    def laid_out(fields: Sequence[Field], rows: Sequence[Sequence[object]]) -> str:
        return "\n".join(table(fields, rows, width=width, keys=("part", "gate")).lines())

    parts = [_first(change, ""), *_gates(change, laid_out)]
    if change.breakdown is not None:
        parts += [f"{_title(change, name)}\n{_level(change, name, top, laid_out)}" for name in levels]
    return "\n\n".join(parts) + "\n"


def comment(change: Change, levels: Sequence[str], top: int) -> str:
    """The same as Markdown: the verdict in sight, levels folded away."""
    parts = [f"### {change.line}", _first(change, "- ", verdict=False), *_gates(change, _marked)]
    if change.breakdown is not None:
        for name in levels:
            opened = " open" if name in _ENTIRE else ""
            inner = _level(change, name, top, _marked)
            part = f"<details{opened}><summary>{_title(change, name)}</summary>\n\n{inner}\n</details>"
            if sum(map(len, parts)) + len(part) < _COMMENT:
                parts.append(part)
    return "\n\n".join(part for part in parts if part) + "\n"


def _marked(fields: Sequence[Field], rows: Sequence[Sequence[object]]) -> str:
    return markdown(fields, rows).rstrip("\n")


def _first(change: Change, mark: str, verdict: bool = True) -> str:
    """The sides, in what they differ, and the verdict."""
    lines = [f"{mark}base {_named(change.base)}", f"{mark}head {_named(change.head)}"]
    lines += [
        f"{mark}{'not comparable' if each.hard else 'note'}: {one_line(each.message)}"
        for each in change.differences
    ]
    if verdict:
        lines += ["", change.line]
    if change.verdict.reason and change.verdict.unit != "window":
        lines.append(f"{mark}{change.verdict.reason}")
    if change.no_breakdown_reason:
        lines.append(f"{mark}no breakdown: {change.no_breakdown_reason}")
    return "\n".join(lines)


def _named(runs: Sequence[str]) -> str:
    return (
        runs[0]
        if len(runs) == 1
        else f"{len(runs)} runs: {', '.join(runs[:3])}{', …' if len(runs) > 3 else ''}"
    )


def _title(change: Change, name: str) -> str:
    account = change.breakdown
    assert account is not None
    times = f"{show(float(account.base_mean), 'ns')} → {show(float(account.head_mean), 'ns')}"
    return f"mean {account.per} {times} {_TITLES[name]}"


def _level(change: Change, name: str, top: int, layout: Layout) -> str:
    assert change.breakdown is not None
    result = change.breakdown.level(name).result(None if name in _ENTIRE else top)
    fields = [field for field in result.columns() if field.name in _SHOWN]
    rows = result.rows()
    kept = [field for field in fields if any(row[field.name] is not None for row in rows)]
    return layout(kept, [[row[field.name] for field in kept] for row in rows])


def _gates(change: Change, layout: Layout) -> Iterator[str]:
    if change.gates:
        names = ("gate", "outcome", "base", "head", "value", "reason")
        fields = [Field(name, "VARCHAR") for name in names]
        yield layout(fields, [_gate(each) for each in change.gates])


def _gate(judged: GateResult) -> list[object]:
    unit = judged.gate.metric.column.unit
    base, head = (None if value is None else show(value, unit) for value in (judged.base, judged.head))
    return [judged.gate.text, judged.outcome, base, head, _bounded(judged), judged.reason]


def _bounded(judged: GateResult) -> str | None:
    """What was held against the bound, with its interval."""
    if judged.value is None:
        return None
    if not judged.gate.relative:
        return show(judged.value, judged.gate.metric.column.unit)
    said = f"{100 * judged.value:+.1f} %"
    if judged.low is None or judged.high is None:
        return said
    return f"{said} [{100 * judged.low:.1f}, {100 * judged.high:.1f}]"
