"""`Diff`: analyses run on two selections and compared row by row, with a verdict for each row.

Rows are joined by their keys, with SQL that is generated from the columns of the analysis. Ranks are combined
by the `aggregate` of each column; sums are divided by the number of ranks, of their complete steps, or by how
much they recorded (`per` of the contract), only at the end, so that they stay exact. The verdict of a row
tests its values in the replicates of each side: runs if there are four or more in total, else complete steps.
Profiling windows of one job count as one run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.analyses import Analyses
from tracewarehouse.compare.diff.comparable import equal_positions, other_kernel_rules
from tracewarehouse.compare.diff.levels import of_both_sides, ratio_column
from tracewarehouse.compare.metric.values import (
    COMPLETE_STEPS_SQL,
    Lengths,
    if_complete,
    lengths,
    parts_of,
    ranks_with_data,
)
from tracewarehouse.compare.stats.two_sample import MIN_SAMPLES
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import BY_STEP, Column, Contract
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.errors import ParamError, TwError
from tracewarehouse.exact_text import rank_list
from tracewarehouse.query.selection import Selection
from tracewarehouse.result import Result
from tracewarehouse.runs.selection import SelectedRun

if TYPE_CHECKING:
    import pyarrow as pa

    from tracewarehouse.compare.diff.change import Change, FindEarlier
    from tracewarehouse.compare.stats.many_series import RowTest
    from tracewarehouse.duck.engine import Connection


COMBINED = ("run_id", "rank", "device", "step")  # keys whose rows are combined, unless ranks are compared
_NOT_MEASURES = (None, "id", "ts", "depth")
_OF_A_PART = ("annotation", "only_step")  # parameters that select a part of the recording
CHANGES = "added, deleted, increased, decreased or unchanged"

_JOIN = """
WITH
  base_side AS ({base}),
  head_side AS ({head})
SELECT
  {columns}
FROM base_side
FULL JOIN head_side ON {condition}
"""
_SIDE = "SELECT {columns} FROM {side}"
_COMBINED_SIDE = "SELECT {columns} FROM {side} {group} HAVING count(*) > 0"
_KEY = "coalesce(head_side.{name}, base_side.{name}) AS {name}"
_SUM_OR_0 = "CASE WHEN {side}_side.present IS NULL THEN 0 ELSE {side}_side.{name} END"
# `ProfilerStep#12` as `ProfilerStep#N`, `<Model object at 0x7f3a…>` as `<Model object at 0x…>`.
_FOLDED_NAME = (
    "regexp_replace(regexp_replace({name},"
    " '(?i)(step(?:_num)?|iteration|iter|batch|epoch)([ _#:=-]*)[0-9]+$', '\\1\\2N'),"
    " '0x[0-9a-fA-F]{{6,}}', '0x…', 'g')"
)
_CHANGE = """
CASE
  WHEN base_side.present IS NULL THEN 'added'
  WHEN head_side.present IS NULL THEN 'deleted'
  WHEN {head} > {base} THEN 'increased'
  WHEN {head} < {base} THEN 'decreased'
  WHEN {head} = {base} THEN 'unchanged'
END AS change"""


class Comparison(Struct, frozen=True):
    """How two results of an analysis are compared.

    `classifier` is the measure that classifies rows as increased or decreased; `combined` whether ranks are
    combined; `per` what one value refers to, in words; sums that grow with the recording are per `unit`, too.
    """

    contract: Contract
    keys: tuple[Column, ...]
    measures: tuple[Column, ...]
    classifier: Column
    combined: bool
    per: str
    unit: str | None = None

    def unit_of(self, measure: Column) -> str | None:
        """What its sums are per if they grow with the recording."""
        return self.unit if measure.adds_up else None

    @property
    def result(self) -> Contract:
        """The contract of the result, without a SELECT."""
        name = self.classifier.name
        change = f"{CHANGES}: by the presence of rows in base and head, then by {name}; null if unknown."
        return replace(
            self.contract,
            name=f"{self.contract.name}_diff",
            summary=f"Difference of two selections: {self.contract.summary}",
            grain=tuple(key.name for key in self.keys),
            order=(f"-delta_{self.sizes[0]}",),
            requires=(self.contract.ref,),
            needs=(),
            params=(),
            columns=(*self.keys, *self._values(), Column("change", "VARCHAR", change, null=True)),
            source=f"{self.contract.name}_diff",
            body="",
        )

    @property
    def sizes(self) -> list[str]:
        """The measures that can sort rows: those that sort the analysis, then the one that classifies."""
        descending = [key[1:] for key in self.contract.order if key.startswith("-")]
        names = {measure.name for measure in self.measures}
        return [*(name for name in descending if name in names), self.classifier.name]

    def _values(self) -> Iterator[Column]:
        for measure in self.measures:
            value = replace(
                measure,
                type="DOUBLE" if self.combined or self.unit_of(measure) else measure.type,
                null=measure.null or measure.aggregate != "sum",
                aggregate="sum" if measure.aggregate == "sum" else None,
            )
            for side in ("base", "head"):
                per = f"per {self.unit}, {self.per}" if self.unit_of(measure) else self.per
                yield replace(value, name=f"{side}_{measure.name}", doc=f"{side}, {per}: {measure.doc}")
            doc = f"head_{measure.name} minus base_{measure.name}."
            yield replace(value, name=f"delta_{measure.name}", doc=doc, signed=True)


Divisors = Mapping[str | None, tuple[int, int]]  # unit → what sums of base and head are divided by


def compare(
    contract: Contract, by_rank: bool, by_step: bool, measure: str | None, unit: str | None = None
) -> Comparison:
    """How to compare two results of the analysis; raises ParamError if that is not possible."""
    dropped = ("run_id",) if by_rank else COMBINED
    columns = {column.name: column for column in contract.columns}
    keys = tuple(columns[name] for name in contract.grain if name not in dropped)
    measures = tuple(
        column
        for column in contract.columns
        if column.name not in contract.grain
        and column.unit not in _NOT_MEASURES
        and (by_rank or column.aggregate)
    )
    candidates = classifiers(measures, by_rank)
    if not candidates:
        raise ParamError(
            f"{contract.ref} has no measure that can be combined over ranks",
            hints.fill("compare each rank with its counterpart: {}", hints.option("by_rank")),
        )
    per = "of this rank" if by_rank else "per step and rank" if by_step else "per rank"
    classifier = _classifier(contract, candidates, measure)
    return Comparison(contract, keys, measures, classifier, not by_rank, per, unit)


def classifiers(measures: tuple[Column, ...], by_rank: bool) -> list[Column]:
    """The measures that can classify rows: over ranks only those that are summed."""
    return [column for column in measures if by_rank or column.aggregate == "sum"]


def _classifier(contract: Contract, candidates: Sequence[Column], name: str | None) -> Column:
    """The measure of that name, by default the first time, else the first one."""
    if name is None:
        return next((column for column in candidates if column.unit == "ns"), candidates[0])
    for column in candidates:
        if name == column.name:
            return column
    names = ", ".join(column.name for column in candidates)
    raise ParamError(f"{contract.ref} has no measure {name} to compare", f"it has {names}")


def join_sql(comparison: Comparison, divisors: Divisors) -> str:
    """SQL over the tables `base` and `head`; sums of each side are divided by its divisor."""
    columns = [_KEY.format(name=_quoted(key)) for key in comparison.keys]
    columns += [
        column for measure in comparison.measures for column in _measure_sql(comparison, measure, divisors)
    ]
    if comparison.combined:
        by = divisors[comparison.unit_of(comparison.classifier)]
        base, head = _over_common_denominator(comparison.classifier, *by)
    else:
        base, head = (_value_sql(comparison.classifier, side) for side in SIDES)
    columns.append(_CHANGE.format(base=base, head=head))
    condition = ["base_side.present = head_side.present"]
    condition += [
        f"base_side.{name} IS NOT DISTINCT FROM head_side.{name}" for name in map(_quoted, comparison.keys)
    ]
    return _JOIN.format(
        base=_side_sql(comparison, "base"),
        head=_side_sql(comparison, "head"),
        columns=",\n  ".join(columns),
        condition=" AND ".join(condition),
    )


def folded_names(comparison: Comparison) -> dict[str, str]:
    """Key column → SQL of its value, for names that do not recur: of numbered steps, with an address."""
    if not comparison.combined:
        return {}
    return {
        key.name: _FOLDED_NAME.format(name=_quoted(key))
        for key in comparison.keys
        if key.name == "name" and key.type == "VARCHAR"
    }


def _quoted(column: Column) -> str:
    return quote_name(column.name)


def _side_sql(comparison: Comparison, side: str) -> str:
    """A row per key; sums are exact, and null if a value is unknown."""
    keys = [*map(_quoted, comparison.keys)]
    measures = (
        f"{_combined_sql(measure)} AS {_quoted(measure)}" if comparison.combined else _quoted(measure)
        for measure in comparison.measures
    )
    columns = ", ".join([*keys, "TRUE AS present", *measures])
    if not comparison.combined:
        return _SIDE.format(columns=columns, side=side)
    group = f"GROUP BY {', '.join(keys)}" if keys else ""
    return _COMBINED_SIDE.format(columns=columns, side=side, group=group)


def _combined_sql(measure: Column) -> str:
    aggregate = measure.aggregate or "sum"
    if "/" in aggregate:
        over, under = (if_complete("sum", name) for name in aggregate.split("/"))
        return f"{over} / nullif({under}, 0)"
    return if_complete(aggregate, measure.name)


def _measure_sql(comparison: Comparison, measure: Column, divisors: Divisors) -> Iterator[str]:
    """Base, head and delta of a measure."""
    base, head = (_value_sql(measure, side) for side in SIDES)
    delta = f"({head} - {base})"
    if comparison.combined and measure.aggregate == "sum":
        unit = comparison.unit_of(measure)
        parts, (base_by, head_by) = parts_of(unit), divisors[unit]
        base_amount, head_amount = _over_common_denominator(measure, base_by, head_by)
        delta = f"({head_amount} - {base_amount}) / ({base_by * head_by} / {parts})"
        base, head = f"{base} / ({base_by} / {parts})", f"{head} / ({head_by} / {parts})"
    elif comparison.combined:
        base, head, delta = (f"{value}::DOUBLE" for value in (base, head, delta))
    for prefix, value in (("base", base), ("head", head), ("delta", delta)):
        yield f"{value} AS {quote_name(f'{prefix}_{measure.name}')}"


def _value_sql(measure: Column, side: str) -> str:
    """A measure of one side; a missing row is 0 for a sum, and unknown for other measures."""
    if measure.aggregate == "sum":
        return _SUM_OR_0.format(side=side, name=_quoted(measure))
    return f"{side}_side.{_quoted(measure)}"


def _over_common_denominator(measure: Column, base_by: int, head_by: int) -> tuple[str, str]:
    """The numerators of both sides over one denominator: integers stay integers."""
    base, head = (_value_sql(measure, side) for side in SIDES)
    return f"({base}) * {head_by}", f"({head}) * {base_by}"


# The analyses and views that `changes` reads, as far as they share views.
READS = ("step_account", "step_kernels", "account_segments", "collective_arrivals", "bandwidth_by_size")
SIDES = ("base", "head")
VERDICTS = "better, worse (higher, lower for measures without a goal), no change or inconclusive"
Replicate = tuple[Any, ...]  # a run, or a run and a step
Replicates = Mapping[Replicate, int]  # each with the number of ranks it has
Key = tuple[Any, ...]


class Diff(Analyses[Result], Struct, frozen=True):
    """The difference of two selections, made by `Warehouse.diff`; every analysis is a method.

    Ranks, devices and steps are combined, and every value is per rank: summed measures are divided by the
    number of ranks with data; if the rows have steps, by the number of their complete steps, and rows of
    other steps are excluded. Numbers of steps and addresses in names are ignored, as is a parameter
    `by_step`.

    Attributes:
        base: One side.
        head: The other side.
        catalog: Definitions of tables and analyses.
        by_rank: Compares each rank with its counterpart.
        all_steps: Includes incomplete steps.
        measure: The column that classifies rows as increased or decreased (default: the first time).
        alpha: Significance level of the verdicts (default 0.05).
        min_effect: Smallest relative change that matters (ratio, default 0.01): of a row for its verdict, of
            the step for that of `changes`.
        earlier: Finds earlier runs of a metric, for the noise between runs.
        alike: Finds recorded runs like these, for gates with one run per side.

    Example:
        >>> wh.diff("fp8-off", "fp8-on")
        <Diff base: fp8-off; head: fp8-on>
    """

    base: Selection
    head: Selection
    catalog: Catalog
    by_rank: bool = False
    all_steps: bool = False
    measure: str | None = None
    alpha: float = 0.05
    min_effect: float = 0.01
    earlier: FindEarlier | None = None
    alike: FindEarlier | None = None

    def __repr__(self) -> str:
        base, head = (", ".join(run.run for run in side.selected()) for side in (self.base, self.head))
        return f"<Diff base: {base}; head: {head}>"

    def __str__(self) -> str:
        """The verdict and the largest rows of the breakdown, as `print` shows them."""
        return repr(self.changes())

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        return self.changes()._repr_html_()

    def analyze(self, name: str, version: int | None = None, **params: object) -> Result:
        """Compares the rows of an analysis.

        Returns:
            A row per key: `base_X`, `head_X` and `delta_X` of each measure X in its unit, `change`, and,
            where values repeat over runs or steps, `verdict`, `low` and `high` (ratio, 95 %), `q`.

        Raises:
            UnknownName: There is no such analysis or version.
            ParamError: A parameter is invalid, or no measure can be combined over ranks.
            TwError: A side has no rank, or no complete step, with data.

        Example:
            >>> diff = wh.diff("fp8-off", "fp8-on")
            >>> diff.analyze("kernel_summary").select("name", "delta_sum_ns", "verdict")
        """
        contract = self.catalog.get(name, version, kind="analysis")
        steps, positions = self._complete_steps(contract)
        if contract.steps_optional:
            params = {**params, BY_STEP: steps is not None}
        # Values grow with the length of the recording, unless they are of one step or annotation.
        of_a_part = self.by_rank and "step" in contract.grain and BY_STEP not in params
        of_a_part |= any(params.get(name) is not None for name in _OF_A_PART)
        grows = steps is None and contract.covers != "rank" and not of_a_part
        selections = self.base, self.head
        answers = [side_runs.analyze(name, version, **params) for side_runs in selections]
        unit, recorded = lengths(selections, answers) if grows else (None, [{}, {}])
        sides = zip(SIDES, answers, selections, steps or (None, None), recorded, strict=True)
        results = [
            _SideResult(side, answer, selection.selected(), *steps_and_lengths)
            for side, answer, selection, *steps_and_lengths in sides
        ]
        comparison = compare(contract, self.by_rank, bool(steps), self.measure, unit)
        compared = self._compared(comparison, results)
        return replace(compared, notices=(*positions, *compared.notices))

    def changes(
        self,
        *,
        interval: str | None = None,
        steps: Iterable[int] = (),
        gates: Iterable[str] = (),
        normalize: str | None = None,
    ) -> Change:
        """Compares the runs as a whole: configuration, verdict on the step time, breakdown, and gates.

        With one run per side, a gate on the change of a time needs a change beyond its bound by three
        deviations between runs: of recorded runs like these, else 3 %.

        Args:
            interval: `step`, `window` or `annotation:NAME`.
            steps: Step numbers (default: all complete ones).
            gates: Bounds such as `step_time <= +5%`.
            normalize: `sample`, `token` or `label.K`: times and sizes per unit of work, counted by the labels
                `samples_per_step`, `tokens_per_step` or K of each run.

        Returns:
            `verdict`, `line` (the verdict as text), `differences`, `breakdown`, `causes`, `gates`, `failed`;
            `rows()` has the breakdown with times in ns.

        Raises:
            ParamError: An argument is invalid.
            UnknownName: A metric of a gate or a label is unknown.

        Example:
            >>> change = wh.diff("fp8-off", "fp8-on").changes(gates=["step_time <= +5%"])
            >>> change.verdict.word
            'inconclusive'
            >>> change.rows().select("level", "name", "delta_ns").head(3)
        """
        from tracewarehouse.compare.diff.change import CompareOptions, changes
        from tracewarehouse.compare.diff.gate import parse

        parsed = [parse(gate, self.catalog) for gate in gates]
        options = CompareOptions(
            interval, self.alpha, self.min_effect, tuple(steps), self.earlier, self.alike, normalize
        )
        return changes(self.base, self.head, self.catalog, options, parsed)

    def _complete_steps(self, contract: Contract) -> tuple[list[pa.Table] | None, tuple[str, ...]]:
        """The complete steps of both sides, if values are per step, and a line if some are left out."""
        if self.by_rank or self.all_steps or "step" not in contract.grain:
            return None, ()
        base, head, first_steps_line = self.base, self.head, None
        steps = [side.query(COMPLETE_STEPS_SQL).arrow() for side in (base, head)]
        ranks = [Counter((row["run_id"], row["rank"]) for row in table.to_pylist()) for table in steps]
        if {*ranks[0].values()} != {*ranks[1].values()}:
            base, head, first_steps_line = equal_positions(base, head, self.min_effect)
            steps = [side.query(COMPLETE_STEPS_SQL).arrow() for side in (base, head)]
        if all(table.num_rows for table in steps):
            return steps, (first_steps_line,) if first_steps_line else ()
        if any(param.name == BY_STEP for param in contract.params):
            return None, ()
        hint = hints.fill("include all steps: {}", hints.option("all_steps"))
        raise TwError("base or head has no complete step", hint)

    def _compared(self, comparison: Comparison, results: Sequence[_SideResult]) -> Result:
        from tracewarehouse.duck.arrow import table_of
        from tracewarehouse.duck.engine import execute

        divisors, ranks, notices = _scope(comparison, results)
        if line := other_kernel_rules(*(side.selected for side in results)):
            notices.append(line)
        if self.measure is None and len(classifiers(comparison.measures, self.by_rank)) > 1:
            option, name = hints.option("measure", "NAME"), comparison.classifier.name
            notices.append(hints.fill("rows are classified by {} (change with {})", name, option))
        contract = replace(comparison.result, body=join_sql(comparison, divisors))
        kind, replicates = _replicates(comparison, results)
        with _side_tables(comparison, results, ranks) as con:
            rows = execute(con, contract, {}).to_pylist()
            # By the first measure with a value: times on the GPU are unknown in a trace of the CPU.
            known_sizes = (
                name for name in comparison.sizes if any(row[f"delta_{name}"] is not None for row in rows)
            )
            size = next(known_sizes, comparison.sizes[0])
            rows.sort(key=lambda row: -abs(row[f"delta_{size}"] or 0))
            keys = [tuple(row[key.name] for key in comparison.keys) for row in rows]
            jobs = {run.run: run.job for side in results for run in side.selected}
            verdicts = self._row_verdicts(con, comparison, keys, replicates, jobs)
        if size != comparison.sizes[0]:
            notices.append(f"rows are sorted by {size}, because {comparison.sizes[0]} is unknown")
        contract = replace(contract, order=(f"-delta_{size}",))
        columns = (*contract.columns, *_verdict_columns(comparison.classifier, kind))
        contract = replace(contract, columns=columns)
        table = table_of(contract, [row | verdict for row, verdict in zip(rows, verdicts, strict=True)])
        base, head = (side.result for side in results)
        provenance = of_both_sides(base.provenance, head.provenance)
        skipped = tuple(dict.fromkeys((*base.skipped, *head.skipped)))
        all_notices = tuple(dict.fromkeys((*notices, *base.notices, *head.notices)))
        return Result(table, provenance, contract, skipped, all_notices)

    def _row_verdicts(
        self,
        con: Connection,
        comparison: Comparison,
        keys: Sequence[Key],
        sides: Mapping[str, Replicates],
        jobs: Mapping[str, str],
    ) -> list[dict[str, object]]:
        """The verdict of each row, from the tables `base` and `head` of the connection."""
        from tracewarehouse.compare.stats.many_series import row_tests

        if sum(map(len, sides.values())) < MIN_SAMPLES or not all(map(len, sides.values())):
            return [_row_verdict(comparison.classifier, None, self.min_effect)] * len(keys)
        base, head = (
            _replicate_values(con, comparison, side, replicates, keys, jobs)
            for side, replicates in sides.items()
        )
        means = [max(sum(values) / len(values) for values in pair) for pair in zip(base, head, strict=True)]
        total = sum(means) or 1.0
        tests = row_tests(base, head, [mean / total for mean in means], alpha=self.alpha)
        return [_row_verdict(comparison.classifier, test, self.min_effect) for test in tests]


class _SideResult(Struct, frozen=True):
    """The result of one side; its complete steps if values are per step, else what its ranks cover."""

    side: str
    result: Result
    selected: Sequence[SelectedRun]
    steps: pa.Table | None
    recorded: Lengths

    @property
    def ranks(self) -> set[tuple[str, int]]:
        """Run and rank of the ranks with data."""
        skipped_ranks = {(skipped.run_id, skipped.rank) for skipped in self.result.skipped}
        return {(run.run, rank) for run in self.selected for rank in run.ranks} - skipped_ranks

    def parts(self, contract: Contract, unit: str | None) -> dict[str, dict[int, int]]:
        """Run → rank → how many parts of a unit its sums cover; 1 without a unit."""
        runs = ranks_with_data(self.result, self.selected, unit, self.recorded)
        return {run: of_run.parts(contract) for run, of_run in runs.items() if of_run.with_data}

    def divisor(self, contract: Contract, unit: str | None) -> int:
        """What its sums are divided by; raises TwError if it has no ranks, or no complete steps."""
        if self.steps is None:
            count = sum(sum(of_run.values()) for of_run in self.parts(contract, unit).values())
        else:
            count = sum(self.replicates(("run_id", "step"), contract).values())
        if not count:
            reason = ", ".join(sorted({rank.reason for rank in self.result.skipped})) or "no complete step"
            command = hints.Hint("wh.select(runs=RUN).run(NAME)", "tw show NAME --run RUN")
            message = f"{self.side} has no data to compare: {reason}"
            raise TwError(message, hints.fill("{} explains why", command))
        return count

    def replicates(self, names: Sequence[str], contract: Contract, unit: str | None = None) -> Replicates:
        """Its jobs, or its complete steps by run, each with its number of ranks, or what they cover."""
        ranks, jobs = self.ranks, {run.run: run.job for run in self.selected}
        if self.steps is None:
            sizes: Counter[Replicate] = Counter()
            for run, of_run in sorted(self.parts(contract, unit).items()):
                sizes[(jobs[run],)] += sum(of_run.values())
            return sizes
        rows = [row for row in self.steps.to_pylist() if (row["run_id"], row["rank"]) in ranks]
        if names == ("run_id",):
            return Counter((jobs[row["run_id"]],) for row in rows)
        return Counter(tuple(row[name] for name in names) for row in rows)


def _scope(
    comparison: Comparison, results: Sequence[_SideResult]
) -> tuple[Divisors, set[int] | None, list[str]]:
    """The divisors of each measure, the ranks that are compared if not all, and notices."""
    if comparison.combined:
        (base, head), contract = results, comparison.contract
        divisors = {
            unit: (base.divisor(contract, unit), head.divisor(contract, unit))
            for unit in (comparison.unit, None)
        }
        unit = comparison.unit_of(comparison.classifier)
        counts = (f"{by / parts_of(unit):,.3f}".rstrip("0").rstrip(".") for by in divisors[unit])
        per = f"per {unit} and rank" if unit else comparison.per
        return divisors, None, ["values are {}: base has {}, head has {}".format(per, *counts)]
    ranks = _common_ranks(results)
    extra = {side_result.side: {rank for _, rank in side_result.ranks} - ranks for side_result in results}
    notices = [f"ignored, only in {side}: rank {rank_list(only)}" for side, only in extra.items() if only]
    if comparison.unit:
        notices.append(f"values are {comparison.per}, per {comparison.unit}")
    return {}, ranks, notices


def _common_ranks(results: Sequence[_SideResult]) -> set[int]:
    """The ranks with data on both sides; raises ParamError if there are none, or a side has more runs."""
    if any(len(side.selected) != 1 for side in results):
        raise ParamError(
            hints.fill("{} requires exactly one run per side", hints.option("by_rank")),
            hints.fill("omit {}", hints.option("by_rank")),
        )
    base_ranks, head_ranks = ({rank for _, rank in side.ranks} for side in results)
    if not base_ranks & head_ranks:
        hint = hints.fill("omit {}", hints.option("by_rank"))
        raise ParamError("base and head share no rank with data", hint)
    return base_ranks & head_ranks


@contextmanager
def _side_tables(
    comparison: Comparison, results: Iterable[_SideResult], ranks: set[int] | None
) -> Iterator[Connection]:
    """A connection with the rows that are compared, as `base` and `head`, with names that recur."""
    from tracewarehouse.duck.engine import connect

    divided = [side for side in comparison.measures if comparison.unit_of(side)]
    with connect() as con:
        for side in results:
            con.register(f"{side.side}_rows", side.result.arrow())
            folded = folded_names(comparison)
            if ranks is not None:  # sums of a rank are divided row by row
                (parts,) = side.parts(comparison.contract, comparison.unit).values()
                by = f"(MAP {parts}[rank] / {parts_of(comparison.unit)})"
                folded |= {measure.name: f"{_quoted(measure)} / {by}" for measure in divided}
            changed = ", ".join(f"{value} AS {quote_name(name)}" for name, value in folded.items())
            columns = f"* REPLACE ({changed})" if changed else "*"
            sql = f"SELECT result.{columns} FROM {side.side}_rows AS result"
            if side.steps is not None:
                con.register(f"{side.side}_steps", side.steps)
                sql += f" SEMI JOIN {side.side}_steps USING (run_id, rank, step)"
            if ranks is not None:
                sql += f" WHERE rank IN ({', '.join(map(str, ranks))})"
            con.execute(f"CREATE TABLE {side.side} AS {sql}")
        yield con


def _replicates(
    comparison: Comparison, results: Sequence[_SideResult]
) -> tuple[str | None, dict[str, Replicates]]:
    """The replicates of each side, and their kind in words: runs if there are enough, else steps."""
    none: dict[str, Replicates] = {side.side: {} for side in results}
    if not comparison.combined:
        return None, none
    contract, unit = comparison.contract, comparison.unit_of(comparison.classifier)
    by_run = {side.side: side.replicates(("run_id",), contract, unit) for side in results}
    if sum(map(len, by_run.values())) >= MIN_SAMPLES:
        return "runs", by_run
    with_steps = [side for side in results if side.steps is not None]
    by_step = {side.side: side.replicates(("run_id", "step"), contract) for side in with_steps}
    are_enough = len(by_step) == len(results) and sum(map(len, by_step.values())) >= MIN_SAMPLES
    return ("steps, within these runs only", by_step) if are_enough else (None, none)


def _verdict_columns(measure: Column, kind: str | None) -> tuple[Column, ...]:
    """The columns of a row's verdict; `kind` is that of the replicates, None if there are too few."""
    noise = f"noise over {kind}" if kind else "noise, unknown here: it takes four runs in total, or steps"
    untested = "null if not tested, as rows below 0.1 % of the total"
    interval = f"the interval of the relative change of {measure.name}"
    verdict_doc = f"By {measure.name} and its {noise}: {VERDICTS}; {untested}."
    return (
        Column("verdict", "VARCHAR", verdict_doc, null=True),
        ratio_column("low", f"Lower end of {interval}; {untested}."),
        ratio_column("high", f"Upper end of that interval; {untested}."),
        ratio_column("q", f"p adjusted after Benjamini and Hochberg over the rows; {untested}."),
    )


def _replicate_values(
    con: Connection,
    comparison: Comparison,
    side: str,
    replicates: Replicates,
    keys: Sequence[Key],
    jobs: Mapping[str, str],
) -> list[list[float]]:
    """For each key the value per rank in each replicate, 0 without such a row."""
    width = len(next(iter(replicates)))
    names = [*(quote_name(key.name) for key in comparison.keys), *("run_id", "step")[:width]]
    measure = quote_name(comparison.classifier.name)
    sql = f"SELECT {', '.join(names)}, sum({measure}) FROM {side} GROUP BY {', '.join(names)}"
    values: dict[Key, dict[Replicate, float]] = defaultdict(partial(defaultdict, float))
    for row in con.execute(sql).fetchall():
        key, replicate = row[: len(comparison.keys)], row[len(comparison.keys) : -1]
        values[key][(jobs[replicate[0]],) if width == 1 else replicate] += float(row[-1] or 0)
    return [[values[key][replicate] / ranks for replicate, ranks in replicates.items()] for key in keys]


def _row_verdict(measure: Column, test: RowTest | None, min_effect: float) -> dict[str, object]:
    if test is None or not test.tested:
        return {"verdict": None, "low": None, "high": None, "q": None}
    word = "inconclusive"
    if test.low is not None and test.high is not None and max(-test.low, test.high) <= min_effect:
        word = "no change"
    elif test.significant:
        is_higher = test.change > 0
        if measure.better is None:
            word = "higher" if is_higher else "lower"
        else:
            word = "better" if is_higher == (measure.better == "higher") else "worse"
    return {"verdict": word, "low": test.low, "high": test.high, "q": test.q}
