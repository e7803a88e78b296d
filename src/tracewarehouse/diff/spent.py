"""What one side of an account is asked: its units, their parts, and what each kernel took of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracewarehouse.errors import ParamError, TwError
from tracewarehouse.metric import Side
from tracewarehouse.result import Result

if TYPE_CHECKING:
    import pyarrow as pa

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
    return all(most[each.run] >= ENOUGH_STEPS for each in side.chosen())


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
