"""Stores that hiccup: cut bodies are read again, and an outage is neither damage nor a refused file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import cli_runner
import tracewarehouse as tw
from conftest import deep
from object_store import BUCKET, Proxy, Request
from simulated import SMALL
from storage_sources import commit
from tracewarehouse.engines import Engine, LocalEngine, StoreFailed, TaskProgress, results_in_order
from tracewarehouse.errors import StoreUnavailable
from tracewarehouse.location import store_url
from tracewarehouse.storage.model import Changes
from tracewarehouse.storage.remote import RemoteObjects
from tracewarehouse.storage.store import Store

RANKS = 4


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces") / "job"
    tw.simulate(folder, ranks=RANKS, seed=3, **{**SMALL, "layers": 1})
    return folder


def once(kind: str, seen: list[str]) -> object:
    """Whether it is the first request of a kind for its object."""

    def is_first(request: Request) -> bool:
        key = request.path.partition("&x-id")[0]
        if request.kind != kind or key in seen:
            return False
        seen.append(key)
        return True

    return is_first


@pytest.mark.parametrize("kind", ["GET", "LIST"])
def test_a_cut_body_is_read_again(s3: Proxy, tmp_path: Path, kind: str) -> None:
    objects = RemoteObjects(store_url(f"s3://{BUCKET}/cut-{kind}"))
    data = bytes(range(256)) * 400
    objects.put({f"a/{name}": data for name in "xyz"})
    cut: list[str] = []
    s3.cuts = once(kind, cut)  # type: ignore[assignment]
    assert [entry.key for entry in objects.walk("a/")] == ["a/x", "a/y", "a/z"]
    assert objects.folders("") == ["a"]
    assert objects.get("a/x") == data
    assert objects.get_range("a/y", 10, 90_000) == data[10:90_000]
    objects.download("a/z", tmp_path / "z")
    assert (tmp_path / "z").read_bytes() == data
    assert len(cut) >= 2


@pytest.mark.parametrize("kind", ["GET", "LIST"])
def test_a_body_that_is_always_cut_is_an_outage(s3: Proxy, kind: str) -> None:
    objects = RemoteObjects(store_url(f"s3://{BUCKET}/always-{kind}"))
    objects.put({"a/x": b"1" * 100_000})
    s3.requests.clear()
    s3.cuts = lambda request: request.kind == kind
    with pytest.raises(StoreUnavailable, match="does not answer") as caught:
        list(objects.walk("a/")) if kind == "LIST" else objects.get("a/x")
    assert caught.value.is_transient and caught.value.exit_code == 6
    assert 3 <= s3.counts()[kind] <= 15


@pytest.mark.deep
def test_listing_goes_on_after_the_last_page(s3: Proxy) -> None:
    objects = RemoteObjects(store_url(f"s3://{BUCKET}/pages"))
    names = [f"a/{number:05d}" for number in range(1_200)]
    objects.put(dict.fromkeys(names, b""))
    seen: list[str] = []
    s3.cuts = lambda request: "continuation-token" in request.path and once("LIST", seen)(request)  # type: ignore[operator]
    assert [entry.key for entry in objects.walk("a/")] == names
    assert len(seen) == 1


def test_a_trace_whose_store_does_not_answer_is_pending(s3: Proxy, traces: Path, tmp_path: Path) -> None:
    bucket = RemoteObjects(store_url(f"s3://{BUCKET}"))
    bucket.put({f"src-out/{path.name}": path.read_bytes() for path in traces.glob("*.gz")})
    url, warehouse = f"s3://{BUCKET}/src-out", tmp_path / "wh"
    s3.refuses = lambda request: 503 if request.kind == "GET" and "/src-out/rank2" in request.path else None
    command = ("ingest", url, "-w", warehouse, "--run", "job", "--jobs", "2")
    first = cli_runner.tw(*command)
    assert first.code == 6, first.err
    assert f"pending: {url}/rank2.json.gz: s3://{BUCKET}: the store does not answer" in first.errors
    assert "internal error" not in first.err and "refused" not in first.err + first.out
    assert tw.open(warehouse).selected()[0].ranks == (0, 1, 3)
    s3.reset()
    again = cli_runner.tw(*command)
    assert again.code == 0, again.err
    assert tw.open(warehouse).selected()[0].ranks == (0, 1, 2, 3)


@pytest.mark.parametrize("part", ["/_tw/versions/", *deep("/data/", "/_tw/commits/", "list-type")])
def test_an_outage_of_the_warehouse_is_exit_code_6(s3: Proxy, traces: Path, part: str) -> None:
    url = f"s3://{BUCKET}/out{re.sub('[^a-z]', '-', part)}"
    tw.open(url).ingest(traces / "rank0.json.gz", run="first", jobs=1)
    s3.refuses = lambda request: 503 if part in request.path and "/out" in request.path + url else None
    command = ("ingest", traces / "rank1.json.gz", traces / "rank2.json.gz", "-w", url, "--run", "job")
    command = (*command, "--jobs", "2")
    done = cli_runner.tw(*command, "--json")
    assert done.code == 6, done.err
    assert "internal error" not in done.err and "refused" not in done.err
    said = json.loads(done.out)
    assert said["error"] is None or said["error"]["class"] == "StoreUnavailable"
    s3.reset()
    assert cli_runner.tw(*command).code == 0
    assert tw.open(url).verify() == []


def test_access_that_is_denied_is_not_worth_a_retry(s3: Proxy, traces: Path, tmp_path: Path) -> None:
    s3.refuses = lambda _: 403
    done = cli_runner.process("runs", "-w", f"s3://{BUCKET}/denied", env=s3.environment)
    assert done.code == 1 and "access denied" in done.err


class Unanswered:
    def __init__(self, is_transient: bool) -> None:
        self.is_transient = is_transient

    def run(self, progress: TaskProgress) -> object:
        raise StoreUnavailable("s3://b: no", "try", self.is_transient)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("is_transient", [True, False])
def test_an_outage_in_a_worker_travels_as_what_it_is(jobs: int, is_transient: bool) -> None:
    engine: Engine
    tasks = [Unanswered(is_transient), Unanswered(is_transient)]
    with LocalEngine(jobs) as engine:
        results = dict(engine.run(tasks, lambda *_: None))
        with pytest.raises(StoreUnavailable) as caught:
            results_in_order(engine, tasks)
    failed = results[0]
    assert isinstance(failed, StoreFailed)
    assert (failed.message, failed.hint, failed.transient) == ("s3://b: no", "try", is_transient)
    assert (caught.value.hint, caught.value.exit_code) == ("try", 6 if is_transient else 1)


def test_verify_lists_the_files_of_64_ranks(s3: Proxy) -> None:
    url = store_url(f"s3://{BUCKET}/verified")
    store = Store.open_or_create(url)
    store.publish("run", Changes(sources=tuple(commit(store, rank) for rank in range(64))))
    s3.requests.clear()
    assert Store.open(url).verify() == []
    counts = s3.counts()
    assert counts["HEAD"] <= 2 and counts["LIST"] <= 10, counts
