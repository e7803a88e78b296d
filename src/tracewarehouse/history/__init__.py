"""A metric over runs in time order: results are recorded once, and read again for each history."""

from tracewarehouse.history.read import acknowledge, every_run, history, labels_of, meant
from tracewarehouse.history.record import Failed, RecordReport, Step, record, record_again
from tracewarehouse.history.result import History
from tracewarehouse.history.series import Change, Dot, Line

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
    "record_again",
]
