"""Tables of a report: rows as `tw show` has them, or those of all ranks folded as their contract says."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tracewarehouse.contracts.columns import Column
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.report.content import Table
from tracewarehouse.report.data import Asked
from tracewarehouse.result import Field, Result

TOP = 50
_PLACES = ("run_id", "rank", "device", "stream")


def listed(
    asked: Asked, name: str, caption: str, *, order: str | None = None, where: str = "true", top: int = TOP
) -> Table:
    """The first rows of an analysis, in its order or by `order`, where `where` holds."""
    contract = contract_of(asked.result(name))
    by = f" ORDER BY {order}" if order else ""
    rows = asked.rows(f"SELECT * FROM {name} WHERE {where}{by} LIMIT {top}", name)
    total = asked.one(f"SELECT count(*) AS count FROM {name} WHERE {where}")["count"]
    kept = [
        column
        for column in contract.columns
        if column.name != "run_id" and any(row[column.name] is not None for row in rows)
    ]
    cells = [[row[column.name] for column in kept] for row in rows]
    return _table(asked, contract, caption, kept, cells, total)


def folded(asked: Asked, name: str, caption: str, order: str, *, top: int = TOP) -> Table:
    """The rows of all ranks folded into one for each key, by `order`; those of a single rank as they are."""
    result = asked.result(name)
    contract = contract_of(result)
    places = [place for place in _PLACES if place in contract.grain]
    if asked.one(f"SELECT count(DISTINCT ({', '.join(places)})) AS count FROM {name}")["count"] <= 1:
        return listed(asked, name, caption, order=order, top=top)
    keys = [
        column for column in contract.columns if column.name in contract.grain and column.name not in places
    ]
    folds = [(column, sql) for column in contract.columns if (sql := _fold(column)) is not None]
    names = ", ".join(quote_name(key.name) for key in keys)
    told = ", ".join(f"{sql} AS {quote_name(column.name)}" for column, sql in folds)
    select = f"SELECT {names}, count(DISTINCT rank) AS ranks, {told} FROM {name} GROUP BY {names}"
    rows = asked.rows(f"SELECT * FROM ({select}) ORDER BY {order} LIMIT {top}", name)
    total = asked.one(f"SELECT count(*) AS count FROM ({select})")["count"]
    ranks = Column("ranks", "BIGINT", "Ranks that have such rows.", "count")
    kept = [*keys, ranks, *(column for column, _ in folds)]
    kept = [column for column in kept if any(row[column.name] is not None for row in rows)]
    cells = [[row[column.name] for column in kept] for row in rows]
    note = f"{asked.ranks} ranks in one: added up, least and most kept; the command tells them apart"
    return _table(asked, contract, caption, kept, cells, total, note)


def contract_of(result: Result) -> Contract:
    """The contract, which every analysis has."""
    assert result.contract is not None
    return result.contract


def command(name: str, run: str) -> str:
    """How a terminal shows the same."""
    return f"tw show {name} --run {shlex.quote(run)}"


def _table(
    asked: Asked,
    contract: Contract,
    caption: str,
    columns: Sequence[Column],
    cells: Sequence[Sequence[object]],
    total: int,
    *notes: str,
) -> Table:
    result = asked.result(contract.name)
    left_out = asked.lacking(contract.name)
    told = (*notes, *([f"left out: {left_out}"] if left_out else []), *result.notices)
    points = [at for at, column in enumerate(columns) if column.unit == "ts"]
    if points:
        told = (*told, "points in time are counted from the first event of the run")
    return Table(
        name=contract.name,
        caption=caption,
        fields=tuple(
            Field(column.name, column.type, "ns" if column.unit == "ts" else column.unit)
            for column in columns
        ),
        docs=tuple(column.doc for column in columns),
        rows=[relative(row, points, asked.start_ns) for row in cells] if points else cells,
        total=total,
        command=command(contract.name, asked.run),
        notes=told,
    )


def relative(row: Sequence[object], points: Sequence[int], start_ns: int) -> list[object]:
    """The cells, those at `points` as times since the start."""
    return [
        value - start_ns if at in points and isinstance(value, int) else value for at, value in enumerate(row)
    ]


def _fold(column: Column) -> str | None:
    """SQL for what a column is of rows of several ranks; None where they do not tell."""
    if column.fold is None or column.unit == "ratio" and column.fold == "sum":
        return None  # a share is of its own rank's whole
    name = quote_name(column.name)
    over, _, under = column.fold.partition("/")
    if under:
        return f"sum({quote_name(over)}) / nullif(sum({quote_name(under)}), 0)"
    made = f"sum({name})::BIGINT" if over == "sum" and column.type != "DOUBLE" else f"{over}({name})"
    return f"CASE WHEN count({name}) = count(*) THEN {made} END"
