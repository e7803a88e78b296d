"""METRIC, `ANALYSIS[@V].COLUMN[K=V,…]`: one number of a run, for gates and for a history.

What the number of several rows is, the column's `fold` says, as in a comparison: their sum, their least or
largest, or one sum over another. Sums are per rank; where the rows tell steps, per complete step and rank, so
that runs of other lengths compare. A measure of steps themselves (`step_time`) is the median of the complete
steps, each of them the mean of its ranks. A column without a `fold` needs filters that leave one row.
"""

from tracewarehouse.metric.measure import COMPLETE, Side, measure
from tracewarehouse.metric.model import BY_STEP, Measured, Metric, RunValue
from tracewarehouse.metric.parse import parse_metric, parse_metric_prefix
from tracewarehouse.metric.values import Ranks, check_filters

__all__ = [
    "BY_STEP",
    "COMPLETE",
    "Measured",
    "Metric",
    "Ranks",
    "RunValue",
    "Side",
    "check_filters",
    "measure",
    "parse_metric",
    "parse_metric_prefix",
]
