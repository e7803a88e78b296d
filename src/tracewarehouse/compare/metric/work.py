"""Times and sizes per sample, per token, or per unit of another label that counts what a step processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from tracewarehouse import hints
from tracewarehouse.compare.metric.model import Measured, Metric, RunValue
from tracewarehouse.errors import ExpressionError, TwError
from tracewarehouse.runs.selection import run_attributes

if TYPE_CHECKING:
    from tracewarehouse.storage import RunVersion

WORK_LABELS = {"sample": "samples_per_step", "token": "tokens_per_step"}
_LABEL = "label."
_NORMALIZED = ("ns", "bytes")  # units of measures that grow with the work of a step


@dataclass(frozen=True)
class WorkUnit:
    """What times and sizes are per: its name, and the label of a run that counts them in a step of a rank."""

    name: str
    label: str

    @classmethod
    def parse(cls, normalize: str) -> WorkUnit:
        """`sample`, `token` or `label.K`; raises ExpressionError for anything else."""
        label = WORK_LABELS.get(normalize) or normalize.removeprefix(_LABEL)
        if normalize not in WORK_LABELS and (not normalize.startswith(_LABEL) or not label):
            raise ExpressionError(f"unknown normalize {normalize!r}", "use sample, token or label.K")
        return cls(normalize if normalize in WORK_LABELS else f"unit of {label}", label)

    def of(self, version: RunVersion) -> Fraction:
        """The work of a step of a run; raises TwError without the label, or if it is not above 0."""
        text = run_attributes(version).labels.get(self.label)
        try:
            value = Fraction(text) if text is not None else None
        except (ValueError, ZeroDivisionError):
            value = Fraction(0)
        if value is not None and value > 0:
            return value
        run, label = version.run, self.label
        problem = f"lacks the label {label}" if text is None else f"has the label {label}={text}"
        wanted = "" if text is None else ", not a number above 0"
        hint = hints.Hint(f'wh.label("{run}", {{"{label}": "32"}})', f"tw label {run} {label}=32")
        message = hints.fill("set what a step of a rank processes: {}", hint)
        raise TwError(f"run {run} {problem}{wanted}", message)


def is_normalized(metric: Metric) -> bool:
    """Whether the metric grows with the work of a step: a time or a size."""
    return metric.column.unit in _NORMALIZED


def per_unit(measured: Measured, work: Mapping[str, Fraction]) -> Measured:
    """The metric per unit of the work of each run, if it is a time or a size."""
    if not is_normalized(measured.metric):
        return measured
    return replace(measured, runs=tuple(_per_unit(run, work[run.run]) for run in measured.runs))


def _per_unit(run: RunValue, work: Fraction) -> RunValue:
    value, mean = (None if each is None else float(each / work) for each in (run.value, run.mean))
    return replace(run, value=value, mean=mean, steps=tuple(float(step / work) for step in run.steps))
