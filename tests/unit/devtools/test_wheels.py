"""`tw dev wheels`: each file of a release is complete, and runs where its name says.

Deep tests build all of them, install the wheel of this platform where there is no compiler, and run the
scanners of other platforms where musl or qemu is installed (Debian: musl, qemu-user-static,
libc6-arm64-cross).
"""

from __future__ import annotations

import gzip
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from cli_runner import tw
from conftest import ROOT
from pythons import PYTHONS, clean_environment, installed
from tracewarehouse.devtools import wheels
from tracewarehouse.errors import ContractError, UnknownName
from tracewarehouse.formats.kineto import build
from tracewarehouse.formats.kineto.build import TARGETS, Target
from tracewarehouse.formats.kineto.scanner import CODES, DOUBLES, INTS, TEXTS

HERE = Path(__file__).parent
FOLDER = "tracewarehouse/formats/kineto"
BY_TAG = {target.tag: target for target in TARGETS}
GLIBC, MUSL, ARM = (
    BY_TAG[f"{tag}"] for tag in ("manylinux_2_17_x86_64", "musllinux_1_2_x86_64", "manylinux_2_17_aarch64")
)
MACOS = BY_TAG["macosx_11_0_arm64"]
# Commands that need no extra.
CORE = (
    "runs", "check demo-after", "show kernel_summary --run demo-after", "diff demo-before demo-after",
    "verify", "record --all", "history step_time", "list",
    "export trace demo-after --rank 0 --step 2 -o step.json.gz", "describe kernels",
)  # fmt: skip
QEMU, ROOTS = (
    shutil.which("qemu-aarch64-static"),
    (os.environ.get("QEMU_LD_PREFIX"), "/usr/aarch64-linux-gnu"),
)


def elf(machine: int, *texts: bytes) -> bytes:
    """The start of a library, and the texts in it."""
    return b"\x7fELF".ljust(18, b"\0") + struct.pack("<H", machine) + b"\0".join(texts)


def mach_o(machine: int, version: int) -> bytes:
    """A header, a command of another kind, and the version of macOS."""
    header = struct.pack("<IIIIIIII", 0xFEEDFACF, machine, 0, 6, 2, 0, 0, 0)
    return header + struct.pack("<II8x", 0x19, 16) + struct.pack("<IIIIII", 0x32, 24, 1, version << 16, 0, 0)


def wheel(folder: Path, target: Target, library: bytes, name: str | None = None) -> Path:
    path = folder / f"tracewarehouse-1.0-py3-none-{target.tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{FOLDER}/{name or target.library}", library)
    return path


@pytest.mark.parametrize(
    ("target", "library", "problem"),
    [
        (GLIBC, elf(62, b"GLIBC_2.2.5", b"GLIBC_2.17"), None),
        (GLIBC, elf(62, b"GLIBC_2.2.5", b"GLIBC_2.18"), "needs glibc 2.18"),
        (GLIBC, elf(183, b"GLIBC_2.17"), "is not a library for x86_64"),
        (GLIBC, elf(62), "does not need glibc"),
        (ARM, elf(183, b"GLIBC_2.17"), None),
        (MUSL, elf(62), None),
        (MUSL, elf(62, b"GLIBC_2.2.5"), "needs glibc"),
        (MACOS, mach_o(0x0100000C, 11), None),
        (MACOS, mach_o(0x0100000C, 13), "needs macOS 13.0"),
        (MACOS, mach_o(0x01000007, 11), "is not a library for arm64"),
    ],
)
def test_a_library_for_another_platform_is_a_problem(
    target: Target, library: bytes, problem: str | None, tmp_path: Path
) -> None:
    assert list(wheels.problems(wheel(tmp_path, target, library))) == ([problem] if problem else [])


def test_a_library_under_another_name_would_not_be_loaded(tmp_path: Path) -> None:
    path = wheel(tmp_path, GLIBC, elf(62, b"GLIBC_2.17"), "_scan-linux-x86_64-musl.so")
    (found,) = wheels.problems(path)
    assert found.endswith("_scan-linux-x86_64-musl.so, expected _scan-linux-x86_64-gnu.so")


def test_the_running_interpreter_loads_the_library_of_its_wheel() -> None:
    names = {target.library for target in TARGETS}
    assert build.library_name() in names and len(names) == len(TARGETS)


def test_an_unknown_platform_and_another_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="unknown platform: win_amd64"):
        list(wheels.build(ROOT, tmp_path, ["win_amd64"]))
    with pytest.raises(ContractError, match="not a checkout"):
        list(wheels.build(tmp_path, tmp_path))


@pytest.mark.skipif(build.zig_compiler() is not None, reason="ziglang is installed")
def test_without_the_compiler_the_hint_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    result = tw("dev", "wheels", str(tmp_path))
    assert result.code == 1 and result.err == "tw: ziglang not installed\nhint: pip install -e '.[wheels]'\n"


def test_windows_is_refused_by_name(tmp_path: Path) -> None:
    script = "import sys; sys.platform = 'win32'; from hatchling.cli import hatchling; hatchling()"
    command = [sys.executable, "-c", script, "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == build.WINDOWS


def test_the_source_distribution_holds_everything_and_nothing_built(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (path,) = tmp_path.iterdir()
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed = [
        "LICENSE",
        "CHANGELOG.md",
        "src/hatch_native.py",
        f"src/{FOLDER}/scan.c",
        f"src/{FOLDER}/build.py",
    ]
    listed += [each.relative_to(ROOT).as_posix() for each in (ROOT / "sql").rglob("*.sql")]
    assert set(listed) <= names
    assert not [name for name in names if "_scan-" in name or "__pycache__" in name]


@pytest.fixture(scope="module")
def ziglang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiler, from PyPI."""
    folder = tmp_path_factory.mktemp("ziglang")
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), build.ZIG]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def release(ziglang: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files of a release."""
    folder = tmp_path_factory.mktemp("release")
    command = [sys.executable, "-m", "tracewarehouse", "dev", "wheels", str(folder)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ziglang}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(list(folder.iterdir())) == len(TARGETS) + 1
    return folder


def wheel_of(target: Target, folder: Path) -> Path:
    (path,) = folder.glob(f"*{target.tag}.whl")
    return path


@pytest.mark.deep
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.tag)
def test_each_wheel_fits_its_platform(target: Target, release: Path) -> None:
    path = wheel_of(target, release)
    assert path.name.endswith(f"-py3-none-{target.tag}.whl") and list(wheels.problems(path)) == []
    with zipfile.ZipFile(path) as archive:
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith("/WHEEL")))
    assert f"Tag: py3-none-{target.tag}" in metadata.decode().splitlines()


@pytest.mark.deep
@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.parts[-3])
def test_the_wheel_works_without_a_compiler_and_without_extras(
    python: Path, release: Path, tmp_path: Path
) -> None:
    bin_folder = installed(tmp_path / "venv", python, str(wheel_of(GLIBC, release)))
    for extra in ("pandas", "obstore", "altair", "adbc_driver_sqlite", "plotly", "IPython", "duckdb_cli"):
        probe = [bin_folder / "python", "-c", f"import {extra}"]
        assert subprocess.run(probe, capture_output=True, check=False).returncode, f"{extra} is installed"

    def run(*command: str, typed: str = "") -> str:
        done = subprocess.run(
            [bin_folder / command[0], *command[1:]],
            cwd=tmp_path, env=clean_environment(bin_folder, tmp_path), input=typed,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("tw", "--version") == run("tracewarehouse", "--version")
    assert run("tw", "--version").endswith(", native scanner\n")
    assert "is the straggler in demo-after" in run("tw", "demo")
    for line in CORE:
        assert run("tw", *line.split()), line
    assert run("tw", "shell", typed="SELECT count(*) AS ranks FROM ranks;") == "ranks\n16\n"


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The events of a real trace, after the bracket of their array."""
    text = gzip.decompress((ROOT / "tests/data/gloo-cpu/rank0.json.gz").read_bytes()).decode()
    path = tmp_path_factory.mktemp("events") / "events.json"
    path.write_text(text[text.index("[", text.index('"traceEvents":')) + 1 :])
    return path


def digest(target: Target, release: Path, ziglang: Path, events: Path, work: Path, *runner: str) -> str:
    """What the scanner in a wheel reads, from a program for that platform."""
    with zipfile.ZipFile(wheel_of(target, release)) as archive:
        library = Path(archive.extract(f"{FOLDER}/{target.library}", work))
    program = work / target.tag
    options = ["-dynamic"] if "musl" in target.tag else ["-ldl"]
    source = ROOT / "tests/unit/formats/kineto/scan_digest.c"
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        target.zig,
        "-O1",
        "-g0",
        str(source),
        *options,
    ]
    cache = {"ZIG_GLOBAL_CACHE_DIR": str(work), "ZIG_LOCAL_CACHE_DIR": str(work), "PYTHONPATH": str(ziglang)}
    subprocess.run(
        [*command, "-o", str(program)], env={**os.environ, **cache}, check=True, capture_output=True
    )
    counts = (len(CODES) + len(INTS) + len(DOUBLES) + len(TEXTS), len(CODES), len(TEXTS))
    with events.open("rb") as stdin:
        call = [*runner, str(program), str(library), *map(str, counts)]
        done = subprocess.run(call, stdin=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.deep
@pytest.mark.parametrize(
    "target", [target for target in TARGETS if "linux" in target.tag], ids=lambda each: each.tag
)
def test_scanners_of_all_platforms_read_the_same(
    target: Target, release: Path, ziglang: Path, events: Path, tmp_path: Path
) -> None:
    arm, loader = target.tag.endswith("aarch64"), "ld-musl" if "musl" in target.tag else "ld-linux"
    roots = [
        root for root in (ROOTS if arm else ("/",)) if root and list(Path(root, "lib").glob(f"{loader}*"))
    ]
    if not arm and not roots:
        roots = [root for root in ("/",) if list(Path("/lib64").glob(f"{loader}*"))]
    if not roots or (arm and not QEMU):
        pytest.skip(f"nothing runs {target.tag} here")
    runner = [QEMU, "-L", roots[0]] if arm and QEMU else []
    found = digest(target, release, ziglang, events, tmp_path, *runner)
    assert found.startswith("state 1, rows 2248, ")
    assert found == digest(GLIBC, release, ziglang, events, tmp_path)
