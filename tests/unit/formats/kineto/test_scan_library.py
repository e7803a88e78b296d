"""The library is used only if it belongs to this package; otherwise there is a notice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tracewarehouse.formats.kineto import build
from tracewarehouse.formats.kineto import library as native
from tracewarehouse.formats.kineto.scanner import NativeScanner

FOLDER = Path(native.__file__).parent
needs_compiler = pytest.mark.skipif(build.system_compiler() is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build.build(tmp_path_factory.mktemp("library"))


@needs_compiler
def test_the_library_of_this_source_is_loaded(library: Path) -> None:
    loaded = native.load(library, build.SOURCE)
    scanner = NativeScanner(library=loaded)
    assert scanner.feed(b'{"ph":"X"}]') == [] and scanner.rows == 1
    assert [path.name for path in library.parent.iterdir()] == [build.library_name()]


@needs_compiler
def test_a_stale_library_is_refused(library: Path, tmp_path: Path) -> None:
    changed = tmp_path / "scan.c"
    changed.write_bytes(build.SOURCE.read_bytes() + b"\n")
    with pytest.raises(
        native.NativeScannerError, match=r"built from a different scan\.c, install the package"
    ):
        native.load(library, changed)


@needs_compiler
def test_a_library_of_another_interface_is_refused(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "ABI", native.ABI + 1)
    with pytest.raises(native.NativeScannerError, match="a different interface"):
        native.load(library, build.SOURCE)


def test_a_file_that_is_not_a_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / build.library_name()
    with pytest.raises(native.NativeScannerError, match=f"{path.name} is missing, install the package again"):
        native.load(path, build.SOURCE)
    path.write_bytes(b"no library")
    with pytest.raises(native.NativeScannerError, match="cannot be loaded"):
        native.load(path, build.SOURCE)


def test_users_without_the_library_get_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "why_not", lambda: "it is missing")
    assert native.notice() == "ingesting without the native scanner, several times slower: it is missing"
    assert native.version_line().endswith(", without the native scanner: it is missing")
    monkeypatch.setattr(native, "why_not", lambda: None)
    assert native.notice() is None and native.version_line().endswith(", native scanner")


def test_a_build_without_a_compiler_names_the_fix(tmp_path: Path) -> None:
    copy = tmp_path / "build.py"
    copy.write_bytes((FOLDER / "build.py").read_bytes())
    (tmp_path / "scan.c").write_bytes(build.SOURCE.read_bytes())
    command = [sys.executable, "-S", "-E", str(copy)]
    done = subprocess.run(
        command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1 and done.stderr.startswith(build.REMEDY)
    assert not list(tmp_path.glob("*_scan*"))


@needs_compiler
def test_a_compiler_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "system_compiler", lambda: ["false"])
    monkeypatch.setattr(build, "zig_compiler", lambda: None)
    with pytest.raises(build.BuildError, match="^false: "):
        build.build(tmp_path)


def test_a_machine_without_a_compiler_requires_one_from_pypi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "system_compiler", lambda: None)
    monkeypatch.setattr(build.os, "uname", lambda: SimpleNamespace(machine="x86_64"))
    monkeypatch.delenv("TW_NO_NATIVE", raising=False)
    assert build.requirements() == [build.ZIG]
    monkeypatch.setenv("TW_NO_NATIVE", "1")
    assert build.requirements() == []
