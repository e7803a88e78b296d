"""What is stored, given back as files for other tools."""

from .choice import Additions, additions
from .counters import COUNTERS
from .overlays import OVERLAYS
from .texts import event_texts
from .trace import trace_text

__all__ = ["COUNTERS", "OVERLAYS", "Additions", "additions", "event_texts", "trace_text"]
