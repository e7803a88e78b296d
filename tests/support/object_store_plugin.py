"""Fixtures for tests with an object store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from object_store import Proxy, s3_server


@pytest.fixture(scope="module")
def server() -> Iterator[Proxy]:
    """A server for the tests of a module, with an empty bucket."""
    with s3_server() as proxy:
        yield proxy


@pytest.fixture
def s3(server: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Proxy]:
    """The server without faults and without counted requests, and a cache of the test alone."""
    for name, value in {**server.environment, "TW_MIRROR": str(tmp_path / "mirror")}.items():
        monkeypatch.setenv(name, value)
    server.reset()
    yield server
    server.reset()
