"""`tw files` and `tw fetch`: the data files of a run, in a folder and in an object store."""

from __future__ import annotations

import json

import pytest

import cli_runner
import tracewarehouse as tw
from object_store import BUCKET, Proxy
from simulated import SMALL
from tracewarehouse.errors import DamagedRunError, UnknownName, WarehouseError
from tracewarehouse.storage.parquet_file import sha256
from tracewarehouse.warehouse import Warehouse

URL = f"s3://{BUCKET}/committed-files"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    base = tmp_path_factory.mktemp("local")
    tw.simulate(base / "job", ranks=3, seed=3, **SMALL)
    wh = tw.open(base / "warehouse")
    wh.ingest(base / "job", jobs=1)
    return wh


@pytest.fixture(scope="module")
def stored(server: Proxy, local: Warehouse, tmp_path_factory: pytest.TempPathFactory) -> str:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        patch.setenv("TW_MIRROR", str(tmp_path_factory.mktemp("writer")))
        tw.open(URL).ingest(local.store.folder.parent / "job", jobs=1)
    return URL


@pytest.fixture
def s3(stored: str, s3: Proxy) -> Proxy:
    """The requests of a test, after the run is stored."""
    return s3


def test_files_are_those_of_the_version(local: Warehouse) -> None:
    (row,) = local.files("job", "kernels").rows()
    path = local.store.folder / row["key"]
    assert (row["bytes"], row["sha256"]) == (path.stat().st_size, sha256(path))
    assert row["ranks"] == "0-2"
    assert row["rows"] == local.query("SELECT count(*) AS n FROM kernels").rows()[0]["n"]
    (one,) = local.select(ranks=1).files("job", "kernels").rows()
    assert one["ranks"] == "1" and 0 < one["rows"] < row["rows"]
    with pytest.raises(UnknownName, match="unknown table: kernel"):
        local.files("job", "kernel")


def test_the_command_line_lists_and_fetches(s3: Proxy, stored: str) -> None:
    done = cli_runner.tw("files", "job", "kernels", "-w", stored, "--format", "json")
    assert done.code == 0, done.err
    (row,) = json.loads(done.out) if done.out.startswith("[") else [json.loads(done.out)]
    assert row["key"].startswith("data/kernels/job/")
    done = cli_runner.tw("fetch", "job", "--table", "kernels", "-w", stored)
    assert (done.code, "1 file" in done.out, "1 downloaded" in done.out) == (0, True, True)
    done = cli_runner.tw("fetch", "job", "-w", stored)
    assert done.code == 0 and "downloaded (" in done.out
    done = cli_runner.tw("fetch", "job", "-w", stored)
    assert "0 downloaded" in done.out
    assert cli_runner.tw("fetch", "job", "--table", "nothing", "-w", stored).code == 1


def test_questions_about_a_fetched_run_download_nothing(s3: Proxy, stored: str, local: Warehouse) -> None:
    found = tw.open(stored).fetch("job")
    assert found.files == found.downloaded > 5
    assert sorted(set(s3.data_reads())) == sorted(s3.data_reads())
    s3.requests.clear()
    for name in ("temporal_breakdown", "kernel_summary", "quality"):
        assert tw.open(stored).analyze(name).rows() == local.analyze(name).rows()
    assert s3.data_reads() == []


def test_a_local_warehouse_downloads_nothing(local: Warehouse) -> None:
    found = local.fetch("job")
    assert found.files > 5 and found.downloaded == 0
    assert local.fetch("job", tables="kernels").files == 1


def test_runs_beyond_the_budget_are_refused_before_a_download(
    s3: Proxy, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TW_MIRROR_BYTES", "1000")
    with pytest.raises(WarehouseError, match="local copies") as caught:
        tw.open(stored).fetch("job")
    assert "TW_MIRROR_BYTES" in (caught.value.hint or "")
    assert s3.data_reads() == []


def test_the_budget_counts_copies_that_are_there(
    s3: Proxy, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that fits only table by table is refused as a whole."""
    total = tw.open(stored).fetch("job", tables=["events"]).bytes
    monkeypatch.setenv("TW_MIRROR_BYTES", str(total + 1))
    s3.requests.clear()
    with pytest.raises(WarehouseError, match="local copies"):
        tw.open(stored).fetch("job")
    assert s3.data_reads() == []


def test_a_damaged_object_is_named(s3: Proxy, stored: str) -> None:
    wh = tw.open(stored)
    (row,) = wh.files("job", "steps").rows()
    data = wh.store.objects.get(row["key"])
    wh.store.objects.put({row["key"]: data[:-1] + bytes([data[-1] ^ 1])})
    try:
        with pytest.raises(DamagedRunError, match="checksum differs"):
            tw.open(stored).fetch("job")
    finally:
        wh.store.objects.put({row["key"]: data})
