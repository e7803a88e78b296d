"""Reading: published versions of runs, the newest of all runs, and commits that were never published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.errors import DamagedRunError, TwError, UnknownName, WarehouseError
from tracewarehouse.storage import (
    copies,
    layout,
    manifests,
    markers,
    objects,
    pushed,
    results,
    run_index,
    run_list,
)
from tracewarehouse.storage.codec import decode_brief, decode_version, unsealed
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.mirror import Mirror
from tracewarehouse.storage.model import (
    Brief,
    Json,
    PendingSource,
    Problem,
    RankSource,
    RunVersion,
    TableFile,
    UnreadableRun,
)
from tracewarehouse.storage.objects import FileRef, LocalFiles, LocalObjects, Objects, names_in
from tracewarehouse.storage.results import Recorded
from tracewarehouse.storage.run_index import Entry, IndexedRuns, Newest

# Up to this many versions are read directly: listing and reading the catalog takes two requests.
_FEW = 2
# A writing command writes a new catalog when more versions than this are newer.
_NEWER = 32

Describe: TypeAlias = Callable[[RunVersion], Json]


class Overview:
    """What is listed of all runs. The catalog is read once: an old one only costs requests."""

    def __init__(self, store: Versions) -> None:
        self.store = store
        self._catalog: IndexedRuns | None = None
        self._copy: IndexedRuns | None = None

    def listed(self, prefix: str = "") -> dict[str, Newest]:
        """Run key → its newest version, tombstones included."""
        stored, prefix = self.store.objects, prefix.lower()
        # Receipts first: a version that is published meanwhile is not taken for lost.
        receipts = () if self.store.is_remote else tuple(stored.walk(f"{layout.RECEIPTS}/{prefix}"))
        return newest_versions(stored.walk(f"{layout.RUNS}/{prefix}"), receipts)

    def briefs(self, prefix: str = "") -> tuple[Brief, ...]:
        """The newest version of each run in brief, by run key; without removed and unreadable runs."""
        listed = self.listed(prefix)
        found = {run: entry.brief for run, entry in self._cataloged(listed).items()}
        for run, data in self._read(listed, found):
            with suppress(TwError):
                found[run] = self.store.brief_of(run, listed[run].number, data)
        return tuple(found[run] for run in sorted(found) if not found[run].tombstone)

    def versions(self, prefix: str = "") -> tuple[tuple[RunVersion, ...], tuple[UnreadableRun, ...]]:
        """The newest version of each run by run key, without removed runs; and the runs that are damaged."""
        listed = self.listed(prefix)
        found = [self._version(run, listed[run], data) for run, data in self._read(listed)]
        versions = tuple(one for one in found if isinstance(one, RunVersion) and not one.tombstone)
        return versions, tuple(one for one in found if isinstance(one, UnreadableRun))

    def update_catalog(self, describe: Describe, listed: Mapping[str, Newest] | None = None) -> bool:
        """Writes a new catalog if many versions are newer than the last; True if this call wrote one.

        `listed`: what `listed` returns, if it was called already.
        """
        listed = self.listed() if listed is None else listed
        if len(listed) <= _NEWER:
            return False
        catalog = self._catalog = run_index.read(self.store.objects)
        if catalog.rows > run_index.ROWS or len(listed) - len(catalog.of(listed)) <= _NEWER:
            return False
        found, _ = self.entries(describe, listed)
        return run_index.write(self.store.objects, catalog.number + 1, found)

    def entries(
        self, describe: Describe, listed: Mapping[str, Newest] | None = None
    ) -> tuple[dict[str, Entry], tuple[UnreadableRun, ...]]:
        """Each run with its row as `describe` gives it, removed runs included; and the damaged runs.

        `listed`: what `listed` returns, if it was called already.
        """
        listed = self.listed() if listed is None else listed
        known = self._cataloged(listed)
        found, unreadable = dict(known), []
        for run, data in self._read(listed, known):
            version = self._version(run, listed[run], data)
            if isinstance(version, UnreadableRun):
                unreadable.append(version)
            else:
                row = None if version.tombstone else describe(version)
                found[run] = Entry(version.brief, listed[run].bytes or 0, row)
        if self.store.is_remote and len(found) > max(len(known), _FEW):
            run_index.write_copy(self.store.folder, found)
        return {run: found[run] for run in sorted(found)}, tuple(unreadable)

    def _cataloged(self, listed: Mapping[str, Newest]) -> dict[str, Entry]:
        """The entries of the versions that the catalog or the user's copy of an earlier list has."""
        found: dict[str, Entry] = {}
        if self.store.is_remote:
            self._copy = self._copy or run_index.read_copy(self.store.folder)
            found = self._copy.of(listed)
        if len(listed) - len(found) > _FEW:
            self._catalog = self._catalog or run_index.read(self.store.objects)
            found |= self._catalog.of(listed)
        return found

    def _version(self, run: str, newest: Newest, data: bytes | None) -> RunVersion | UnreadableRun:
        try:
            return self.store.newest_of(run, newest.number, data)
        except TwError as error:
            why = error.message.removeprefix(f"run {run} is damaged: ")
            why = why.removeprefix(f"{self.store.objects.url}/")
            return UnreadableRun(self.store.name(run), layout.version(run, newest.number), why, error.hint)

    def _read(
        self, listed: Mapping[str, Newest], known: Collection[str] = ()
    ) -> Iterator[tuple[str, bytes | None]]:
        """The bytes of the newest version of each run that is not known; None if they were read before."""
        todo = [run for run in sorted(listed) if run not in known]
        cached = {run for run in todo if self.store.is_cached(run, listed[run].number)}
        keys = {layout.version(run, listed[run].number): run for run in todo if run not in cached}
        yield from ((run, None) for run in sorted(cached))
        yield from ((keys[key], data) for key, data in self.store.objects.get_many(keys))


def catalog_problems(store: Versions) -> Iterator[Problem]:
    """The catalogs that readers may use and that are damaged, or differ from a version that they describe."""
    listed = store.overview.listed()
    for number in run_index.numbers(store.objects)[: run_index.KEPT]:
        key = layout.catalog(number)
        try:
            entries = run_index.decode(store.objects.get(key)).of(listed)
        except FileNotFoundError:  # a clean just deleted it
            continue
        except (ValueError, TwError) as error:
            yield Problem("", key, str(error))
            continue
        for run, entry in entries.items():
            with suppress(TwError):  # a damaged version is reported by itself
                if store.brief_of(run, entry.brief.number) != entry.brief:
                    yield Problem("", key, f"differs from {entry.brief.run}@v{entry.brief.number}")
                    break


def list_problems(store: Versions) -> Iterator[Problem]:
    """The list of versions for readers over HTTP, if it is damaged; a warehouse may have none."""
    with suppress(FileNotFoundError):
        try:
            run_list.decode(store.objects.get(layout.LATEST), "list of versions")
        except TwError as error:
            yield Problem("", layout.LATEST, error.message)


def newest_versions(
    versions: Iterable[objects.Entry], receipts: Iterable[objects.Entry] = ()
) -> dict[str, Newest]:
    """Run key → its newest version by the listed objects, also one of which only the receipt is left."""
    found: dict[str, Newest] = {}
    for run, number, _ in _numbered(receipts, layout.RECEIPTS, layout.receipt_number):
        if run not in found or number > found[run].number:
            found[run] = Newest(number, None)
    for run, number, size in _numbered(versions, layout.RUNS, layout.version_number):
        if run not in found or number >= found[run].number:
            found[run] = Newest(number, size)
    return found


def _numbered(
    listed: Iterable[objects.Entry], folder: str, number_in: Callable[[str], int | None]
) -> Iterator[tuple[str, int, int]]:
    for entry in listed:
        run, _, name = entry.key.removeprefix(f"{folder}/").partition("/")
        number = number_in(name)
        if number is not None and layout.is_run_key(run):
            yield run, number, entry.bytes


class Versions:
    """The stored runs as readers see them. Versions are cached, because they never change."""

    def __init__(self, objects: Objects, warehouse_id: str = "") -> None:
        self.objects = objects
        self.files: LocalFiles = (
            objects if isinstance(objects, LocalObjects) else Mirror(objects, warehouse_id)
        )
        self._read: dict[tuple[str, int], RunVersion] = {}
        self._briefs: dict[tuple[str, int], Brief] = {}
        self._unreadable: tuple[UnreadableRun, ...] | None = None
        # Whether this process published versions that it has not listed yet; see `Store.list_new_versions`.
        self.has_new_versions = False
        self.overview = Overview(self)

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

    def has_copy(self, file: TableFile) -> bool:
        """Whether a data file is on this machine, by its size; makes no request."""
        try:
            return (self.folder / file.path).stat().st_size == file.bytes
        except OSError:
            return False

    def fetch(self, files: Iterable[TableFile], again: bool = False) -> dict[str, str]:
        """Makes data files readable at their `path` while this process runs; key → problem of the others."""
        return self.files.fetch((FileRef(file.path, file.bytes, file.sha256) for file in files), again)

    def versions(self, run: str) -> tuple[int, ...]:
        """The numbers of the published versions of a run, ascending, tombstones included."""
        names = names_in(self.objects, layout.versions(run))
        numbers = (layout.version_number(name) for name in names)
        return tuple(sorted(number for number in numbers if number is not None))

    def numbers(self, run: str) -> tuple[int, ...]:
        """The numbers of the versions of a run, ascending, with those of lost versions."""
        # Receipts first: a version that is published meanwhile is not taken for lost.
        names = names_in(self.objects, layout.receipts(run))
        receipts = {number for name in names if (number := layout.receipt_number(name)) is not None}
        return tuple(sorted(receipts.union(self.versions(run))))

    def newest_number(self, run: str) -> int:
        """The number of the newest version, 0 without one.

        In a folder that of a lost version, too, whose receipt is left; in an object store, a second request
        for each question is not worth it: publishing and `verify` look for lost versions.
        """
        return max(self.versions(run) if self.is_remote else self.numbers(run), default=0)

    def is_cached(self, run: str, number: int) -> bool:
        """Whether the version was read before."""
        return (layout.versions(run), number) in self._read

    def get(self, run: str, number: int, data: bytes | None = None) -> RunVersion:
        """A version by its number; raises UnknownName if it does not exist, WarehouseError if damaged.

        `data` are its bytes, if they were read already.
        """
        key = (layout.versions(run), number)
        if key not in self._read:
            version = self.decoded(run, number, data)
            self._check_place(version.run, version.number, run, number)
            self._read[key] = version
        return self._read[key]

    def decoded(self, run: str, number: int, data: bytes | None = None) -> RunVersion:
        """The version in the file of a number, whatever run and number it contains."""
        return decode_version(*self._bytes(run, number, data))

    def _check_place(self, stored_run: str, stored_number: int, run: str, number: int) -> None:
        if (layout.versions(stored_run), stored_number) != (layout.versions(run), number):
            path = self.objects.describe(layout.version(run, number))
            raise WarehouseError(
                f"{path}: damaged version: it is {stored_run}@v{stored_number}",
                hints.fill("run {}", hints.call("verify")),
            )

    def _bytes(self, run: str, number: int, data: bytes | None = None) -> tuple[bytes, str]:
        """A version's bytes and path."""
        name = layout.version(run, number)
        try:
            return data or self.objects.get(name), self.objects.describe(name)
        except FileNotFoundError:
            known = [f"{run}@v{other}" for other in self.versions(run)]
            raise UnknownName("version", f"{run}@v{number}", known) from None

    def brief(self, run: str) -> Brief | None:
        """The newest version in brief, None if the run does not exist or was removed; far cheaper to read."""
        number = self.newest_number(run)
        brief = self.brief_of(run, number) if number else None
        return None if brief is None or brief.tombstone else brief

    def brief_of(self, run: str, number: int, data: bytes | None = None) -> Brief:
        """The newest version, which has this number, in brief; raises DamagedRunError."""
        key = (layout.versions(run), number)
        if key in self._read:
            self._briefs[key] = self._read[key].brief
        elif key not in self._briefs:
            with self._newest(run, number):
                brief = decode_brief(*self._bytes(run, number, data))
                self._check_place(brief.run, brief.number, run, number)
            self._briefs[key] = brief
        return self._briefs[key]

    @contextmanager
    def _newest(self, run: str, number: int) -> Iterator[None]:
        """Turns damage of the newest version of a run into a DamagedRunError."""
        hint = hints.repair(run)
        try:
            yield
        except UnknownName:
            path = self.objects.describe(layout.version(run, number))
            raise DamagedRunError(f"run {run} is damaged: {path}: version missing", hint) from None
        except WarehouseError as error:
            raise DamagedRunError(f"run {run} is damaged: {error.message}", hint) from error

    def briefs(self, prefix: str = "") -> tuple[Brief, ...]:
        """The briefs of the runs whose names begin with `prefix` in any case, without unreadable ones."""
        return self.overview.briefs(prefix)

    def readable(self, run: str) -> tuple[RunVersion, ...]:
        """The versions of a run that can be read, oldest first, tombstones included; skips damaged ones."""
        found = []
        for number in self.versions(run):
            with suppress(TwError):
                found.append(self.get(run, number))
        return tuple(found)

    def newest(self, run: str) -> RunVersion | None:
        """The newest version of a run, None if the run does not exist or was removed."""
        version = self.head(run)
        return None if version.number == 0 or version.tombstone else version

    def runs(self, prefix: str = "") -> tuple[str, ...]:
        """The names of the runs that begin with `prefix`, sorted; opens no other run."""
        names = (brief.run for brief in self.briefs(prefix))
        return tuple(sorted(name for name in names if name.startswith(prefix)))

    def present(self, prefix: str = "") -> tuple[RunVersion, ...]:
        """The newest version of every run whose name begins with `prefix` in any case.

        Runs that cannot be read are left out; `unreadable` has them.
        """
        found, unreadable = self.overview.versions(prefix)
        if not prefix:
            self._unreadable = unreadable
        return found

    def entries(self, describe: Describe) -> tuple[Entry, ...]:
        """Every run, removed ones included, with its row by `describe`; reads only what no catalog has.

        Runs that cannot be read are left out; `unreadable` has them.
        """
        found, self._unreadable = self.overview.entries(describe)
        return tuple(found.values())

    def unreadable(self) -> tuple[UnreadableRun, ...]:
        """The runs that the last call of `present` or `entries` left out because they cannot be read."""
        if self._unreadable is None:
            self.present()
        return self._unreadable or ()

    def name(self, key: str) -> str:
        """The spelling of a run in its receipts or readable versions, newest first; else the key."""
        for number in reversed(self.numbers(key)):
            with suppress(OSError, ValueError, KeyError, TypeError):
                return str(unsealed(self.objects.get(layout.receipt(key, number)))["head"]["run"])
            with suppress(TwError):
                return self.get(key, number).run
        return key

    def run_keys(self, prefix: str = "") -> tuple[str, ...]:
        """The keys of all runs that were ever published and begin with `prefix` in any case, sorted."""
        folders = (layout.RUNS,) if self.is_remote else (layout.RUNS, layout.RECEIPTS)
        keys = {key for folder in folders for key in self.keys(folder)}
        return tuple(sorted(key for key in keys if key.startswith(prefix.lower())))

    def keys(self, folder: str) -> tuple[str, ...]:
        """The run keys under one of the folders of `_tw`, sorted; ignores foreign names."""
        return tuple(name for name in self.objects.folders(f"{folder}/") if layout.is_run_key(name))

    def spelling(self, run: str) -> str:
        """The stored spelling of a run name, the name itself if there is no such run."""
        version = self.newest(run)
        return version.run if version else run

    def head(self, run: str) -> RunVersion:
        """The newest version, which may be a tombstone; version 0 if nothing was ever published.

        Raises DamagedRunError if that version is damaged or lost.
        """
        return self.newest_of(run, self.newest_number(run))

    def head_to_write(self, run: str) -> RunVersion:
        """As `head`; a version that was lost from an object store is noticed, too."""
        return self.newest_of(run, max(self.numbers(run), default=0))

    def newest_of(self, run: str, number: int, data: bytes | None = None) -> RunVersion:
        """The newest version, which has this number; raises DamagedRunError."""
        if not number:
            return RunVersion(run, 0, (), {}, None, "", "")
        with self._newest(run, number):
            return self.get(run, number, data)

    def forget(self) -> None:
        """Clears the cache: after a clean, versions may be gone."""
        self._read.clear()
        self._briefs.clear()
        self._unreadable = None

    # Committed, not published

    def committed(self, run: str, rank: int, uid: str) -> RankSource | None:
        """An intact, unpublished commit of this source, left by a killed call; else None."""
        return next((one for one in self._unpublished(run, rank) if one.uid == uid), None)

    def unpublished(self, run: str) -> tuple[RankSource, ...]:
        """Every source whose commit is intact and was never published; each manifest is read once."""
        return tuple(self._unpublished(run))

    def _unpublished(self, run: str, rank: int | None = None) -> Iterator[RankSource]:
        """The sources of manifests that no version names; of one rank if given."""
        names = [
            name
            for name in manifests.names(self.objects, run)
            if name.intent == "now" and (rank is None or name.first <= rank <= name.last)
        ]
        history = self.readable(run) if names else ()
        known = {source.manifest for version in history for source in version.sources}
        settled = markers.held_or_dropped(history)
        todo = [name.text for name in names if name.text not in known]
        found: list[RankSource] = []
        for manifest in manifests.read_many(self.objects, run, todo):
            if isinstance(manifest, WarehouseError):
                if rank is not None:
                    raise manifest
                continue  # `verify` reports it
            of_rank = (source for source in manifest.sources if rank in (None, source.rank))
            found += (source for source in of_rank if source.name not in settled)
        missing = self.missing_files(found)
        yield from (one for one in found if missing.isdisjoint(file.path for file in one.files))

    def missing_files(self, sources: Iterable[RankSource]) -> frozenset[str]:
        """The files of these sources that are missing or of another size; lists folders of several files."""
        sizes = {file.path: file.bytes for source in sources for file in source.files}
        folders = Counter(key.rpartition("/")[0] for key in sizes) if self.is_remote else Counter()
        listed = [folder for folder, files in folders.items() if files > 1]
        found = {entry.key: entry for folder in listed for entry in self.objects.walk(f"{folder}/")}
        others = (key for key in sizes if key.rpartition("/")[0] not in listed)
        found |= {key: entry for key, entry in self.objects.stat_many(others) if entry is not None}
        return frozenset(key for key in sizes if key not in found or found[key].bytes != sizes[key])

    def missing_file(self, sources: Iterable[RankSource]) -> str | None:
        """A file of these sources that is missing or of another size; None if there is none."""
        return min(self.missing_files(sources), default=None)

    def remember(self, version: RunVersion) -> None:
        """Keeps a version that this process just published, so that it is not read again."""
        self._read[layout.versions(version.run), version.number] = version
        self.has_new_versions = True

    def headers(self, sources: Iterable[RankSource]) -> dict[str, str]:
        """The header (JSON) of each source, by the source's name, from the manifests.

        Raises WarehouseError if a manifest is missing or damaged.
        """
        return manifests.headers(self.objects, sources)

    # Pending sources

    def pending(self, run: str) -> tuple[PendingSource, ...]:
        """The pending sources of a run, by rank."""
        marked = markers.stored(self.objects, run)
        settled = markers.held_or_dropped(self.readable(run)) if marked else frozenset()
        return markers.pending_sources(self.objects, run, [one for one in marked if one.name not in settled])

    def pending_runs(self) -> dict[str, tuple[PendingSource, ...]]:
        """Run → its pending sources, for every run that has any, published or not."""
        found = {key: self.pending(key) for key in self.keys(layout.WAITING)}
        return {waits[0].source.run: waits for waits in found.values() if waits}

    # Pushed commits

    def pushed(self, run: str) -> tuple[PendingSource, ...]:
        """The sources of pushed commits that no seal has published; raises DamagedRunError."""
        names = pushed.names(self.objects, run)
        return pushed.PushedCommits(self.objects, run).unsealed(names, self.head(run)) if names else ()

    def pushed_bounds(self, run: str) -> tuple[tuple[int, int], ...]:
        """First and last rank of each pushed commit that no seal has published, by the names alone."""
        names = pushed.names(self.objects, run)
        unsealed = frozenset(pushed.unsealed(names, self.head(run)) if names else ())
        return tuple(sorted({(name.first, name.last) for name in names if name.text in unsealed}))

    # Recorded results

    def recorded(self, analysis: str, version: int) -> dict[Recorded, str]:
        """The recorded results of an analysis, for all runs, and the key of each file."""
        return dict(results.of_analysis(self.objects, analysis, version))

    def rollups(self, analysis: str, version: int) -> dict[Recorded, str]:
        """The roll-ups of recorded results of an analysis, and the key of each file."""
        return dict(results.rollups_of(self.objects, analysis, version))

    def results_of(self, versions: Iterable[RunVersion]) -> dict[str, int]:
        """Run → number of results recorded of that version, for runs that have any."""
        runs = {(run_key(version.run), version.source): version.run for version in versions}
        found = ((one.run, one.source) for one, _ in results.every(self.objects))
        return dict(Counter(runs[one] for one in found if one in runs))

    def kept(self) -> tuple[RunVersion, ...]:
        """The versions of removed runs with recorded results, as tombstones, by run and number.

        Damaged ones are left out.
        """
        versions = (one.value for one in self.kept_versions())
        return tuple(replace(version, tombstone=True) for version in versions if version is not None)

    def kept_versions(self) -> Iterator[copies.Stored[RunVersion]]:
        """The kept versions of removed runs, and their problems."""
        for run in self.keys(layout.KEPT):
            yield from copies.every(self.objects, f"{layout.KEPT}/{run}", self._decode_kept)

    def _decode_kept(self, key: str, data: bytes) -> RunVersion:
        version = decode_version(data, self.objects.describe(key))
        if layout.kept_version(version.run, version.number) != key:
            raise ValueError(f"it is {version.run}@v{version.number}")
        return version
