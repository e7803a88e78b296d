"""Reading: published versions of runs, and commits that were never published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from tracewarehouse import hints
from tracewarehouse.errors import DamagedRunError, TwError, UnknownName, WarehouseError
from tracewarehouse.storage import copies, layout, manifests, markers, results
from tracewarehouse.storage.changes import PendingSource
from tracewarehouse.storage.codec import OldVersion, decode_brief, decode_version, unsealed
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.local import LocalObjects
from tracewarehouse.storage.mirror import Mirror
from tracewarehouse.storage.model import Brief, RankSource, RunVersion, TableFile, UnreadableRun
from tracewarehouse.storage.objects import FileRef, LocalFiles, Objects, names_in
from tracewarehouse.storage.results import Recorded


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
        # Inside `_read_at_once`.
        self._listed: Mapping[str, tuple[int, ...]] | None = None
        self._fetched: dict[str, bytes | None] = {}

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
        if self._listed is not None:
            return self._listed.get(run_key(run), ())
        # Receipts first: a version that is published meanwhile is not taken for lost.
        names = names_in(self.objects, layout.receipts(run))
        receipts = {number for name in names if (number := layout.receipt_number(name)) is not None}
        return tuple(sorted(receipts.union(self.versions(run))))

    def get(self, run: str, number: int) -> RunVersion:
        """A version by its number; raises UnknownName if it does not exist, WarehouseError if damaged."""
        key = (layout.versions(run), number)
        if key not in self._read:
            version = self.decoded(run, number)
            self._check_place(version.run, version.number, run, number)
            self._read[key] = version
        return self._read[key]

    def decoded(self, run: str, number: int) -> RunVersion:
        """The version in the file of a number, whatever run and number it contains."""
        return decode_version(*self._bytes(run, number))

    def _check_place(self, stored_run: str, stored_number: int, run: str, number: int) -> None:
        if (layout.versions(stored_run), stored_number) != (layout.versions(run), number):
            path = self.objects.describe(layout.version(run, number))
            raise WarehouseError(
                f"{path}: damaged version: it is {stored_run}@v{stored_number}",
                hints.fill("run {}", hints.call("verify")),
            )

    def _bytes(self, run: str, number: int) -> tuple[bytes, str]:
        """A version's bytes and path."""
        name = layout.version(run, number)
        try:
            data = self._fetched.pop(name, None) or self.objects.get(name)
            return data, self.objects.describe(name)
        except FileNotFoundError:
            known = [f"{run}@v{other}" for other in self.versions(run)]
            raise UnknownName("version", f"{run}@v{number}", known) from None

    def brief(self, run: str) -> Brief | None:
        """The newest version in brief, None if the run does not exist or was removed; far cheaper to read."""
        number = max(self.numbers(run), default=0)
        key = (layout.versions(run), number)
        if key in self._read:
            self._briefs[key] = self._read[key].brief
        elif key not in self._briefs and number:
            with self._newest(run, number):
                brief = decode_brief(*self._bytes(run, number))
                self._check_place(brief.run, brief.number, run, number)
            self._briefs[key] = brief
        return None if not number or self._briefs[key].tombstone else self._briefs[key]

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
        """The briefs of the runs of `present`."""
        found = []
        with self._read_at_once(prefix):
            for key in self.run_keys(prefix):
                with suppress(TwError):
                    found.append(self.brief(key))
        return tuple(brief for brief in found if brief)

    @contextmanager
    def _read_at_once(self, prefix: str) -> Iterator[None]:
        """Inside, the versions of all runs are those of one listing, and the newest are read many at once.

        A local disk answers faster one by one.
        """
        if not self.is_remote:
            yield
            return
        self._listed = listed_numbers(self.objects, prefix.lower())
        newest = ((run, numbers[-1]) for run, numbers in self._listed.items())
        names = [
            layout.version(*each) for each in newest if (layout.versions(each[0]), each[1]) not in self._read
        ]
        try:
            self._fetched = dict(self.objects.get_many(names))
            yield
        finally:
            self._listed, self._fetched = None, {}

    def history(self, run: str) -> tuple[RunVersion, ...]:
        """Every stored version of a run, oldest first, tombstones included; none of format 1."""
        return tuple(self._history(run))

    def _history(self, run: str) -> Iterator[RunVersion]:
        for number in self.versions(run):
            try:
                yield self.get(run, number)
            except OldVersion:
                continue

    def readable(self, run: str) -> tuple[RunVersion, ...]:
        """The versions of a run that can be read, oldest first; unlike `history` it skips damaged ones."""
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
        found, unreadable = [], []
        with self._read_at_once(prefix):
            for key in self.run_keys(prefix):
                try:
                    found.append(self.newest(key))
                except OldVersion:
                    raise
                except TwError as error:
                    unreadable.append(self._unreadable_run(key, error))
        if not prefix:
            self._unreadable = tuple(unreadable)
        return tuple(version for version in found if version)

    def unreadable(self) -> tuple[UnreadableRun, ...]:
        """The runs that the last call of `present` left out because they cannot be read."""
        if self._unreadable is None:
            self.present()
        return self._unreadable or ()

    def _unreadable_run(self, key: str, error: TwError) -> UnreadableRun:
        number = max(self.numbers(key), default=0)
        why = error.message.removeprefix(f"run {key} is damaged: ").removeprefix(f"{self.objects.url}/")
        return UnreadableRun(self.name(key), layout.version(key, number), why, error.hint)

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
        keys = (
            {*self.keys(layout.RUNS), *self.keys(layout.RECEIPTS)} if self._listed is None else self._listed
        )
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
        number = max(self.numbers(run), default=0)
        if not number:
            return RunVersion(run, 0, (), {}, None, "", "")
        with self._newest(run, number):
            return self.get(run, number)

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
        for name in names:
            for source in () if name.text in known else self._sources_of(run, name.text, rank is not None):
                wanted = rank in (None, source.rank) and source.name not in settled
                if wanted and self.missing_file([source]) is None:
                    yield source

    def _sources_of(self, run: str, manifest: str, strict: bool) -> tuple[RankSource, ...]:
        """The sources of a manifest; none if it is damaged, unless `strict`: `verify` reports that."""
        try:
            return manifests.read(self.objects, run, manifest).sources
        except WarehouseError:
            if strict:
                raise
            return ()

    def missing_file(self, sources: Iterable[RankSource]) -> str | None:
        """A file of these sources that is missing or of another size; None if there is none."""
        sizes = {file.path: file.bytes for source in sources for file in source.files}
        found = self.objects.stat_many(sizes)
        return next((key for key, entry in found if entry is None or entry.bytes != sizes[key]), None)

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


def listed_numbers(objects: Objects, prefix: str) -> dict[str, tuple[int, ...]]:
    """Run key → the numbers of its versions with those of lost versions, of the run keys with a prefix."""
    found: dict[str, set[int]] = {}
    # Receipts first, as in `numbers`.
    for folder, number_in in ((layout.RECEIPTS, layout.receipt_number), (layout.RUNS, layout.version_number)):
        for entry in objects.walk(f"{folder}/{prefix}"):
            run, _, name = entry.key.removeprefix(f"{folder}/").partition("/")
            number = number_in(name)
            if number is not None and layout.is_run_key(run):
                found.setdefault(run, set()).add(number)
    return {run: tuple(sorted(numbers)) for run, numbers in sorted(found.items())}
