"""`tw serve` as a process, and what its clients send."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from cli_runner import TW, environment


@dataclass(frozen=True)
class Answer:
    """Status, headers and body of an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _Local(http.client.HTTPConnection):
    """A connection to a socket file."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


@dataclass
class Server:
    """A running server; `url` is the first address that it printed."""

    process: subprocess.Popen[str]
    url: str
    log: Path
    path: Path | None = None

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 80

    @property
    def base(self) -> str:
        return self.url.partition("/?")[0]

    @property
    def token(self) -> str:
        return self.url.partition("token=")[2]

    def send(
        self,
        target: str,
        values: Mapping[str, object] | None = None,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        token: bool = True,
    ) -> Answer:
        """The answer to one request, by default with the token."""
        connection = (
            _Local(self.path) if self.path else http.client.HTTPConnection("127.0.0.1", self.port, 90)
        )
        own = {"Authorization": f"Bearer {self.token}"} if token else {}
        address = f"{target}?{urlencode(values, doseq=True)}" if values else target
        try:
            connection.request(method, address, body, {**own, **(headers or {})})
            found = connection.getresponse()
            return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
        finally:
            connection.close()

    def query(self, sql: str, format_: str = "json", **more: object) -> Answer:
        """The answer to a statement."""
        body = json.dumps({"sql": sql, **more}).encode()
        headers = {"Content-Type": "application/json"}
        return self.send("/api/query", {"format": format_}, method="POST", headers=headers, body=body)

    def cookie(self) -> str:
        """The cookie that the first address gives."""
        answer = self.send(f"/?token={self.token}", token=False)
        assert (answer.status, answer.headers["location"]) == (303, "/"), answer
        return answer.headers["set-cookie"].partition(";")[0]


@contextmanager
def served(
    warehouse: Path | str | None, *options: str | Path, log: Path, **seconds: float
) -> Iterator[Server]:
    """A server on a free port; it is ended, and must not have printed an error.

    `seconds` are other values of its times: `patience` with clients, `look` between looks at traces.
    """
    place = [] if warehouse is None else ["-w", str(warehouse)]
    changes = "".join(f"web._{name.upper()}_S = {value}; " for name, value in seconds.items())
    *python, code = TW
    code = f"import tracewarehouse.serve.web as web; {changes}{code}" if changes else code
    command = [*python, code, "serve", *place, "--port", "0", "--no-browser", *map(str, options)]
    with log.open("w") as errors:
        process = subprocess.Popen(
            command,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        server = Server(process, process.stdout.readline().strip(), log)
        assert server.url.startswith("http://"), log.read_text()
        yield server
    finally:
        process.terminate()
        code = process.wait(30)
        process.stdout.close()
    assert code in (0, 143), log.read_text()
    assert "unexpected" not in log.read_text() and "Traceback" not in log.read_text(), log.read_text()
