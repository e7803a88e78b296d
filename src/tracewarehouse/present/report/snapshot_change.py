"""What changed at the peak of device memory between two runs with memory snapshots."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tracewarehouse.present.plot import PAGE
from tracewarehouse.present.plot.bars import Bar, bar_chart
from tracewarehouse.present.plot.theme import format_short
from tracewarehouse.present.report.document import Card, Figure, Section, Table
from tracewarehouse.present.report.text import distinct_labels

if TYPE_CHECKING:
    from tracewarehouse.compare.diff.change import Change, SnapshotDiff

_MAX_BARS, _MAX_ROWS = 12, 50


def snapshot_sections(change: Change) -> Iterator[Section]:
    """Active bytes at the peaks of both sides by call; none unless both have a memory snapshot."""
    snapshot = change.snapshot
    if snapshot is None:
        return
    rows = snapshot.rows.rows()
    before, after = (sum(row[f"{side}_bytes"] for row in rows) for side in ("base", "head"))
    summary = (
        f"The peak of active memory went from {_bytes(before)} to {_bytes(after)}"
        f" ({_change(after - before)})."
        " On each side the device with the highest peak counts."
    )
    sides = " ".join(shlex.quote(",".join(side)) for side in (change.base, change.head))
    table = _table(snapshot, f"tw diff {sides}")
    yield Section("snapshot", "Memory at the peak", summary, (_changes_card(rows),), (table,))


def _changes_card(rows: list[dict[str, Any]]) -> Card:
    """The calls whose bytes changed the most; the changes of all calls sum to that of the peak."""
    title = "Largest changes by call"
    changed = [row for row in rows if row["delta_bytes"]]
    if not changed:
        return Card(title, "No changes.")
    shown = changed[:_MAX_BARS]
    names = distinct_labels([row["top_frame"] for row in shown])
    bars = [
        Bar(
            name,
            row["delta_bytes"],
            "longer" if row["delta_bytes"] > 0 else "shorter",
            _change(row["delta_bytes"]),
            f"{row['top_frame']}, {row['category']}: {_bytes(row['base_bytes'])} to"
            f" {_bytes(row['head_bytes'])}",
        )
        for name, row in zip(names, shown, strict=True)
    ]
    rest = sum(row["delta_bytes"] for row in changed[_MAX_BARS:])
    text = "All calls whose memory changed are shown."
    if len(changed) > _MAX_BARS:
        text = f"{len(bars)} of {len(changed):,} calls shown; the rest sum to {_change(rest)}."
    return Card(title, text, (Figure("More memory to the right, less to the left", bar_chart(bars, PAGE)),))


def _table(snapshot: SnapshotDiff, command: str) -> Table:
    result = snapshot.rows
    assert result.contract is not None
    fields = result.columns()
    return Table(
        name="snapshot_diff",
        caption="Active memory at the peak by call",
        fields=tuple(fields),
        docs=tuple(column.doc for column in result.contract.columns),
        rows=[[row[field.name] for field in fields] for row in result.head(_MAX_ROWS).rows()],
        total=len(result),
        command=command,
    )


def _bytes(value: int) -> str:
    return format_short(value, "bytes")


def _change(value: int) -> str:
    return f"+{_bytes(value)}" if value > 0 else f"-{_bytes(-value)}" if value < 0 else _bytes(0)
