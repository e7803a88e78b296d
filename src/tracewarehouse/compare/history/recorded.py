"""Recorded results as a history reads them, and roll-ups: a row per key in place of one per rank and device.

A metric that folds integer columns has the same value over a roll-up as over all rows: sums and extremes of
ranks add up, and what it divides by is in the metadata of the file. Other metrics read the rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from tracewarehouse import hints
from tracewarehouse.compare.metric.expression import Measured, Metric, filterable, measures
from tracewarehouse.compare.metric.values import (
    ROWS,
    STEP,
    STEPS,
    Ranks,
    Step,
    evaluate_in,
    parts_of,
    threads_for,
    unit_of,
)
from tracewarehouse.contracts.contract import Column, Contract
from tracewarehouse.contracts.sql_tokens import quote_name, quote_text
from tracewarehouse.duck.engine import Connection, Error, scratch
from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage.results import RECORDED, ROLLUP, Packs
from tracewarehouse.storage.store import Store

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
    has_row_columns = any(column.unit in _PER_ROW and column.name != _STEP for column in keys(contract))
    return "rank" in contract.grain and bool(rolled_up(contract)) and not has_row_columns


def serves(metric: Metric) -> bool:
    """Whether a metric has the same value over roll-ups as over all rows."""
    key_names = {column.name for column in keys(metric.contract)}
    known_measures = {column.name for column in rolled_up(metric.contract)}
    names = columns_read(metric)
    selects_a_step = _STEP in metric.contract.grain and not metric.has_steps
    return (
        can_roll_up(metric.contract)
        and bool(names)
        and known_measures.issuperset(names)
        and key_names.issuperset(column.name for column, _ in metric.filters)
        and not selects_a_step
    )


def columns_read(metric: Metric) -> tuple[str, ...]:
    """The columns that the aggregate of a metric reads; none without an aggregate."""
    aggregate = metric.column.aggregate
    if not aggregate:
        return ()
    return tuple(aggregate.split("/")) if "/" in aggregate else (metric.column.name,)


def rows_sql(metric: Metric, files: str) -> str:
    """The rows of roll-ups as rows of the analysis, at the lowest rank of each: only for `serves`."""
    statistic = metric.column.aggregate if metric.column.aggregate in ("min", "max") else "sum"
    values = [
        f"CASE WHEN results.{quote_name(f'{name}_n')} = results.rows"
        f" THEN results.{quote_name(f'{name}_{statistic}')} END AS {quote_name(name)}"
        for name in columns_read(metric)
    ]
    return _select(metric, files, values)


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
            _create_table(con, "complete_steps", {"rank": "INTEGER", "step": "BIGINT"}, pairs)
            source = "(FROM all_rows SEMI JOIN complete_steps USING (rank, step))"
        return con.sql(f"SELECT {listed} FROM {source} GROUP BY {group} ORDER BY ALL").to_arrow_table()


_PART_VALUES = """
SELECT
  names.run_id,
  coalesce(results.{name}, '(no name)'),
  sum(results.count)::DOUBLE,
  sum(results.{ns})::DOUBLE
FROM {results} AS results
JOIN names USING (filename)
GROUP BY ALL
ORDER BY ALL
"""


def recorded_values(store: Store, metric: Metric, read: Mapping[str, str], packs: Packs) -> Measured:
    """The metric of each run from its result or roll-up: key of the file → `RUN@vN`.

    A file is read from a pack that has it. Raises WarehouseError if it is damaged.
    """
    locations = {key: key if key in packs.said else str(store.path(key)) for key in read}
    runs = {locations[key]: run for key, run in read.items()}
    pack_paths = {pack: str(store.path(pack)) for pack in set(packs.files.values())}
    packed = {key: pack_paths[packs.files[key]] for key in read if key in packs.files}
    rolled = {location for key, location in locations.items() if key.endswith(ROLLUP)}
    with _connection(store, threads_for(metric)) as con:
        loose = [location for key, location in locations.items() if key not in packs.said]
        metadata = {runs[path]: facts for path, facts in _metadata(con, loose)}
        metadata |= {
            run: msgspec.json.decode(packs.said[key]) for key, run in read.items() if key in packs.said
        }
        _create_table(con, "names", {"filename": "VARCHAR", "run_id": "VARCHAR"}, list(runs.items()))
        con.execute(f"CREATE VIEW {ROWS} AS {_rows_sql(metric, list(runs), rolled, packed)}")
        steps = _complete_steps(metric, {run: facts["complete"] for run, facts in metadata.items()})
        # Runs without steps have no value among others that have some; nor those of an earlier release.
        lengths = {
            run: {int(rank): length for rank, length in facts.get("lengths", {}).items()}
            for run, facts in metadata.items()
        }
        unit = unit_of(any, lengths.values()) if metric.grows(steps is not None) else None
        ranks = {
            run: Ranks(tuple(metadata[run]["ranks"]), metadata[run]["reason"], unit, lengths[run])
            for run in metadata
        }
        if steps is not None and not metric.column.aggregate:
            _create_table(con, STEPS, {"run_id": "VARCHAR", "rank": "INTEGER", "step": "BIGINT"}, steps)
        return evaluate_in(con, metric, ranks, steps)


def _rows_sql(metric: Metric, files: Sequence[str], rolled: Collection[str], packs: Mapping[str, str]) -> str:
    """The rows of the analysis of all runs, from roll-ups where there are some."""
    if not rolled:
        return (
            "SELECT names.run_id, results.* EXCLUDE (run_id, filename)"
            f" FROM {_read(files, packs)} AS results JOIN names USING (filename)"
        )
    selects = [rows_sql(metric, _read([path for path in files if path in rolled], packs))]
    if whole_results := [path for path in files if path not in rolled]:
        values = [f"results.{quote_name(name)}" for name in columns_read(metric)]
        selects.append(_select(metric, _read(whole_results, packs), values))
    return "\nUNION ALL BY NAME\n".join(selects)


def _read(files: Sequence[str], packs: Mapping[str, str]) -> str:
    """Rows of files with their names, some of them in packs, which have rows of others, too."""
    packed = {packs[file] for file in files if file in packs}
    loose = [file for file in files if file not in packs]
    selects = [f"FROM read_parquet({_list(sorted(packed))}, hive_partitioning = false)"] if packed else []
    selects += [f"FROM {_read_parquet(loose)}"] if loose else []
    return f"({' UNION ALL BY NAME '.join(selects)})"


def part_values(
    store: Store, paths: Mapping[str, str], name: str, ns: str
) -> tuple[str, dict[str, dict[str, tuple[float, float]]]]:
    """What values are per, and `RUN@vN` → part, such as a kernel → its calls and ns.

    They are per `step` (of a rank) if the steps of all runs are known, else per `rank`. The paths are those
    of results of an analysis with the columns `count`, `name` and `ns` of each part. Raises WarehouseError if
    a file is damaged.
    """
    runs = {str(store.path(path)): run for run, path in paths.items()}
    values_by_run: dict[str, dict[str, tuple[float, float]]] = {run: {} for run in paths}
    with _connection(store, 1) as con:
        metadata = {runs[path]: facts for path, facts in _metadata(con, list(runs))}
        _create_table(con, "names", {"filename": "VARCHAR", "run_id": "VARCHAR"}, list(runs.items()))
        rows = con.execute(
            _PART_VALUES.format(results=_read_parquet(list(runs)), name=name, ns=ns)
        ).fetchall()
    steps = {run: _recorded_steps(facts) for run, facts in metadata.items()}
    per_step = all(steps.values())
    by = steps if per_step else {run: max(len(facts["ranks"]), 1) for run, facts in metadata.items()}
    for run, part, calls, total_ns in rows:
        values_by_run[run][part] = calls / by[run], (total_ns or 0.0) / by[run]
    return "step" if per_step else "rank", values_by_run


def _recorded_steps(metadata: Mapping[str, Any]) -> float:
    """The steps of all ranks with data of a run; 0 if they are unknown."""
    lengths = metadata.get("lengths", {})
    of_ranks = [lengths.get(str(rank), {}).get("window_steps", 0) for rank in metadata["ranks"]]
    return sum(of_ranks) / parts_of(STEP) if all(of_ranks) else 0.0


def filter_values(store: Store, metric: Metric, paths: Iterable[str]) -> list[pa.Table]:
    """The distinct values of the metric's filter columns in these results, filtered or not."""
    if not metric.filters:
        return []
    columns = ", ".join(quote_name(column.name) for column, _ in metric.filters)
    files = [str(store.path(path)) for path in paths]
    with _connection(store) as con:
        return [con.sql(f"SELECT DISTINCT {columns} FROM {_read_parquet(files)}").to_arrow_table()]


@contextmanager
def _connection(store: Store, threads: int | None = None) -> Iterator[Connection]:
    """A connection whose errors are reported as damaged results."""
    try:
        with scratch(threads) as con:
            yield con
    except Error as error:
        raise damaged_result(str(error).partition("\n")[0]) from error


def _metadata(con: Connection, paths: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The metadata that each file of a result contains: ranks, reason, complete steps."""
    key = f"{quote_text(RECORDED)}::BLOB"
    sql = f"SELECT file_name, value FROM parquet_kv_metadata({_list(paths)}) WHERE key = {key}"
    by_path = {path: json.loads(value) for path, value in con.execute(sql).fetchall()} if paths else {}
    for path in paths:
        if path not in by_path:
            raise damaged_result(f"{path} is not a recorded result")
        yield path, by_path[path]


def damaged_result(problem: str) -> WarehouseError:
    """The error for recorded results that cannot be read."""
    hint = hints.fill("{} reports the file; delete it, then {}", hints.call("verify"), hints.record())
    return WarehouseError(f"recorded results cannot be read: {problem}", hint)


def _create_table(
    con: Connection, name: str, types: Mapping[str, str], rows: Sequence[tuple[object, ...]]
) -> None:
    """Creates a table of the rows. Arrow would import pandas, which is slower than the query."""
    columns = ", ".join(f"unnest(CAST(? AS {type_}[])) AS {column}" for column, type_ in types.items())
    values = [[row[index] for row in rows] for index in range(len(types))]
    con.execute(f"CREATE TABLE {name} AS SELECT {columns}", values)


def _read_parquet(paths: Iterable[str]) -> str:
    return f"read_parquet({_list(paths)}, filename = true, hive_partitioning = false)"


def _list(paths: Iterable[str]) -> str:
    return f"[{', '.join(map(quote_text, paths))}]"


def _complete_steps(metric: Metric, steps: Mapping[str, Mapping[str, list[int]]]) -> list[Step] | None:
    """The complete steps of each run; None if the metric is not per step."""
    if not metric.has_steps or metric.contract.steps_optional and not any(steps.values()):
        return None
    return [
        (run, int(rank), step)
        for run, ranks in steps.items()
        for rank, complete in ranks.items()
        for step in complete
    ]
