"""The results of a warehouse as plain values by column, to compare with those of a later release.

Rows become `{"column": [values]}`, in the order of the rows. Timestamps are ISO 8601 text, a MAP is a list of
pairs; integers and floats are unchanged.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import tracewarehouse as tw
from tracewarehouse.contracts.contract import Contract

Columns = dict[str, list[Any]]
Answer = dict[str, Any]


def stored_tables(wh: tw.Warehouse) -> tuple[Contract, ...]:
    """The tables that are stored per rank."""
    return tuple(each for each in wh.catalog.tables() if not each.transient and each.scope != "run")


def columns(result: tw.Result) -> Columns:
    """The rows of a result by column."""
    return {
        name: [plain(cell) for cell in result.table[name].to_pylist()] for name in result.table.column_names
    }


def plain(cell: Any) -> Any:
    """A value as JSON types."""
    if isinstance(cell, datetime.datetime):
        return cell.isoformat()
    if isinstance(cell, list | tuple):
        return [plain(each) for each in cell]
    if isinstance(cell, dict):
        return {key: plain(each) for key, each in cell.items()}
    return cell


def rows_of(wh: tw.Warehouse, run: str, table: Contract) -> Columns:
    """All rows of a stored table of a run, in the order of its grain."""
    order = ", ".join(table.grain)
    return columns(wh.select(run).query(f"SELECT * FROM {table.name} ORDER BY {order}", limits=None))


def answer(call: Callable[[], tw.Result]) -> Answer:
    """The rows, the skipped ranks with reasons and the notices; or the error."""
    try:
        result = call()
    except tw.TwError as error:
        return {"error": type(error).__name__, "message": str(error)}
    skipped = [[each.run_id, each.rank, each.reason] for each in result.skipped]
    return {"rows": columns(result), "skipped": skipped, "notices": list(result.notices)}


def exported(wh: tw.Warehouse, run: str) -> dict[str, str]:
    """Rank → the sha256 of its exported trace."""
    ranks = wh.select(run).selected()[0].ranks
    return {str(rank): _sha256(wh.export_trace(run, rank).chunks) for rank in ranks}


def _sha256(chunks: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk.encode())
    return digest.hexdigest()
