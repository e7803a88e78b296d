"""`p99(METRIC)`: a statistic of the complete steps of a run; `absent(METRIC)`: the absence of rows.

A percentile is one of steps, each the mean of its ranks; percentiles of calls or ranks are columns of
analyses."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from statistics import fmean
from typing import TYPE_CHECKING, Literal, cast, get_args

from tracewarehouse.compare.metric.model import Measured, Metric, RunValue
from tracewarehouse.compare.metric.parse import parse_metric_prefix
from tracewarehouse.compare.metric.values import measure
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import ExpressionError, UnknownName

if TYPE_CHECKING:
    from tracewarehouse.runs.selection import Selection

Statistic = Literal["value", "min", "mean", "max", "p50", "p90", "p95", "p99", "absent"]
MIN_STEPS = {"p90": 10, "p95": 20, "p99": 100}  # complete steps of a run; fewer have no such percentile
OF_STEPS = get_args(Statistic)[1:-1]
_EXAMPLES = "for example step_time, p99(step_time), kernel_summary.sum_ns[kind=communication]"
_CALL = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*\(\s*")
_CLOSE = re.compile(r"\s*\)")


def parse_statistic(text: str, catalog: Catalog) -> tuple[Statistic, Metric]:
    """The statistic of steps and the metric in a text; `value` is the metric itself. Raises TwError."""
    statistic, metric, at = parse_statistic_prefix(text, catalog, kind="metric", names=OF_STEPS)
    if at < len(text):
        raise ExpressionError(
            f"metric {text!r}, character {at + 1}: unexpected text after the metric", _EXAMPLES
        )
    return statistic, metric


def parse_statistic_prefix(
    text: str,
    catalog: Catalog,
    start: int = 0,
    kind: str = "gate",
    names: Sequence[str] = (*OF_STEPS, "absent"),
) -> tuple[Statistic, Metric, int]:
    """The statistic and the metric at `start` of a gate, and where they end; raises TwError."""
    call = _CALL.match(text, start)
    if call is None:
        return ("value", *parse_metric_prefix(text, catalog, start))
    position = f"{kind} {text!r}, character {{}}"
    if call[1] not in names:
        error = UnknownName("statistic", call[1], names)
        error.message = f"{position.format(start + 1)}: {error.message}"
        error.args = (error.message,)
        error.exit_code = ExpressionError.exit_code
        raise error
    name = cast(Statistic, call[1])
    metric, at = parse_metric_prefix(text, catalog, call.end())
    close = _CLOSE.match(text, at)
    if close is None:
        raise ExpressionError(f"{position.format(at + 1)}: expected `)`", f"for example {name}({metric})")
    if name != "absent" and not (metric.has_steps and metric.column.fold == "sum"):
        raise ExpressionError(
            f"{position.format(start + 1)}: {metric} has no value per step",
            f"without {name}() it is one value",
        )
    return name, metric, close.end()


def measure_statistic(value: Statistic, metric: Metric, *sides: Selection) -> tuple[Measured, ...]:
    """The metric of every run of each side, or the statistic of its complete steps."""
    measured = measure(metric, *sides, needs_rows=value != "absent")
    return tuple(of_steps(value, side) for side in measured)


def of_steps(statistic: Statistic, measured: Measured) -> Measured:
    """The statistic of the complete steps of each run, in place of its value."""
    if statistic in ("value", "absent"):
        return measured
    return replace(measured, runs=tuple(_of_steps(statistic, run) for run in measured.runs))


def _of_steps(value: Statistic, run: RunValue) -> RunValue:
    least = MIN_STEPS.get(value, 1)
    if run.reason is None and len(run.steps) < least:
        reason = f"{value} needs {least} complete steps per run; there are {len(run.steps)}"
        return replace(run, value=None, mean=None, reason=reason)
    return run if run.reason else replace(run, value=step_statistic(value, run.steps))


def step_statistic(value: Statistic, steps: Sequence[float]) -> float:
    """The statistic of the steps; a percentile is the smallest value that this share does not exceed."""
    if value in _FUNCTIONS:
        return float(_FUNCTIONS[value](steps))
    return float(sorted(steps)[max(ceil(len(steps) * int(value[1:]) / 100) - 1, 0)])


_FUNCTIONS: dict[str, Callable[[Sequence[float]], float]] = {"min": min, "mean": fmean, "max": max}
