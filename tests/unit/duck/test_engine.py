"""The engine: parameters are bound, results checked against contracts, statements classified."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Column, Contract, Param
from tracewarehouse.duck import arrow, engine
from tracewarehouse.errors import ContractError, ParamError, QueryError

ROWS = "('a', 0, 1, 0, 100), ('a', 0, 2, 50, 100), ('a', 0, 3, 200, 20), ('b', 1, 1, 5, 0)"


@pytest.fixture
def busy(sql: Path) -> Contract:
    return Catalog.read(sql).get("gpu_busy")


@pytest.fixture
def con(sql: Path) -> Iterator[engine.Connection]:
    with engine.connect(threads=2) as con:
        engine.create_table(con, Catalog.read(sql).get("kernels"))
        con.execute(f"INSERT INTO kernels VALUES {ROWS}")
        yield con


def test_runs_the_example(con: engine.Connection, busy: Contract) -> None:
    found = engine.execute(con, busy, {}).to_pylist()
    assert [list(row.values()) for row in found] == [
        ["a", 0, 220, 170, 170 / 220],
        ["b", 1, 0, 0, None],
    ]
    assert engine.execute(con, busy, engine.bind(busy, {"gap_ns": "50ns"}))["busy_ns"].to_pylist() == [220, 0]


def test_fields_carry_the_contract(con: engine.Connection, busy: Contract) -> None:
    schema = engine.execute(con, busy, {}).schema
    assert schema.equals(arrow.schema_of(busy), check_metadata=True)
    assert schema.field("busy").metadata == {
        b"doc": b"busy_ns over span_ns; null where the span is zero.",
        b"unit": b"ratio",
        b"better": b"higher",
    }


def test_order_then_grain(con: engine.Connection, busy: Contract) -> None:
    falling = replace(busy, order=("-run_id", "busy"))
    assert engine.execute(con, falling, {})["run_id"].to_pylist() == ["b", "a"]
    assert engine.order_by(falling) == (
        'ORDER BY "run_id" DESC NULLS LAST, "busy" NULLS LAST, "rank" NULLS LAST'
    )


@pytest.mark.parametrize("order", ["ASC", "DESC"])
def test_rows_declared_in_order_are_sorted_if_they_are_not(
    con: engine.Connection, busy: Contract, order: str
) -> None:
    body = f"SELECT * FROM ({busy.body}) ORDER BY run_id {order}, rank"
    found = engine.execute(con, replace(busy, body=body, in_order=True), {})
    assert found.equals(engine.execute(con, busy, {})) and found["run_id"].to_pylist() == ["a", "b"]


def test_other_columns_are_a_diff(con: engine.Connection, busy: Contract) -> None:
    body = (
        busy.body.replace("::BIGINT", "")
        .replace("AS span_ns", "AS total_ns")
        .replace("nullif(span_ns", "nullif(total_ns")
    )
    with pytest.raises(ContractError) as error:
        engine.execute(con, replace(busy, body=body), {})
    assert error.value.message == (
        "sql/analyses/gpu/gpu_busy.v2.sql:24: the SELECT returns other columns than declared\n"
        "  declared        found\n"
        "  span_ns BIGINT  total_ns BIGINT\n"
        "  busy_ns BIGINT  busy_ns HUGEINT"
    )
    assert error.value.hint == "sum() widens to HUGEINT: write sum(…)::BIGINT"


def test_a_missing_column_shows_as_one(con: engine.Connection, busy: Contract) -> None:
    wider = replace(busy, columns=(*busy.columns, Column("share", "DOUBLE", "Share.")))
    with pytest.raises(ContractError, match=r"(?m)  share DOUBLE  -$"):
        engine.execute(con, wider, {})
    turned = replace(busy, columns=busy.columns[::-1])
    with pytest.raises(ContractError) as error:
        engine.execute(con, turned, {})
    assert error.value.hint is not None and "order differs" in error.value.hint


def test_duckdb_errors_name_the_file(con: engine.Connection, busy: Contract) -> None:
    with pytest.raises(
        QueryError, match=r"sql/analyses/gpu/gpu_busy\.v2\.sql:33: Catalog Error: .* kernel_rows"
    ):
        engine.execute(con, replace(busy, body=busy.body.replace("FROM kernels", "FROM kernel_rows")), {})


def test_python_variables_are_no_tables(con: engine.Connection) -> None:
    frame = pa.table({"x": [1]})
    assert frame.num_rows
    with pytest.raises(QueryError, match="frame does not exist"):
        engine.query(con, "SELECT x FROM frame")


@pytest.mark.parametrize(
    ("type_", "unit", "value", "wanted"),
    [
        ("BIGINT", "ns", "30us", 30_000),
        ("BIGINT", "ns", "1.5 ms", 1_500_000),
        ("BIGINT", "ns", "2s", 2_000_000_000),
        ("BIGINT", "ns", "30_000", 30_000),
        ("BIGINT", None, "-7", -7),
        ("BIGINT", None, 2**63 - 1, 2**63 - 1),
        ("DOUBLE", "ratio", "0.25", 0.25),
        ("DOUBLE", None, 1, 1.0),
        ("BOOLEAN", None, "True", True),
        ("VARCHAR", None, "it's $gap_ns -- fine", "it's $gap_ns -- fine"),
        ("BIGINT", None, None, None),
    ],
)
def test_values_become_the_declared_type(
    busy: Contract, type_: str, unit: str | None, value: object, wanted: object
) -> None:
    param = Param("x", type_, None, "X.", unit)
    one = replace(busy, params=(param,), body="SELECT $x AS a, typeof($x) AS b, '$x' AS c -- $x")
    bound = engine.bind(one, {"x": value})
    assert bound == {"x": wanted} and type(bound["x"]) is type(wanted)
    with engine.connect() as con:
        assert con.execute(engine.sql_with_params(one, bound)).fetchone() == (wanted, type_, "$x")


@pytest.mark.parametrize(
    ("type_", "unit", "value"),
    [
        ("BIGINT", None, "30us"),
        ("BIGINT", "ns", "0.5ns"),
        ("BIGINT", "ns", "30 parsecs"),
        ("BIGINT", None, True),
        ("BIGINT", None, 1.0),
        ("BIGINT", None, 2**63),
        ("INTEGER", None, 2**31),
        ("DOUBLE", None, "nan"),
        ("DOUBLE", None, "1e999"),
        ("BOOLEAN", None, 1),
        ("VARCHAR", None, 1),
        ("VARCHAR", None, "a\0b"),
    ],
)
def test_wrong_values_are_refused(busy: Contract, type_: str, unit: str | None, value: object) -> None:
    one = replace(busy, params=(Param("x", type_, None, "X.", unit),))
    with pytest.raises(ParamError, match="^x: .* is not "):
        engine.bind(one, {"x": value})


def test_limits_choices_and_names(busy: Contract) -> None:
    params = (
        Param("low_ns", "BIGINT", 0, "Low.", "ns", min=0, max=10),
        Param("side", "VARCHAR", "host", "Side.", choices=("host", "device")),
    )
    one = replace(busy, params=params)
    assert engine.bind(one, {}) == {"low_ns": 0, "side": "host"}
    for values, message, hint in [
        ({"low_ns": -1}, "low_ns: -1 is too small", "the minimum is 0"),
        ({"low_ns": 11}, "low_ns: 11 is too large", "the maximum is 10"),
        ({"low_ns": None}, "low_ns: missing value", "the default is 0"),
        ({"side": "top"}, "side: 'top' is not one of its choices", "choose one of host, device"),
        ({"low": 1}, "gpu_busy@2 has no parameter low", "did you mean low_ns?"),
        ({"zzz": 1}, "gpu_busy@2 has no parameter zzz", "it takes low_ns, side"),
    ]:
        with pytest.raises(ParamError) as error:
            engine.bind(one, values)
        assert (error.value.message, error.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("SELECT 1", "SELECT"),
        ("FROM range(3)", "SELECT"),
        ("WITH a AS (SELECT 1 AS x) INSERT INTO kernels FROM a", "INSERT"),
        ("COPY (SELECT 1) TO 'x.csv'", "COPY"),
        ("ATTACH 'x.db'", "ATTACH"),
        ("EXPLAIN SELECT 1", "EXPLAIN"),
    ],
)
def test_statements_are_classified(con: engine.Connection, statement: str, kind: str) -> None:
    assert engine.statement_kind(con, statement) == kind


@pytest.mark.parametrize("statement", ["", "SELECT 1; SELECT 2", "SELEC 1"])
def test_one_statement_or_an_error(con: engine.Connection, statement: str) -> None:
    with pytest.raises(QueryError):
        engine.statement_kind(con, statement)


def test_every_type_of_a_contract_goes_through(busy: Contract) -> None:
    types = ["BIGINT", "INTEGER", "SMALLINT", "TINYINT", "UBIGINT", "HUGEINT", "DOUBLE", "BOOLEAN"]
    types += ["VARCHAR", "JSON", "BLOB", "TIMESTAMP", "DECIMAL(28,9)", "VARCHAR[]", "BIGINT[][]"]
    types += ["MAP(VARCHAR, VARCHAR)", "MAP(VARCHAR, INTEGER)"]
    columns = tuple(Column(f"c{n}", type_, "A column.") for n, type_ in enumerate(types))
    contract = replace(busy, columns=columns, grain=("c0",), order=(), params=())
    with engine.connect() as con:
        engine.create_table(con, contract)
        con.execute("INSERT INTO gpu_busy (c0) VALUES (1)")
        found = engine.execute(con, replace(contract, body="SELECT * FROM gpu_busy"), {})
    assert found.schema == arrow.schema_of(contract) and found.num_rows == 1


def test_invalid_text_is_an_error_of_duckdb() -> None:
    with engine.connect() as con, pytest.raises(engine.UNREADABLE, match="not valid UTF-8"):
        engine.interruptible(con, lambda: b"\xb5".decode())


def test_what_any_signal_handler_raises_ends_the_query() -> None:
    class Stopped(BaseException):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with engine.connect() as con, pytest.raises(Stopped):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            engine.interruptible(
                con,
                lambda: con.execute("SELECT sum(a.range * b.range) FROM range(1000000) a, range(100000) b"),
            )
        assert [thread.name for thread in threading.enumerate() if "(work)" in thread.name] == []
    finally:
        signal.signal(signal.SIGALRM, before)


def test_columns_of_one_name_are_numbered_as_duckdb_does() -> None:
    with engine.connect() as con:
        con.execute("CREATE TABLE t AS SELECT 1 AS a, 2 AS a, 3 AS a, 4 AS A, 5 AS b")
        found = engine.query(con, "SELECT 1 AS a, 2 AS a, 3 AS a, 5 AS b")
        assert found.to_pylist() == [{"a": 1, "a_1": 2, "a_2": 3, "b": 5}]
        assert found.column_names[:3] == con.sql("FROM t").columns[:3]
