"""Receipts: what was published as a version, written after it. Readers never need one.

By them it is noticed that a version was lost or changed, and they say what it held.
"""

from __future__ import annotations

import hashlib
from typing import Any

from tracewarehouse.errors import TwError
from tracewarehouse.storage import layout
from tracewarehouse.storage.codec import FORMAT, decode_version, head_of, sealed
from tracewarehouse.storage.model import RunVersion
from tracewarehouse.storage.objects import Objects


def write(objects: Objects, version: RunVersion, data: bytes) -> None:
    """Writes the receipt of a version that was just published, and the one before where a call died."""
    before = _digest(objects, version.run, version.number - 1)
    _put(objects, version, data, before)


def _digest(objects: Objects, run: str, number: int) -> str | None:
    """The sha256 of an earlier receipt, written now if it is missing; None where its version is gone, too."""
    key = layout.receipt(run, number)
    try:
        return hashlib.sha256(objects.get(key)).hexdigest()
    except FileNotFoundError:
        name = layout.version(run, number)
        if objects.stat(name) is None:
            return None
    data = objects.get(name)
    try:
        version = decode_version(data, str(objects.path(name)))
    except TwError:  # of an older format, or damaged: there is nothing to say of it
        return None
    return _put(objects, version, data, _digest(objects, run, number - 1))


def _put(objects: Objects, version: RunVersion, data: bytes, before: str | None) -> str:
    receipt = sealed(_fields(version, data, before))
    objects.put({layout.receipt(version.run, version.number): receipt})
    return hashlib.sha256(receipt).hexdigest()


def _fields(version: RunVersion, data: bytes, before: str | None) -> dict[str, Any]:
    """All of the version but its rows, and what proves that it is this one."""
    head = head_of(data)
    content = head.pop("checksum")
    return {
        "format": FORMAT,
        "must_understand": [],
        "version_bytes": len(data),
        "version_sha256": hashlib.sha256(data).hexdigest(),
        "content": content,
        "previous": before,
        "sources": [[source.name, source.manifest] for source in version.sources],
        "head": head,
    }
