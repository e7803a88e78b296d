"""What a gate bounds: a metric, a statistic of its complete steps, or the absence of its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from statistics import fmean
from typing import Literal, cast, get_args

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import ExpressionError, UnknownName
from tracewarehouse.metric import Measured, Metric, RunValue, measure, parse_metric_prefix
from tracewarehouse.runs.selection import Selection

GateValue = Literal["value", "min", "mean", "max", "p50", "p90", "p95", "p99", "absent"]
MIN_STEPS = {"p90": 10, "p95": 20, "p99": 100}  # complete steps of a run; fewer have no such percentile
_NAMES = get_args(GateValue)[1:]
_CALL = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*\(\s*")
_CLOSE = re.compile(r"\s*\)")


def parse_value(text: str, catalog: Catalog, start: int) -> tuple[GateValue, Metric, int]:
    """The statistic and the metric at `start` of a gate, and where they end; raises TwError."""
    call = _CALL.match(text, start)
    if call is None:
        return ("value", *parse_metric_prefix(text, catalog, start))
    position = f"gate {text!r}, character {{}}"
    if call[1] not in _NAMES:
        error = UnknownName("statistic", call[1], _NAMES)
        error.message = f"{position.format(start + 1)}: {error.message}"
        error.args = (error.message,)
        raise error
    name = cast(GateValue, call[1])
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


def measure_value(value: GateValue, metric: Metric, *sides: Selection) -> tuple[Measured, ...]:
    """The metric of every run of each side, or the statistic of its complete steps."""
    measured = measure(metric, *sides, needs_rows=value != "absent")
    if value in ("value", "absent"):
        return measured
    return tuple(replace(side, runs=tuple(_of_steps(value, run) for run in side.runs)) for side in measured)


def _of_steps(value: GateValue, run: RunValue) -> RunValue:
    least = MIN_STEPS.get(value, 1)
    if run.reason is None and len(run.steps) < least:
        reason = f"{value} needs {least} complete steps, run {run.run} has {len(run.steps)}"
        return replace(run, value=None, mean=None, reason=reason)
    return run if run.reason else replace(run, value=step_statistic(value, run.steps))


def step_statistic(value: GateValue, steps: Sequence[float]) -> float:
    """The statistic of the steps; a percentile is the smallest value that this share does not exceed."""
    if value in _FUNCTIONS:
        return float(_FUNCTIONS[value](steps))
    return float(sorted(steps)[max(ceil(len(steps) * int(value[1:]) / 100) - 1, 0)])


_FUNCTIONS: dict[str, Callable[[Sequence[float]], float]] = {"min": min, "mean": fmean, "max": max}
