"""Reading: published versions of runs, and commits that were never published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tracewarehouse.errors import UnknownName
from tracewarehouse.storage import layout, manifests, markers, results
from tracewarehouse.storage.changes import PendingSource
from tracewarehouse.storage.codec import OldVersion, decode_brief, decode_version
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.local import LocalObjects
from tracewarehouse.storage.model import Brief, RankSource, RunVersion
from tracewarehouse.storage.objects import Objects, names_in
from tracewarehouse.storage.results import Recorded


class Versions:
    """The stored runs as readers see them. Versions are cached, because they never change."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.objects: Objects = LocalObjects(folder)
        self._read: dict[tuple[str, int], RunVersion] = {}
        self._briefs: dict[tuple[str, int], Brief] = {}

    def path(self, relative: str) -> Path:
        """The path of a key."""
        return self.root / relative

    def versions(self, run: str) -> tuple[int, ...]:
        """The numbers of the published versions of a run, ascending, tombstones included."""
        names = names_in(self.objects, layout.versions(run))
        numbers = (layout.version_number(name) for name in names)
        return tuple(sorted(number for number in numbers if number is not None))

    def get(self, run: str, number: int) -> RunVersion:
        """A version by its number; raises UnknownName if it does not exist."""
        key = (layout.versions(run), number)
        if key not in self._read:
            self._read[key] = decode_version(*self._bytes(run, number))
        return self._read[key]

    def _bytes(self, run: str, number: int) -> tuple[bytes, str]:
        """A version's bytes and path."""
        name = layout.version(run, number)
        try:
            return self.objects.get(name), str(self.path(name))
        except FileNotFoundError:
            known = [f"{run}@v{other}" for other in self.versions(run)]
            raise UnknownName("version", f"{run}@v{number}", known) from None

    def brief(self, run: str) -> Brief | None:
        """The newest version in brief, None if the run does not exist or was removed; far cheaper to read."""
        numbers = self.versions(run)
        if not numbers:
            return None
        key = (layout.versions(run), numbers[-1])
        if key in self._read:
            self._briefs[key] = self._read[key].brief
        elif key not in self._briefs:
            self._briefs[key] = decode_brief(*self._bytes(run, numbers[-1]))
        return None if self._briefs[key].tombstone else self._briefs[key]

    def briefs(self, prefix: str = "") -> tuple[Brief, ...]:
        """The briefs of the runs of `present`."""
        keys = (key for key in self.keys(layout.RUNS) if key.startswith(prefix.lower()))
        briefs = (self.brief(key) for key in keys)
        return tuple(brief for brief in briefs if brief)

    def history(self, run: str) -> tuple[RunVersion, ...]:
        """Every stored version of a run, oldest first, tombstones included; none of format 1."""
        return tuple(self._history(run))

    def _history(self, run: str) -> Iterator[RunVersion]:
        for number in self.versions(run):
            try:
                yield self.get(run, number)
            except OldVersion:
                continue

    def newest(self, run: str) -> RunVersion | None:
        """The newest version of a run, None if the run does not exist or was removed."""
        version = self.head(run)
        return None if version.number == 0 or version.tombstone else version

    def runs(self, prefix: str = "") -> tuple[str, ...]:
        """The names of the runs that begin with `prefix`, sorted; opens no other run."""
        names = (brief.run for brief in self.briefs(prefix))
        return tuple(sorted(name for name in names if name.startswith(prefix)))

    def present(self, prefix: str = "") -> tuple[RunVersion, ...]:
        """The newest version of every run whose name begins with `prefix` in any case."""
        keys = (key for key in self.keys(layout.RUNS) if key.startswith(prefix.lower()))
        versions = (self.newest(key) for key in keys)
        return tuple(version for version in versions if version)

    def keys(self, folder: str) -> tuple[str, ...]:
        """The run keys under one of the folders of `_tw`, sorted; ignores foreign names."""
        return tuple(name for name in self.objects.folders(f"{folder}/") if layout.is_run_key(name))

    def spelling(self, run: str) -> str:
        """The stored spelling of a run name, the name itself if there is no such run."""
        version = self.newest(run)
        return version.run if version else run

    def head(self, run: str) -> RunVersion:
        """The newest version, which may be a tombstone; version 0 if nothing was ever published."""
        numbers = self.versions(run)
        return self.get(run, numbers[-1]) if numbers else RunVersion(run, 0, (), {}, None, "", "")

    def forget(self) -> None:
        """Clears the cache: after a clean, versions may be gone."""
        self._read.clear()
        self._briefs.clear()

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
        history = self.history(run) if names else ()
        known = {source.manifest for version in history for source in version.sources}
        settled = markers.held_or_dropped(history)
        for name in names:
            for source in () if name.text in known else manifests.read(self.objects, run, name.text).sources:
                wanted = rank in (None, source.rank) and source.name not in settled
                if wanted and self.missing_file([source]) is None:
                    yield source

    def missing_file(self, sources: Iterable[RankSource]) -> str | None:
        """A file of these sources that is missing or of another size; None if there is none."""
        for path, size in {file.path: file.bytes for source in sources for file in source.files}.items():
            found = self.objects.stat(path)
            if found is None or found.bytes != size:
                return path
        return None

    def headers(self, sources: Iterable[RankSource]) -> dict[str, str]:
        """The header (JSON) of each source, by the source's name, from the manifests.

        Raises WarehouseError if a manifest is missing or damaged.
        """
        return manifests.headers(self.objects, sources)

    # PendingSource for --expect-ranks

    def pending(self, run: str) -> tuple[PendingSource, ...]:
        """The pending sources of a run, by rank."""
        marked = markers.stored(self.objects, run)
        settled = markers.held_or_dropped(self.history(run)) if marked else frozenset()
        return markers.pending_sources(self.objects, run, [one for one in marked if one.name not in settled])

    def pending_runs(self) -> dict[str, tuple[PendingSource, ...]]:
        """Run → its pending sources, for every run that has any, published or not."""
        found = {key: self.pending(key) for key in self.keys(layout.WAITING)}
        return {waits[0].source.run: waits for waits in found.values() if waits}

    # Recorded results

    def recorded(self, analysis: str, version: int) -> dict[Recorded, str]:
        """The recorded results of an analysis, for all runs, and the key of each file."""
        return dict(results.of_analysis(self.objects, analysis, version))

    def results_of(self, versions: Iterable[RunVersion]) -> dict[str, int]:
        """Run → number of results recorded of that version, for runs that have any."""
        runs = {(run_key(version.run), version.source): version.run for version in versions}
        found = ((one.run, one.source) for one, _ in results.every(self.objects))
        return dict(Counter(runs[one] for one in found if one in runs))

    def kept(self) -> tuple[RunVersion, ...]:
        """The versions of removed runs with recorded results, as tombstones, by run and number."""
        keys = [
            f"{layout.KEPT}/{run}/{name}"
            for run in self.keys(layout.KEPT)
            for name in names_in(self.objects, f"{layout.KEPT}/{run}")
            if layout.version_number(name) is not None
        ]
        versions = (decode_version(self.objects.get(key), str(self.path(key))) for key in keys)
        return tuple(replace(version, tombstone=True) for version in versions)
