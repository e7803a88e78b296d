"""Reading: published versions of runs, the newest of all runs, and commits that were never published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec.structs import astuple, replace

from tracewarehouse import hints
from tracewarehouse.errors import DamagedRunError, StoreUnavailable, TwError, UnknownName, WarehouseError
from tracewarehouse.storage import codec, commits, layout, results
from tracewarehouse.storage.codec import Entry
from tracewarehouse.storage.layout import CommitName, run_key
from tracewarehouse.storage.mirror import LocalFiles, Mirror
from tracewarehouse.storage.model import (
    Brief,
    Json,
    LateSources,
    ManySources,
    PendingSource,
    RankSource,
    RunVersion,
    Summary,
    UnreadableRun,
)
from tracewarehouse.storage.objects import Entry as Listed
from tracewarehouse.storage.objects import LocalObjects, Objects
from tracewarehouse.storage.results import Recorded, RecordedAnalysis
from tracewarehouse.temp_folders import lease_start

# A writing command writes a new list in a folder when more entries than this are newer.
_NEWER = 32
# In an object store, a new list is written when more than one entry in 100 is newer: readers get few entries,
# and the list of hundreds of runs is not written with each version.
_LIST_SHARE = 100
# From this many runs on the list is in parts, of which an update writes those of its runs: from 1,000 runs on
# it rewrites at most a hundredth of the index.
_MANY = 900
# An entry that changed this short before it was listed may change again without another time of change.
_RACY_NS = 2 * 10**9
# Of so few runs the folders of recorded results are listed, of more that of all runs.
FEW_RUNS = 32
# How often the writer of a list adds what others published meanwhile, before it leaves that to them.
_LOOKS = 5

Describe: TypeAlias = Callable[[RunVersion], Json]


class Versions:
    """The stored runs as readers see them. Versions are cached, because they never change."""

    def __init__(self, objects: Objects, warehouse_id: str = "") -> None:
        self.objects = objects
        self.files: LocalFiles = (
            objects if isinstance(objects, LocalObjects) else Mirror(objects, warehouse_id)
        )
        self._read: dict[tuple[str, int], RunVersion] = {}
        # The SHA-256 of the object of each version that was read.
        self._digests: dict[tuple[str, int], str] = {}
        self._list: dict[str, Entry] | None = None
        # The objects of the list that may exist.
        self._list_keys: Collection[str] = layout.LISTS
        self._unreadable: tuple[UnreadableRun, ...] | None = None
        # Runs of which this process published versions that are not in the list; see `list_new_versions`.
        self._published: set[str] = set()

    @property
    def folder(self) -> Path:
        """The folder of the warehouse on this machine; of a remote one, a folder of this user for it."""
        return self.files.folder

    def folder_with(self, key: str) -> Path:
        """`folder`, with the current state of an object that is read there, if it exists."""
        self.files.path(key)
        return self.files.folder

    @property
    def is_remote(self) -> bool:
        """Whether the objects are in an object store, and local files are copies."""
        return not isinstance(self.objects, LocalObjects)

    def path(self, key: str) -> Path:
        """The local path of an object, from a remote warehouse that of a copy."""
        return self.files.path(key)

    # One run

    def versions(self, run: str) -> tuple[int, ...]:
        """The numbers of the published versions of a run, ascending, tombstones included.

        On a web server only that of the newest one.
        """
        if not self.objects.is_listable:
            entry = self.entry(run)
            return () if entry is None else (entry.number,)
        names = self.objects.names(layout.versions(run))
        numbers = (layout.version_number(name) for name in names)
        return tuple(sorted(number for number in numbers if number is not None))

    def entry(self, run: str) -> Entry | None:
        """The index entry of a run; None without one, or if it is damaged, which `verify` reports."""
        if not self.objects.is_listable:
            return self._known().get(run_key(run))
        key = layout.entry(run)
        with suppress(FileNotFoundError, ValueError):
            return codec.decode_entry(self.objects.get(key), key)
        return None

    def newest_number(self, run: str) -> int:
        """The number of the newest version, of a lost one, too; 0 without one."""
        # The entry first: a version that is published meanwhile is not taken for lost.
        entry = self.entry(run)
        return max(self.versions(run)[-1:] + ((entry.number,) if entry else ()), default=0)

    def get(self, run: str, number: int, data: bytes | None = None) -> RunVersion:
        """A version by its number; raises UnknownName if it does not exist, WarehouseError if damaged.

        `data` are its bytes, if they were read already.
        """
        key = (layout.versions(run), number)
        if key not in self._read:
            version = self.decoded(run, number, data)
            if (layout.versions(version.run), version.number) != key:
                path = self.objects.describe(layout.version(run, number))
                raise WarehouseError(
                    f"{path}: damaged version: it is {version.run}@v{version.number}",
                    hints.fill("run {}", hints.call("verify")),
                )
            self._read[key] = version
        return self._read[key]

    def decoded(self, run: str, number: int, data: bytes | None = None) -> RunVersion:
        """The version in the object of a number, whatever run and number it contains."""
        name = layout.version(run, number)
        try:
            data = self.objects.get(name) if data is None else data
        except FileNotFoundError:
            known = [f"{run}@v{other}" for other in self.versions(run)]
            raise UnknownName("version", f"{run}@v{number}", known) from None
        self._digests[layout.versions(run), number] = codec.digest(data)
        return codec.decode_version(self.objects, data, self.objects.describe(name))

    def digest(self, run: str, number: int) -> str:
        """The SHA-256 of the object of a version, "" if it is missing."""
        key = (layout.versions(run), number)
        if key not in self._digests:
            with suppress(FileNotFoundError):
                self._digests[key] = codec.digest(self.objects.get(layout.version(run, number)))
        return self._digests.get(key, "")

    def readable(self, run: str, whole: bool = False) -> tuple[RunVersion, ...]:
        """The versions of a run that can be read, oldest first, tombstones included; skips damaged ones.

        `whole`: the lists of many files are read, too.
        """
        found = []
        for number in self.versions(run):
            with suppress(TwError):
                version = self.get(run, number)
                if whole and isinstance(version.sources, ManySources):
                    version.sources.loaded  # noqa: B018
                found.append(version)
        return tuple(found)

    def newest(self, run: str) -> RunVersion | None:
        """The newest version of a run, None if the run does not exist or was removed."""
        version = self.head(run)
        return None if version.number == 0 or version.tombstone else version

    def existing(self, run: str) -> RunVersion:
        """The newest version of a run; raises UnknownName if readers see no such run."""
        if (version := self.newest(run)) is None:
            raise UnknownName("run", run, self.runs())
        return version

    def head(self, run: str) -> RunVersion:
        """The newest version, which may be a tombstone; version 0 if nothing was ever published.

        Raises DamagedRunError if that version is damaged or lost.
        """
        return self.newest_of(run, self.newest_number(run))

    def newest_of(self, run: str, number: int, data: bytes | None = None) -> RunVersion:
        """The newest version, which has this number; raises DamagedRunError."""
        if not number:
            return RunVersion(run, 0, (), {}, None, "", "")
        try:
            return self.get(run, number, data)
        except UnknownName:
            what = f"{self.objects.describe(layout.version(run, number))}: version missing"
            raise DamagedRunError(f"run {run} is damaged: {what}", hints.repair(run)) from None
        except WarehouseError as error:
            raise DamagedRunError(f"run {run} is damaged: {error.message}", hints.repair(run)) from error

    def spelling(self, run: str) -> str:
        """The stored spelling of a run name, the name itself if there is no such run."""
        version = self.newest(run)
        return version.run if version else run

    def name(self, key: str) -> str:
        """The spelling of a run in its index entry or newest readable version; else the key."""
        entry = self.entry(key)
        if entry is not None:
            return entry.run
        return next((version.run for version in reversed(self.readable(key))), key)

    def remember(self, version: RunVersion, digest: str) -> None:
        """Keeps a version that this process just published, so that it is not read again."""
        key = (layout.versions(version.run), version.number)
        self._read[key], self._digests[key] = version, digest
        self._published.add(version.run)

    def forget(self) -> None:
        """Clears the cache: after a clean, versions may be gone."""
        self._read.clear()
        self._digests.clear()
        self._list = self._unreadable = None

    # All runs

    def keys(self, folder: str) -> tuple[str, ...]:
        """The run keys under a folder that has a folder for each run, sorted; ignores foreign names."""
        return tuple(name for name in self.objects.folders(f"{folder}/") if layout.is_run_key(name))

    def run_keys(self, prefix: str = "") -> tuple[str, ...]:
        """The keys of all runs that were ever published and begin with `prefix` in any case, sorted."""
        if not self.objects.is_listable:
            keys: Iterable[str] = self._known()
        else:
            entries = self.objects.names(layout.ENTRIES)
            keys = {*self.keys(layout.VERSIONS), *(name.removesuffix(".json") for name in entries)}
        prefix = prefix.lower()
        return tuple(sorted(key for key in keys if key.startswith(prefix) and layout.is_run_key(key)))

    def briefs(self, prefix: str = "") -> tuple[Brief, ...]:
        """The runs whose names begin with `prefix` in any case, by run key; without unreadable ones."""
        found, _ = self._entries(prefix)
        return tuple(entry.brief for entry in found.values() if not entry.tombstone)

    def runs(self, prefix: str = "") -> tuple[str, ...]:
        """The names of the runs that begin with `prefix`, sorted; opens no other run."""
        names = (brief.run for brief in self.briefs(prefix))
        return tuple(sorted(name for name in names if name.startswith(prefix)))

    def entries(self, describe: Describe) -> tuple[Entry, ...]:
        """Every run, removed ones included, with its row by `describe`; reads only what the list lacks.

        Runs that cannot be read are left out; `unreadable` has them.
        """
        found, self._unreadable = self._entries("", describe)
        return tuple(found.values())

    def present(self) -> tuple[RunVersion, ...]:
        """The newest version of every run.

        Runs that cannot be read are left out; `unreadable` has them.
        """
        return self.listing(lambda _: False)[0]

    def listing(self, is_enough: Callable[[Summary], bool]) -> tuple[tuple[RunVersion, ...], list[Entry]]:
        """The same as `present`, with the entries of all runs; reads no version whose summary is enough."""
        entries, lost = self._entries()
        found: dict[str, RunVersion] = {}
        for run, entry in entries.items():
            if (said := entry.summary) is not None and is_enough(said):
                sources = LateSources(said, partial(self.newest_of, entry.run, entry.number))
                found[run] = RunVersion(entry.run, entry.number, sources, entry.labels, **entry.head)
        wanted = {
            run: each.number for run, each in entries.items() if not each.tombstone and run not in found
        }
        read, unreadable = self._newest_versions(wanted)
        found |= read
        self._unreadable = tuple(sorted((*lost, *unreadable.values()), key=lambda each: each.key))
        return tuple(found[run] for run in sorted(found) if not found[run].tombstone), [*entries.values()]

    def unreadable(self) -> tuple[UnreadableRun, ...]:
        """The runs that the last call of `present` or `entries` left out because they cannot be read."""
        if self._unreadable is None:
            self.present()
        return self._unreadable or ()

    def _newest_versions(
        self, numbers: Mapping[str, int]
    ) -> tuple[dict[str, RunVersion], dict[str, UnreadableRun]]:
        """The version of that number of each run, many read at once; and the runs that are damaged."""
        found: dict[str, RunVersion] = {}
        unreadable: dict[str, UnreadableRun] = {}
        cached = {run for run, number in numbers.items() if (layout.versions(run), number) in self._read}
        keys = {layout.version(run, numbers[run]): run for run in sorted(numbers.keys() - cached)}
        read = ((keys[key], data) for key, data in self.objects.get_many(keys))
        for run, data in (*((run, None) for run in sorted(cached)), *read):
            try:
                found[run] = self.newest_of(run, numbers[run], data)
            except TwError as error:
                why = error.message.removeprefix(f"run {run} is damaged: ")
                why = why.removeprefix(f"{self.objects.url}/")
                key = layout.version(run, numbers[run])
                unreadable[run] = UnreadableRun(self.name(run), key, why, error.hint)
        return found, unreadable

    def _known(self, parts: Collection[str] = layout.PARTS) -> dict[str, Entry]:
        """The entries in the list or in these parts of it, read once: an old one only costs requests.

        On a web server, raises WarehouseError if the list is missing or damaged.
        """
        if self._list is None:
            self._list = {}
            for key, data in self._read_list(parts).items():
                try:
                    self._list |= codec.decode_list(data, self.objects.describe(key)).by_key()
                except TwError:
                    if not self.objects.is_listable:
                        raise
        return self._list

    def _read_list(self, parts: Collection[str]) -> dict[str, bytes]:
        """The undivided list; without one, which an earlier release writes beside parts, these parts."""
        # A web server may refuse what is missing.
        missing = (FileNotFoundError,) if self.objects.is_listable else (FileNotFoundError, StoreUnavailable)
        if layout.LIST in self._list_keys:
            with suppress(*missing):
                return {layout.LIST: self.objects.get(layout.LIST)}
        read = self.objects.get_many(key for key in parts if key in self._list_keys)
        found = {key: data for key, data in read if data is not None}
        if not self.objects.is_listable and len(found) < len(parts):
            raise WarehouseError(
                f"{self.objects.url}: the warehouse has no list of runs for web servers",
                hints.fill("write it where the warehouse is stored: {}", hints.call("refresh")),
            )
        return found

    def listed(self, prefix: str = "") -> dict[str, tuple[str, int | None]]:
        """Run key → what changes with its newest version, and the number of that by its name.

        In a folder, the number is None: to look for it costs more than the time of change of the versions.
        The first is "" for a run without index entry.
        """
        stamps: dict[str, str] = {}
        numbers: dict[str, int] = {}
        if isinstance(self.objects, LocalObjects):
            names = self.objects.times(layout.INDEX)
            self._list_keys = {key for key in layout.LISTS if key.rpartition("/")[2] in names}
            changed = self.objects.times(layout.VERSIONS)
            stamps = dict.fromkeys(changed, "")
            for name, (time_ns, size) in self.objects.times(layout.ENTRIES).items():
                run = name.removesuffix(".json")
                stamps[run] = f"{time_ns} {size} {changed.get(run, ('',))[0]}"
            runs = sorted(run for run in stamps if run.startswith(prefix) and layout.is_run_key(run))
            return {run: (stamps[run], None) for run in runs}
        list_keys = set(layout.LISTS if prefix else ())
        if prefix:
            folders = (f"{layout.ENTRIES}/{prefix}", ""), (f"{layout.VERSIONS}/{prefix}", "")
        else:  # one listing of what lies between
            folders = (("_tw/", f"{layout.INDEX}/list"),)  # type: ignore[assignment]
        for start, after in folders:
            for entry in self.objects.walk(start, after):
                if entry.key.startswith(f"{layout.ENTRIES}/"):
                    stamps[_name(entry).removesuffix(".json")] = (
                        entry.etag or f"{entry.modified} {entry.bytes}"
                    )
                elif entry.key.startswith(f"{layout.VERSIONS}/"):
                    number = layout.version_number(_name(entry))
                    run = entry.key.split("/")[2]
                    numbers[run] = max(number or 0, numbers.get(run, 0))
                elif entry.key in layout.LISTS:
                    list_keys.add(entry.key)
        self._list_keys = list_keys
        found = {run: (f"{stamp} {numbers.get(run)}", numbers.get(run, 0)) for run, stamp in stamps.items()}
        found |= {run: ("", number) for run, number in numbers.items() if run not in stamps}
        return {run: found[run] for run in sorted(found) if layout.is_run_key(run)}

    def _entries(
        self, prefix: str = "", describe: Describe | None = None
    ) -> tuple[dict[str, Entry], tuple[UnreadableRun, ...]]:
        """Run key → its newest version, tombstones included; and the damaged runs."""
        prefix = prefix.lower()
        if not self.objects.is_listable:
            return {run: each for run, each in self._known().items() if run.startswith(prefix)}, ()
        listed = self.listed(prefix)
        return self._entries_of(listed, self._known() if len(listed) > 1 else {}, describe)

    def _entries_of(
        self,
        listed: Mapping[str, tuple[str, int | None]],
        known: Mapping[str, Entry],
        describe: Describe | None,
    ) -> tuple[dict[str, Entry], tuple[UnreadableRun, ...]]:
        """The same of the listed runs, of which these entries are known."""
        found = {run: known[run] for run, (stamp, _) in listed.items() if stamp and run in known}
        found = {run: entry for run, entry in found.items() if entry.stamp == listed[run][0]}
        numbers: dict[str, int] = {}
        keys = {layout.entry(run): run for run in listed if run not in found}
        for key, data in self.objects.get_many(keys):
            run, entry = keys[key], None
            with suppress(ValueError):
                entry = codec.decode_entry(data, key) if data is not None else None
            stamp, number = listed[run]
            newest = max(self.versions(run), default=0) if number is None else number
            if entry is not None and entry.number == newest:
                found[run] = replace(entry, stamp=stamp)
                if entry.tombstone or describe is None:
                    continue
            if newest or entry is not None:
                numbers[run] = max(newest, entry.number if entry is not None else 0)
        versions, unreadable = self._newest_versions(numbers)
        for run, version in versions.items():
            entry = found.get(run) or codec.entry_of(version, self.digest(run, version.number))
            if describe is not None and not version.tombstone:
                row = msgspec.Raw(msgspec.json.encode(describe(version)))
                entry = replace(entry, row=row, summary=version.summary)
            found[run] = entry
        found = {run: found[run] for run in sorted(found) if run not in unreadable}
        return found, tuple(unreadable[run] for run in sorted(unreadable))

    def numbers(self) -> dict[str, tuple[int, bool]]:
        """Run key → number of its newest version, and whether that is a tombstone; without damaged runs."""
        return {run: (entry.number, entry.tombstone) for run, entry in self._entries()[0].items()}

    # The list of all runs

    @property
    def is_listed_in_parts(self) -> bool:
        """Whether this process has seen that the list of all runs is in parts."""
        return self._list_keys == {*layout.PARTS}

    def list_runs(self, describe: Describe) -> None:
        """Writes the list of all runs, until it has every version that can be listed."""
        for _ in range(_LOOKS):
            now_ns, listed = self._now_ns(), self.listed()
            entries, _ = self._entries_of(listed, self._complete(), describe)
            keys = (layout.LIST,) if len(entries) < _MANY else layout.PARTS
            self._write_list(entries, keys, now_ns)
            # Last: parts are read if there is no undivided list.
            self.objects.delete(key for key in self._list_keys if key not in keys)
            self._list_keys = {*keys}
            # Of two writers at once the second adds what is missing.
            now_listed = {run: stamp for run, (stamp, _) in self.listed().items()} if self.is_remote else {}
            if all(run in entries and entries[run].stamp == stamp for run, stamp in now_listed.items()):
                return

    def _now_ns(self) -> int:
        """The time by the clock of the folder; 0 in an object store, where stamps have no time."""
        return 0 if self.is_remote else int(self.objects.clock().timestamp() * 1e9)

    def _complete(self, parts: Collection[str] = layout.PARTS) -> dict[str, Entry]:
        """The entries in the list or in these parts; those of an earlier release have no `head`."""
        return {run: entry for run, entry in self._known(parts).items() if entry.head}

    def _write_list(self, entries: Mapping[str, Entry], keys: Collection[str], now_ns: int) -> None:
        """Writes the list or parts of it, which have exactly these entries."""
        listed: dict[str, list[Entry]] = {key: [] for key in keys}
        for run, entry in entries.items():
            is_racy = now_ns and _changed_ns(entry) > now_ns - _RACY_NS
            key = layout.LIST if layout.LIST in listed else layout.list_part(run)
            listed[key].append(replace(entry, stamp="") if is_racy else entry)
        self.objects.put({key: codec.encode_list(each) for key, each in listed.items()})
        self._list = None

    def list_new_versions(self, describe: Describe) -> None:
        """Adds what this process published to the list: to its parts, or if many versions are newer than it.

        `describe` gives a version's row of `runs`. Without new versions it does nothing. Failures are
        ignored: the next call adds the versions, too.
        """
        if not self._published:
            return
        published, self._published = self._published, set()
        with suppress(TwError, OSError):
            self._list = None
            now_ns, listed = self._now_ns(), self.listed()
            parts: Collection[str] = layout.PARTS
            most_newer = len(listed) // _LIST_SHARE if self.is_remote else _NEWER
            if self.is_listed_in_parts:
                parts = {layout.list_part(run) for run in published}
                listed = {run: each for run, each in listed.items() if layout.list_part(run) in parts}
                most_newer = len(listed) // 2  # more are newer in a folder that was copied
            elif not self.is_remote and len(listed) <= _NEWER:
                return
            known = self._complete(parts)
            newer = sum(run not in known or known[run].stamp != stamp for run, (stamp, _) in listed.items())
            if newer > most_newer:
                if self.is_listed_in_parts:  # only some of them were read
                    self._list = None
                self.list_runs(describe)
            elif self.is_listed_in_parts:
                self._write_list(self._entries_of(listed, known, describe)[0], parts, now_ns)

    # Committed, not published

    def unpublished_names(self, run: str) -> tuple[CommitName, ...]:
        """The commits of a run that no version has held: left by a killed call, or waiting."""
        names = commits.names(self.objects, run)
        settled = self.settled(run) if names else ()
        return tuple(name for name in names if name.text not in settled)

    def usable_since(self) -> datetime:
        """A call that holds a lease may use commits that others left since then: `clean` spares them.

        While a clean runs, which may have begun before the lease, there are none. Ask before reading them.
        """
        now, staging = datetime.now(UTC), self.folder / layout.STAGING
        leases = (lease_start(path, now.timestamp()) for path in staging.glob(f"{layout.CLEANING}*"))
        return now if any(lease is not None for lease in leases) else now - commits.FRESH

    def unpublished(self, run: str, names: Iterable[CommitName] | None = None) -> tuple[RankSource, ...]:
        """The usable sources of unpublished commits (None: all) that are intact; what waits is there once."""
        since = self.usable_since()
        names = self.unpublished_names(run) if names is None else names
        found: dict[str, RankSource] = {}
        for commit in commits.read_many(self.objects, run, [name.text for name in names]):
            if isinstance(commit, WarehouseError):  # `verify` reports it
                continue
            if layout.is_waiting(commit.name) or datetime.fromisoformat(commit.committed_at) > since:
                found |= {source.name: source for source in commit.sources}
        missing = self.missing_files(found.values())
        return tuple(one for one in found.values() if missing.isdisjoint(file.path for file in one.files))

    def settled(self, run: str) -> frozenset[str]:
        """The names of the commits that a version has held or that wait no more."""
        history = self.readable(run)
        held = {name for version in history for name in (*version.summary.commits, *version.retired)}
        held |= {key.rpartition("/")[2] for version in history[-1:] for key in version.taken_out}
        # What waits is a commit that was written once more.
        return frozenset((*held, *(name.replace(".wait.", ".") for name in held)))

    def stored_sizes(self, keys: Collection[str]) -> dict[str, int]:
        """Key → the size of each object that exists; in an object store, folders of several are listed."""
        folders = Counter(key.rpartition("/")[0] for key in keys) if self.is_remote else Counter()
        listed = [folder for folder, files in folders.items() if files > 1]
        found = {entry.key: entry.bytes for folder in listed for entry in self.objects.walk(f"{folder}/")}
        others = (key for key in keys if key.rpartition("/")[0] not in listed)
        return found | {key: entry.bytes for key, entry in self.objects.stat_many(others) if entry}

    def missing_files(self, sources: Iterable[RankSource]) -> frozenset[str]:
        """The files of these sources that are missing or of another size."""
        sizes = {file.path: file.bytes for source in sources for file in source.files}
        found = self.stored_sizes(sizes)
        return frozenset(key for key, size in sizes.items() if found.get(key) != size)

    def headers(self, sources: Iterable[RankSource]) -> dict[str, str]:
        """The header (JSON) of each source, by the source's name, from the commits.

        Raises WarehouseError if a commit is missing or damaged.
        """
        return commits.headers(self.objects, sources)

    # Waiting sources

    def pending(self, run: str) -> tuple[PendingSource, ...]:
        """The waiting sources of a run, by rank; those of damaged commits are left out."""
        names = [name for name in commits.names(self.objects, run) if name.waits]
        if not names:
            return ()
        waits = commits.unsettled(names, self.head(run))
        sources = commits.waiting(self.objects, run, [name.text for name in waits])
        return tuple(one for one in sources if isinstance(one, PendingSource))

    def pending_runs(self) -> dict[str, tuple[PendingSource, ...]]:
        """Run → its waiting sources, for every readable run that has any, published or not."""
        if not self.objects.is_listable:
            return {}
        found: dict[str, tuple[PendingSource, ...]] = {}
        for name in self.objects.names(layout.WAITING):
            key = name.removesuffix(".json")
            with suppress(DamagedRunError):
                waits = self.pending(key) if layout.is_run_key(key) else ()
                if waits:
                    found[waits[0].source.run] = waits
        return found

    # Recorded results

    def recorded(self, analysis: str, version: int) -> dict[Recorded, str]:
        """The recorded results of an analysis, for all runs, and the key of each file."""
        return dict(results.every(self.objects, layout.results(analysis, version)))

    def with_rollups(
        self, analysis: str, version: int, runs: Iterable[str] | None = None
    ) -> tuple[dict[Recorded, str], dict[Recorded, str]]:
        """The recorded results of an analysis, and their roll-ups, and the key of each file.

        `runs`: keys of the runs, None for all.
        """
        folder = layout.results(analysis, version)
        folders = [folder] if runs is None else [f"{folder}/{run}" for run in runs]
        return results.by_kind(entry.key for at in folders for entry in self.objects.walk(f"{at}/"))

    def recorded_of(
        self, analysis: RecordedAnalysis, versions: Sequence[RunVersion]
    ) -> dict[str, tuple[Recorded, Listed]]:
        """Run → its recorded result by this definition, of the versions that have one, and the file.

        One without tables that were derived later counts, too, until the run is recorded again.
        """
        folder = layout.results(analysis.contract.name, analysis.contract.version)
        folders = (
            [folder] if len(versions) > FEW_RUNS else [f"{folder}/{run_key(each.run)}" for each in versions]
        )
        listed = (entry for at in folders for entry in self.objects.walk(f"{at}/"))
        present = {recorded: entry for entry in listed if (recorded := results.parse(entry.key))}
        earlier = {(one.run, one.effective, one.source): one for one in sorted(present, key=astuple)}
        found: dict[str, Recorded | None] = {}
        for each in versions:
            known = (key for key in analysis.possible_keys(each) if key in present)
            same = run_key(each.run), analysis.definition(each), each.source
            found[each.run] = next(known, earlier.get(same))
        return {run: (key, present[key]) for run, key in found.items() if key is not None}

    def recorded_files(self, analysis: RecordedAnalysis, versions: Sequence[RunVersion]) -> dict[str, Path]:
        """Run → the local file of its recorded result by this definition; without damaged ones."""
        found = self.recorded_of(analysis, versions)
        self.files.copy(entry.key for _, entry in found.values())
        paths = {run: (key, self.path(entry.key)) for run, (key, entry) in found.items()}
        return {run: path for run, (key, path) in paths.items() if results.is_intact(path, key)}

    def results_of(self, versions: Iterable[RunVersion]) -> dict[str, int]:
        """Run → number of results recorded of that version, for runs that have any."""
        runs = {(run_key(version.run), version.source): version.run for version in versions}
        found = ((one.run, one.source) for one, _ in results.every(self.objects))
        return dict(Counter(runs[one] for one in found if one in runs))

    def kept(self, entries: Iterable[Entry] | None = None) -> tuple[RunVersion, ...]:
        """The versions of removed runs whose recorded results are kept, as tombstones, by run and number.

        Damaged ones are left out. `entries`: those of all runs, if they are known.
        """
        found = []
        for entry in self._entries()[0].values() if entries is None else entries:
            for number in entry.results_of:
                with suppress(TwError):
                    found.append(replace(self.get(entry.run, number), tombstone=True))
        return tuple(found)


def _name(entry: Listed) -> str:
    return entry.key.rpartition("/")[2]


def _changed_ns(entry: Entry) -> int:
    """When the object of an entry in a folder was written."""
    return int(entry.stamp.partition(" ")[0] or 0)
