"""Reports that nsys exports: with a stand-in for nsys on the PATH, and without."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import nsys_writer
import tracewarehouse as tw
from tracewarehouse.formats import nsys as format

EVENTS = [
    {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 20, "dur": 5,
     "args": {"device": 0, "stream": 7, "correlation": 1}},
]  # fmt: skip
COPIES = """import shutil, sys
shutil.copyfile({database!r}, sys.argv[sys.argv.index("--output") + 1])
"""


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "job.nsys-rep"
    path.write_bytes(b"not a published format")
    return path


def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Puts a program called nsys on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nsys").write_text(f"#!{sys.executable}\n{script}")
    (folder / "nsys").chmod(0o700)
    monkeypatch.setenv("PATH", str(folder))


def ingest(path: Path) -> tw.FileOutcome:
    (file,) = tw.open(path.parent / "warehouse").ingest(path, run="job", jobs=1).files
    return file


def test_a_report_is_exported_and_read(
    tmp_path: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = nsys_writer.Writer()
    writer.add({"traceEvents": EVENTS}, pid=9)
    writer.write(tmp_path / "export")
    install(tmp_path, monkeypatch, COPIES.format(database=str(tmp_path / "export")))
    assert ingest(recorded).state == "intact"
    (row,) = tw.open(tmp_path / "warehouse").query("SELECT name FROM kernels").rows()
    assert row["name"] == "gemm"
    shutil.rmtree(tmp_path / "bin")
    assert ingest(recorded).state == "same"


def test_without_nsys_the_command_is_the_hint(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    file = ingest(recorded)
    assert file.state == "refused" and "not on the PATH" in (file.reason or "")
    assert "nsys export --type sqlite job.nsys-rep" in (file.hint or "")


def test_a_failed_export_is_reported(tmp_path: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "import sys\nsys.exit('the report is damaged')\n")
    assert "nsys export failed: the report is damaged" in (ingest(recorded).reason or "")


def test_an_export_has_a_time_limit(tmp_path: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format, "EXPORT_SECONDS", 0.2)
    install(tmp_path, monkeypatch, "import time\ntime.sleep(30)\n")
    assert "took more than 0.2 s" in (ingest(recorded).reason or "")
