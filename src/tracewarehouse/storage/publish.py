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
from tracewarehouse.storage import commits, index, layout, list_object
from tracewarehouse.storage.codec import FORMAT, MANY_FILES, encode_version, sealed
from tracewarehouse.storage.commits import now
from tracewarehouse.storage.layout import is_waiting
from tracewarehouse.storage.model import (
    EXPIRED,
    Changes,
    Json,
    ManySources,
    Outcome,
    PendingSource,
    Published,
    RankSource,
    RunVersion,
    StoredList,
)
from tracewarehouse.storage.versions import Versions

# The sources that the next version will hold, by name.
_Held = dict[str, RankSource]


class Merged(Struct, frozen=True):
    """The version to write (None: no change), outcomes by name; if it waits, ranks present and expected."""

    version: RunVersion | None
    outcome: Mapping[str, Outcome]
    pending: tuple[int, int] | None = None


def merge(base: RunVersion, changes: Changes, waiting: Sequence[PendingSource] = ()) -> Merged:
    """Applies changes to the newest version (a tombstone counts as empty).

    `base` is version 0 for a run that does not exist. With `expected_ranks`, sources that other calls left
    waiting are published with these once the run has that many ranks; a seal publishes them anyway. Raises
    RunExists if the name exists in another spelling.
    """
    start = _start(base, changes, waiting)
    own = {source.name for source in changes.sources}
    others = tuple(one for one in waiting if one.source.name not in own and one.source.run == start.run)
    held = {source.name: source for source in start.sources} if changes.sources or others else None
    outcome = _apply(held, changes, others) if held is not None else {}
    expected = changes.expected_ranks
    if expected is not None and not changes.seal:
        ranks = len({source.rank for source in held.values()} if held is not None else start.ranks)
        if ranks < expected:
            for name, decided in outcome.items():
                outcome[name] = "pending" if decided in ("added", "replaced") else decided
            return Merged(None, outcome, (ranks, expected))
    if changes.drop_ranks or changes.drop_sources:
        held = {source.name: source for source in start.sources} if held is None else held
        held = {
            name: source
            for name, source in held.items()
            if source.rank not in changes.drop_ranks and name not in changes.drop_sources
        }
    # The stored labels, then those of the calls whose sources are published, this call's last.
    labels: dict[str, str | None] = dict(start.labels)
    for one in sorted(others, key=lambda one: (one.source.committed_at, one.source.name)):
        labels |= one.labels if held is not None and one.source.name in held else {}
    labels |= changes.labels
    stated = {key: value for key, value in labels.items() if value is not None}
    return Merged(_next(base, start, held, stated, changes, waiting), outcome)


def _start(base: RunVersion, changes: Changes, waiting: Sequence[PendingSource]) -> RunVersion:
    """The version that the changes apply to; the sources decide the spelling of the run."""
    new = [*changes.sources, *(one.source for one in waiting if changes.seal)]
    run = new[0].run if new else base.run
    if base.number == 0 or base.tombstone:
        kept = {name: getattr(base, name) for name in ("retired", "results_of", "kept_from", "taken_out")}
        return RunVersion(run, base.number, (), {}, None, base.created_at, base.tool, **kept)
    if run != base.run:
        raise RunExists(
            f"run {run}: run names are case-insensitive, and run {base.run} already exists",
            hints.fill("use {}, or another name", hints.option("run", base.run)),
        )
    return base


def _apply(held: _Held, changes: Changes, others: Sequence[PendingSource]) -> dict[str, Outcome]:
    """Adds sources to `held` in the order of their commits; returns the outcomes of the call's sources."""
    own = {source.name for source in changes.sources}
    own |= {one.source.name for one in others if changes.seal}
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
    base: RunVersion,
    start: RunVersion,
    held: _Held | None,
    labels: Mapping[str, str],
    changes: Changes,
    waiting: Sequence[PendingSource],
) -> RunVersion | None:
    """The version after `base`, None if nothing changes; `held`: its sources, None for those of `start`."""
    sources = start.sources
    if held is not None and held.keys() != {source.name for source in sources}:
        sources = tuple(sorted(held.values(), key=lambda one: (one.rank, one.name)))
    elif held is not None:
        by_name = {source.name: source for source in sources}
        if any(held[name] != source for name, source in by_name.items()):
            sources = tuple(sorted(held.values(), key=lambda one: (one.rank, one.name)))
    stated = max((one.expected_ranks for one in waiting if held and one.source.name in held), default=0)
    expected = changes.expected_ranks or stated or start.expected_ranks
    new = replace(start, number=base.number + 1, sources=sources, labels=labels, expected_ranks=expected)
    if sources is not start.sources or waiting:
        # The commits that waited and are settled, and that the new version does not hold.
        seen = {*start.summary.commits, *(one.source.commit for one in waiting)}
        settled = {*start.retired, *filter(is_waiting, seen)}
        settled.difference_update(source.commit for source in sources)
        new = replace(new, retired=tuple(sorted(settled)))
    is_same = sources is start.sources and labels == dict(start.labels) and expected == start.expected_ranks
    return None if is_same else replace(new, compacted=changes.compacted or start.compacted)


# Half the grace period of `clean`: what was committed since then is there.
_SPARED = timedelta(hours=12)
# After a conflict: the first and the longest pause, and for how long a call tries.
_PAUSE_S, _LONGEST_PAUSE_S, _PATIENCE_S = 0.06, 4.0, 120.0

# What a call is about to publish → raises a TwError to prevent it.
Check: TypeAlias = Callable[[RunVersion], None]


def publish(store: Versions, run: str, changes: Changes, tool: str, check: Check | None = None) -> Published:
    """Applies the changes of a call to the newest version of a run; see `merge` for the rules.

    `check` is called with the version to be written, or the newest one if nothing changes. Raises
    UnknownName if there is nothing to change.
    """
    known = {(source.rank, *source.identity) for source in changes.sources}
    if len(known) != len(changes.sources) or any(source.run != run for source in changes.sources):
        raise ValueError("a publish must name each source of its run once")
    _check_files(store, changes.sources)
    seen = _look(store, run, changes)
    if seen.merged.pending is not None:
        kept = {name for name, outcome in seen.merged.outcome.items() if outcome == "pending"}
        own = {source.name: source for source in commits.wait(store.objects, changes, kept)}
        if own:
            # Others see now what waits here: the last of several calls at once finds all ranks.
            changes = replace(changes, sources=tuple(own.get(one.name, one) for one in changes.sources))
            seen = _look(store, run, changes)
    for attempt in _attempts(run):
        seen = _look(store, run, changes) if attempt else seen
        base, waiting, merged = seen.base, seen.waiting, seen.merged
        if check is not None:
            check(merged.version or base)
        if merged.pending is not None:
            return Published(None, base, merged.outcome, _present(seen, changes), waiting)
        if merged.version is None:
            confirm(store, base)
            return Published(None, base, merged.outcome, waited=waiting)
        _check_files(store, [one.source for one in waiting])
        # After a conflict, a listing shows first whether another call was quicker again.
        if attempt and merged.version.number <= store.newest_number(run):
            continue
        if written := put(store, merged.version, tool):
            if seen.names:
                _unmark(store, written)
            return Published(written, written, merged.outcome, waited=waiting)
    raise AssertionError("unreachable")


class _Seen(Struct, frozen=True):
    """The newest version of a run, the commits that wait, those of them that were read, and the merge."""

    base: RunVersion
    names: tuple[layout.CommitName, ...]
    waiting: tuple[PendingSource, ...]
    merged: Merged


def _look(store: Versions, run: str, changes: Changes) -> _Seen:
    """Merges the changes with what is stored now; reads what waits for this call.

    That is everything if there may be enough ranks, else what has ranks of the call. Raises UnknownName,
    DamagedRunError.
    """
    # What waits before the newest version: what does not wait any more was published earlier.
    found = commits.names(store.objects, run) if changes.expected_ranks or changes.seal else ()
    base = store.head(run)
    names = commits.unsettled(found, base)
    wanted = names
    if not changes.seal and len(_possible(base, changes, names)) < (changes.expected_ranks or 0):
        own = {source.rank for source in changes.sources}
        wanted = tuple(name for name in names if not own.isdisjoint(range(name.first, name.last + 1)))
    waiting = []
    for one in commits.waiting(store.objects, run, [name.text for name in wanted]):
        if isinstance(one, WarehouseError):
            raise DamagedRunError(f"run {run} is damaged: {one.message}", hints.repair(run))
        waiting.append(one)
    if not changes.sources and not waiting and (base.number == 0 or base.tombstone):
        raise UnknownName("run", run, store.runs())
    return _Seen(base, names, tuple(waiting), merge(base, changes, waiting))


def _possible(base: RunVersion, changes: Changes, waiting: Sequence[layout.CommitName]) -> set[int]:
    """The ranks of the run with all that waits; by the names of commits, which may leave out ranks."""
    ranks = {source.rank for source in changes.sources}.union(() if base.tombstone else base.ranks)
    return ranks.union(*(range(name.first, name.last + 1) for name in waiting))


def _present(seen: _Seen, changes: Changes) -> tuple[int, int]:
    """Ranks present and expected: counted by names if not all that waits was read."""
    ranks, expected = seen.merged.pending or (0, 0)
    possible = len(_possible(seen.base, changes, seen.names))
    return (possible if possible < expected else ranks), expected


def _check_files(store: Versions, sources: Sequence[RankSource]) -> None:
    """Raises WarehouseError for files that `clean` deleted; it spares recent ones, which saves requests."""
    recent = datetime.now(UTC) - _SPARED
    missing = store.missing_file(
        one for one in sources if not (store.is_remote and datetime.fromisoformat(one.committed_at) > recent)
    )
    if missing is not None:
        holds = (one.rank for one in sources for file in one.files if file.path == missing)
        raise WarehouseError(
            f"{store.objects.describe(missing)}: deleted before rank {next(holds)} was published",
            "ingest it again",
        )


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


def put(store: Versions, version: RunVersion, tool: str) -> RunVersion | None:
    """Publishes a version under its number, then its index entry; None if another call published first."""
    expired: dict[str, Json] = {}
    if not isinstance(version.sources, ManySources):
        for source in version.sources:
            for table, date in source.expired.items():
                expired[table] = max(date, str(expired.get(table, "")))
        version = replace(version, expired=expired or None)
    needed = [name for name in version.must_understand if name != EXPIRED]
    # Releases that read a version with expired tables must know them.
    needed += [EXPIRED] if version.expired else []
    version = replace(
        version,
        sources=_listed(store, version),
        labels=dict(version.labels),
        must_understand=tuple(needed),
        previous=store.digest(version.run, version.number - 1) if version.number > 1 else "",
        created_at=now(),
        tool=tool,
        nonce=secrets.token_hex(16),
    )
    data = encode_version(version)
    if not store.objects.put_if_absent(layout.version(version.run, version.number), data):
        return None
    store.remember(version, index.digest(data))
    # The version is published, even if the disk is full now; the next publish writes the entry.
    with suppress(OSError, TwError):
        write_entry(store, version)
    return version


def _listed(store: Versions, version: RunVersion) -> Sequence[RankSource]:
    """The sources of a version; those of many files are written to an object first."""
    if isinstance(version.sources, ManySources) or len(version.paths) <= MANY_FILES:
        return version.sources
    data = list_object.encode(version.sources)
    key = layout.version_list(version.run, version.number, secrets.token_hex(4))
    store.objects.put({key: data})
    stored = StoredList(key, len(data), index.digest(data), version.summary)
    return list_object.many_sources(store.objects, version.run, stored)


def amend(store: Versions, run: str, tool: str, change: Callable[[RunVersion], RunVersion]) -> RunVersion:
    """Publishes the newest version of a run with other fields; returns it, unchanged or written."""
    for _ in _attempts(run):
        head = store.head(run)
        changed = change(head)
        if changed is head:
            return head
        if written := put(store, replace(changed, number=head.number + 1), tool):
            return written
    raise AssertionError("unreachable")


def write_entry(store: Versions, version: RunVersion) -> None:
    """Writes the index entry of the newest version; looks once more, since another call may be newer."""
    run = version.run
    while True:
        entry = index.entry_of(version, store.digest(run, version.number))
        store.objects.put({layout.entry(run): index.encode_entry(entry)})
        newest = max(store.versions(run), default=0)
        if newest <= version.number:
            return
        version = store.get(run, newest)


def confirm(store: Versions, newest: RunVersion) -> None:
    """Writes the index entry that a killed call did not."""
    entry = store.entry(newest.run)
    if newest.number and (entry is None or entry.number < newest.number):
        write_entry(store, newest)


def _unmark(store: Versions, newest: RunVersion) -> None:
    """Deletes the mark of waiting commits unless others wait since."""
    with suppress(OSError):
        store.objects.delete([layout.waiting(newest.run)])
        if commits.unsettled(commits.names(store.objects, newest.run), newest):
            fields = {"format": FORMAT, "must_understand": [], "run": newest.run}
            store.objects.put({layout.waiting(newest.run): sealed(fields)})


def remove(store: Versions, run: str, tool: str, keep_results: bool) -> RunVersion:
    """Publishes a tombstone and drops waiting sources; raises UnknownName if there is no such run."""
    for _ in _attempts(run):
        names = commits.names(store.objects, run)
        try:
            head = store.head(run)
        except DamagedRunError:  # of a damaged run only its name and number, which is all a removal needs
            number = store.newest_number(run)
            head = RunVersion(store.name(layout.run_key(run)), number, (), {}, None, "", "")
        waits = commits.unsettled(names, head)
        if (head.number == 0 or head.tombstone) and not waits:
            raise UnknownName("run", run, store.runs())
        results = (head.number,) if keep_results and not head.tombstone else ()
        tombstone = RunVersion(
            head.run,
            head.number + 1,
            (),
            {},
            None,
            "",
            "",
            tombstone=True,
            retired=tuple(name.text for name in names if name.waits),
            results_of=(*head.results_of, *results),
            kept_from=head.kept_from,
            taken_out=head.taken_out,
        )
        if written := put(store, tombstone, tool):
            if names:
                _unmark(store, written)
            return written
    raise AssertionError("unreachable")
