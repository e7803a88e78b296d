"""A warehouse on a web server: a real HTTP server over the folder of a warehouse, which cannot be listed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import cli_runner
import tracewarehouse as tw
from object_store import BUCKET, s3_server
from simulated import SMALL
from tracewarehouse.errors import StoreUnavailable, WarehouseError
from tracewarehouse.storage import codec, layout, versions
from tracewarehouse.warehouse import Warehouse

REQUESTS: list[tuple[str, str]] = []


class Files(SimpleHTTPRequestHandler):
    """Files of a folder; folders are not listed."""

    missing = 404

    def send_error(self, code: int, *message: str | None) -> None:
        """Some servers refuse files that do not exist."""
        super().send_error(self.missing if code == 404 else code)

    def list_directory(self, path: object) -> None:
        self.send_error(403)

    def log_message(self, *_: object) -> None:
        """Requests are kept instead."""
        REQUESTS.append((self.command, self.path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("served")
    tw.simulate(base / "traces" / "job", ranks=2, seed=3, **{**SMALL, "layers": 1})
    tw.simulate(base / "traces" / "other", ranks=1, seed=4, **{**SMALL, "layers": 1})
    done = cli_runner.tw("ingest", base / "traces", "-w", base / "warehouse", "--jobs", "1")
    assert done.code == 0, done.err
    return base / "warehouse"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    handler = partial(Files, directory=str(folder.parent))
    listening = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    listening.daemon_threads = True
    thread = Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_address[1]}"
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


@pytest.fixture
def url(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("TW_MIRROR", str(tmp_path / "mirror"))
    REQUESTS.clear()
    return f"{server}/warehouse"


def test_answers_are_those_of_the_folder(url: str, folder: Path) -> None:
    wh, local = tw.open(url), tw.open(folder)
    assert wh.runs().rows() == local.runs().rows()
    assert [row["run_id"] for row in wh.runs().rows()] == ["job", "other"]
    for name in ("temporal_breakdown", "stragglers", "quality"):
        assert wh.analyze(name).rows() == local.analyze(name).rows(), name
    sql = "SELECT run_id, rank, count(*) AS n FROM kernels GROUP BY ALL ORDER BY ALL"
    assert wh.query(sql).rows() == local.query(sql).rows()


@pytest.mark.deep
def test_findings_are_those_of_the_folder(url: str, folder: Path) -> None:
    assert tw.open(url).select("job").check().rows() == tw.open(folder).select("job").check().rows()


def test_a_second_question_downloads_nothing_again(url: str) -> None:
    tw.open(url).temporal_breakdown()
    assert any("/data/" in path for _, path in REQUESTS)
    REQUESTS.clear()
    tw.open(url).temporal_breakdown()
    assert not [path for _, path in REQUESTS if "/data/" in path]
    assert len(REQUESTS) <= 5, REQUESTS


@pytest.mark.deep
def test_the_command_line_reads_it(url: str, tmp_path: Path) -> None:
    for command in (
        ("runs",),
        ("info", "job"),
        ("show", "kernel_summary", "--run", "job"),
        ("query", "SELECT count(*) AS n FROM kernels"),
        ("diff", "job", "other"),
        ("check", "job"),
        ("report", "job", "-o", tmp_path / "page.html"),
    ):
        done = cli_runner.tw(*command, "-w", url)
        assert done.code == 0, (command, done.err)
        assert done.out, command


@pytest.mark.parametrize(
    "command",
    [
        ("ingest", "tests"),
        ("label", "job", "a=b"),
        ("remove", "job"),
        ("record", "--all"),
        ("derive", "critical_path", "job"),
        ("clean",),
        ("repair",),
        ("upgrade",),
    ],
    ids=lambda command: command[0],
)
def test_commands_that_write_are_refused(url: str, command: tuple[str, ...]) -> None:
    done = cli_runner.tw(*command, "-w", url)
    assert done.code == 1
    assert done.errors[0] == f"tw: {url}: a warehouse on a web server is read-only"
    assert "where it is stored" in done.err
    assert {method for method, _ in REQUESTS} <= {"GET", "HEAD"}


def test_what_cannot_be_listed_is_named(url: str) -> None:
    for action in (lambda: tw.open(url).verify(), lambda: tw.open(url).history("step_time")):
        with pytest.raises(WarehouseError, match="a web server does not list"):
            action()


def test_a_missing_or_damaged_list_is_named(url: str, folder: Path) -> None:
    path = folder / layout.LIST
    data = path.read_bytes()
    try:
        path.unlink()
        with pytest.raises(WarehouseError, match="no list of runs for web servers") as caught:
            tw.open(url).runs()
        assert "wh.refresh()" in (caught.value.hint or "")
        path.write_bytes(data[:-9])
        with pytest.raises(WarehouseError, match=r"list\.json\.gz: damaged: "):
            tw.open(url).runs()
    finally:
        tw.open(folder).refresh()
    assert _listed(path.read_bytes()) == _listed(data)


@pytest.mark.parametrize("status", [404, 403])
def test_a_list_in_parts_is_read_whatever_the_server_says_of_missing_files(
    url: str, folder: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(Files, "missing", status)
    monkeypatch.setattr(versions, "_MANY", 2)
    expected = tw.open(url).runs().rows()
    tw.open(folder).refresh()
    try:
        assert not (folder / layout.LIST).exists()
        assert tw.open(url).runs().rows() == expected
        assert tw.open(url).select("other").kernel_summary().rows()
        (folder / layout.list_part("empty")).unlink()
        message = "no list of runs for web servers" if status == 404 else "access denied"
        with pytest.raises((WarehouseError, StoreUnavailable), match=message):
            tw.open(url).runs()
    finally:
        monkeypatch.undo()
        tw.open(folder).refresh()
    assert (folder / layout.LIST).exists()


def _listed(data: bytes) -> list[tuple[str, int]]:
    return [(entry.run, entry.number) for entry in codec.decode_list(data, "list").runs]


def test_other_urls_are_refused(url: str, server: str) -> None:
    with pytest.raises(WarehouseError, match="no warehouse here"):
        tw.open(f"{server}/nothing").runs()
    with pytest.raises(WarehouseError, match="credentials or a query string") as caught:
        tw.open("https://user:secret@host/warehouse")
    assert "secret" not in caught.value.message
    with pytest.raises(StoreUnavailable, match="does not answer"):
        tw.open("http://127.0.0.1:9/warehouse").runs()


def test_writers_in_a_store_keep_the_list_current(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with s3_server() as proxy:
        for name, value in {**proxy.environment, "TW_MIRROR": str(tmp_path / "mirror")}.items():
            monkeypatch.setenv(name, value)
        wh = Warehouse(f"s3://{BUCKET}/listed-for-web")
        wh.ingest(folder.parent / "traces" / "job", jobs=1)
        wh.ingest(folder.parent / "traces" / "other", jobs=1, expect_ranks=2)

        def listed() -> list[tuple[str, int]]:
            return _listed(wh.store.objects.get(layout.LIST))

        assert listed() == [("job", 1)]
        wh.seal("other", allow_missing=True)
        assert listed() == [("job", 1), ("other", 1)]
        proxy.requests.clear()
        wh.label("job", {"team": "a"})
        assert listed()[0] == ("job", 2)
        made = [one.kind for one in proxy.requests if "list.json" in one.path]
        assert made == ["GET", "PUT", "GET"]  # the last one by this test
        wh.remove("other")
        assert listed()[-1] == ("other", 2)
        proxy.refuses = lambda request: 403 if "list.json" in request.path else None
        wh.label("job", {"team": "b"})
        assert wh.runs().rows()[0]["labels"] == {"team": "b"}
