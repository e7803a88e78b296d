"""Exports of stored traces as files for other tools, with counters and overlays."""

from tracewarehouse.export.overlays import COUNTERS, OVERLAYS
from tracewarehouse.export.request import export_request
from tracewarehouse.export.writer import Exported, export_run

__all__ = ["COUNTERS", "OVERLAYS", "Exported", "export_request", "export_run"]
