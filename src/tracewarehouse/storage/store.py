"""The store of a warehouse: sources are committed, versions of runs published, readers see versions only."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tracewarehouse.storage import layout, publish, results, root
from tracewarehouse.storage.commit import commit, earlier, groups, sha256
from tracewarehouse.storage.local import disk_errors
from tracewarehouse.storage.model import (
    Changes,
    CleanReport,
    Intent,
    Problem,
    Published,
    RankSource,
    RunVersion,
    Staged,
)
from tracewarehouse.storage.objects import names_in
from tracewarehouse.storage.results import Recorded
from tracewarehouse.storage.versions import Versions
from tracewarehouse.storage.waiting import settled


class Store(Versions):
    """A warehouse's files. Any number of processes may hold one; there is no lock and no server."""

    def __init__(self, folder: Path, identity: root.Identity, tool: str = "") -> None:
        super().__init__(folder)
        self.id = identity.id
        self.salt = bytes.fromhex(identity.salt)
        self.tool = tool

    @classmethod
    def create(cls, folder: Path, tool: str = "") -> Store:
        """Makes a warehouse of a new or empty folder; one that is there already is opened."""
        return cls(folder, root.read(folder) if root.exists(folder) else root.create(folder), tool)

    open_or_create = create

    @classmethod
    def open(cls, folder: Path, tool: str = "") -> Store:
        """Opens a warehouse; raises WarehouseError for none, SchemaVersionError for one of another format."""
        return cls(folder, root.read(folder), tool)

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

    def commit(self, staged: Sequence[Staged], intent: Intent = "now") -> tuple[RankSource, ...]:
        """Makes rank sources of what is staged, in the order given; the staged files are moved or packed.

        Up to 64 neighboring ranks of a run share one manifest. Where just these sources were committed before
        (a task that runs twice) and neither published nor left waiting, that commit is given. Any process may
        commit. Raises WarehouseError where the disk is full or refuses, or a file is not what it should be.
        """
        with disk_errors(self.root):
            found: dict[int, RankSource] = {}
            todo: list[Staged] = []
            for group in groups(staged):
                done = self._committed_before(group.members, intent)
                found |= {id(one): source for one, source in zip(group.members, done, strict=False)}
                todo += () if done else group.members
            made = commit(self.objects, todo, intent)
            found |= {id(one): source for one, source in zip(todo, made, strict=True)}
            return tuple(found[id(one)] for one in staged)

    def _committed_before(self, members: Sequence[Staged], intent: Intent) -> tuple[RankSource, ...]:
        (group,) = groups(members)
        for manifest in earlier(self.objects, group, intent):
            known = settled(self.history(group.run)) | {one.source.name for one in self.waiting(group.run)}
            left = all(source.name not in known for source in manifest.sources)
            if left and self.missing_file(manifest.sources) is None:
                return manifest.sources
        return ()

    def commit_source(self, staged: Staged) -> RankSource:
        """Makes a rank source of one rank."""
        return self.commit([staged])[0]

    def publish(self, run: str, changes: Changes) -> Published:
        """Applies a call's own changes to the newest version of a run; see `merge` for the rules.

        Raises RunExists where the name is taken in another spelling, UnknownName where there is
        nothing to change, WarehouseError where the disk refuses; nothing is half published.
        """
        with disk_errors(self.root):
            return publish.publish(self, run, changes, self.tool)

    def relabel(self, run: str, labels: Mapping[str, str | None]) -> Published:
        """Sets labels, deletes those that are None; raises UnknownName."""
        return self.publish(run, Changes(labels=labels))

    def remove(self, run: str, keep_results: bool = False) -> RunVersion:
        """Publishes the run's tombstone, and drops what waits; raises UnknownName where nothing is there.

        Older versions stay readable as RUN@vN until `clean` deletes them. With `keep_results` what was
        recorded of the newest one stays for good.
        """
        with disk_errors(self.root):
            return publish.remove(self, run, self.tool, keep_results)

    # Beside the runs

    def keep_results(self, files: Mapping[Recorded, Path]) -> None:
        """Stores finished Parquet files as recorded results; each appears whole or not at all."""
        with disk_errors(self.root):
            results.keep(self.objects, {one: (path, sha256(path)) for one, path in files.items()})

    def drop_kept(self, run: str) -> None:
        """Keeps nothing of a removed run any longer; `clean` deletes its results."""
        with disk_errors(self.root):
            names = names_in(self.objects, layout.kept(run))
            self.objects.delete([f"{layout.kept(run)}/{name}" for name in names])

    def acknowledge(self, key: str, data: bytes) -> None:
        """Keeps an acknowledgement, in place of an older one of that key."""
        with disk_errors(self.root):
            self.objects.put({f"{layout.ACKNOWLEDGED}/{key}.json": data})

    def acknowledged(self) -> tuple[bytes, ...]:
        """Every acknowledgement."""
        names = names_in(self.objects, layout.ACKNOWLEDGED)
        return tuple(self.objects.get(f"{layout.ACKNOWLEDGED}/{name}") for name in names)

    def forget_acknowledged(self, key: str) -> None:
        """Deletes an acknowledgement."""
        with disk_errors(self.root):
            self.objects.delete([f"{layout.ACKNOWLEDGED}/{key}.json"])

    # Housekeeping

    def verify(self) -> list[Problem]:
        """What is wrong with the stored files: manifests, presence, sizes, rows, checksums, numbering."""
        from tracewarehouse.storage.verify import verify

        with disk_errors(self.root):
            return verify(self)

    def clean(self, grace_s: float = 86_400.0) -> CleanReport:
        """Deletes what no kept version needs and what is older than `grace_s` seconds."""
        from tracewarehouse.storage.clean import clean

        with disk_errors(self.root):
            return clean(self, grace_s)
