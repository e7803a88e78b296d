"""Selections above the limit on local copies: in batches of ranks, or refused before a download."""

from __future__ import annotations

from pathlib import Path

import pytest

import cli_runner
import tracewarehouse as tw
from object_store import BUCKET, Proxy
from simulated import SMALL
from tracewarehouse.errors import WarehouseError
from tracewarehouse.warehouse import Warehouse

URL = f"s3://{BUCKET}/copy-batches"
BY_RANK = ("temporal_breakdown", "kernel_summary", "comm_comp_overlap")


@pytest.fixture(scope="module")
def local(server: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Two runs with a file per rank, in a folder and in the store."""
    base = tmp_path_factory.mktemp("local")
    tw.simulate(base / "traces", ranks=3, seed=3, **SMALL)
    wh = tw.open(base / "warehouse")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        patch.setenv("TW_MIRROR", str(tmp_path_factory.mktemp("writer")))
        for trace in sorted((base / "traces").glob("*.gz")):
            for place in (wh, tw.open(URL)):
                place.ingest(trace, run="job", jobs=1)
        for place in (wh, tw.open(URL)):
            place.ingest(min((base / "traces").glob("*.gz")), run="other", jobs=1)
    return wh


@pytest.fixture
def s3(local: Warehouse, s3: Proxy) -> Proxy:
    """The requests of a test, after the runs are stored."""
    return s3


def copied(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "data").rglob("*.parquet"))


def limit(local: Warehouse, ranks: float) -> str:
    """Bytes for the files of this number of ranks that `kernel_summary` and others read."""
    tables = ("events", "kernels", "memory_activity", "steps", "annotations", "runtime")
    held = [
        file
        for source in local.select("job", ranks=0).selected()[0].sources
        for file in source.files
        if file.table in tables
    ]
    return str(int(sum(file.bytes for file in held) * ranks))


@pytest.mark.deep
def test_analyses_of_each_rank_run_in_batches(
    s3: Proxy, local: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in BY_RANK:
        wh = tw.open(URL)
        wh.analyze(name)
        (largest,) = {copied(wh.store.folder)}
        monkeypatch.setenv("TW_MIRROR_BYTES", str(largest // 2))
        monkeypatch.setenv("TW_MIRROR", f"{wh.store.folder.parent}-{name}")
        s3.requests.clear()
        wh = tw.open(URL)
        assert wh.analyze(name).rows() == local.analyze(name).rows(), name
        assert copied(wh.store.folder) <= largest // 2
        reads = s3.data_reads()
        assert len(reads) == len(set(reads)) > 1
        monkeypatch.delenv("TW_MIRROR_BYTES")
        monkeypatch.setenv("TW_MIRROR", f"{wh.store.folder.parent}-next")


@pytest.mark.deep
def test_other_selections_are_refused_before_a_download(
    s3: Proxy, local: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TW_MIRROR_BYTES", limit(local, 0.1))
    for question in (
        lambda: tw.open(URL).stragglers(),
        lambda: tw.open(URL).query("SELECT count(*) FROM events JOIN kernels USING (run_id, rank, event_id)"),
    ):
        with pytest.raises(WarehouseError, match="local copies") as caught:
            question()
        assert "select fewer" in (caught.value.hint or "")
    assert s3.data_reads() == []


@pytest.mark.deep
def test_a_rank_that_does_not_fit_is_refused(
    s3: Proxy, local: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TW_MIRROR_BYTES", limit(local, 0.1))
    done = cli_runner.tw("show", "kernel_summary", "-w", URL)
    assert done.code == 1 and "local copies" in done.errors[0]
    assert s3.data_reads() == []
