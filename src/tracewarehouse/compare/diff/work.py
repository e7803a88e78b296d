"""`--normalize`: the work of a step on both sides of a comparison, which its times and sizes are per."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from tracewarehouse.compare.metric import Measured, WorkUnit, per_unit
from tracewarehouse.runs.selection import Selection

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
        return per_unit(base, self.base), per_unit(head, self.head)


def read_work(normalize: str, base: Selection, head: Selection) -> Work:
    """The work of each run by its labels: `sample`, `token` or `label.K`.

    Raises ParamError for anything else; TwError if a run lacks the label, or for a value of 0 or less.
    """
    unit = WorkUnit.parse(normalize)
    before, after = ({each.run: unit.of(each.version) for each in side.selected()} for side in (base, head))
    return Work(unit.name, before, after)
