"""Gates, `METRIC OP [+|-]NUMBER UNIT`: bounds on a metric of head, or on its change against base."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Literal

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.durations import TRACE_UNITS, UNITS_NS
from tracewarehouse.errors import ExpressionError
from tracewarehouse.metric import Measured, Metric, measure, parse_metric_prefix
from tracewarehouse.runs.selection import Selection
from tracewarehouse.stats import MIN_SAMPLES, ShiftTest, relative_shift

Outcome = Literal["pass", "fail", "inconclusive"]
_OPS: dict[str, Callable[[float, float], bool]] = {"<=": le, "<": lt, ">=": ge, ">": gt}
_EXAMPLES = "for example step_time<=+3%, step_time<=120ms, kernel_summary.sum_ns[kind=communication]<=+5%"
_UNITS = "|".join(TRACE_UNITS)
_BOUND = re.compile(rf"\s*(<=|>=|<|>)\s*([+-]?)([0-9]+(?:\.[0-9]+)?)\s*(%|{_UNITS}|)\s*")


@dataclass(frozen=True)
class Gate:
    """A bound on a metric: on its change against base if `signed`, else on its value in head.

    `bound` is relative (0.03) if `unit` is %, else in the metric's own unit, ns for durations.
    """

    text: str
    metric: Metric
    op: str
    bound: float
    unit: str
    signed: bool

    @property
    def relative(self) -> bool:
        """Whether it bounds the relative change."""
        return self.signed and self.unit == "%"

    def holds(self, value: float) -> bool:
        """Whether a value, or a change, meets the bound."""
        return _OPS[self.op](value, self.bound)


@dataclass(frozen=True)
class GateResult:
    """The outcome of a gate; `value` was compared with its bound, `low` to `high` is its interval."""

    gate: Gate
    outcome: Outcome
    base: float | None
    head: float | None
    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


def parse(text: str, catalog: Catalog) -> Gate:
    """The gate in a text; raises ParamError or UnknownName with the position of the error."""
    metric, at = parse_metric_prefix(text, catalog, len(text) - len(text.lstrip()))
    match = _BOUND.fullmatch(text, at)
    if match is None:
        raise _bound_error(text, at)
    op, sign, number, unit = match.groups()
    _check_unit(text, match.start(4), metric, unit, bool(sign))
    scale = 0.01 if unit == "%" else float(UNITS_NS.get(unit, 1))
    bound = float(number) * scale * (-1 if sign == "-" else 1)
    return Gate(text.strip(), metric, op, bound, unit, bool(sign))


def _bound_error(text: str, at: int) -> ExpressionError:
    """What is wrong with the text after the metric."""
    what, hint = _mistake(text[at:].strip())
    return ExpressionError(f"gate {text!r}, character {at + 1}: {what}", hint)


def _mistake(text: str) -> tuple[str, str]:
    """A common mistake in a bound, and the remedy."""
    if "," in text:
        return "unexpected `,`", "a gate has one bound: repeat --gate"
    if re.match(r"(?:<=|>=|<|>)\s*[+-]?[0-9.]+[eE][+-]?[0-9]", text):
        return "a bound has no exponent", "write the number in full: 0.01"
    operator = re.match(r"[=<>!~]+", text)
    if operator and operator[0] not in _OPS:
        return f"unknown operator `{operator[0]}`", "use <=, <, >= or >"
    unit = re.fullmatch(r"(?:<=|>=|<|>)\s*[+-]?[0-9.]+\s*([A-Za-zµ/]+)", text)
    if unit:
        hint = f"durations have {', '.join(TRACE_UNITS)}, changes %; bytes and counts are plain numbers"
        return f"unknown unit `{unit[1]}`", hint
    return "expected <=, <, >= or > and a bound", _EXAMPLES


def _check_unit(text: str, at: int, metric: Metric, unit: str, signed: bool) -> None:
    """Raises ParamError if the bound's unit is not one of the metric's."""
    position, own = f"gate {text!r}, character {at + 1}", metric.column.unit
    if unit == "%" and not signed and own != "ratio":
        raise ExpressionError(
            f"{position}: % needs a sign (+ or -), since {metric} is not a ratio",
            "with a sign it bounds the change against base: <=+3%",
        )
    if unit in UNITS_NS and own != "ns":
        raise ExpressionError(f"{position}: {metric} is not a duration", f"its unit is {own}")
    if not unit and own == "ns":
        raise ExpressionError(f"{position}: expected a unit", "one of %, ns, us, ms, s")


def evaluate(
    gate: Gate, base: Selection, head: Selection, known: ShiftTest | None = None, *, alpha: float = 0.05
) -> GateResult:
    """Whether the gate holds, by the interval of what it bounds if there is one.

    A change in % over four runs or more in total has an interval between runs; `known` is a test of the
    metric that was done already. A bound inside the interval is inconclusive. Raises TwError if the metric
    cannot be aggregated over several rows.
    """
    left, right = measure(gate.metric, base, head)
    base_value, head_value = left.median, right.median
    if head_value is None or (gate.signed and base_value is None):
        unknown = [side.reason or "no row" for side in (left, right) if side.median is None]
        reason = ", ".join(dict.fromkeys(unknown))
        return GateResult(gate, "inconclusive", base_value, head_value, None, reason=reason)
    if not gate.signed:
        return _by_value(gate, base_value, head_value, head_value)
    assert base_value is not None
    if not gate.relative:
        return _by_value(gate, base_value, head_value, head_value - base_value)
    if not base_value:
        return _by_value(gate, base_value, head_value, math.inf if head_value else 0.0)
    test = known or _test_between_runs(left, right, alpha)
    if test is None:
        return _by_value(gate, base_value, head_value, head_value / base_value - 1)
    return _by_interval(gate, base_value, head_value, test)


def _test_between_runs(base: Measured, head: Measured, alpha: float) -> ShiftTest | None:
    """The relative change between runs; None if there are few runs or a value is not positive."""
    values = base.values, head.values
    if min(map(len, values)) == 0 or sum(map(len, values)) < MIN_SAMPLES or min(map(min, values)) <= 0:
        return None
    return relative_shift(*values, alpha)


def _by_value(gate: Gate, base: float | None, head: float, value: float) -> GateResult:
    return GateResult(gate, "pass" if gate.holds(value) else "fail", base, head, value)


def _by_interval(gate: Gate, base: float, head: float, test: ShiftTest) -> GateResult:
    ends = gate.holds(test.low), gate.holds(test.high)
    outcome: Outcome = "pass" if all(ends) else "inconclusive" if any(ends) else "fail"
    reason = "the bound is inside the interval" if outcome == "inconclusive" else None
    return GateResult(gate, outcome, base, head, test.estimate, test.low, test.high, reason)
