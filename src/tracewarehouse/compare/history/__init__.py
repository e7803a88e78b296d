"""A metric over runs in time order: results are recorded once, and a history reads them."""

from tracewarehouse.compare.history.baseline import (
    Baseline,
    Compared,
    PartsEvent,
    find_baseline,
    moved_parts,
    sides_with_history,
)
from tracewarehouse.compare.history.page import History
from tracewarehouse.compare.history.read import (
    ValueForm,
    acknowledge_run,
    build_history,
    label_keys,
    matching_runs,
    metric_history,
    recorded_runs,
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
from tracewarehouse.compare.history.series import (
    Change,
    FailingChange,
    Point,
    Series,
    acknowledge,
    failing_changes,
    notices_on_acknowledged,
)

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
    "acknowledge_run",
    "build_history",
    "failing_changes",
    "find_baseline",
    "label_keys",
    "matching_runs",
    "metric_history",
    "missing_results",
    "moved_parts",
    "notices_on_acknowledged",
    "record",
    "record_again",
    "recorded_runs",
    "run_batches",
    "runs_with_results",
    "sides_with_history",
]
