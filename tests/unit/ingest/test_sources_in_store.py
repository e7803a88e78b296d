"""Traces in an object store: a real S3 server behind a proxy that counts the bytes it hands out."""

from __future__ import annotations

import gzip
import json
import stat
from pathlib import Path

import pytest

import cli_runner
import nsys_writer
import tracewarehouse as tw
from object_store import BUCKET, Proxy, Request
from simulated import SMALL
from tracewarehouse.ingest.sources import TraceFile
from tracewarehouse.location import store_url
from tracewarehouse.storage.remote import RemoteObjects
from tracewarehouse.warehouse import Warehouse

SOURCES = f"s3://{BUCKET}/src"
RANKS = 2


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces") / "job"
    tw.simulate(folder, ranks=RANKS, seed=3, **{**SMALL, "layers": 1})
    return folder


@pytest.fixture(scope="module")
def local(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    wh = tw.open(tmp_path_factory.mktemp("local") / "warehouse")
    wh.ingest(traces, jobs=1)
    return wh


@pytest.fixture(scope="module")
def uploaded(server: Proxy, traces: Path) -> dict[str, int]:
    """Key → size of the traces in the bucket."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        return upload(traces, "src/job")


def bucket() -> RemoteObjects:
    return RemoteObjects(store_url(f"s3://{BUCKET}"))


def upload(folder: Path, prefix: str) -> dict[str, int]:
    files = {f"{prefix}/{path.relative_to(folder).as_posix()}": path for path in sorted(folder.rglob("*.gz"))}
    bucket().put({key: path.read_bytes() for key, path in files.items()})
    return {key: path.stat().st_size for key, path in files.items()}


def gets(s3: Proxy) -> dict[str, int]:
    """Key → bytes of the answers to GETs of it, of objects outside a warehouse."""
    found: dict[str, int] = {}
    for each in s3.requests:
        key = each.path.partition("?")[0].removeprefix(f"/{BUCKET}/")
        if each.kind == "GET" and "/_tw/" not in each.path:
            found[key] = found.get(key, 0) + each.answered_bytes
    return found


def equal(one: Warehouse, other: Warehouse) -> None:
    """Every cell of every stored table."""
    tables = [contract.name for contract in one.catalog.stored_tables()]
    assert "events" in tables and "kernels" in tables
    for table in tables:
        assert one.scan(table).collect().equals(other.scan(table).collect()), table


@pytest.mark.parametrize("jobs", [pytest.param(1, marks=pytest.mark.deep), 2])
def test_each_object_is_downloaded_once(
    s3: Proxy, uploaded: dict[str, int], local: Warehouse, tmp_path: Path, jobs: int
) -> None:
    wh = tw.open(tmp_path / "warehouse")
    report = wh.ingest(f"{SOURCES}/job/", jobs=jobs)
    assert [str(file.path) for file in report.files] == [f"s3://{BUCKET}/{key}" for key in uploaded]
    assert {file.state for file in report.files} == {"intact"}
    assert gets(s3) == uploaded
    assert s3.counts() == {"HEAD": 1, "LIST": 1, "GET": len(uploaded)}
    equal(wh, local)
    assert not list((tmp_path / "warehouse" / "_tw" / "staging").iterdir())


def test_the_same_objects_are_not_downloaded_again(
    s3: Proxy, uploaded: dict[str, int], tmp_path: Path
) -> None:
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(SOURCES)
    s3.requests.clear()
    again = tw.open(tmp_path / "warehouse").ingest(SOURCES)
    assert [(file.state, file.rank) for file in again.files] == [("same", rank) for rank in range(RANKS)]
    assert gets(s3) == {}
    (one, *_) = uploaded
    bucket().put({one: bucket().get(one)})  # another time, the same content
    assert tw.open(tmp_path / "warehouse").ingest(SOURCES).of("same")
    replaced = tw.open(tmp_path / "warehouse").ingest(SOURCES, replace=True)
    assert [file.state for file in replaced.files] == ["intact"] * RANKS
    assert sum(gets(s3).values()) >= sum(uploaded.values())


@pytest.mark.deep
def test_a_large_object_is_downloaded_in_two_parts(s3: Proxy, traces: Path, tmp_path: Path) -> None:
    """The survey reads a megabyte, which holds the rank, and the worker the rest."""
    folder = tmp_path / "large"
    folder.mkdir()
    for number, path in enumerate(sorted(traces.glob("*.gz"))[:2]):
        text = gzip.decompress(path.read_bytes()).rstrip()[:-1] + b" " * (2 << 20) + b"}"
        name = f"node{number % 2}_{90 - number}.17000000000{number}.pt.trace.json"
        (folder / name).write_bytes(text)
    sizes = {f"src-all/large/{path.name}": path.stat().st_size for path in sorted(folder.iterdir())}
    bucket().put({key: (folder / Path(key).name).read_bytes() for key in sizes})
    wh, local = tw.open(tmp_path / "warehouse"), tw.open(tmp_path / "local")
    places = []
    for one, source, jobs in ((wh, f"s3://{BUCKET}/src-all/large", 2), (local, folder, 1)):
        report = one.ingest(source, jobs=jobs)
        assert {file.state for file in report.files} == {"intact"}
        places.append([(file.path.name, file.run, file.rank) for file in report.files])
    assert places[0] == places[1]
    assert gets(s3) == sizes
    assert s3.counts()["GET"] == 2 * len(sizes)
    equal(wh, local)


def test_a_rank_that_only_the_end_shows_needs_no_second_download(
    s3: Proxy, traces: Path, tmp_path: Path
) -> None:
    """The copy is kept until the tables are built for the rank that reading it showed."""
    objects = {}
    for path in sorted(traces.glob("*.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        trace["distributedInfo"] = trace.pop("distributedInfo")  # behind the events
        objects[f"src-behind/job/w{9 - len(objects)}_7.170{len(objects)}.pt.trace.json"] = json.dumps(
            {"pad": "x" * (1 << 20), **trace}
        ).encode()
    bucket().put(objects)
    report = tw.open(tmp_path / "warehouse").ingest(f"s3://{BUCKET}/src-behind/job", jobs=1)
    assert sorted(file.rank for file in report.files if file.rank is not None) == [*range(RANKS)]
    assert gets(s3) == {key: len(data) for key, data in objects.items()}


def test_a_remote_warehouse_takes_objects_of_a_store(
    s3: Proxy, uploaded: dict[str, int], local: Warehouse, tmp_path: Path
) -> None:
    url = f"s3://{BUCKET}/warehouse-of-objects"
    done = cli_runner.tw("ingest", SOURCES, "-w", url, "--jobs", "1")
    assert done.code == 0, done.err
    assert f"ingested {RANKS} ranks of 1 run" in done.out
    assert {key: size for key, size in gets(s3).items() if key.startswith("src/")} == uploaded
    equal(tw.open(url), local)
    assert not list((tmp_path / "mirror").rglob("*.json.gz"))


def test_a_killed_ingest_continues_without_the_objects_that_it_stored(
    s3: Proxy, uploaded: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh = tw.open(tmp_path / "warehouse")
    with monkeypatch.context() as patch:
        patch.setattr("tracewarehouse.ingest.pipeline.publish", _fail)
        with pytest.raises(KeyboardInterrupt):
            wh.ingest(SOURCES, jobs=1)
    assert gets(s3) == uploaded
    s3.requests.clear()
    report = wh.ingest(SOURCES)
    assert [file.state for file in report.files] == ["intact"] * RANKS
    assert gets(s3) == {}
    assert wh.runs().rows()[0]["ranks_present"] == RANKS


def _fail(*_: object) -> None:
    raise KeyboardInterrupt


def test_objects_are_named_like_files(s3: Proxy, uploaded: dict[str, int], tmp_path: Path) -> None:
    (first, second, *_) = uploaded
    wh = tw.open(tmp_path / "warehouse")
    found = {
        f"s3://{BUCKET}/{first}": [("job", 0)],
        f"s3://{BUCKET}/src/j*/*rank1*": [("job", 1)],
        f"s3://{BUCKET}/s*c": [("job", rank) for rank in range(RANKS)],
    }
    for url, places in found.items():
        report = wh.ingest(url, jobs=1)
        assert [(file.run, file.rank) for file in report.files] == places, url
    named = wh.ingest(f"s3://{BUCKET}/{second}", run="other", rank=7)
    assert [(file.run, file.rank, file.state) for file in named.files] == [("other", 7, "intact")]


def test_problems_name_the_object_and_stop_no_other(
    s3: Proxy, uploaded: dict[str, int], tmp_path: Path
) -> None:
    good, last = (bucket().get(key) for key in uploaded)
    bucket().put(
        {
            "src-mixed/rank0.json.gz": good,
            "src-mixed/rank1.json.gz": b"no trace",
            "src-mixed/rank2.json.gz": last[: len(last) // 2],
            "src-mixed/rank3.json.gz": last,
            "src-mixed/.hidden.json": good,
            "src-mixed/report.ncu-rep": b"",
            "src-mixed/notes.txt": b"",
        }
    )
    s3.refuses = lambda request: 403 if "rank3" in request.path and request.kind == "GET" else None
    wh = tw.open(tmp_path / "warehouse")
    report = wh.ingest(f"s3://{BUCKET}/src-mixed", f"s3://{BUCKET}/nothing", "s3://no-bucket/x", min_age_s=0)
    found = {str(file.path).removeprefix(f"s3://{BUCKET}/"): file for file in report.files}
    assert {name: file.state for name, file in found.items()} == {
        "src-mixed/rank0.json.gz": "intact",
        "src-mixed/rank1.json.gz": "refused",
        "src-mixed/rank2.json.gz": "damaged",
        "src-mixed/rank3.json.gz": "refused",
        "src-mixed/report.ncu-rep": "skipped",
        "nothing": "refused",
        "s3://no-bucket/x": "refused",
    }
    assert found["src-mixed/rank1.json.gz"].hint
    assert "access denied" in (found["src-mixed/rank3.json.gz"].reason or "")
    assert "AWS_ACCESS_KEY_ID" in (found["src-mixed/rank3.json.gz"].hint or "")
    assert found["nothing"].reason == "no such object or folder"
    assert found["s3://no-bucket/x"].reason == "s3://no-bucket: no such bucket"
    assert not [file for file in report.files if str(tmp_path) in f"{file.reason} {file.hint}"]


def test_a_truncated_object_is_pending_until_it_is_old(
    s3: Proxy, uploaded: dict[str, int], tmp_path: Path
) -> None:
    good = bucket().get(next(iter(uploaded)))
    bucket().put({"src-cut/rank0.json.gz": good[: len(good) // 2]})
    wh = tw.open(tmp_path / "warehouse")
    (file,) = wh.ingest(f"s3://{BUCKET}/src-cut").files
    assert file.state == "pending"
    (file,) = wh.ingest(f"s3://{BUCKET}/src-cut", min_age_s=0).files
    assert file.state == "damaged"
    bucket().put({"src-cut/rank0.json.gz": good})  # the complete trace begins with the stored part
    (file,) = wh.ingest(f"s3://{BUCKET}/src-cut").files
    assert (file.state, file.reason) == ("intact", "replaced what was stored")


def test_an_object_that_changes_meanwhile_is_pending(
    s3: Proxy, uploaded: dict[str, int], tmp_path: Path
) -> None:
    (key, *_) = uploaded
    bucket().put({"src-moving/rank0.json.gz": bucket().get(key)})
    changed: list[str] = []

    def change(request: Request) -> None:
        if request.kind == "LIST" and "moving" in request.path and not changed:
            changed.append(request.path)
            bucket().put({"src-moving/rank0.json.gz": b"{}"})

    s3.after = change
    (file,) = tw.open(tmp_path / "warehouse").ingest(f"s3://{BUCKET}/src-moving").files
    assert changed
    assert (file.state, file.reason) == ("pending", "changed while it was read")


def test_a_broken_download_continues_where_it_ended(s3: Proxy, traces: Path, tmp_path: Path) -> None:
    bucket().put({"src-broken/rank0.json": gzip.decompress(next(traces.glob("*.gz")).read_bytes())})
    refused: list[str] = []

    def refuse(request: Request) -> int | None:
        if request.kind == "GET" and "broken" in request.path and len(refused) < 6:
            refused.append(request.path)
            return 503
        return None

    s3.refuses = refuse
    (file,) = tw.open(tmp_path / "warehouse").ingest(f"s3://{BUCKET}/src-broken").files
    assert file.state == "intact" and len(refused) == 6


def test_copies_are_private_and_deleted(
    s3: Proxy, uploaded: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --temp-dir they are there, in a folder that the next call deletes after a kill."""
    modes: set[int] = set()
    fetch = TraceFile.fetch

    def watched(self: TraceFile, copy: Path, up_to: int | None = None) -> None:
        fetch(self, copy, up_to)
        modes.add(stat.S_IMODE(copy.stat().st_mode))
        assert (tmp_path / "scratch") in copy.parents

    monkeypatch.setattr(TraceFile, "fetch", watched)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    tw.open(tmp_path / "warehouse").ingest(SOURCES, jobs=1, temp_dir=scratch)
    assert modes == {0o600}
    assert not list(scratch.iterdir())


def test_a_warehouse_is_not_a_folder_of_traces(s3: Proxy, uploaded: dict[str, int], tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/area/warehouse"
    tw.open(url).ingest(f"{SOURCES}/job", jobs=1)
    (file,) = tw.open(tmp_path / "warehouse").ingest(url).files
    assert (file.state, file.reason) == ("refused", "is a warehouse, not a folder of traces")
    (file,) = tw.open(tmp_path / "warehouse").ingest(f"s3://{BUCKET}/area").files
    assert (file.state, file.reason) == ("refused", "no traces found in this folder")


def test_credentials_in_a_source_url_are_not_repeated(tmp_path: Path) -> None:
    (file,) = tw.open(tmp_path / "warehouse").ingest("s3://key:secret@bucket/traces").files
    assert file.state == "refused"
    assert "secret@" not in f"{file.path} {file.reason} {file.hint}"
    assert "environment" in (file.hint or "")


def test_secrets_in_names_and_content_are_replaced(s3: Proxy, traces: Path, tmp_path: Path) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    bucket().put({f"src-named/{token}.json.gz": next(traces.glob("*.gz")).read_bytes()})
    tw.open(tmp_path / "warehouse").ingest(f"s3://{BUCKET}/src-named", run="job")
    stored = [path.read_bytes() for path in (tmp_path / "warehouse").rglob("*") if path.is_file()]
    assert stored and not any(token.encode() in data for data in stored)


def test_a_file_of_several_ranks_is_downloaded_once(s3: Proxy, traces: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    writer = nsys_writer.Writer()
    for pid, file in enumerate(sorted(traces.glob("*.gz"))[:2], 10):
        writer.add(nsys_writer.read_trace(gzip.decompress(file.read_bytes())), pid)
    writer.write(path)
    bucket().put({"src-nsys/job/report.sqlite": path.read_bytes()})
    report = tw.open(tmp_path / "warehouse").ingest(f"s3://{BUCKET}/src-nsys/job", jobs=2)
    assert [file.rank for file in report.files] == [0, 1]
    assert gets(s3) == {"src-nsys/job/report.sqlite": path.stat().st_size}
    s3.requests.clear()
    again = tw.open(tmp_path / "warehouse").ingest(f"s3://{BUCKET}/src-nsys/job", jobs=2)
    assert [file.state for file in again.files] == ["same", "same"]
    assert gets(s3) == {}
