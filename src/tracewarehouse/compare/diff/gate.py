"""Gates, `METRIC OP [+|-]NUMBER UNIT`: bounds on a metric of head, or on its change against base.

A metric of entire steps, such as `step_time`, is the mean of the complete steps of a run. Others are
`median(step_time)`, `worst(step_time)` or `p99(step_time)`; `absent(METRIC)` holds without such a row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from operator import ge, gt, le, lt
from statistics import fmean, median
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.compare.metric.expression import Measured, Metric, WorkUnit, per_unit
from tracewarehouse.compare.metric.values import Statistic, measure_statistic, parse_statistic_prefix
from tracewarehouse.compare.stats.two_sample import (
    MAX_RESOLUTION,
    MIN_SAMPLES,
    Earlier,
    ShiftTest,
    p_and_reach,
    power_at,
    relative_shift,
    runs_needed,
    smallest_detected,
    student_t,
)
from tracewarehouse.compare.stats.verdict import blocks
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import ExpressionError
from tracewarehouse.exact_text import TRACE_UNITS, UNITS_NS
from tracewarehouse.late_regex import late_regex
from tracewarehouse.query.selection import Selection

_LEAST_NS = 100_000  # of a mean step; below, the time of a thousand or a million units is compared


class Work(Struct, frozen=True):
    """The work of a step of each run of base and head, in units of this name, such as `sample`.

    The breakdown and the verdict are per `scale` units, a power of 1,000, so that whole ns are exact enough.
    """

    unit: str
    base: Mapping[str, Fraction]
    head: Mapping[str, Fraction]
    scale: int = 1

    @property
    def text(self) -> str:
        """What times are per: `sample`, or `1,000 tokens`."""
        return self.unit if self.scale == 1 else f"{self.scale:,} {self.unit}s"

    @property
    def divisors(self) -> tuple[dict[str, Fraction], dict[str, Fraction]]:
        """What the times of each run are divided by, of base and of head."""
        base, head = (
            {run: work / self.scale for run, work in side.items()} for side in (self.base, self.head)
        )
        return base, head

    def scaled(self, step_ns: float) -> Work:
        """With the scale for runs whose mean step is about so long."""
        scale, most_work = 1, max([*self.base.values(), *self.head.values()])
        while step_ns * scale < _LEAST_NS * most_work and scale < 10**9:
            scale *= 1_000
        return replace(self, scale=scale)


def read_work(normalize: str, base: Selection, head: Selection) -> Work:
    """The work of each run by its labels: `sample`, `token` or `label.K`.

    Raises ParamError for anything else; TwError if a run lacks the label, or for a value of 0 or less.
    """
    unit = WorkUnit.parse(normalize)
    before, after = ({run.run: unit.of(run.version) for run in side.selected()} for side in (base, head))
    return Work(unit.name, before, after)


Outcome = Literal["pass", "fail", "inconclusive"]
_OPS: dict[str, Callable[[float, float], bool]] = {"<=": le, "<": lt, ">=": ge, ">": gt}
_EXAMPLES = "for example step_time<=+3%, p99(step_time)<=120ms, memory_peak.peak_bytes<=80GiB"
BYTES = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", 1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)},
}
RATES = {"GB/s": 1.0, "GiB/s": 1024**3 / 1e9}  # in bytes per ns
_SCALES: dict[str, tuple[str, dict[str, float]]] = {
    "ns": ("a duration", {unit: float(UNITS_NS[unit]) for unit in TRACE_UNITS}),
    "bytes": ("a number of bytes", {unit: float(size) for unit, size in BYTES.items()}),
    "bytes_per_ns": ("a bandwidth", RATES),
}
_OWN_UNIT = {unit: own for own, (_, scales) in _SCALES.items() for unit in scales}
_UNITS = "|".join(sorted(map(re.escape, _OWN_UNIT), key=len, reverse=True))
_BOUND = late_regex(rf"\s*(<=|>=|<|>)\s*([+-]?)([0-9]+(?:\.[0-9]+)?)\s*(%|{_UNITS}|)\s*")
_EXACT = ("count", "bytes")  # units of metrics that one run of each side shows without noise
NOT_TESTED = "not tested: one run per side does not show the spread between runs"
ASSUMED_DEVIATION = 0.03  # between runs, where fewer than three like them are recorded
_DEVIATIONS = 3.0  # between runs, by which a change of one run per side must be beyond its bound
_TAILS = 0.0339  # that lie beyond these, of the difference of two runs: few recorded runs have wider ones
_INTERVAL_OF_TWO = 2 * 1.96 * math.sqrt(2)  # the 95 % interval of a difference, in deviations of one run


class Gate(Struct, frozen=True):
    """A bound on a metric: on its change against base if `signed`, else on its value in head.

    `bound` is relative (0.03) if `unit` is %, else in the metric's own unit, ns for durations.
    """

    text: str
    metric: Metric
    op: str
    bound: float
    unit: str
    signed: bool
    value: Statistic = "value"

    @property
    def relative(self) -> bool:
        """Whether it bounds the relative change."""
        return self.signed and self.unit == "%"

    @property
    def is_of_step_time(self) -> bool:
        """Whether it bounds the step time of all ranks, or a statistic of it."""
        contract, column = self.metric.contract.name, self.metric.column.name
        return (contract, column) == ("step_summary", "period_ns") and not self.metric.filters

    def holds(self, value: float) -> bool:
        """Whether a value, or a change, meets the bound."""
        return _OPS[self.op](value, self.bound)


class GateResult(Struct, frozen=True):
    """The outcome of a gate; `value` was compared with its bound, `low` to `high` is its interval.

    With an interval, `power_at_bound` and `power_at_twice` are the probabilities that the gate fails if the
    true change is its bound, or twice that (None for a bound of 0); `detects` is the change that it fails
    for with 80 %.
    """

    gate: Gate
    outcome: Outcome
    base: float | None
    head: float | None
    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None
    test: str | None = None
    detects: float | None = None
    power_at_bound: float | None = None
    power_at_twice: float | None = None


FindRuns = Callable[[Metric, Statistic], Earlier | None]


class GateOptions(Struct, frozen=True):
    """How gates are tested.

    `earlier` finds the runs that a statistic of a metric is compared with, or whose spread it has; `alike`
    recorded runs of this configuration, three or more, for the deviation between runs.
    """

    alpha: float = 0.05
    earlier: FindRuns = lambda metric, value: None
    alike: FindRuns = lambda metric, value: None
    work: Work | None = None  # times and sizes are per unit of it


def parse(text: str, catalog: Catalog) -> Gate:
    """The gate in a text; raises ExpressionError or UnknownName with the position of the error.

    A bound that every recording meets, or none, is an error as well.
    """
    value, metric, end = parse_statistic_prefix(text, catalog, len(text) - len(text.lstrip()))
    if value == "value" and metric.measures_steps:
        value = "mean"
    if value == "absent" and not text[end:].strip():
        return Gate(text.strip(), metric, "<=", 0.0, "", False, value)
    match = _BOUND.fullmatch(text, end) if value != "absent" else None
    if match is None:
        mistake, hint = _mistake(text[end:].strip())
        raise ExpressionError(f"gate {text!r}, character {end + 1}: {mistake}", hint)
    op, sign, number, unit = match.groups()
    _check_unit(text, match.start(4), metric, unit, bool(sign))
    metric_unit = _OWN_UNIT.get(unit)
    scale = 0.01 if unit == "%" else _SCALES[metric_unit][1][unit] if metric_unit else 1.0
    bound = float(number) * scale * (-1 if sign == "-" else 1)
    gate = Gate(text.strip(), metric, op, bound, unit, bool(sign), value)
    _check_bound(gate)
    return gate


def _check_bound(gate: Gate) -> None:
    """Raises ExpressionError for a bound that every recording meets, or none."""
    if gate.metric.column.signed or gate.signed and not gate.relative:
        return
    least = -1.0 if gate.relative else 0.0
    if gate.bound < least or gate.bound == least and (gate.op in ("<", ">=") or gate.is_of_step_time):
        which = "no" if gate.op in ("<", "<=") else "every"
        hint = "no value is below 0, a step takes time, and no change is below -100 %"
        raise ExpressionError(f"gate {gate.text!r}: {which} recording meets this bound", hint)


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
        units = (*TRACE_UNITS, *BYTES, *RATES)
        hint = f"changes have %, other bounds one of {', '.join(units)}; counts are plain numbers"
        return f"unknown unit `{unit[1]}`", hint
    return "expected <=, <, >= or > and a bound", _EXAMPLES


def _check_unit(text: str, at: int, metric: Metric, unit: str, signed: bool) -> None:
    """Raises ExpressionError if the bound's unit is not one of the metric's."""
    position, metric_unit = f"gate {text!r}, character {at + 1}", metric.column.unit
    if unit == "%" and not signed and metric_unit != "ratio":
        raise ExpressionError(
            f"{position}: % needs a sign (+ or -), since {metric} is not a ratio",
            "with a sign it bounds the change against base: <=+3%",
        )
    if unit in _OWN_UNIT and metric_unit != _OWN_UNIT[unit]:
        kind = _SCALES[_OWN_UNIT[unit]][0]
        raise ExpressionError(f"{position}: {metric} is not {kind}", f"its unit is {metric_unit}")
    if not unit and metric_unit == "ns":
        raise ExpressionError(f"{position}: expected a unit", "one of %, ns, us, ms, s")


def evaluate(
    gate: Gate,
    base: Selection,
    head: Selection,
    known: ShiftTest | None = None,
    options: GateOptions | None = None,
) -> GateResult:
    """Whether the gate holds; raises TwError if the metric cannot be aggregated over several rows.

    `known` is a test of the median step time that was done already.
    """
    options = options or GateOptions()
    before, after = measure_statistic(gate.value, gate.metric, base, head)
    if options.work is not None:
        before, after = per_unit(before, options.work.base), per_unit(after, options.work.head)
    if gate.value != "median" or not gate.is_of_step_time:
        known = None
    return decide(gate, before, after, known, options)


def decide(
    gate: Gate, base: Measured, head: Measured, known: ShiftTest | None, options: GateOptions
) -> GateResult:
    """Whether the gate holds, by the interval of what it bounds if there is one.

    A change in % over four runs or more in total, or with earlier runs, has an interval between runs; `known`
    is a test of the metric that was done already. A change of a time with one run per side has the interval
    of its steps, which is widened by three deviations between runs. A bound inside the interval is
    inconclusive. A change without an interval is compared with the bound itself, and the reason says why it
    was not tested.
    """
    earlier = options.earlier(gate.metric, gate.value) if gate.signed else None
    # A mean is that of all runs, as in the verdict and the breakdown.
    base_value, head_value = (side.mean if gate.value == "mean" else side.median for side in (base, head))
    if earlier is not None and earlier.is_baseline:
        base_value = earlier.median
    if gate.value == "absent":
        # Passes if head has no matching row.
        present = [run.run for run in head.runs if run.rows]
        reason = f"present in {', '.join(present[:3])}" if present else None
        before, after = (float(sum(run.rows for run in side.runs)) for side in (base, head))
        return GateResult(gate, "fail" if present else "pass", before, after, after, reason=reason)
    if head_value is None or (gate.signed and base_value is None):
        unknown = [side.reason or "no row" for side in (base, head) if not side.values]
        reason = "; ".join(dict.fromkeys(unknown))
        return GateResult(gate, "inconclusive", base_value, head_value, None, reason=reason)
    if not gate.signed:
        return _by_value(gate, base_value, head_value, head_value)
    assert base_value is not None
    return _by_change(gate, (base, head), (base_value, head_value), known, earlier, options)


def _by_change(
    gate: Gate,
    sides: tuple[Measured, Measured],
    values: tuple[float, float],
    known: ShiftTest | None,
    earlier: Earlier | None,
    options: GateOptions,
) -> GateResult:
    """By the change from base to head, with its interval if it has one."""
    base, head = values
    relative = head / base - 1 if base else math.inf if head else 0.0
    change = relative if gate.relative else head - base
    test = known or _test_between_runs(*sides, options.alpha, earlier)
    runs = len(sides[0].values) + len(sides[1].values)
    is_exact = gate.metric.column.unit in _EXACT
    if test is None and runs < MIN_SAMPLES and base and not is_exact:
        if gate.metric.column.unit == "ns":
            return _by_steps(gate, sides, values, options)
        hint = hints.fill("use more runs, or {}", hints.option("noise", "history"))
        reason = hints.fill("{}; {}", NOT_TESTED, hint)
        return GateResult(gate, "inconclusive", base, head, change, reason=reason)
    if test is None or not gate.relative or not base:
        untested = "a run has the value 0" if gate.relative else "only changes in % have an interval"
        return _by_value(gate, base, head, change, None if is_exact else f"not tested: {untested}")
    freedom = len(earlier.values) - 1 if earlier else runs - 2
    return _by_interval(gate, base, head, test.around(change), options.alpha, freedom)


def _by_steps(
    gate: Gate, sides: tuple[Measured, Measured], values: tuple[float, float], options: GateOptions
) -> GateResult:
    """By one run per side: the interval of its steps, or without one its change, and the runs' deviation."""
    base, head = values
    change, scale = head / base - 1, 1.0 if gate.relative else base
    within = _test_within_runs(gate.value, sides, options.alpha)
    low, high = (min(within.low, change), max(within.high, change)) if within else (change, change)
    alike = options.alike(gate.metric, gate.value)
    deviation = ASSUMED_DEVIATION
    if alike:
        deviation = alike.deviation if alike.is_short else alike.robust_deviation
    recorded = len(alike.values) if alike else 0
    wider = p_and_reach(0.0, math.sqrt(2), recorded - 1, _TAILS)[1] if recorded else _DEVIATIONS
    low_end, high_end = (scale * (end + side * wider * deviation) for end, side in ((low, -1), (high, 1)))
    method = "one run per side" if within is None else "steps of one run per side"
    result = _by_interval(gate, base, head, ShiftTest(scale * change, low_end, high_end, math.nan, method))
    source = f"of {recorded} recorded runs" if recorded else "assumed"
    runs = " + ".join(str(len(side.values)) for side in sides)
    reason = (
        f"{runs} runs: the interval is {wider:.2g} σ wider, σ between runs {100 * deviation:.2g} % ({source})"
    )
    if result.outcome == "inconclusive":
        # The deviation of one run: between runs, and by the interval of the difference of two.
        total = math.hypot(deviation, (high - low) / _INTERVAL_OF_TWO)
        reason = f"{reason}; {_runs_that_decide(change, gate.bound / scale, total, options.alpha)}"
    return replace(result, reason=reason)


def _test_within_runs(value: Statistic, sides: tuple[Measured, Measured], alpha: float) -> ShiftTest | None:
    """The relative change of a mean or median of steps, by blocks of steps; None if there are too few."""
    if value not in ("value", "mean", "median"):
        return None
    of_block: Callable[[Sequence[float]], float] = median if value == "median" else fmean
    base, head = (
        [of_block(run.steps[block.start : block.stop]) for run in side.runs for block in blocks(run.steps)]
        for side in sides
    )
    mean = fmean(base) if base and head and len(base) + len(head) >= MIN_SAMPLES else 0.0
    if not mean:
        return None
    return student_t([value_ns / mean for value_ns in base], [value_ns / mean for value_ns in head], alpha)


def _runs_that_decide(change: float, bound: float, deviation: float, alpha: float) -> str:
    """How many runs per side show on which side of the bound such a change is."""
    distance = abs(math.log1p(change) - math.log1p(bound)) if min(change, bound) > -1 else math.inf
    if distance <= deviation / MAX_RESOLUTION:
        return "the change is too close to the bound to be decided by runs"
    return f"about {runs_needed(deviation, distance, alpha=alpha)} runs per side would decide"


def _test_between_runs(
    base: Measured, head: Measured, alpha: float, earlier: Earlier | None
) -> ShiftTest | None:
    """The relative change between runs; None if there are few runs or a value is not positive."""
    values = base.values, head.values
    if earlier is not None and head.values and min(earlier.values) > 0 and min(head.values) > 0:
        return relative_shift(*values, alpha, earlier)
    if min(map(len, values)) == 0 or sum(map(len, values)) < MIN_SAMPLES or min(map(min, values)) <= 0:
        return None
    return relative_shift(*values, alpha)


def _by_value(
    gate: Gate, base: float | None, head: float, value: float, reason: str | None = None
) -> GateResult:
    return GateResult(gate, "pass" if gate.holds(value) else "fail", base, head, value, reason=reason)


def _by_interval(
    gate: Gate,
    base: float,
    head: float,
    test: ShiftTest,
    alpha: float = 0.05,
    freedom: float = 0,
) -> GateResult:
    """By the interval of a test; its power takes the degrees of freedom of it."""
    ends = gate.holds(test.low), gate.holds(test.high)
    outcome: Outcome = "pass" if all(ends) else "inconclusive" if any(ends) else "fail"
    reason = "the bound is inside the interval" if outcome == "inconclusive" else None
    detects, at_bound, at_twice = _power(gate, test, alpha, freedom)
    return GateResult(
        gate, outcome, base, head, test.estimate, test.low, test.high, reason, test.method,
        detects, at_bound, at_twice,
    )  # fmt: skip


def _power(
    gate: Gate, test: ShiftTest, alpha: float, freedom: float
) -> tuple[float | None, float | None, float | None]:
    """The change that the gate fails for with 80 %, and its power at the bound and at twice the bound."""
    if freedom < 1 or test.low <= -1 or gate.bound <= -0.5 or not math.isfinite(test.high):
        return None, None, None
    half_width = (math.log1p(test.high) - math.log1p(test.low)) / 2
    error = half_width / smallest_detected(1.0, freedom, alpha=alpha, power=0.5)
    toward = 1 if gate.op in ("<=", "<") else -1
    beyond = toward * smallest_detected(error, freedom, alpha=alpha)
    twice = toward * (math.log1p(2 * gate.bound) - math.log1p(gate.bound))
    return (
        math.expm1(math.log1p(gate.bound) + beyond),
        power_at(0.0, error, freedom, alpha=alpha),
        power_at(twice, error, freedom, alpha=alpha) if twice > 0 else None,
    )
