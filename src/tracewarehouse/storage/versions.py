"""Reading: the published versions of runs, and what was committed and never published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tracewarehouse.errors import UnknownName
from tracewarehouse.storage import layout, manifests, results, waiting
from tracewarehouse.storage.codec import OldVersion, decode_brief, decode_version
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.local import LocalObjects
from tracewarehouse.storage.model import Brief, RankSource, RunVersion, Waiting
from tracewarehouse.storage.objects import Objects, names_in
from tracewarehouse.storage.results import Recorded


class Versions:
    """What is stored, as readers see it. Versions that were read are remembered: they never change."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.objects: Objects = LocalObjects(folder)
        self._read: dict[tuple[str, int], RunVersion] = {}
        self._briefs: dict[tuple[str, int], Brief] = {}

    def path(self, relative: str) -> Path:
        """The path of a file that a version or manifest names."""
        return self.root / relative

    def versions(self, run: str) -> tuple[int, ...]:
        """The numbers of the published versions of a run, ascending, tombstones included."""
        names = names_in(self.objects, layout.versions(run))
        numbers = (layout.version_number(name) for name in names)
        return tuple(sorted(number for number in numbers if number is not None))

    def get(self, run: str, number: int) -> RunVersion:
        """A version by its number; raises UnknownName where it is not there."""
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
        """The newest version in brief, None where there is none or it was removed; far cheaper to read."""
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
        """Like `present`, each in brief."""
        keys = (key for key in self.keys(layout.RUNS) if key.startswith(prefix.lower()))
        briefs = (self.brief(key) for key in keys)
        return tuple(brief for brief in briefs if brief)

    def history(self, run: str) -> tuple[RunVersion, ...]:
        """Every version of a run that is still kept, oldest first, tombstones included.

        What `tw upgrade` left of format 1 is not among them.
        """
        return tuple(self._history(run))

    def _history(self, run: str) -> Iterator[RunVersion]:
        for number in self.versions(run):
            try:
                yield self.get(run, number)
            except OldVersion:
                continue

    def newest(self, run: str) -> RunVersion | None:
        """What readers see of a run: its newest version, None where there is none or it was removed."""
        version = self.head(run)
        return None if version.number == 0 or version.tombstone else version

    def runs(self, prefix: str = "") -> tuple[str, ...]:
        """The names of the runs that readers see and that begin with `prefix`, sorted; opens no other run."""
        names = (brief.run for brief in self.briefs(prefix))
        return tuple(sorted(name for name in names if name.startswith(prefix)))

    def present(self, prefix: str = "") -> tuple[RunVersion, ...]:
        """The newest version of every run that readers see; with a prefix of those so named in any case."""
        keys = (key for key in self.keys(layout.RUNS) if key.startswith(prefix.lower()))
        versions = (self.newest(key) for key in keys)
        return tuple(version for version in versions if version)

    def keys(self, folder: str) -> tuple[str, ...]:
        """The run keys under one of the folders of `_tw`, sorted; foreign names are passed over."""
        return tuple(name for name in self.objects.folders(f"{folder}/") if layout.is_run_key(name))

    def spelling(self, run: str) -> str:
        """The name as it is stored, where a run of that name is there in other letter case."""
        version = self.newest(run)
        return version.run if version else run

    def head(self, run: str) -> RunVersion:
        """The newest version, a tombstone too; version 0 where nothing was ever published."""
        numbers = self.versions(run)
        return self.get(run, numbers[-1]) if numbers else RunVersion(run, 0, (), {}, None, "", "")

    def forget(self) -> None:
        """Drops what was read: after a clean, versions may be gone."""
        self._read.clear()
        self._briefs.clear()

    # Committed, not published

    def committed(self, run: str, rank: int, uid: str) -> RankSource | None:
        """A whole, never published commit of just this source, as a call that died leaves it; else None."""
        return next((one for one in self._left(run, rank) if one.uid == uid), None)

    def unpublished(self, run: str) -> tuple[RankSource, ...]:
        """Every source whose commit is whole and was never published; each manifest is read once."""
        return tuple(self._left(run))

    def _left(self, run: str, rank: int | None = None) -> Iterator[RankSource]:
        """The sources of manifests that no version has taken a source from; of one rank, if asked."""
        names = [
            name
            for name in manifests.names(self.objects, run)
            if name.intent == "now" and (rank is None or name.first <= rank <= name.last)
        ]
        history = self.history(run) if names else ()
        known = {source.manifest for version in history for source in version.sources}
        settled = waiting.settled(history)
        for name in names:
            for source in () if name.text in known else manifests.read(self.objects, run, name.text).sources:
                wanted = rank in (None, source.rank) and source.name not in settled
                if wanted and self.missing_file([source]) is None:
                    yield source

    def missing_file(self, sources: Iterable[RankSource]) -> str | None:
        """A file of these sources that is gone or of another size; None where all are there."""
        for path, size in {file.path: file.bytes for source in sources for file in source.files}.items():
            found = self.objects.stat(path)
            if found is None or found.bytes != size:
                return path
        return None

    def headers(self, sources: Iterable[RankSource]) -> dict[str, str]:
        """The header (JSON) of each source, by the source's name, from the manifests.

        Raises WarehouseError where a manifest is missing or damaged.
        """
        return manifests.headers(self.objects, sources)

    # Waiting for --expect-ranks

    def waiting(self, run: str) -> tuple[Waiting, ...]:
        """The sources of a run that wait for others, by rank."""
        marked = waiting.markers(self.objects, run)
        settled = waiting.settled(self.history(run)) if marked else frozenset()
        return waiting.waiting(self.objects, run, [one for one in marked if one.name not in settled])

    def waiting_runs(self) -> dict[str, tuple[Waiting, ...]]:
        """Run → its waiting sources, for every run that has some, published or not."""
        found = {key: self.waiting(key) for key in self.keys(layout.WAITING)}
        return {waits[0].source.run: waits for waits in found.values() if waits}

    # Recorded results

    def recorded(self, analysis: str, version: int) -> dict[Recorded, str]:
        """What is recorded of an analysis, for whichever runs, and the key of each file."""
        return dict(results.of_analysis(self.objects, analysis, version))

    def results_of(self, versions: Iterable[RunVersion]) -> dict[str, int]:
        """Run → how many results are recorded of that version of it, for those that have some."""
        runs = {(run_key(version.run), version.source): version.run for version in versions}
        found = ((one.run, one.source) for one, _ in results.every(self.objects))
        return dict(Counter(runs[one] for one in found if one in runs))

    def kept(self) -> tuple[RunVersion, ...]:
        """The versions of removed runs whose recorded results are kept, as tombstones, by run and number."""
        keys = [
            f"{layout.KEPT}/{run}/{name}"
            for run in self.keys(layout.KEPT)
            for name in names_in(self.objects, f"{layout.KEPT}/{run}")
            if layout.version_number(name) is not None
        ]
        versions = (decode_version(self.objects.get(key), str(self.path(key))) for key in keys)
        return tuple(replace(version, tombstone=True) for version in versions)
