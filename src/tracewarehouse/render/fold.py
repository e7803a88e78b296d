"""The largest rows, and the rest of them as one row that says nothing it does not know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tracewarehouse.columns import Column
from tracewarehouse.contract import Contract

Cells = Sequence[object]


def groups_of(contract: Contract) -> tuple[str, ...] | None:
    """The columns within whose values the rows stand by size, largest first; None where they do not."""
    for at, key in enumerate(contract.order):
        if key.startswith("-"):
            return contract.order[:at]
    return None


def top(contract: Contract, rows: Sequence[Cells], count: int) -> list[Cells]:
    """The first `count` rows of each group of rows in the contract's order, and the rest of it in one.

    A rest of one row stays as it is. Of a column that declares no `fold`, or where a value is null, the rest
    is blank.
    """
    groups = groups_of(contract) or ()
    keys = [at for at, column in enumerate(contract.columns) if column.name in groups]
    shown: list[Cells] = []
    for _, members in groupby(rows, key=lambda row: [row[at] for at in keys]):
        group = list(members)
        kept = count if len(group) > count + 1 else len(group)
        shown += group[:kept]
        if group[kept:]:
            shown.append(tuple(_rest(contract, group[kept:], groups)))
    return shown


def _rest(contract: Contract, rows: Sequence[Cells], groups: Sequence[str]) -> Iterator[object]:
    """The cells of one row that stands for `rows`."""
    named = [name for name in contract.grain if name not in groups][-1]
    cells = {column.name: [row[at] for row in rows] for at, column in enumerate(contract.columns)}
    for column in contract.columns:
        if column.name == named:
            yield f"({len(rows):,} more)"
        elif column.fold is None:
            yield _common(column, cells[column.name])
        else:
            yield _folded(column.fold, cells, column.name)


def _common(column: Column, values: Sequence[object]) -> object:
    """What all have in common, of a column that tells rows apart; a measure has nothing in common."""
    is_measure = column.unit not in (None, "id")
    return values[0] if not is_measure and all(value == values[0] for value in values) else None


def _folded(fold: str, cells: dict[str, list[object]], name: str) -> float | None:
    over, _, under = fold.partition("/")
    if under:
        total, parts = _folded("sum", cells, over), _folded("sum", cells, under)
        return total / parts if total is not None and parts else None
    values = [value for value in cells[name] if isinstance(value, int | float)]
    if len(values) < len(cells[name]):
        return None
    if fold == "sum":
        return sum(values)
    return min(values) if fold == "min" else max(values)
