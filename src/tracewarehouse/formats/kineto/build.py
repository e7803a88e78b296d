"""Builds the native scanner, alone or as part of an installation. Imports nothing but the standard library.

In a checkout, `python src/tracewarehouse/formats/kineto/build.py` writes the library beside `scan.c`.

It uses the system compiler (`CC`, cc, gcc, clang), else `ziglang` from PyPI if it is installed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parent
SOURCE: Final = FOLDER / "scan.c"
ZIG: Final = "ziglang==0.17.1"
# The platforms that this package has wheels for.
_ZIG_MACHINES: Final = ("x86_64", "amd64", "aarch64", "arm64")
REMEDY: Final = (
    "the native scanner could not be built: install a C compiler (gcc or clang), or install with"
    " TW_NO_NATIVE=1 to do without it, which makes ingest several times slower"
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
    suffix = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
    return f"_scan-{sysconfig.get_platform()}{libc()}{suffix}"


def platform_tag() -> str:
    """The platform tag of a wheel."""
    name = sysconfig.get_platform().replace("universal2", platform.machine())
    return name.replace("-", "_").replace(".", "_")


def requirements() -> list[str]:
    """The packages that a build needs if there is no system compiler."""
    needed = wanted() and system_compiler() is None and platform.machine().lower() in _ZIG_MACHINES
    return [ZIG] if needed else []


def system_compiler() -> list[str] | None:
    """The command of the system C compiler, if it can compile the headers."""
    given = shlex.split(os.environ.get("CC", ""))
    for command in (given, ["cc"], ["gcc"], ["clang"]):
        if command and shutil.which(command[0]) and _run([*command, "-fsyntax-only", str(SOURCE)]) is None:
            return command
    return None


def zig_compiler() -> list[str] | None:
    """The command of the compiler from PyPI, if it is installed."""
    if find_spec("ziglang") is None:
        return None
    target = ["-target", f"{os.uname().machine}-linux{libc()}"] if sys.platform.startswith("linux") else []
    # Zig checks for undefined behavior by default, which needs its runtime.
    return [sys.executable, "-m", "ziglang", "cc", *target, "-fno-sanitize=undefined", "-Wl,-s"]


def build(folder: Path, *more: str) -> Path:
    """Compiles `scan.c` into the folder. Raises BuildError with what was tried."""
    tried = []
    with tempfile.TemporaryDirectory() as work:
        made = Path(work, library_name())
        for compiler in filter(None, (system_compiler(), zig_compiler())):
            error = _compile(compiler, made, Path(work), more)
            if error is None:
                # Atomic replacement: another process may have the old file open.
                partial = folder / f".{library_name()}.{os.getpid()}"
                shutil.copyfile(made, partial)
                return partial.replace(folder / library_name())
            tried.append(f"{shlex.join(compiler)}: {error}")
    raise BuildError("; ".join(tried) or "no C compiler was found")


def _compile(compiler: list[str], out: Path, work: Path, more: tuple[str, ...]) -> str | None:
    """None on success, else the message of the compiler."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    command = [*compiler, *_FLAGS, *more, f'-DSOURCE_HASH="{digest}"', "-o", str(out), str(SOURCE)]
    return _run(command, ZIG_GLOBAL_CACHE_DIR=str(work / "zig"), ZIG_LOCAL_CACHE_DIR=str(work / "zig"))


def _run(command: list[str], **environment: str) -> str | None:
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
