"""Tables of a report: rows as `tw show` prints them, or rows of all ranks combined by their contract."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tracewarehouse.contracts.contract import Column, Contract
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.present.report.data import ReportData
from tracewarehouse.present.report.document import Table
from tracewarehouse.result import Field, Result

MAX_ROWS = 50
_LOCATION = ("run_id", "rank", "device", "stream")


def first_rows(data: ReportData, name: str, caption: str, *, order: str | None = None) -> Table:
    """The first rows of an analysis, in its own order or by `order`."""
    contract = contract_of(data.result(name))
    order_by = f" ORDER BY {order}" if order else ""
    rows = data.rows(f"SELECT * FROM {name}{order_by} LIMIT {MAX_ROWS}", name)
    total = data.row(f"SELECT count(*) AS count FROM {name}")["count"]
    columns = [
        column
        for column in contract.columns
        if column.name != "run_id" and any(row[column.name] is not None for row in rows)
    ]
    cells = [[row[column.name] for column in columns] for row in rows]
    return _table(data, contract, caption, columns, cells, total)


def combined_ranks(data: ReportData, name: str, caption: str, order: str) -> Table:
    """The rows of all ranks combined into one per key, by `order`; those of a single rank unchanged."""
    contract = contract_of(data.result(name))
    location = [key for key in _LOCATION if key in contract.grain]
    if data.row(f"SELECT count(DISTINCT ({', '.join(location)})) AS count FROM {name}")["count"] <= 1:
        return first_rows(data, name, caption, order=order)
    keys = [
        column for column in contract.columns if column.name in contract.grain and column.name not in location
    ]
    aggregates = [(column, sql) for column in contract.columns if (sql := _aggregate(column)) is not None]
    key_names = ", ".join(quote_name(key.name) for key in keys)
    selected = ", ".join(f"{sql} AS {quote_name(column.name)}" for column, sql in aggregates)
    select = f"SELECT {key_names}, count(DISTINCT rank) AS ranks, {selected} FROM {name} GROUP BY {key_names}"
    rows = data.rows(f"SELECT * FROM ({select}) ORDER BY {order} LIMIT {MAX_ROWS}", name)
    total = data.row(f"SELECT count(*) AS count FROM ({select})")["count"]
    ranks = Column("ranks", "BIGINT", "Number of ranks with such rows.", "count")
    columns = [
        column
        for column in (*keys, ranks, *(column for column, _ in aggregates))
        if any(row[column.name] is not None for row in rows)
    ]
    cells = [[row[column.name] for column in columns] for row in rows]
    note = f"{data.ranks} ranks combined into sums, minima and maxima; the command lists each rank"
    return _table(data, contract, caption, columns, cells, total, note)


def contract_of(result: Result) -> Contract:
    """The contract, which every analysis has."""
    assert result.contract is not None
    return result.contract


def _table(
    data: ReportData,
    contract: Contract,
    caption: str,
    columns: Sequence[Column],
    cells: Sequence[Sequence[object]],
    total: int,
    *notes: str,
) -> Table:
    missing = data.missing_reason(contract.name)
    notes = (*notes, *([f"not included: {missing}"] if missing else []), *data.result(contract.name).notices)
    timestamps = [at for at, column in enumerate(columns) if column.unit == "ts"]
    if timestamps:
        notes = (*notes, "timestamps are relative to the first event of the run")
    return Table(
        name=contract.name,
        caption=caption,
        fields=tuple(relative_field(Field(column.name, column.type, column.unit)) for column in columns),
        docs=tuple(column.doc for column in columns),
        rows=[relative_row(row, timestamps, data.start_ns) for row in cells] if timestamps else cells,
        total=total,
        command=f"tw show {contract.name} --run {shlex.quote(data.run)}",
        notes=notes,
    )


def relative_field(field: Field) -> Field:
    """The field, with a timestamp as a duration since the start of the run."""
    return Field(field.name, field.type, "ns" if field.unit == "ts" else field.unit)


def relative_row(row: Sequence[object], timestamps: Sequence[int], start_ns: int) -> list[object]:
    """The cells, those at the indices `timestamps` as durations since the start."""
    return [
        value - start_ns if at in timestamps and isinstance(value, int) else value
        for at, value in enumerate(row)
    ]


def _aggregate(column: Column) -> str | None:
    """SQL that combines a column over ranks; None if it cannot be combined."""
    if column.fold is None or column.unit == "ratio" and column.fold == "sum":
        return None  # the denominator of a share is the total of its rank
    name = quote_name(column.name)
    over, _, under = column.fold.partition("/")
    if under:
        return f"sum({quote_name(over)}) / nullif(sum({quote_name(under)}), 0)"
    sql = f"sum({name})::BIGINT" if over == "sum" and column.type != "DOUBLE" else f"{over}({name})"
    return f"CASE WHEN count({name}) = count(*) THEN {sql} END"
