"""The stored objects themselves: checksums, receipts, and fields of a later release."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from storage_sources import commit
from tracewarehouse.errors import SchemaVersionError, TwError, WarehouseError
from tracewarehouse.storage import Changes, RunVersion, Store
from tracewarehouse.storage.codec import decode_brief, decode_version, encode_version, sealed, unsealed


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open_or_create(tmp_path / "warehouse", tool="0.0")
    sources = tuple(commit(store, rank) for rank in (0, 1))
    store.publish("run", Changes(sources=sources, labels={"a": "é"}))
    store.relabel("run", {"b": "2"})
    return store


def receipt(store: Store, number: int) -> Path:
    return store.path(f"_tw/receipts/run/v{number:06d}.json")


def version(store: Store, number: int = 1) -> Path:
    return store.path(f"_tw/runs/run/v{number:06d}.parquet")


def damaged(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def flips(data: bytes, count: int, seed: int) -> tuple[int, int]:
    """How many single flipped bits are noticed, and how many change nothing that is read."""
    chance, whole, noticed, harmless = random.Random(seed), decode_version(data, "v"), 0, 0
    brief = decode_brief(data, "v")
    for _ in range(count):
        changed = damaged(data, chance)
        try:
            found = decode_version(changed, "v"), decode_brief(changed, "v")
        except TwError:
            noticed += 1
        else:
            assert found == (whole, brief)
            harmless += 1
    return noticed, harmless


def test_no_flipped_bit_makes_another_version(store: Store) -> None:
    noticed, harmless = flips(version(store).read_bytes(), 300, seed=1)
    assert noticed > 100, harmless


@pytest.mark.deep
def test_none_of_ten_thousand_flipped_bits_makes_another_version(store: Store) -> None:
    noticed, _ = flips(version(store).read_bytes(), 10_000, seed=2)
    assert noticed > 4_000


@pytest.mark.parametrize("name", ["_tw/warehouse.json", "manifest", "receipt"])
def test_every_flipped_bit_of_a_sealed_object_is_noticed(store: Store, name: str) -> None:
    manifests = (store.folder / "_tw" / "sources" / "run").iterdir()
    path = {"manifest": min(manifests), "receipt": receipt(store, 1)}.get(name, store.folder / name)
    data, chance = path.read_bytes(), random.Random(3)
    assert unsealed(data)
    for _ in range(200):
        with pytest.raises(ValueError):
            unsealed(damaged(data, chance))


def test_a_changed_warehouse_json_is_refused_with_a_hint(store: Store) -> None:
    path = store.folder / "_tw" / "warehouse.json"
    path.write_bytes(path.read_bytes().replace(store.id[:4].encode(), b"0000"))
    with pytest.raises(WarehouseError, match="checksum differs") as caught:
        Store.open(store.folder)
    assert "backup" in (caught.value.hint or "")


def test_a_changed_manifest_is_refused_with_a_hint(store: Store) -> None:
    source = commit(store, 5)
    path = store.path(f"_tw/sources/run/{source.manifest}")
    path.write_bytes(path.read_bytes().replace(b'"rank":5', b'"rank":6'))
    with pytest.raises(WarehouseError, match="damaged manifest: checksum differs") as caught:
        store.committed("run", 5, source.uid)
    assert "wh.verify()" in (caught.value.hint or "")


def test_files_know_their_footers_and_have_page_checksums(store: Store) -> None:
    newest = store.newest("run")
    assert newest is not None
    for file in newest.sources[0].files:
        data = store.path(file.path).read_bytes()
        footer = data[-file.footer_bytes :]
        assert int.from_bytes(footer[-8:-4], "little") == file.footer_bytes - 8
        assert hashlib.sha256(footer).hexdigest() == file.footer_sha256
    data = bytearray(version(store).read_bytes())
    at = data.index(newest.sources[0].digest.encode()) if newest.sources[0].digest.encode() in data else 60
    data[at] ^= 1
    with pytest.raises((pa.ArrowException, OSError)):
        pq.ParquetFile(pa.BufferReader(bytes(data)), page_checksum_verification=True).read(use_threads=False)


def test_no_two_versions_are_the_same_bytes(store: Store) -> None:
    first, second = (store.get("run", number) for number in (1, 2))
    assert len(first.nonce) == len(second.nonce) == 32 and first.nonce != second.nonce


# Receipts


def test_receipts_name_the_contents_of_each_version_and_form_a_chain(store: Store) -> None:
    first, second = (unsealed(receipt(store, number).read_bytes()) for number in (1, 2))
    data, newest = version(store, 2).read_bytes(), store.get("run", 2)
    assert (second["version_bytes"], second["version_sha256"]) == (
        len(data),
        hashlib.sha256(data).hexdigest(),
    )
    assert second["sources"] == [[one.name, one.manifest] for one in newest.sources]
    assert second["head"]["labels"] == {"a": "é", "b": "2"}
    assert second["previous"] == hashlib.sha256(receipt(store, 1).read_bytes()).hexdigest()
    assert first["previous"] is None


def test_a_version_can_be_made_again_from_its_receipt_and_manifests(store: Store) -> None:
    """The content hash proves that the version is the same."""
    said, newest = unsealed(receipt(store, 2).read_bytes()), store.get("run", 2)
    head = said["head"]
    made = RunVersion(
        **{name: head[name] for name in ("run", "number", "labels", "expected_ranks", "created_at", "tool",
                                         "tombstone", "compacted", "expired", "nonce")},
        **{name: tuple(head[name]) for name in ("dropped", "retired", "must_understand")},
        sources=newest.sources,
    )  # fmt: skip
    again = pq.read_schema(pa.BufferReader(encode_version(made))).metadata[b"tracewarehouse.run"]
    assert unsealed(again)["checksum"] == said["content"]


def test_the_next_publish_writes_receipts_that_a_killed_call_did_not(store: Store) -> None:
    for number in (1, 2):
        receipt(store, number).unlink()
    assert store.verify() == []
    store.relabel("run", {"c": "3"})
    third = unsealed(receipt(store, 3).read_bytes())
    assert third["previous"] == hashlib.sha256(receipt(store, 2).read_bytes()).hexdigest()
    assert unsealed(receipt(store, 2).read_bytes())["previous"] is not None
    assert unsealed(receipt(store, 1).read_bytes())["previous"] is None


@pytest.mark.parametrize("number", [1, 2])
def test_a_lost_version_is_noticed_by_its_receipt(store: Store, number: int) -> None:
    version(store, number).unlink()
    assert [(one.path, one.what) for one in store.verify()] == [
        (f"_tw/runs/run/v{number:06d}.parquet", "version missing: its receipt is there")
    ]


def test_a_version_that_was_exchanged_is_noticed_by_its_receipt(store: Store) -> None:
    other = replace(store.get("run", 2), labels={})
    version(store, 2).write_bytes(encode_version(other))
    assert ("_tw/runs/run/v000002.parquet", "differs from its receipt") in {
        (one.path, one.what) for one in store.verify()
    }
    receipt(store, 2).write_bytes(b"{}")
    assert "damaged receipt" in {one.what.partition(":")[0] for one in store.verify()}


def test_readers_need_no_receipt(store: Store) -> None:
    for number in (1, 2):
        receipt(store, number).unlink()
    assert Store.open(store.folder).newest("run") == store.get("run", 2)


def test_clean_keeps_receipts_with_their_versions(store: Store) -> None:
    assert store.clean(3600).files == 0
    store.remove("run")
    store.clean(-1)
    names = {path.name for path in receipt(store, 1).parent.iterdir()}
    assert names == {"v000003.json", "cleaned-000001.json"}
    assert store.verify() == []


# Later releases


def rewritten(store: Store, change: Any) -> None:
    """The newest version as a later release would have written it."""
    newest = store.get("run", 2)
    receipt(store, 2).unlink()
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
    rewritten(store, lambda newest: replace(newest, must_understand=("dropped", "folded")))
    fresh = Store.open(store.folder)
    for act in (fresh.newest, fresh.brief):
        with pytest.raises(SchemaVersionError, match="folded") as caught:
            act("run")
        assert caught.value.hint == "install a newer tracewarehouse"
    assert fresh.newest("other") is not None


def test_a_manifest_that_must_be_understood_is_refused(store: Store) -> None:
    source = commit(store, 7)
    path = store.path(f"_tw/sources/run/{source.manifest}")
    said = unsealed(path.read_bytes())
    del said["checksum"]
    path.write_bytes(sealed(said | {"must_understand": ["folded"]}))
    with pytest.raises(SchemaVersionError, match="folded"):
        store.unpublished("run")
    path.write_bytes(sealed(said | {"later": [1]}))
    assert store.unpublished("run") == (source,)
