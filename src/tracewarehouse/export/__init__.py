"""Exports of stored traces as files for other tools, with counters and overlays."""

from tracewarehouse.export.overlays import COUNTERS, OVERLAYS, worst_occurrence
from tracewarehouse.export.request import ExportRequest, export_request
from tracewarehouse.export.writer import Exported, contracts_read, event_texts, export, export_run

__all__ = [
    "COUNTERS",
    "OVERLAYS",
    "ExportRequest",
    "Exported",
    "contracts_read",
    "event_texts",
    "export",
    "export_request",
    "export_run",
    "worst_occurrence",
]
