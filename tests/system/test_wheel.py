"""The wheel, built offline, holds the package, every `.sql` file of the checkout and the native scanner."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

import pytest

from conftest import ROOT
from tracewarehouse.formats.kineto import build

FOLDER = "tracewarehouse/formats/kineto"
needs_compiler = pytest.mark.skipif(build.system_compiler() is None, reason="there is no C compiler")


def built(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Builds a wheel without isolation, so that nothing is downloaded."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, env=env, check=False, capture_output=True, text=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    environment = {} if build.system_compiler() else {"TW_NO_NATIVE": "1"}
    done = built(folder, **environment)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return path


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_sql_file_is_inside(wheel: Path) -> None:
    sql = {path.relative_to(ROOT).as_posix() for path in (ROOT / "sql").rglob("*") if path.is_file()}
    assert any(name.endswith(".sql") for name in sql)
    inside = {name.removeprefix("tracewarehouse/") for name in names(wheel) if "/sql/" in name}
    assert inside == sql


def test_every_module_is_inside(wheel: Path) -> None:
    source = ROOT / "src"
    wanted = {path.relative_to(source).as_posix() for path in (source / "tracewarehouse").rglob("*.py")}
    assert wanted <= names(wheel) and "tracewarehouse/py.typed" in names(wheel)


def test_the_command_has_two_names(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/entry_points.txt")]
        lines = archive.read(name).decode().splitlines()
    assert lines[1:] == ["tracewarehouse = tracewarehouse.cli:main", "tw = tracewarehouse.cli:main"]


def test_every_page_template_is_inside(wheel: Path) -> None:
    source = ROOT / "src"
    folder = source / "tracewarehouse" / "present" / "pages" / "templates"
    templates = {path.relative_to(source).as_posix() for path in folder.iterdir()}
    assert len(templates) >= 6 and templates <= names(wheel)


def test_every_guide_is_inside(wheel: Path) -> None:
    guides = {f"tracewarehouse/guides/{path.name}" for path in (ROOT / "notebooks" / "guides").glob("*.md")}
    assert guides and guides <= names(wheel)


def test_the_catalog_of_the_wheel_is_the_one_of_the_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    script = (
        "from tracewarehouse.contracts.catalog import Catalog; "
        "c = Catalog.load(); print(c.folder, len(c.contracts))"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path, check=True, capture_output=True, text=True
    )
    others = ("upgrades", "bases")
    files = [path for path in (ROOT / "sql").rglob("*.sql") if not set(others) & set(path.parts)]
    assert done.stdout.split() == [str(tmp_path / "tracewarehouse" / "sql"), str(len(files))]


def test_the_installed_wheel_reads_compiled_contracts(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / "tracewarehouse"
    script = (
        "from tracewarehouse.contracts.catalog import Catalog; "
        "c = Catalog.load(); print(type(c.contracts).__name__, c.parsed_because)"
    )

    def loaded() -> str:
        command, env = [sys.executable, "-c", script], {"PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            command, env=env, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    assert loaded() == "CompiledContracts None\n"
    (folder / "contracts/contracts.jsonl").rename(tmp_path / "contracts.jsonl")
    assert loaded().startswith("mappingproxy [Errno 2] No such file")
    (tmp_path / "contracts.jsonl").rename(folder / "contracts/contracts.jsonl")
    with (folder / "sql/views/device_gaps.v1.sql").open("a") as view:
        view.write("\n")
    assert "views/device_gaps.v1.sql" in loaded()


@needs_compiler
def test_the_native_scanner_is_inside_and_was_built_from_the_source_inside(
    wheel: Path, tmp_path: Path
) -> None:
    assert wheel.name.endswith(f"-py3-none-{build.platform_tag()}.whl")
    libraries = {name for name in names(wheel) if Path(name).suffix in (".so", ".dylib", ".dll")}
    assert libraries == {f"{FOLDER}/{build.library_name()}"}
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    module = "tracewarehouse.formats.kineto.library"
    script = f"import sys, {module} as native; print(native.__file__, native.why_not())"
    command = [sys.executable, "-c", script]
    env = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=env, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.split() == [str(tmp_path / FOLDER / "library.py"), "None"]


def test_without_the_native_scanner_the_wheel_is_pure(tmp_path: Path) -> None:
    done = built(tmp_path, TW_NO_NATIVE="1")
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.whl")
    assert path.name.endswith("-py3-none-any.whl")
    assert not any("_scan-" in name for name in names(path)) and f"{FOLDER}/scan.c" in names(path)


@pytest.mark.skipif(build.zig_compiler() is not None, reason="ziglang is installed")
def test_without_a_compiler_the_build_fails_with_a_remedy(tmp_path: Path) -> None:
    done = built(tmp_path, PATH=str(tmp_path), CC="")
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "install a C compiler" in done.stderr and "TW_NO_NATIVE=1" in done.stderr
    assert sysconfig.get_platform() not in "".join(path.name for path in tmp_path.iterdir())


@pytest.mark.deep
@needs_compiler
def test_a_wheel_leaves_nothing_in_the_source_tree(tmp_path: Path) -> None:
    before = sorted(path.name for path in (ROOT / "src" / FOLDER).iterdir())
    assert built(tmp_path).returncode == 0
    assert sorted(path.name for path in (ROOT / "src" / FOLDER).iterdir()) == before


@needs_compiler
@pytest.mark.deep
def test_root_installs_it_for_everybody(wheel: Path) -> None:
    """Pip writes nothing outside the folder, and a user who may not write there can use it."""
    with tempfile.TemporaryDirectory() as name:
        place, home, target = Path(name), Path(name, "home"), Path(name, "target")
        home.mkdir()
        place.chmod(0o777)
        env = {"HOME": str(home), "TMPDIR": str(home), "PATH": "", "TW_AUTO_LABELS": "0"}
        pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-cache-dir"]
        subprocess.run([*pip, "--target", str(target), str(wheel)], env=env, cwd=home, check=True)
        assert list(home.iterdir()) == [] and {each.name for each in place.iterdir()} == {"home", "target"}
        for path in target.rglob("*"):
            assert path.stat().st_mode & 0o044 == 0o044, path
            path.chmod(0o555 if path.is_dir() else 0o444)
        home.chmod(0o777)
        other = (
            [shutil.which("setpriv") or "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            if os.geteuid() == 0
            else []
        )
        python = [*other, sys.executable]
        if subprocess.run([*python, "-c", ""], check=False, capture_output=True).returncode:
            pytest.skip("other users cannot run this interpreter")
        env["PYTHONPATH"] = os.pathsep.join([str(target), str(Path(pytest.__file__).parents[1])])
        before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
        run = "from tracewarehouse.cli import main; main()"
        for words in (["simulate", "job", "--ranks", "2"], ["ingest", "job", "--run", "a"], ["check", "a"]):
            done = subprocess.run(
                [*python, "-c", run, *words], env=env, cwd=home, check=False, capture_output=True, text=True
            )
            assert done.returncode == 0, (words, done.stderr)
        assert {path: path.read_bytes() for path in target.rglob("*") if path.is_file()} == before
        native = "from tracewarehouse.formats.kineto import library as it; print(it.__file__, it.why_not())"
        used = subprocess.run(
            [*python, "-c", native],
            env=env, cwd=home, check=True, capture_output=True, text=True,
        )  # fmt: skip
        assert used.stdout.startswith(str(target)) and used.stdout.endswith(" None\n")
