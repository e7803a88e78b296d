"""Of large files in an object store, a query downloads the columns that it names, and checks them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pyarrow.parquet as pq
import pytest

import tracewarehouse as tw
from object_store import BUCKET, Proxy, Request
from simulated import SMALL
from tracewarehouse.errors import DamagedRunError
from tracewarehouse.location import store_url
from tracewarehouse.storage import column_copies, mirror
from tracewarehouse.storage.objects import ColumnCopies
from tracewarehouse.storage.remote import RemoteObjects
from tracewarehouse.warehouse import Warehouse

NAMES = "SELECT count(DISTINCT name) AS n FROM events"
LONGEST = "SELECT name, max(dur_ns) AS ns FROM events GROUP BY ALL ORDER BY ALL"
# DuckDB makes a row of all columns of it, none of which is named.
UNNAMED = "SELECT each FROM events AS each ORDER BY event_id LIMIT 2"
ARGS = "SELECT args FROM events WHERE name = 'aten::mm' ORDER BY rank, event_id LIMIT 5"
URL = f"s3://{BUCKET}/columns"


@pytest.fixture(scope="module")
def large() -> pytest.MonkeyPatch:
    """Every file is large, and has many blocks."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (column_copies, mirror):
            patch.setattr(module, "LARGE_BYTES", 0)
        patch.setattr(column_copies, "_BLOCK_BYTES", 256)
        patch.setattr(column_copies, "_AT_ONCE", 7)
        yield patch


@pytest.fixture(scope="module")
def local(large: object, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    folder = tmp_path_factory.mktemp("columns")
    tw.simulate(folder / "job", ranks=2, seed=3, **SMALL)
    wh = tw.open(folder / "warehouse")
    wh.ingest(folder / "job", jobs=1)
    return wh


@pytest.fixture
def stored(s3: Proxy, local: Warehouse) -> Warehouse:
    """The warehouse in a bucket, opened for the first time on a machine."""
    folder = local.store.folder
    found = (path for top in ("_tw", "data") for path in (folder / top).rglob("*.*"))
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}
    RemoteObjects(store_url(URL)).put(files)
    s3.reset()
    return tw.open(URL)


def data_bytes(s3: Proxy) -> int:
    reads = [each for each in s3.requests if each.kind == "GET" and "/data/" in each.path]
    s3.requests.clear()
    return sum(each.answered_bytes for each in reads)


def events_files(wh: Warehouse) -> dict[str, int]:
    (run,) = wh.selected()
    return {file.path: file.bytes for file in run.files if file.table == "events"}


def test_a_query_downloads_the_columns_that_it_names(s3: Proxy, stored: Warehouse, local: Warehouse) -> None:
    size = sum(events_files(local).values())
    for sql, share in ((NAMES, 0.4), (NAMES, 0), (LONGEST, 0.4), (NAMES, 0), (ARGS, 1)):
        assert stored.query(sql).rows() == local.query(sql).rows()
        assert data_bytes(s3) <= size * share, sql
    assert tw.open(URL).query(LONGEST).rows() == local.query(LONGEST).rows(), "in another process"
    assert data_bytes(s3) == 0
    assert stored.query(UNNAMED).rows() == local.query(UNNAMED).rows()
    assert data_bytes(s3) >= size, "whole files"
    assert stored.scan("events").collect().equals(local.scan("events").collect())


@pytest.mark.parametrize("where", ["footer", "pages"])
def test_damage_of_what_was_fetched_is_found_and_repaired(
    s3: Proxy, stored: Warehouse, local: Warehouse, tmp_path: Path, where: str
) -> None:
    stored.query(LONGEST)
    for path in (tmp_path / "mirror").rglob("columns/data/events/*/*.parquet"):
        metadata = pq.read_metadata(path)
        data = bytearray(path.read_bytes())
        start = len(data) - metadata.serialized_size - 8
        at = start + 9 if where == "footer" else next(i for i in range(start) if data[i])
        data[at] ^= 1
        path.write_bytes(data)
    s3.requests.clear()
    assert tw.open(URL).query(LONGEST).rows() == local.query(LONGEST).rows()
    assert 0 < data_bytes(s3) < sum(events_files(local).values()) * 0.4


def flipped(read: Callable[..., list[bytes]]) -> Callable[..., list[bytes]]:
    def act(objects: RemoteObjects, key: str, ranges: object) -> list[bytes]:
        *others, last = read(objects, key, ranges)
        return [*others, bytes([last[0] ^ 1]) + last[1:]]

    return act


def test_damage_on_the_way_is_noticed(
    s3: Proxy, stored: Warehouse, local: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole file is downloaded instead, which is checked."""
    (run,) = stored.selected()
    for is_damaged in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if is_damaged:
                patch.setattr(RemoteObjects, "get_ranges", flipped(RemoteObjects.get_ranges))
                assert stored.query(LONGEST).rows() == local.query(LONGEST).rows()
                for key in events_files(local):
                    stored.store.files.forget(key)
            columns = ColumnCopies(frozenset({"ts_ns"}), tmp_path)
            stored.store.files.copy_columns(run.files, columns)
            assert events_files(local).keys().isdisjoint(columns.copies) == is_damaged


def test_a_damaged_object_is_named(s3: Proxy, stored: Warehouse) -> None:
    key = min(events_files(stored))
    data = bytearray(stored.store.objects.get(key))
    metadata = pq.read_metadata(stored.store.path(key))
    stored.store.files.forget(key)
    names = [metadata.row_group(0).column(at).path_in_schema for at in range(metadata.num_columns)]
    data[metadata.row_group(0).column(names.index("name")).data_page_offset + 20] ^= 1
    stored.store.objects.put({key: bytes(data)})
    with pytest.raises(DamagedRunError, match=f"{key}: checksum differs"):
        tw.open(URL).query(NAMES)


def test_a_lost_object_is_named(s3: Proxy, stored: Warehouse) -> None:
    key = min(events_files(stored))
    stored.store.objects.delete([key])
    with pytest.raises(DamagedRunError, match=f"{key}: file missing"):
        tw.open(URL).query(NAMES)


def test_bodies_that_are_cut_are_read_again(s3: Proxy, stored: Warehouse, local: Warehouse) -> None:
    cut: list[str] = []

    def cuts(request: Request) -> bool:
        if "/events/" in request.path and len(cut) < 3:
            cut.append(request.path)
            return True
        return False

    s3.cuts = cuts
    assert stored.query(LONGEST).rows() == local.query(LONGEST).rows()
    assert len(cut) == 3


def test_files_of_earlier_releases_are_downloaded_whole(
    s3: Proxy, stored: Warehouse, local: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_copies, "_CHECKSUMS", b"unknown")
    assert stored.query(NAMES).rows() == local.query(NAMES).rows()
    assert data_bytes(s3) >= sum(events_files(local).values())


def test_a_small_file_has_no_checksums_of_the_large_one_that_it_was_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"a" * 256 + b"b" * 44)
    monkeypatch.setattr(column_copies, "_BLOCK_BYTES", 256)
    monkeypatch.setattr(column_copies, "LARGE_BYTES", 299)
    made_from = column_copies.with_checksums({b"contract": b"events@1"}, path)
    assert made_from[b"crc32_of_blocks"] == b"%08x%08x" % (crc32(b"a" * 256), crc32(b"b" * 44))
    monkeypatch.setattr(column_copies, "LARGE_BYTES", 300)
    assert column_copies.with_checksums(made_from, path) == {b"contract": b"events@1"}


def test_copies_beyond_the_budget_are_deleted(
    s3: Proxy, stored: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mirror"
    stored.query(NAMES)
    kept = [*folder.rglob("columns/data/*/*/*.parquet")]
    assert kept and sum(path.stat().st_blocks for path in kept) * 512 < sum(
        path.stat().st_size for path in kept
    )
    monkeypatch.setattr(mirror.Mirror, "_used", lambda _: set())
    monkeypatch.setenv(mirror.BUDGET, str(sum(events_files(stored).values())))
    stored.store.files._evict(10**9)  # type: ignore[attr-defined]
    assert not [*folder.rglob("columns/data/*/*/*.parquet")]


@pytest.mark.deep
def test_random_columns_are_as_in_a_local_warehouse(s3: Proxy, stored: Warehouse, local: Warehouse) -> None:
    """Sums of hashes of a few columns at a time, some of them after others, some from whole files."""
    chosen = random.Random(7)
    for table in ("events", "kernels", "flows", "runtime"):
        names = [column.name for column in local.catalog.get(table).columns]
        for _ in range(12):
            some = chosen.sample(names, chosen.randint(1, 4))
            sums = ", ".join(f'sum(hash("{name}")) AS "{name}"' for name in some)
            sql = f"SELECT {sums} FROM {table}"
            assert tw.open(URL).query(sql).rows() == local.query(sql).rows(), sql
