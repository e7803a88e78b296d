"""Publishing: changes become the next version of a run, with one object that is put if absent."""

from __future__ import annotations

import hashlib
import secrets
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tracewarehouse.errors import TwError, UnknownName, WarehouseError
from tracewarehouse.storage import layout, markers
from tracewarehouse.storage.changes import Changes, Published
from tracewarehouse.storage.codec import FORMAT, decode_version, encode_version, head_of, sealed
from tracewarehouse.storage.manifests import now
from tracewarehouse.storage.merge import Merged, merge
from tracewarehouse.storage.model import RunVersion
from tracewarehouse.storage.objects import Objects
from tracewarehouse.storage.versions import Versions


def publish(store: Versions, run: str, changes: Changes, tool: str) -> Published:
    """Applies the changes of a call to the newest version of a run; see `merge` for the rules."""
    _check(run, changes)
    _check_files(store, changes)
    markers.mark(store.objects, changes)
    try:
        merged = _settle(store, run, changes, tool)
    except TwError:
        markers.unmark(store.objects, run, changes.sources)
        raise
    if changes.expected_ranks is not None:
        markers.unmark(store.objects, run, merged.settled)
    return Published(merged.version, merged.outcome, merged.pending)


def _check(run: str, changes: Changes) -> None:
    """Raises ValueError for errors of the calling code."""
    known = {(source.rank, *source.identity) for source in changes.sources}
    if len(known) != len(changes.sources) or any(source.run != run for source in changes.sources):
        raise ValueError("a publish must name each source of its run once")


def _check_files(store: Versions, changes: Changes) -> None:
    missing = store.missing_file(changes.sources)
    if missing is not None:
        holds = (one.rank for one in changes.sources for file in one.files if file.path == missing)
        raise WarehouseError(
            f"{store.path(missing)}: deleted before rank {next(holds)} was published", "ingest it again"
        )


def _settle(store: Versions, run: str, changes: Changes, tool: str) -> Merged:
    """Merges and writes until no other call published first."""
    while True:
        # Markers before the newest version: a marker that is gone was published earlier.
        waits = store.pending(run) if changes.expected_ranks is not None else ()
        base = store.head(run)
        if not changes.sources and (base.number == 0 or base.tombstone):
            raise UnknownName("run", run, store.runs())
        merged = merge(base, changes, waits)
        if merged.version is None:
            return merged
        if written := put(store, merged.version, tool):
            return replace(merged, version=written)


def put(store: Versions, version: RunVersion, tool: str) -> RunVersion | None:
    """Publishes a version under its number, then its receipt; None if another call published first."""
    version = replace(version, created_at=now(), tool=tool, nonce=secrets.token_hex(16))
    data = encode_version(version)
    if not store.objects.put_if_absent(layout.version(version.run, version.number), data):
        return None
    # The version is published, even if the disk is full now; the next publish writes the receipt.
    with suppress(OSError):
        write_receipt(store.objects, version, data)
    return version


def remove(store: Versions, run: str, tool: str, keep_results: bool) -> RunVersion:
    """Publishes a tombstone and drops pending sources; raises UnknownName if there is no such run."""
    newest = store.newest(run)
    if keep_results and newest is not None:
        store.objects.put({layout.kept_version(run, newest.number): encode_version(newest)})
    while True:
        waits = store.pending(run)
        head = store.head(run)
        gone = head.number == 0 or head.tombstone
        if gone and not waits:
            raise UnknownName("run", run, store.runs())
        dropped = tuple(one.source.name for one in waits)
        tombstone = RunVersion(head.run, head.number + 1, (), {}, None, "", "", True, dropped)
        if written := put(store, tombstone, tool):
            markers.unmark(store.objects, run, [one.source for one in waits])
            return written


def write_receipt(objects: Objects, version: RunVersion, data: bytes) -> None:
    """Writes the receipt of a published version, and earlier ones that killed calls did not write."""
    before = _receipt_digest(objects, version.run, version.number - 1)
    _put_receipt(objects, version, data, before)


def _receipt_digest(objects: Objects, run: str, number: int) -> str | None:
    """The sha256 of an earlier receipt, written now if missing; None if its version is missing, too."""
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
    except TwError:  # of an older format, or damaged: nothing is known of it
        return None
    return _put_receipt(objects, version, data, _receipt_digest(objects, run, number - 1))


def _put_receipt(objects: Objects, version: RunVersion, data: bytes, before: str | None) -> str:
    receipt = sealed(_receipt_fields(version, data, before))
    objects.put({layout.receipt(version.run, version.number): receipt})
    return hashlib.sha256(receipt).hexdigest()


def _receipt_fields(version: RunVersion, data: bytes, before: str | None) -> dict[str, Any]:
    """The fields of a receipt: the version without its rows, and the hashes that identify it."""
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
