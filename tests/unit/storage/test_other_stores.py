"""Other object stores: Azurite (Azure), and s3rver, which must be refused. Their servers need Node."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier

import pytest

import cli_runner
import tracewarehouse as tw
from node_servers import CONTAINER, azurite, s3rver
from object_store import BUCKET, Proxy, Request
from simulated import SMALL
from tracewarehouse.errors import StoreUnavailable, WarehouseError
from tracewarehouse.location import store_url
from tracewarehouse.storage.remote import RemoteObjects
from tracewarehouse.warehouse import Warehouse


@pytest.fixture(scope="module")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, dict[str, str]]]:
    with azurite(tmp_path_factory.mktemp("azurite")) as found:
        yield found


@pytest.fixture
def azure(
    azure_server: tuple[Proxy, dict[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Proxy]:
    proxy, env = azure_server
    for name, value in {**env, "TW_MIRROR": str(tmp_path / "mirror")}.items():
        monkeypatch.setenv(name, value)
    proxy.reset()
    yield proxy
    proxy.reset()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    base = tmp_path_factory.mktemp("local")
    tw.simulate(base / "job", ranks=4, seed=3, **SMALL)
    wh = tw.open(base / "warehouse")
    wh.ingest(base / "job", jobs=1)
    return wh


def traces(local: Warehouse) -> Path:
    return local.store.folder.parent / "job"


@pytest.mark.deep
def test_one_of_several_writers_wins_on_azure(azure: Proxy) -> None:
    objects = RemoteObjects(store_url(f"az://{CONTAINER}/races"))
    for race in range(10):
        ready = Barrier(6)

        def write(number: int, race: int = race, ready: Barrier = ready) -> bool:
            ready.wait()
            return objects.put_if_absent(f"race-{race}", b"writer %d" % number)

        with ThreadPoolExecutor(6) as pool:
            won = list(pool.map(write, range(6)))
        assert won.count(True) == 1
        assert objects.get(f"race-{race}") == b"writer %d" % won.index(True)


@pytest.mark.deep
def test_answers_on_azure_are_those_of_a_folder(azure: Proxy, local: Warehouse) -> None:
    """The traces are objects, too: each is downloaded once, though Azure lists tags without quotes."""
    source = RemoteObjects(store_url(f"az://{CONTAINER}"))
    source.put({f"traces/job/{path.name}": path.read_bytes() for path in traces(local).glob("*.gz")})
    url = f"az://{CONTAINER}/warehouse"
    report = tw.open(url).ingest(f"az://{CONTAINER}/traces/", jobs=2)
    assert [file.state for file in report.files] == ["intact"] * 4
    assert sum(each.kind == "GET" and each.path.split("?")[0].endswith(".gz") for each in azure.requests) == 4
    for name in ("temporal_breakdown", "kernel_summary", "stragglers"):
        assert tw.open(url).analyze(name).rows() == local.analyze(name).rows(), name
    azure.requests.clear()
    assert tw.open(url).ingest(f"az://{CONTAINER}/traces/").of("same")
    assert not [each for each in azure.requests if "rank" in each.path and each.kind == "GET"]
    tw.open(url).remove("job")
    time.sleep(1.1)  # the clock of the store has seconds
    tw.open(url).clean(grace_s=0)
    assert list(tw.open(url).store.objects.walk("data/")) == []


@pytest.mark.deep
@pytest.mark.parametrize("number", [0, 3, 9, 14, 15, 16, 17])
def test_a_killed_ingest_on_azure_leaves_nothing_half_visible(
    azure: Proxy, local: Warehouse, tmp_path: Path, number: int
) -> None:
    """The process is killed before or after the server handles a PUT."""
    url = f"az://{CONTAINER}/killed-{number}"
    env = cli_runner.environment({"TW_MIRROR": str(tmp_path / "cache")})
    running: list[subprocess.Popen[bytes]] = []
    puts: list[str] = []

    def kill(request: Request) -> None:
        if request.kind in ("PUT", "CREATE"):
            puts.append(request.path)
            if len(puts) == number + 1:
                running[0].send_signal(signal.SIGKILL)

    if number % 2:
        azure.after = kill
    else:
        azure.before = kill
    command = [*cli_runner.TW, "ingest", "-w", url, "--jobs", "1", str(traces(local))]
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        running.append(process)
        process.communicate()
    azure.reset()
    assert process.returncode == -signal.SIGKILL or len(puts) <= number, puts
    try:
        before = tw.open(url).runs().rows()
    except WarehouseError:
        before = []
    assert [row["ranks_present"] for row in before] in ([], [4])
    tw.open(url).ingest(traces(local), jobs=1)
    wh = tw.open(url)
    assert [row["ranks_present"] for row in wh.runs().rows()] == [4]
    assert wh.verify() == []
    time.sleep(1.1)
    wh.clean(grace_s=0)
    (run,) = wh.selected()
    held = {file.path for source in run.sources for file in source.files}
    assert {entry.key for entry in wh.store.objects.walk("data/")} == held


@pytest.mark.deep
def test_s3rver_is_refused_and_nothing_is_stored(
    local: Warehouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with s3rver(tmp_path / "s3rver", BUCKET) as env:
        for name, value in {**env, "TW_MIRROR": str(tmp_path / "mirror")}.items():
            monkeypatch.setenv(name, value)
        url = f"s3://{BUCKET}/unconditional"
        done = cli_runner.process("ingest", traces(local), "-w", url, env=env)
        assert done.code == 1
        expected = f"tw: {url}: this store ignores If-None-Match; concurrent writers would lose data"
        assert done.errors[0] == expected
        assert list(RemoteObjects(store_url(url)).walk("")) == []


def _used_in_a_child(objects: RemoteObjects, pipe: object) -> None:
    started = time.monotonic()
    answers = []
    for store in (objects, RemoteObjects(objects.place)):
        try:
            store.get("key")
        except StoreUnavailable as error:
            answers.append(error.message)
    pipe.send((answers, time.monotonic() - started))  # type: ignore[attr-defined]


def test_a_forked_process_gets_an_error_at_once() -> None:
    """With the store of its parent, and with a new one: a request would hang."""
    objects = RemoteObjects(store_url("memory://forked"))
    objects.put({"key": b"value"})
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_used_in_a_child, args=(objects, theirs))
    child.start()
    assert ours.poll(10)
    answers, seconds = ours.recv()
    child.join()
    assert [text.partition(": ")[2] for text in answers] == [
        "an object store cannot be used in a forked process"
    ] * 2
    assert seconds < 1


STORED = {"intact", "same"}


def until_done(act: Callable[[], object]) -> None:
    """Repeats a call while it says that the store does not answer, as its hint says."""
    for _ in range(20):
        with suppress(StoreUnavailable):
            if act():
                return
    raise AssertionError("the store never answers")


@pytest.mark.deep
@pytest.mark.parametrize("every", [2, 3, 7])
def test_lost_answers_of_azure(azure: Proxy, local: Warehouse, every: int) -> None:
    """Each request that is repeated succeeded the first time; the run is published once, and removed once."""
    url = f"az://{CONTAINER}/lost-{every}"
    counts: Counter[str] = Counter()

    def loses(request: Request) -> bool:
        counts[request.kind] += 1
        return counts[request.kind] % every == 0

    azure.loses = loses
    until_done(lambda: {file.state for file in tw.open(url).ingest(traces(local), jobs=1).files} <= STORED)
    until_done(lambda: tw.open(url).label("job", {"k": "v"}))
    azure.reset()
    (row,) = tw.open(url).runs().rows()
    assert (row["version"], row["ranks_present"], row["labels"].get("k")) == (2, 4, "v")
    assert tw.open(url).verify(deep=True) == []
    assert tw.open(url).analyze("kernel_summary").rows() == local.analyze("kernel_summary").rows()
    azure.loses = loses
    until_done(lambda: not tw.open(url).runs().rows() or not tw.open(url).remove("job"))
    time.sleep(1.1)
    until_done(lambda: tw.open(url).clean(grace_s=0))
    azure.reset()
    assert tw.open(url).runs().rows() == [] and list(tw.open(url).store.objects.walk("data/")) == []
    assert sum(counts.values()) // every > 5
