"""The index of runs and its list: they save requests, and never change an answer."""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import resource
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import cli_runner
import tracewarehouse as tw
from object_store import BUCKET, Proxy, Request
from recorded_runs import recorded_runs
from storage_sources import commit, staged
from tracewarehouse.location import store_url
from tracewarehouse.runs.rows import catalog_row
from tracewarehouse.storage import codec, layout, remote, versions
from tracewarehouse.storage.codec import encode_version, sealed, unsealed
from tracewarehouse.storage.model import Changes, LateSources, RunVersion
from tracewarehouse.storage.objects import LocalObjects
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse


def url(prefix: str) -> str:
    return f"s3://{BUCKET}/{prefix}"


def fill(store: Store, runs: int, rank: int = 0) -> None:
    """Publishes a rank of each run."""
    for number in range(runs):
        with store.staging() as folder:
            source = store.commit([staged(folder, rank, run=f"Run-{number:03d}")])[0]
        store.publish(source.run, Changes(sources=(source,), labels={"number": str(number)}))


def forge(store: Store, runs: int, ranks: int) -> None:
    """Publishes runs of many ranks, of which only versions and index entries exist."""
    with store.staging() as folder:
        source = store.commit([staged(folder, 0)])[0]
    base = RunVersion("run", 1, (), {}, None, source.committed_at, "0.0", nonce="0" * 32)
    sources = [replace(source, rank=rank, uid=f"{rank:016x}", digest=f"{rank:064x}") for rank in range(ranks)]
    objects = {}
    for number in range(runs):
        run = f"run-{number:04d}"
        version = replace(base, run=run, sources=tuple(replace(one, run=run) for one in sources))
        data = encode_version(version)
        objects[layout.version(run, 1)] = data
        objects[layout.entry(run)] = codec.encode_entry(codec.entry_of(version, codec.digest(data)))
    store.objects.put(objects)


def rows_of(place: str | Path) -> list[dict[str, Any]]:
    return tw.open(place).runs().rows()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new list for more than two new entries; none is too young for it."""
    monkeypatch.setattr(versions, "_NEWER", 2)
    monkeypatch.setattr(versions, "_RACY_NS", -(10**18))


@pytest.fixture
def local(tmp_path: Path, few: None) -> Path:
    """A warehouse with four runs, one of which was removed, and a list that is older than one of them."""
    store = Store.open_or_create(tmp_path / "warehouse")
    fill(store, 4)
    store.remove("run-001")
    store.list_new_versions(catalog_row)
    assert (tmp_path / "warehouse" / layout.LIST).exists()
    store.relabel("run-002", {"team": "a"})
    return tmp_path / "warehouse"


def list_file(place: Path) -> Path:
    return place / layout.LIST


def test_rows_from_the_list_are_those_of_the_versions(local: Path) -> None:
    with_list = rows_of(local)
    assert [row["run_id"] for row in with_list] == ["Run-000", "Run-002", "Run-003"]
    assert [row["version"] for row in with_list] == [1, 2, 1]
    assert with_list[1]["labels"] == {"number": "2", "team": "a"}
    briefs = Store.open(local).briefs()
    list_file(local).unlink()
    assert rows_of(local) == with_list
    assert Store.open(local).briefs() == briefs
    assert [brief.run for brief in briefs] == ["Run-000", "Run-002", "Run-003"]


def compact(wh: Warehouse, folder: Path) -> None:
    assert [one.files_after for one in wh.compact()] == [2] * 4


def retain(wh: Warehouse, folder: Path) -> None:
    (folder / "policy.toml").write_text('[[rule]]\ntables = ["events"]\nolder_than = "0s"\n')
    assert [one.tables for one in wh.expire(folder / "policy.toml")] == [("events",)] * 4


@pytest.mark.parametrize("upkeep", [compact, retain])
def test_upkeep_that_publishes_writes_the_list(few: None, tmp_path: Path, upkeep: Any) -> None:
    store = Store.open_or_create(tmp_path / "warehouse")
    for rank in range(2):
        fill(store, 4, rank)
    wh = tw.open(tmp_path / "warehouse")
    upkeep(wh, tmp_path)
    listed = codec.decode_list(store.objects.get(layout.LIST), "list").by_key()
    assert {one.number for one in listed.values()} == {3}


def test_the_list_of_many_runs_is_not_written_with_each_version(
    s3: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "_LIST_SHARE", 4)
    store = Store.open_or_create(store_url(url("not-each")))
    fill(store, 8)
    store.list_new_versions(catalog_row)
    first = store.objects.get(layout.LIST)
    for number in range(3):
        store.relabel(f"run-{number:03d}", {"team": "a"})
        s3.reset()
        store.list_new_versions(catalog_row)
        is_written = store.objects.get(layout.LIST) != first
        assert is_written == (number == 2), "two of eight runs may be newer"
        assert [row["version"] for row in rows_of(url("not-each"))].count(2) == number + 1


def _flipped(data: bytes) -> bytes:
    return data[:60] + bytes([data[60] ^ 1]) + data[61:]


def _resealed(data: bytes, **fields: object) -> bytes:
    known = unsealed(gzip.decompress(data))
    return gzip.compress(sealed(known | fields))


@pytest.mark.parametrize(
    "damage",
    [
        _flipped,
        lambda data: data[:-20],
        lambda _: b"",
        lambda _: b"text",
        lambda data: _resealed(data, rows=codec.LIST_ROWS + 1),
        lambda data: _resealed(data, must_understand=["later"]),
        lambda data: _resealed(data, runs=[{"run": {}}]),
    ],
)
def test_an_unusable_list_changes_no_answer(local: Path, damage: Any) -> None:
    before = rows_of(local)
    list_file(local).write_bytes(damage(list_file(local).read_bytes()))
    assert rows_of(local) == before
    assert [row["run_id"] for row in tw.open(local).select("@latest").runs().rows()] == ["Run-003"]


def test_a_damaged_list_is_reported_and_repaired(local: Path) -> None:
    wh = tw.open(local)
    assert wh.verify() == []
    list_file(local).write_bytes(_flipped(list_file(local).read_bytes()))
    assert [problem.path for problem in wh.verify()] == [layout.LIST]
    assert [step.key for step in wh.repair(dry_run=True).steps] == [layout.LIST]
    wh.repair()
    assert wh.verify() == [] and not list_file(local).exists()


def test_a_list_that_differs_from_an_entry_is_reported(local: Path) -> None:
    known = unsealed(gzip.decompress(list_file(local).read_bytes()))
    for run in known["runs"]:
        run["sha256"] = "0" * 64
    list_file(local).write_bytes(gzip.compress(sealed(known)))
    wh = tw.open(local)
    assert {problem.what.partition(" ")[0] for problem in wh.verify()} == {"differs"}
    wh.repair()
    assert wh.verify() == []


def test_a_version_that_was_lost_since_is_named_whatever_the_list_says(local: Path) -> None:
    (local / layout.version("run-000", 1)).unlink()
    states = {row["run_id"]: row["state"] for row in rows_of(local)}
    assert states["Run-000"] == "damaged"


def test_an_entry_that_may_change_again_is_not_taken_from_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two changes of a file within the resolution of its time: the list shows the first."""
    store = Store.open_or_create(tmp_path / "warehouse")
    fill(store, 2)
    store.list_runs(catalog_row)
    (data,) = (codec.decode_list(store.objects.get(layout.LIST), "list").runs,)
    assert {entry.stamp for entry in data} == {""}
    monkeypatch.setattr(versions, "_RACY_NS", -(10**18))
    store.list_runs(catalog_row)
    assert "" not in {entry.stamp for entry in codec.decode_list(store.objects.get(layout.LIST), "x").runs}


def test_purged_secrets_are_in_no_list(local: Path) -> None:
    wh = tw.open(local)
    secret = "ghp_" + "a1B2" * 9
    wh.store.relabel("run-002", {"token": secret})
    wh.store.list_runs(catalog_row)
    assert any(found.file == layout.LIST for found in wh.secrets().found)
    wh.label("run-002", {"token": None})
    wh.remove_secrets(redact=False, purge=True)
    assert not wh.secrets().found
    assert [row["labels"] for row in rows_of(local)][1] == {"number": "2", "team": "a"}


def test_a_history_reads_the_list_and_no_version(s3: Proxy, tmp_path: Path) -> None:
    local = recorded_runs(tmp_path / "warehouse", [10, 20, 30, 40], {2: {"team": "a"}})
    place = url("history")
    store = Store.open_or_create(store_url(place))
    files = [
        path
        for top in ("_tw/versions", "_tw/index", "results")
        for path in (tmp_path / "warehouse" / top).rglob("*.*")
    ]
    store.objects.put(
        {path.relative_to(tmp_path / "warehouse").as_posix(): path.read_bytes() for path in files}
    )
    store.list_runs(catalog_row)
    s3.requests.clear()
    found = tw.open(place).history("step_time", by="label.team")
    assert found.rows() == local.history("step_time", by="label.team").rows()
    assert not [each.path for each in s3.requests if each.kind == "GET" and "/versions/" in each.path]
    assert s3.counts()["LIST"] <= 8, s3.counts()


def test_what_the_list_says_of_a_version_is_what_the_version_says(local: Path) -> None:
    store = Store.open(local)
    read, (listed, entries) = store.present(), Store.open(local).listing(lambda _: True)
    late = [one for one in listed if isinstance(one.sources, LateSources)]
    assert [one.run for one in late] == ["Run-000", "Run-003"], "the other is newer than the list"
    assert store.kept(entries) == store.kept() == ()
    for one, other in zip(listed, read, strict=True):
        assert (one.brief, one.summary, one.source, one.ranks) == (
            other.brief,
            other.summary,
            other.source,
            other.ranks,
        )
        assert (one.hardware, one.kernel_rules, one.expected_ranks) == (
            other.hardware,
            other.kernel_rules,
            other.expected_ranks,
        )
        assert (one.created_at, one.tool, one.expired) == (other.created_at, other.tool, other.expired)
    assert "loaded" not in vars(late[0].sources) and list(late[0].sources) == list(read[0].sources)
    tables = {table for one in read for table in one.summary.tables}
    assert not [
        one
        for one in store.listing(lambda said: tables.isdisjoint(said.tables))[0]
        if isinstance(one.sources, LateSources)
    ]


def test_a_list_without_summaries_is_used_for_rows_and_written_again(local: Path) -> None:
    before, known = rows_of(local), unsealed(gzip.decompress(list_file(local).read_bytes()))
    for run in known["runs"]:
        del run["head"]
        run.pop("summary", None)
    list_file(local).write_bytes(gzip.compress(sealed(known)))
    assert rows_of(local) == before
    store = Store.open(local)
    assert not [one for one in store.listing(lambda _: True)[0] if isinstance(one.sources, LateSources)]
    store.list_runs(catalog_row)
    assert (
        len(
            [
                one
                for one in Store.open(local).listing(lambda _: True)[0]
                if isinstance(one.sources, LateSources)
            ]
        )
        == 3
    )
    assert rows_of(local) == before


def test_the_list_is_a_small_part_of_the_index() -> None:
    """An update of the index that writes the list rewrites this part of it; every reader downloads it."""
    store = Store.open_or_create(store_url("memory://small-list"))
    forge(store, 1_000, 1)
    random_hex, entries = random.Random(7), store.entries(catalog_row)
    # What is the same in all runs here is not in real ones.
    listed = [
        replace(
            one, sha256=f"{random_hex.getrandbits(256):064x}", stamp=f"{random_hex.getrandbits(128):032x}"
        )
        for one in entries
    ]
    entry_bytes = sum(one.bytes for one in store.objects.walk(f"{layout.ENTRIES}/"))
    assert len(codec.encode_list(listed)) <= 0.12 * entry_bytes


# The list in parts


@pytest.mark.parametrize("runs", [1_000, 2_000, pytest.param(5_000, marks=pytest.mark.deep)])
def test_an_update_rewrites_at_most_a_hundredth_of_the_index_of_many_runs(
    monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    # Tags as in a real store, as long as the hash that they are there.
    monkeypatch.setattr(remote, "_etag", lambda text: hashlib.md5(str(text).encode()).hexdigest())
    store = Store.open_or_create(store_url(f"memory://parts-{runs}"))
    forge(store, runs, 1)
    store.list_runs(catalog_row)
    written: list[tuple[str, int]] = []
    put = store.objects.put

    def noted(objects: Mapping[str, bytes]) -> None:
        written.extend((key, len(data)) for key, data in objects.items())
        put(objects)

    monkeypatch.setattr(store.objects, "put", noted)
    for number in range(0, runs, runs // 40):
        written.clear()
        run = f"run-{number:04d}"
        store.relabel(run, {"team": "a"})
        store.list_new_versions(catalog_row)
        assert [key for key, _ in written] == [layout.entry(run), layout.list_part(run)]
        index_bytes = sum(one.bytes for one in store.objects.walk(f"{layout.INDEX}/"))
        assert sum(size for _, size in written) <= 0.01 * index_bytes


@pytest.fixture
def many(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of four runs or more is in parts."""
    monkeypatch.setattr(versions, "_MANY", 4)


def parts_in(place: Path) -> set[str]:
    return {path.relative_to(place).as_posix() for path in (place / layout.INDEX).glob("list*")}


def runs_of_a_part(count: int) -> list[str]:
    """Names of runs that are in one part of the list."""
    names = (f"run-{number:03d}" for number in range(1_000))
    return [name for name in names if layout.list_part(name) == layout.PARTS[7]][:count]


def test_parts_replace_the_list_and_answer_the_same(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, briefs = rows_of(local), Store.open(local).briefs()
    monkeypatch.setattr(versions, "_MANY", 4)
    Store.open(local).list_runs(catalog_row)
    assert parts_in(local) == {*layout.PARTS}
    assert rows_of(local) == before and Store.open(local).briefs() == briefs
    opened = Store.open(local)
    listed = opened.listing(lambda _: True)[0]
    assert [one.run for one in listed if isinstance(one.sources, LateSources)] == [
        "Run-000",
        "Run-002",
        "Run-003",
    ]
    assert opened.verify() == []
    monkeypatch.setattr(versions, "_MANY", 5)
    opened.list_runs(catalog_row)
    assert parts_in(local) == {layout.LIST} and rows_of(local) == before


def test_a_list_of_an_earlier_release_beside_parts_is_read_and_replaced(many: None, tmp_path: Path) -> None:
    store = Store.open_or_create(tmp_path / "warehouse")
    fill(store, 4)
    store.list_runs(catalog_row)
    earlier = store.entries(catalog_row)
    for number in range(3):
        store.relabel(f"run-{number:03d}", {"team": "a"})
    store.objects.put({layout.LIST: codec.encode_list(earlier)})
    assert [row["version"] for row in rows_of(store.folder)] == [2, 2, 2, 1]
    store.list_new_versions(catalog_row)
    assert parts_in(store.folder) == {*layout.PARTS}
    assert [row["version"] for row in rows_of(store.folder)] == [2, 2, 2, 1]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("is_in_parts", [False, True])
def test_a_kill_between_two_writes_loses_no_run(
    local: Path, many: None, monkeypatch: pytest.MonkeyPatch, is_in_parts: bool
) -> None:
    if is_in_parts:
        Store.open(local).list_runs(catalog_row)
    last = {path: path.read_bytes() for path in (local / layout.INDEX).glob("list*")}
    store, writes = Store.open(local), 0
    write, delete = store.objects._rename, store.objects.delete  # type: ignore[attr-defined]

    def killed(act: Callable[..., None], *args: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        act(*args)

    monkeypatch.setattr(store.objects, "_rename", partial(killed, write))
    monkeypatch.setattr(store.objects, "delete", lambda keys: [killed(delete, [key]) for key in keys])
    for writes in range(40):
        for key in parts_in(local):
            (local / key).unlink()
        for path, data in last.items():
            path.write_bytes(data)
        left = 100
        store.relabel("run-003", {"at": str(writes)})
        left = writes
        with suppress(Killed):
            store.list_runs(catalog_row)
        assert {row["run_id"]: row["version"] for row in rows_of(local)} == {
            "Run-000": 1,
            "Run-002": 2,
            "Run-003": 2 + writes,
        }
        with monkeypatch.context() as web:
            web.setattr(LocalObjects, "is_listable", False)
            assert Store.open(local).runs() == ("Run-000", "Run-002", "Run-003")
        if left > 0:
            break
    assert writes >= len(layout.PARTS) and parts_in(local) == {*layout.PARTS}


@pytest.mark.parametrize("order", ["before", "after"])
def test_of_two_writers_of_a_part_at_once_none_hides_the_run_of_the_other(
    s3: Proxy, many: None, order: str
) -> None:
    place = store_url(url(f"two-parts-{order}"))
    one, other = Store.open_or_create(place), Store.open(place)
    runs = runs_of_a_part(6)
    for run in runs:
        one.publish(run, Changes(sources=(commit(one, 0, run=run),)))
    one.list_runs(catalog_row)
    done: list[str] = []

    def meanwhile(request: Request) -> None:
        if request.kind == "PUT" and request.path.endswith(layout.PARTS[7]) and not done:
            done.append(request.path)
            other.relabel(runs[1], {"team": "b"})
            other.list_new_versions(catalog_row)

    setattr(s3, order, meanwhile)
    one.relabel(runs[0], {"team": "a"})
    one.list_new_versions(catalog_row)
    assert done
    labels = [row["labels"] for row in rows_of(url(f"two-parts-{order}"))]
    assert labels == [{"team": "a"}, {"team": "b"}, {}, {}, {}, {}]
    assert one.verify() == []
    one.relabel(runs[2], {"team": "c"})
    one.list_new_versions(catalog_row)
    part = codec.decode_list(one.objects.get(layout.PARTS[7]), "part").by_key()
    assert [part[run].number for run in runs] == [2, 2, 2, 1, 1, 1]


def test_a_damaged_part_is_reported_and_written_again(many: None, tmp_path: Path) -> None:
    wh = tw.open(recorded_runs(tmp_path / "warehouse", [10] * 6).root)
    runs = [brief.run for brief in wh.store.briefs()]
    wh.store.list_runs(catalog_row)
    before, part = rows_of(wh.root), layout.list_part(runs[0])
    (wh.root / part).write_bytes(_flipped((wh.root / part).read_bytes()))
    assert rows_of(wh.root) == before
    assert [problem.path for problem in wh.verify()] == [part]
    wh.repair()
    assert wh.verify() == [] and part not in parts_in(wh.root) and rows_of(wh.root) == before
    for run in runs[:3]:
        wh.store.relabel(run, {"a": "b"})
    wh.store.list_new_versions(catalog_row)
    assert parts_in(wh.root) == {*layout.PARTS} and wh.verify() == []


def test_purged_secrets_are_in_no_part(local: Path, many: None) -> None:
    wh = tw.open(local)
    secret = "ghp_" + "a1B2" * 9
    wh.store.relabel("run-002", {"token": secret})
    wh.store.list_runs(catalog_row)
    assert layout.list_part("run-002") in {found.file for found in wh.secrets().found}
    wh.label("run-002", {"token": None})
    wh.remove_secrets(redact=False, purge=True)
    assert not wh.secrets().found


@pytest.mark.deep
def test_five_thousand_runs_are_listed_in_little_time(tmp_path: Path) -> None:
    """CPU of `tw runs` on a folder, above that of `tw --version`."""
    store = Store.open_or_create(tmp_path / "warehouse")
    forge(store, 5_000, 1)
    then = time.time() - 60
    for path in (*(tmp_path / "warehouse/_tw/index/runs").iterdir(),):
        os.utime(path, (then, then))
    store.list_runs(catalog_row)
    used = [_cpu_s("runs", "--json", "-w", tmp_path / "warehouse") for _ in range(3)]
    start = min(_cpu_s("--version") for _ in range(3))
    assert min(used) - start <= 0.4


def _cpu_s(*arguments: str | Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = cli_runner.process(*arguments)
    assert done.code == 0, done.err
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# In an object store


def test_commands_write_the_list_and_lists_read_little(
    s3: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At most 5 requests for a list of runs, and 10 for one selected by its age or a label."""
    place = url("listed")
    store = Store.open_or_create(store_url(place))
    forge(store, 34, 1)
    tw.open(place).label("run-0007", {"team": "a"})
    assert store.objects.stat(layout.LIST) is not None
    monkeypatch.setenv("TW_MIRROR", str(tmp_path / "new"))
    s3.requests.clear()
    rows = rows_of(place)
    assert len(rows) == 34 and s3.counts() == {"GET": 2, "LIST": 2}
    for selector in ("@latest", "label:team=a"):
        s3.requests.clear()
        (row,) = tw.open(place).select(selector).runs().rows()
        assert row in rows and len(s3.requests) <= 10, s3.counts()


def test_without_a_list_entries_and_versions_are_read(s3: Proxy) -> None:
    forge(Store.open_or_create(store_url(url("copy"))), 6, 1)
    s3.requests.clear()
    assert len(rows_of(url("copy"))) == 6
    assert s3.counts() == {"GET": 1 + 2 * 6, "LIST": 2}


@pytest.mark.parametrize("order", ["put before the other looks", "put after the other looked"])
def test_of_two_publishers_at_once_the_list_has_both(s3: Proxy, order: str) -> None:
    """Each writes the list without the other's run; the second looks once more, and adds what is missing."""
    place = store_url(url(f"two-{order.split()[1]}"))
    one, other = Store.open_or_create(place), Store.open(place)
    fill(one, 1)
    one.list_runs(catalog_row)
    done: list[str] = []

    def meanwhile(request: Request) -> None:
        """The other publishes and lists while the first one writes its list."""
        if request.kind == "PUT" and request.path.endswith(layout.LIST) and not done:
            done.append(request.path)
            source = commit(other, 0, run="other")
            other.publish("other", Changes(sources=(source,)))
            other.list_runs(catalog_row)

    setattr(s3, "before" if order.startswith("put before") else "after", meanwhile)
    source = commit(one, 0, run="one")
    one.publish("one", Changes(sources=(source,)))
    one.list_new_versions(catalog_row)
    assert done
    listed = codec.decode_list(one.objects.get(layout.LIST), "list").by_key()
    assert set(listed) == {"run-000", "one", "other"}
    assert tw.open(url(f"two-{order.split()[1]}")).verify() == []


def test_publishers_and_readers_notice_a_lost_version(s3: Proxy) -> None:
    store = Store.open_or_create(store_url(url("lost")))
    fill(store, 1)
    store.relabel("Run-000", {"a": "b"})
    store.objects.delete([layout.version("run-000", 2)])
    assert [problem.what for problem in store.verify()] == ["version missing: its index entry is there"]
    for act in (Store.newest, lambda store, run: store.relabel(run, {"a": "c"})):
        with pytest.raises(tw.errors.DamagedRunError, match="version missing"):
            act(Store.open(store_url(url("lost"))), "Run-000")


@pytest.mark.deep
@pytest.mark.parametrize(("runs", "ranks", "seconds"), [(300, 1, 2.0), (100, 1024, 2.0)])
def test_many_runs_at_20_ms_a_request(
    s3: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs: int, ranks: int, seconds: float
) -> None:
    place = url(f"many-{runs}")
    store = Store.open_or_create(store_url(place))
    forge(store, runs, ranks)
    store.list_runs(catalog_row)
    monkeypatch.setenv("TW_MIRROR", str(tmp_path / "new"))
    s3.before = lambda _: time.sleep(0.02)
    s3.requests.clear()
    started = time.perf_counter()
    assert len(rows_of(place)) == runs
    assert time.perf_counter() - started <= seconds
    assert len(s3.requests) <= 5, s3.counts()
