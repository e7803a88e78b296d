"""A warehouse in an object store: a real S3 server behind a proxy that counts requests and causes faults."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from msgspec.structs import replace

import cli_runner
import tracewarehouse as tw
from object_store import BUCKET, CREDENTIALS, Proxy, Request
from simulated import SMALL
from storage_sources import commit
from tracewarehouse.errors import DamagedRunError, ParamError, StoreUnavailable, WarehouseError
from tracewarehouse.location import store_url
from tracewarehouse.runs.rows import catalog_row
from tracewarehouse.storage import layout, remote
from tracewarehouse.storage.clean import clean
from tracewarehouse.storage.model import Changes, TableFile
from tracewarehouse.storage.remote import RemoteObjects
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse

ANALYSES = ("temporal_breakdown", "stragglers", "quality")
URL = f"s3://{BUCKET}/shared"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces") / "job"
    tw.simulate(folder, ranks=4, seed=3, **{**SMALL, "layers": 1})
    return folder


@pytest.fixture(scope="module")
def local(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    wh = tw.open(tmp_path_factory.mktemp("local") / "warehouse")
    wh.ingest(traces, jobs=1)
    return wh


@pytest.fixture(scope="module")
def stored(server: Proxy, traces: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a warehouse with the run; two worker processes wrote it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        patch.setenv("TW_MIRROR", str(tmp_path_factory.mktemp("writer")))
        report = tw.open(URL).ingest(traces, jobs=2)
    assert [file.state for file in report.files if file.rank is not None] == ["intact"] * 4
    return URL


def objects(prefix: str) -> RemoteObjects:
    return RemoteObjects(store_url(f"s3://{BUCKET}/{prefix}"))


def files_of(wh: Warehouse) -> list[TableFile]:
    (run,) = wh.selected()
    files = {file.path: file for source in run.sources for file in source.files}
    return list(files.values())


# Answers


def test_answers_are_those_of_a_local_warehouse(s3: Proxy, stored: str, local: Warehouse) -> None:
    wh = tw.open(stored)
    for name in ANALYSES:
        assert wh.analyze(name).rows() == local.analyze(name).rows(), name
    sql = "SELECT rank, count(*) AS n, sum(dur_ns) AS ns FROM kernels GROUP BY ALL ORDER BY ALL"
    assert wh.query(sql).rows() == local.query(sql).rows()
    assert wh.scan("kernels").collect().equals(local.scan("kernels").collect())


@pytest.mark.deep
def test_findings_and_comparisons_are_those_of_a_local_warehouse(
    s3: Proxy, stored: str, local: Warehouse
) -> None:
    wh = tw.open(stored)
    for name in ("kernel_summary", "comm_comp_overlap", "step_summary", "collective_waits"):
        assert wh.analyze(name).rows() == local.analyze(name).rows(), name
    assert wh.select("job").check().rows() == local.check().rows()
    assert wh.diff("job", "job").kernel_summary().rows() == local.diff("job", "job").kernel_summary().rows()


@pytest.mark.deep
def test_the_command_line_takes_a_url(s3: Proxy, traces: Path, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/cli"
    env = {**s3.environment, "TW_MIRROR": str(tmp_path / "cache"), "TW_WAREHOUSE": url}

    def call(*args: str | Path) -> str:
        done = cli_runner.process(*args, cwd=tmp_path, env=env)
        assert done.code == 0, done.err
        return done.out

    assert "ingested 4 ranks of 1 run" in call("ingest", traces, "--jobs", "1")
    assert not (tmp_path / "warehouse.duckdb").exists() and not list(tmp_path.glob("s3*"))
    assert "job" in call("runs", "-w", url)
    assert "job" in call("label", "job", "team=a")
    call("record", "--all", "--analysis", "step_summary")
    assert "job" in call("history", "step_time", "-f", "md")
    assert "1 run verified" in call("verify")
    assert "count" in call("query", "SELECT count(*) AS count FROM kernels")
    assert call("compact").startswith(("compacted job", "nothing to compact"))
    call("remove", "job")
    time.sleep(1.1)  # the clock of S3 has seconds
    call("clean", "--grace", "0")
    assert [entry.key for entry in objects("cli").walk("data/")] == []


def test_recorded_results_give_the_same_history(s3: Proxy, stored: str, local: Warehouse) -> None:
    series = []
    for place in (stored, local.root):
        tw.open(place).record(analyses="step_summary")
        series.append(tw.open(place).history("step_time").polars())
    assert series[0].drop("ingested_at", strict=False).equals(series[1].drop("ingested_at", strict=False))


def test_a_store_in_memory_needs_no_server(
    traces: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TW_MIRROR", str(tmp_path))
    tw.open("memory://here").ingest(traces, jobs=2)
    assert [row["ranks_present"] for row in tw.open("memory://here").runs().rows()] == [4]


# Requests and copies


def test_a_second_question_reads_no_data(s3: Proxy, stored: str) -> None:
    tw.open(stored).temporal_breakdown()
    first = s3.data_reads()
    assert first and len(first) == len(set(first))
    s3.requests.clear()
    again = tw.open(stored)
    again.temporal_breakdown()
    assert s3.data_reads() == []
    assert len(s3.requests) <= 4, s3.counts()
    s3.requests.clear()
    tw.open(stored).select("job").temporal_breakdown()
    # The identity, the index entry and the version.
    assert s3.counts() == {"GET": 3, "LIST": 1}


def test_an_ingest_makes_few_requests(s3: Proxy, traces: Path) -> None:
    """At most 2 requests per rank and 40 per run, and 10 more if everything is stored already."""
    url = f"s3://{BUCKET}/requests"
    tw.open(url).ingest(traces, run="first", jobs=1)
    s3.requests.clear()
    tw.open(url).ingest(traces, run="second", jobs=1)
    assert len(s3.requests) <= 2 * 4 + 40, s3.counts()
    s3.requests.clear()
    tw.open(url).ingest(traces, run="second", jobs=1)
    assert len(s3.requests) <= 2 * 4 + 40 + 10, s3.counts()
    assert s3.data_reads() == []


def test_many_runs_are_listed_with_few_requests(s3: Proxy) -> None:
    store = Store.open_or_create(store_url(f"s3://{BUCKET}/many"))
    for number in range(12):
        source = commit(store, 0, run=f"run-{number}")
        store.publish(source.run, Changes(sources=(source,)))
    for read, gets in ((Store.briefs, 12), (Store.present, 2 * 12)):
        s3.requests.clear()
        assert len(read(Store.open(store_url(f"s3://{BUCKET}/many")))) == 12
        # And one for the identity; the list of all runs, which no command has written yet, is not read.
        assert s3.counts() == {"LIST": 1, "GET": 1 + gets}
    store.list_runs(catalog_row)
    for read, gets in ((Store.briefs, 2), (Store.present, 2 + 12)):
        s3.requests.clear()
        assert len(read(Store.open(store_url(f"s3://{BUCKET}/many")))) == 12
        assert s3.counts() == {"LIST": 1, "GET": gets}


def test_a_clean_lists_all_objects_once(s3: Proxy) -> None:
    place = store_url(f"s3://{BUCKET}/cleaned")
    store = Store.open_or_create(place)
    for run in ("one", "two"):
        for rank in range(2):
            source = commit(store, rank, run=run)
            store.publish(run, Changes(sources=(source,)))
        commit(store, 2, run=run)  # never published
    time.sleep(1.1)  # the clock of S3 has seconds
    s3.requests.clear()
    report = clean(Store.open(place), grace_s=0, keep_versions_s=0)
    # Per run: an older version, a commit and two files.
    assert (report.files, report.versions) == (2 * 4, 2)
    counts = s3.counts()
    # All objects once, and per run what is newest after the version that says what is gone.
    assert (counts["HEAD"], counts["LIST"]) == (1, 5 + 2), counts
    reads = [one.path for one in s3.requests if one.kind == "GET" and "/_tw/commits/" in one.path]
    assert len(reads) == len(set(reads)) == 2 * 3
    assert [one.ranks for one in Store.open(place).present()] == [(0, 1)] * 2
    assert Store.open(place).verify() == []


def test_files_of_an_old_commit_are_checked_before_it_is_published(s3: Proxy) -> None:
    store = Store.open_or_create(store_url(f"s3://{BUCKET}/old"))
    recent, deleted = commit(store, 0), commit(store, 1)
    old = replace(deleted, committed_at="2026-01-01T00:00:00.000000Z")
    store.objects.delete([old.files[0].path])
    s3.requests.clear()
    store.publish("run", Changes(sources=(recent,)))
    assert s3.counts()["HEAD"] == 0
    with pytest.raises(WarehouseError, match="of another process before rank 1 was published"):
        store.publish("run", Changes(sources=(old,)))


def test_a_changed_copy_is_reported_and_replaced(s3: Proxy, stored: str, local: Warehouse) -> None:
    wh = tw.open(stored)
    wh.temporal_breakdown()
    copy = max((wh.store.folder / "data" / "kernels").rglob("*.parquet"))
    data = bytearray(copy.read_bytes())
    data[len(data) // 3] ^= 1
    copy.write_bytes(data)
    with pytest.raises(DamagedRunError, match="checksum differs"):
        Warehouse(stored, verify=True).select("job").temporal_breakdown()
    again = Warehouse(stored, verify=True).select("job").temporal_breakdown()
    assert again.rows() == local.temporal_breakdown().rows()


def test_a_damaged_object_is_an_error(s3: Proxy, stored: str) -> None:
    url = f"s3://{BUCKET}/damaged"
    objects("damaged").put(
        {entry.key: objects("shared").get(entry.key) for entry in objects("shared").walk("")}
    )
    wh = tw.open(url)
    kernels = next(file.path for file in files_of(wh) if "/kernels/" in file.path)
    data = bytearray(wh.store.objects.get(kernels))
    data[len(data) // 3] ^= 1
    wh.store.objects.put({kernels: bytes(data)})
    with pytest.raises(DamagedRunError, match="checksum differs"):
        tw.open(url).select("job").temporal_breakdown()
    assert [each.path for each in wh.verify(deep=True)] == [kernels]


@pytest.mark.deep
def test_an_object_of_another_size_is_found_without_a_download(s3: Proxy, stored: str) -> None:
    url = f"s3://{BUCKET}/sizes"
    objects("sizes").put(
        {entry.key: objects("shared").get(entry.key) for entry in objects("shared").walk("")}
    )
    wh = tw.open(url)
    assert wh.verify() == []
    kernels = next(file.path for file in files_of(wh) if "/kernels/" in file.path)
    data = wh.store.objects.get(kernels)
    wh.store.objects.put({kernels: data[:-1]})
    assert [each.what for each in wh.verify()] == [f"{len(data) - 1} bytes, {len(data)} were written"]
    wh.store.objects.delete([kernels])
    assert [each.what for each in wh.verify()] == ["file missing"]


@pytest.mark.deep
def test_copies_beyond_the_budget_are_deleted_unless_a_process_uses_them(
    s3: Proxy, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {**s3.environment, "TW_MIRROR": os.environ["TW_MIRROR"]}
    command = ("show", "temporal_breakdown", "-w", stored)
    assert cli_runner.process(*command, env=env).code == 0
    store = tw.open(stored).store
    kernels = [store.folder / file.path for file in files_of(tw.open(stored)) if "/kernels/" in file.path]
    assert all(path.exists() for path in kernels)
    events = [file for file in files_of(tw.open(stored)) if "/events/" in file.path]
    budget = str(sum(file.bytes for file in events))
    monkeypatch.setenv("TW_MIRROR_BYTES", budget)
    assert store.files.fetch(events) == {}
    assert not any(path.exists() for path in kernels)
    assert cli_runner.process(*command, env={**env, "TW_MIRROR_BYTES": budget}).code == 0
    assert all((store.folder / file.path).exists() for file in events)
    with pytest.raises(WarehouseError, match="of local copies"):
        store.files.fetch(files_of(tw.open(stored)))


# Writers


def test_of_eight_writers_of_a_key_one_wins(s3: Proxy) -> None:
    for number in range(2):
        together = Barrier(8)

        def write(data: bytes, key: str = f"race/{number}", together: Barrier = together) -> bool:
            together.wait()
            return objects("races").put_if_absent(key, data)

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(write, [os.urandom(16) for _ in range(8)]))
        assert sum(won) == 1


def test_a_lost_answer_changes_nothing(s3: Proxy, traces: Path) -> None:
    lost: list[str] = []

    def lose(request: Request) -> bool:
        if request.kind != "CREATE" or request.path in lost:
            return False
        lost.append(request.path)
        return True

    s3.loses = lose
    wh = tw.open(f"s3://{BUCKET}/lost")
    report = wh.ingest(traces, jobs=1)
    assert [run.version for run in report.runs] == [1]
    wh.remove("job")
    assert any("/versions/job/000001" in path for path in lost)
    assert any("/versions/job/000002" in path for path in lost)
    assert wh.store.runs() == ()


def _commands(s3: Proxy, traces: Path, url: str) -> list[tuple[int, str, str]]:
    """Code and text of commands that write every kind of conditional object, without times and sizes."""
    first, *others = sorted(path for path in traces.iterdir() if "rank" in path.name)
    commands: list[list[str | Path]] = [
        ["ingest", first, "--run", "job", "--jobs", "1"],
        ["ingest", *others, "--run", "job", "--expect-ranks", "5", "--jobs", "1"],
        ["seal", "job", "--allow-missing"],
        ["label", "job", "team=a"],
        ["remove", "job"],
        ["remove", "job"],
    ]
    found = []
    for command in commands:
        done = cli_runner.tw(*command, "-w", url)
        lines = (line for line in done.out.splitlines() if not line.startswith("  time"))
        text = re.sub(r"[0-9.]+ KiB", "SIZE", "\n".join(lines)).replace(url, "")
        found.append((done.code, text, done.err.replace(url, "")))
    return found


@pytest.mark.deep
@pytest.mark.parametrize("fault", ["lost", "conflict", "unavailable"])
def test_faults_change_neither_code_nor_text(s3: Proxy, traces: Path, fault: str) -> None:
    """The answer of every conditional PUT is lost, or its first one is 409 or 503."""
    expected = _commands(s3, traces, f"s3://{BUCKET}/fault-none-{fault}")
    assert [code for code, _, _ in expected] == [0, 4, 0, 0, 0, 1]
    seen: list[str] = []

    def is_first(request: Request) -> bool:
        key = f"{request.kind} {request.path}"
        if request.kind != "CREATE" or key in seen:
            return False
        seen.append(key)
        return True

    if fault == "lost":
        s3.loses = is_first
    else:
        status = 409 if fault == "conflict" else 503
        s3.refuses = lambda request: status if is_first(request) else None
    assert _commands(s3, traces, f"s3://{BUCKET}/fault-{fault}") == expected
    assert sum("/_tw/versions/job/" in key for key in seen) == 4


def test_a_store_that_ignores_conditions_is_refused_by_the_first_write(
    s3: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"s3://{BUCKET}/probed"
    store = Store.open_or_create(store_url(url))
    source = commit(store, 0)
    store.publish("run", Changes(sources=(source,)))
    monkeypatch.setattr(remote, "_probed", set())
    s3.requests.clear()
    Store.open(store_url(url)).relabel("run", {"a": "b"})
    probes = [request.kind for request in s3.requests if "/_tw/probe/" in request.path]
    assert probes == ["CREATE", "CREATE", "GET", "GET"]
    assert tw.open(url).runs().rows()[0]["version"] == 2
    monkeypatch.setattr(remote, "_probed", set())
    s3.ignore_conditions = True
    for write in (
        lambda: Store.open_or_create(store_url(url)),
        lambda: Store.open(store_url(url)).relabel("run", {"a": "c"}),
    ):
        with pytest.raises(WarehouseError, match="ignores If-None-Match"):
            write()
    assert Store.open(store_url(url)).versions("run") == (1, 2)


def _bring(url: str, ranks: int) -> None:
    """Ranks that wait for one more, one by one, as jobs bring them."""
    for rank in range(ranks):
        store = Store.open(store_url(url))
        source = commit(store, rank, run=f"job-{ranks}")
        store.publish(source.run, Changes(sources=(source,), expected_ranks=ranks + 1))


@pytest.mark.parametrize("ranks", [4, pytest.param(32, marks=pytest.mark.deep)])
def test_requests_of_waiting_ranks_and_a_seal_are_linear(s3: Proxy, ranks: int) -> None:
    url = f"s3://{BUCKET}/sealed-{ranks}"
    store = Store.open_or_create(store_url(url))
    counts = []
    for number in (ranks, 2 * ranks):
        s3.requests.clear()
        _bring(url, number)
        done = store.publish(f"job-{number}", Changes(seal=True))
        counts.append(len(s3.requests))
        assert done.version is not None and len(done.version.ranks) == number
    assert counts[1] / counts[0] <= 2.2, counts


@pytest.mark.deep
def test_32_publishers_of_a_run_write_little(s3: Proxy) -> None:
    url, number = f"s3://{BUCKET}/publishers", 32
    Store.open_or_create(store_url(url))
    together = Barrier(number)

    def publish(rank: int) -> None:
        store = Store.open(store_url(url))
        source = commit(store, rank)
        together.wait()
        store.publish("run", Changes(sources=(source,)))

    with ThreadPoolExecutor(number) as pool:
        list(pool.map(publish, range(number)))
    written = [request for request in s3.requests if request.kind in ("PUT", "CREATE")]
    puts = [one for one in written if "/_tw/versions/" in one.path or "/_tw/index/" in one.path]
    assert len(puts) <= 4 * number
    newest = Store.open(store_url(url)).newest("run")
    assert newest is not None and newest.ranks == tuple(range(number))


@pytest.mark.deep
def test_machines_with_caches_of_their_own_agree(s3: Proxy, traces: Path, tmp_path: Path) -> None:
    """Four machines bring a rank each; then all ask, while one of them compacts the run."""
    local = tw.open(tmp_path / "local")  # other tests derive tables in theirs
    local.ingest(traces, jobs=1)
    url = f"s3://{BUCKET}/machines"

    def call(machine: int, *args: str | Path) -> cli_runner.CliResult:
        env = {**s3.environment, "TW_MIRROR": str(tmp_path / f"cache-{machine}")}
        return cli_runner.process(*args, "-w", url, env=env)

    def push(machine: int) -> int:
        return call(machine, "ingest", ranks[machine], "--run", "job", "--expect-ranks", "4").code

    def ask(machine: int) -> str:
        done = call(machine, "show", "stragglers", "-f", "csv")
        assert done.code == 0, done.err
        return done.out

    ranks = sorted(path for path in traces.iterdir() if "rank" in path.name)
    tw.open(url).ingest(traces, run="other", jobs=1)
    tw.open(url).remove("other")
    with ThreadPoolExecutor(4) as pool:
        # Each that sees all four ranks publishes them; the first one succeeds.
        assert 0 in (codes := set(pool.map(push, range(4)))) and codes <= {0, 4}
        expected = cli_runner.tw("show", "stragglers", "-f", "csv", "-w", local.root).out
        assert list(pool.map(ask, range(4))) == [expected] * 4
        compacted = pool.submit(call, 0, "compact")
        assert list(pool.map(ask, range(1, 4))) == [expected] * 3
        assert compacted.result().out.startswith("compacted job"), compacted.result().err
        assert list(pool.map(ask, range(4))) == [expected] * 4
    assert [row["ranks_present"] for row in tw.open(url).runs().rows()] == [4]
    assert tw.open(url).verify(deep=True) == []


def test_a_conflict_without_an_object_is_tried_again(s3: Proxy) -> None:
    refused: list[str] = []

    def refuse(request: Request) -> int | None:
        if request.kind == "CREATE" and not refused:
            refused.append(request.path)
            return 409
        return None

    s3.refuses = refuse
    assert objects("conflict").put_if_absent("key", b"first")
    assert not objects("conflict").put_if_absent("key", b"second")
    assert refused


def test_a_store_that_ignores_conditions_is_refused(s3: Proxy, traces: Path) -> None:
    s3.ignore_conditions = True
    with pytest.raises(WarehouseError, match="ignores If-None-Match"):
        tw.open(f"s3://{BUCKET}/unconditional").ingest(traces, jobs=1)
    assert list(objects("unconditional").walk("")) == []


# The folders of each command's PUTs in a new warehouse: 2 probes, the identity, tables and a commit. To
# publish: the version, its index entry and the list of all runs; to wait: the mark and the waiting commit.
_PUTS = {
    "ingest": [*("probe",) * 2, "warehouse", *("data",) * 14, "commits", "versions", *("index",) * 2],
    "wait": [*("probe",) * 2, "warehouse", *("data",) * 14, "commits", "index", "commits"],
    "seal": [*("probe",) * 2, "versions", *("index",) * 2],
}


def _kill_points() -> list[object]:
    """Before and after every PUT; outside of the deep tests, only when the version was stored."""
    points = [
        (command, number, when)
        for command, puts in _PUTS.items()
        for number in range(len(puts))
        for when in ("before", "after")
    ]
    always = ("ingest", _PUTS["ingest"].index("versions"), "after")
    return [pytest.param(*point, marks=[] if point == always else pytest.mark.deep) for point in points]


def _killed_at(s3: Proxy, number: int, when: str, command: list[str], cache: Path) -> list[str]:
    """Kills a process at a PUT, before or after the server stores the object; the folders of its PUTs."""
    running: list[subprocess.Popen[bytes]] = []
    puts: list[str] = []

    def kill(request: Request) -> None:
        if request.kind in ("PUT", "CREATE"):
            puts.append(request.path)
            if len(puts) == number + 1:
                running[0].send_signal(signal.SIGKILL)

    setattr(s3, when, kill)
    env = cli_runner.environment({**s3.environment, "TW_MIRROR": str(cache)})
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        running.append(process)
        process.communicate()
    s3.reset()
    assert process.returncode == -signal.SIGKILL, puts
    found = (re.search(r"/(data|_tw/[a-z]+)[/.]", path) for path in puts)
    return [one[1].removeprefix("_tw/") for one in found if one]


@pytest.mark.parametrize(("command", "number", "when"), _kill_points())
def test_a_killed_command_leaves_nothing_half_visible(
    s3: Proxy, traces: Path, tmp_path: Path, command: str, number: int, when: str
) -> None:
    url = f"s3://{BUCKET}/killed-{command}-{number}-{when}"
    wh = tw.open(url)
    if command == "seal":
        wh.ingest(traces, jobs=1, expect_ranks=5)
    what = [] if command == "seal" else ["--jobs", "1", str(traces)]
    waits = ["ingest", "--expect-ranks", "5"]
    words = {"ingest": ["ingest"], "wait": waits, "seal": ["seal", "job", "--allow-missing"]}[command]
    puts = _killed_at(s3, number, when, [*cli_runner.TW, *words, "-w", url, *what], tmp_path / "cache")
    assert puts[: number + 1] == _PUTS[command][: number + 1]

    try:
        before = tw.open(url).runs().rows()
    except WarehouseError:
        before = []
    assert [row["ranks_present"] for row in before if row["state"] != "pending"] in ([], [4])
    assert command != "wait" or {row["state"] for row in before} <= {"pending"}
    if command != "seal":
        tw.open(url).ingest(traces, jobs=1, expect_ranks=5 if command == "wait" else None)
    if command != "ingest":
        tw.open(url).seal("job", allow_missing=True)
    wh = tw.open(url)
    assert [row["ranks_present"] for row in wh.runs().rows()] == [4]
    assert wh.verify() == []
    wh.clean(grace_s=0)
    stored = [entry.key for entry in wh.store.objects.walk("")]
    assert {key for key in stored if key.startswith("data/")} == {file.path for file in files_of(wh)}
    (run,) = wh.selected()
    commits = {layout.commit("job", source.commit) for source in run.sources}
    assert {key for key in stored if key.startswith("_tw/commits/")} == commits


# Errors


@pytest.mark.parametrize(
    "url",
    ["s3://key:secret@bucket/p", "s3://bucket/p?token=secret", "s3://secret@bucket/p", "az://x:secret@c/p"],
)
def test_credentials_in_a_url_are_refused(url: str) -> None:
    with pytest.raises(WarehouseError) as caught:
        tw.open(url)
    assert "secret" not in f"{caught.value} {caught.value.hint}"


def test_other_urls_and_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match="ftp:// is not supported"):
        tw.open("ftp://host/path")
    with pytest.raises(WarehouseError, match="no bucket"):
        tw.open("s3:///path")
    with pytest.raises(ParamError, match="secret_access_key is a credential"):
        tw.open("s3://bucket/p", storage_options={"secret_access_key": "x"})
    with pytest.raises(ParamError, match="apply to URLs"):
        tw.open(tmp_path, storage_options={"region": "x"})


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(WarehouseError, match="s3:// needs obstore") as caught:
        tw.open("s3://bucket/p").runs()
    assert caught.value.hint == "pip install 'tracewarehouse[cloud]'"


def _message(action: object) -> tuple[str, str]:
    with pytest.raises((WarehouseError, StoreUnavailable)) as caught:
        action()  # type: ignore[operator]
    text = f"{caught.value.message} {caught.value.hint}"
    assert caught.value.hint and CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in text
    return caught.value.message, caught.value.hint


def test_messages_name_the_cause(s3: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert _message(lambda: tw.open("s3://missing/p").runs())[0] == "s3://missing/p: no such bucket"
    url = f"s3://{BUCKET}/nothing"
    assert _message(lambda: tw.open(url).runs())[0] == f"{url}: no warehouse here"
    s3.refuses = lambda _: 403
    message, hint = _message(lambda: tw.open(url).runs())
    assert "access denied" in message and "AWS_ACCESS_KEY_ID" in hint
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    message, hint = _message(lambda: tw.open(url).runs())
    assert "the store does not answer" in message and "AWS_ENDPOINT_URL" in hint
    done = cli_runner.process(
        "runs", "-w", url, env={**s3.environment, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    )
    assert done.code == 6 and done.errors[0] == f"tw: {url}: the store does not answer"


def test_an_unanswered_request_is_not_taken_for_damage(s3: Proxy, stored: str) -> None:
    s3.refuses = lambda request: 403 if "/versions/job/" in request.path else None
    with pytest.raises(StoreUnavailable, match="access denied"):
        tw.open(stored).runs()


def test_a_place_with_other_objects_is_refused(s3: Proxy, traces: Path) -> None:
    objects("foreign").put({"notes/a.txt": b"text"})
    with pytest.raises(WarehouseError, match="it holds notes/"):
        tw.open(f"s3://{BUCKET}/foreign").ingest(traces, jobs=1)


def _used_in_a_child(url: str, pipe: object) -> None:
    try:
        tw.open(url).runs()
        pipe.send("answered")  # type: ignore[attr-defined]
    except StoreUnavailable as error:
        pipe.send(error.message)  # type: ignore[attr-defined]


def test_a_forked_process_gets_an_error_in_place_of_a_hang(s3: Proxy, stored: str) -> None:
    tw.open(stored).runs()
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_used_in_a_child, args=(stored, theirs))
    child.start()
    assert ours.poll(10)
    assert "forked process" in ours.recv()
    child.join()
