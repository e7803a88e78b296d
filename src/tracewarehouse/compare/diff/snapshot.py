"""Memory at the peak of both sides by call: what a change of memory comes from.

On each side the device with the highest peak of active memory counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracewarehouse.contracts.contract import Column, Contract, Ref, computed_contract

if TYPE_CHECKING:
    from tracewarehouse.result import Result
    from tracewarehouse.runs.selection import Selection

ANALYSIS = "snapshot_peak"
NOTICEABLE = 0.01  # change as a share of the larger peak, from which a row is worth reading

Key = tuple[str, str]  # category, top frame


@dataclass(frozen=True)
class SnapshotDiff:
    """Bytes at the peak of both sides by call, the largest change first."""

    rows: Result = field(repr=False)
    peak_bytes: int

    @property
    def changed(self) -> list[dict[str, Any]]:
        """The rows whose bytes changed noticeably."""
        return [row for row in self.rows.rows() if abs(row["delta_bytes"]) >= NOTICEABLE * self.peak_bytes]


def snapshot_diff(base: Selection, head: Selection) -> SnapshotDiff | None:
    """The bytes at the peaks of both sides; None unless both have a memory snapshot."""
    from tracewarehouse.duck.arrow import table_of
    from tracewarehouse.result import Result

    results = [side.run_or_skip(ANALYSIS) for side in (base, head)]
    before, after = (_by_call(result.rows()) for result in results)
    if not before or not after:
        return None
    rows: list[dict[str, Any]] = [
        {
            "category": category,
            "top_frame": frame,
            "base_bytes": before.get((category, frame), 0),
            "head_bytes": after.get((category, frame), 0),
            "delta_bytes": after.get((category, frame), 0) - before.get((category, frame), 0),
        }
        for category, frame in {**before, **after}
    ]
    rows.sort(key=lambda row: (-abs(row["delta_bytes"]), row["category"], row["top_frame"]))
    peak = max(sum(before.values()), sum(after.values()))
    contract = _contract()
    return SnapshotDiff(Result(table_of(contract, rows), results[0].provenance, contract), peak)


def _by_call(rows: list[dict[str, Any]]) -> Mapping[Key, int]:
    """Bytes by call at the peak of the device with the highest peak; the first of several."""
    if not rows:
        return {}
    highest = max(rows, key=lambda row: row["peak_bytes"])
    place = [highest[name] for name in ("run_id", "rank", "device")]
    found: dict[Key, int] = defaultdict(int)
    for row in rows:
        if [row[name] for name in ("run_id", "rank", "device")] == place:
            found[row["category"], row["top_frame"] or "no call stack"] += row["bytes"]
    return found


def _contract() -> Contract:
    return computed_contract(
        "snapshot_diff",
        group="memory",
        summary="Change of the memory at the peak by call.",
        requires=(Ref(ANALYSIS, 1),),
        grain=("category", "top_frame"),
        order=("-delta_bytes",),
        columns=tuple(_columns()),
    )


def _columns() -> Iterator[Column]:
    yield Column("category", "VARCHAR", "What the allocations are for.")
    yield Column("top_frame", "VARCHAR", "Innermost Python frame outside of PyTorch.")
    for side in ("base", "head"):
        yield Column(f"{side}_bytes", "BIGINT", f"{side}: active bytes at the peak.", "bytes", better="lower")
    yield Column("delta_bytes", "BIGINT", "Bytes of head minus bytes of base.", "bytes", signed=True)
