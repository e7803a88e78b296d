"""METRIC, `ANALYSIS[@V].COLUMN[K=V,…]`: one number per run, for gates and for a history.

The column's `fold` aggregates several rows, as in a comparison: their sum, minimum or maximum, or one sum
over another. Sums are per rank; if the rows have steps, per complete step and rank, so that runs of different
lengths are comparable. A measure of entire steps (`step_time`) is the median of the complete steps, each the
mean of its ranks. A column without a `fold` needs filters that leave one row."""

from tracewarehouse.compare.metric.expression import (
    BY_STEP,
    WORK_LABELS,
    Measured,
    Metric,
    RunValue,
    WorkUnit,
    is_normalized,
    parse_metric,
    parse_metric_prefix,
    per_unit,
)
from tracewarehouse.compare.metric.values import (
    COMPLETE_STEPS_SQL,
    Ranks,
    Statistic,
    check_filters,
    measure,
    measure_statistic,
    of_steps,
    parse_statistic,
    parse_statistic_prefix,
)

__all__ = [
    "BY_STEP",
    "COMPLETE_STEPS_SQL",
    "WORK_LABELS",
    "Measured",
    "Metric",
    "Ranks",
    "RunValue",
    "Statistic",
    "WorkUnit",
    "check_filters",
    "is_normalized",
    "measure",
    "measure_statistic",
    "of_steps",
    "parse_metric",
    "parse_metric_prefix",
    "parse_statistic",
    "parse_statistic_prefix",
    "per_unit",
]
