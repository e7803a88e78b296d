"""Laws of results: each is a function of a contract that raises AssertionError if it is violated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import polars as pl
from changes import Change
from worlds import Answer, Worlds

from tracewarehouse.contracts.contract import Column, Contract

ULPS = 4
NUMBERS = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "HUGEINT", "DOUBLE", "DECIMAL")

Leave = frozenset[str]
Law = Callable[[Worlds, Contract, Leave], None]


def rows(worlds: Worlds, contract: Contract, leave: Leave) -> None:
    """The traces give rows: laws over no rows test nothing."""
    remedy = "extend tests/properties/laws/odd.sketch, or say why in tests/properties/law_exceptions.toml"
    found = worlds.world("base").ask(contract, {}).frame
    assert not found.is_empty(), f"{contract.ref} gives no rows: {remedy}"


def grain(worlds: Worlds, contract: Contract, leave: Leave) -> None:
    """The grain of a row is unique."""
    for values in worlds.limits(contract):
        frame = worlds.world("base").ask(contract, values).frame
        twins = frame.select(contract.grain).is_duplicated()
        assert not twins.any(), f"{contract.ref} {values}: rows of one grain:\n{frame.filter(twins)}"


def nulls(worlds: Worlds, contract: Contract, leave: Leave) -> None:
    """Only nullable columns have nulls."""
    for values in worlds.limits(contract):
        frame = worlds.world("base").ask(contract, values).frame
        for column in contract.columns:
            if not column.null:
                found = frame.filter(pl.col(column.name).is_null())
                assert found.is_empty(), (
                    f"{contract.ref} {values}: {column.name} is null, but not declared null = true:\n{found}"
                )


def sign(worlds: Worlds, contract: Contract, leave: Leave) -> None:
    """Measures are not negative unless signed, and finite."""
    for values in worlds.limits(contract):
        frame = worlds.world("base").ask(contract, values).frame
        for column in contract.columns:
            if column.unit and column.type.startswith(NUMBERS) and not column.type.endswith("[]"):
                value = pl.col(column.name)
                wrong = pl.lit(False) if column.signed else value < 0
                if column.type == "DOUBLE":
                    wrong = wrong | ~value.is_finite()
                found = frame.filter(wrong)
                assert found.is_empty(), (
                    f"{contract.ref} {values}: {column.name} is negative or not finite:\n{found}"
                )


def changed(name: str) -> Law:
    """The law that the rows of a changed world equal those of the base with the same change."""

    def law(worlds: Worlds, contract: Contract, leave: Leave) -> None:
        base, other = worlds.world("base"), worlds.world(name)
        pairs = zip(worlds.values(contract), worlds.values(other.contract(contract)), strict=True)
        for values, others in pairs:
            wanted, found = base.ask(contract, values), other.ask(contract, others)
            assert wanted.skipped == found.skipped, f"{contract.ref} {values}"
            compare(contract, other.change, wanted.frame, found.frame, leave)

    return law


def ranks(worlds: Worlds, contract: Contract, leave: Leave) -> None:
    """The rows of some ranks do not depend on other ranks."""
    if contract.scope == "rank" and contract.kind != "table":
        halves(worlds, contract, leave, "ranks")


def runs(worlds: Worlds, contract: Contract, leave: Leave) -> None:
    """The rows of some runs do not depend on other runs."""
    if contract.kind != "table":
        halves(worlds, contract, leave, "runs")


def mixed(worlds: Worlds, contract: Contract, leave: Leave) -> None:
    """The rows of some ranks of some runs do not depend on the others: `ranks` and `runs` at once."""
    if contract.kind != "table":
        halves(worlds, contract, leave, "mixed" if contract.scope == "rank" else "runs")


def halves(worlds: Worlds, contract: Contract, leave: Leave, what: str) -> None:
    """The rows of both halves equal those of all ranks, except for ranks that are skipped in a half."""
    world = worlds.world("base")
    for values in worlds.values(contract):
        whole = world.ask(contract, values)
        parts = [world.ask(contract, values, f"{what}/{half}") for half in (0, 1)]
        silent = parts[0].skipped | parts[1].skipped
        assert whole.skipped <= silent, f"{contract.ref} {values}"
        both = pl.concat([part.frame for part in parts])
        compare(contract, Change(), _without(whole, silent), both, leave)


def _without(whole: Answer, silent: Iterable[tuple[str, int]]) -> pl.DataFrame:
    frame = whole.frame
    if "rank" not in frame.columns:
        return frame
    gone = [f"{run} {rank}" for run, rank in silent]
    return frame.filter(~pl.format("{} {}", "run_id", "rank").is_in(gone).fill_null(False))


LAWS: Mapping[str, Law] = {
    "rows": rows,
    "grain": grain,
    "nulls": nulls,
    "sign": sign,
    "units": changed("units"),
    "shift": changed("shift"),
    "order": changed("order"),
    "names": changed("names"),
    "ranks": ranks,
    "runs": runs,
}
# The same with fewer answers; which of several changes is to wait_attribution is seen in LAWS.
QUICK_LAWS: Mapping[str, Law] = {
    "rows": rows,
    "grain": grain,
    "nulls": nulls,
    "sign": sign,
    "changed": changed("changed"),
    "halves": mixed,
}


def compare(
    contract: Contract, change: Change, base: pl.DataFrame, other: pl.DataFrame, leave: Leave
) -> None:
    """Both have the same rows after the change; excepted columns must differ."""
    wanted = _in_order(contract, _mapped(contract, base, change.expected))
    found = _in_order(contract, _back(contract, change, wanted, other))
    assert wanted.height == found.height, f"{contract.ref}: {wanted.height} rows, now {found.height}"
    for column in contract.columns:
        name = column.name
        same = _same(wanted[name], found[name])
        if name in leave:
            assert not same.all(), (
                f"{contract.ref}.{name} obeys the law: remove it from the list of exceptions"
            )
            continue
        if not same.all():
            raise AssertionError(
                f"{contract.ref}.{name} {change.broken}\n{_reported(contract, column, wanted, found, ~same)}"
            )


def _mapped(
    contract: Contract, frame: pl.DataFrame, change: Callable[[Column, pl.Series], pl.Series]
) -> pl.DataFrame:
    return frame.select(
        [change(column, frame[column.name]).alias(column.name) for column in contract.columns]
    )


def _back(contract: Contract, change: Change, wanted: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """The values with the inverse change; ids that are not of events (streams, for example) are unchanged."""
    columns = []
    for column in contract.columns:
        plain = other[column.name]
        back = change.found(column, plain, other)
        inverted = back is not plain and column.name != "event_id"
        if inverted and _values(wanted, column.name) == _values(other, column.name):
            back = plain
        columns.append(back.alias(column.name))
    return pl.DataFrame(columns)


def _values(frame: pl.DataFrame, name: str) -> list[tuple[object, ...]]:
    keys = [key for key in ("run_id", "rank", name) if key in frame.columns]
    return frame.select(list(dict.fromkeys(keys))).sort(pl.all(), nulls_last=True).rows()


def _in_order(contract: Contract, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sort(contract.grain, nulls_last=True)


def _same(one: pl.Series, other: pl.Series) -> pl.Series:
    if one.dtype != pl.Float64:
        return one.eq_missing(other)
    left, right = one.to_numpy(), other.to_numpy()
    near = np.abs(left - right) <= ULPS * np.spacing(np.maximum(np.abs(left), np.abs(right)))
    return pl.Series(near, dtype=pl.Boolean) & (one.is_null() == other.is_null()) | (
        one.is_null() & other.is_null()
    )


def _reported(
    contract: Contract, column: Column, wanted: pl.DataFrame, found: pl.DataFrame, wrong: pl.Series
) -> str:
    keys = [name for name in contract.grain if name != column.name]
    rows = wanted.select(*keys, pl.col(column.name).alias("wanted")).with_columns(
        found[column.name].alias("found")
    )
    with pl.Config(tbl_rows=8, fmt_str_lengths=120, tbl_width_chars=200):
        return f"{wrong.sum()} of {len(wrong)} rows differ:\n{rows.filter(wrong)}"
