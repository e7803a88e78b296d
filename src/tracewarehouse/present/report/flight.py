"""Flight recorder dumps: stuck collectives and mismatches between ranks."""

from __future__ import annotations

from collections.abc import Iterator

from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.data import ReportData
from tracewarehouse.present.report.document import Section
from tracewarehouse.present.report.tables import first_rows

_MAX_STATEMENTS = 5


_NOT_STUCK = "All ranks with a dump called the same collectives; none is stuck as far as recorded."


def flight_sentence(data: ReportData) -> str:
    """What dumps without a stuck collective say; empty without a dump."""
    return _NOT_STUCK if _has_dump(data) else ""


def flight_section(data: ReportData) -> Iterator[Section]:
    """The section; none without a dump of any rank."""
    if not _has_dump(data):
        return
    stuck = data.rows("SELECT explanation FROM stuck_collective", "stuck_collective")
    tables = []
    if stuck:
        tables.append(first_rows(data, "stuck_collective", "Stuck collectives"))
    if data.has_rows("flight_mismatches"):
        tables.append(first_rows(data, "flight_mismatches", "Mismatches between ranks"))
    groups = plural(len(stuck), "process group")
    summary = f"{groups} stuck; the one that got stuck first is listed first." if stuck else _NOT_STUCK
    statements = tuple(row["explanation"] for row in stuck[:_MAX_STATEMENTS])
    yield Section("flight", "Flight recorder", summary, tables=tuple(tables), statements=statements)


def _has_dump(data: ReportData) -> bool:
    return len(data.result("stuck_collective").abstained) < data.ranks
