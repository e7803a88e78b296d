"""What identifies a Parquet file: its size, its checksum and its footer."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tracewarehouse import hints
from tracewarehouse.errors import WarehouseError

_TAIL_BYTES = 8  # length of the Parquet metadata, and the magic
_MAGIC = b"PAR1"


@dataclass(frozen=True)
class FileFacts:
    """Identity of a Parquet file; the footer is the metadata with its length and the closing magic."""

    bytes: int
    sha256: str
    footer_bytes: int
    footer_sha256: str


def file_facts(path: Path) -> FileFacts:
    """The facts of a Parquet file, read once from start to end; the file must have a footer."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        size = file.seek(-8, 2) + 8
        footer_bytes = int.from_bytes(file.read(4), "little") + 8
        file.seek(0)
        rest = size - footer_bytes
        while rest:
            piece = file.read(min(rest, 1 << 20))
            digest.update(piece)
            rest -= len(piece)
        footer = file.read()
    digest.update(footer)
    return FileFacts(size, digest.hexdigest(), footer_bytes, hashlib.sha256(footer).hexdigest())


def sha256(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def footer_bytes(path: Path) -> bytes:
    """The Parquet metadata with its length and the magic; raises WarehouseError if there is none."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - _TAIL_BYTES, 0))
        tail = file.read()
        length = int.from_bytes(tail[:4], "little") + _TAIL_BYTES
        if tail[4:] != _MAGIC or length > size:
            raise WarehouseError(
                f"{path}: not a Parquet file: it has no footer", hints.fill("run {}", hints.call("verify"))
            )
        file.seek(size - length)
        return file.read()
