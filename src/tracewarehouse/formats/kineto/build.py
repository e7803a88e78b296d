"""Builds the native scanner, alone or as part of an installation. Imports nothing but the standard library.

In a checkout, `python src/tracewarehouse/formats/kineto/build.py` writes the library beside `scan.c`.

It uses the system compiler (`CC`, cc, gcc, clang), else `ziglang` from PyPI if it is installed.
`TW_WHEEL_TARGET`, the tag of one of `TARGETS`, builds for that platform, always with `ziglang`.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).resolve().parent
SOURCE: Final = FOLDER / "scan.c"
ZIG: Final = "ziglang==0.17.1"
# The platforms that this package has wheels for.
_ZIG_MACHINES: Final = ("x86_64", "amd64", "aarch64", "arm64")
REMEDY: Final = (
    "the native scanner could not be built: install a C compiler (gcc or clang), or install with"
    " TW_NO_NATIVE=1 to do without it, which makes ingest several times slower"
)
WINDOWS: Final = (
    "tracewarehouse does not run on Windows: use Linux, macOS, or the Windows Subsystem for Linux (WSL 2)"
)


class Target(NamedTuple):
    """A platform of wheels."""

    tag: str  # of the wheel, with the lowest version of its C library or system
    zig: str  # the same platform and version, as zig names them
    library: str


TARGETS: Final = (
    Target("manylinux_2_17_x86_64", "x86_64-linux-gnu.2.17", "_scan-linux-x86_64-gnu.so"),
    Target("manylinux_2_17_aarch64", "aarch64-linux-gnu.2.17", "_scan-linux-aarch64-gnu.so"),
    Target("musllinux_1_2_x86_64", "x86_64-linux-musl", "_scan-linux-x86_64-musl.so"),
    Target("musllinux_1_2_aarch64", "aarch64-linux-musl", "_scan-linux-aarch64-musl.so"),
    Target("macosx_11_0_x86_64", "x86_64-macos.11.0", "_scan-macos-x86_64.dylib"),
    Target("macosx_11_0_arm64", "aarch64-macos.11.0", "_scan-macos-arm64.dylib"),
)
_FLAGS: Final = ("-std=c11", "-O3", "-g0", "-shared", "-fPIC", "-fvisibility=hidden")


class BuildError(Exception):
    """There is no compiler, or it fails."""


def wanted() -> bool:
    """Whether TW_NO_NATIVE does not disable the native scanner."""
    return os.environ.get("TW_NO_NATIVE", "") in ("", "0")


def libc() -> str:
    """`-gnu` or `-musl` on Linux, whose libraries are not interchangeable; "" elsewhere."""
    if not sys.platform.startswith("linux"):
        return ""
    try:
        return "-gnu" if os.confstr("CS_GNU_LIBC_VERSION") else "-musl"
    except (ValueError, OSError):
        return "-musl"


def library_name() -> str:
    """The file name of the library for the running interpreter."""
    if sys.platform == "darwin":
        # The platform of sysconfig has the version of macOS that Python was built for.
        return f"_scan-macos-{os.uname().machine}.dylib"
    return f"_scan-{sysconfig.get_platform()}{libc()}.so"


def wheel_target() -> Target | None:
    """The platform that TW_WHEEL_TARGET names; None for the running one. Raises BuildError."""
    name = os.environ.get("TW_WHEEL_TARGET", "")
    found = next((target for target in TARGETS if target.tag == name), None)
    if name and found is None:
        known = ", ".join(target.tag for target in TARGETS)
        raise BuildError(f"TW_WHEEL_TARGET={name} is not one of {known}")
    return found


def platform_tag() -> str:
    """The platform tag of a wheel for the running interpreter."""
    name = sysconfig.get_platform().replace("universal2", os.uname().machine)
    return name.replace("-", "_").replace(".", "_")


def requirements() -> list[str]:
    """The packages that a build needs if there is no system compiler."""
    if os.environ.get("TW_WHEEL_TARGET"):
        return [ZIG]
    needed = wanted() and system_compiler() is None and os.uname().machine.lower() in _ZIG_MACHINES
    return [ZIG] if needed else []


def system_compiler() -> list[str] | None:
    """The command of the system C compiler, if it can compile the headers."""
    given = shlex.split(os.environ.get("CC", ""))
    for command in (given, ["cc"], ["gcc"], ["clang"]):
        if command and shutil.which(command[0]) and _run([*command, "-fsyntax-only", str(SOURCE)]) is None:
            return command
    return None


def zig_compiler(target: Target | None = None) -> list[str] | None:
    """The command of the compiler from PyPI, if it is installed; by default for the running interpreter."""
    if find_spec("ziglang") is None:
        return None
    triple = f"{os.uname().machine}-linux{libc()}" if sys.platform.startswith("linux") else ""
    triple = target.zig if target else triple
    options = ["-target", triple] if triple else []
    # Zig checks for undefined behavior by default, which needs its runtime.
    return [sys.executable, "-m", "ziglang", "cc", *options, "-fno-sanitize=undefined", "-Wl,-s"]


def build(folder: Path, *more: str, target: Target | None = None) -> Path:
    """Compiles `scan.c` into the folder. Raises BuildError with what was tried."""
    tried = []
    name = target.library if target else library_name()
    compilers = (zig_compiler(target),) if target else (system_compiler(), zig_compiler())
    with tempfile.TemporaryDirectory() as work:
        made = Path(work, name)
        for compiler in filter(None, compilers):
            error = _compile(compiler, made, Path(work), more)
            if error is None:
                # Atomic replacement: another process may have the old file open.
                partial = folder / f".{name}.{os.getpid()}"
                shutil.copyfile(made, partial)
                return partial.replace(folder / name)
            tried.append(f"{shlex.join(compiler)}: {error}")
    raise BuildError("; ".join(tried) or f"{'ziglang' if target else 'a C compiler'} was not found")


def _compile(compiler: list[str], out: Path, work: Path, more: tuple[str, ...]) -> str | None:
    """None on success, else the message of the compiler."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    command = [*compiler, *_FLAGS, *more, f'-DSOURCE_HASH="{digest}"', "-o", str(out), str(SOURCE)]
    return _run(command, ZIG_GLOBAL_CACHE_DIR=str(work / "zig"), ZIG_LOCAL_CACHE_DIR=str(work / "zig"))


def _run(command: list[str], **environment: str) -> str | None:
    import subprocess

    try:
        done = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else (done.stderr.strip() or "failed")[-2000:]


if __name__ == "__main__":
    try:
        print(build(FOLDER))
    except BuildError as error:
        sys.exit(f"{REMEDY}\n{error}")
