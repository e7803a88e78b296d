"""The value of a metric for each run, from rows of its analysis: pooled once, divided once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from tracewarehouse.contracts.columns import Column
from tracewarehouse.contracts.sql_tokens import quote_name, quote_text
from tracewarehouse.errors import TwError, UnknownName
from tracewarehouse.metric.model import Measured, Metric, RunValue

if TYPE_CHECKING:
    import pyarrow as pa

    from tracewarehouse.duck.engine import Connection

ROWS, COMPLETE = "result_rows", "complete"  # relations: rows of the analysis; run_id, rank, step
Step = tuple[str, int, int]  # a complete step of a rank of a run
Unit = tuple[int, int | None]  # a rank and, where values are per step, a complete step of it


@dataclass(frozen=True)
class Ranks:
    """The ranks of a run that its analysis tells of, and why others do not."""

    telling: tuple[int, ...]
    reason: str | None = None


@dataclass(frozen=True)
class _Part:
    """What the rows of one unit give; `over` or `under` is None where a row does not tell it."""

    rows: int
    over: float | None
    under: float | None


def evaluate(
    metric: Metric, rows: pa.Table, ranks: Mapping[str, Ranks], complete: pa.Table | None
) -> Measured:
    """The metric of each run of `ranks`, in that order.

    `complete` holds run_id, rank and step of the complete steps; None where values are not to be per step.
    Raises TwError where a run has several rows and the column does not say what it is of them.
    """
    from tracewarehouse.duck.engine import connect

    with connect(threads=threads_for(metric)) as con:
        con.register(ROWS, rows)
        if complete is None:
            return evaluate_in(con, metric, ranks, None)
        con.register(COMPLETE, complete)
        names = ("run_id", "rank", "step")
        steps = list(zip(*(complete[name].to_pylist() for name in names), strict=True))
        return evaluate_in(con, metric, ranks, steps)


def threads_for(metric: Metric) -> int | None:
    """How many threads may sum it: doubles come out alike from one only."""
    return 1 if metric.column.type == "DOUBLE" else None


def evaluate_in(
    con: Connection, metric: Metric, ranks: Mapping[str, Ranks], complete: Sequence[Step] | None
) -> Measured:
    """Like `evaluate`, over the relations `ROWS` and, with `complete`, `COMPLETE` of a connection."""
    by_step = complete is not None
    scopes, told = _scopes(metric, ranks, complete), _told(metric, by_step)
    if metric.column.fold:
        values = _folded(con, metric, told, scopes, by_step)
    else:
        values = _single(con, metric, told, scopes)
    nothing = "no complete step" if by_step else "no such rank"
    runs = [
        values.get(run, RunValue(run, reason="no such row"))
        if scopes[run]
        else RunValue(run, reason=who.reason or nothing)
        for run, who in ranks.items()
    ]
    return Measured(metric, metric.per(by_step), tuple(runs))


def check_filters(metric: Metric, measured: Iterable[Measured], tables: Sequence[pa.Table]) -> None:
    """Raises UnknownName where there are rows, and none has the values that the filters name."""
    found = any(each.rows for one in measured for each in one.runs)
    if found or not metric.filters or not any(map(len, tables)) or any(_meets(metric, one) for one in tables):
        return
    for column, value in metric.filters:
        seen = {each for table in tables for each in table[column.name].unique().to_pylist()}
        if value not in seen:
            raise UnknownName(f"{column.name} of {metric.contract.ref}", _text(value), map(_text, seen))
    names = ", ".join(column.name for column, _ in metric.filters)
    raise UnknownName(f"row of {metric.contract.ref}", metric.text, [], f"no row has all of these: {names}")


def _meets(metric: Metric, table: pa.Table) -> bool:
    """Whether a row meets the filters, in whichever step it lies."""
    from tracewarehouse.duck.engine import connect

    with connect() as con:
        con.register("result_rows", table)
        return bool(
            con.execute(f"SELECT count(*) FROM result_rows WHERE {condition(metric)}").fetchall()[0][0]
        )


def _text(value: object) -> str:
    """The value as a metric says it."""
    return {"None": "null", "True": "true", "False": "false"}.get(repr(value), str(value))


def _scopes(
    metric: Metric, ranks: Mapping[str, Ranks], complete: Sequence[Step] | None
) -> dict[str, frozenset[Unit]]:
    """Run → the units that its value is of."""
    only = next((value for column, value in metric.filters if column.name == "rank"), None)
    able = {run: {rank for rank in who.telling if only in (None, rank)} for run, who in ranks.items()}
    if complete is None:
        return {run: frozenset((rank, None) for rank in telling) for run, telling in able.items()}
    found: dict[str, set[Unit]] = {run: set() for run in able}
    for run, rank, step in complete:
        if rank in able.get(run, ()):
            found[run].add((rank, step))
    return {run: frozenset(units) for run, units in found.items()}


def _told(metric: Metric, by_step: bool) -> str:
    """The rows that count, as a SELECT."""
    where = f" WHERE {condition(metric)}"
    join = f" SEMI JOIN {COMPLETE} USING (run_id, rank, step)" if by_step else ""
    return f"SELECT told.* FROM {ROWS} AS told{join}{where}"


def condition(metric: Metric) -> str:
    """The filters, as a condition of SQL."""
    return " AND ".join(_is(column, value) for column, value in metric.filters) or "TRUE"


def _is(column: Column, value: object) -> str:
    name = quote_name(column.name)
    if value is None:
        return f"{name} IS NULL"
    return f"{name} = CAST({quote_text(str(value))} AS {column.type})"


def _folded(
    con: Connection, metric: Metric, told: str, scopes: Mapping[str, frozenset[Unit]], by_step: bool
) -> dict[str, RunValue]:
    """Run → what its rows give by the column's fold."""
    parts = _parts(con, metric, told, by_step)
    kept = {
        run: {unit: part for unit, part in parts.get(run, {}).items() if unit in scope}
        for run, scope in scopes.items()
    }
    fold = _summed if metric.column.fold == "sum" else _of_all
    return {run: fold(metric, run, units, scopes[run]) for run, units in kept.items() if scopes[run]}


def _parts(con: Connection, metric: Metric, told: str, by_step: bool) -> dict[str, dict[Unit, _Part]]:
    """Run → unit → what the rows of it give together; a unit without rows is not there."""
    fold = metric.column.fold or ""
    over, _, under = fold.partition("/")
    if under:
        picked = f"{_whole('sum', over)}, {_whole('sum', under)}"
    else:
        picked = f"{_whole(fold, metric.column.name)}, NULL"
    step = "step" if by_step else "NULL"
    sql = (
        f"SELECT run_id, rank, {step} AS step, count(*), {picked} FROM ({told}) GROUP BY run_id, rank, {step}"
    )
    found: dict[str, dict[Unit, _Part]] = {}
    for run, rank, number, rows, first, second in con.execute(sql).fetchall():
        found.setdefault(run, {})[rank, number] = _Part(rows, first, second)
    return found


def _whole(how: str, column: str) -> str:
    """The fold of a column, unless a row does not tell it."""
    name = quote_name(column)
    return f"CASE WHEN count({name}) = count(*) THEN {how}({name}) END"


def _summed(metric: Metric, run: str, parts: Mapping[Unit, _Part], scope: frozenset[Unit]) -> RunValue:
    """What adds up, per unit; a unit without such a row took nothing."""
    ranks, rows = len({rank for rank, _ in scope}), sum(part.rows for part in parts.values())
    over = {unit: part.over for unit, part in parts.items()}
    known = {unit: value for unit, value in over.items() if value is not None}
    if len(known) < len(over):
        return RunValue(run, ranks=ranks, rows=rows, reason=_unknown(metric))
    mean = sum(known.values()) / len(scope)
    steps: dict[int, list[float]] = {}
    for rank, step in scope:
        if step is not None:
            steps.setdefault(step, []).append(known.get((rank, step), 0))
    each = tuple(sum(steps[step]) / len(steps[step]) for step in sorted(steps))
    value = median(each) if metric.is_of_steps and each else mean
    return RunValue(run, value, mean, each, ranks, rows)


def _of_all(metric: Metric, run: str, parts: Mapping[Unit, _Part], scope: frozenset[Unit]) -> RunValue:
    """The least or largest of all rows, or a sum over a sum."""
    told = RunValue(run, ranks=len({rank for rank, _ in scope}), rows=sum(one.rows for one in parts.values()))
    if not parts:
        return replace(told, reason="no such row")
    over = [part.over for part in parts.values() if part.over is not None]
    under = [part.under for part in parts.values() if part.under is not None]
    fold = metric.column.fold or ""
    if len(over) < len(parts) or "/" in fold and len(under) < len(parts):
        return replace(told, reason=_unknown(metric))
    if "/" not in fold:
        value = float(min(over) if fold == "min" else max(over))
    elif sum(under):
        value = sum(over) / sum(under)
    else:
        return replace(told, reason=f"{fold.partition('/')[2]} is 0")
    return replace(told, value=value, mean=value)


def _unknown(metric: Metric) -> str:
    return f"{metric.column.name} is not known of every row"


def _single(
    con: Connection, metric: Metric, told: str, scopes: Mapping[str, frozenset[Unit]]
) -> dict[str, RunValue]:
    """Run → the value of its one row; raises TwError where there are several."""
    pinned = {"run_id", *(column.name for column, _ in metric.filters)}
    free = [name for name in metric.contract.grain if name not in pinned]
    differing = "".join(f", count(DISTINCT {quote_name(name)})" for name in free)
    sql = f"SELECT run_id, count(*), any_value({quote_name(metric.column.name)}){differing}"
    found = {}
    for run, rows, value, *counts in con.execute(f"{sql} FROM ({told}) GROUP BY run_id").fetchall():
        if rows > 1:
            missing = [name for name, count in zip(free, counts, strict=True) if count > 1] or free
            raise _several(metric, run, rows, missing)
        ranks = len({rank for rank, _ in scopes.get(run, ())})
        reason = _unknown(metric) if value is None else None
        value = None if value is None else float(value)
        found[run] = RunValue(run, value, value, (), ranks, rows, reason)
    return found


def _several(metric: Metric, run: str, rows: int, missing: Sequence[str]) -> TwError:
    named = [f"{column.name}={_text(value)}" for column, value in metric.filters]
    filters = ",".join([*named, *(f"{name}=…" for name in missing)])
    return TwError(
        f"metric {metric}: {metric.contract.ref} does not say what {metric.column.name} is of several rows,"
        f" and run {run} has {rows:,}",
        f"name one: {metric.contract.name}.{metric.column.name}[{filters}]",
    )
