"""A real S3 server for tests (moto), behind a proxy that counts requests and causes faults."""

from __future__ import annotations

import http.client
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

BUCKET = "bucket"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_REGION": "us-east-1"}
_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length", "expect"}


@dataclass
class Request:
    """A request as the proxy sees it: `kind` is the method, LIST, or CREATE for a conditional PUT."""

    kind: str
    path: str
    # The size of the content in the answer.
    answered_bytes: int = 0


@dataclass
class Proxy:
    """The requests so far, and the faults to cause."""

    upstream: tuple[str, int]
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    ignore_conditions: bool = False
    # Whether the answer of a request that succeeded is lost.
    loses: Callable[[Request], bool] = lambda _: False
    # Whether the body of an answer is cut off in the middle.
    cuts: Callable[[Request], bool] = lambda _: False
    # The status to answer with, without a call of the server; None passes it on.
    refuses: Callable[[Request], int | None] = lambda _: None
    # Called before a request is passed on, and after it was answered by the server.
    before: Callable[[Request], None] = lambda _: None
    after: Callable[[Request], None] = lambda _: None
    lock: Lock = field(default_factory=Lock)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that point a process to the proxy."""
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}"}

    def reset(self) -> None:
        """Forgets requests and faults."""
        fresh = Proxy(self.upstream)
        for name in ("requests", "ignore_conditions", "loses", "cuts", "refuses", "before", "after"):
            setattr(self, name, getattr(fresh, name))

    def counts(self) -> Counter[str]:
        """The number of requests of each kind."""
        return Counter(each.kind for each in self.requests)

    def data_reads(self) -> list[str]:
        """The paths of data files that were read."""
        return [each.path for each in self.requests if each.kind == "GET" and "/data/" in each.path]


@contextmanager
def s3_server() -> Iterator[Proxy]:
    """A server with an empty bucket, and its proxy. One at a time in a process: they share their objects."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        with proxy_of(server.get_host_and_port()) as proxy:
            forward(proxy.upstream, "POST", "/moto-api/reset", {}, b"")  # what a server before it left
            forward(proxy.upstream, "PUT", f"/{BUCKET}", {}, b"")
            yield proxy
    finally:
        server.stop()


@contextmanager
def proxy_of(upstream: tuple[str, int]) -> Iterator[Proxy]:
    """A proxy in front of a server."""
    proxy = Proxy(upstream)
    listening = ThreadingHTTPServer(("127.0.0.1", 0), _handler(proxy))
    listening.daemon_threads = True
    proxy.port = listening.server_address[1]
    thread = Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield proxy
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


def forward(
    upstream: tuple[str, int], method: str, path: str, headers: dict[str, str], body: bytes
) -> tuple[int, list[tuple[str, str]], bytes]:
    """The answer of the server."""
    connection = http.client.HTTPConnection(*upstream)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


def _handler(proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Requests are counted instead."""

        def handle_one_request(self) -> None:
            """Killed clients close connections at any moment."""
            try:
                super().handle_one_request()
            except ConnectionError:
                self.close_connection = True

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            received = Request(_kind(self.command, self.path, self.headers.keys()), self.path)
            with proxy.lock:
                proxy.requests.append(received)
            proxy.before(received)
            refused = proxy.refuses(received)
            if refused is not None:
                self._send(refused, [], b"")
                return
            dropped = _HOP | ({"if-none-match"} if proxy.ignore_conditions else set())
            headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
            status, found, data = forward(proxy.upstream, self.command, self.path, headers, body)
            received.answered_bytes = len(data) if status < 300 else 0
            proxy.after(received)
            if status < 300 and proxy.loses(received):
                self.close_connection = True
                return
            self._send(status, found, data, is_cut=status < 300 and proxy.cuts(received))

        def _send(
            self, status: int, headers: list[tuple[str, str]], data: bytes, is_cut: bool = False
        ) -> None:
            sizes = [value for name, value in headers if name.lower() == "content-length"]
            size = sizes[0] if sizes else str(len(data))
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", size if self.command == "HEAD" else str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data[: len(data) // 2] if is_cut else data)
            if is_cut:
                self.close_connection = True

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

    return Handler


def _kind(method: str, path: str, headers: list[str]) -> str:
    if method == "GET" and re.search(r"[?&]list-type=", path):
        return "LIST"
    if method == "PUT" and any(name.lower() == "if-none-match" for name in headers):
        return "CREATE"
    return method
