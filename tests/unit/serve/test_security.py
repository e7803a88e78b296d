"""Attacks on `tw serve`: nothing is read or run without its token, by other pages, or beyond the limits."""

from __future__ import annotations

import http.client
import json
import select
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import tracewarehouse as tw
from browser import browser, needs_chromium
from cli_runner import process
from conftest import ROOT, deep
from server import Server, served

pytest.importorskip("uvicorn")

FIRST_STEPS = ROOT / "tests" / "data" / "first-steps"
# Neither is counted or interrupted by DuckDB.
ENDLESS = "SELECT damerau_levenshtein(repeat('ab', 40000), repeat('ba', 40000))"
PATHS = (
    *("/", "/report?run=first", "/history", "/analyses", "/show?analysis=kernel_summary", "/sql", "/api"),
    *("/summary?run=first", "/api/runs", "/api/check", "/api/list", "/static/page.css", "/static/served.js"),
)
STATEMENT = json.dumps({"sql": "SELECT 1 AS one"}).encode()
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("security") / "wh"
    tw.open(root).ingest(FIRST_STEPS / "rank0.json.gz", run="first", jobs=1)
    return root


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    with served(root, log=root.parent / "log") as running:
        yield running


def post(server: Server, **headers: str) -> int:
    own = {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return server.send("/api/query", method="POST", headers=own, body=STATEMENT, token=False).status


def test_nothing_is_shown_without_the_token_or_cookie(server: Server) -> None:
    cookie = server.cookie()
    name, _, value = cookie.partition("=")
    assert str(server.port) in name and value != server.token
    for path in PATHS:
        assert server.send(path, token=False).status == 401, path
        assert server.send(path, token=False, headers={"Cookie": f"{name}={server.token}"}).status == 401
        assert server.send(path, token=False, headers={"Cookie": f"tw-1={value}"}).status == 401
    assert server.send("/api/runs", token=False, headers={"Cookie": cookie}).status == 200
    assert post(server) == 401


def test_headers_of_every_answer(server: Server) -> None:
    for path in (*PATHS, "/nothing", "/api/show"):
        for token in (True, False):
            headers = server.send(path, token=token).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'; script-src 'self';" in policy and "frame-ancestors 'none'" in policy
            assert (headers["referrer-policy"], headers["cache-control"]) == ("no-referrer", "no-store")
            assert headers["x-content-type-options"] == "nosniff" and "server" not in headers
    answer = server.send(f"/?token={server.token}", token=False)
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie


def test_other_names_of_the_host_are_refused(server: Server) -> None:
    """DNS rebinding: the browser sends the name of the page that attacks."""
    port = server.port
    for host in (
        f"evil.example:{port}",
        "evil.example",
        f"127.0.0.1.evil.example:{port}",
        "localhost.",
        "",
        "a b",
    ):
        assert server.send("/api/runs", headers={"Host": host}).status in (400, 403), host
        assert post(server, Host=host, Authorization=f"Bearer {server.token}") in (400, 403)
    for host in ("localhost:9000", f"127.0.0.1:{port}", "[::1]:8642", "LOCALHOST"):
        assert server.send("/api/runs", headers={"Host": host}).status == 200, host
    request = "GET /api/runs HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    assert b" 400 " in raw(server, request) or b" 403 " in raw(server, request)
    assert b" 40" in raw(server, "GET /api/runs HTTP/1.0\r\n\r\n")[:16]


def raw(server: Server, request: str) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
        connection.sendall(request.encode())
        return connection.recv(65_536)


def test_requests_of_other_pages_are_refused(server: Server) -> None:
    cookie, own = server.cookie(), f"http://127.0.0.1:{server.port}"
    assert post(server, Cookie=cookie, Origin=own) == 200
    assert post(server, Authorization=f"Bearer {server.token}") == 200
    assert post(server, Cookie=cookie) == 403
    for origin in (
        "http://evil.example",
        "null",
        f"http://localhost:{server.port}",
        f"{own}.evil.example",
        "",
    ):
        assert post(server, Cookie=cookie, Origin=origin) == 403, origin
    # Cookies of a site are sent to all its ports.
    for site in ("same-site", "cross-site"):
        for mode in ("no-cors", "cors"):
            headers = {
                "Cookie": cookie,
                "Sec-Fetch-Site": site,
                "Sec-Fetch-Mode": mode,
                "Sec-Fetch-Dest": "script",
            }
            assert server.send("/api/runs", token=False, headers=headers).status == 403
        headers = {"Cookie": cookie, "Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
        assert server.send("/", token=False, headers={**headers, "Sec-Fetch-Dest": "iframe"}).status == 403
        assert server.send("/", token=False, headers={**headers, "Sec-Fetch-Dest": "document"}).status == 200
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert server.send("/api/runs", method=method).status in (400, 405)
    text = server.send("/api/query", method="POST", headers={"Content-Type": "text/plain"}, body=STATEMENT)
    assert text.status == 400 and "Content-Type" in text.json["error"]["hint"]
    assert server.send("/api/query", {"sql": "SELECT 1"}).status == 405, "SQL by POST only"


def test_a_visit_from_another_page_stays_on_this_server(server: Server) -> None:
    """Without its cookie, which is not sent then, the page visits itself once; it never leads elsewhere."""
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for path in (
        "//evil.example/",
        "/%5Cevil.example",
        "/%5C%5Cevil.example",
        "/%22%3E%3Cscript%3E",
        "/sql?a=%22%3E&b=<",
    ):
        answer = server.send(path, token=False, headers=headers)
        target = answer.text.partition("url=")[2].partition('"')[0]
        assert answer.status == 401 and target.startswith("/") and target.endswith("retry="), path
        assert not target.startswith(("//", "/\\")) and "<" not in target, path
        again = server.send(target.replace("&amp;", "&"), token=False, headers=headers)
        assert again.status == 401 and "refresh" not in again.text


def test_guessing_the_token_is_slow(root: Path) -> None:
    with served(root, log=root.parent / "guess") as server:
        cookie = server.cookie()
        started = time.monotonic()
        found = [
            server.send("/api/runs", token=False, headers={"Authorization": f"Bearer {at}"}).status
            for at in range(40)
        ]
        seconds = time.monotonic() - started
        assert set(found) == {401, 429} and found[:10] == [401] * 10
        assert found.count(401) <= 10 * (1 + seconds)
        assert server.send("/api/runs", token=False, headers={"Cookie": cookie}).status == 200
        time.sleep(1)
        assert server.send("/api/runs").status == 200
        assert server.token not in server.log.read_text()


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/static/../../../../../etc/passwd",
            "/static/%2e%2e%2f%2e%2e%2fmacros.html",
            "/static/macros.html",
        ),
        *("/static/..%5c..%5cx", "/static/%2fetc%2fpasswd", "//etc/passwd", "/static/page.css%00.html"),
        "/static/page.css/../../x",
    ],
)
def test_no_path_leads_out_of_the_files(server: Server, path: str) -> None:
    assert server.send(path).status == 404


def test_runs_are_names_not_paths(server: Server) -> None:
    for run in (
        "../../../etc/passwd",
        "/etc/passwd",
        "first/../../x",
        "first@v99",
        "\x00",
        "%00",
        "x*" * 2000,
    ):
        for path, key in (
            ("/report", "run"),
            ("/api/check", "run"),
            ("/summary", "run"),
            ("/api/diff", "base"),
        ):
            answer = server.send(path, {key: run, **({"head": "first"} if key == "base" else {})})
            assert answer.status in (400, 404, 409), (path, run, answer.text)
            assert b"root:" not in answer.body


def test_sql_reads_only_the_runs(server: Server, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    for sql in (
        f"FROM read_csv('{tmp_path}/secret.csv')",
        "SELECT getenv('HOME')",
        f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
        "CREATE TABLE t (i INT)",
        "SELECT 1; SELECT 2",
        "ATTACH '/tmp/x.duckdb'",
    ):
        answer = server.query(sql)
        assert answer.status == 400 and answer.json["error"]["class"] == "QueryError", sql
    assert not (tmp_path / "out.csv").exists()


def test_large_bodies_are_refused_and_the_server_goes_on(server: Server) -> None:
    connection = socket.create_connection(("127.0.0.1", server.port), 30)
    head = f"POST /api/query HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
    connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 10000000\r\n\r\n".encode())
    connection.sendall(b'{"sql": "' + b"x" * 1_100_000)
    assert b" 400 " in connection.recv(200)
    connection.close()
    assert server.query("SELECT 1 AS one").json["result"] == [{"one": 1}]
    for body in (b"", b"[]", b"{", b'{"sql": 1}', b'{"sql": "SELECT 1", "other": 1}', b"\xff"):
        assert server.send("/api/query", method="POST", headers=JSON, body=body).status == 400, body
    assert b" 400 " in raw(server, f"GET / HTTP/1.1\r\nHost: localhost\r\nX: {'y' * 2_000_000}")


def test_an_endless_query_ends_when_its_client_goes(server: Server) -> None:
    assert server.query("SELECT 1 AS one").status == 200
    before = set(children_of(server))
    body = json.dumps({"sql": ENDLESS}).encode()
    head = f"POST /api/query HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        connection.sendall(head.encode() + body)
        time.sleep(2)
    deadline = time.monotonic() + 15
    while before & set(children_of(server)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not before & set(children_of(server)), "the child that ran it is killed"
    assert server.query("SELECT 2 AS two").json["result"] == [{"two": 2}]


def children_of(server: Server) -> list[int]:
    tasks = Path(f"/proc/{server.process.pid}/task").glob("*/children")
    return [int(child) for path in tasks for child in path.read_text().split()]


@pytest.mark.parametrize("patience_s", [1.0, *deep(None)])
def test_slow_clients_do_not_delay_others_and_are_closed(
    root: Path, tmp_path: Path, patience_s: float | None
) -> None:
    """Neither those that send a part of a request, nor those that send a body byte by byte."""
    given = {} if patience_s is None else {"patience": patience_s}
    with served(root, log=tmp_path / "log", **given) as server, ExitStack() as open_:

        def connected() -> socket.socket:
            return open_.enter_context(socket.create_connection(("127.0.0.1", server.port), 60))

        slow, trickling = [connected() for _ in range(100)], connected()
        for each in slow:
            each.sendall(b"GET /api/runs HTTP/1.1\r\nHost: local")
        head = f"POST /api/query HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
        head += "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        trickling.sendall(head.encode())
        started = time.monotonic()
        assert server.send("/api/runs").status == 200
        assert time.monotonic() - started < 5
        sent = 0
        while not select.select([trickling], [], [], 0.05)[0]:
            trickling.sendall(b" ")
            sent += 1
        waited_s, answer = time.monotonic() - started, http.client.HTTPResponse(trickling)
        answer.begin()
        assert answer.status == 400 and b"did not arrive within" in answer.read()
        assert sent > 5 and waited_s < (patience_s or 10) + 5, "cut although bytes came all the time"
        assert slow[0].recv(1) == b"", "closed after some time"
        assert time.monotonic() - started < 2 * (patience_s or 10) + 10


def test_a_socket_is_of_its_user_alone(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "tw.sock"
    for _ in range(2):  # the second replaces what a killed server left
        with served(root, "--socket", path, log=tmp_path / "log") as server:
            server.path = path
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert server.send("/api/runs").status == 200
            assert server.send("/api/runs", token=False).status == 401
            second = process("serve", "-w", root, "--socket", path)
            assert second.code == 1 and "already in use" in second.err
        assert not path.exists()
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    path.unlink()


def test_other_hosts_need_a_token_file_of_its_user_alone(root: Path, tmp_path: Path) -> None:
    refused = process("serve", "-w", root, "--host", "0.0.0.0", "--port", "0")
    assert refused.code == 2 and "--token-file" in refused.err
    file = tmp_path / "token"
    with served(root, "--host", "0.0.0.0", "--token-file", file, log=tmp_path / "log") as server:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        token, printed = file.read_text().strip(), server.url + server.log.read_text()
        assert token not in printed and "not encrypted" in printed and len(token) > 30
        bearer = {"Authorization": f"Bearer {token}"}
        assert server.send("/api/runs", token=False, headers=bearer).status == 200
        assert (
            server.send("/api/runs", token=False, headers={**bearer, "Host": "other.example"}).status == 403
        )
        named = {**bearer, "Host": f"{socket.gethostname()}:{server.port}"}
        assert server.send("/api/runs", token=False, headers=named).status == 200
    file.chmod(0o640)
    assert "chmod 600" in process("serve", "-w", root, "--token-file", file, "--port", "0").err
    file.chmod(0o600)
    file.write_text("short\n")
    assert "no token" in process("serve", "-w", root, "--token-file", file, "--port", "0").err
    (tmp_path / "link").symlink_to(file)
    assert process("serve", "-w", root, "--token-file", tmp_path / "link", "--port", "0").code == 1


@needs_chromium
def test_a_browser_keeps_other_pages_out(server: Server, tmp_path: Path) -> None:
    """A page of another origin that is open beside it cannot read, frame or send anything."""
    page = tmp_path / "evil.html"
    page.write_text(f"""<title>?</title><iframe src="{server.base}/"></iframe><script>
      const tries = [fetch('{server.base}/api/runs', {{credentials: 'include'}}),
        fetch('{server.base}/api/query', {{method: 'POST', credentials: 'include', body: '{{}}'}})];
      Promise.allSettled(tries).then(all => document.title = all.map(each => each.status).join());
    </script>""")
    with browser(tmp_path) as window:
        window.driver.get(server.url)
        assert window.driver.current_url == f"{server.base}/", "the token is not in the address"
        window.open(page)
        deadline = time.monotonic() + 20
        while window.driver.title == "?" and time.monotonic() < deadline:
            time.sleep(0.2)
        assert window.driver.title == "rejected,rejected"
        assert any("frame" in each.lower() or "403" in each for each in window.errors())
        # A link of another page works: the page visits itself once, with the cookie.
        page.write_text(f'<a href="{server.base}/sql?x=1">go</a>')
        window.open(page)
        window.driver.find_element("css selector", "a").click()
        deadline = time.monotonic() + 20
        while "retry" not in window.driver.current_url and time.monotonic() < deadline:
            time.sleep(0.2)
        assert window.driver.find_element("id", "editor")
