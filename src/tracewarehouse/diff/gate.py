"""GATE, `METRIC OP [+|-]NUMBER(%|ns|us|ms|s)`: what must hold of head, or of its change against base."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Literal

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import ParamError
from tracewarehouse.metric import Measured, Metric, Side, measure, parse_metric_prefix

Outcome = Literal["pass", "fail", "inconclusive"]
_OPS: dict[str, Callable[[float, float], bool]] = {"<=": le, "<": lt, ">=": ge, ">": gt}
_SCALES = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_BOUND = re.compile(r"\s*(<=|>=|<|>)\s*([+-]?)([0-9]+(?:\.[0-9]+)?)\s*(%|ns|us|µs|ms|s|)\s*")


@dataclass(frozen=True)
class Gate:
    """A bound on a metric: on its change against base where it is `signed`, else on its value in head.

    `bound` is relative (0.03) where `unit` is %, else in the metric's own unit, ns for times.
    """

    text: str
    metric: Metric
    op: str
    bound: float
    unit: str
    signed: bool

    @property
    def relative(self) -> bool:
        """Whether it bounds the change in parts of base."""
        return self.signed and self.unit == "%"

    def holds(self, value: float) -> bool:
        """Whether a value, or a change, keeps to the bound."""
        return _OPS[self.op](value, self.bound)


@dataclass(frozen=True)
class Judged:
    """What became of a gate. `value` is what was held against its bound, `low` to `high` where it may lie."""

    gate: Gate
    outcome: Outcome
    base: float | None
    head: float | None
    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


def parse(text: str, catalog: Catalog) -> Gate:
    """The gate that a text says; raises ParamError or UnknownName that name the place."""
    metric, at = parse_metric_prefix(text, catalog, len(text) - len(text.lstrip()))
    found = _BOUND.fullmatch(text, at)
    if found is None:
        raise ParamError(
            f"gate {text!r}, character {at + 1}: <=, <, >= or > and a bound expected",
            "such as step_time<=+3%, step_time<=120ms, kernel_summary.sum_ns[kind=communication]<=+5%",
        )
    op, sign, number, unit = found.groups()
    _check_unit(text, found.start(4), metric, unit, bool(sign))
    scale = 0.01 if unit == "%" else _SCALES.get(unit, 1.0)
    bound = float(number) * scale * (-1 if sign == "-" else 1)
    return Gate(text.strip(), metric, op, bound, unit, bool(sign))


def _check_unit(text: str, at: int, metric: Metric, unit: str, signed: bool) -> None:
    """Raises ParamError where the bound's unit is not one of the metric's."""
    own = metric.column.unit
    if unit == "%" and not signed and own != "ratio":
        raise ParamError(
            f"gate {text!r}, character {at + 1}: % of what? {metric} is no ratio",
            "with + or - it is a change against base: <=+3%",
        )
    if unit in _SCALES and own != "ns":
        raise ParamError(f"gate {text!r}, character {at + 1}: {metric} is no time", f"its unit is {own}")
    if not unit and own == "ns":
        raise ParamError(f"gate {text!r}, character {at + 1}: a unit expected", "one of %, ns, us, ms, s")


def judge(
    gate: Gate, base: Side, head: Side, interval: Interval | None = None, *, alpha: float = 0.05
) -> Judged:
    """Whether the gate holds; where the spread is known, by the interval of what it bounds.

    A change in % of four runs or more in all has an interval from the runs; `interval` is one that is known
    otherwise. An interval on both sides of the bound is inconclusive. Raises TwError where the metric cannot
    be told of several rows.
    """
    left, right = measure(gate.metric, base, head)
    one, other = left.median, right.median
    lacking = [side.reason or "no row" for side, value in ((left, one), (right, other)) if value is None]
    if other is None or (gate.signed and one is None):
        return Judged(gate, "inconclusive", one, other, None, reason=", ".join(dict.fromkeys(lacking)))
    if not gate.signed:
        return _by_value(gate, one, other, other)
    assert one is not None
    if not gate.relative:
        return _by_value(gate, one, other, other - one)
    if not one:
        grown = math.inf if other else 0.0
        return _by_value(gate, one, other, grown)
    known = interval or _interval(left, right, alpha)
    if known is None:
        return _by_value(gate, one, other, other / one - 1)
    return _by_interval(gate, one, other, known)


def _relative_change(base: Measured, head: Measured, alpha: float) -> ShiftTest | None:
    """The relative change between runs; None if there are few runs or a value is not positive."""
    from tracewarehouse.stats import MIN_SAMPLES, relative_shift

    values = base.values, head.values
    if min(map(len, values)) == 0 or sum(map(len, values)) < MIN_SAMPLES or min(map(min, values)) <= 0:
        return None
    return relative_shift(*values, alpha)


def _by_value(gate: Gate, base: float | None, head: float, value: float) -> Judged:
    return Judged(gate, "pass" if gate.holds(value) else "fail", base, head, value)


def _by_interval(gate: Gate, base: float, head: float, known: Interval) -> Judged:
    kept: Sequence[bool] = (gate.holds(known.low), gate.holds(known.high))
    outcome: Outcome = "pass" if all(kept) else "inconclusive" if any(kept) else "fail"
    reason = "the bound lies within the interval" if outcome == "inconclusive" else None
    return Judged(gate, outcome, base, head, known.change, known.low, known.high, reason)
