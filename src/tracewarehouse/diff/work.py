"""`--normalize`: times and bytes per sample, per token, or per unit of a label that counts a step's work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from tracewarehouse import hints
from tracewarehouse.errors import ParamError, TwError
from tracewarehouse.metric import Measured, RunValue
from tracewarehouse.runs.selection import Selection, run_attributes

LABELS = {"sample": "samples_per_step", "token": "tokens_per_step"}
_LABEL = "label."
_NORMALIZED = ("ns", "bytes")  # units of measures that grow with the work of a step
_LEAST_NS = 100_000  # of a mean step; below, the time of a thousand or a million units is compared


@dataclass(frozen=True)
class Work:
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
        base, head = ({run: of / self.scale for run, of in side.items()} for side in (self.base, self.head))
        return base, head

    def scaled(self, step_ns: float) -> Work:
        """With the scale for runs whose mean step is about so long."""
        scale, most = 1, max([*self.base.values(), *self.head.values()])
        while step_ns * scale < _LEAST_NS * most and scale < 10**9:
            scale *= 1_000
        return replace(self, scale=scale)

    def divide(self, base: Measured, head: Measured) -> tuple[Measured, Measured]:
        """The metric per unit, if it is a time or a size."""
        if base.metric.column.unit not in _NORMALIZED:
            return base, head
        sides = ((base, self.base), (head, self.head))
        left, right = (
            replace(each, runs=tuple(_per_unit(run, by[run.run]) for run in each.runs)) for each, by in sides
        )
        return left, right


def _per_unit(run: RunValue, work: Fraction) -> RunValue:
    value, mean = (None if each is None else float(each / work) for each in (run.value, run.mean))
    return replace(run, value=value, mean=mean, steps=tuple(float(step / work) for step in run.steps))


def read_work(normalize: str, base: Selection, head: Selection) -> Work:
    """The work of each run by its labels: `sample`, `token` or `label.K`.

    Raises ParamError for anything else; TwError if a run lacks the label, or for a value of 0 or less.
    """
    key = LABELS.get(normalize) or normalize.removeprefix(_LABEL)
    if normalize not in LABELS and (not normalize.startswith(_LABEL) or not key):
        raise ParamError(f"unknown normalize {normalize!r}", "use sample, token or label.K")
    unit = normalize if normalize in LABELS else f"unit of {key}"
    return Work(unit, _of_runs(base, key), _of_runs(head, key))


def _of_runs(side: Selection, key: str) -> dict[str, Fraction]:
    return {
        each.run: _number(each.run, key, run_attributes(each.version).labels.get(key))
        for each in side.selected()
    }


def _number(run: str, key: str, text: str | None) -> Fraction:
    try:
        value = Fraction(text) if text is not None else None
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if value is not None and value > 0:
        return value
    problem = (
        f"lacks the label {key}" if text is None else f"has the label {key}={text}, not a number above 0"
    )
    hint = hints.Hint(f'wh.label("{run}", {{"{key}": "32"}})', f"tw label {run} {key}=32")
    raise TwError(f"run {run} {problem}", hints.fill("set what a step of a rank processes: {}", hint))
