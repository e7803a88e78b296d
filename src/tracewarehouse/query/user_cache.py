"""Files that take seconds to make, kept in the user's cache from one warehouse to the next.

Nothing depends on it: where the folder cannot be used, or holds something else, the file is made again.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

_DIGEST_BYTES = sha256().digest_size
# Of other versions of the tool, or of its contracts.
_KEPT = 8


def folder() -> Path:
    """Where the user's cache is; raises RuntimeError where there is no home."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "tracewarehouse"


def get(name: str) -> bytes | None:
    """What is kept under that name, None where there is nothing or it is not whole."""
    with suppress(OSError, RuntimeError):
        path = folder() / name
        kept = path.read_bytes()
        digest, data = kept[:_DIGEST_BYTES], kept[_DIGEST_BYTES:]
        if sha256(data).digest() == digest:
            path.touch()
            return data
    return None


def put(name: str, data: bytes) -> None:
    """Keeps it where that can be, and lets go of what was not used for longest."""
    with suppress(OSError, RuntimeError):
        place = folder()
        place.mkdir(parents=True, exist_ok=True)
        part = place / f".{name}.{secrets.token_hex(8)}"
        try:
            part.write_bytes(sha256(data).digest() + data)
            part.replace(place / name)
        finally:
            part.unlink(missing_ok=True)
        unused_first = sorted(place.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in unused_first[:-_KEPT]:
            old.unlink(missing_ok=True)
