"""What is stored, given back as files for other tools."""

from .asked import Asked, asked
from .counters import COUNTERS
from .exported import Exported, contracts_read, export
from .found import place_of
from .overlays import OVERLAYS
from .texts import event_texts

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
