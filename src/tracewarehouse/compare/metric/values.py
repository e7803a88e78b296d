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

from tracewarehouse.compare.metric.expression import Measured, Metric, RunValue, parse_metric_prefix
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
    from tracewarehouse.storage import Rank


ROWS, STEPS = "result_rows", "complete_steps"  # relations: rows of the analysis; complete steps
COMPLETE_STEPS_SQL = "SELECT run_id, rank, step FROM steps WHERE NOT partial"
_EXTENTS = """
SELECT
  run_id,
  rank,
  sum(
    CASE WHEN partial AND 10 * period_ns < 9 * usual_ns THEN 1000 * period_ns // usual_ns ELSE 1000 END
  )::BIGINT AS steps,
  count(*) FILTER (NOT partial) AS complete,
  coalesce(sum(period_ns) FILTER (NOT partial), 0)::BIGINT AS complete_ns
FROM (
  SELECT
    *,
    quantile_disc(period_ns, 0.5) FILTER (NOT partial) OVER (PARTITION BY run_id, rank) AS usual_ns
  FROM steps
)
GROUP BY run_id, rank
"""
STEP, SECOND = "recorded step", "recorded second"  # what sums that grow with the recording are per
PARTS = {STEP: 1_000, SECOND: 10**9}  # the parts of a unit, in which extents are counted
Step = tuple[str, int, int]  # a complete step of a rank of a run
RankStep = tuple[int, int | None]  # a rank and, if values are per step, a complete step of it


class Extent(Struct, frozen=True):
    """How much a rank recorded: thousandths of steps and ns, in all, and complete steps and their ns.

    An incomplete step counts as its share of the median complete step, from 90 % on as 1: what is marked as
    incomplete is often only a step at the edge of the recording.
    """

    steps: int
    ns: int
    complete: int
    complete_ns: int

    def covered(self, contract: Contract, unit: str) -> int:
        """What rows of an analysis cover, in parts of the unit: complete steps, if there are any, or all."""
        if contract.covers == "step" and self.complete:
            return self.complete * PARTS[STEP] if unit == STEP else self.complete_ns
        return self.steps if unit == STEP else self.ns


Extents = Mapping[int, Extent]  # by rank


def extents(side: Selection) -> dict[str, Extents]:
    """Run → how much each of its selected ranks recorded."""
    counted = side.of_steps(()).query_all(_EXTENTS).rows()
    steps = {(row["run_id"], row["rank"]): row for row in counted}
    return {
        each.run: {
            rank.rank: _extent(rank, steps.get((each.run, rank.rank), {}))
            for rank in each.version.by_rank
            if rank.rank in each.ranks
        }
        for each in side.selected()
    }


def _extent(rank: Rank, steps: Mapping[str, int]) -> Extent:
    start, end = (rank.facts.get(name) for name in ("start_ns", "end_ns"))
    ns = end - start if isinstance(start, int) and isinstance(end, int) else 0
    return Extent(steps.get("steps", 0), ns, steps.get("complete", 0), steps.get("complete_ns", 0))


class Ranks(Struct, frozen=True):
    """The ranks of a run with data in its analysis, how much they recorded, and why others have none."""

    with_data: tuple[int, ...]
    reason: str | None = None
    extents: Extents = {}

    @property
    def have_steps(self) -> bool:
        """Whether all that have data have steps."""
        return all(rank in self.extents and self.extents[rank].steps for rank in self.with_data)


class _Aggregate(Struct, frozen=True):
    """The rows of one rank and step, aggregated; `over` or `under` is None if a row lacks it."""

    rows: int
    over: float | None
    under: float | None


def measure(metric: Metric, *sides: Selection, needs_rows: bool = True) -> tuple[Measured, ...]:
    """The metric of every run of each side; its analysis runs with the same parameters on all of them.

    An analysis with optional steps is run by step if every side has complete ones. Raises TwError if a run
    has several rows and the column has no fold, UnknownName if no row of any side has the filters' values.
    """
    complete = [side.query_all(COMPLETE_STEPS_SQL).arrow() if metric.has_steps else None for side in sides]
    all_complete = all(table is not None and table.num_rows for table in complete)
    by_step = metric.has_steps and (all_complete or not metric.steps_optional)
    contract, params = metric.contract, metric.params(by_step)
    results = [side.analyze(contract.name, contract.version, **params) for side in sides]
    ranks = [ranks_with_data(result, side.selected()) for result, side in zip(results, sides, strict=True)]
    unit = None
    if metric.grows(by_step):
        ranks = [with_extents(each, extents(side)) for each, side in zip(ranks, sides, strict=True)]
        unit = STEP if all(run.have_steps for side in ranks for run in side.values()) else SECOND
    measured = tuple(
        evaluate(metric, result.arrow(), of_side, steps if by_step else None, unit)
        for result, of_side, steps in zip(results, ranks, complete, strict=True)
    )
    if needs_rows:
        check_filters(metric, measured, [result.arrow() for result in results])
    return measured


def by_job(measured: Measured, selected: Iterable[SelectedRun]) -> Measured:
    """The metric with one value per job, the mean of its profiling windows: they are no independent runs."""
    jobs: dict[str, list[RunValue]] = {}
    job_of = {each.run: each.job for each in selected}
    for run in measured.runs:
        jobs.setdefault(job_of[run.run], []).append(run)
    return replace(measured, runs=tuple(map(_of_job, jobs.values())))


def _of_job(windows: Sequence[RunValue]) -> RunValue:
    known = [each for each in windows if each.value is not None]
    if len(known) < 2:
        return (known or windows)[0]
    return replace(
        known[0],
        value=fmean(each.value for each in known if each.value is not None),
        mean=fmean(each.mean for each in known if each.mean is not None),
        steps=tuple(step for each in known for step in each.steps),
        rows=sum(each.rows for each in known),
    )


def ranks_with_data(result: Result, selected: Iterable[SelectedRun]) -> dict[str, Ranks]:
    """Run → its ranks with data in a result, and why others have none."""
    reasons = {(each.run_id, each.rank): each.reason for each in result.abstained}
    found = {}
    for each in selected:
        with_data = tuple(rank for rank in each.ranks if (each.run, rank) not in reasons)
        missing = {reasons[each.run, rank] for rank in each.ranks if (each.run, rank) in reasons}
        found[each.run] = Ranks(with_data, ", ".join(sorted(missing)) or None)
    return found


def with_extents(ranks: Mapping[str, Ranks], found: Mapping[str, Extents]) -> dict[str, Ranks]:
    """The ranks of each run with how much they recorded."""
    return {run: replace(each, extents=found.get(run, {})) for run, each in ranks.items()}


def evaluate(
    metric: Metric,
    rows: pa.Table,
    ranks: Mapping[str, Ranks],
    complete: pa.Table | None,
    unit: str | None = None,
) -> Measured:
    """The metric of each run of `ranks`, in that order; `unit` is what sums that grow are divided by.

    `complete` holds run_id, rank and step of the complete steps; None if values are not per step. Raises
    TwError if a run has several rows and the column has no fold.
    """
    from tracewarehouse.duck.engine import scratch

    with scratch(threads_for(metric)) as con:
        con.register(ROWS, rows)
        if complete is None:
            return evaluate_in(con, metric, ranks, None, unit)
        con.register(STEPS, complete)
        names = ("run_id", "rank", "step")
        steps = list(zip(*(complete[name].to_pylist() for name in names), strict=True))
        return evaluate_in(con, metric, ranks, steps)


def threads_for(metric: Metric) -> int | None:
    """The number of threads that sum it: sums of doubles are reproducible with one thread only."""
    return 1 if metric.column.type == "DOUBLE" else None


def evaluate_in(
    con: Connection,
    metric: Metric,
    ranks: Mapping[str, Ranks],
    complete: Sequence[Step] | None,
    unit: str | None = None,
) -> Measured:
    """Like `evaluate`, over the relations `ROWS` and, with `complete`, `STEPS` of a connection."""
    by_step = complete is not None
    scopes = _scopes(metric, ranks, complete)
    # The rows that match the filters, of complete steps if values are per step.
    join = f" SEMI JOIN {STEPS} USING (run_id, rank, step)" if by_step else ""
    rows = f"SELECT result.* FROM {ROWS} AS result{join} WHERE {condition(metric)}"
    if metric.column.fold:
        aggregates = _aggregates(con, metric, rows, by_step)
        values = {}
        for run, scope in scopes.items():
            within = {key: each for key, each in aggregates.get(run, {}).items() if key in scope}
            if scope and metric.column.fold == "sum":
                divisor = _divisor(metric, ranks[run], scope, unit)
                values[run] = _mean_of_sums(metric, run, within, scope, divisor)
            elif scope:
                values[run] = _extreme_or_ratio(metric, run, within, scope)
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
    return Measured(metric, metric.per(by_step, unit), tuple(runs))


def check_filters(metric: Metric, measured: Iterable[Measured], tables: Sequence[pa.Table]) -> None:
    """Raises UnknownName if there are rows, but none has the values of the filters, in any step."""
    from tracewarehouse.duck.engine import scratch

    used = any(run.rows for each in measured for run in each.runs)
    if used or metric.absent_is_zero or not metric.filters or not any(map(len, tables)):
        return
    with scratch() as con:
        for table in tables:
            con.register(ROWS, table)
            matching = f"SELECT count(*) FROM {ROWS} WHERE {condition(metric)}"
            if con.execute(matching).fetchall()[0][0]:
                return
    for column, value in metric.filters:
        present = {each for table in tables for each in table[column.name].unique().to_pylist()}
        if value not in present:
            raise UnknownName(f"{column.name} of {metric.contract.ref}", _text(value), map(_text, present))
    names = ", ".join(column.name for column, _ in metric.filters)
    raise UnknownName(f"row of {metric.contract.ref}", metric.text, [], f"no row has all of these: {names}")


def _text(value: object) -> str:
    """The value as written in a metric."""
    return {"None": "null", "True": "true", "False": "false"}.get(repr(value), str(value))


def _scopes(
    metric: Metric, ranks: Mapping[str, Ranks], complete: Sequence[Step] | None
) -> dict[str, frozenset[RankStep]]:
    """Run → the ranks, or ranks and steps, that its value covers."""
    only = next((value for column, value in metric.filters if column.name == "rank"), None)
    used = {run: {rank for rank in each.with_data if only in (None, rank)} for run, each in ranks.items()}
    if complete is None:
        return {run: frozenset((rank, None) for rank in of_run) for run, of_run in used.items()}
    found: dict[str, set[RankStep]] = {run: set() for run in used}
    for run, rank, step in complete:
        if rank in used.get(run, ()):
            found[run].add((rank, step))
    return {run: frozenset(scope) for run, scope in found.items()}


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
    fold = metric.column.fold or ""
    over, _, under = fold.partition("/")
    if under:
        columns = f"{if_complete('sum', over)}, {if_complete('sum', under)}"
    else:
        columns = f"{if_complete(fold, metric.column.name)}, NULL"
    step = "step" if by_step else "NULL"
    keys = f"run_id, rank, {step}"
    sql = f"SELECT {keys}, count(*), {columns} FROM ({rows}) GROUP BY {keys}"
    found: dict[str, dict[RankStep, _Aggregate]] = {}
    for run, rank, number, count, first, second in con.execute(sql).fetchall():
        found.setdefault(run, {})[rank, number] = _Aggregate(count, first, second)
    return found


def if_complete(function: str, column: str) -> str:
    """The aggregate of a column, null if a value is null."""
    name = quote_name(column)
    return f"CASE WHEN count({name}) = count(*) THEN {function}({name}) END"


def _divisor(metric: Metric, ranks: Ranks, scope: frozenset[RankStep], unit: str | None) -> Fraction | None:
    """What a sum over the scope is divided by; None if a rank did not record what it is per."""
    if unit is None:
        return Fraction(len(scope))
    known = (ranks.extents[rank] for rank, _ in scope if rank in ranks.extents)
    covered = [extent.covered(metric.contract, unit) for extent in known]
    return Fraction(sum(covered), PARTS[unit]) if len(covered) == len(scope) and all(covered) else None


def _mean_of_sums(
    metric: Metric,
    run: str,
    aggregates: Mapping[RankStep, _Aggregate],
    scope: frozenset[RankStep],
    divisor: Fraction | None,
) -> RunValue:
    """The sum divided, by default per rank, or per rank and step; one without such a row counts as 0."""
    ranks, rows = len({rank for rank, _ in scope}), sum(each.rows for each in aggregates.values())
    known = {key: each.over for key, each in aggregates.items() if each.over is not None}
    if len(known) < len(aggregates):
        return RunValue(run, ranks=ranks, rows=rows, reason=_unknown(metric))
    if divisor is None:
        return RunValue(run, ranks=ranks, rows=rows, reason="its number of steps or its length is unknown")
    mean = float(sum(known.values()) / divisor)
    by_step: dict[int, list[float]] = {}
    for rank, step in scope:
        if step is not None:
            by_step.setdefault(step, []).append(known.get((rank, step), 0))
    steps = tuple(sum(by_step[step]) / len(by_step[step]) for step in sorted(by_step))
    value = median(steps) if metric.measures_steps and steps else mean
    return RunValue(run, value, mean, steps, ranks, rows)


def _extreme_or_ratio(
    metric: Metric, run: str, aggregates: Mapping[RankStep, _Aggregate], scope: frozenset[RankStep]
) -> RunValue:
    """The minimum or maximum of all rows, or a sum over a sum."""
    rows = sum(each.rows for each in aggregates.values())
    result = RunValue(run, ranks=len({rank for rank, _ in scope}), rows=rows)
    if not aggregates:
        return replace(result, reason="no such row")
    over = [each.over for each in aggregates.values() if each.over is not None]
    under = [each.under for each in aggregates.values() if each.under is not None]
    fold = metric.column.fold or ""
    if len(over) < len(aggregates) or "/" in fold and len(under) < len(aggregates):
        return replace(result, reason=_unknown(metric))
    if "/" not in fold:
        value = float(min(over) if fold == "min" else max(over))
    elif sum(under):
        value = sum(over) / sum(under)
    else:
        return replace(result, reason=f"{fold.partition('/')[2]} is 0")
    return replace(result, value=value, mean=value)


def _unknown(metric: Metric) -> str:
    return f"{metric.column.name} is unknown for some rows"


def _single(
    con: Connection, metric: Metric, rows: str, scopes: Mapping[str, frozenset[RankStep]]
) -> dict[str, RunValue]:
    """Run → the value of its one row; raises TwError if there are several."""
    fixed = {"run_id", *(column.name for column, _ in metric.filters)}
    free = [name for name in metric.contract.grain if name not in fixed]
    differing = "".join(f", count(DISTINCT {quote_name(name)})" for name in free)
    sql = f"SELECT run_id, count(*), any_value({quote_name(metric.column.name)}){differing}"
    found = {}
    for run, count, value, *distinct in con.execute(f"{sql} FROM ({rows}) GROUP BY run_id").fetchall():
        if count > 1:
            missing = [name for name, number in zip(free, distinct, strict=True) if number > 1] or free
            named = [f"{column.name}={_text(value)}" for column, value in metric.filters]
            filters = ",".join([*named, *(f"{name}=…" for name in missing)])
            raise TwError(
                f"metric {metric}: {metric.column.name} cannot be aggregated over rows;"
                f" run {run} has {count:,} rows",
                f"select one with a filter: {metric.contract.name}.{metric.column.name}[{filters}]",
            )
        ranks = len({rank for rank, _ in scopes.get(run, ())})
        reason = _unknown(metric) if value is None else None
        value = None if value is None else float(value)
        found[run] = RunValue(run, value, value, (), ranks, count, reason)
    return found


Statistic = Literal["value", "min", "mean", "max", "p50", "p90", "p95", "p99", "absent"]
MIN_STEPS = {"p90": 10, "p95": 20, "p99": 100}  # complete steps of a run; fewer have no such percentile
OF_STEPS = get_args(Statistic)[1:-1]
_EXAMPLES = "for example step_time, p99(step_time), kernel_summary.sum_ns[kind=communication]"
_CALL = late_regex(r"([A-Za-z_][A-Za-z0-9_]*)\s*\(\s*")
_CLOSE = late_regex(r"\s*\)")


def parse_statistic(text: str, catalog: Catalog) -> tuple[Statistic, Metric]:
    """The statistic of steps and the metric in a text; `value` is the metric itself. Raises TwError."""
    statistic, metric, at = parse_statistic_prefix(text, catalog, kind="metric", names=OF_STEPS)
    if at < len(text):
        raise ExpressionError(
            f"metric {text!r}, character {at + 1}: unexpected text after the metric", _EXAMPLES
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
        error = UnknownName("statistic", call[1], names)
        error.message = f"{position.format(start + 1)}: {error.message}"
        error.args = (error.message,)
        error.exit_code = ExpressionError.exit_code
        raise error
    name = cast(Statistic, call[1])
    metric, at = parse_metric_prefix(text, catalog, call.end())
    close = _CLOSE.match(text, at)
    if close is None:
        raise ExpressionError(f"{position.format(at + 1)}: expected `)`", f"for example {name}({metric})")
    if name != "absent" and not (metric.has_steps and metric.column.fold == "sum"):
        raise ExpressionError(
            f"{position.format(start + 1)}: {metric} has no value per step",
            f"without {name}() it is one value",
        )
    return name, metric, close.end()


def measure_statistic(value: Statistic, metric: Metric, *sides: Selection) -> tuple[Measured, ...]:
    """The metric of every job of each side, or the statistic of its complete steps."""
    measured = measure(metric, *sides, needs_rows=value != "absent")
    return tuple(
        of_steps(value, by_job(each, side.selected())) for each, side in zip(measured, sides, strict=True)
    )


def of_steps(statistic: Statistic, measured: Measured) -> Measured:
    """The statistic of the complete steps of each run, in place of its value."""
    if statistic in ("value", "absent"):
        return measured
    return replace(measured, runs=tuple(_of_steps(statistic, run) for run in measured.runs))


def _of_steps(value: Statistic, run: RunValue) -> RunValue:
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


_FUNCTIONS: dict[str, Callable[[Sequence[float]], float]] = {"min": min, "mean": fmean, "max": max}
