"""Clean: deletes files that no reader can reach, run by run, after planning it from what is stored."""

from __future__ import annotations

import shutil
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct, field

from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage import (
    cleaned,
    copies,
    layout,
    manifests,
    markers,
    pushed,
    receipts,
    results,
    run_index,
)
from tracewarehouse.storage.codec import KeepRules, kept_versions, last_removal
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.model import KEEP_VERSIONS_S, CleanReport, PendingSource, RankSource, RunVersion
from tracewarehouse.storage.objects import Entry, Objects
from tracewarehouse.storage.remote import RemoteObjects
from tracewarehouse.storage.versions import Versions
from tracewarehouse.temp_folders import delete_unused, is_unused

# Data before the commits that name it, commits before the versions that hold them: what is published in the
# meantime is not taken for unused.
_FOLDERS = (
    layout.DATA,
    layout.ROLLUPS,
    layout.RESULTS,
    layout.RECORDED,
    layout.WAITING,
    layout.SOURCES,
    layout.QUARANTINE,
    layout.ACKNOWLEDGED,
    layout.CATALOG,
    layout.KEPT,
    layout.RECEIPTS,
    layout.RUNS,
)


class ListedObjects(RemoteObjects):
    """The objects as first listed: with one request per 1,000 objects, then none to look at names.

    Reads are answered from what `hold` fetched, many at once, or by the store.
    """

    def __init__(self, objects: RemoteObjects) -> None:
        super().__init__(objects.place)
        listed = (entry for folder in _FOLDERS for entry in objects.walk(f"{folder}/"))
        self._entries = {entry.key: entry for entry in listed}
        self._keys = sorted(self._entries)
        self._held: dict[str, bytes | None] = {}

    def hold(self, run: str) -> None:
        """Fetches the versions and manifests of a run, in place of those of the run before."""
        folders = layout.versions(run), layout.manifests(run)
        self._held = dict(self.get_many(entry.key for each in folders for entry in self.walk(f"{each}/")))

    def get(self, key: str) -> bytes:
        """The content of an object; raises FileNotFoundError."""
        data = self._held.get(key)
        return super().get(key) if data is None else data

    def walk(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """The listed objects whose key starts with `prefix`, by key."""
        for at in range(bisect_left(self._keys, max(prefix, after)), len(self._keys)):
            key = self._keys[at]
            if not key.startswith(prefix):
                return
            if key != after:
                yield self._entries[key]

    def folders(self, prefix: str) -> list[str]:
        """The names directly under a prefix that have objects below them."""
        rests = (entry.key.removeprefix(prefix) for entry in self.walk(prefix))
        return sorted({rest.partition("/")[0] for rest in rests if "/" in rest})

    def stat(self, key: str) -> Entry | None:
        """Size and time as listed."""
        return self._entries.get(key)

    def stat_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Entry | None]]:
        """Sizes and times as listed."""
        return ((key, self.stat(key)) for key in keys)


class Plan(Struct, frozen=True):
    """Keys to delete, in this order: manifests before the files they name, a receipt before its version."""

    receipts: tuple[str, ...]
    versions: tuple[str, ...]
    manifests: tuple[str, ...]
    data: tuple[str, ...]
    results: tuple[str, ...]
    lists: tuple[str, ...]
    catalogs: tuple[str, ...]
    # Keys of runs of which nothing is deleted.
    skipped: frozenset[str]
    # Run key → numbers of the versions to delete, and names of the sources that only they hold.
    gone: dict[str, tuple[list[int], frozenset[str]]] = field(default_factory=dict)

    @property
    def in_order(self) -> tuple[tuple[str, ...], ...]:
        """The keys in the order in which they are deleted."""
        others = self.results, self.lists, self.catalogs
        return self.receipts, self.versions, self.manifests, self.data, *others


class _Run(Struct, frozen=True):
    """The keys to delete of one run, and the files to keep."""

    receipts: list[str]
    versions: list[str]
    manifests: list[str]
    kept: set[str]
    # Numbers of the versions to delete, and names of the sources that only they hold.
    gone: tuple[list[int], frozenset[str]]


def plan(store: Versions, before: datetime, versions_before: datetime) -> Plan:
    """What to delete: objects older than `before`, versions replaced before `versions_before`."""
    # Files are listed before the versions are read, so that files published in between are kept.
    old_data = [entry.key for entry in _data(store) if entry.modified < before]
    old_results = list(_recorded(store, before))
    sources = {(run_key(version.run), version.source) for version in store.kept()}
    acknowledged = _acknowledged(store)
    damaged_kept = {layout.run_of(one.key) for one in store.kept_versions() if one.problems}
    found: dict[str, _Run] = {}
    folders = (layout.RUNS, layout.RECEIPTS, layout.SOURCES, layout.WAITING)
    skipped = set()
    for run in sorted({key for folder in folders for key in store.keys(folder)}):
        if isinstance(store.objects, ListedObjects):
            store.objects.hold(run)
        old = _old_manifests(store, run, before)
        history = store.readable(run)
        first = last_removal(history, before)
        if run in damaged_kept or _is_uncertain(store, run, history, first):
            skipped.add(run)
            continue
        rules = KeepRules(before, versions_before, acknowledged.get(run, ()))
        numbers = kept_versions(history, rules)
        readable = [one for one in history if one.number in numbers]
        sources |= {(run, one.source) for one in readable if one.sources}
        found[run] = _run(store, run, old, history, readable, before)
    runs = tuple(found.values())
    kept = set[str]().union(*(one.kept for one in runs))
    dead_data = tuple(key for key in old_data if key not in kept and layout.run_of(key) not in skipped)
    dead_results = tuple(
        key for one, key in old_results if layout.run_of(key) not in skipped and one not in sources
    )
    return Plan(
        tuple(key for one in runs for key in one.receipts),
        tuple(key for one in runs for key in one.versions),
        tuple(key for one in runs for key in one.manifests),
        dead_data,
        dead_results,
        tuple(_dead_lists(store, before, frozenset(dead_results))),
        tuple(key for key in run_index.old(store.objects) if _older(store, key, before)),
        frozenset(skipped),
        {run: one.gone for run, one in found.items() if one.gone[0]},
    )


def _is_uncertain(store: Versions, run: str, history: Sequence[RunVersion], first: int) -> bool:
    """Whether a lost or damaged object of the run may have held files that nothing else names.

    Versions before the last removal out of grace do not matter: an intact tombstone dropped what they held.
    """
    numbers = store.numbers(run)
    known = cleaned.read(store.objects, run)
    readable = {version.number for version in history} | known.versions
    if known.faults:
        return True
    wanted = range(max(first, min(numbers)), numbers[-1] + 1) if numbers else ()
    if any(number not in readable and not _is_given_up(store, run, number) for number in wanted):
        return True
    names = {name.text for name in manifests.names(store.objects, run)}
    names |= {source.manifest for one in history if one.number >= first for source in one.sources}
    settled = markers.held_or_dropped(history)
    marked = tuple(markers.every(store.objects, run))
    names |= {one.value.manifest for one in marked if one.value and one.value.name not in settled}
    return (
        any(one.problems and not (one.value and one.value.name in settled) for one in marked)
        or any(isinstance(one, WarehouseError) for one in manifests.read_many(store.objects, run, names))
        or next(store.objects.walk(f"{layout.quarantine(run)}/"), None) is not None
    )


def _is_given_up(store: Versions, run: str, number: int) -> bool:
    """Whether a repair gave up an unreadable version, and quarantined what it held."""
    try:
        receipt = receipts.read(store.objects, run, number)
    except ValueError:
        return False
    return receipt is not None and receipt.is_lost


def _run(
    store: Versions,
    run: str,
    old: Sequence[str],
    history: Sequence[RunVersion],
    readable: Sequence[RunVersion],
    before: datetime,
) -> _Run:
    waits = [one.source for one in (*store.pending(run), *_pushed(store, run, readable))]
    alive = {source.name: source for version in readable for source in version.sources}
    alive |= {source.name: source for source in waits}
    needed = {source.manifest for source in alive.values()}
    dead = [name for name in old if name not in needed]
    files = {file.path for source in alive.values() for file in source.files}
    files |= set(_files_of_others(store, run, {*dead, *needed}))
    # A kept manifest also names files of members that no version holds: they stay, too.
    files |= set(_files_of_partly_held(store, run, needed, alive.values()))
    kept = {version.number for version in readable}
    known = {version.number for version in history}
    gone = [
        number
        for number in store.versions(run)
        if number in known - kept
        or (
            number not in known
            and number < max(kept, default=0)
            and _older(store, layout.version(run, number), before)
        )
    ]
    names_kept = {source.name for version in readable for source in version.sources}
    lost_names = {source.name for version in history for source in version.sources} - names_kept
    # A killed call may have left receipts of versions that it deleted.
    left_over = [number for number in cleaned.read(store.objects, run).versions if number not in kept]
    receipts = [layout.receipt(run, number) for number in sorted({*gone, *left_over})]
    keys = [layout.version(run, number) for number in gone]
    markers = _markers(store, run, history, waits, frozenset(dead))
    names = [*markers, *(layout.manifest(run, name) for name in dead)]
    return _Run(receipts, keys, names, files, (gone, frozenset(lost_names)))


def _pushed(store: Versions, run: str, readable: Sequence[RunVersion]) -> Iterator[PendingSource]:
    """The pushed sources that a seal may still publish, without those whose content the run holds."""
    newest = readable[-1] if readable else RunVersion(run, 0, (), {}, None, "", "")
    held = {(source.rank, *source.identity) for source in newest.sources}
    names = pushed.names(store.objects, run)
    for one in pushed.PushedCommits(store.objects, run).unsealed(names, newest):
        if (one.source.rank, *one.source.identity) not in held:
            yield one


def _acknowledged(store: Versions) -> dict[str, set[str]]:
    """Run key → the sources of the run that an acknowledgement refers to."""
    found: dict[str, set[str]] = {}
    for one in results.acknowledged(store.objects):
        if one.value is not None:
            found.setdefault(one.value["run"].lower(), set()).add(one.value["source"])
    return found


def _old_manifests(store: Versions, run: str, before: datetime) -> list[str]:
    names = [name.text for name in manifests.names(store.objects, run)]
    return [name for name in names if _older(store, layout.manifest(run, name), before)]


def _files_of_others(store: Versions, run: str, known: Collection[str]) -> Iterator[str]:
    """Files of commits that no version holds, but that are too young to be deleted."""
    for name in manifests.names(store.objects, run):
        if name.text not in known:
            for source in manifests.read(store.objects, run, name.text).sources:
                yield from (file.path for file in source.files)


def _files_of_partly_held(
    store: Versions, run: str, needed: Iterable[str], alive: Collection[RankSource]
) -> Iterator[str]:
    held: dict[str, int] = {}
    for source in alive:
        held[source.manifest] = held.get(source.manifest, 0) + 1
    for name in sorted(needed):
        parsed = layout.ManifestName.parse(name)
        if parsed is not None and parsed.first == parsed.last and held[name] == 1:
            continue  # its only rank is held, so its files are known
        for source in manifests.read(store.objects, run, name).sources:
            yield from (file.path for file in source.files)


def _markers(
    store: Versions,
    run: str,
    history: Sequence[RunVersion],
    waits: Sequence[RankSource],
    dead: Collection[str],
) -> Iterator[str]:
    """Markers of sources that are deleted, or that a killed call published."""
    waiting_now = {one.name for one in waits}
    settled = markers.held_or_dropped(history)
    for marker in markers.stored(store.objects, run):
        gone = marker.name in settled or marker.manifest in dead
        if gone and marker.name not in waiting_now:
            key = layout.marker(run, marker.rank, marker.name)
            yield from (copies.key_of_copy(key), key)


def _data(store: Versions) -> Iterator[Entry]:
    """Every Parquet file under the data folder, foreign ones included."""
    for entry in store.objects.walk(f"{layout.DATA}/"):
        if entry.key.endswith(".parquet"):
            yield entry


def _recorded(store: Versions, before: datetime) -> Iterator[tuple[tuple[str, str], str]]:
    """Old recorded results and roll-ups with their run key and source."""
    for entry in store.objects.walk(f"{layout.ROLLUPS}/"):
        if entry.modified < before and (rollup := results.parse_rollup(entry.key)) is not None:
            yield (rollup.run, rollup.source), entry.key
    for entry in store.objects.walk(f"{layout.RESULTS}/"):
        if entry.modified < before and (one := results.parse(entry.key)) is not None:
            yield (one.run, one.source), entry.key


def _dead_lists(store: Versions, before: datetime, gone: Collection[str]) -> Iterator[str]:
    """Lists of recorded results none of which is left."""
    for one in results.lists(store.objects):
        if one.value is not None and _older(store, one.key, before):
            left = (each for each in one.value if each not in gone and store.objects.stat(each) is not None)
            if next(left, None) is None:
                yield from (copies.key_of_copy(one.key), one.key)


def _older(store: Versions, key: str, before: datetime) -> bool:
    entry = store.objects.stat(key)
    return entry is not None and entry.modified < before


def clean(
    store: Versions,
    grace_s: float,
    quarantine: bool = False,
    keep_versions_s: float = KEEP_VERSIONS_S,
) -> CleanReport:
    """Deletes, if older than `grace_s` seconds: versions before a removal of their run, versions with the
    same rows as a later one, versions replaced more than `keep_versions_s` ago, and their receipts, manifests
    of which no kept version or marker holds a source, Parquet files that no kept version, marker or manifest
    names, catalogs but the newest, and staging folders of killed calls.

    Kept versions are readable as RUN@vN; the last tombstone stays for its number, and the last version of
    each content that an acknowledgement refers to. A record of deleted versions is written before they are
    deleted; the next call completes a killed one. Recorded results of kept versions stay, also those of
    removed runs that are to be kept. Nothing is deleted of a run with a lost or damaged version or manifest,
    which may have held any of its files, or with quarantined objects; `quarantine` deletes these first,
    whatever their age.
    """
    now = store.objects.clock()
    before = now - timedelta(seconds=grace_s)
    versions_before = min(before, now - timedelta(seconds=keep_versions_s))
    files = bytes_ = 0
    if quarantine:
        files, bytes_ = _delete(store.objects, list(store.objects.walk(f"{layout.QUARANTINE}/")))
    listed = store
    if isinstance(store.objects, RemoteObjects):  # a folder is looked at as it is
        listed = copy(store)
        listed.objects = ListedObjects(store.objects)
    planned = plan(listed, before, versions_before)
    replaced_records = _record(store, planned)
    for keys in planned.in_order:
        found = [entry for _, entry in listed.objects.stat_many(keys) if entry]
        deleted, freed = _delete(store.objects, found)
        files, bytes_ = files + deleted, bytes_ + freed
    store.objects.delete(replaced_records)
    deleted, freed = _delete_staging(store.folder / layout.STAGING, before)
    files, bytes_ = files + deleted, bytes_ + freed
    delete_unused()
    store.forget()
    return CleanReport(files, bytes_, len(planned.versions), tuple(sorted(map(store.name, planned.skipped))))


def _record(store: Versions, planned: Plan) -> list[str]:
    """Writes a record for each run that loses versions; the keys of the earlier records."""
    by_run: dict[str, list[str]] = {run: [] for run in planned.gone}
    for key in (key for keys in planned.in_order for key in keys):
        if (run := layout.run_of(key)) in by_run:
            by_run[run].append(key)
    return [
        key
        for run, (numbers, names) in planned.gone.items()
        for key in cleaned.write(store.objects, run, numbers, names, by_run[run])
    ]


def _delete(objects: Objects, found: Sequence[Entry]) -> tuple[int, int]:
    """Deletes objects; their number and bytes."""
    objects.delete([entry.key for entry in found])
    return len(found), sum(entry.bytes for entry in found)


def _delete_staging(folder: Path, before: datetime) -> tuple[int, int]:
    """Deletes leftovers of killed calls in the staging folder; their number and bytes.

    They are unlocked, or entirely older than the grace period.
    """
    files = bytes_ = 0
    for path in folder.iterdir() if folder.is_dir() else ():
        with suppress(FileNotFoundError):  # another clean deletes it, too
            inside = (path, *path.rglob("*"))
            if not is_unused(path) and max(one.stat().st_mtime for one in inside) >= before.timestamp():
                continue
            size = sum(one.stat().st_size for one in inside if one.is_file())
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            files, bytes_ = files + 1, bytes_ + size
    return files, bytes_
