"""A cache per user, shared by all warehouses, of files that take seconds to build.

The folder is private to the user and limited in size. If it is not usable, or an entry is damaged, the file
is built again. Entries contain no data of a warehouse, so removing runs need not delete them.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

_DIGEST_BYTES = sha256().digest_size
# Entries differ by version of the tool and of its contracts.
_MAX_FILES = 8
_MAX_BYTES = 256 << 20


def folder() -> Path:
    """The user's cache folder for this tool; raises RuntimeError if there is no home folder."""
    from platformdirs import user_cache_path

    return user_cache_path("tracewarehouse", appauthor=False)


def get(name: str) -> bytes | None:
    """The bytes cached under that name; None if they are missing or damaged."""
    with suppress(OSError, RuntimeError):
        path = folder() / name
        stored = path.read_bytes()
        digest, data = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
        if sha256(data).digest() == digest:
            path.touch()
            return data
    return None


def put(name: str, data: bytes) -> None:
    """Caches the bytes if possible, and deletes the least recently used files above the limits."""
    with suppress(OSError, RuntimeError):
        target = folder()
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.chmod(0o700)
        part = target / f".{name}.{secrets.token_hex(8)}"
        try:
            part.write_bytes(sha256(data).digest() + data)
            part.replace(target / name)
        finally:
            part.unlink(missing_ok=True)
        _trim(target)


def _trim(target: Path) -> None:
    """Deletes the least recently used files until the limits are met."""
    known = [(path.stat(), path) for path in target.iterdir() if path.is_file()]
    total = 0
    for number, (stat, path) in enumerate(sorted(known, key=lambda each: -each[0].st_mtime_ns)):
        total += stat.st_size
        if number >= _MAX_FILES or total > _MAX_BYTES:
            path.unlink(missing_ok=True)
