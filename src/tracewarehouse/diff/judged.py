"""Whether a row of a comparison got better or worse, by more than its noise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracewarehouse.columns import Column
from tracewarehouse.sqltext import quote_name
from tracewarehouse.stats import ENOUGH

if TYPE_CHECKING:
    from tracewarehouse.diff.plan import Plan
    from tracewarehouse.engine import Connection
    from tracewarehouse.stats import RowTest

VERDICTS = "better, worse (higher, lower where no direction is the good one), no change or inconclusive"
Unit = tuple[Any, ...]  # a run, or a run and a step
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Units:
    """What is measured again and again on a side: each run or step, with the ranks that were in it."""

    parts: Mapping[Unit, int]

    def __len__(self) -> int:
        return len(self.parts)


def columns(measure: Column, by: str | None) -> tuple[Column, ...]:
    """What is told of each row; `by` says over what the noise is known, None where it is not."""
    over = f"over {by}" if by else "not known here: it takes four runs in all, or steps"
    null = "null where it was not tested, as rows under 0.1 % of the whole"
    return (
        Column(
            "verdict", "VARCHAR", f"By {measure.name} and its noise {over}: {VERDICTS}; {null}.", null=True
        ),
        _ratio("low", f"Where the interval of the relative change of {measure.name} begins; {null}."),
        _ratio("high", f"Where it ends; {null}."),
        _ratio("q", f"p after Benjamini and Hochberg over the rows; {null}."),
    )


def _ratio(name: str, doc: str) -> Column:
    return Column(name, "DOUBLE", doc, "ratio", null=True, signed=True)


def judged(
    con: Connection,
    plan: Plan,
    keys: Sequence[Key],
    sides: Mapping[str, Units],
    alpha: float,
    min_effect: float,
) -> list[dict[str, object]]:
    """The columns for each row, by the tables `base` and `head` of the connection."""
    from tracewarehouse.stats import rows

    if sum(map(len, sides.values())) < ENOUGH or not all(map(len, sides.values())):
        return [_row(plan.deciding, None, min_effect)] * len(keys)
    base, head = (_values(con, plan, side, units, keys) for side, units in sides.items())
    sizes = [max(map(_mean, pair)) for pair in zip(base, head, strict=True)]
    whole = sum(sizes) or 1.0
    tests = rows(base, head, [size / whole for size in sizes], alpha=alpha)
    return [_row(plan.deciding, test, min_effect) for test in tests]


def _values(con: Connection, plan: Plan, side: str, units: Units, keys: Sequence[Key]) -> list[list[float]]:
    """For each key what a rank took in each unit, 0 where there is no such row."""
    width = len(next(iter(units.parts)))
    unit = ("run_id", "step")[:width]
    names = [*(quote_name(key.name) for key in plan.keys), *unit]
    listed = ", ".join(names)
    sql = f"SELECT {listed}, sum({quote_name(plan.deciding.name)}) FROM {side} GROUP BY {listed}"
    found: dict[Key, dict[Unit, float]] = defaultdict(dict)
    for row in con.execute(sql).fetchall():
        found[row[: len(plan.keys)]][row[len(plan.keys) : -1]] = float(row[-1] or 0)
    return [[found[key].get(each, 0.0) / parts for each, parts in units.parts.items()] for key in keys]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _row(measure: Column, test: RowTest | None, min_effect: float) -> dict[str, object]:
    if test is None or not test.tested:
        return {"verdict": None, "low": None, "high": None, "q": None}
    told = {"low": test.low, "high": test.high, "q": test.q}
    if test.low is not None and test.high is not None and max(-test.low, test.high) <= min_effect:
        return {"verdict": "no change", **told}
    if not test.significant:
        return {"verdict": "inconclusive", **told}
    return {"verdict": _word(measure, test.change > 0), **told}


def _word(measure: Column, higher: bool) -> str:
    if measure.better is None:
        return "higher" if higher else "lower"
    return "better" if higher == (measure.better == "higher") else "worse"
