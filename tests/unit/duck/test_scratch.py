"""Connections that share a database see only their own tables."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tracewarehouse.duck.engine import Connection, Error, scratch


def databases(con: Connection) -> list[str]:
    return [name for (name,) in con.execute("SELECT database_name FROM duckdb_databases()").fetchall()]


def test_tables_of_one_connection_are_hidden_from_others_and_dropped() -> None:
    with scratch(1) as outer:
        outer.execute("CREATE TABLE numbers AS SELECT 1 AS n")
        with scratch(1) as inner:
            inner.execute("CREATE TABLE numbers AS SELECT 2 AS n")
            assert inner.execute("FROM numbers").fetchall() == [(2,)]
        assert outer.execute("FROM numbers").fetchall() == [(1,)]
        before = databases(outer)
    with scratch(1) as next_one, pytest.raises(Error, match="numbers"):
        assert len(databases(next_one)) == len(before)
        next_one.execute("FROM numbers")


def test_after_an_error_the_next_connection_has_another_database() -> None:
    with pytest.raises(RuntimeError), scratch(1) as failed:
        failed.execute("ATTACH ':memory:' AS left_over")
        raise RuntimeError
    with scratch(1) as con:
        assert "left_over" not in databases(con)


def test_threads_use_it_at_the_same_time() -> None:
    def total(number: int) -> int:
        with scratch(1) as con:
            con.execute(f"CREATE TABLE numbers AS FROM range({number}) AS of_range(n)")
            return int(con.execute("SELECT sum(n) FROM numbers").fetchall()[0][0])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(total, range(1, 33))) == [n * (n - 1) // 2 for n in range(1, 33)]


def test_a_forked_process_opens_its_own_database() -> None:
    with scratch(1) as con:
        con.execute("SELECT 1")
    child = os.fork()
    if child == 0:
        with scratch(1) as con:
            os._exit(0 if con.execute("SELECT 41 + 1").fetchall() == [(42,)] else 1)
    assert os.waitpid(child, 0)[1] == 0
