"""The trace handler of a warehouse in an object store: spooled locally, uploaded by another process."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

import cli_runner
import tracewarehouse as tw
from object_store import BUCKET, Proxy
from simulated import SMALL
from tracewarehouse.errors import ParamError, WarehouseError
from tracewarehouse.location import store_url
from tracewarehouse.storage.remote import RemoteObjects

# A separate script: the handler may not use the store in the process of the training.
TRAINING = """
import json, sys
from pathlib import Path
import tracewarehouse as tw

class Profiler:
    def export_chrome_trace(self, path):
        Path(path).write_bytes(Path(sys.argv[2]).read_bytes())

handler = tw.trace_handler(sys.argv[1], run="job", labels={"team": "a"}, spool=sys.argv[3], auto_labels=False)
for _ in range(int(sys.argv[4])):
    handler(Profiler())
assert "obstore" not in sys.modules
"""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    tw.simulate(folder, ranks=2, seed=3, **SMALL)
    return folder


def train(url: str, trace: Path, spool: Path, rank: int, windows: int = 1) -> str:
    """What a training process prints to stderr."""
    env = cli_runner.environment({"RANK": str(rank), "WORLD_SIZE": "2"})
    command = [sys.executable, "-c", TRAINING, url, str(trace), str(spool), str(windows)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def keys(name: str) -> list[str]:
    return [entry.key for entry in RemoteObjects(store_url(f"s3://{BUCKET}/{name}")).walk("inbox/")]


def test_traces_are_uploaded_and_ingested_from_the_inbox(s3: Proxy, traces: Path, tmp_path: Path) -> None:
    url, spool = f"s3://{BUCKET}/upload-uploaded", tmp_path / "spool"
    for rank, trace in enumerate(sorted(traces.glob("*.gz"))):
        assert train(url, trace, spool, rank) == ""
    found = keys("upload-uploaded")
    assert len(found) == 4 and all(key.startswith("inbox/job/rank") for key in found)
    assert {path.name for path in spool.rglob("*") if path.is_file()} == {".upload.lock", "upload.log"}
    done = cli_runner.tw("ingest", "--inbox", "-w", url, "--jobs", "1")
    assert done.code == 0, done.err
    (row,) = tw.open(url).runs().rows()
    assert (row["run_id"], row["ranks_present"]) == ("job", 2)
    assert row["labels"]["team"] == "a"
    assert keys("upload-uploaded") == []
    assert tw.open(url).verify() == []
    again = cli_runner.tw("ingest", "--inbox", "-w", url)
    assert (again.code, again.out.splitlines()[0]) == (0, "no traces ingested")


@pytest.mark.deep
def test_an_upload_that_fails_is_repeated_with_the_next_window(
    s3: Proxy, traces: Path, tmp_path: Path
) -> None:
    url, spool = f"s3://{BUCKET}/upload-refused", tmp_path / "spool"
    trace = min(traces.glob("*.gz"))
    s3.refuses = lambda request: 403 if request.kind == "PUT" else None
    assert "not uploaded to s3://" in train(url, trace, spool, 0)
    assert "access denied" in (spool / "upload.log").read_text()
    assert s3.environment["AWS_SECRET_ACCESS_KEY"] not in (spool / "upload.log").read_text()
    assert len(list(spool.rglob("*.json.gz"))) == 1 and keys("upload-refused") == []
    s3.reset()
    assert train(url, trace, spool, 0) == ""
    assert len(keys("upload-refused")) == 4
    assert not list(spool.rglob("*.json.gz"))


def test_a_damaged_trace_stays_in_the_inbox(s3: Proxy, traces: Path, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/upload-damaged"
    data = min(traces.glob("*.gz")).read_bytes()
    RemoteObjects(store_url(url)).put(
        {
            "inbox/job/rank0.json.gz": data[: len(data) // 2],
            "inbox/job/rank1.json.gz": b"no trace",
            "inbox/job/.hidden.json.gz": data,
            "inbox/stray.json.gz": data,
        }
    )
    report = tw.open(url).ingest(inbox=True, min_age_s=0)
    states = {file.path.name: file.state for file in report.files}
    assert states == {"rank0.json.gz": "damaged", "rank1.json.gz": "refused"}
    assert {"inbox/job/rank0.json.gz", "inbox/job/rank1.json.gz"} < set(keys("upload-damaged"))


def test_a_trace_that_another_process_took_is_skipped(s3: Proxy, traces: Path, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/upload-taken"
    objects = RemoteObjects(store_url(url))
    objects.put({"inbox/job/rank0.json.gz": min(traces.glob("*.gz")).read_bytes()})
    s3.after = lambda request: (
        objects.delete(["inbox/job/rank0.json.gz"])
        if request.kind == "LIST" and "inbox" in request.path
        else None
    )
    (file,) = tw.open(url).ingest(inbox=True).files
    assert (file.state, file.reason) == ("skipped", "already ingested by another process")


def test_with_wait_the_trace_is_there_when_the_handler_returns(
    s3: Proxy, traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    url = f"s3://{BUCKET}/upload-waited"
    handler = tw.trace_handler(url, run="job", wait=True, auto_labels=False)

    class Profiler:
        def export_chrome_trace(self, path: str) -> None:
            Path(path).write_bytes(gzip.compress(json.dumps({"traceEvents": []}).encode()))

    handler(Profiler())
    assert len(keys("upload-waited")) == 2
    assert not list((tmp_path / "cache").rglob("*.json.gz"))


def test_places_that_take_no_uploads_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("https://host/warehouse", "memory://here"):
        with pytest.raises(ParamError, match="cannot be uploaded there"):
            tw.trace_handler(url, run="job")
    with pytest.raises(WarehouseError, match="credentials"):
        tw.trace_handler("s3://key:secret@bucket/p", run="job")
    monkeypatch.setattr("tracewarehouse.ingest.handler.find_spec", lambda _: None)
    with pytest.raises(WarehouseError, match="needs obstore"):
        tw.trace_handler("s3://bucket/p", run="job")
