"""The run catalog: it saves requests, and never changes an answer."""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import tracewarehouse as tw
from object_store import BUCKET, Proxy
from storage_sources import staged
from tracewarehouse.location import store_url
from tracewarehouse.runs.rows import catalog_row
from tracewarehouse.storage import Changes, RunVersion, Store, layout, run_index, versions
from tracewarehouse.storage.codec import encode_version, sealed, unsealed
from tracewarehouse.warehouse import Warehouse


def url(prefix: str) -> str:
    return f"s3://{BUCKET}/{prefix}"


def fill(store: Store, runs: int, rank: int = 0) -> None:
    """Publishes a rank of each run."""
    for number in range(runs):
        with store.staging() as folder:
            source = store.commit_source(staged(folder, rank, run=f"Run-{number:03d}"))
        store.publish(source.run, Changes(sources=(source,), labels={"number": str(number)}))


def forge(store: Store, runs: int, ranks: int) -> None:
    """Publishes runs of many ranks, of which only the versions exist."""
    with store.staging() as folder:
        source = store.commit_source(staged(folder, 0))
    base = RunVersion("run", 1, (), {}, None, source.committed_at, "0.0", nonce="0" * 32)
    sources = [replace(source, rank=rank, uid=f"{rank:016x}", digest=f"{rank:064x}") for rank in range(ranks)]
    for number in range(runs):
        run = f"run-{number:04d}"
        held = tuple(replace(one, run=run) for one in sources)
        version = replace(base, run=run, sources=held)
        store.objects.put({layout.version(run, 1): encode_version(version)})


def rows_of(place: str | Path) -> list[dict[str, Any]]:
    return tw.open(place).runs().rows()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new catalog for more than two new versions."""
    monkeypatch.setattr(versions, "_NEWER", 2)


@pytest.fixture
def local(tmp_path: Path, few: None) -> Path:
    """A warehouse with five runs, one of which was removed, and a catalog of the first four."""
    store = Store.open_or_create(tmp_path / "warehouse")
    fill(store, 4)
    store.remove("run-001")
    assert store.overview.update_catalog(catalog_row)
    assert not store.overview.update_catalog(catalog_row)
    store.relabel("run-002", {"team": "a"})
    return tmp_path / "warehouse"


def catalog_file(place: Path) -> Path:
    return place / layout.catalog(1)


def test_rows_from_a_catalog_are_those_of_the_versions(local: Path) -> None:
    with_catalog = rows_of(local)
    assert [row["run_id"] for row in with_catalog] == ["Run-000", "Run-002", "Run-003"]
    assert [row["version"] for row in with_catalog] == [1, 2, 1]
    assert with_catalog[1]["labels"] == {"number": "2", "team": "a"}
    briefs = Store.open(local).briefs()
    catalog_file(local).unlink()
    assert rows_of(local) == with_catalog
    assert Store.open(local).briefs() == briefs
    assert [brief.run for brief in briefs] == ["Run-000", "Run-002", "Run-003"]


def compact(wh: Warehouse, folder: Path) -> None:
    assert [one.files_after for one in wh.compact()] == [2] * 4


def retain(wh: Warehouse, folder: Path) -> None:
    (folder / "policy.toml").write_text('[[rule]]\ntables = ["events"]\nolder_than = "0s"\n')
    assert [one.tables for one in wh.retain(folder / "policy.toml")] == [("events",)] * 4


@pytest.mark.parametrize("upkeep", [compact, retain])
def test_upkeep_that_publishes_writes_a_catalog(few: None, tmp_path: Path, upkeep: Any) -> None:
    store = Store.open_or_create(tmp_path / "warehouse")
    for rank in range(2):
        fill(store, 4, rank)
    wh = tw.open(tmp_path / "warehouse")
    upkeep(wh, tmp_path)
    assert {one.brief.number for one in run_index.read(store.objects).entries.values()} == {3}


def _flipped(data: bytes) -> bytes:
    return data[:60] + bytes([data[60] ^ 1]) + data[61:]


def _resealed(data: bytes, **fields: object) -> bytes:
    known = unsealed(gzip.decompress(data))
    known.pop("checksum")
    return gzip.compress(sealed(known | fields))


@pytest.mark.parametrize(
    "damage",
    [
        _flipped,
        lambda data: data[:-20],
        lambda _: b"",
        lambda _: b"text",
        lambda data: _resealed(data, rows=run_index.ROWS + 1),
        lambda data: _resealed(data, must_understand=["later"]),
        lambda data: _resealed(data, runs=[{"brief": {}}]),
    ],
)
def test_an_unusable_catalog_changes_no_answer(local: Path, damage: Any) -> None:
    before = rows_of(local)
    catalog_file(local).write_bytes(damage(catalog_file(local).read_bytes()))
    assert rows_of(local) == before
    assert [row["run_id"] for row in tw.open(local).select("@latest").runs().rows()] == ["Run-003"]


def test_a_damaged_catalog_is_reported_and_repaired(local: Path) -> None:
    wh = tw.open(local)
    assert wh.verify() == []
    catalog_file(local).write_bytes(_flipped(catalog_file(local).read_bytes()))
    assert [problem.path for problem in wh.verify()] == [layout.catalog(1)]
    assert [step.key for step in wh.repair(dry_run=True).steps] == [layout.catalog(1)]
    wh.repair()
    assert wh.verify() == [] and not catalog_file(local).exists()


def test_a_damaged_list_of_versions_is_reported_and_repaired(local: Path) -> None:
    wh, path = tw.open(local), local / layout.LATEST
    wh.store.list_runs()
    written = path.read_bytes()
    path.write_bytes(_flipped(written))
    assert [problem.path for problem in wh.verify()] == [layout.LATEST]
    assert [step.what for step in wh.repair().steps] == ["list of versions written again"]
    assert wh.verify() == []
    assert unsealed(path.read_bytes())["versions"] == unsealed(written)["versions"]


def test_a_catalog_with_another_row_than_its_version_is_reported(local: Path) -> None:
    known = unsealed(gzip.decompress(catalog_file(local).read_bytes()))
    known["runs"][0]["brief"]["labels"] = {"number": "other"}
    catalog_file(local).write_bytes(_resealed(catalog_file(local).read_bytes(), runs=known["runs"]))
    assert [problem.what for problem in tw.open(local).verify()] == ["differs from Run-000@v1"]


def test_a_damaged_catalog_is_replaced_by_the_next(local: Path) -> None:
    catalog_file(local).write_bytes(b"text")
    assert Store.open(local).overview.update_catalog(catalog_row)
    assert run_index.numbers(Store.open(local).objects) == [2, 1]
    assert len(run_index.read(Store.open(local).objects).entries) == 4


def test_a_catalog_of_a_later_release_is_not_replaced(local: Path) -> None:
    data = catalog_file(local).read_bytes()
    catalog_file(local).write_bytes(_resealed(data, rows=run_index.ROWS + 1))
    assert not Store.open(local).overview.update_catalog(catalog_row)


def test_clean_keeps_three_catalogs(local: Path) -> None:
    store = Store.open(local)
    for number in range(2, 6):
        assert run_index.write(store.objects, number, {})
    assert not run_index.write(store.objects, 5, {})
    store.clean()
    assert run_index.numbers(store.objects) == [5, 4, 3, 2, 1]
    store.clean(grace_s=0)
    assert run_index.numbers(store.objects) == [5, 4, 3]
    assert rows_of(local) and store.verify() == []


def test_a_lost_version_is_damage_whatever_the_catalog_says(local: Path) -> None:
    (local / layout.version("run-000", 1)).unlink()
    states = {row["run_id"]: row["state"] for row in rows_of(local)}
    assert states["Run-000"] == "damaged"


def test_purged_secrets_are_in_no_catalog(local: Path) -> None:
    wh = tw.open(local)
    secret = "ghp_" + "a1B2" * 9
    wh.store.relabel("run-002", {"token": secret})
    assert wh.store.overview.update_catalog(catalog_row) is False
    wh.store.relabel("run-003", {"a": "b"})
    wh.store.relabel("run-000", {"a": "b"})
    assert wh.store.overview.update_catalog(catalog_row)
    assert any(found.file == layout.catalog(2) for found in wh.secrets().found)
    wh.label("run-002", {"token": None})
    wh.remove_secrets(redact=False, purge=True)
    assert not wh.secrets().found
    (number,) = run_index.numbers(wh.store.objects)
    assert secret not in gzip.decompress(wh.store.objects.get(layout.catalog(number))).decode()


# In an object store


def test_commands_write_a_catalog_and_lists_read_little(
    s3: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At most 5 requests for a list of runs, and 10 for one selected by its age or a label."""
    place = url("listed")
    store = Store.open_or_create(store_url(place))
    forge(store, 34, 1)
    tw.open(place).label("run-0007", {"team": "a"})
    assert run_index.numbers(store.objects) == [1]
    monkeypatch.setenv("TW_MIRROR", str(tmp_path / "new"))
    s3.requests.clear()
    rows = rows_of(place)
    assert len(rows) == 34 and s3.counts() == {"GET": 2, "LIST": 3}
    for selector in ("@latest", "label:team=a"):
        s3.requests.clear()
        (row,) = tw.open(place).select(selector).runs().rows()
        assert row in rows and len(s3.requests) <= 10, s3.counts()


def test_without_a_catalog_a_second_list_reads_no_version(s3: Proxy) -> None:
    forge(Store.open_or_create(store_url(url("copy"))), 6, 1)
    s3.requests.clear()
    rows = rows_of(url("copy"))
    assert s3.counts() == {"GET": 7, "LIST": 3}
    s3.requests.clear()
    assert rows_of(url("copy")) == rows
    assert s3.counts() == {"GET": 1, "LIST": 2}
    (copy,) = tw.open(url("copy")).store.folder.glob("runs.json.gz")
    copy.write_bytes(b"text")
    assert rows_of(url("copy")) == rows


def test_publishing_notices_a_lost_version(s3: Proxy) -> None:
    store = Store.open_or_create(store_url(url("lost")))
    fill(store, 1)
    store.relabel("Run-000", {"a": "b"})
    store.objects.delete([layout.version("run-000", 2)])
    assert [problem.what for problem in store.verify()] == ["version missing: its receipt is there"]
    with pytest.raises(tw.errors.DamagedRunError):
        Store.open(store_url(url("lost"))).relabel("Run-000", {"a": "c"})


@pytest.mark.deep
@pytest.mark.parametrize(("runs", "ranks", "seconds"), [(300, 1, 2.0), (100, 1024, 2.0)])
def test_many_runs_at_20_ms_a_request(
    s3: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs: int, ranks: int, seconds: float
) -> None:
    place = url(f"many-{runs}")
    store = Store.open_or_create(store_url(place))
    forge(store, runs, ranks)
    assert store.overview.update_catalog(catalog_row)
    monkeypatch.setenv("TW_MIRROR", str(tmp_path / "new"))
    s3.before = lambda _: time.sleep(0.02)
    s3.requests.clear()
    started = time.perf_counter()
    assert len(rows_of(place)) == runs
    assert time.perf_counter() - started <= seconds
    assert len(s3.requests) <= 5, s3.counts()
