"""The cached template of the shell file: it saves seconds, and is rebuilt if it cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tracewarehouse.query.shell_file import cached, keep


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tracewarehouse"


def test_cached_data_round_trips() -> None:
    keep("one", b"bytes")
    assert cached("one") == b"bytes"
    assert cached("other") is None


@pytest.mark.parametrize("damaged", [b"", b"short", b"\0" * 40])
def test_damaged_cache_entries_are_ignored(home: Path, damaged: bytes) -> None:
    keep("one", b"bytes")
    (home / "one").write_bytes(damaged)
    assert cached("one") is None


def test_used_entries_are_kept(home: Path) -> None:
    for number in range(12):
        keep(f"{number}", b"bytes")
        for age, path in enumerate(sorted(home.iterdir(), key=lambda path: int(path.name))):
            os.utime(path, (age, age))
        cached("0")
    assert {path.name for path in home.iterdir()} == {"0", "5", "6", "7", "8", "9", "10", "11"}


def test_an_unusable_cache_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep("one", b"bytes")
    assert cached("one") is None
