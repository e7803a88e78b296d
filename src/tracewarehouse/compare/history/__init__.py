"""A metric over runs in time order: results are recorded once, and a history reads them."""

from tracewarehouse.compare.history.acknowledged import acknowledge, notices_on_acknowledged
from tracewarehouse.compare.history.baseline import Baseline, Compared, find_baseline
from tracewarehouse.compare.history.compared import sides_with_history
from tracewarehouse.compare.history.failing import FailingChange, failing_changes
from tracewarehouse.compare.history.history import History
from tracewarehouse.compare.history.parts import PartsEvent, moved_parts
from tracewarehouse.compare.history.read import (
    build_history,
    label_keys,
    matching_runs,
    runs_with_results,
)
from tracewarehouse.compare.history.record import (
    FailedResult,
    RecordProgress,
    RecordReport,
    missing_results,
    record,
    record_again,
    run_batches,
)
from tracewarehouse.compare.history.series import Change, Point, Series
from tracewarehouse.compare.history.value_form import ValueForm

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
