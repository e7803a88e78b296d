"""The stored objects themselves: checksums, the index, many files, and fields of a later release."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from msgspec.structs import replace

from object_store import BUCKET, Proxy
from storage_sources import commit, seen, staged
from tracewarehouse.errors import DamagedRunError, SchemaVersionError, TwError, WarehouseError
from tracewarehouse.location import store_url
from tracewarehouse.storage.clean import clean
from tracewarehouse.storage.codec import decode_version, encode_version, sealed, unsealed
from tracewarehouse.storage.model import Changes, ManySources, RunVersion, TableFile
from tracewarehouse.storage.objects import LocalObjects
from tracewarehouse.storage.repair import RunRepair
from tracewarehouse.storage.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open_or_create(tmp_path / "warehouse", tool="0.0")
    sources = tuple(commit(store, rank) for rank in (0, 1))
    store.publish("run", Changes(sources=sources, labels={"a": "é"}))
    store.relabel("run", {"b": "2"})
    return store


def entry(store: Store) -> Path:
    return store.path("_tw/index/runs/run.json")


def version(store: Store, number: int = 1) -> Path:
    return store.path(f"_tw/versions/run/{number:06d}.json")


def decoded(data: bytes) -> RunVersion:
    return decode_version(LocalObjects(Path("none")), data, "v")


def damaged(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("name", ["_tw/warehouse.json", "commit", "version", "entry"])
def test_every_flipped_bit_of_a_sealed_object_is_noticed(store: Store, name: str) -> None:
    found = min((store.folder / "_tw" / "commits" / "run").iterdir())
    paths = {"commit": found, "entry": entry(store), "version": version(store)}
    data, chance = paths.get(name, store.folder / name).read_bytes(), random.Random(3)
    assert unsealed(data)
    for _ in range(200):
        with pytest.raises(ValueError):
            unsealed(damaged(data, chance))
    if name == "version":
        for _ in range(200):
            with pytest.raises(TwError):
                decoded(damaged(data, chance))


def test_a_changed_warehouse_json_is_refused_with_a_hint(store: Store) -> None:
    path = store.folder / "_tw" / "warehouse.json"
    path.write_bytes(path.read_bytes().replace(store.id[:4].encode(), b"0000"))
    with pytest.raises(WarehouseError, match="checksum differs") as caught:
        Store.open(store.folder)
    assert caught.value.hint == "wh.repair() writes it again"


def test_a_changed_commit_is_refused_with_a_hint(store: Store) -> None:
    source = commit(store, 5)
    path = store.path(f"_tw/commits/run/{source.commit}")
    path.write_bytes(path.read_bytes().replace(b'"rank":5', b'"rank":6'))
    with pytest.raises(WarehouseError, match="damaged commit: checksum differs") as caught:
        store.headers([source])
    assert "wh.verify()" in (caught.value.hint or "")


def test_files_know_their_footers_and_crc(store: Store) -> None:
    newest = store.newest("run")
    assert newest is not None
    for file in newest.sources[0].files:
        data = store.path(file.path).read_bytes()
        footer = data[-file.footer_bytes :]
        assert int.from_bytes(footer[-8:-4], "little") == file.footer_bytes - 8
        assert hashlib.sha256(footer).hexdigest() == file.footer_sha256
        assert file.crc32 == crc32(data)


def test_no_two_versions_are_the_same_bytes(store: Store) -> None:
    first, second = (store.get("run", number) for number in (1, 2))
    assert len(first.nonce) == len(second.nonce) == 32 and first.nonce != second.nonce


# The index and the chain of versions


def test_a_version_has_the_checksum_of_the_one_before_and_the_entry_that_of_the_newest(store: Store) -> None:
    first, second = (version(store, number).read_bytes() for number in (1, 2))
    assert store.get("run", 1).previous == ""
    assert store.get("run", 2).previous == hashlib.sha256(first).hexdigest()
    said = unsealed(entry(store).read_bytes())
    assert (said["number"], said["sha256"]) == (2, hashlib.sha256(second).hexdigest())
    assert said["labels"] == {"a": "é", "b": "2"}
    assert said["sources"] == [[one.name, one.commit] for one in store.get("run", 2).sources]


def test_the_next_publish_writes_the_entry_that_a_killed_call_did_not(store: Store) -> None:
    before = entry(store).read_bytes()
    assert store.publish("run", Changes(labels={"c": "3"})).version is not None
    entry(store).write_bytes(before)
    assert store.verify() == [] and store.newest("run") == store.get("run", 3)
    assert [brief.number for brief in Store.open(store.folder).briefs()] == [3]
    assert store.publish("run", Changes(labels={"c": "3"})).version is None
    assert unsealed(entry(store).read_bytes())["number"] == 3


def test_a_missing_entry_is_found_by_readers_and_written_again(store: Store) -> None:
    entry(store).unlink()
    fresh = Store.open(store.folder)
    assert fresh.newest("run") == store.get("run", 2)
    assert [brief.number for brief in fresh.briefs()] == [2]
    clean(store, 3600)
    assert unsealed(entry(store).read_bytes())["number"] == 2


@pytest.mark.parametrize("what", ["version", "label", "removal"])
def test_a_lost_newest_version_is_named_and_no_older_one_answers(store: Store, what: str) -> None:
    if what == "version":
        store.publish("run", Changes(sources=(commit(store, 2),)))
    elif what == "removal":
        store.remove("run")
    newest = store.versions("run")[-1]
    version(store, newest).unlink()
    lost = f"_tw/versions/run/{newest:06d}.json"
    fresh = Store.open(store.folder)
    for act in (fresh.newest, fresh.head, lambda run: fresh.relabel(run, {"x": "y"})):
        with pytest.raises(DamagedRunError, match="version missing"):
            act("run")
    assert fresh.present() == () and fresh.runs() == ()
    assert [(one.run, one.key) for one in fresh.unreadable()] == [("run", lost)]
    assert [(one.path, one.what) for one in fresh.verify()] == [
        (lost, "version missing: its index entry is there")
    ]
    assert clean(fresh, -1).skipped == ("run",)


def test_a_lost_older_version_is_named(store: Store) -> None:
    version(store, 1).unlink()
    assert [(one.path, one.what) for one in store.verify()] == [
        ("_tw/versions/run/000001.json", "version missing")
    ]


def test_a_version_that_was_exchanged_is_noticed(store: Store) -> None:
    other = replace(store.get("run", 2), labels={})
    version(store, 2).write_bytes(encode_version(other))
    problems = {(one.path, one.what) for one in store.verify()}
    assert ("_tw/versions/run/000002.json", "differs from its index entry") in problems
    store.relabel("run", {"x": "y"})
    version(store, 2).write_bytes(encode_version(replace(other, labels={"c": "d"})))
    problems = {(one.path, one.what) for one in store.verify()}
    assert ("_tw/versions/run/000002.json", "differs from what v3 says of it") in problems
    entry(store).write_bytes(b"{}")
    assert "damaged index entry" in {one.what.partition(":")[0] for one in store.verify()}


# Runs of many files


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than three files are many."""
    monkeypatch.setattr("tracewarehouse.storage.store.MANY_FILES", 3)


def test_the_files_of_a_large_run_are_in_an_object_that_labels_share(many: None, store: Store) -> None:
    small = store.get("run", 2)
    newest = store.relabel("run", {"c": "3"}).newest
    fresh = Store.open(store.folder)
    read = fresh.get("run", 3)
    assert isinstance(read.sources, ManySources) and "loaded" not in vars(read.sources)
    assert (read.ranks, read.source, read.bytes, read.brief) == (
        small.ranks, small.source, small.bytes, newest.brief,
    )  # fmt: skip
    assert read.scan_plan("events") == small.scan_plan("events")
    assert read.scan_plan("kernels", [2, 1], [1]) == small.scan_plan("kernels", [2, 1], [1])
    assert "loaded" not in vars(read.sources)
    assert tuple(read.sources) == small.sources and read.by_rank == small.by_rank
    store.relabel("run", {"c": "4"})
    (name,) = (path.name for path in version(store).parent.glob("*.parquet"))
    assert store.verify() == []
    store.publish("run", Changes(sources=(commit(store, 2),)))
    assert len(list(version(store).parent.glob("*.parquet"))) == 2
    assert Store.open(store.folder).head("run").ranks == (0, 1, 2)
    clean(store, -1, keep_versions_s=-1)
    (left,) = (path.name for path in version(store).parent.glob("*.parquet"))
    assert left != name and store.verify() == []
    assert set(seen(store)) == {0, 1, 2}


@pytest.mark.parametrize("how", ["missing", "flipped"])
def test_damage_of_that_object_is_named_and_repaired(many: None, store: Store, how: str) -> None:
    store.relabel("run", {"c": "3"})
    before = tuple(Store.open(store.folder).head("run").sources)
    (path,) = version(store).parent.glob("*.parquet")
    data = path.read_bytes()
    path.unlink()
    if how == "flipped":
        path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    assert [one.path for one in store.verify()] == [path.relative_to(store.folder).as_posix()]
    repair = RunRepair(store, "run")
    repair.repair()
    # The versions before shared the object.
    lost = "version lost: no other object has what it held"
    restored = "version restored from its index entry and commits"
    assert [step.what for step in repair.steps] == [restored, lost, lost]
    assert tuple(Store.open(store.folder).head("run").sources) == before
    assert Store.open(store.folder).verify() == []


def test_one_table_of_ten_thousand_ranks_reads_little(s3: Proxy) -> None:
    """At most 200 kB of metadata, of a run of 20 tables and files of eight ranks each."""
    place, ranks, tables = f"s3://{BUCKET}/ten-thousand", 10_000, 20
    store, chance = Store.open_or_create(store_url(place)), random.Random(1)
    with store.staging() as folder:
        source = store.commit([staged(folder, 0)])[0]
    files: dict[int, tuple[TableFile, ...]] = {}
    for first in range(0, ranks, 8):
        name = f"{first:06d}-{chance.randbytes(8).hex()}-{chance.randbytes(4).hex()}"
        files[first] = tuple(
            replace(
                source.files[0],
                table=f"table_{at:02d}",
                path=f"data/table_{at:02d}/run/{name}.parquet",
                rows=chance.randrange(10_000),
                bytes=chance.randrange(10**6),
                file_rows=80_000,
                first_rank=first,
                last_rank=first + 7,
                file_ranks=8,
                sha256=chance.randbytes(32).hex(),
                footer_sha256=chance.randbytes(32).hex(),
                crc32=chance.getrandbits(32),
            )
            for at in range(tables)
        )
    sources = tuple(
        replace(
            source,
            rank=rank,
            uid=chance.randbytes(8).hex(),
            digest=chance.randbytes(32).hex(),
            facts={**source.facts, "start_ns": chance.getrandbits(60), "tables": dict.fromkeys("abc", [1])},
            files=tuple(replace(file, rows=chance.randrange(10_000)) for file in files[rank - rank % 8]),
        )
        for rank in range(ranks)
    )
    store.put(RunVersion("run", 1, sources, {}, None, "", ""))
    s3.requests.clear()
    version = Store.open(store_url(place)).head("run")
    scans = version.scan_plan("table_07")
    assert (len(scans), version.ranks) == (ranks // 8, tuple(range(ranks)))
    assert {scan.path for scan in scans} == {held[7].path for held in files.values()}
    read = {one.path.rpartition("/")[2]: one.answered_bytes for one in s3.requests}
    assert sum(one.answered_bytes for one in s3.requests) <= 200_000, read


# Later releases


def rewritten(store: Store, change: Any) -> None:
    """The newest version as a later release would have written it."""
    newest = store.get("run", 2)
    entry(store).unlink()
    version(store, 2).write_bytes(encode_version(change(newest)))
    store.forget()


def test_fields_of_a_later_release_are_ignored_and_kept(store: Store) -> None:
    def later(newest: RunVersion) -> RunVersion:
        file = replace(newest.sources[0].files[0], unknown=(("bloom", [1, 2]),))
        source = replace(
            newest.sources[0], files=(file, *newest.sources[0].files[1:]), unknown=(("origin", "x"),)
        )
        return replace(newest, sources=(source, *newest.sources[1:]), unknown=(("priority", {"n": 1}),))

    rewritten(store, later)
    assert store.relabel("run", {"c": "3"}).version is not None
    newest = Store.open(store.folder).newest("run")
    assert newest is not None
    assert newest.labels["c"] == "3"
    assert newest.unknown == (("priority", {"n": 1}),)
    assert newest.sources[0].unknown == (("origin", "x"),)
    assert newest.sources[0].files[0].unknown == (("bloom", [1, 2]),)
    assert newest.sources[1].unknown == ()


def test_what_must_be_understood_refuses_the_one_run(store: Store) -> None:
    store.publish("other", Changes(sources=(commit(store, 0, run="other"),)))
    rewritten(store, lambda newest: replace(newest, must_understand=("expired", "folded")))
    fresh = Store.open(store.folder)
    for act in (fresh.newest, fresh.head):
        with pytest.raises(SchemaVersionError, match="folded") as caught:
            act("run")
        assert caught.value.hint == "install a newer tracewarehouse"
    assert fresh.newest("other") is not None


def test_a_commit_that_must_be_understood_is_refused(store: Store) -> None:
    source = commit(store, 7)
    path = store.path(f"_tw/commits/run/{source.commit}")
    said = unsealed(path.read_bytes())
    path.write_bytes(sealed(said | {"must_understand": ["folded"]}))
    with pytest.raises(SchemaVersionError, match="folded"):
        store.unpublished("run")
    path.write_bytes(sealed(said | {"later": [1]}))
    assert store.unpublished("run") == (source,)
