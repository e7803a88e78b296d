"""What changed between two sides: the mean step (window, annotation) of each, split until it adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING

from tracewarehouse.diff.amounts import LEVELS, Amounts, Sums, amounts
from tracewarehouse.diff.levels import Level, Row, ranked
from tracewarehouse.diff.roles import roles
from tracewarehouse.errors import ParamError, TwError
from tracewarehouse.metric import Side
from tracewarehouse.result import Abstained, Provenance, Result
from tracewarehouse.stats import MIN_SAMPLES

if TYPE_CHECKING:
    import pyarrow as pa


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
    by_run = sum(len(side.selected()) for side in (base, head)) >= MIN_SAMPLES
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


def tested(rows: Sequence[Row], sides: tuple[Amounts, Amounts], alpha: float) -> list[Row]:
    """The rows with their tests (`stats.rows`): by run, or by blocks of steps where a side has one run."""
    from tracewarehouse.stats import rows as tests

    blocks = [list(_blocks(side)) for side in sides]
    base = [_means(row.base_units, blocks[0]) for row in rows]
    head = [_means(row.head_units, blocks[1]) for row in rows]
    whole = [max(side.length_ns, 1) / side.units for side in sides]
    weights = [max(float(row.base) / whole[0], float(row.head) / whole[1]) for row in rows]
    found = tests(base, head, weights, alpha=alpha)
    return [replace(row, test=test) for row, test in zip(rows, found, strict=True)]


def _blocks(side: Amounts) -> Iterator[list[int]]:
    """Replicates that count as one, by their place: each run alone, or blocks of the steps of a run."""
    from tracewarehouse.stats import blocks

    places = range(len(side.replicates))
    for _, found in groupby(places, key=lambda place: side.replicates[place][0]):
        steps = list(found)
        yield from ([steps[at] for at in block] for block in blocks([side.lengths[at] for at in steps]))


def _means(values: Sequence[float], blocks: Sequence[Sequence[int]]) -> list[float]:
    return [sum(values[at] for at in block) / len(block) for block in blocks]


STEP, WINDOW, ANNOTATION = "step", "window", "annotation:"
ENOUGH_STEPS = 3  # complete steps of a rank; with fewer the unit is the window

_STEPS = """
SELECT run_id, rank, step AS unit, period_ns AS length_ns
FROM steps
SEMI JOIN kernels ON kernels.run_id = steps.run_id AND kernels.rank = steps.rank
WHERE NOT partial
"""


@dataclass(frozen=True)
class Spent:
    """What a side says: `parts` and `kernels` by run, rank and the column `unit`; `units` are the complete
    steps with their length_ns, None where all units count."""

    unit: str
    units: pa.Table | None
    parts: Result
    kernels: Result


def unit_of(per: str | None, sides: tuple[Side, Side]) -> tuple[str, list[str]]:
    """What the account is per, and what there is to tell of that; raises ParamError."""
    if per is None:
        if all(_enough(side) for side in sides):
            return STEP, []
        return WINDOW, [f"fewer than {ENOUGH_STEPS} complete steps of a rank: the account is per window"]
    if per in (STEP, WINDOW) or per.startswith(ANNOTATION) and per != ANNOTATION:
        return per, []
    raise ParamError(f"per {per!r} is not known", "it is step, window or annotation:NAME")


def _enough(side: Side) -> bool:
    """Whether every run has a rank with enough complete steps."""
    steps = side.query(_STEPS).rows()
    most: Counter[str] = Counter()
    for (run, _), count in Counter((row["run_id"], row["rank"]) for row in steps).items():
        most[run] = max(most[run], count)
    return all(most[each.run] >= ENOUGH_STEPS for each in side.selected())


def spent(who: str, side: Side, per: str) -> Spent:
    """What the side says per unit; raises TwError where it has none."""
    if per == STEP:
        found = Spent("step", side.query(_STEPS).arrow(), side.run("step_account"), side.run("step_kernels"))
        return _some(who, found, "no complete step", "account for all of it: per window")
    annotation = per.removeprefix(ANNOTATION) if per != WINDOW else None
    asked = [side.run(name, annotation=annotation) for name in ("window_account", "window_kernels")]
    remedy = "tw show annotation_breakdown names the annotations" if annotation else None
    return _some(who, Spent("occurrence", None, *asked), f"no {annotation or 'GPU row'}", remedy)


def _some(who: str, found: Spent, lack: str, remedy: str | None) -> Spent:
    if len(found.parts if found.units is None else found.units):
        return found
    why = ", ".join(sorted({each.reason for each in found.parts.abstained})) or lack
    raise TwError(f"{who} has nothing to account for: {why}", remedy)
