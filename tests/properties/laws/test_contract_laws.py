"""Laws over every contract that need no trace."""

from __future__ import annotations

from collections.abc import Iterator

import data_laws
import pytest

from conftest import ROOT
from laws import CATALOG, EXCEPTIONS, contracts, required, variants
from tracewarehouse.contracts.catalog import WAREHOUSE_NAMES
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.devtools import checkout as devtools
from tracewarehouse.devtools.contract_checks import check_binding, check_lock
from tracewarehouse.devtools.sql_style import check_style
from tracewarehouse.duck import arrow, engine
from tracewarehouse.warehouse import Warehouse

LAWS = {"types", "style", "binding", "values", "empty", *data_laws.LAWS, *data_laws.QUICK_LAWS}


@pytest.fixture(scope="module")
def database() -> Iterator[engine.Connection]:
    with engine.connect(threads=1) as con:
        con.execute("SET enable_external_access = false")
        yield con


@pytest.fixture
def con(database: engine.Connection) -> Iterator[engine.Connection]:
    """A connection without tables: dropping those of the last test is quicker than a new database."""
    yield database
    for (name,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall():
        database.execute(f"DROP TABLE {quote_name(name)}")


@pytest.fixture(scope="module")
def keywords(database: engine.Connection) -> dict[str, str]:
    return engine.keywords(database)


@contracts("types", body=False)
def test_types_are_duckdb_s(con: engine.Connection, contract: Contract) -> None:
    engine.create_table(con, contract)
    found = con.table(contract.name)
    engine.check_columns(contract, zip(found.columns, map(str, found.types), strict=True))
    assert found.to_arrow_table().cast(arrow.schema_of(contract)).num_rows == 0


@contracts("style")
@pytest.mark.deep  # `tw dev check` is a step of CI
def test_style(keywords: dict[str, str], contract: Contract) -> None:
    assert check_style(contract, required(contract), keywords) == []


@contracts("binding")
@pytest.mark.deep  # `tw dev check` is a step of CI
def test_reads_exactly_what_it_requires(con: engine.Connection, contract: Contract) -> None:
    assert check_binding(con, contract, required(contract)) == []


@contracts("values", params=True)
def test_columns_do_not_depend_on_parameters(con: engine.Connection, contract: Contract) -> None:
    for other in required(contract):
        engine.create_table(con, other)
    for values in variants(contract):
        sql = engine.sql_with_params(contract, engine.bind(contract, values))
        engine.check_columns(contract, engine.result_columns(con, sql))


@contracts("empty")
def test_no_rows_in_no_rows_out(con: engine.Connection, contract: Contract) -> None:
    for other in required(contract):
        engine.create_table(con, other)
    found = engine.execute(con, contract, {})
    assert (found.num_rows == 0) == bool(contract.requires)
    assert found.schema == arrow.schema_of(contract)


def test_exceptions_belong_to_a_law_and_a_contract() -> None:
    assert set(EXCEPTIONS) <= LAWS
    for excepted in EXCEPTIONS.values():
        for key, reason in excepted.items():
            ref, _, column = key.partition(".")
            columns = [each.name for each in CATALOG.get(ref).columns]
            assert column in ("", *columns), key
            assert len(reason) > 20, key


def test_released_contracts_are_unchanged() -> None:
    assert list(check_lock(CATALOG)) == []


def test_no_analysis_is_named_like_an_attribute_of_warehouse() -> None:
    classes = [vars(each) for each in Warehouse.__mro__]
    own = {name for each in (*classes, vars(Warehouse("nowhere"))) for name in each if name[0] != "_"}
    assert own == WAREHOUSE_NAMES


@pytest.mark.deep  # `tw dev check` is a step of CI
def test_the_checkout_has_no_violations() -> None:
    assert devtools.check_checkout(ROOT) == []
