"""Clean: deletes files that no reader can reach, run by run, after planning it from what is stored.

Readers hold no lease: only ages keep what they read. A version that was replaced or removed stays, with its
files, at least for the grace period from then on, so a query that runs longer may find files missing.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.errors import TwError, WarehouseError
from tracewarehouse.storage import commits, layout, results
from tracewarehouse.storage.delta import named_files
from tracewarehouse.storage.model import (
    KEEP_VERSIONS_S,
    CleanReport,
    ManySources,
    PendingSource,
    RankSource,
    RunVersion,
)
from tracewarehouse.storage.objects import Entry, Objects
from tracewarehouse.storage.remote import ListedObjects, RemoteObjects
from tracewarehouse.storage.store import Store, with_disk_errors
from tracewarehouse.storage.versions import Versions
from tracewarehouse.temp_folders import delete_unused, file_time, is_unused, lease_start


def last_removal(history: Sequence[RunVersion], before: datetime) -> int:
    """The number of the last removal before this time; earlier versions are not kept."""
    removals = (version.number for version in history if version.tombstone and _created(version) < before)
    return max(removals, default=0)


def kept_versions(
    history: Sequence[RunVersion],
    replaced_before: datetime,
    versions_before: datetime,
    acknowledged: Collection[str] = (),
) -> frozenset[int]:
    """The numbers to keep of the versions of a run, which are given oldest first.

    The newest version and the newest removal stay. A version whose rows a later version also has goes if it
    was replaced before `replaced_before`, any other if before `versions_before`; but the last version of each
    source that is `acknowledged` stays. A label keeps nothing.
    """
    if not history:
        return frozenset()
    first_number = last_removal(history, replaced_before)
    removals = [version.number for version in history if version.tombstone]
    numbers = {history[-1].number, *removals[-1:]}
    later, later_sources = {_content(history[-1])}, {history[-1].source}
    for version, following in reversed(list(pairwise(history))):
        content, replaced_at = _content(version), _created(following)
        limit = replaced_before if content in later else versions_before
        is_acknowledged = version.source in acknowledged and version.source not in later_sources
        if version.number >= first_number and (is_acknowledged or replaced_at >= limit):
            numbers.add(version.number)
        later.add(content)
        later_sources.add(version.source)
    return frozenset(numbers)


def _created(version: RunVersion) -> datetime:
    return datetime.fromisoformat(version.created_at)


def _content(version: RunVersion) -> str:
    """Equal for versions with the same rows and facts, whatever their files and labels."""
    if isinstance(version.sources, ManySources):  # a new label keeps the object
        return version.sources.stored.sha256
    sources = [
        [one.rank, one.uid, one.status, dict(one.definitions), dict(one.facts), _tables(one)]
        for one in version.sources
    ]
    return hashlib.sha256(msgspec.json.encode([version.run, version.tombstone, sources])).hexdigest()


def _tables(source: RankSource) -> list[tuple[str, int, int]]:
    return sorted((file.table, file.version, file.rows) for file in source.files)


class _Run(Struct, frozen=True):
    """What to delete of one run, and what to keep: files, and contents whose results are kept.

    `versions` are numbers; `others` are commits, list objects and marks.
    """

    newest: RunVersion | None
    versions: tuple[int, ...]
    others: tuple[str, ...]
    files: frozenset[str]
    kept_contents: frozenset[tuple[str, str]]

    @property
    def gap(self) -> bool:
        """Whether the newest version must say first that earlier ones may be missing."""
        return self.newest is not None and any(one >= self.newest.kept_from for one in self.versions)


class Plan(Struct, frozen=True):
    """What to delete of each run that loses something, then of data and results, in this order.

    `unlisted`: recorded results that lists need not name any more. `skipped`: keys of runs of which nothing
    is deleted.
    """

    runs: dict[str, _Run]
    data: tuple[str, ...]
    results: tuple[str, ...]
    unlisted: tuple[str, ...]
    skipped: frozenset[str]


def plan(store: Versions, before: datetime, versions_before: datetime) -> Plan:
    """What to delete: objects older than `before`, versions replaced before `versions_before`."""
    # Files are listed before the versions are read, so that files published in between are kept.
    data = [
        entry
        for entry in store.objects.walk(f"{layout.DATA}/")
        if entry.key.endswith(".parquet") and f"/{layout.DELTA_LOG}/" not in entry.key
    ]
    old_data = [entry.key for entry in data if entry.modified < before]
    old_results = list(_recorded(store, before))
    acknowledged = _acknowledged(store)
    planned: dict[str, _Run] = {}
    skipped = set()
    for run in sorted({*store.run_keys(), *store.keys(layout.COMMITS)}):
        if isinstance(store.objects, ListedObjects):
            store.objects.hold(run)
        history = [_dated(store, version) for version in store.readable(run, whole=True)]
        first_number = last_removal(history, before)
        if _is_uncertain(store, run, history, first_number):
            skipped.add(run)
            continue
        kept = kept_versions(history, before, versions_before, acknowledged.get(run, ()))
        planned[run] = _run(store, run, history, kept, before)
    kept_files = named_files(store.objects).union(*(of_run.files for of_run in planned.values()))
    sources = frozenset[tuple[str, str]]().union(*(of_run.kept_contents for of_run in planned.values()))
    dead_data = tuple(key for key in old_data if key not in kept_files and layout.run_of(key) not in skipped)
    dead_results = tuple(
        key for source, key in old_results if layout.run_of(key) not in skipped and source not in sources
    )
    dead_results += tuple(_dead_packs(store, before, frozenset(dead_results)))
    # What is listed is missed once the run has the same content again.
    named = ((key, results.parse(key)) for key in results.listed(store.objects))
    unlisted = tuple(
        key for key, one in named if one and one.run not in skipped and (one.run, one.source) not in sources
    )
    return Plan(planned, dead_data, dead_results, unlisted, frozenset(skipped))


def _dated(store: Versions, version: RunVersion) -> RunVersion:
    """The version, not older than its object by the clock of the store: that of its writer may be behind."""
    stored = store.objects.stat(layout.version(version.run, version.number))
    if stored is None or stored.modified <= _created(version):
        return version
    return replace(version, created_at=stored.modified.isoformat())


def _is_uncertain(store: Versions, run: str, history: Sequence[RunVersion], first: int) -> bool:
    """Whether a lost or damaged object of the run may have held files that nothing else names.

    Versions before the last removal out of grace do not matter: an intact tombstone dropped what they held.
    """
    top = store.newest_number(run)
    newest = history[-1] if history else None
    if top and (newest is None or newest.number < top or newest.taken_out):
        return True
    if newest is not None:
        readable = {version.number for version in history}
        if not readable.issuperset(range(max(first, newest.kept_from), top + 1)):
            return True
    names = {name.text for name in commits.names(store.objects, run)}
    names |= {name for version in history if version.number >= first for name in version.summary.commits}
    return any(isinstance(one, WarehouseError) for one in commits.read_many(store.objects, run, names))


def _run(
    store: Versions, run: str, history: Sequence[RunVersion], numbers: Collection[int], before: datetime
) -> _Run:
    newest = history[-1] if history else None
    readable = [one for one in history if one.number in numbers]
    # Of these only the results are kept.
    only_results = {number for version in history[-1:] for number in version.results_of} - {*numbers}
    names = commits.names(store.objects, run)
    waits = _waiting(store, run, names, newest)
    alive = [*(source for version in readable for source in version.sources), *waits]
    live_commits = {source.commit for source in alive}
    dead = [
        name.text
        for name in names
        if name.text not in live_commits and _older(store, layout.commit(run, name.text), before)
    ]
    files = {file.path for source in alive for file in source.files}
    # Files of commits that no version holds, but that are too young to be deleted.
    young = [name.text for name in names if name.text not in live_commits and name.text not in dead]
    for commit in commits.read_many(store.objects, run, young):
        if not isinstance(commit, WarehouseError):
            files |= {file.path for source in commit.sources for file in source.files}
    readable_numbers = {version.number for version in history}
    gone = [
        number
        for number in store.versions(run)
        if (number in readable_numbers and number not in numbers and number not in only_results)
        or (number not in readable_numbers and _older(store, layout.version(run, number), before))
    ]
    keys = [layout.commit(run, name) for name in dead]
    keys += _dead_objects(store, run, [one for one in history if one.number not in gone], waits, before)
    kept_contents = {
        (run, version.source)
        for version in history
        if (version in readable and version.sources) or version.number in only_results
    }
    return _Run(newest, tuple(gone), tuple(keys), frozenset(files), frozenset(kept_contents))


def _waiting(
    store: Versions, run: str, names: Sequence[layout.CommitName], newest: RunVersion | None
) -> list[RankSource]:
    """The waiting sources that may still be published, without those whose content the run holds."""
    newest = newest or RunVersion(run, 0, (), {}, None, "", "")
    unsettled = [name.text for name in commits.unsettled(names, newest)]
    stored = {(source.rank, *source.identity) for source in newest.sources} if unsettled else set()
    waiting = commits.waiting(store.objects, run, unsettled)
    sources = [one.source for one in waiting if isinstance(one, PendingSource)]
    return [source for source in sources if (source.rank, *source.identity) not in stored]


def _dead_objects(
    store: Versions,
    run: str,
    versions: Sequence[RunVersion],
    waits: Sequence[RankSource],
    before: datetime,
) -> Iterator[str]:
    """List objects that none of these versions names, and the mark of a run of which nothing waits."""
    kept_lists = {one.sources.stored.key for one in versions if isinstance(one.sources, ManySources)}
    for entry in store.objects.walk(f"{layout.versions(run)}/"):
        if entry.key.endswith(".parquet") and entry.key not in kept_lists and entry.modified < before:
            yield entry.key
    mark = layout.waiting(run)
    if not waits and _older(store, mark, before):
        yield mark


def _acknowledged(store: Versions) -> dict[str, set[str]]:
    """Run key → the sources of the run that an acknowledgement refers to."""
    sources: dict[str, set[str]] = {}
    for _, fields in results.acknowledged(store.objects):
        if isinstance(fields, dict):
            sources.setdefault(fields["run"].lower(), set()).add(fields["source"])
    return sources


def _recorded(store: Versions, before: datetime) -> Iterator[tuple[tuple[str, str], str]]:
    """Old recorded results and roll-ups with their run key and source."""
    for entry in store.objects.walk(f"{layout.RESULTS}/"):
        result = results.parse(entry.key) or results.parse_rollup(entry.key)
        if result is not None and entry.modified < before:
            yield (result.run, result.source), entry.key


def _dead_packs(store: Versions, before: datetime, gone: Collection[str]) -> Iterator[str]:
    """Damaged packs, and those that have rows of a result that is not left; `tw record` makes others."""
    for name in store.objects.folders(f"{layout.RESULTS}/"):
        packs = results.Packs.read(store.objects, store.files, f"{layout.RESULTS}/{name}")
        lost = {packs.files[key] for key in packs.files if key in gone or store.objects.stat(key) is None}
        dead = packs.keys - (set(packs.files.values()) - lost)
        yield from (key for key in sorted(dead) if _older(store, key, before))


def _older(store: Versions, key: str, before: datetime) -> bool:
    entry = store.objects.stat(key)
    return entry is not None and entry.modified < before


@with_disk_errors
def clean(
    store: Store,
    grace_s: float = 86_400.0,
    taken_out: bool = False,
    keep_versions_s: float = KEEP_VERSIONS_S,
) -> CleanReport:
    """Deletes, if older than `grace_s` seconds: versions before a removal of their run, versions with the
    same rows as a later one, versions replaced more than `keep_versions_s` ago, commits of which no kept
    version holds a source and that do not wait, Parquet files that no kept version or commit names, and
    staging folders of killed calls.

    Nothing goes that was written since an hour before a running call began, which may use what others left:
    by its lock, and on other machines as long as it renews its lease. Kept versions are readable as RUN@vN;
    the last tombstone stays for its number, and the last version of each content that an acknowledgement
    refers to. Before versions are deleted, one is published that says so; the next call completes a killed
    one. Recorded results of kept versions stay, also those of removed runs that are to be kept. Nothing is
    deleted of a run with a lost or damaged version or commit, which may have held any of its files, or of
    which a repair took objects out; `taken_out` deletes these first, whatever their age.
    """
    # Its own lease before it looks for others: of it and a call, one sees the other.
    with store.staging(layout.CLEANING, is_needed=False):
        return _clean(store, grace_s, taken_out, keep_versions_s)


def _clean(store: Store, grace_s: float, taken_out: bool, keep_versions_s: float) -> CleanReport:
    staging = store.folder / layout.STAGING
    now, staging_now = store.objects.clock(), file_time(staging)
    calls = (path for path in staging.iterdir() if not path.name.startswith(layout.CLEANING))
    starts = [start for path in calls if (start := lease_start(path, staging_now)) is not None]
    grace_s = max([grace_s, *(staging_now - start + commits.FRESH.total_seconds() for start in starts)])
    before = now - timedelta(seconds=grace_s)
    versions_before = min(before, now - timedelta(seconds=keep_versions_s))
    deleted = _delete_taken_out(store) if taken_out else []
    listed = store
    if isinstance(store.objects, RemoteObjects):  # a folder is looked at as it is
        listed = copy(store)
        listed.objects = ListedObjects(store.objects)
    planned = plan(listed, before, versions_before)
    refused = set()
    groups: list[Iterable[str]] = []
    for run, of_run in planned.runs.items():
        if of_run.newest is not None and not _says_gap(store, of_run):
            refused.add(run)  # another call published meanwhile
            continue
        groups += [[layout.version(run, number) for number in of_run.versions], of_run.others]
    versions = sum(len(of_run.versions) for run, of_run in planned.runs.items() if run not in refused)
    for planned_keys in (planned.data, planned.results):
        groups.append([key for key in planned_keys if layout.run_of(key) not in refused])
    for keys in groups:
        deleted += _delete(store.objects, listed.objects, keys)
    absent = (key for key, entry in store.objects.stat_many(planned.unlisted) if entry is None)
    store.objects.delete(results.unlist(store.objects, frozenset(absent)))
    sizes = [entry.bytes for entry in deleted] + _delete_staging(staging, staging_now, grace_s)
    delete_unused()
    store.forget()
    return CleanReport(len(sizes), sum(sizes), versions, tuple(sorted(map(store.name, planned.skipped))))


def _says_gap(store: Store, planned: _Run) -> bool:
    """Publishes a version below which others may be missing, if needed; False if another call did first."""
    newest = planned.newest
    assert newest is not None
    if not planned.gap:
        store.confirm(newest)
        return True
    number = newest.number + 1
    return store.put(replace(newest, number=number, kept_from=number)) is not None


def _delete_taken_out(store: Store) -> list[Entry]:
    """Deletes what repairs took out, with the versions that hold it; returns the objects."""
    objects = store.objects
    aside = (entry.key for entry in objects.walk(f"{layout.RESULTS}/") if entry.key.endswith(layout.ASIDE))
    deleted = _delete(objects, objects, list(aside))
    for run in store.run_keys():
        with suppress(TwError):
            head = store.head(run)
            if not head.taken_out:
                continue
            gone = frozenset(head.taken_out)
            holding = []
            for version in store.readable(run, whole=True):
                named = {*version.paths, *(layout.commit(run, name) for name in version.summary.commits)}
                if version.number < head.number and not gone.isdisjoint(named):
                    holding.append(layout.version(run, version.number))
            number = head.number + 1
            if store.put(replace(head, number=number, kept_from=number, taken_out=())):
                deleted += _delete(objects, objects, [*holding, *gone])
            store.forget()
    return deleted


def _delete(objects: Objects, listed: Objects, keys: Iterable[str]) -> list[Entry]:
    """Deletes the objects of these keys that are listed; returns them."""
    entries = [entry for _, entry in listed.stat_many(keys) if entry]
    objects.delete([entry.key for entry in entries])
    return entries


def _delete_staging(folder: Path, now: float, grace_s: float) -> list[int]:
    """Deletes leftovers of killed calls in the staging folder; the size of each.

    They are unlocked, or entirely older than the grace period without a lease.
    """
    sizes = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another clean deletes it, too
            inside = (path, *path.rglob("*"))
            if lease_start(path, now) is not None:
                continue
            if not is_unused(path) and max(one.stat().st_mtime for one in inside) >= now - grace_s:
                continue
            size = sum(one.stat().st_size for one in inside if one.is_file())
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            sizes.append(size)
    return sizes
