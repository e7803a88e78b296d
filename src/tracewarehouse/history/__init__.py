"""A metric over runs in time order: results are recorded once, and a history reads them."""

from tracewarehouse.history.acknowledged import acknowledge, notices_on_acknowledged
from tracewarehouse.history.baseline import Baseline, Compared, find_baseline
from tracewarehouse.history.compared import sides_with_history
from tracewarehouse.history.failing import FailingChange, failing_changes
from tracewarehouse.history.history import History
from tracewarehouse.history.parts import PartsEvent, moved_parts
from tracewarehouse.history.read import (
    build_history,
    label_keys,
    matching_runs,
    runs_with_results,
)
from tracewarehouse.history.record import (
    FailedResult,
    RecordProgress,
    RecordReport,
    missing_results,
    record,
    record_again,
    run_batches,
)
from tracewarehouse.history.series import Change, Point, Series
from tracewarehouse.history.value_form import ValueForm

__all__ = [
    "Baseline",
    "Change",
    "Compared",
    "FailedResult",
    "FailingChange",
    "History",
    "PartsEvent",
    "Point",
    "RecordProgress",
    "RecordReport",
    "Series",
    "ValueForm",
    "acknowledge",
    "build_history",
    "failing_changes",
    "find_baseline",
    "label_keys",
    "matching_runs",
    "missing_results",
    "moved_parts",
    "notices_on_acknowledged",
    "record",
    "record_again",
    "run_batches",
    "runs_with_results",
    "sides_with_history",
]
