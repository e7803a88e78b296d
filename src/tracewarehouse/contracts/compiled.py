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
    """The file for the contracts of a folder. If `dated`, it fits files of the same time or content, else, in
    a wheel, which keeps no times, files of the same size.
    """
    lines = [_line(contract) for contract in contracts]
    files: dict[str, list[int]] = {name: [entry.stat().st_size] for name, entry in _entries(folder)}
    if dated:
        for name, entry in _entries(folder):
            files[name] += [entry.stat().st_mtime_ns, _checksum(entry)]
    head = _line({**about, "files": files, "sizes": [len(line) for line in lines]})
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
    if changed := min(_changed(about["files"], dict(_entries(folder))), default=None):
        raise ValueError(f"{FILE} is out of date with {changed}")
    lines = starmap(slice, pairwise(accumulate(about["sizes"], initial=start)))
    refs = (Ref(*each) for each in about["refs"])
    return about, CompiledContracts(file, dict(zip(refs, lines, strict=True)))


def _seal(content: bytes | memoryview) -> bytes:
    return f"tracewarehouse {__version__} {crc32(content)}\n".encode()


def _changed(files: Mapping[str, list[int]], entries: Mapping[str, os.DirEntry[str]]) -> Iterator[str]:
    """The files that are not those that the contracts were compiled from. Most are known by their time."""
    yield from files.keys() ^ entries.keys()
    for name in files.keys() & entries.keys():
        size, *dated = files[name]
        stat = entries[name].stat()
        if stat.st_size != size or (
            dated and stat.st_mtime_ns != dated[0] and _checksum(entries[name]) != dated[1]
        ):
            yield name


def _checksum(entry: os.DirEntry[str]) -> int:
    return crc32(Path(entry).read_bytes())


def _entries(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Each file that the contracts are made from."""
    yield from _below(folder)
    yield from _below(Path(__file__).parent)


def _below(folder: str | Path, above: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    for entry in os.scandir(folder):
        if entry.is_dir():
            yield from _below(entry.path, f"{above}{entry.name}/")
        elif entry.name.endswith((".sql", ".py")):
            yield f"{above}{entry.name}", entry


def _line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"
