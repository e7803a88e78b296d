"""The SELECT that compares two results of an analysis: full join on its keys, differences of its measures.

It depends on the columns of the analysis, so it is generated. Ranks are combined by the `fold` of each
column; sums are divided by the number of ranks, or of their complete steps, only at the end, so that they
stay exact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tracewarehouse import hints
from tracewarehouse.contracts.contract import Column, Contract
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.errors import ParamError

COMBINED = ("run_id", "rank", "device", "step")  # keys whose rows are combined, unless ranks are compared
_NOT_MEASURES = ("id", "ts", "depth")
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
_IF_COMPLETE = "CASE WHEN count({name}) = count(*) THEN {value} END"
_SUM_OR_0 = "CASE WHEN {side}_side.present IS NULL THEN 0 ELSE {side}_side.{name} END"
# `ProfilerStep#12` as `ProfilerStep#N`, `<Model object at 0x7f3a…>` as `<Model object at 0x…>`.
_FOLDED_NAME = (
    "regexp_replace(regexp_replace({name},"
    " '(?i)(step|iteration|iter|batch|epoch)([ _#:=-]*)[0-9]+$', '\\1\\2N'),"
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


@dataclass(frozen=True)
class Comparison:
    """How two results of an analysis are compared.

    `classifier` is the measure that classifies rows as increased or decreased; `combined` whether ranks are
    combined; `per` what one value refers to, in words.
    """

    contract: Contract
    keys: tuple[Column, ...]
    measures: tuple[Column, ...]
    classifier: Column
    combined: bool
    per: str

    @property
    def result(self) -> Contract:
        """The contract of the result, without a SELECT."""
        return replace(
            self.contract,
            name=f"{self.contract.name}_diff",
            summary=f"Difference of two selections: {self.contract.summary}",
            grain=tuple(key.name for key in self.keys),
            order=(f"-delta_{self.sizes[0]}",),
            requires=(self.contract.ref,),
            needs=(),
            params=(),
            columns=(*self.keys, *self._values(), _change_column(self.classifier)),
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
                type="DOUBLE" if self.combined else measure.type,
                null=measure.null or measure.fold != "sum",
                fold="sum" if measure.fold == "sum" else None,
            )
            for side in ("base", "head"):
                yield replace(value, name=f"{side}_{measure.name}", doc=f"{side}, {self.per}: {measure.doc}")
            doc = f"head_{measure.name} minus base_{measure.name}."
            yield replace(value, name=f"delta_{measure.name}", doc=doc, signed=True)


def compare(contract: Contract, by_rank: bool, by_step: bool, measure: str | None) -> Comparison:
    """How to compare two results of the analysis; raises ParamError if that is not possible."""
    dropped = ("run_id",) if by_rank else COMBINED
    columns = {column.name: column for column in contract.columns}
    keys = tuple(columns[name] for name in contract.grain if name not in dropped)
    measures = tuple(
        column
        for column in contract.columns
        if column.name not in contract.grain and _is_measure(column) and (by_rank or column.fold)
    )
    if not classifiers(measures, by_rank):
        raise ParamError(
            f"{contract.ref} has no measure that can be combined over ranks",
            hints.fill("compare each rank with its counterpart: {}", hints.option("by_rank")),
        )
    per = "of this rank" if by_rank else "per step and rank" if by_step else "per rank"
    classifier = _classifier(contract, measures, by_rank, measure)
    return Comparison(contract, keys, measures, classifier, not by_rank, per)


def _is_measure(column: Column) -> bool:
    return column.unit is not None and column.unit not in _NOT_MEASURES


def classifiers(measures: tuple[Column, ...], by_rank: bool) -> list[Column]:
    """The measures that can classify rows: over ranks only those that are summed."""
    return [column for column in measures if by_rank or column.fold == "sum"]


def _classifier(contract: Contract, measures: tuple[Column, ...], by_rank: bool, name: str | None) -> Column:
    """The measure of that name, by default the first time, else the first one."""
    candidates = classifiers(measures, by_rank)
    if name is None and candidates:
        return next((column for column in candidates if column.unit == "ns"), candidates[0])
    for column in candidates:
        if name == column.name:
            return column
    known = ", ".join(column.name for column in candidates)
    raise ParamError(f"{contract.ref} has no measure {name} to compare", f"it has {known or 'none'}")


def _change_column(classifier: Column) -> Column:
    doc = f"{CHANGES}: by the presence of rows in base and head, then by {classifier.name}; null if unknown."
    return Column("change", "VARCHAR", doc, null=True)


def join_sql(comparison: Comparison, base_divisor: int, head_divisor: int) -> str:
    """SQL over the tables `base` and `head`; sums of each side are divided by its divisor."""
    divisors = {"base": base_divisor, "head": head_divisor}
    columns = [_KEY.format(name=_quoted(key)) for key in comparison.keys]
    columns += [
        column for measure in comparison.measures for column in _measure_sql(comparison, measure, divisors)
    ]
    columns.append(_change_sql(comparison, divisors))
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
    fold = measure.fold or "sum"
    if "/" in fold:
        over, under = (_if_complete("sum", quote_name(name)) for name in fold.split("/"))
        return f"{over} / nullif({under}, 0)"
    return _if_complete(fold, _quoted(measure))


def _if_complete(function: str, name: str) -> str:
    """The aggregate of a column, null if a value is null."""
    return _IF_COMPLETE.format(name=name, value=f"{function}({name})")


def _measure_sql(comparison: Comparison, measure: Column, divisors: Mapping[str, int]) -> Iterator[str]:
    """Base, head and delta of a measure."""
    base, head = (_value_sql(measure, side) for side in divisors)
    delta = f"({head} - {base})"
    if comparison.combined and measure.fold == "sum":
        one, other = _over_common_denominator(measure, divisors)
        delta = f"({other} - {one}) / {divisors['base'] * divisors['head']}"
        base, head = f"{base} / {divisors['base']}", f"{head} / {divisors['head']}"
    elif comparison.combined:
        base, head, delta = (f"{value}::DOUBLE" for value in (base, head, delta))
    for prefix, value in (("base", base), ("head", head), ("delta", delta)):
        yield f"{value} AS {quote_name(f'{prefix}_{measure.name}')}"


def _value_sql(measure: Column, side: str) -> str:
    """A measure of one side; a missing row is 0 for a sum, and unknown for other measures."""
    if measure.fold == "sum":
        return _SUM_OR_0.format(side=side, name=_quoted(measure))
    return f"{side}_side.{_quoted(measure)}"


def _over_common_denominator(measure: Column, divisors: Mapping[str, int]) -> tuple[str, str]:
    """The numerators of both sides over one denominator: integers stay integers."""
    base, head = (_value_sql(measure, side) for side in divisors)
    return f"({base}) * {divisors['head']}", f"({head}) * {divisors['base']}"


def _change_sql(comparison: Comparison, divisors: Mapping[str, int]) -> str:
    if comparison.combined:
        base, head = _over_common_denominator(comparison.classifier, divisors)
    else:
        base, head = (_value_sql(comparison.classifier, side) for side in divisors)
    return _CHANGE.format(base=base, head=head)
