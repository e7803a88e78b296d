"""Receipts: what each version held, written after it, so that a lost or damaged version is noticed.

Readers never need one. A repair marks in them what it could not restore: `lost` for a version, `lost_files`
for files of a version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from tracewarehouse.errors import TwError
from tracewarehouse.storage import layout
from tracewarehouse.storage.codec import FORMAT, decode_version, head_of, sealed, unsealed
from tracewarehouse.storage.model import RunVersion
from tracewarehouse.storage.objects import Objects


class Receipt(Struct, frozen=True):
    """A receipt as stored; a version that a repair gave up has no hashes."""

    fields: Mapping[str, Any]

    @property
    def is_lost(self) -> bool:
        """Whether a repair found that the version cannot be restored."""
        return bool(self.fields.get("lost", False))

    @property
    def lost_files(self) -> frozenset[str]:
        """Files of the version that a repair found to be lost."""
        return frozenset(self.fields.get("lost_files", ()))

    @property
    def sha256(self) -> str | None:
        """The sha256 of the version."""
        return self.fields.get("version_sha256")

    @property
    def head(self) -> Mapping[str, Any]:
        """The fields of the version, without its sources."""
        return self.fields["head"]  # type: ignore[no-any-return]

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """Name and manifest of each source of the version."""
        return tuple((name, manifest) for name, manifest in self.fields["sources"])


def read(objects: Objects, run: str, number: int) -> Receipt | None:
    """The receipt of a version, None if there is none; raises ValueError if it is damaged."""
    try:
        fields = unsealed(objects.get(layout.receipt(run, number)))
    except FileNotFoundError:
        return None
    try:
        if not fields.get("lost"):
            head = fields["head"]
            if (layout.run_key(head["run"]), head["number"]) != (layout.run_key(run), number):
                raise ValueError(f"it is that of {head['run']}@v{head['number']}")
    except (KeyError, TypeError) as error:
        raise ValueError(f"it lacks {error}") from error
    return Receipt(fields)


def write(objects: Objects, version: RunVersion, data: bytes, lost_files: Iterable[str] = ()) -> None:
    """Writes the receipt of a published version, and earlier ones that killed calls did not write."""
    before = _digest(objects, version.run, version.number - 1)
    _put(objects, version, data, before, lost_files)


def write_lost(objects: Objects, run: str, number: int) -> None:
    """Marks a version that cannot be restored."""
    fields = {"format": FORMAT, "must_understand": [], "lost": True, "number": number}
    objects.put({layout.receipt(run, number): sealed(fields)})


def _digest(objects: Objects, run: str, number: int) -> str | None:
    """The sha256 of an earlier receipt, written now if missing; None if its version is missing, too."""
    if not number:
        return None
    key = layout.receipt(run, number)
    try:
        return hashlib.sha256(objects.get(key)).hexdigest()
    except FileNotFoundError:
        name = layout.version(run, number)
        if objects.stat(name) is None:
            return None
    data = objects.get(name)
    try:
        version = decode_version(data, objects.describe(name))
    except TwError:  # damaged: nothing is known of it
        return None
    return _put(objects, version, data, _digest(objects, run, number - 1))


def _put(
    objects: Objects, version: RunVersion, data: bytes, before: str | None, lost_files: Iterable[str] = ()
) -> str:
    head = head_of(data)
    content = head.pop("checksum")
    # The version without its rows, and the hashes that identify it.
    fields = {
        "format": FORMAT,
        "must_understand": [],
        "version_bytes": len(data),
        "version_sha256": hashlib.sha256(data).hexdigest(),
        "content": content,
        "previous": before,
        "sources": [[source.name, source.manifest] for source in version.sources],
        "head": head,
    }
    lost = sorted(lost_files)
    receipt = sealed(fields | ({"lost_files": lost} if lost else {}))
    objects.put({layout.receipt(version.run, version.number): receipt})
    return hashlib.sha256(receipt).hexdigest()
