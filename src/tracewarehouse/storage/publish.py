"""Publishing: changes become the next version of a run, with one object that is put if absent."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace

from tracewarehouse.errors import DamagedRunError, TwError, UnknownName, WarehouseError
from tracewarehouse.storage import copies, layout, markers, receipts
from tracewarehouse.storage.changes import Changes, Published
from tracewarehouse.storage.codec import encode_version
from tracewarehouse.storage.manifests import now
from tracewarehouse.storage.merge import Merged, merge
from tracewarehouse.storage.model import EXPIRED, Json, RunVersion
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
    version = replace(_with_expired(version), created_at=now(), tool=tool, nonce=secrets.token_hex(16))
    data = encode_version(version)
    if not store.objects.put_if_absent(layout.version(version.run, version.number), data):
        return None
    # The version is published, even if the disk is full now; the next publish writes the receipt.
    with suppress(OSError):
        receipts.write(store.objects, version, data)
    return version


def _with_expired(version: RunVersion) -> RunVersion:
    """The version with the tables that expired of its sources; it must be read by releases that know them."""
    found: dict[str, Json] = {}
    for source in version.sources:
        for table, date in source.expired.items():
            found[table] = max(date, str(found.get(table, "")))
    needed = [name for name in version.must_understand if name != EXPIRED]
    return replace(version, expired=found or None, must_understand=(*needed, *([EXPIRED] if found else [])))


def remove(store: Versions, run: str, tool: str, keep_results: bool) -> RunVersion:
    """Publishes a tombstone and drops pending sources; raises UnknownName if there is no such run."""
    if keep_results and (newest := store.newest(run)) is not None:
        copies.put(store.objects, {layout.kept_version(run, newest.number): encode_version(newest)})
    while True:
        waits = store.pending(run)
        head = _head_to_remove(store, run)
        gone = head.number == 0 or head.tombstone
        if gone and not waits:
            raise UnknownName("run", run, store.runs())
        dropped = tuple(one.source.name for one in waits)
        tombstone = RunVersion(head.run, head.number + 1, (), {}, None, "", "", True, dropped)
        if written := put(store, tombstone, tool):
            markers.unmark(store.objects, run, [one.source for one in waits])
            return written


def _head_to_remove(store: Versions, run: str) -> RunVersion:
    """The newest version; of a damaged run only its name and number, which is all a removal needs."""
    try:
        return store.head(run)
    except DamagedRunError:
        return RunVersion(store.name(layout.run_key(run)), max(store.numbers(run)), (), {}, None, "", "")
