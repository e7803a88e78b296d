"""The values of a metric from recorded results: one read over the files of all runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracewarehouse.engine import Connection, Error, connect
from tracewarehouse.errors import WarehouseError
from tracewarehouse.metric import Measured, Metric, Ranks, condition, evaluate
from tracewarehouse.sqltext import quote_name, quote_text
from tracewarehouse.store import RECORDED, Store

if TYPE_CHECKING:
    import pyarrow as pa


def measured(store: Store, metric: Metric, recorded: Mapping[str, str]) -> Measured:
    """The metric of each run (`RUN@vN`) from the file of its result; raises WarehouseError for damage."""
    names = {str(store.path(key)): run for run, key in recorded.items()}
    with _reading(store) as con:
        told = {names[path]: said for path, said in _said(con, list(names))}
        complete = _complete(con, metric, {run: said["complete"] for run, said in told.items()})
        rows = _rows(con, metric, names)
    ranks = {run: Ranks(tuple(told[run]["ranks"]), told[run]["reason"]) for run in recorded}
    return evaluate(metric, rows, ranks, complete)


def seen(store: Store, metric: Metric, recorded: Iterable[str]) -> list[pa.Table]:
    """The values that the rows have in the columns of the filters, whether they meet the filters or not."""
    if not metric.filters:
        return []
    columns = ", ".join(quote_name(column.name) for column, _ in metric.filters)
    paths = [str(store.path(key)) for key in recorded]
    with _reading(store) as con:
        return [con.sql(f"SELECT DISTINCT {columns} FROM {_files(paths)}").to_arrow_table()]


@contextmanager
def _reading(store: Store) -> Iterator[Connection]:
    try:
        with connect() as con:
            yield con
    except Error as error:
        what = str(error).partition("\n")[0]
        hint = "tw verify says which file; take it away, and tw record --all brings it back"
        raise WarehouseError(f"{store.root}: recorded results cannot be read: {what}", hint) from error


def _said(con: Connection, paths: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each file says of itself."""
    key = f"{quote_text(RECORDED)}::BLOB"
    sql = f"SELECT file_name, value FROM parquet_kv_metadata({_listed(paths)}) WHERE key = {key}"
    for path, value in con.execute(sql).fetchall():
        yield path, json.loads(value)


def _rows(con: Connection, metric: Metric, names: Mapping[str, str]) -> pa.Table:
    """The rows that meet the filters, under the names of the runs: keys, and what the metric is made of."""
    fold = metric.column.fold or ""
    parts = fold.split("/") if "/" in fold else [metric.column.name]
    wanted = dict.fromkeys([*metric.contract.grain, *(column.name for column, _ in metric.filters), *parts])
    columns = ", ".join(f"told.{quote_name(name)}" for name in wanted if name != "run_id")
    _table(con, "names", {"filename": "VARCHAR", "run_id": "VARCHAR"}, list(names.items()))
    return con.sql(
        f"SELECT names.run_id, {columns} FROM {_files(list(names))} AS told JOIN names USING (filename)"
        f" WHERE {condition(metric)}"
    ).to_arrow_table()


def _table(con: Connection, name: str, types: Mapping[str, str], rows: Sequence[tuple[object, ...]]) -> None:
    """Makes a table of the rows; Arrow would import pandas for that, which takes longer than all the rest."""
    columns = ", ".join(f"unnest(CAST(? AS {type_}[])) AS {column}" for column, type_ in types.items())
    values = [[row[at] for row in rows] for at in range(len(types))]
    con.execute(f"CREATE TABLE {name} AS SELECT {columns}", values)


def _files(paths: Iterable[str]) -> str:
    return f"read_parquet({_listed(paths)}, filename = true, hive_partitioning = false)"


def _listed(paths: Iterable[str]) -> str:
    return f"[{', '.join(map(quote_text, paths))}]"


def _complete(
    con: Connection, metric: Metric, steps: Mapping[str, Mapping[str, list[int]]]
) -> pa.Table | None:
    """The complete steps of each run; None where the metric is not per step."""
    if not metric.tells_steps or metric.asks_for_steps and not any(steps.values()):
        return None
    rows = [
        (run, int(rank), step)
        for run, ranks in steps.items()
        for rank, told in ranks.items()
        for step in told
    ]
    _table(con, "complete", {"run_id": "VARCHAR", "rank": "INTEGER", "step": "BIGINT"}, rows)
    return con.sql("FROM complete").to_arrow_table()
