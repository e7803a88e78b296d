"""What changed between two sides: the mean step (window, annotation) of each, split until it adds up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from tracewarehouse.diff.amounts import LEVELS, Amounts, Sums, amounts
from tracewarehouse.diff.levels import Level, Row, ranked
from tracewarehouse.diff.proven import tested
from tracewarehouse.diff.roles import roles
from tracewarehouse.diff.spent import Spent, spent, unit_of
from tracewarehouse.metric import Side
from tracewarehouse.result import Abstained, Provenance
from tracewarehouse.stats import ENOUGH


@dataclass(frozen=True)
class Account:
    """The mean unit of both sides, split by levels that each add up to both means exactly.

    A unit is a complete step of a rank (`per="step"`), a rank's window, or an annotation of a rank.
    `replicate` is what the tests take as one measurement: run, or step (within one run).
    """

    per: str
    base_mean: Fraction
    head_mean: Fraction
    base_units: int
    head_units: int
    replicate: str
    levels: tuple[Level, ...]
    notices: tuple[str, ...]
    abstained: tuple[Abstained, ...]  # ranks that are left out

    @property
    def delta(self) -> Fraction:
        """The change of the mean, in ns."""
        return self.head_mean - self.base_mean

    def level(self, name: str) -> Level:
        """One of breakdown, kernels, operators, categories, ranks; raises KeyError."""
        return {level.name: level for level in self.levels}[name]


def account(base: Side, head: Side, *, per: str | None = None, alpha: float = 0.05) -> Account:
    """Why the mean step of head is longer or shorter than that of base.

    `per` is `step` (only complete ones), `window` (first to last GPU row of a rank) or `annotation:NAME`
    (each time a rank was inside it); by default steps where every run has three complete ones, else windows.
    Ranks without GPU rows are left out. Raises ParamError for another `per`; TwError where a side has no such
    unit, or no GPU rows.

    A rank that is late makes the others wait in collectives, so their steps grow as much as its own. In the
    breakdown that is exposed communication, as of a slow link; `ranks` tells the two apart: the late rank's
    own time grew, of the others only their communication. Ranks are paired by number; by their role in the
    job where layouts differ; in order where they have other numbers but are as many.
    """
    per, notices = unit_of(per, (base, head))
    told = spent("base", base, per), spent("head", head, per)
    by_run = sum(len(side.chosen()) for side in (base, head)) >= ENOUGH
    sums = amounts(*told, by_run, roles(base, head))
    levels = tuple(_level(name, sums, per, alpha, _provenance(told)) for name in LEVELS)
    means = [Fraction(side.length_ns, side.units) for side in sums]
    return Account(
        per=per,
        base_mean=means[0],
        head_mean=means[1],
        base_units=sums[0].units,
        head_units=sums[1].units,
        replicate="run" if by_run else "step",
        levels=levels,
        notices=tuple(dict.fromkeys((*notices, *(each for side in told for each in side.parts.notices)))),
        abstained=tuple(dict.fromkeys(each for side in told for each in side.parts.abstained)),
    )


def _provenance(told: Sequence[Spent]) -> Provenance:
    base, head = (side.parts.provenance for side in told)
    ranks = {**(base.ranks or {}), **(head.ranks or {})} or None
    return replace(base, runs=(*base.runs, *head.runs), ranks=ranks)


def _level(
    name: str, sides: tuple[Amounts, Amounts], per: str, alpha: float, provenance: Provenance
) -> Level:
    keys = dict.fromkeys(key for side in sides for key in side.sums if key[0] == name)
    rows = [_row(key, sides) for key in keys]
    return Level(name, ranked(tested(rows, sides, alpha)), per, provenance)


def _row(key: tuple[str, str], sides: tuple[Amounts, Amounts]) -> Row:
    base, head = (side.sums.get(key, Sums()) for side in sides)
    counted = base.counted or head.counted
    units = [side.units for side in sides]
    return Row(
        part=key[1],
        base=Fraction(base.ns, units[0]),
        head=Fraction(head.ns, units[1]),
        base_count=Fraction(base.count, units[0]) if counted else None,
        head_count=Fraction(head.count, units[1]) if counted else None,
        base_sum=Fraction(base.sum_ns, units[0]),
        head_sum=Fraction(head.sum_ns, units[1]),
        renamed=key[0] == "kernels" and key[1] in sides[0].renamed,
        base_units=tuple(sides[0].of(key)),
        head_units=tuple(sides[1].of(key)),
    )
