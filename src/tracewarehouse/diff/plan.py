"""How the rows of an analysis are compared: what they are joined on, what is measured, and per what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tracewarehouse.columns import Column
from tracewarehouse.contract import Contract
from tracewarehouse.errors import ParamError

POOLED = ("run_id", "rank", "device", "step")  # who did it: rows of all of them are taken together
_NO_MEASURE = ("id", "ts", "depth")
CHANGES = "added, deleted, increased, decreased or unchanged"


@dataclass(frozen=True)
class Plan:
    """`per` is what one value is of, in words; `pooled` whether ranks were taken together."""

    contract: Contract
    keys: tuple[Column, ...]
    measures: tuple[Column, ...]
    deciding: Column
    pooled: bool
    per: str

    @property
    def result(self) -> Contract:
        """What the comparison promises; its SELECT is still to be written."""
        columns = (*self.keys, *self._values(), _change(self.deciding))
        sizes = [key[1:] for key in self.contract.order if key.startswith("-")]
        names = [measure.name for measure in self.measures]
        size = next((name for name in sizes if name in names), self.deciding.name)
        return replace(
            self.contract,
            name=f"{self.contract.name}_diff",
            summary=f"What differs: {self.contract.summary}",
            grain=tuple(key.name for key in self.keys),
            order=(f"-delta_{size}",),
            requires=(self.contract.ref,),
            needs=(),
            params=(),
            columns=columns,
            source=f"{self.contract.name}_diff",
            body="",
        )

    def _values(self) -> Iterable[Column]:
        for measure in self.measures:
            made = replace(
                measure,
                type="DOUBLE" if self.pooled else measure.type,
                null=measure.null or measure.fold != "sum",
                fold="sum" if measure.fold == "sum" else None,
            )
            for side in ("base", "head"):
                yield replace(made, name=f"{side}_{measure.name}", doc=f"{side}, {self.per}: {measure.doc}")
            yield replace(
                made,
                name=f"delta_{measure.name}",
                doc=f"head_{measure.name} less base_{measure.name}.",
                signed=True,
            )


def plan(contract: Contract, by_rank: bool, by_step: bool, measure: str | None) -> Plan:
    """How to compare two results of the analysis; raises ParamError where that cannot be."""
    gone = ("run_id",) if by_rank else POOLED
    named = {column.name: column for column in contract.columns}
    keys = tuple(named[name] for name in contract.grain if name not in gone)
    measures = tuple(
        column
        for column in contract.columns
        if column.name not in contract.grain and _is_measure(column) and (by_rank or column.fold)
    )
    if not measures:
        raise ParamError(
            f"{contract.ref} says of no measure what it is of several ranks",
            "compare rank by rank: --by-rank",
        )
    per = "of this rank" if by_rank else "per step and rank" if by_step else "per rank"
    return Plan(contract, keys, measures, _deciding(contract, measures, by_rank, measure), not by_rank, per)


def _is_measure(column: Column) -> bool:
    return column.unit is not None and column.unit not in _NO_MEASURE


def able(measures: tuple[Column, ...], by_rank: bool) -> list[Column]:
    """The measures that may decide: over ranks only those that add up."""
    return [column for column in measures if by_rank or column.fold == "sum"]


def _deciding(contract: Contract, measures: tuple[Column, ...], by_rank: bool, measure: str | None) -> Column:
    """The measure that decides about increased and decreased: the one asked for, else the first."""
    deciders = able(measures, by_rank)
    known = ", ".join(column.name for column in deciders)
    for column in deciders:
        if measure in (None, column.name):
            return column
    raise ParamError(f"{contract.ref} has no measure {measure} to compare", f"it has {known or 'none'}")


def _change(deciding: Column) -> Column:
    return Column(
        "change",
        "VARCHAR",
        f"{CHANGES}: whether there are such rows in base and head, then by {deciding.name}; "
        "null where that is not known.",
        null=True,
    )
