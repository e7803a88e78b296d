"""What the values of a history are: the metric or a statistic of its steps, whole or per unit of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from tracewarehouse.compare.metric import (
    Measured,
    Metric,
    Statistic,
    WorkUnit,
    is_normalized,
    of_steps,
    per_unit,
)
from tracewarehouse.errors import ParamError, TwError
from tracewarehouse.present.render.text import one_line
from tracewarehouse.runs.selection import SelectedRun


@dataclass(frozen=True)
class ValueForm:
    """A statistic of the complete steps, or `value` for the metric itself; per `unit` of work, if given."""

    statistic: Statistic = "value"
    unit: WorkUnit | None = None

    def title(self, metric: Metric) -> str:
        """What the values are, on one line."""
        text = str(metric) if self.statistic == "value" else f"{self.statistic}({metric})"
        return one_line(text if self.unit is None else f"{text} per {self.unit.name}")

    def per(self, per: str) -> str:
        """What one value refers to, in words, if the metric's own values refer to `per`."""
        per = (
            per
            if self.statistic == "value"
            else f"the {self.statistic} of the complete steps, mean of their ranks"
        )
        return per if self.unit is None else f"{per}, per {self.unit.name}"

    def for_runs(self, metric: Metric, selected: Sequence[SelectedRun]) -> Callable[[Measured], Measured]:
        """Gives measured values of these runs this form; a run that does not say its work has no value.

        Raises TwError if no run says its work, ParamError if the metric is neither a time nor a size.
        """
        work = {} if self.unit is None else _work(metric, self.unit, selected)
        return lambda measured: _normalized(of_steps(self.statistic, measured), self.unit, work)


PLAIN = ValueForm()


def _work(metric: Metric, unit: WorkUnit, selected: Sequence[SelectedRun]) -> dict[str, Fraction]:
    """`RUN@vN` → the work of a step, of the runs that say it."""
    if not is_normalized(metric):
        raise ParamError(f"{metric} is neither a time nor a size", "only those are per unit of work")
    work, error = {}, None
    for each in selected:
        try:
            work[each.selector] = unit.of(each.version)
        except TwError as problem:
            error = problem
    if error is not None and not work:
        raise error
    return work


def _normalized(measured: Measured, unit: WorkUnit | None, work: dict[str, Fraction]) -> Measured:
    if unit is None:
        return measured
    reason = f"no label {unit.label}, or not a number above 0"
    runs = tuple(
        run if run.run in work else replace(run, value=None, mean=None, steps=(), reason=reason)
        for run in measured.runs
    )
    one = dict.fromkeys((run.run for run in runs), Fraction(1))
    return per_unit(replace(measured, runs=runs), one | work)
