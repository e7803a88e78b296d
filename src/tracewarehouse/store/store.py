"""The store of a warehouse: units are committed, versions of runs published, readers see versions only."""

from __future__ import annotations

import secrets
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tracewarehouse.errors import TwError, UnknownName, WarehouseError
from tracewarehouse.store import layout, results, root, units
from tracewarehouse.store.blobs import Blobs, LocalBlobs
from tracewarehouse.store.codec import decode_brief, decode_version, encode_version
from tracewarehouse.store.faults import disk_errors
from tracewarehouse.store.merge import Merged, merge
from tracewarehouse.store.model import (
    Brief,
    Changes,
    CleanReport,
    Problem,
    Published,
    RunVersion,
    Staged,
    Unit,
    Waiting,
)
from tracewarehouse.store.names import run_key
from tracewarehouse.store.results import Recorded


class Store:
    """A warehouse's files. Any number of processes may hold one; there is no lock and no server."""

    def __init__(self, folder: Path, identity: root.Identity, tool: str = "") -> None:
        self.root = folder
        self.id = identity.id
        self.salt = bytes.fromhex(identity.salt)
        self.tool = tool
        self.blobs: Blobs = LocalBlobs(folder)
        self._read: dict[tuple[str, int], RunVersion] = {}
        self._briefs: dict[tuple[str, int], Brief] = {}

    @classmethod
    def create(cls, folder: Path, tool: str = "") -> Store:
        """Makes a warehouse of a new or empty folder; one that is there already is opened."""
        return cls(folder, root.read(folder) if root.exists(folder) else root.create(folder), tool)

    open_or_create = create

    @classmethod
    def open(cls, folder: Path, tool: str = "") -> Store:
        """Opens a warehouse; raises WarehouseError where there is none, SchemaVersionError where too new."""
        return cls(folder, root.read(folder), tool)

    # Reading

    def path(self, relative: str) -> Path:
        """The path of a file that a version or unit names."""
        return self.blobs.path(relative)

    def versions(self, run: str) -> tuple[int, ...]:
        """The numbers of the published versions of a run, ascending, tombstones included."""
        names = self.blobs.list(layout.versions(run))
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
            return self.blobs.get(name), str(self.path(name))
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
        """Every version of a run that is still kept, oldest first, tombstones included."""
        return tuple(self.get(run, number) for number in self.versions(run))

    def newest(self, run: str) -> RunVersion | None:
        """What readers see of a run: its newest version, None where there is none or it was removed."""
        version = self._head(run)
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
        """The run keys under one of the manifest folders, sorted; foreign names are passed over."""
        return tuple(sorted(name for name in self.blobs.list(folder) if layout.is_run_key(name)))

    def spelling(self, run: str) -> str:
        """The name as it is stored, where a run of that name is there in other letter case."""
        version = self.newest(run)
        return version.run if version else run

    def _head(self, run: str) -> RunVersion:
        """The newest version, a tombstone too; version 0 where nothing was ever published."""
        numbers = self.versions(run)
        if numbers:
            return self.get(run, numbers[-1])
        return RunVersion(run, 0, (), {}, None, "", self.tool)

    # Writing

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A folder on the warehouse's own disk for Parquet in the making; gone afterwards."""
        folder = self.root / layout.STAGING / secrets.token_hex(8)
        with disk_errors(self.root):
            folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def shell(self, name: str) -> bytes | None:
        """A file over no run that was kept, None where there is none of that name."""
        try:
            return self.blobs.get(f"{layout.SHELL}/{name}")
        except FileNotFoundError:
            return None

    def keep_shell(self, name: str, data: bytes) -> None:
        """Keeps a file over no run in place of those of other names; raises WarehouseError."""
        with disk_errors(self.root):
            others = [other for other in self.blobs.list(layout.SHELL) if other != name]
            self.blobs.put({f"{layout.SHELL}/{name}": data})
            self.blobs.delete(f"{layout.SHELL}/{other}" for other in others)

    def commit(self, staged: Sequence[Staged]) -> tuple[Unit, ...]:
        """Makes units of what is staged, in the order given; the staged files are moved or packed.

        Raises WarehouseError where the disk is full or refuses, or a file is not what it should be.
        """
        with disk_errors(self.root):
            return units.commit(self.blobs, staged)

    def commit_unit(self, staged: Staged) -> Unit:
        """Makes a unit of one rank."""
        return self.commit([staged])[0]

    def committed(self, run: str, rank: int, uid: str) -> Unit | None:
        """A unit of just this source that a broken-off call left, whole and never published; else None."""
        names = [name for name in units.names(self.blobs, run, rank) if name.startswith(f"{uid}-")]
        settled = units.settled(self.history(run)) if names else frozenset()
        for name in names:
            if name not in settled:
                unit = units.read(self.blobs, run, rank, name)
                if self._missing_file(unit) is None:
                    return unit
        return None

    def publish(self, run: str, changes: Changes) -> Published:
        """Applies a call's own changes to the newest version of a run; see `merge` for the rules.

        Raises RunExists where the name is taken in another spelling, UnknownName where there is
        nothing to change, WarehouseError where the disk refuses; nothing is half published.
        """
        _check(run, changes)
        with disk_errors(self.root):
            for unit in changes.units:
                self._check_files(unit)
            units.mark(self.blobs, changes)
            try:
                merged = self._settle(run, changes)
            except TwError:
                units.unmark(self.blobs, run, changes.units)
                raise
            if changes.expected_ranks is not None:
                units.unmark(self.blobs, run, merged.settled)
        return Published(merged.version, merged.outcome, merged.pending)

    def _settle(self, run: str, changes: Changes) -> Merged:
        """Merges and writes until no other call was quicker."""
        while True:
            # Markers first, then the newest version: a marker that is gone was published before.
            waiting = self.waiting(run) if changes.expected_ranks is not None else ()
            base = self._head(run)
            if not changes.units and (base.number == 0 or base.tombstone):
                raise UnknownName("run", run, self.runs())
            merged = merge(base, changes, waiting)
            if merged.version is None:
                return merged
            version = replace(merged.version, created_at=units.now(), tool=self.tool)
            if self._put(version):
                return replace(merged, version=version)

    def _put(self, version: RunVersion) -> bool:
        key = layout.version(version.run, version.number)
        return self.blobs.put_if_absent(key, encode_version(version))

    def relabel(self, run: str, labels: Mapping[str, str | None]) -> Published:
        """Sets labels, takes away those that are None; raises UnknownName."""
        return self.publish(run, Changes(labels=labels))

    def remove(self, run: str, keep_results: bool = False) -> RunVersion:
        """Publishes the run's tombstone, and drops what waits; raises UnknownName where nothing is there.

        Older versions stay readable as RUN@vN until `clean` takes them. With `keep_results` what was recorded
        of the newest one stays for good.
        """
        with disk_errors(self.root):
            newest = self.newest(run)
            if keep_results and newest is not None:
                self.blobs.put({layout.kept_version(run, newest.number): encode_version(newest)})
            while True:
                waiting = self.waiting(run)
                head = self._head(run)
                gone = head.number == 0 or head.tombstone
                if gone and not waiting:
                    raise UnknownName("run", run, self.runs())
                dropped = tuple(one.unit.name for one in waiting)
                version = RunVersion(
                    head.run, head.number + 1, (), {}, None, units.now(), self.tool, True, dropped
                )
                if self._put(version):
                    units.unmark(self.blobs, run, [one.unit for one in waiting])
                    return version

    # Recorded results

    def keep_results(self, files: Mapping[Recorded, Path]) -> None:
        """Takes finished Parquet files in as recorded results; each appears whole or not at all."""
        with disk_errors(self.root):
            self.blobs.adopt({one.key(units.sha256(path)): path for one, path in files.items()})

    def recorded(self, analysis: str, version: int) -> dict[Recorded, str]:
        """What is recorded of an analysis, for whichever runs, and the key of each file."""
        return dict(results.of_analysis(self.blobs, analysis, version))

    def results_of(self, versions: Iterable[RunVersion]) -> dict[str, int]:
        """Run → how many results are recorded of that version of it, for those that have some."""
        runs = {(run_key(version.run), version.source): version.run for version in versions}
        found = ((one.run, one.source) for one, _ in results.every(self.blobs))
        return dict(Counter(runs[one] for one in found if one in runs))

    def kept(self) -> tuple[RunVersion, ...]:
        """The versions of removed runs whose recorded results are kept, as tombstones, by run and number."""
        keys = [
            f"{layout.KEPT}/{run}/{name}"
            for run in self.keys(layout.KEPT)
            for name in sorted(self.blobs.list(f"{layout.KEPT}/{run}"))
            if layout.version_number(name) is not None
        ]
        versions = (decode_version(self.blobs.get(key), str(self.path(key))) for key in keys)
        return tuple(replace(version, tombstone=True) for version in versions)

    def drop_kept(self, run: str) -> None:
        """Keeps nothing of a removed run any longer; `clean` takes its results."""
        with disk_errors(self.root):
            self.blobs.delete([f"{layout.kept(run)}/{name}" for name in self.blobs.list(layout.kept(run))])

    def acknowledge(self, key: str, data: bytes) -> None:
        """Keeps an acknowledgement, in place of an older one of that key."""
        with disk_errors(self.root):
            self.blobs.put({f"{layout.ACKNOWLEDGED}/{key}.json": data})

    def acknowledged(self) -> tuple[bytes, ...]:
        """Every acknowledgement."""
        names = sorted(self.blobs.list(layout.ACKNOWLEDGED))
        return tuple(self.blobs.get(f"{layout.ACKNOWLEDGED}/{name}") for name in names)

    def forget_acknowledged(self, key: str) -> None:
        """Takes an acknowledgement back."""
        with disk_errors(self.root):
            self.blobs.delete([f"{layout.ACKNOWLEDGED}/{key}.json"])

    # Waiting for --expect-ranks

    def waiting(self, run: str) -> tuple[Waiting, ...]:
        """The units of a run that wait for others, by rank."""
        marked = units.markers(self.blobs, run)
        settled = units.settled(self.history(run)) if marked else frozenset()
        return tuple(units.waiting(self.blobs, run, one) for one in marked if one.name not in settled)

    def waiting_runs(self) -> dict[str, tuple[Waiting, ...]]:
        """Run → its waiting units, for every run that has some, published or not."""
        found = {key: self.waiting(key) for key in self.keys(layout.UNITS)}
        return {waiting[0].unit.run: waiting for waiting in found.values() if waiting}

    # Keeping house

    def verify(self) -> list[Problem]:
        """What is wrong with the stored files: manifests, presence, sizes, rows, checksums, numbering."""
        from tracewarehouse.store.verify import verify

        with disk_errors(self.root):
            return verify(self)

    def clean(self, grace_s: float = 86_400.0) -> CleanReport:
        """Takes away what no kept version needs and what is older than `grace_s` seconds."""
        from tracewarehouse.store.clean import clean

        with disk_errors(self.root):
            return clean(self, grace_s)

    def forget(self) -> None:
        """Drops what was read: after a clean, versions may be gone."""
        self._read.clear()
        self._briefs.clear()

    def _missing_file(self, unit: Unit) -> str | None:
        for file in unit.files:
            found = self.blobs.stat(file.path)
            if found is None or found.bytes != file.bytes:
                return file.path
        return None

    def _check_files(self, unit: Unit) -> None:
        missing = self._missing_file(unit)
        if missing is not None:
            raise WarehouseError(
                f"{self.path(missing)}: gone before rank {unit.rank} was published", "ingest it again"
            )


def _check(run: str, changes: Changes) -> None:
    """Slips of the caller, not of a user."""
    ranks = [unit.rank for unit in changes.units]
    if len(set(ranks)) != len(ranks) or any(unit.run != run for unit in changes.units):
        raise ValueError("a publish brings each rank of its run once")
