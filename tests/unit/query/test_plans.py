"""Query plans: a join without an equality would cost the product of its sides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import ROOT
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.duck import engine
from tracewarehouse.query.relations import dependencies

CATALOG = Catalog.load(ROOT / "sql")
# Joins by hash, also in order of time within equal keys.
LINEAR = {"HASH_JOIN", "ASOF_JOIN"}
# Rule lists have a dozen rows, and each distinct name is matched once.
RULES = {
    "regexp_matches(label, pattern)": "collective_rules over the distinct names of collectives",
    "regexp_matches(device_name, pattern)": "device_specs over the devices of runs",
    "regexp_matches(name, pattern)": "kernel_rules and call_rules over distinct names",
    "regexp_matches(op_sig, pattern)": "serving_attention_rules over distinct operators",
    "regexp_matches(((COALESCE(file, '') || ':') || COALESCE(name, '')), pattern)": "stack_rules over frames",
}


@pytest.fixture
def con() -> Iterator[engine.Connection]:
    with _connection() as con:
        yield con


@pytest.fixture(scope="module")
def shared() -> Iterator[engine.Connection]:
    with _connection() as con:
        yield con


def _connection() -> engine.Connection:
    con = engine.connect(threads=1)
    # Plans over empty tables must equal those over full ones.
    con.execute("SET disabled_optimizers = 'empty_result_pullup,statistics_propagation'")
    return con


def operators(con: engine.Connection, sql: str) -> list[dict[str, Any]]:
    """Every operator of the plan of a SELECT, children after parents."""
    ((_, text),) = con.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall()
    found: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = json.loads(text)
    while waiting:
        found.append(waiting.pop())
        waiting += found[-1].get("children", [])
    return found


def dear_joins(con: engine.Connection, sql: str) -> list[str]:
    """The joins of a plan that compare all pairs of rows, except those with rule lists."""
    joins = [op for op in operators(con, sql) if "JOIN" in op["name"] or "PRODUCT" in op["name"]]
    return [
        f"{op['name'].strip()} {op['extra_info']}"
        for op in joins
        if op["name"].strip() not in LINEAR or not _has_equality(op)
        if not (op["extra_info"].get("Condition") in RULES and _over_names(op))
        if not (op["name"].strip() == "CROSS_PRODUCT" and any(map(_is_constant, op["children"])))
    ]


def _has_equality(join: dict[str, Any]) -> bool:
    conditions = join["extra_info"].get("Conditions", "")
    listed = conditions if isinstance(conditions, list) else [conditions]
    return any(" = " in each or "IS NOT DISTINCT FROM" in each for each in listed)


def _is_constant(side: dict[str, Any]) -> bool:
    """Whether a side of a join reads rules only, no table."""
    is_scan = side["name"].strip() in ("SEQ_SCAN", "TABLE_SCAN", "CTE_SCAN")
    return not is_scan and all(map(_is_constant, side.get("children", [])))


def _over_names(join: dict[str, Any]) -> bool:
    return any(child["name"].strip() == "HASH_GROUP_BY" for child in join["children"])


def made(con: engine.Connection, contract: Contract) -> str:
    """Creates the tables that a contract reads, empty; returns its SELECT, with all views in a `WITH` clause.

    Each view is planned once, as in the queries of a warehouse.
    """
    # Compatible versions of a table have one name: the newest has the columns of all.
    newest: dict[str, Contract] = {}
    for each in dependencies(CATALOG, [contract]):
        newest[each.name] = max(each, newest.get(each.name, each), key=lambda one: one.version)
    views = []
    for other in newest.values():
        if other.kind == "view" or other.is_constant:
            views.append(f"{other.name} AS (\n{_select(other)}\n)")
        else:
            con.execute(f"DROP TABLE IF EXISTS {other.name}")
            engine.create_table(con, other)
    clause = f"WITH {', '.join(views)} " if views else ""
    return f"{clause}SELECT * FROM (\n{_select(contract)}\n)"


def _select(contract: Contract) -> str:
    return engine.sql_with_params(contract, engine.bind(contract, {}))


@pytest.mark.parametrize("contract", [*CATALOG.analyses(), *CATALOG.views()], ids=lambda each: each.name)
def test_every_join_has_an_equality(shared: engine.Connection, contract: Contract) -> None:
    assert dear_joins(shared, made(shared, contract)) == []


@pytest.mark.parametrize(
    "condition",
    ["one.ts_ns < other.ts_ns", "one.ts_ns BETWEEN other.ts_ns AND other.ts_ns + other.dur_ns", "true"]
    + ["regexp_matches(one.name, other.name)", "one.rank <> other.rank"],
)
def test_a_join_without_one_is_found(con: engine.Connection, condition: str) -> None:
    engine.create_table(con, CATALOG.get("kernels"))
    found = dear_joins(con, f"SELECT count(*) FROM kernels AS one JOIN kernels AS other ON {condition}")
    assert len(found) == 1


def test_a_join_by_time_is_kept_if_few_rows_are_estimated(con: engine.Connection) -> None:
    """A filter that keeps more rows than DuckDB estimates must not lead to a nested-loop join."""
    con.execute("RESET disabled_optimizers")
    name = "CASE WHEN i % 5 > 0 THEN '[memory]' ELSE i::VARCHAR END"
    con.execute(
        f"CREATE TABLE event AS SELECT i AS ts, i % 2 AS pid, {name} AS name FROM range(9000) AS t (i)"
    )
    few = "SELECT * FROM event WHERE name = '[memory]'"
    joins = (
        "ASOF JOIN event AS other ON other.pid = few.pid AND other.ts <= few.ts",
        "JOIN event AS other ON other.ts < few.ts AND other.pid > few.pid",
    )
    for join in joins:
        names = {op["name"].strip() for op in operators(con, f"FROM ({few}) AS few {join}")}
        assert not names & {"NESTED_LOOP_JOIN", "PIECEWISE_MERGE_JOIN"}, names
