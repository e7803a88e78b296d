"""Connections: relations over the selected files only, empty relations with types, rules per run, needs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from later_release import newer_sql
from small_warehouse import START, kernel, kernels, small_catalog, store_run
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.duck.engine import _OF_MANY_ROWS, Connection, Error, connect
from tracewarehouse.errors import QueryError, UnknownName, WarehouseError
from tracewarehouse.query import connections
from tracewarehouse.query.connections import ConnectionPool, check_reads_only, connection, lock, rank_batches
from tracewarehouse.query.relations import Dependencies, Relations, mentioned, queryable, shared_views
from tracewarehouse.runs.readable import readable_runs, with_capabilities
from tracewarehouse.runs.rows import most_frequent, recording_limits
from tracewarehouse.runs.selection import SelectedRun, narrow, only_ranks, select_runs
from tracewarehouse.storage.model import Changes
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse

NAME = "it's a=b [c]*? warehouse"


def catalog_of(folder: Path) -> Catalog:
    """Contracts with one version of each table."""
    return small_catalog(folder, without=["tables/kernels.v2.sql", "analyses/gpu/doubled_time.v1.sql"])


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return catalog_of(tmp_path_factory.mktemp("catalog") / "sql")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open_or_create(tmp_path / NAME, tool="1.2")


def answer(pool: ConnectionPool, selected: tuple[SelectedRun, ...], contract: Contract) -> pa.Table:
    return pool.execute(selected, contract, {}, Dependencies.of(pool.catalog, [contract]))


def rows_of(
    store: Store, catalog: Catalog, selected: tuple[SelectedRun, ...], sql: str
) -> list[tuple[object, ...]]:
    with connection(store, catalog, selected) as con:
        return list(con.execute(sql).fetchall())


def test_an_empty_warehouse_has_every_table_empty_and_typed(store: Store, catalog: Catalog) -> None:
    for contract in (*catalog.tables(), *catalog.views()):
        if not contract.transient and contract.name != "name_rules":
            columns = [(column.name, column.type) for column in contract.columns]
            with connection(store, catalog, ()) as con:
                relation = con.sql(f"SELECT * FROM {contract.name}")
                found = list(zip(relation.columns, map(str, relation.types), strict=True))
                assert (found, relation.fetchall()) == (columns, []), contract.name


def test_only_selected_runs_and_ranks_are_visible(store: Store, catalog: Catalog) -> None:
    store_run(store, catalog, "a", packed=True)
    store_run(store, catalog, "b", (0, 1, 2), packed=False)
    everything = select_runs(store)
    counts = "SELECT run_id, rank, count(*) FROM kernels GROUP BY ALL ORDER BY ALL"
    assert rows_of(store, catalog, everything, counts) == [
        ("a", 0, 3), ("a", 1, 3), ("b", 0, 3), ("b", 1, 3), ("b", 2, 3),
    ]  # fmt: skip
    part = only_ranks(everything, [1, 2])
    assert rows_of(store, catalog, part, counts) == [("a", 1, 3), ("b", 1, 3), ("b", 2, 3)]
    assert rows_of(store, catalog, narrow(part, ["a"]), counts) == [("a", 1, 3)]
    assert rows_of(store, catalog, only_ranks(everything, [2]), "SELECT run_id FROM runs") == [("b",)]
    with pytest.raises(UnknownName) as raised:
        only_ranks(everything, [7])
    assert raised.value.hint == "available: 0-2"


def test_a_replaced_rank_of_a_packed_file_is_read_once(store: Store, catalog: Catalog) -> None:
    store_run(store, catalog, "a", (0, 1, 2))
    for content in ("b", "c"):
        rows = {"kernels@1": [kernel("a", 1, 0, content, 7)]}
        store_run(store, catalog, "a", (1,), tables=rows, content=content, replace=True)
    rows = rows_of(
        store, catalog, select_runs(store), "SELECT rank, name FROM kernels ORDER BY rank, event_id"
    )
    names = ["gemm", "it's relu", "copy"]
    assert rows == [*((0, name) for name in names), (1, "c"), *((2, name) for name in names)]
    store.publish("a", Changes(drop_ranks=(0,)))
    assert rows_of(store, catalog, select_runs(store), "SELECT DISTINCT rank FROM kernels ORDER BY 1") == [
        (1,),
        (2,),
    ]
    assert rows_of(store, catalog, select_runs(store, ["a@v1"]), "SELECT count(*) FROM kernels") == [(9,)]


def test_a_folder_that_looks_like_a_hive_partition_adds_no_column(store: Store, catalog: Catalog) -> None:
    store_run(store, catalog, "rank=7")
    with connection(store, catalog, select_runs(store)) as con:
        rows = con.execute("SELECT * FROM kernels").fetchall()
        assert {(row[0], row[1]) for row in rows} == {("rank=7", 0), ("rank=7", 1)}
        assert len(rows[0]) == 6


def test_runs_and_ranks_describe_what_was_published(store: Store, catalog: Catalog) -> None:
    store_run(store, catalog, "a", labels={"commit": "3f2a"}, expected_ranks=2)
    (row,) = rows_of(store, catalog, select_runs(store), "SELECT * EXCLUDE (ingested_at, bytes) FROM runs")
    end = START + 1_000_000
    labels, schemas = {"commit": "3f2a"}, {"kernels": 1}
    assert row == ("a", labels, START, end, 2, 2, 2, ["H100"], [], schemas, "1.2", 1, "complete")
    sql = "SELECT rank, source_name, status, header, gpu, stacks, format_version FROM ranks ORDER BY rank"
    ranks = rows_of(store, catalog, select_runs(store), sql)
    assert ranks[1] == (1, "a-rank1.json.gz", "intact", '{"distributedInfo": {"rank": 1}}', True, None, 1)


def test_ingest_time_is_utc(store: Store, catalog: Catalog) -> None:
    store_run(store, catalog, "a")
    sql = "SELECT abs(epoch(r.ingested_at) - epoch(now())) < 600 FROM ranks r JOIN runs USING (run_id)"
    assert rows_of(store, catalog, select_runs(store), f"SET TimeZone = 'Asia/Tokyo'; {sql}") == [
        (True,),
        (True,),
    ]


def test_issues_of_a_run_are_added_to_the_stored_ones(store: Store, catalog: Catalog) -> None:
    stored = {"run_id": "a", "rank": 0, "rule": "negative_duration", "severity": "warning", "rows": 4}
    store_run(store, catalog, "a", (0, 1), tables={"data_quality@1": [stored]}, world_size=6)
    odd = {
        "world_size": 4,
        "base_time_ns": 5,
        "start_ns": 1,
        "end_ns": 2,
        "rank_in_file": 0,
    }
    store_run(store, catalog, "a", (3,), tables={}, **odd)
    columns = "rank, rule, severity, rows, example"
    rows = rows_of(
        store, catalog, select_runs(store), f"SELECT {columns} FROM data_quality ORDER BY rule, rank"
    )
    assert rows == [
        (0, "negative_duration", "warning", 4, None),
        (0, "negative_duration", "warning", 4, None),
        (3, "rank_conflict", "warning", 1, "the file says rank 0"),
        (None, "ranks_missing", "warning", 3, "ranks 2, 4-5 of 6 are missing"),
        (3, "time_base_differs", "warning", 1, f"base 5 ns, most ranks have {START - 1000} ns"),
        (3, "world_size_differs", "warning", 1, "world size 4, most ranks have 6"),
    ]
    some = rows_of(store, catalog, only_ranks(select_runs(store), [1]), "SELECT rank, rule FROM data_quality")
    assert some == [(None, "ranks_missing")]


def test_a_world_size_that_no_job_has_is_ignored(store: Store, catalog: Catalog) -> None:
    store_run(store, catalog, "a", (0, 1), world_size=10**9, expected_ranks=None)
    store_run(store, catalog, "b", (0,), world_size=2**63, pid=5, device_count="x")
    sql = "SELECT run_id, rank, rule, example FROM data_quality ORDER BY run_id, rank"
    rule = "implausible_world_size"
    assert rows_of(store, catalog, select_runs(store), sql) == [
        ("a", 0, rule, "world size 1000000000 is ignored"),
        ("a", 1, rule, "world size 1000000000 is ignored"),
        ("b", 0, rule, "world size 9223372036854775808 is ignored"),
    ]
    sql = "SELECT run_id, world_size, ranks_expected, state FROM runs ORDER BY run_id"
    expected = [("a", None, None, "complete"), ("b", None, None, "complete")]
    assert rows_of(store, catalog, select_runs(store), sql) == expected
    sql = "SELECT run_id, max(world_size), max(pid), max(device_count) FROM ranks GROUP BY run_id ORDER BY 1"
    found = rows_of(store, catalog, select_runs(store), sql)
    assert found == [("a", None, None, None), ("b", None, None, None)]
    (limit, _) = recording_limits(select_runs(store, ["a"]))
    assert (limit["rank"], limit["reason"]) == (0, rule)


def test_another_time_base_is_harmless_if_windows_overlap(store: Store, catalog: Catalog) -> None:
    store_run(store, catalog, "a", (0, 1))
    store_run(store, catalog, "a", (2,), base_time_ns=START)
    rows = rows_of(
        store, catalog, select_runs(store), "SELECT rank, severity FROM data_quality WHERE rule LIKE 'time%'"
    )
    assert rows == [(2, "info")]


def test_ranks_without_needed_data_are_skipped_with_the_first_reason(store: Store, catalog: Catalog) -> None:
    contract = catalog.get("gemm_shapes")
    store_run(store, catalog, "a", (0, 1))
    store_run(store, catalog, "a", (2,), shapes=False, steps=1)
    store_run(store, catalog, "a", (3,), steps=1)
    store_run(store, catalog, "b", (0, 1), shapes=None)
    store_run(store, catalog, "c", (0,))
    found = with_capabilities(contract, select_runs(store))
    assert [(each.run, each.ranks) for each in found.selected] == [("a", (0, 1))]
    skipped = [(each.run_id, each.rank, each.reason) for each in found.skipped]
    assert sorted(skipped) == [
        ("a", 2, "no input shapes recorded"),
        ("a", 3, "requires 2 steps, found 1"),
        ("b", 0, "no input shapes recorded"),
        ("b", 1, "no input shapes recorded"),
        ("c", 0, "requires 2 ranks, found 1"),
    ]


def test_a_connection_for_an_analysis_has_only_its_dependencies(store: Store, catalog: Catalog) -> None:
    store_run(store, catalog, "a")
    with connection(store, catalog, select_runs(store), [catalog.get("gemm_shapes")]) as con:
        sql = "SELECT table_name FROM information_schema.tables ORDER BY 1"
        assert con.execute(sql).fetchall() == [("gemms",), ("kernels",), ("name_rules",), ("ranks",)]


def test_two_versions_of_a_table_have_two_relations(store: Store, tmp_path: Path) -> None:
    catalog = small_catalog(tmp_path / "sql")
    both = {"kernels@1": kernels("a", 0), "kernels@2": [row | {"dur_ns": 99} for row in kernels("a", 0)]}
    store_run(store, catalog, "a", (0,), tables=both)
    with connection(store, catalog, select_runs(store), [catalog.get("doubled_time")]) as con:
        assert con.execute("SELECT sum(dur_ns) FROM kernels").fetchall() == [(297,)]
        assert con.execute("SELECT sum(dur_ns) FROM kernels_v1").fetchall() == [(34,)]
        assert con.execute("SELECT sum(dur_ns) FROM gemms").fetchall() == [(14,)]
    both = [catalog.get("kernels@1"), catalog.get("kernels@2")]
    assert readable_runs(catalog, both, select_runs(store)).notices == ()


def test_a_rank_with_another_version_is_excluded(store: Store, tmp_path: Path) -> None:
    catalog = small_catalog(tmp_path / "sql")
    store_run(store, catalog, "a", (0,))
    rebuilt = {"kernels@2": kernels("b", 0)}
    for run, tables in {"b": rebuilt, "c": {}, "d": {}, "e": {}}.items():
        said = {"d": {"kernels": [1]}, "e": {"kernels": [1, 2]}}.get(run)
        store_run(store, catalog, run, (0,), tables=tables, listed_tables=said)
    newest = catalog.get("kernels")
    found = readable_runs(catalog, [newest], select_runs(store))
    assert [each.run for each in found.selected] == ["b", "c", "e"]
    assert found.notices == (
        "excluded a, d, stored without kernels@2: wh.upgrade() rebuilds the newest version of each run",
    )


def test_a_missing_file_is_an_error_that_names_it(store: Store, catalog: Catalog) -> None:
    store_run(store, catalog, "a")
    for path in (store.folder / "data").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(WarehouseError) as raised, connection(store, catalog, select_runs(store)):
        pass
    assert "kernels@1 cannot be read" in raised.value.message and ".parquet" in raised.value.message
    assert raised.value.hint is not None and "wh.verify()" in raised.value.hint


@pytest.fixture(scope="module")
def locked_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("locked")


@pytest.fixture(scope="module")
def locked(locked_folder: Path, catalog: Catalog) -> object:
    (locked_folder / "secret.csv").write_text("a\n1\n")
    store = Store.open_or_create(locked_folder / NAME)
    store_run(store, catalog, "a")
    with connection(store, catalog, select_runs(store)) as con:
        lock(con, store.folder / "data")
        yield con


READS = (
    "SELECT count(*) FROM kernels",
    "WITH a AS (SELECT 1 AS x) SELECT x FROM a",
    "FROM kernels",
    "VALUES (1)",
    "DESCRIBE kernels",
    "SHOW TABLES",
    "SUMMARIZE kernels",
    "EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE SELECT count(*) FROM kernels",
    "PIVOT kernels ON rank USING sum(dur_ns) GROUP BY name",
    "SELECT 'COPY x TO y'; -- one statement",
)


@pytest.mark.parametrize("sql", READS)
def test_statements_that_only_read_are_allowed(locked: Connection, sql: str) -> None:
    check_reads_only(locked, sql)
    assert locked.execute(sql).fetchall()


@pytest.mark.parametrize(
    "sql",
    [
        "COPY kernels TO 'x.csv'",
        "CREATE TABLE x AS SELECT 1",
        "INSERT INTO runs SELECT * FROM runs",
        "DELETE FROM runs",
        "DROP TABLE runs",
        "SET threads = 1",
        "PRAGMA database_list",
        "CALL pragma_version()",
        "ATTACH 'x.duckdb'",
        "INSTALL httpfs",
        "EXPORT DATABASE 'pivot'",
        "EXPLAIN ANALYZE COPY kernels TO 'x.csv'",
        "EXPLAIN EXPLAIN COPY kernels TO 'x.csv'",
        "SELECT 1; DROP TABLE runs",
        "",
        "SELEC 1",
    ],
)
def test_other_statements_are_refused(locked: Connection, sql: str) -> None:
    with pytest.raises(QueryError):
        check_reads_only(locked, sql)


def test_a_query_cannot_read_other_files(locked: Connection, locked_folder: Path) -> None:
    tmp_path = locked_folder
    secret = str(tmp_path / "secret.csv").replace("'", "''")
    for sql in (
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT * FROM read_text('{secret}')",
        f"SELECT * FROM glob('{tmp_path}/*')",
        f"SELECT * FROM '{secret}'",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET allowed_directories = ['/']",
        f"ATTACH '{tmp_path}/x.duckdb'",
        f"COPY kernels TO '{tmp_path}/x.csv'",
        "SELECT * FROM read_csv('data/../../secret.csv')",
        f"SELECT * FROM read_csv('{tmp_path}/it''s a=b [c]*? warehouse/data/../../secret.csv')",
    ):
        with pytest.raises(Exception, match="Error"):
            locked.execute(sql).fetchall()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        NAME,
        "secret.csv",
    ]


def test_ties_of_the_most_frequent_value_go_to_the_first() -> None:
    assert most_frequent([8, None, 16]) == 8
    assert most_frequent([8, 16, 16]) == 16
    assert most_frequent([None, "8"]) is None


def test_a_connection_is_reused_with_its_views(store: Store, catalog: Catalog) -> None:
    store_run(store, catalog, "a")
    store_run(store, catalog, "b")
    pool = ConnectionPool(store, catalog)
    everything = select_runs(store)
    time, gemms = [catalog.get("kernel_time")], [catalog.get("gemms")]
    with pool.connection(everything, time) as first:
        assert first.sql("SELECT count(*) FROM kernels").fetchall() == [(12,)]
    with pool.connection(everything, gemms) as second:
        assert second is first
        assert second.sql("SELECT count(*) FROM gemms").fetchall() == [(8,)]
        with pool.connection(everything, time) as third:  # the first one is lent
            assert third is not first
    with pool.connection(narrow(everything, ["b"]), time) as other:
        assert other.sql("SELECT DISTINCT run_id FROM kernels").fetchall() == [("b",)]
    store_run(store, catalog, "b", (0,), content="new", replace=True)
    with pool.connection(select_runs(store), time) as newer:
        assert all(newer is not old for old in (first, third, other))


def test_few_events_are_queried_with_one_thread(
    store: Store, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_run(store, catalog, "a")
    selected, time = select_runs(store), [catalog.get("kernel_time")]

    def threads() -> tuple[object, ...]:
        with ConnectionPool(store, catalog).connection(selected, time) as con:
            return con.execute("SELECT current_setting('threads')").fetchall()[0]

    assert threads() == (1,)
    monkeypatch.setattr(connections, "_ONE_THREAD_EVENTS", -1)
    with connect() as con:
        assert threads() == con.execute("SELECT current_setting('threads')").fetchall()[0]


def test_failed_and_surplus_connections_are_closed(store: Store, catalog: Catalog) -> None:
    store_run(store, catalog, "a", tuple(range(10)))
    pool = ConnectionPool(store, catalog)
    time = [catalog.get("kernel_time")]

    def lent(rank: int) -> Connection:
        with pool.connection(only_ranks(select_runs(store), [rank]), time) as con:
            return con

    with (
        pytest.raises(ZeroDivisionError),
        pool.connection(only_ranks(select_runs(store), [0]), time) as failed,
    ):
        raise ZeroDivisionError
    first = lent(0)
    assert first is not failed and lent(0) is first
    for rank in range(1, 10):
        lent(rank)
    assert lent(0) is not first
    with pytest.raises(Error, match="closed"):
        first.execute("SELECT 1")


def test_a_connection_with_another_version_of_a_table_is_not_reused(tmp_path: Path) -> None:
    catalog = small_catalog(tmp_path / "sql")
    store = Store.open_or_create(tmp_path / "w")
    pool = ConnectionPool(store, catalog)
    with pool.connection((), [catalog.get("kernel_time")]) as one:
        assert "kernels_v2" not in str(one.sql("SHOW TABLES").fetchall())
    with pool.connection((), [catalog.get("doubled_time")]) as two:
        assert two is not one


def test_a_view_is_materialized_by_its_second_reader_without_changing_rows(
    store: Store, catalog: Catalog
) -> None:
    store_run(store, catalog, "a")
    pool = ConnectionPool(store, catalog)
    contract = catalog.get("gemm_shapes")
    answers = [answer(pool, select_runs(store), contract) for _ in range(3)]
    assert answers[0].num_rows == 2 and answers[1] == answers[0] == answers[2]
    ((_, analyses),) = pool._idle
    tables = analyses.con.sql("SELECT table_name FROM duckdb_tables()").fetchall()
    assert tables == [("gemms",)]
    with pool.connection(select_runs(store), [contract]) as con:
        assert con.sql("SELECT count(*) FROM kernels").fetchall() == [(6,)]


def test_a_view_that_announced_analyses_share_is_materialized_by_its_first_reader(
    store: Store, catalog: Catalog
) -> None:
    store_run(store, catalog, "a")
    contract, gemms = catalog.get("gemm_shapes"), catalog.get("gemms")
    assert shared_views(catalog, [contract]) == frozenset()
    assert shared_views(catalog, [contract, gemms]) == {gemms.ref}
    plain = ConnectionPool(store, catalog)
    expected = answer(plain, select_runs(store), contract)
    pool = ConnectionPool(store, catalog)
    pool.will_read([contract, gemms])
    assert answer(pool, select_runs(store), contract) == expected
    (((_, before),), ((_, after),)) = plain._idle, pool._idle
    assert (list(before.created), list(after.created)) == ([], ["gemms"])


def test_a_shared_view_is_dropped_when_all_that_were_announced_have_read_it(
    store: Store, catalog: Catalog
) -> None:
    store_run(store, catalog, "a")
    first = catalog.get("gemm_shapes")
    second = replace(first, name="second_gemm_shapes")
    expected = answer(ConnectionPool(store, catalog), select_runs(store), first)
    both = replace(catalog, contracts={**catalog.contracts, second.ref: second})
    pool = ConnectionPool(store, both)
    pool.will_read([first, second])
    assert answer(pool, select_runs(store), first) == expected
    ((_, opened),) = pool._idle
    assert list(opened.created) == ["gemms"]
    for analysis in (second, first):
        assert answer(pool, select_runs(store), analysis) == expected
        assert opened.created == {}, "the tables that are left"


def test_views_below_a_shared_one_are_computed_with_it() -> None:
    catalog = Catalog.load()
    segments, account = catalog.get("account_segments"), catalog.get("step_account")
    assert shared_views(catalog, [segments, account]) == {segments.ref}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT run_id, count(*) AS n FROM kernels AS kernel GROUP BY run_id",
        "WITH few AS (SELECT * FROM gemms) SELECT run_id, count(*) AS n FROM few GROUP BY run_id",
        "WITH kernels AS (SELECT * FROM kernels LIMIT 2) SELECT run_id, count(*) FROM kernels GROUP BY ALL",
    ],
    ids=["plain", "with clause", "a relation defined again"],
)
def test_sql_over_relations_has_the_rows_of_sql_over_views(store: Store, catalog: Catalog, sql: str) -> None:
    store_run(store, catalog, "a")
    contracts = mentioned(catalog, sql).contracts
    pool = ConnectionPool(store, catalog)
    with pool.connection(select_runs(store), contracts) as con:
        expected = con.execute(sql).fetchall()
    with pool.with_relations(select_runs(store), contracts, sql) as (con, complete):
        assert con.execute(complete).fetchall() == expected


def test_sql_of_the_library_returns_the_only_run_as_text(store: Store, catalog: Catalog) -> None:
    store_run(store, catalog, "a")
    rows = Warehouse(store.folder, catalog=catalog).query("SELECT run_id FROM kernels", limits=None).table
    assert rows.schema.field("run_id").type == pa.string()
    assert rows.schema.field("run_id").metadata == {b"type": b"VARCHAR"}


def test_a_missing_file_is_named_by_an_analysis(store: Store, catalog: Catalog) -> None:
    store_run(store, catalog, "a")
    for path in store.folder.glob("data/kernels/a/*.parquet"):
        path.unlink()
    with pytest.raises(WarehouseError, match="kernels@1 cannot be read"):
        answer(ConnectionPool(store, catalog), select_runs(store), catalog.get("kernel_time"))


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT 1", set()),
        ("FROM kernels", {"kernels"}),
        ('SELECT * FROM "Kernels" JOIN steps USING (step)', {"kernels", "steps"}),
        ("FROM query('FROM kernels')", {"kernels"}),
        ("FROM operators", {"operators", "events"}),
        ("FROM parsed", set()),
    ],
)
def test_only_relations_that_a_query_may_name_are_created(sql: str, names: set[str]) -> None:
    found = {contract.name for contract in mentioned(Catalog.load(), sql).contracts}
    assert names <= found < {contract.name for contract in queryable(Catalog.load())}
    assert bool(names) == bool(found)


@pytest.mark.parametrize(
    "sql", ["SHOW TABLES", "FROM duckdb_views()", "SELECT * FROM information_schema.tables"]
)
def test_queries_that_list_relations_see_all_of_them(sql: str) -> None:
    named = mentioned(Catalog.load(), sql)
    assert named.lists and named.contracts == queryable(Catalog.load())


def test_batches_of_ranks_give_the_same_rows(
    store: Store, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run, ranks in (("b", (0, 1, 2)), ("a", (0, 1)), ("c", (0,))):
        store_run(store, catalog, run, ranks, events=10)
    by_rank, by_time, by_run = (catalog.get(name) for name in ("launch_time", "kernel_time", "findings"))
    whole = answer(ConnectionPool(store, catalog), select_runs(store), by_rank)
    monkeypatch.setattr("tracewarehouse.query.connections.BATCH_EVENTS", 20)
    parts = rank_batches(by_rank, [catalog.get("kernels")], select_runs(store))
    found = [[(each.run, each.ranks) for each in part] for part in parts]
    assert found == [[("a", (0, 1))], [("b", (0, 1))], [("b", (2,)), ("c", (0,))]]
    assert answer(ConnectionPool(store, catalog), select_runs(store), by_rank) == whole
    for other, read in ((by_time, "kernels"), (by_run, "kernels"), (by_rank, "data_quality")):
        assert len(rank_batches(other, [catalog.get(read)], select_runs(store))) == 1


def test_a_version_that_is_not_read_does_not_take_the_bare_name(tmp_path: Path) -> None:
    catalog = Catalog.load(newer_sql(tmp_path))
    tables = [catalog.get(name, kind="table") for name in ("critical_enqueues", "kernels")]
    assert {ref.version for ref in tables[0].requires if ref.name == "kernels"} == {1}
    names = Dependencies.of(catalog, tables).names
    assert names[tables[1].ref] == "kernels" and tables[1].version == 2


def test_optimizers_for_many_rows_are_off_for_few(
    store: Store, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_run(store, catalog, "a", packed=True)
    selected = select_runs(store)
    off = []
    for most in (connections._FEW_EVENTS, -1):
        monkeypatch.setattr(connections, "_FEW_EVENTS", most)
        with ConnectionPool(store, catalog).connection(selected, catalog.views()) as con:
            off.append(con.execute("SELECT current_setting('disabled_optimizers')").fetchall()[0][0])
    known = {name for (name,) in connect().execute("SELECT name FROM duckdb_optimizers()").fetchall()}
    assert set(off[0].split(",")) == set(_OF_MANY_ROWS) and known > set(_OF_MANY_ROWS)
    assert not off[1]


def test_a_sparing_pool_answers_what_does_not_fit_in_its_memory(
    store: Store, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_run(store, catalog, "a", (0, 1, 2), events=10)
    selected, contract = select_runs(store), catalog.get("kernel_time")
    whole = answer(ConnectionPool(store, catalog), selected, contract)
    monkeypatch.setattr(connections, "_FEW_EVENTS", -1)
    limits = []
    for bytes_ in (300_000_000, 200_000):  # the second is too little for any query
        monkeypatch.setattr(connections, "_SPARING_BYTES", bytes_)
        pool = ConnectionPool(store, catalog)
        pool.is_sparing = True
        assert answer(pool, selected, contract) == whole
        with pool._borrowed(Relations(store, selected, Dependencies.of(catalog, [contract]))) as opened:
            limits += opened.con.execute("SELECT current_setting('memory_limit')").fetchall()
    assert limits[0] == ("286.1 MiB",) and limits[1] != ("195.3 KiB",)
    with pytest.raises(QueryError, match="Out of Memory"):
        answer(ConnectionPool(store, catalog, memory_bytes=200_000), selected, contract)
