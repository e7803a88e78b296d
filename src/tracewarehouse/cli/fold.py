"""Folding rows: the largest of each group, and the others in one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from tracewarehouse.contracts.contract import Column, Contract
from tracewarehouse.present.render.table import values

if TYPE_CHECKING:
    from tracewarehouse.result import Result

Cells = Sequence[object]


def folded(result: Result, count: int) -> Result:
    """The result with `fold_below_top`; a key of another type becomes text, for the `(3 more)` in it."""
    from tracewarehouse.duck.arrow import table_of

    contract = result.contract
    assert contract is not None
    named = _named(contract)
    columns = tuple(
        replace(each, type="VARCHAR", unit=None) if each.name == named else each for each in contract.columns
    )
    names = [each.name for each in columns]
    at = names.index(named)
    rows = [
        (*row[:at], None if row[at] is None else str(row[at]), *row[at + 1 :])
        for row in fold_below_top(contract, values(result.table), count)
    ]
    contract = replace(contract, columns=columns)
    table = table_of(contract, [dict(zip(names, row, strict=True)) for row in rows])
    return replace(result, table=table, contract=contract)


def _named(contract: Contract) -> str:
    """The column with the number of folded rows: the name, or the last of the grain within a group."""
    groups = ranking_groups(contract) or ()
    keys = [name for name in contract.grain if name not in groups]
    return "name" if "name" in keys else keys[-1]


def ranking_groups(contract: Contract) -> tuple[str, ...] | None:
    """The columns within which rows are sorted by a measure, largest first; None if they are not."""
    for at, key in enumerate(contract.order):
        if key.startswith("-"):
            return contract.order[:at]
    return None


def fold_below_top(contract: Contract, rows: Sequence[Cells], count: int) -> list[Cells]:
    """The first `count` rows of each group in the contract's order, the others of a group folded into one.

    A single remaining row is not folded. The folded row is empty in columns that declare no `fold` or have
    a null.
    """
    groups = ranking_groups(contract) or ()
    keys = [at for at, column in enumerate(contract.columns) if column.name in groups]
    shown: list[Cells] = []
    for _, members in groupby(rows, key=lambda row: [row[at] for at in keys]):
        group = list(members)
        unfolded = count if len(group) > count + 1 else len(group)
        shown += group[:unfolded]
        if group[unfolded:]:
            shown.append(tuple(_folded_row(contract, group[unfolded:], groups)))
    return shown


def _folded_row(contract: Contract, rows: Sequence[Cells], groups: Sequence[str]) -> Iterator[object]:
    """The cells of one row that summarizes `rows`."""
    named = _named(contract)
    cells = {column.name: [row[at] for row in rows] for at, column in enumerate(contract.columns)}
    for column in contract.columns:
        if column.name == named:
            yield f"({len(rows):,} more)"
        elif column.fold is None:
            yield _common(column, cells[column.name])
        else:
            yield _aggregate(column.fold, cells, column.name)


def _common(column: Column, values: Sequence[object]) -> object:
    """The value that all rows share in a column of identifiers; None for a measure."""
    is_measure = column.unit not in (None, "id")
    return values[0] if not is_measure and all(value == values[0] for value in values) else None


def _aggregate(fold: str, cells: dict[str, list[object]], name: str) -> float | None:
    over, _, under = fold.partition("/")
    if under:
        numerator, denominator = _aggregate("sum", cells, over), _aggregate("sum", cells, under)
        return numerator / denominator if numerator is not None and denominator else None
    values = [value for value in cells[name] if isinstance(value, int | float)]
    if len(values) < len(cells[name]):
        return None
    if fold == "sum":
        return sum(values)
    return min(values) if fold == "min" else max(values)
