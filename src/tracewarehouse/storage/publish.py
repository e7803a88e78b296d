"""Publishing: the changes of a call become the next version of a run, one object that is put if absent."""

from __future__ import annotations

import itertools
import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.errors import DamagedRunError, RunExists, TwError, UnknownName, WarehouseError
from tracewarehouse.storage import copies, layout, markers, pushed, receipts
from tracewarehouse.storage.codec import encode_version
from tracewarehouse.storage.layout import is_pushed
from tracewarehouse.storage.manifests import now
from tracewarehouse.storage.model import (
    EXPIRED,
    Changes,
    Json,
    Outcome,
    PendingSource,
    Published,
    RankSource,
    RunVersion,
)
from tracewarehouse.storage.versions import Versions

# The sources that the next version will hold, by name.
_Held = dict[str, RankSource]


class Merged(Struct, frozen=True):
    """The version to write (None: no change), outcomes by name, and sources whose markers can be deleted."""

    version: RunVersion | None
    outcome: Mapping[str, Outcome]
    settled: tuple[RankSource, ...] = ()
    pending: tuple[int, int] | None = None


def merge(base: RunVersion, changes: Changes, waiting: tuple[PendingSource, ...] = ()) -> Merged:
    """Applies changes to the newest version (a tombstone counts as empty).

    `base` is version 0 for a run that does not exist. With `expected_ranks`, pending sources of other
    calls are published with these once the run has that many ranks. Raises RunExists if the name
    exists in another spelling.
    """
    start = _start(base, changes)
    own = {source.name for source in changes.sources}
    others = tuple(one for one in waiting if one.source.name not in own and one.source.run == start.run)
    others += changes.pushed
    held = {source.name: source for source in start.sources}
    outcome = _apply(held, changes, others)
    expected = changes.expected_ranks
    ranks = len({source.rank for source in held.values()})
    if expected is not None and ranks < expected and not changes.allow_missing:
        # Sources of the call that will never be published need no marker.
        lost = tuple(source for source in changes.sources if outcome[source.name] in ("same", "conflict"))
        for name, decided in outcome.items():
            outcome[name] = "pending" if decided in ("added", "replaced") else decided
        return Merged(None, outcome, lost, (ranks, expected))
    for name, source in tuple(held.items()):
        if source.rank in changes.drop_ranks or source.name in changes.drop_sources:
            del held[name]
    settled = (*changes.sources, *(one.source for one in others))
    # The stored labels, then those of the calls whose sources are published, this call's last.
    labels: dict[str, str | None] = dict(start.labels)
    for one in sorted(others, key=lambda one: (one.source.committed_at, one.source.name)):
        labels |= one.labels if one.source.name in held else {}
    labels |= changes.labels
    stated = {key: value for key, value in labels.items() if value is not None}
    return Merged(_next(base, start, held, stated, changes), outcome, settled)


def _start(base: RunVersion, changes: Changes) -> RunVersion:
    """The version that the changes apply to; the sources decide the spelling of the run."""
    new = [*changes.sources, *(one.source for one in changes.pushed)]
    run = new[0].run if new else base.run
    if base.number == 0 or base.tombstone:
        retired = base.retired
        return RunVersion(run, base.number, (), {}, None, base.created_at, base.tool, retired=retired)
    if run != base.run:
        raise RunExists(
            f"run {run}: run names are case-insensitive, and run {base.run} already exists",
            hints.fill("use {}, or another name", hints.option("run", base.run)),
        )
    return base


def _apply(held: _Held, changes: Changes, others: tuple[PendingSource, ...]) -> dict[str, Outcome]:
    """Adds sources to `held` in the order of their commits; returns the outcomes of the call's sources."""
    own = {source.name for source in changes.sources}
    own |= {one.source.name for one in changes.pushed}
    queue: list[tuple[RankSource, bool, Changes | None]]
    queue = [(source, changes.replace, changes) for source in changes.sources]
    queue += [(one.source, one.replace, None) for one in others]
    by_rank: dict[int, _Held] = {}
    for name, source in held.items():
        by_rank.setdefault(source.rank, {})[name] = source
    outcome: dict[str, Outcome] = {}
    for source, may_replace, of_call in sorted(queue, key=lambda item: (item[0].committed_at, item[0].name)):
        beside = by_rank.setdefault(source.rank, {})
        decided, gone = _decide(tuple(beside.values()), source, may_replace, of_call)
        if decided in ("added", "replaced"):
            for one in gone:
                del beside[one.name], held[one.name]
            beside[source.name] = held[source.name] = source
        if source.name in own:
            outcome[source.name] = decided
    return outcome


def _decide(
    stored: Sequence[RankSource], new: RankSource, may_replace: bool, changes: Changes | None
) -> tuple[Outcome, tuple[RankSource, ...]]:
    """The outcome of `new` given the stored sources of its rank, and the sources that it replaces.

    `changes`: those of the call, None for a source of another call.
    """
    if any(one.name == new.name for one in stored):
        return "added", ()
    if changes and new.name in changes.replaces:
        held = tuple(one for one in stored if one.name == changes.replaces[new.name])
        return ("replaced", held) if held else ("conflict", ())
    same = [one for one in stored if one.identity == new.identity]
    if changes and changes.rebuilt:
        return ("replaced", tuple(same)) if same else ("conflict", ())
    damaged = changes.damaged if changes else frozenset()
    if any(_is_current(one, new) and one.name not in damaged for one in same):
        return "same", ()
    others = [one for one in stored if one not in same and one.overlaps(new)]
    if all(may_replace or _is_replaced(one, new, changes) for one in others):
        gone = (*same, *others)
        return ("replaced" if gone else "added"), gone
    return "conflict", ()


def _is_current(stored: RankSource, new: RankSource) -> bool:
    """Whether the stored source is read and built like the new one, in the same options."""
    is_same = stored.is_redacted == new.is_redacted and all(
        new.facts.get(name) in (None, stored.facts.get(name)) for name in ("time_unit", "step_range")
    )
    return is_same and stored.is_current(new.format, new.format_version, new.definitions)


def _is_replaced(stored: RankSource, new: RankSource, changes: Changes | None) -> bool:
    """Whether a damaged source is replaced: by an intact file, or a longer one with the same start."""
    if stored.status != "damaged":
        return False
    if new.status != "damaged":
        return True
    begins_with = changes.begins_with if changes else None
    return new.text_bytes > stored.text_bytes and begins_with is not None and begins_with(stored, new)


def _next(
    base: RunVersion, start: RunVersion, held: _Held, labels: Mapping[str, str], changes: Changes
) -> RunVersion | None:
    """The version after `base`, None if nothing changes."""
    sources = tuple(sorted(held.values(), key=lambda one: (one.rank, one.name)))
    stated = max((one.expected_ranks for one in changes.pushed if one.source.name in held), default=0)
    expected = changes.expected_ranks or stated or start.expected_ranks
    new = replace(start, number=base.number + 1, sources=sources, labels=labels, expected_ranks=expected)
    # The manifests of pushed commits that are settled, and that the new version does not hold.
    seen = {source.manifest for source in start.sources}
    seen |= {one.source.manifest for one in changes.pushed}
    settled = {*start.retired, *filter(is_pushed, seen)} - {source.manifest for source in sources}
    new = replace(new, retired=tuple(sorted(settled)), compacted=changes.compacted or start.compacted)
    same = (sources, labels, expected) == (start.sources, dict(start.labels), start.expected_ranks)
    return None if same else new


# Half the grace period of `clean`: what was committed since then is there.
_SPARED = timedelta(hours=12)
# After a conflict: the first and the longest pause, and for how long a call tries.
_PAUSE_S, _LONGEST_PAUSE_S, _PATIENCE_S = 0.06, 4.0, 120.0


def publish(store: Versions, run: str, changes: Changes, tool: str) -> Published:
    """Applies the changes of a call to the newest version of a run; see `merge` for the rules."""
    known = {(source.rank, *source.identity) for source in changes.sources}
    if len(known) != len(changes.sources) or any(source.run != run for source in changes.sources):
        raise ValueError("a publish must name each source of its run once")
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
    expired: dict[str, Json] = {}
    for source in version.sources:
        for table, date in source.expired.items():
            expired[table] = max(date, str(expired.get(table, "")))
    needed = [name for name in version.must_understand if name != EXPIRED]
    # Releases that read a version with expired tables must know them.
    version = replace(
        version, expired=expired or None, must_understand=(*needed, *([EXPIRED] if expired else []))
    )
    version = replace(version, created_at=now(), tool=tool, nonce=secrets.token_hex(16))
    data = encode_version(version)
    if not store.objects.put_if_absent(layout.version(version.run, version.number), data):
        return None
    # The version is published, even if the disk is full now; the next publish writes the receipt.
    with suppress(OSError):
        receipts.write(store.objects, version, data)
    store.remember(version)
    return version


def remove(store: Versions, run: str, tool: str, keep_results: bool) -> RunVersion:
    """Publishes a tombstone and drops pending sources; raises UnknownName if there is no such run."""
    if keep_results and (newest := store.newest(run)) is not None:
        copies.put(store.objects, {layout.kept_version(run, newest.number): encode_version(newest)})
    for _ in _attempts(run):
        waits = store.pending(run)
        commits = pushed.names(store.objects, run)
        try:
            head = store.head_to_write(run)
        except DamagedRunError:  # of a damaged run only its name and number, which is all a removal needs
            name, number = store.name(layout.run_key(run)), max(store.numbers(run))
            head = RunVersion(name, number, (), {}, None, "", "")
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
