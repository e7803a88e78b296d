"""Limits of `tw query` and `wh.query`: beyond one, a sentence that names the option, and never a part."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import tracewarehouse
from cli_runner import TW, environment, tw
from conftest import deep
from processes import children
from tracewarehouse.duck.engine import QueryLimitError
from tracewarehouse.errors import QueryError
from tracewarehouse.limits import Limits
from tracewarehouse.warehouse import Warehouse

FIRST_STEPS = Path(__file__).parents[2] / "data" / "first-steps"
SLOW = "SELECT count(*) FROM range(100000) a, range(10000000) b WHERE (a.range * b.range) % 7 = 3"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs; one of them is removed, and its files are still there."""
    root = tmp_path_factory.mktemp("limits") / "wh"
    for run in ("kept", "gone"):
        assert tw("ingest", FIRST_STEPS / "rank0.json.gz", "-w", root, "--run", run).code == 0
    assert tw("remove", "gone", "-w", root).code == 0
    return root


def test_rows(warehouse: Path, tmp_path: Path) -> None:
    rows = "SELECT range AS n FROM range(100001)"
    over = tw("query", rows, "-w", warehouse)
    assert (over.code, over.out) == (1, "")
    assert over.errors[0] == "tw: the query returns more than 100,000 rows, the limit of --max-rows"
    assert over.errors[1] == "hint: raise the limit: --max-rows N; -o FILE writes any number"
    assert tw("query", "SELECT range AS n FROM range(100000)", "-w", warehouse).out.count("\n") == 100_001
    for more in (["--max-rows", "100001"], ["--max-rows", "0"]):
        assert tw("query", rows, "-w", warehouse, *more).out.count("\n") == 100_002
    file = tmp_path / "rows.parquet"
    assert tw("query", rows, "-w", warehouse, "-o", file).code == 0
    assert pq.read_metadata(file).num_rows == 100_001
    failed = tw("query", rows, "-w", warehouse, "-o", tmp_path / "few.csv", "--max-rows", "5")
    assert failed.code == 1 and not (tmp_path / "few.csv").exists()


@pytest.mark.deep
def test_time(warehouse: Path) -> None:
    started = time.monotonic()
    over = tw("query", SLOW, "-w", warehouse, "--timeout", "1s")
    assert (over.code, over.out) == (1, "") and time.monotonic() - started < 15
    assert over.errors[0] == "tw: the query took longer than 1 s, the limit of --timeout"
    assert over.errors[1] == "hint: raise the limit: --timeout 90s"


def test_memory(warehouse: Path) -> None:
    wide = "SELECT repeat('x', 1000000) AS text FROM range(300)"
    over = tw("query", wide, "-w", warehouse, "--memory", "100MB")
    assert (over.code, over.out) == (1, "")
    assert over.errors[0] == "tw: the query needs more than 0.1 GB of memory, the limit of --memory"
    # One aggregate state cannot be spilled.
    held = "SELECT length(string_agg(repeat('x', 1000), '')) FROM range(1000000)"
    assert "the limit of --memory" in tw("query", held, "-w", warehouse, "--memory", "100MB").err
    assert tw("query", "SELECT 1", "-w", warehouse, "--memory", "much").code == 2


# DuckDB counts none of it, and interrupts none of it: the parent kills the process.
UNLIMITED = {
    "damerau_levenshtein": "SELECT damerau_levenshtein(repeat('ab', 12000), repeat('ba', 12000))",
    "longer": "SELECT damerau_levenshtein(repeat('ab', 20000), repeat('ba', 20000))",
    "unnest": "SELECT max(i) FROM (SELECT unnest(range(500000000)) i)",
    "lpad": "SELECT lpad('x', 2000000000, 'y')",
    "printf": "SELECT printf('%2000000000d', 1)",
    "repeat": "SELECT repeat('x', 2000000000)",
    "list_sort": "SELECT list_sort(range(300000000))",
    "in a condition": "FROM kernels WHERE run_id = lpad('x', 2000000000, 'y')",
}
ON_LINUX = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="has no /proc")


@ON_LINUX
@pytest.mark.parametrize("name", ["damerau_levenshtein", *deep(*UNLIMITED.keys() - {"damerau_levenshtein"})])
def test_what_duckdb_does_not_limit(warehouse: Path, tmp_path: Path, name: str) -> None:
    """Options before the command are no way around the limits; the temporary folder is deleted."""
    started = time.monotonic()
    words = ("query", UNLIMITED[name], "--memory", "100MB", "--timeout", "3s", "--json")
    running = start("-w", warehouse, *words, env={"TMPDIR": str(tmp_path)})
    most = peak_bytes(running)
    out, err = running.communicate()
    assert time.monotonic() - started < 20
    # About 120 MB without a query, 100 MB, 20 %, and what is allocated before the parent looks again.
    assert 50e6 < most < 450e6
    assert (running.returncode, list(tmp_path.iterdir())) == (1, [])
    limit = err.splitlines()[0].removeprefix("tw: the query ")
    assert limit in (
        "needs more than 0.1 GB of memory, the limit of --memory",
        "took longer than 3 s, the limit of --timeout",
    )
    failure = json.loads(out)
    assert (failure["command"], failure["error"]["class"]) == ("query", "QueryLimitError")
    assert failure["error"]["message"] == f"the query {limit}"


@ON_LINUX
@pytest.mark.deep
@pytest.mark.parametrize("to_both", [False, True])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_what_duckdb_does_not_interrupt(
    warehouse: Path, tmp_path: Path, number: signal.Signals, code: int, to_both: bool
) -> None:
    words = ("query", UNLIMITED["lpad"], "--memory", "0")
    running = start(*words, "-w", warehouse, env={"TMPDIR": str(tmp_path)}, start_new_session=True)
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(timeout=3)
    (os.killpg if to_both else os.kill)(running.pid, number)  # a terminal signals both
    signaled = time.monotonic()
    out, err = running.communicate()
    assert time.monotonic() - signaled < 10
    assert (running.returncode, out, err.splitlines()[0]) == (code, "", "tw: interrupted")
    assert list(tmp_path.iterdir()) == []


def peak_bytes(running: subprocess.Popen[str]) -> int:
    """The most memory that the child of a process held until the process ended."""
    most = 0
    while running.poll() is None:
        with suppress(OSError):
            for child in children(running.pid):
                status = Path(f"/proc/{child}/status").read_text()
                most = max([most, *(int(kib) << 10 for kib in re.findall(r"VmHWM:\s+(\d+)", status))])
        time.sleep(0.01)
    return most


def start(*words: str | Path, env: dict[str, str], start_new_session: bool = False) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*TW, *map(str, words)],
        env=environment(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=start_new_session,
    )


def test_in_python(warehouse: Path) -> None:
    wh = Warehouse(warehouse)
    with pytest.raises(QueryLimitError, match="the limit of max_rows") as raised:
        wh.query("FROM range(100001)")
    assert (
        raised.value.hint == "raise the limit: limits=tw.Limits(max_rows=N); wh.scan(TABLE) reads any number"
    )
    assert isinstance(raised.value, QueryError) and isinstance(raised.value, tracewarehouse.TwError)
    assert len(wh.query("FROM range(100001)", limits=None)) == 100_001
    with pytest.raises(QueryLimitError, match="0.5 s, the limit of timeout_s"):
        wh.query(SLOW, Limits(timeout_s=0.5))
    with pytest.raises(QueryLimitError, match="the limit of memory_bytes"):
        wh.query("SELECT repeat('x', 1000000) AS text FROM range(300)", Limits(memory_bytes=100_000_000))
    assert wh.query("SELECT 1 AS one", limits=None).rows() == [{"one": 1}]


def test_files_of_removed_and_other_runs_are_not_readable(warehouse: Path) -> None:
    files = {path.parent.name: path for path in (warehouse / "data" / "kernels").rglob("*.parquet")}
    assert files.keys() == {"kept", "gone"}
    wh = Warehouse(warehouse)
    assert wh.query("SELECT DISTINCT run_id FROM kernels").rows() == [{"run_id": "kept"}]
    reads = [
        f"FROM read_parquet('{files['gone']}')",
        f"FROM '{files['gone']}'",
        f"FROM read_parquet('{warehouse}/data/kernels/*/*.parquet')",
        f"FROM read_parquet('{files['kept'].parent}/../gone/{files['gone'].name}')",
        f"FROM glob('{warehouse}/data/**')",
        f"FROM read_text('{warehouse}/_tw/warehouse.json')",
        f"FROM read_csv('{warehouse}/_tw/versions/gone/000001.json')",
    ]
    for sql in reads:
        with pytest.raises(QueryError, match="Permission Error|disabled"):
            wh.query(sql)
