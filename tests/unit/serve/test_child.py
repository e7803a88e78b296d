"""Calls in reused children: what SQL of users answers, what ends a child, and that it sees new runs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import ROOT
from tracewarehouse.duck.engine import QueryLimitError
from tracewarehouse.errors import QueryError, UnknownName, WarehouseError
from tracewarehouse.limits import Limits
from tracewarehouse.serve.child import LimitedCalls, Statement

FIRST_STEPS = ROOT / "tests" / "data" / "first-steps"
# Neither is counted or interrupted by DuckDB.
ENDLESS = "SELECT sum(a.range * b.range % 7) FROM range(10000000) AS a, range(10000000) AS b"
HOG = "SELECT max(i) FROM (SELECT unnest(range(500000000)) i)"
COUNT = "SELECT run_id, count(*) AS n FROM kernels GROUP BY run_id"
pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="has no /proc")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tw.open(tmp_path / "wh").ingest(FIRST_STEPS / "rank0.json.gz", run="first", jobs=1)
    return tmp_path / "wh"


def own_children() -> list[int]:
    """The children of all threads of this process that answer calls; other tests may have left helpers."""
    tasks = Path("/proc/self/task").glob("*/children")
    children = [child for path in tasks for child in path.read_text().split()]
    return [
        int(child)
        for child in children
        if b"tracewarehouse.serve" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


async def rows(calls: LimitedCalls, sql: str, limits: Limits = Limits(), **more: Any) -> Any:  # noqa: B008
    """The rows of a statement."""
    return json.loads(await calls.query(Statement(sql, **more), limits))["result"]


def run(root: Path, work: Callable[[LimitedCalls], Coroutine[Any, Any, None]], **settings: int) -> None:
    async def main() -> None:
        calls = LimitedCalls(root, **settings)
        try:
            await work(calls)
        finally:
            calls.close()

    asyncio.run(main())
    assert not own_children()


def test_one_child_answers_as_the_warehouse_does(root: Path) -> None:
    async def work(calls: LimitedCalls) -> None:
        found, expected = await calls.query(Statement(COUNT)), tw.Warehouse(root).query(COUNT)
        (child,) = own_children()
        assert found.decode() == expected.envelope("query")
        for format_, content in (("csv", "".join(expected.csv()).encode()), ("parquet", expected.parquet())):
            assert await calls.query(Statement(COUNT, format=format_)) == content
        tw.open(root).ingest(FIRST_STEPS / "rank0.json.gz", run="second", jobs=1)
        assert {row["run_id"] for row in await rows(calls, COUNT)} == {"first", "second"}
        chosen = await rows(calls, COUNT, runs=["second"], ranks=[0])
        assert [row["run_id"] for row in chosen] == ["second"]
        with pytest.raises(QueryError, match='"nme" not found') as failed:
            await rows(calls, "SELECT nme FROM kernels")
        assert failed.value.hint is not None and "name" in failed.value.hint
        with pytest.raises(UnknownName, match="unknown run: third"):
            await rows(calls, COUNT, runs=["third"])
        assert own_children() == [child]

    run(root, work)


def test_a_child_is_killed_beyond_a_limit_and_replaced(root: Path) -> None:
    async def work(calls: LimitedCalls) -> None:
        with pytest.raises(QueryLimitError, match="took longer than 1 s"):
            await rows(calls, ENDLESS, Limits(timeout_s=1))
        with pytest.raises(QueryLimitError, match=r"more than 0\.1 GB"):
            await rows(calls, HOG, Limits(memory_bytes=100_000_000))
        with pytest.raises(QueryLimitError, match="more than 1 MiB"):
            await rows(calls, "SELECT repeat('x', 1000) AS x FROM range(2000)")
        with pytest.raises(QueryLimitError, match="more than 5 rows"):
            await rows(calls, "FROM range(6)", max_rows=5)
        assert await rows(calls, "SELECT 1 AS one") == [{"one": 1}]

    run(root, work, most_bytes=1 << 20)


def test_what_a_tool_computes_has_limits(root: Path) -> None:
    pytest.importorskip("mcp")
    check = "tracewarehouse.serve.mcp:answer", json.dumps(["check", [], {}])

    async def work(calls: LimitedCalls) -> None:
        with pytest.raises(QueryLimitError, match="more than"):
            await calls.call(*check, Limits(memory_bytes=2_000_000))
        found = json.loads(await calls.call(*check, Limits()))
        assert found["structuredContent"]["ok"] and not found["isError"]

    run(root, work)


def test_a_caller_that_goes_takes_its_child_along(root: Path) -> None:
    async def work(calls: LimitedCalls) -> None:
        await rows(calls, "SELECT 1")
        (first,) = own_children()
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await rows(calls, ENDLESS)
        assert time.monotonic() - started < 10
        assert len(await asyncio.gather(*(rows(calls, f"SELECT {at}") for at in range(5)))) == 5
        assert first not in own_children() and len(own_children()) <= 2

    run(root, work)


def test_a_child_reads_only_the_files_of_the_runs(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")

    async def work(calls: LimitedCalls) -> None:
        for sql in (
            f"FROM read_csv('{tmp_path}/secret.csv')",
            "SELECT getenv('HOME')",
            "CREATE TABLE t (i INT)",
        ):
            with pytest.raises(QueryError):
                await rows(calls, sql)

    run(root, work)


def test_without_a_warehouse_there_is_an_error(tmp_path: Path) -> None:
    async def work(calls: LimitedCalls) -> None:
        with pytest.raises(WarehouseError):
            await rows(calls, "SELECT 1")

    run(tmp_path / "none", work)
