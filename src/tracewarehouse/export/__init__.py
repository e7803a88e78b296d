"""Exports of stored traces as files for other tools, with counters and overlays."""

from tracewarehouse.export.counters import COUNTERS
from tracewarehouse.export.event_text import event_texts
from tracewarehouse.export.finding_markers import worst_occurrence
from tracewarehouse.export.overlays import OVERLAYS
from tracewarehouse.export.request import ExportRequest, export_request
from tracewarehouse.export.writer import Exported, contracts_read, export

__all__ = [
    "COUNTERS",
    "OVERLAYS",
    "ExportRequest",
    "Exported",
    "contracts_read",
    "event_texts",
    "export",
    "export_request",
    "worst_occurrence",
]
