"""How the rows of an analysis are compared: what they are joined on, what is measured, and per what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tracewarehouse.contracts.columns import Column
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.errors import ParamError

POOLED = ("run_id", "rank", "device", "step")  # who did it: rows of all of them are taken together
_NO_MEASURE = ("id", "ts", "depth")
CHANGES = "added, deleted, increased, decreased or unchanged"


@dataclass(frozen=True)
class Plan:
    """`per` is what one value is of, in words; `pooled` whether ranks were taken together."""

    contract: Contract
    keys: tuple[Column, ...]
    measures: tuple[Column, ...]
    deciding: Column
    pooled: bool
    per: str

    @property
    def result(self) -> Contract:
        """What the comparison promises; its SELECT is still to be written."""
        columns = (*self.keys, *self._values(), _change(self.deciding))
        sizes = [key[1:] for key in self.contract.order if key.startswith("-")]
        names = [measure.name for measure in self.measures]
        size = next((name for name in sizes if name in names), self.deciding.name)
        return replace(
            self.contract,
            name=f"{self.contract.name}_diff",
            summary=f"What differs: {self.contract.summary}",
            grain=tuple(key.name for key in self.keys),
            order=(f"-delta_{size}",),
            requires=(self.contract.ref,),
            needs=(),
            params=(),
            columns=columns,
            source=f"{self.contract.name}_diff",
            body="",
        )

    def _values(self) -> Iterable[Column]:
        for measure in self.measures:
            made = replace(
                measure,
                type="DOUBLE" if self.pooled else measure.type,
                null=measure.null or measure.fold != "sum",
                fold="sum" if measure.fold == "sum" else None,
            )
            for side in ("base", "head"):
                yield replace(made, name=f"{side}_{measure.name}", doc=f"{side}, {self.per}: {measure.doc}")
            yield replace(
                made,
                name=f"delta_{measure.name}",
                doc=f"head_{measure.name} less base_{measure.name}.",
                signed=True,
            )


def plan(contract: Contract, by_rank: bool, by_step: bool, measure: str | None) -> Plan:
    """How to compare two results of the analysis; raises ParamError where that cannot be."""
    gone = ("run_id",) if by_rank else POOLED
    named = {column.name: column for column in contract.columns}
    keys = tuple(named[name] for name in contract.grain if name not in gone)
    measures = tuple(
        column
        for column in contract.columns
        if column.name not in contract.grain and _is_measure(column) and (by_rank or column.fold)
    )
    if not measures:
        raise ParamError(
            f"{contract.ref} says of no measure what it is of several ranks",
            "compare rank by rank: --by-rank",
        )
    per = "of this rank" if by_rank else "per step and rank" if by_step else "per rank"
    return Plan(contract, keys, measures, _deciding(contract, measures, by_rank, measure), not by_rank, per)


def _is_measure(column: Column) -> bool:
    return column.unit is not None and column.unit not in _NO_MEASURE


def able(measures: tuple[Column, ...], by_rank: bool) -> list[Column]:
    """The measures that may decide: over ranks only those that add up."""
    return [column for column in measures if by_rank or column.fold == "sum"]


def _deciding(contract: Contract, measures: tuple[Column, ...], by_rank: bool, measure: str | None) -> Column:
    """The measure that decides about increased and decreased: the one asked for, else the first."""
    deciders = able(measures, by_rank)
    known = ", ".join(column.name for column in deciders)
    for column in deciders:
        if measure in (None, column.name):
            return column
    raise ParamError(f"{contract.ref} has no measure {measure} to compare", f"it has {known or 'none'}")


def _change(deciding: Column) -> Column:
    return Column(
        "change",
        "VARCHAR",
        f"{CHANGES}: whether there are such rows in base and head, then by {deciding.name}; "
        "null where that is not known.",
        null=True,
    )


def select(plan: Plan, base_parts: int, head_parts: int) -> str:
    """SQL over the tables `base` and `head`; each side has that many ranks, or steps of ranks."""
    ends = {"base": base_parts, "head": head_parts}
    sides = ",\n".join(f"{side}_side AS (\n{_side(plan, side)}\n)" for side in ends)
    columns = [f"coalesce(head_side.{_k(key)}, base_side.{_k(key)}) AS {_k(key)}" for key in plan.keys]
    columns += [column for measure in plan.measures for column in _values(plan, measure, ends)]
    columns.append(f"{_change_of(plan, ends)} AS change")
    same = ["base_side.present = head_side.present"]
    same += [f"base_side.{_k(key)} IS NOT DISTINCT FROM head_side.{_k(key)}" for key in plan.keys]
    return (
        f"WITH\n{sides}\nSELECT\n  "
        + ",\n  ".join(columns)
        + f"\nFROM base_side\nFULL JOIN head_side ON {' AND '.join(same)}"
    )


def _k(column: Column) -> str:
    return quote_name(column.name)


def _side(plan: Plan, side: str) -> str:
    """A row per key; sums stay exact, and are null where a part is."""
    parts = [*map(_k, plan.keys), "TRUE AS present", *(_pooled(plan, measure) for measure in plan.measures)]
    grouped = f"\nGROUP BY {', '.join(map(_k, plan.keys))}" if plan.keys and plan.pooled else ""
    some = "\nHAVING count(*) > 0" if plan.pooled else ""
    return f"SELECT {', '.join(parts)}\nFROM {side}{grouped}{some}"


def _pooled(plan: Plan, measure: Column) -> str:
    name = _k(measure)
    if not plan.pooled:
        return name
    if measure.fold in ("min", "max"):
        return f"{_whole(name, f'{measure.fold}({name})')} AS {name}"
    over, _, under = (measure.fold or "").partition("/")
    if under:
        parts = [_whole(quote_name(part), f"sum({quote_name(part)})") for part in (over, under)]
        return f"{parts[0]} / nullif({parts[1]}, 0) AS {name}"
    return f"{_whole(name, f'sum({name})')} AS {name}"


def _whole(name: str, value: str) -> str:
    """The value, unless a part of it is not known."""
    return f"CASE WHEN count({name}) = count(*) THEN {value} END"


def _values(plan: Plan, measure: Column, ends: dict[str, int]) -> Iterator[str]:
    base, head = (_value(measure, side) for side in ends)
    name, is_sum = measure.name, plan.pooled and measure.fold == "sum"
    if not is_sum:
        made = "::DOUBLE" if plan.pooled else ""
        yield f"{base}{made} AS {quote_name('base_' + name)}"
        yield f"{head}{made} AS {quote_name('head_' + name)}"
        yield f"({head} - {base}){made} AS {quote_name('delta_' + name)}"
        return
    yield f"{base} / {ends['base']} AS {quote_name('base_' + name)}"
    yield f"{head} / {ends['head']} AS {quote_name('head_' + name)}"
    one, other = _crossed(measure, ends)
    yield f"({other} - {one}) / {ends['base'] * ends['head']} AS {quote_name('delta_' + name)}"


def _value(measure: Column, side: str) -> str:
    """A measure of one side; without such a row what adds up took nothing, of the rest nothing is known."""
    value = f"{side}_side.{_k(measure)}"
    absent = f"{side}_side.present IS NULL"
    return f"CASE WHEN {absent} THEN 0 ELSE {value} END" if measure.fold == "sum" else value


def _crossed(measure: Column, ends: dict[str, int]) -> tuple[str, str]:
    """Both sides over a common denominator: whole numbers stay whole."""
    base, head = (_value(measure, side) for side in ends)
    return f"({base}) * {ends['head']}", f"({head}) * {ends['base']}"


def _change_of(plan: Plan, ends: dict[str, int]) -> str:
    plain = (_value(plan.deciding, side) for side in ends)
    base, head = _crossed(plan.deciding, ends) if plan.pooled else plain
    return (
        "CASE WHEN base_side.present IS NULL THEN 'added' WHEN head_side.present IS NULL THEN 'deleted'"
        f" WHEN {head} > {base} THEN 'increased' WHEN {head} < {base} THEN 'decreased'"
        f" WHEN {head} = {base} THEN 'unchanged' END"
    )
