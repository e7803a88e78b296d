"""Publishing: changes become the next version of a run, with one object that is put if absent."""

from __future__ import annotations

import itertools
import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from tracewarehouse.errors import DamagedRunError, TwError, UnknownName, WarehouseError
from tracewarehouse.storage import copies, layout, markers, pushed, receipts
from tracewarehouse.storage.changes import Changes, Published
from tracewarehouse.storage.codec import encode_version
from tracewarehouse.storage.manifests import now
from tracewarehouse.storage.merge import Merged, merge
from tracewarehouse.storage.model import EXPIRED, Json, RankSource, RunVersion
from tracewarehouse.storage.versions import Versions

# Half the grace period of `clean`: what was committed since then is there.
_SPARED = timedelta(hours=12)
# After a conflict: the first and the longest pause, and for how long a call tries.
_PAUSE_S, _LONGEST_PAUSE_S, _PATIENCE_S = 0.06, 4.0, 120.0


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
    """Raises WarehouseError for files that `clean` deleted; it spares recent ones, which saves requests."""
    is_safe = _is_recent if store.is_remote else lambda _: False
    sources = [*changes.sources, *(one.source for one in changes.pushed)]
    missing = store.missing_file(one for one in sources if not is_safe(one))
    if missing is not None:
        holds = (one.rank for one in sources for file in one.files if file.path == missing)
        raise WarehouseError(
            f"{store.objects.describe(missing)}: deleted before rank {next(holds)} was published",
            "ingest it again",
        )


def _is_recent(source: RankSource) -> bool:
    return datetime.now(UTC) - datetime.fromisoformat(source.committed_at) < _SPARED


def _settle(store: Versions, run: str, changes: Changes, tool: str) -> Merged:
    """Merges and writes until no other call published first."""
    for attempt in _attempts(run):
        # Markers before the newest version: a marker that is gone was published earlier.
        waits = store.pending(run) if changes.expected_ranks is not None else ()
        base = store.head_to_write(run)
        if not changes.sources and (base.number == 0 or base.tombstone):
            raise UnknownName("run", run, store.runs())
        merged = merge(base, changes, waits)
        if merged.version is None:
            return merged
        if written := _put_next(store, merged.version, tool, attempt):
            return replace(merged, version=written)
    raise AssertionError("unreachable")


def _put_next(store: Versions, version: RunVersion, tool: str, attempt: int) -> RunVersion | None:
    """As `put`. After a conflict, a listing shows first whether another call was quicker again."""
    if attempt and version.number <= store.newest_number(version.run):
        return None
    return put(store, version, tool)


def _attempts(run: str) -> Iterator[int]:
    """0, 1, … with longer and longer pauses, so that of many writers one after the other succeeds.

    The first pause is about as long as the attempt took: shorter ones do not spread the writers. Raises
    WarehouseError if it takes too long.
    """
    end = time.monotonic() + _PATIENCE_S
    for attempt in itertools.count():
        started = time.monotonic()
        yield attempt
        now_s = time.monotonic()
        if now_s > end:
            raise WarehouseError(
                f"run {run}: other processes published versions for {_PATIENCE_S:g} s",
                "run it again; nothing is lost",
            )
        pause_s = max(_PAUSE_S, now_s - started) * 2**attempt
        time.sleep(random.uniform(0.5, 1.5) * min(pause_s, _LONGEST_PAUSE_S))


# What a seal is about to publish → raises a TwError to prevent it.
Check: TypeAlias = Callable[[RunVersion], None]


def seal(
    store: Versions,
    run: str,
    labels: Mapping[str, str | None],
    expected_ranks: int | None,
    check: Check,
    tool: str,
) -> tuple[Published, RunVersion]:
    """Publishes the pushed commits of a run; also returns the newest version, written or not.

    `check` is called with that version before it is written. Raises UnknownName if there is neither a
    version nor a pushed commit.
    """
    commits = pushed.PushedCommits(store.objects, run)
    for attempt in _attempts(run):
        names = pushed.names(store.objects, run)
        base = store.head_to_write(run)
        found = commits.unsealed(names, base)
        if not found and (base.number == 0 or base.tombstone):
            raise UnknownName("run", run, store.runs())
        changes = Changes(pushed=found, labels=labels, expected_ranks=expected_ranks, allow_missing=True)
        merged = merge(base, changes)
        check(merged.version or base)
        if merged.version is None:
            return Published(None, merged.outcome, pushed=found), base
        _check_files(store, changes)
        if written := _put_next(store, merged.version, tool, attempt):
            return Published(written, merged.outcome, pushed=found), written
    raise AssertionError("unreachable")


def put(store: Versions, version: RunVersion, tool: str) -> RunVersion | None:
    """Publishes a version under its number, then its receipt; None if another call published first."""
    version = replace(_with_expired(version), created_at=now(), tool=tool, nonce=secrets.token_hex(16))
    data = encode_version(version)
    if not store.objects.put_if_absent(layout.version(version.run, version.number), data):
        return None
    # The version is published, even if the disk is full now; the next publish writes the receipt.
    with suppress(OSError):
        receipts.write(store.objects, version, data)
    store.remember(version)
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
    for _ in _attempts(run):
        waits = store.pending(run)
        commits = pushed.names(store.objects, run)
        head = _head_to_remove(store, run)
        gone = head.number == 0 or head.tombstone
        if gone and not waits and not pushed.unsealed(commits, head):
            raise UnknownName("run", run, store.runs())
        dropped = tuple(one.source.name for one in waits)
        retired = tuple(name.text for name in commits)
        tombstone = RunVersion(
            head.run, head.number + 1, (), {}, None, "", "", True, dropped=dropped, retired=retired
        )
        if written := put(store, tombstone, tool):
            markers.unmark(store.objects, run, [one.source for one in waits])
            return written
    raise AssertionError("unreachable")


def _head_to_remove(store: Versions, run: str) -> RunVersion:
    """The newest version; of a damaged run only its name and number, which is all a removal needs."""
    try:
        return store.head_to_write(run)
    except DamagedRunError:
        return RunVersion(store.name(layout.run_key(run)), max(store.numbers(run)), (), {}, None, "", "")
