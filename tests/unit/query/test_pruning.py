"""Constants on `run_id` and `rank` select what SQL reads, and never change its answer."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from conftest import deep
from object_store import BUCKET, Proxy
from small_warehouse import kernels, small_catalog, store_run
from tracewarehouse.duck.engine import NO_LIMITS
from tracewarehouse.errors import QueryError
from tracewarehouse.query import pruning
from tracewarehouse.query.pruning import ALL, Constants, constants
from tracewarehouse.query.relations import mentioned
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse

X, XY = frozenset("x"), frozenset("xy")


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Four runs of three ranks whose names differ in case, or have a different rank."""
    folder = tmp_path_factory.mktemp("pruning")
    catalog = small_catalog(folder / "sql")
    store = Store.open_or_create(folder / "w")
    for number, run in enumerate(("x", "y", "z", "Other")):
        for rank in (0, 1, 2 + number):
            rows = [row | {"dur_ns": row["dur_ns"] + number} for row in kernels(run, rank)]
            store_run(store, catalog, run, (rank,), tables={"kernels@1": rows, "kernels@2": rows})
    return Warehouse(store.folder, catalog=catalog)


def found(wh: Warehouse, sql: str) -> Constants:
    return constants(sql, mentioned(wh.catalog, sql), NO_LIMITS)


PRUNED = {
    "SELECT count(*) FROM kernels WHERE run_id = 'x'": X,
    "SELECT count(*) FROM kernels WHERE 'x' = run_id AND dur_ns > 3": X,
    "SELECT count(*) FROM kernels AS k WHERE k.RUN_ID IN ('x', 'y')": XY,
    "SELECT count(*) FROM kernels WHERE run_id = 'x' OR run_id = 'y'": XY,
    "SELECT count(*) FROM kernels WHERE run_id = E'\\x78'": X,
    "SELECT count(*) FROM kernels WHERE run_id = $$x$$": X,
    "SELECT count(*) FROM kernels WHERE run_id = 'X'": frozenset("X"),
    "SELECT count(*) FROM kernels WHERE run_id = 'it''s'": frozenset(["it's"]),
    "WITH k AS (FROM kernels) SELECT rank, sum(dur_ns) FROM k WHERE run_id = 'x' GROUP BY rank": X,
    "WITH k AS MATERIALIZED (FROM kernels) SELECT count(*) FROM k WHERE run_id = 'x'": X,
    "SELECT r.run_id, name FROM runs r JOIN kernels k USING (run_id) WHERE run_id = 'x'": X,
    "SELECT count(*) FROM runs r LEFT JOIN kernels k ON k.run_id = r.run_id WHERE r.run_id = 'x'": X,
    "SELECT a.name FROM kernels a, kernels b WHERE a.run_id = 'x' AND b.run_id = 'y' AND a.rank = b.rank": XY,
    "SELECT (SELECT count(*) FROM kernels WHERE run_id = 'x') - count(*) FROM gemms WHERE run_id = 'y'": XY,
    "SELECT run_id FROM kernels WHERE run_id = 'x' UNION ALL SELECT run_id FROM runs WHERE run_id = 'y'": XY,
    "SELECT sum(dur_ns) OVER (PARTITION BY run_id) FROM kernels QUALIFY run_id = 'x'": X,
    "SELECT run_id, count(*) FROM gemms GROUP BY run_id HAVING run_id = 'x'": X,
    "FROM kernel_time(least_ns := 12) WHERE run_id = 'x'": X,
    "SELECT sum(sum_ns) FROM gemm_shapes WHERE run_id IN ('x', 'y')": XY,
    "SELECT name FROM kernels SEMI JOIN name_rules ON contains(name, word) WHERE run_id = 'x'": X,
    "SELECT * FROM kernels WHERE run_id = 'x' ORDER BY ts_ns, rank LIMIT 2": X,
    "SELECT * FROM kernels WHERE run_id = 'nothing'": frozenset(["nothing"]),
}  # fmt: skip

WHOLE = (
    "SELECT count(*) FROM kernels WHERE run_id = 'x' OR dur_ns > 10",
    "SELECT count(*) FROM kernels WHERE NOT run_id = 'x'",
    "SELECT count(*) FROM kernels WHERE run_id <> 'x' AND rank <> 1",
    "SELECT count(*) FILTER (run_id = 'x') FROM kernels",
    "SELECT count(*), 'x' FROM kernels",
    "SELECT max(ts_ns) - (SELECT max(ts_ns) FROM kernels WHERE run_id = 'x') FROM kernels",
    "SELECT count(*) / (SELECT count(*) FROM kernels WHERE run_id = 'x') FROM kernels",
    "SELECT (SELECT count(*) FROM kernels) FROM runs WHERE run_id = 'x'",
    "SELECT count(*) FROM kernels WHERE run_id = (SELECT max(run_id) FROM runs WHERE rank <> 'x')",
    "SELECT count(*) FROM kernels WHERE run_id = 'x' AND dur_ns > (SELECT avg(dur_ns) FROM kernels)",
    "SELECT a.name FROM kernels a, kernels b WHERE a.run_id = 'x' AND a.rank = b.rank",
    "SELECT count(*) FROM kernels k LEFT JOIN runs r ON k.run_id = r.run_id AND r.run_id = 'x'",
    "SELECT count(*) FROM kernels k ANTI JOIN runs r ON k.rank = r.version AND k.run_id = 'x'",
    "SELECT count(*) FROM runs r FULL JOIN (FROM kernels WHERE run_id = 'x') k USING (run_id)",
    "SELECT k.name, n.name FROM kernels k ASOF JOIN kernels n ON k.ts_ns > n.ts_ns WHERE n.run_id = 'x'",
    "FROM (FROM kernels ORDER BY dur_ns DESC, ALL LIMIT 3) WHERE run_id = 'x'",
    "FROM (SELECT *, row_number() OVER (ORDER BY ALL) AS at FROM kernels) WHERE run_id = 'x'",
    "SELECT run_id FROM kernels EXCEPT SELECT run_id FROM kernels WHERE run_id = 'x'",
    "SELECT run_id FROM kernels UNION SELECT run_id FROM kernels WHERE run_id = 'x'",
    "WITH k AS MATERIALIZED (FROM kernels) SELECT count(*) FROM k UNION ALL SELECT count(*) FROM k"
    " WHERE run_id = 'x'",
    "WITH kernels AS (SELECT 'x' AS run_id) FROM kernels WHERE run_id = 'x'",
    "WITH RECURSIVE r AS (SELECT 0 AS rank, 'x' AS run_id UNION ALL SELECT r.rank + 1, k.run_id FROM r"
    " JOIN kernels k ON k.rank = r.rank) SELECT run_id, count(*) FROM r WHERE run_id = 'x' GROUP BY ALL",
    "PIVOT (SELECT run_id, rank, dur_ns FROM kernels) ON run_id IN ('x', 'y') USING sum(dur_ns)",
    "PIVOT (FROM kernels WHERE run_id = 'x') ON rank USING sum(dur_ns)",
    "SELECT count(*) FROM kernels WHERE run_id = 'X' COLLATE NOCASE",
    "SELECT count(*) FROM kernels WHERE lower(run_id) = 'x'",
    "SELECT count(*) FROM kernels WHERE run_id LIKE 'x%'",
    "SELECT count(*) FROM kernels WHERE run_id >= 'x' AND run_id <= 'y'",
    "SELECT count(*) FROM kernels WHERE (run_id = 'x') IS NOT TRUE",
    "SELECT count(*) FROM kernels WHERE CASE WHEN dur_ns > 9 THEN run_id = 'x' ELSE true END",
    "SELECT count(*) FROM kernels WHERE name = E'a\\n(run_id = ''x'')\\n(rank = 1)\\nb' OR rank = 0",
    "SELECT count(*) FROM kernels WHERE name <> E'a\\n(rank = 1)\\nb' AND name <> 'run_id'",
    "SELECT count(*) FROM kernels WHERE name <> '(run_id = ''x'')' AND run_id > ''",
    "SELECT count(*) FROM kernels WHERE coalesce(run_id, 'x') = 'x' OR true",
    "SELECT sum(rows) FROM findings",
    "SELECT count(*) FROM kernels_v1 WHERE run_id = 'x' OR 1 = 1",
    "EXPLAIN SELECT count(*) FROM kernels WHERE run_id = 'x'",
    "SELECT count(*) FROM kernels WHERE run_id = getvariable('x')",
    "SELECT count(*) FROM kernels, LATERAL (SELECT 'x' AS one) WHERE run_id > one",
    "SELECT count(*) FROM name_rules WHERE word = 'run_id'",
)


def answer(wh: Warehouse, sql: str) -> object:
    """The rows without their order, or the error."""
    try:
        table = wh.query(sql).table
    except QueryError as error:
        return str(error)
    return table.schema, sorted(map(str, table.to_pylist()))


def unpruned(wh: Warehouse, sql: str, monkeypatch: pytest.MonkeyPatch) -> object:
    with monkeypatch.context() as patched:
        patched.setattr(pruning, "constants", lambda *_: ALL)
        return answer(wh, sql)


@pytest.mark.parametrize("sql", [*PRUNED, *WHOLE])
def test_constants_on_run(wh: Warehouse, sql: str) -> None:
    assert found(wh, sql).runs == PRUNED.get(sql)


# Every second answer by default: which constants are found is tested for each.
@pytest.mark.parametrize("sql", [*list(PRUNED)[::2], WHOLE[0], *deep(*list(PRUNED)[1::2], *WHOLE[1:])])
def test_answers_are_the_same(wh: Warehouse, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not sql.startswith("EXPLAIN") and "ASOF" not in sql:  # DuckDB chooses among equal times as it likes
        assert answer(wh, sql) == unpruned(wh, sql, monkeypatch)


RANKS = {
    "SELECT count(*) FROM kernels WHERE rank = 1": {1},
    "SELECT count(*) FROM kernels WHERE run_id = 'x' AND rank IN (0, 2)": {0, 2},
    "SELECT count(*) FROM gemms g JOIN kernels k USING (run_id, rank) WHERE rank = 2 AND run_id = 'x'": {2},
    "FROM launch_time WHERE rank = 1 AND run_id = 'y'": {1},
    "SELECT count(*) FROM kernels WHERE rank = -1": {-1},
    "SELECT count(*) FROM kernels WHERE rank = 1 OR run_id = 'x'": None,
    "SELECT count(*) FROM kernels k JOIN runs USING (run_id) WHERE rank = 1": None,
    "FROM gemm_shapes WHERE rank = 1": None,
    "FROM data_quality WHERE rank = 1": None,
    "SELECT count(*) FROM ranks WHERE rank = 1": None,
    "SELECT count(*) FROM kernels WHERE rank = 1.0 OR rank = 7.5": None,
    "SELECT count(*) FROM kernels a JOIN kernels b ON a.ts_ns = b.ts_ns WHERE a.rank = 1": None,
    "SELECT count(*) FROM kernels WHERE name <> E'a\\n(rank = 1)\\nb'": None,
}  # fmt: skip


@pytest.mark.parametrize("sql", RANKS)
def test_constants_on_rank(wh: Warehouse, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = RANKS[sql]
    assert found(wh, sql).ranks == (None if ranks is None else frozenset(ranks))
    assert answer(wh, sql) == unpruned(wh, sql, monkeypatch)


def test_random_queries(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nested conditions, joins and subqueries; some of them are pruned."""
    dice = random.Random(41)
    pruned = 0
    for _ in range(20):
        sql = f"SELECT count(*), sum(a.dur_ns) FROM {_joined(dice)} WHERE {_condition(dice, 2)}"
        pruned += found(wh, sql) != ALL
        assert answer(wh, sql) == unpruned(wh, sql, monkeypatch), sql
    assert pruned > 2


def _joined(dice: random.Random) -> str:
    tables = ("kernels", "gemms", f"(FROM kernels WHERE {_condition(dice, 0, '')})")
    joins = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN")
    keys = ("run_id", "rank", "event_id")
    on = " AND ".join(f"a.{key} = b.{key}" for key in keys if dice.random() < 0.6) or "true"
    if dice.random() < 0.2:
        on += f" AND {_condition(dice, 0)}"
    return f"{dice.choice(tables)} AS a {dice.choice(joins)} {dice.choice(tables)} AS b ON {on}"


def _condition(dice: random.Random, depth: int, alias: str = "a.") -> str:
    if depth and dice.random() < 0.6:
        word = "AND" if dice.random() < 0.8 else "OR"
        no = "NOT " if dice.random() < 0.1 else ""
        return f"{no}({_condition(dice, depth - 1, alias)} {word} {_condition(dice, depth - 1, alias)})"
    return dice.choice(
        (
            f"{alias}run_id = 'x'",
            f"{alias}run_id IN ('x', 'y')",
            f"{alias}run_id = 'z'",
            f"{alias}rank = 1",
            f"{alias}rank IN (0, 2)",
            f"{alias}dur_ns > 12",
        )
    )


def test_other_runs_are_not_opened(wh: Warehouse) -> None:
    result = wh.query("SELECT count(*) FROM kernels WHERE run_id = 'x'")
    assert result.provenance.runs == ("x@v3",)
    nothing = wh.query("SELECT count(*) FROM kernels WHERE run_id = 'other'")
    assert (nothing.rows(), nothing.notices) == ([{"count_star()": 0}], ("no such run: other",))
    part = wh.select(["x", "y"]).query("SELECT DISTINCT run_id FROM kernels WHERE run_id IN ('y', 'z')")
    assert part.rows() == [{"run_id": "y"}]


def test_planning_reads_no_file(wh: Warehouse, tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("run_id\nx\n")
    sql = f"SELECT count(*) FROM kernels JOIN '{file}' USING (run_id) WHERE run_id = 'x'"
    assert found(wh, sql) == ALL


def test_few_requests_among_many_runs(s3: Proxy, wh: Warehouse) -> None:
    store = Store.open_or_create(Warehouse(f"s3://{BUCKET}/pruned").root)
    for number in range(12):
        rows = kernels(f"run{number}", 0)
        store_run(store, wh.catalog, f"run{number}", [0], tables={"kernels@1": rows, "kernels@2": rows})
    s3.requests.clear()
    sql = "SELECT count(*) FROM kernels WHERE run_id = 'run7'"
    assert Warehouse(f"s3://{BUCKET}/pruned", catalog=wh.catalog).query(sql).rows() == [{"count_star()": 3}]
    assert len(s3.requests) <= 5 and len(s3.data_reads()) == 1, s3.counts()


def test_names_of_runs_that_do_not_exist_are_reported(wh: Warehouse) -> None:
    sql = "SELECT count(*) AS n FROM kernels WHERE run_id IN ('x', 'nope', 'Y')"
    assert wh.query(sql).notices[0] == "no such run: Y, nope"
    assert not any("no such run" in each for each in wh.query(sql.replace("'nope', 'Y'", "'y'")).notices)
