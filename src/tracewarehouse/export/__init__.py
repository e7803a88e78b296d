"""What is stored, given back as files for other tools."""

from tracewarehouse.export.counters import COUNTERS
from tracewarehouse.export.event_text import event_texts
from tracewarehouse.export.finding_markers import place_of
from tracewarehouse.export.overlays import OVERLAYS
from tracewarehouse.export.request import Asked, asked
from tracewarehouse.export.writer import Exported, contracts_read, export

__all__ = [
    "COUNTERS",
    "OVERLAYS",
    "Asked",
    "Exported",
    "asked",
    "contracts_read",
    "event_texts",
    "export",
    "place_of",
]
