"""The compiled contracts: those of the installation in one file, parsed, checked and hashed.

Reading it takes 3 ms, parsing all `.sql` files 200 ms. An installation writes it beside this module, and
`tw dev sync` in a checkout. It is used as long as it fits the `.sql` files and the modules that parse them.

Its first line has the version of the tool and a checksum of what follows: a line about all contracts, and one
per contract as JSON.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, pairwise, starmap
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from tracewarehouse.contracts.contract import Contract, Ref
from tracewarehouse.version import __version__

FILE = Path(__file__).with_name("contracts.jsonl")


class CompiledContracts(Mapping[Ref, Contract]):
    """Contracts by name and version, each decoded on first use from its lines of the file."""

    def __init__(self, file: bytes, lines: Mapping[Ref, slice]) -> None:
        self._file, self._lines = file, lines
        self._decoded: dict[Ref, Contract] = {}

    def __getitem__(self, ref: Ref) -> Contract:
        if ref not in self._decoded:
            self._decoded.setdefault(ref, msgspec.json.decode(self._file[self._lines[ref]], type=Contract))
        return self._decoded[ref]

    def __iter__(self) -> Iterator[Ref]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


def encode(folder: Path, about: Mapping[str, object], contracts: Iterable[Contract], dated: bool) -> bytes:
    """The file for the contracts of a folder. If `dated`, times of files count; wheels do not keep them."""
    lines = [_line(contract) for contract in contracts]
    sizes = [len(line) for line in lines]
    head = _line({**about, "dated": dated, "files": _files(folder, dated), "sizes": sizes})
    content = b"".join([head, *lines])
    return _seal(content) + content


def read(folder: Path) -> tuple[dict[str, Any], CompiledContracts]:
    """What the file holds about all contracts, and the contracts.

    Raises OSError or ValueError with the reason if it is missing, damaged or out of date.
    """
    file = FILE.read_bytes()
    head = file.find(b"\n") + 1
    if file[:head] != _seal(memoryview(file)[head:]):
        raise ValueError(f"{FILE} is damaged, or of another version")
    start = file.index(b"\n", head) + 1
    about: dict[str, Any] = msgspec.json.decode(file[head:start])
    changed = dict(about["files"].items() ^ _files(folder, about["dated"]).items())
    if changed:
        raise ValueError(f"{FILE} is out of date with {min(changed)}")
    lines = starmap(slice, pairwise(accumulate(about["sizes"], initial=start)))
    refs = (Ref(*each) for each in about["refs"])
    return about, CompiledContracts(file, dict(zip(refs, lines, strict=True)))


def _seal(content: bytes | memoryview) -> bytes:
    return f"tracewarehouse {__version__} {crc32(content)}\n".encode()


def _files(folder: Path, dated: bool) -> dict[str, str]:
    """Size and, if `dated`, time of change of each file that the contracts are made from."""
    return dict((*_stats(folder, dated), *_stats(Path(__file__).parent, dated)))


def _stats(folder: str | Path, dated: bool, above: str = "") -> Iterator[tuple[str, str]]:
    for entry in os.scandir(folder):
        if entry.is_dir():
            yield from _stats(entry.path, dated, f"{above}{entry.name}/")
        elif entry.name.endswith((".sql", ".py")):
            stat = entry.stat()
            yield f"{above}{entry.name}", f"{stat.st_size} {stat.st_mtime_ns}" if dated else f"{stat.st_size}"


def _line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"
