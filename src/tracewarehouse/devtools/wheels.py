"""The files of a release: the source distribution, and a wheel for each platform, built on one machine."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tracewarehouse.devtools.checkout import sql_folder_of
from tracewarehouse.errors import TwError, UnknownName
from tracewarehouse.formats.kineto.build import TARGETS, Target

# Machine of a tag → its number in ELF and in Mach-O.
_MACHINES: Final = {
    "x86_64": (62, 0x01000007),
    "aarch64": (183, 0x0100000C),
    "arm64": (183, 0x0100000C),
}
_BUILD_VERSION, _VERSION_MIN_MACOS = 0x32, 0x24


class WheelError(TwError):
    """A wheel that cannot be built, or that does not run on the platform of its name."""


def build(root: Path, out: Path, tags: Iterable[str] = ()) -> Iterator[Path]:
    """Builds the source distribution and the wheels into a folder, by default for all platforms.

    Raises WheelError, UnknownName for an unknown platform, ContractError outside a checkout.
    """
    sql_folder_of(root)
    targets = [_target(tag) for tag in tags] or list(TARGETS)
    missing = [name for name in ("hatchling", "ziglang") if find_spec(name) is None]
    if missing:
        raise WheelError(f"{' and '.join(missing)} not installed", "pip install -e '.[wheels]'")
    yield _build(root, out, "sdist")
    for target in targets:
        path = _build(root, out, "wheel", target.tag)
        if faults := list(problems(path)):
            raise WheelError(f"{path.name}: {'; '.join(faults)}")
        yield path


def problems(wheel: Path) -> Iterator[str]:
    """Why a wheel does not run on the platform of its name: the machine, or a newer C library or system."""
    target = _target(wheel.stem.rpartition("-")[2])
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if "/_scan-" in name]
        if [name.rpartition("/")[2] for name in names] != [target.library]:
            yield f"holds {', '.join(names) or 'no native scanner'}, expected {target.library}"
            return
        library = archive.read(names[0])
    machine = next(name for name in _MACHINES if target.tag.endswith(name))
    yield from (_mach_o if "macosx" in target.tag else _elf)(library, target, machine)


def _elf(library: bytes, target: Target, machine: str) -> Iterator[str]:
    if library[:4] != b"\x7fELF" or struct.unpack_from("<H", library, 18) != (_MACHINES[machine][0],):
        yield f"is not a library for {machine}"
    versions = {(int(a), int(b)) for a, b in re.findall(rb"GLIBC_(\d+)\.(\d+)", library)}
    if "musl" in target.tag:
        if versions:
            yield "needs glibc"
    elif not versions:
        yield "does not need glibc"
    elif max(versions) > _lowest(target):
        yield "needs glibc {}.{}".format(*max(versions))


def _mach_o(library: bytes, target: Target, machine: str) -> Iterator[str]:
    magic, kind, commands = struct.unpack_from("<II8xI", library)
    if (magic, kind) != (0xFEEDFACF, _MACHINES[machine][1]):
        yield f"is not a library for {machine}"
        return
    offset = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<II", library, offset)
        if command in (_BUILD_VERSION, _VERSION_MIN_MACOS):
            (packed,) = struct.unpack_from("<I", library, offset + (12 if command == _BUILD_VERSION else 8))
            version = packed >> 16, packed >> 8 & 0xFF
            if version > _lowest(target):
                yield "needs macOS {}.{}".format(*version)
            return
        offset += size
    yield "does not name a version of macOS"


def _lowest(target: Target) -> tuple[int, int]:
    """The version in the tag."""
    _, major, minor, *_ = target.tag.split("_")
    return int(major), int(minor)


def _target(tag: str) -> Target:
    for target in TARGETS:
        if target.tag == tag:
            return target
    raise UnknownName("platform", tag, [target.tag for target in TARGETS])


def _build(root: Path, out: Path, kind: str, tag: str = "") -> Path:
    """Builds one file without isolation, with the packages that are installed."""
    times_before = {path: path.stat().st_mtime_ns for path in out.glob("*")}
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out.resolve())]
    environment = {**os.environ, "TW_WHEEL_TARGET": tag, "TW_NO_NATIVE": ""}
    finished = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    new_files = [path for path in out.glob("*") if times_before.get(path) != path.stat().st_mtime_ns]
    if finished.returncode or len(new_files) != 1:
        raise WheelError(f"{tag or kind}: {finished.stderr.strip()[-2000:]}")
    return new_files[0]
