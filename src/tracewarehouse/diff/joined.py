"""The SELECT of a comparison: both sides summed up, joined on the keys, values divided once at the end."""

from __future__ import annotations

from collections.abc import Iterator

from tracewarehouse.columns import Column
from tracewarehouse.diff.plan import Plan
from tracewarehouse.sqltext import quote_name


def select(plan: Plan, base_parts: int, head_parts: int) -> str:
    """SQL over the tables `base` and `head`; each side has that many ranks, or steps of ranks."""
    ends = {"base": base_parts, "head": head_parts}
    sides = ",\n".join(f"{side}_side AS (\n{_side(plan, side)}\n)" for side in ends)
    columns = [f"coalesce(head_side.{_k(key)}, base_side.{_k(key)}) AS {_k(key)}" for key in plan.keys]
    columns += [column for measure in plan.measures for column in _values(plan, measure, ends)]
    columns.append(f"{_change(plan, ends)} AS change")
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


def _change(plan: Plan, ends: dict[str, int]) -> str:
    plain = (_value(plan.deciding, side) for side in ends)
    base, head = _crossed(plan.deciding, ends) if plan.pooled else plain
    return (
        "CASE WHEN base_side.present IS NULL THEN 'added' WHEN head_side.present IS NULL THEN 'deleted'"
        f" WHEN {head} > {base} THEN 'increased' WHEN {head} < {base} THEN 'decreased'"
        f" WHEN {head} = {base} THEN 'unchanged' END"
    )
