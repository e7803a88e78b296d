"""First start and last end of a trace: only for files that contend for one place, so not in bulk."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from tracewarehouse.reader import odd
from tracewarehouse.reader.document import Document
from tracewarehouse.reader.source import read_text
from tracewarehouse.reader.strict import elements


def window(path: Path) -> tuple[int | None, int | None]:
    """First start and last end of the slices in ns since the epoch; None where no event has a time."""
    document = Document(read_text(path))
    starts: list[Decimal] = []
    ends: list[Decimal] = []
    for chunk in document.chunks():
        for raw in elements(chunk.array) or []:
            row = odd.row(bytes(raw).decode())
            if row["ph"] == "X" and row["ts"] is not None:
                starts.append(Decimal(row["ts"]))
                ends.append(starts[-1] + max(Decimal(row["dur"] or 0), Decimal(0)))
        starts, ends = [min(starts)] if starts else [], [max(ends)] if ends else []
    if not starts:
        return None, None
    base = document.base_ns()
    return base + _ns(starts[0]), base + _ns(ends[0])


def _ns(microseconds: Decimal) -> int:
    return int((microseconds * 1000).to_integral_value(ROUND_HALF_UP))
