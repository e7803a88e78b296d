"""A metric over runs in time order: results are recorded once, and read again for each history."""

from tracewarehouse.history.acknowledged import acknowledge
from tracewarehouse.history.model import Change, Dot, History, Line
from tracewarehouse.history.read import every_run, history, labels_of, meant
from tracewarehouse.history.record import Failed, RecordReport, Step, record

__all__ = [
    "Change",
    "Dot",
    "Failed",
    "History",
    "Line",
    "RecordReport",
    "Step",
    "acknowledge",
    "every_run",
    "history",
    "labels_of",
    "meant",
    "record",
]
