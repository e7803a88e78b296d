"""Servers of other object stores for deep tests: Azurite (Azure) and s3rver (S3 without conditional writes).

They are found in the folder that TW_NODE_BIN names, or on the PATH: `npm install azurite s3rver`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import pytest

from object_store import Proxy, proxy_of

CONTAINER = "container"
_ACCOUNT = "account"
_START_S = 60.0


def program(name: str) -> str:
    """The path of a program; skips the test without it."""
    found = shutil.which(name, path=os.environ.get("TW_NODE_BIN")) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@contextmanager
def azurite(folder: Path) -> Iterator[tuple[Proxy, dict[str, str]]]:
    """An Azure server with an empty container, its proxy, and the environment of clients."""
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    port = _free_port()
    command = [program("azurite-blob"), "--silent", "--skipApiVersionCheck", "--location", str(folder)]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with _running(command, port, {"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{key}"}):
        _create_container(port, key)
        with proxy_of(("127.0.0.1", port)) as proxy:
            yield (
                proxy,
                {
                    "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
                    "AZURE_STORAGE_ACCOUNT_KEY": key,
                    "AZURE_STORAGE_USE_EMULATOR": "true",
                    "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{proxy.port}",
                    "AZURE_ALLOW_HTTP": "true",
                },
            )


@contextmanager
def s3rver(folder: Path, bucket: str) -> Iterator[dict[str, str]]:
    """The environment of clients of an S3 server that ignores If-None-Match."""
    port = _free_port()
    command = [program("s3rver"), "-d", str(folder), "-a", "127.0.0.1", "-p", str(port), "--silent"]
    with _running([*command, "--configure-bucket", bucket], port, {}):
        yield {
            "AWS_ACCESS_KEY_ID": "S3RVER",
            "AWS_SECRET_ACCESS_KEY": "S3RVER",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        }


@contextmanager
def _running(command: list[str], port: int, env: dict[str, str]) -> Iterator[None]:
    with subprocess.Popen(
        command, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait_for(port, process)
            yield
        finally:
            process.terminate()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"the server does not start: {process.args!r}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _create_container(port: int, key: str) -> None:
    """By a request that is signed with the key of the account."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    named = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    resource = f"/{_ACCOUNT}/{_ACCOUNT}/{CONTAINER}\nrestype:container"
    text = "PUT" + "\n" * 12 + named + resource
    signed = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(signed).decode()}"
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request(
            "PUT", f"/{_ACCOUNT}/{CONTAINER}?restype=container", headers={**headers, "Content-Length": "0"}
        )
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
    finally:
        connection.close()
