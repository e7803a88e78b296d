"""Values of a metric: per run, rank and step, and statistics of the steps of a run.

Such a statistic is over steps that are each the mean of their ranks; percentiles of calls or ranks are
columns of analyses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil
from statistics import fmean, median
from typing import TYPE_CHECKING, Literal, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.compare.metric.expression import (
    Measured,
    Metric,
    RunValue,
    at_position,
    parse_metric_prefix,
)
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Column, Contract
from tracewarehouse.contracts.sql_tokens import quote_name, quote_text
from tracewarehouse.errors import ExpressionError, TwError, UnknownName
from tracewarehouse.late_regex import late_regex

if TYPE_CHECKING:
    import pyarrow as pa

    from tracewarehouse.duck.engine import Connection
    from tracewarehouse.query.selection import Selection
    from tracewarehouse.result import Result
    from tracewarehouse.runs.selection import SelectedRun


ROWS, STEPS = "result_rows", "complete_steps"  # relations: rows of the analysis; complete steps
COMPLETE_STEPS_SQL = "SELECT run_id, rank, step FROM steps WHERE NOT partial"
# What sums that grow with the recording are per → column of `recorded_lengths`, and how many of those it is.
UNITS = {"recorded step": ("steps", 1_000), "recorded second": ("ns", 10**9)}
STEP, SECOND = UNITS
Length = Mapping[str, int]  # a row of `recorded_lengths`
Lengths = Mapping[str, Mapping[int, Length]]  # by run and rank
Step = tuple[str, int, int]  # a complete step of a rank of a run
RankStep = tuple[int, int | None]  # a rank and, if values are per step, a complete step of it
Scope = Mapping[RankStep, int | Fraction]  # what each counts as: 1, or how many of a unit the rank recorded


def lengths(
    sides: Sequence[Selection], results: Iterable[Result] = ()
) -> tuple[str, list[dict[str, dict[int, Length]]]]:
    """What sums that grow with the recording are per, and of each side: run → rank → how much it recorded.

    They are per step if all ranks with data in the results have steps.
    """
    skipped = {(gap.run_id, gap.rank) for result in results for gap in result.skipped}
    by_side: list[dict[str, dict[int, Length]]] = [{} for _ in sides]
    for of_side, side in zip(by_side, sides, strict=True):
        for row in side.of_steps(()).query("SELECT * FROM recorded_lengths").rows():
            run, rank = row.pop("run_id"), row.pop("rank")
            if (run, rank) not in skipped:
                of_side.setdefault(run, {})[rank] = row
    return unit_of(all, (of_run for of_side in by_side for of_run in of_side.values())), by_side


def unit_of(decide: Callable[[Iterable[int]], bool], runs: Iterable[Mapping[int, Length]]) -> str:
    """Steps, if all or any of the ranks have some, else seconds."""
    return STEP if decide(rank["window_steps"] for run in runs for rank in run.values()) else SECOND


def parts_of(unit: str | None) -> int:
    """The number of parts of a unit, in which lengths are whole numbers."""
    return UNITS[unit][1] if unit else 1


class Ranks(Struct, frozen=True, gc=False):
    """The ranks of a run with data in its analysis, why others have none, and their lengths."""

    with_data: tuple[int, ...]
    reason: str | None = None
    unit: str | None = None
    lengths: Mapping[int, Length] = {}

    def parts(self, contract: Contract) -> dict[int, int]:
        """Rank with data → how many parts of the unit its sums cover, 0 if unknown; 1 without a unit."""
        if self.unit is None:
            return dict.fromkeys(self.with_data, 1)
        name = f"{'complete' if contract.covers == 'step' else 'window'}_{UNITS[self.unit][0]}"
        return {rank: self.lengths.get(rank, {}).get(name, 0) for rank in self.with_data}


class _Aggregate(Struct, frozen=True, gc=False):
    """The rows of one rank and step, aggregated; `over` or `under` is None if a row lacks it."""

    rows: int
    over: float | None
    under: float | None


def measure(metric: Metric, *sides: Selection, needs_rows: bool = True) -> tuple[Measured, ...]:
    """The metric of every run of each side; its analysis runs with the same parameters on all of them.

    An analysis with optional steps is run by step if every side has complete ones. Raises TwError if a run
    has several rows and the column has no aggregate, UnknownName if no row of any side matches the filters.
    """
    complete = [side.query(COMPLETE_STEPS_SQL).arrow() if metric.has_steps else None for side in sides]
    all_complete = all(table is not None and table.num_rows for table in complete)
    by_step = metric.has_steps and (all_complete or not metric.contract.steps_optional)
    contract, params = metric.contract, metric.params(by_step)
    results = [side.analyze(contract.name, contract.version, **params) for side in sides]
    unit, recorded = lengths(sides, results) if metric.grows(by_step) else (None, [{} for _ in sides])
    measured = tuple(
        evaluate(
            metric,
            result.arrow(),
            ranks_with_data(result, side.selected(), unit, of_side),
            steps if by_step else None,
        )
        for result, side, steps, of_side in zip(results, sides, complete, recorded, strict=True)
    )
    if needs_rows:
        check_filters(metric, measured, [result.arrow() for result in results])
    return measured


def by_job(measured: Measured, selected: Iterable[SelectedRun]) -> Measured:
    """The metric with one value per job, the mean of its profiling windows: they are no independent runs."""
    jobs: dict[str, list[RunValue]] = {}
    job_of = {run.run: run.job for run in selected}
    for run in measured.runs:
        jobs.setdefault(job_of[run.run], []).append(run)
    return replace(measured, runs=tuple(map(_of_job, jobs.values())))


def _of_job(windows: Sequence[RunValue]) -> RunValue:
    measured = [window for window in windows if window.value is not None]
    if len(measured) < 2:
        return (measured or windows)[0]
    return replace(
        measured[0],
        value=fmean(window.value for window in measured if window.value is not None),
        mean=fmean(window.mean for window in measured if window.mean is not None),
        steps=tuple(step for window in measured for step in window.steps),
        rows=sum(window.rows for window in measured),
    )


def ranks_with_data(
    result: Result, selected: Iterable[SelectedRun], unit: str | None = None, recorded: Lengths | None = None
) -> dict[str, Ranks]:
    """Run → its ranks with data in a result, why others have none, and with a `unit` their lengths."""
    reasons = {(run.run_id, run.rank): run.reason for run in result.skipped}
    by_run = {}
    for run in selected:
        with_data = tuple(rank for rank in run.ranks if (run.run, rank) not in reasons)
        missing = {reasons[run.run, rank] for rank in run.ranks if (run.run, rank) in reasons}
        reason = ", ".join(sorted(missing)) or None
        by_run[run.run] = Ranks(with_data, reason, unit, (recorded or {}).get(run.run, {}))
    return by_run


def evaluate(
    metric: Metric, rows: pa.Table, ranks: Mapping[str, Ranks], complete: pa.Table | None
) -> Measured:
    """The metric of each run of `ranks`, in that order.

    `complete` holds run_id, rank and step of the complete steps; None if values are not per step. Raises
    TwError if a run has several rows and the column has no aggregate.
    """
    from tracewarehouse.duck.engine import scratch

    with scratch(threads_for(metric)) as con:
        con.register(ROWS, rows)
        if complete is None:
            return evaluate_in(con, metric, ranks, None)
        con.register(STEPS, complete)
        names = ("run_id", "rank", "step")
        steps = list(zip(*(complete[name].to_pylist() for name in names), strict=True))
        return evaluate_in(con, metric, ranks, steps)


def threads_for(metric: Metric) -> int | None:
    """The number of threads that sum it: sums of doubles are reproducible with one thread only."""
    return 1 if metric.column.type == "DOUBLE" else None


def evaluate_in(
    con: Connection, metric: Metric, ranks: Mapping[str, Ranks], complete: Sequence[Step] | None
) -> Measured:
    """Like `evaluate`, over the relations `ROWS` and, with `complete` and no aggregate, `STEPS`."""
    by_step = complete is not None
    scopes = _scopes(metric, ranks, complete)
    # The rows that match the filters; aggregates of incomplete steps are beyond the scopes.
    is_joined = by_step and not metric.column.aggregate
    join = f" SEMI JOIN {STEPS} USING (run_id, rank, step)" if is_joined else ""
    rows = f"SELECT result.* FROM {ROWS} AS result{join} WHERE {condition(metric)}"
    if metric.column.aggregate:
        aggregates = _aggregates(con, metric, rows, by_step)
        aggregate = _mean_of_sums if metric.column.aggregate == "sum" else _extreme_or_ratio
        values = {}
        for run, scope in scopes.items():
            within = {key: aggregated for key, aggregated in aggregates.get(run, {}).items() if key in scope}
            if scope:
                values[run] = aggregate(metric, run, within, scope)
    else:
        values = _single(con, metric, rows, scopes)
    nothing = "no complete step" if by_step else "no such rank"
    runs = []
    for run, of_run in ranks.items():
        if not scopes[run]:
            value = RunValue(run, reason=of_run.reason or nothing)
        elif run in values:
            value = values[run]
        elif metric.absent_is_zero:
            value = RunValue(run, 0.0, 0.0, ranks=len(of_run.with_data))
        else:
            value = RunValue(run, reason="no such row")
        runs.append(value)
    unit = next((aggregated.unit for aggregated in ranks.values()), None)
    return Measured(metric, metric.per(by_step, unit), tuple(runs))


def check_filters(metric: Metric, measured: Iterable[Measured], tables: Sequence[pa.Table]) -> None:
    """Raises UnknownName if there are rows, but none has the values of the filters, in any step."""
    from tracewarehouse.duck.engine import scratch

    is_used = any(run.rows for measured_side in measured for run in measured_side.runs)
    if is_used or metric.absent_is_zero or not metric.filters or not any(map(len, tables)):
        return
    with scratch() as con:
        for table in tables:
            con.register(ROWS, table)
            matching = f"SELECT count(*) FROM {ROWS} WHERE {condition(metric)}"
            if con.execute(matching).fetchall()[0][0]:
                return
    for column, value in metric.filters:
        present = {text for table in tables for text in table[column.name].unique().to_pylist()}
        if value not in present:
            raise UnknownName(f"{column.name} of {metric.contract.ref}", _text(value), map(_text, present))
    names = ", ".join(column.name for column, _ in metric.filters)
    raise UnknownName(f"row of {metric.contract.ref}", metric.text, [], f"no row has all of these: {names}")


def _text(value: object) -> str:
    """The value as written in a metric."""
    return {"None": "null", "True": "true", "False": "false"}.get(repr(value), str(value))


def _scopes(
    metric: Metric, ranks: Mapping[str, Ranks], complete: Sequence[Step] | None
) -> Mapping[str, Scope]:
    """Run → the ranks, or ranks and steps, that its value covers, and what each counts as."""
    only_rank = next((value for column, value in metric.filters if column.name == "rank"), None)
    scopes: dict[str, dict[RankStep, int | Fraction]] = {run: {} for run in ranks}
    parts = {run: run_ranks.parts(metric.contract) for run, run_ranks in ranks.items()}
    all_ranks = ((run, rank, None) for run, of_run in parts.items() for rank in of_run)
    for run, rank, step in all_ranks if complete is None else complete:
        if only_rank in (None, rank) and rank in parts.get(run, ()):
            number, unit = parts[run][rank], ranks[run].unit
            scopes[run][rank, step] = Fraction(number, parts_of(unit)) if unit else number
    return scopes


def condition(metric: Metric) -> str:
    """The filters as a SQL condition."""
    return " AND ".join(_equals(column, value) for column, value in metric.filters) or "TRUE"


def _equals(column: Column, value: object) -> str:
    name = quote_name(column.name)
    if value is None:
        return f"{name} IS NULL"
    return f"{name} = CAST({quote_text(str(value))} AS {column.type})"


def _aggregates(
    con: Connection, metric: Metric, rows: str, by_step: bool
) -> dict[str, dict[RankStep, _Aggregate]]:
    """Run → rank and step → its rows aggregated; without rows there is no entry."""
    aggregate = metric.column.aggregate or ""
    numerator, _, denominator = aggregate.partition("/")
    if denominator:
        columns = f"{if_complete('sum', numerator)}, {if_complete('sum', denominator)}"
    else:
        columns = f"{if_complete(aggregate, metric.column.name)}, NULL"
    step = "step" if by_step else "NULL"
    keys = f"run_id, rank, {step}"
    sql = f"SELECT {keys}, count(*), {columns} FROM ({rows}) GROUP BY {keys}"
    by_run: dict[str, dict[RankStep, _Aggregate]] = {}
    for run, rank, number, count, over, under in con.execute(sql).fetchall():
        by_run.setdefault(run, {})[rank, number] = _Aggregate(count, over, under)
    return by_run


def if_complete(function: str, column: str) -> str:
    """The aggregate of a column, null if a value is null."""
    name = quote_name(column)
    return f"CASE WHEN count({name}) = count(*) THEN {function}({name}) END"


def _mean_of_sums(
    metric: Metric, run: str, aggregates: Mapping[RankStep, _Aggregate], scope: Scope
) -> RunValue:
    """The sum per rank, rank and step, or what a rank recorded; one without such a row counts as 0."""
    ranks, rows = len({rank for rank, _ in scope}), sum(aggregated.rows for aggregated in aggregates.values())
    sums = {key: aggregated.over for key, aggregated in aggregates.items() if aggregated.over is not None}
    if len(sums) < len(aggregates):
        return RunValue(run, ranks=ranks, rows=rows, reason=_unknown(metric))
    if not all(scope.values()):
        return RunValue(run, ranks=ranks, rows=rows, reason="its number of steps or its length is unknown")
    mean = float(sum(sums.values()) / sum(scope.values()))
    by_step: dict[int, list[float]] = {}
    for rank, step in scope:
        if step is not None:
            by_step.setdefault(step, []).append(sums.get((rank, step), 0))
    steps = tuple(sum(by_step[step]) / len(by_step[step]) for step in sorted(by_step))
    value = median(steps) if metric.measures_steps and steps else mean
    return RunValue(run, value, mean, steps, ranks, rows)


def _extreme_or_ratio(
    metric: Metric, run: str, aggregates: Mapping[RankStep, _Aggregate], scope: Scope
) -> RunValue:
    """The minimum or maximum of all rows, or a sum over a sum."""
    rows = sum(aggregated.rows for aggregated in aggregates.values())
    result = RunValue(run, ranks=len({rank for rank, _ in scope}), rows=rows)
    if not aggregates:
        return replace(result, reason="no such row")
    over = [aggregated.over for aggregated in aggregates.values() if aggregated.over is not None]
    under = [aggregated.under for aggregated in aggregates.values() if aggregated.under is not None]
    aggregate = metric.column.aggregate or ""
    if len(over) < len(aggregates) or "/" in aggregate and len(under) < len(aggregates):
        return replace(result, reason=_unknown(metric))
    if "/" not in aggregate:
        value = float(min(over) if aggregate == "min" else max(over))
    elif sum(under):
        value = sum(over) / sum(under)
    else:
        return replace(result, reason=f"{aggregate.partition('/')[2]} is 0")
    return replace(result, value=value, mean=value)


def _unknown(metric: Metric) -> str:
    return f"{metric.column.name} is unknown for some rows"


def _single(con: Connection, metric: Metric, rows: str, scopes: Mapping[str, Scope]) -> dict[str, RunValue]:
    """Run → the value of its one row; raises TwError if there are several."""
    fixed = {"run_id", *(column.name for column, _ in metric.filters)}
    free = [name for name in metric.contract.grain if name not in fixed]
    differing = "".join(f", count(DISTINCT {quote_name(name)})" for name in free)
    sql = f"SELECT run_id, count(*), any_value({quote_name(metric.column.name)}){differing}"
    values = {}
    for run, count, value, *distinct in con.execute(f"{sql} FROM ({rows}) GROUP BY run_id").fetchall():
        if count > 1:
            missing = [name for name, number in zip(free, distinct, strict=True) if number > 1] or free
            filter_texts = [f"{column.name}={_text(value)}" for column, value in metric.filters]
            filters = ",".join([*filter_texts, *(f"{name}=…" for name in missing)])
            raise TwError(
                f"metric {metric}: {metric.column.name} cannot be aggregated over rows;"
                f" run {run} has {count:,} rows",
                f"select one with a filter: {metric.contract.name}.{metric.column.name}[{filters}]",
            )
        ranks = len({rank for rank, _ in scopes.get(run, {})})
        reason = _unknown(metric) if value is None else None
        value = None if value is None else float(value)
        values[run] = RunValue(run, value, value, (), ranks, count, reason)
    return values


Statistic = Literal["value", "min", "mean", "median", "max", "worst", "p50", "p90", "p95", "p99", "absent"]
MIN_STEPS = {"p90": 10, "p95": 20, "p99": 100}  # complete steps of a run; fewer have no such percentile
OF_STEPS = get_args(Statistic)[1:-1]
_EXAMPLES = "for example step_time, p99(step_time), kernel_summary.sum_ns[kind=communication]"
_CALL = late_regex(r"([A-Za-z_][A-Za-z0-9_]*)\s*\(\s*")
_CLOSE = late_regex(r"\s*\)")


def parse_statistic(text: str, catalog: Catalog) -> tuple[Statistic, Metric]:
    """The statistic of steps and the metric in a text; `value` is the metric itself. Raises TwError."""
    statistic, metric, end = parse_statistic_prefix(text, catalog, kind="metric", names=OF_STEPS)
    if end < len(text):
        raise ExpressionError(
            f"metric {text!r}, character {end + 1}: unexpected text after the metric", _EXAMPLES
        )
    return statistic, metric


def parse_statistic_prefix(
    text: str,
    catalog: Catalog,
    start: int = 0,
    kind: str = "gate",
    names: Sequence[str] = (*OF_STEPS, "absent"),
) -> tuple[Statistic, Metric, int]:
    """The statistic and the metric at `start` of a gate, and where they end; raises TwError."""
    call = _CALL.match(text, start)
    if call is None:
        return ("value", *parse_metric_prefix(text, catalog, start))
    position = f"{kind} {text!r}, character {{}}"
    if call[1] not in names:
        raise at_position(UnknownName("statistic", call[1], names), position.format(start + 1))
    name = cast(Statistic, call[1])
    metric, end = parse_metric_prefix(text, catalog, call.end())
    close = _CLOSE.match(text, end)
    if close is None:
        raise ExpressionError(f"{position.format(end + 1)}: expected `)`", f"for example {name}({metric})")
    if name != "absent" and not (metric.has_steps and metric.column.aggregate == "sum"):
        raise ExpressionError(
            f"{position.format(start + 1)}: {metric} has no value per step",
            f"without {name}() it is one value",
        )
    if name == "worst":
        name = "min" if metric.column.better == "higher" else "max"
    return name, metric, close.end()


def measure_statistic(value: Statistic, metric: Metric, *sides: Selection) -> tuple[Measured, ...]:
    """The metric of every job of each side, or the statistic of its complete steps."""
    measured = measure(metric, *sides, needs_rows=value != "absent")
    return tuple(
        of_steps(value, by_job(values, side.selected())) for values, side in zip(measured, sides, strict=True)
    )


def of_steps(statistic: Statistic, measured: Measured) -> Measured:
    """The statistic of the complete steps of each run, in place of its value.

    The mean of a run without complete steps is that of its ranks.
    """
    if statistic in ("value", "absent"):
        return measured
    return replace(measured, runs=tuple(_of_steps(statistic, run) for run in measured.runs))


def _of_steps(value: Statistic, run: RunValue) -> RunValue:
    if value == "mean" and not run.steps:
        return replace(run, value=run.mean)
    least = MIN_STEPS.get(value, 1)
    if run.reason is None and len(run.steps) < least:
        reason = f"{value} needs {least} complete steps per run; there are {len(run.steps)}"
        return replace(run, value=None, mean=None, reason=reason)
    return run if run.reason else replace(run, value=step_statistic(value, run.steps))


def step_statistic(value: Statistic, steps: Sequence[float]) -> float:
    """The statistic of the steps; a percentile is the smallest value that this share does not exceed."""
    if value in _FUNCTIONS:
        return float(_FUNCTIONS[value](steps))
    return float(sorted(steps)[max(ceil(len(steps) * int(value[1:]) / 100) - 1, 0)])


_FUNCTIONS: dict[str, Callable[..., float]] = {"min": min, "mean": fmean, "median": median, "max": max}
