"""Roll-ups of recorded results: one row per key in place of one per rank and device, integers only.

A metric that folds integer columns has the same value over a roll-up as over all rows: sums and extremes of
ranks add up, and what it divides by is in the metadata of the file. Other metrics read the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tracewarehouse.compare.metric import Metric
from tracewarehouse.compare.metric.parse import filterable, measures
from tracewarehouse.contracts.contract import Column, Contract
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.duck.engine import scratch

if TYPE_CHECKING:
    import pyarrow as pa

_PLACES = frozenset({"rank", "device"})
_STEP = "step"
# Columns with a value per row, which would leave nothing to roll up.
_PER_ROW = frozenset({"id", "ts"})
_INTEGERS = frozenset({"BIGINT", "INTEGER"})
# Of each measure: how many rows have it, and its distribution over them.
_STATISTICS = {
    "n": "count({m})",
    "sum": "CAST(sum({m}) AS BIGINT)",
    "min": "CAST(min({m}) AS BIGINT)",
    "p50": "CAST(quantile_disc({m}, 0.5) AS BIGINT)",
    "p90": "CAST(quantile_disc({m}, 0.9) AS BIGINT)",
    "p99": "CAST(quantile_disc({m}, 0.99) AS BIGINT)",
    "max": "CAST(max({m}) AS BIGINT)",
}


def keys(contract: Contract) -> tuple[Column, ...]:
    """The columns that identify a row of a roll-up."""
    return tuple(column for column in filterable(contract) if column.name not in _PLACES)


def rolled_up(contract: Contract) -> tuple[Column, ...]:
    """The measures of a roll-up."""
    return tuple(column for column in measures(contract) if column.type in _INTEGERS)


def can_roll_up(contract: Contract) -> bool:
    """Whether results of the analysis have ranks and integers, and each row is not one event."""
    per_row = any(column.unit in _PER_ROW and column.name != _STEP for column in keys(contract))
    return "rank" in contract.grain and bool(rolled_up(contract)) and not per_row


def serves(metric: Metric) -> bool:
    """Whether a metric has the same value over roll-ups as over all rows."""
    known = {column.name for column in keys(metric.contract)}
    known_measures = {column.name for column in rolled_up(metric.contract)}
    names = columns_read(metric)
    selects_a_step = _STEP in metric.contract.grain and not metric.has_steps
    return (
        can_roll_up(metric.contract)
        and bool(names)
        and known_measures.issuperset(names)
        and known.issuperset(column.name for column, _ in metric.filters)
        and not selects_a_step
    )


def columns_read(metric: Metric) -> tuple[str, ...]:
    """The columns that the fold of a metric reads; none without a fold."""
    fold = metric.column.fold
    if not fold:
        return ()
    return tuple(fold.split("/")) if "/" in fold else (metric.column.name,)


def rows_sql(metric: Metric, files: str) -> str:
    """The rows of roll-ups as rows of the analysis, at the lowest rank of each: only for `serves`."""
    statistic = metric.column.fold if metric.column.fold in ("min", "max") else "sum"
    values = [
        f"CASE WHEN results.{quote_name(f'{name}_n')} = results.rows"
        f" THEN results.{quote_name(f'{name}_{statistic}')} END AS {quote_name(name)}"
        for name in columns_read(metric)
    ]
    return _select(metric, files, values)


def all_rows_sql(metric: Metric, files: str) -> str:
    """The same columns of recorded results without a roll-up."""
    return _select(metric, files, [f"results.{quote_name(name)}" for name in columns_read(metric)])


def _select(metric: Metric, files: str, values: Sequence[str]) -> str:
    names = dict.fromkeys(["rank", *([_STEP] if _STEP in metric.contract.grain else [])])
    names |= dict.fromkeys(column.name for column, _ in metric.filters)
    columns = [f"results.{quote_name(name)}" for name in names]
    listed = ", ".join(["names.run_id", *columns, *values])
    return f"SELECT {listed} FROM {files} AS results JOIN names USING (filename)"


def roll_up(contract: Contract, rows: pa.Table, complete: Mapping[int, Sequence[int]]) -> pa.Table:
    """The roll-up of the rows of one run; rows of incomplete steps do not count if any step is complete."""
    key_names = [quote_name(column.name) for column in keys(contract)]
    names = [column.name for column in rolled_up(contract)]
    group = ", ".join(key_names) or "()"
    columns = ", ".join(
        f"{sql.format(m=quote_name(name))} AS {quote_name(f'{name}_{statistic}')}"
        for name in names
        for statistic, sql in _STATISTICS.items()
    )
    ranks = ", ".join(
        f"arg_{end}(rank, {quote_name(name)} ORDER BY rank) AS {quote_name(f'{name}_{end}_rank')}"
        for name in names
        for end in ("min", "max")
    )
    listed = ", ".join([*key_names, "min(rank) AS rank", "count(*) AS rows", columns, ranks])
    with scratch(1) as con:
        con.register("all_rows", rows)
        source = "all_rows"
        if complete:
            pairs = [(rank, step) for rank, steps in complete.items() for step in steps]
            con.execute(
                "CREATE TABLE complete_steps AS SELECT unnest(CAST(? AS INTEGER[])) AS rank,"
                " unnest(CAST(? AS BIGINT[])) AS step",
                [[rank for rank, _ in pairs], [step for _, step in pairs]],
            )
            source = "(FROM all_rows SEMI JOIN complete_steps USING (rank, step))"
        return con.sql(f"SELECT {listed} FROM {source} GROUP BY {group} ORDER BY ALL").to_arrow_table()
