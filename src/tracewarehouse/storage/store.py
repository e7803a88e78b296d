"""The store of a warehouse: its identity, commits of sources, versions of runs, and what readers see."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

from tracewarehouse.errors import SchemaVersionError, TwError, WarehouseError
from tracewarehouse.location import Location
from tracewarehouse.storage import layout, results, run_list
from tracewarehouse.storage.codec import FORMAT, check_understood, sealed, unsealed
from tracewarehouse.storage.manifests import now
from tracewarehouse.storage.markers import held_or_dropped
from tracewarehouse.storage.model import (
    KEEP_VERSIONS_S,
    Changes,
    CleanReport,
    Intent,
    Problem,
    Published,
    RankSource,
    RunVersion,
    Staged,
)
from tracewarehouse.storage.objects import LocalObjects, Objects, disk_errors, names_in
from tracewarehouse.storage.parquet_file import sha256
from tracewarehouse.storage.results import Recorded
from tracewarehouse.storage.versions import Describe, Versions, newest_versions
from tracewarehouse.temp_folders import locked_folder

if TYPE_CHECKING:
    from tracewarehouse.storage.commit import Group
    from tracewarehouse.storage.publish import Check
    from tracewarehouse.storage.pushed import Push


class Identity(Struct, frozen=True):
    """The content of `_tw/warehouse.json`. The salt, in hex, makes hashes of secrets unique to it."""

    format: int
    id: str
    salt: str
    created_at: str


def create(objects: Objects) -> Identity:
    """Creates a warehouse in a new or empty place, unless another process just created it.

    Raises WarehouseError if the place holds other objects, or cannot keep one of two writers from
    overwriting the other.
    """
    objects.prepare()
    restore_identity(objects)
    return read_identity(objects)


def read_identity(objects: Objects) -> Identity:
    """The identity of a warehouse; raises WarehouseError or SchemaVersionError."""
    with disk_errors(objects.url):
        try:
            data = objects.get(layout.WAREHOUSE)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise objects.absent(error) from None
    return _decode(objects, data)


def open_or_create_identity(objects: Objects) -> Identity:
    """The identity of the warehouse, which is created if there is none."""
    with disk_errors(objects.url):
        try:
            data = objects.get(layout.WAREHOUSE)
        except FileNotFoundError:
            return create(objects)
        except NotADirectoryError as error:
            raise objects.absent(error) from None
    return _decode(objects, data)


def restore_identity(objects: Objects) -> None:
    """Writes a new identity unless there is one; hashes of secrets change with the salt."""
    with disk_errors(objects.url):
        identity = Identity(FORMAT, uuid.uuid4().hex, secrets.token_hex(32), now())
        objects.put_if_absent(layout.WAREHOUSE, sealed({**asdict(identity), "must_understand": []}))


def _decode(objects: Objects, data: bytes) -> Identity:
    path = objects.describe(layout.WAREHOUSE)
    try:
        # The format first: other formats may lack all other fields.
        number = int(json.loads(data)["format"])
        if number != FORMAT:
            raise SchemaVersionError(
                f"{objects.url}: warehouse of format {number}; this release reads format {FORMAT}",
                "open it with the release that wrote it",
            )
        fields = unsealed(data)
        check_understood(fields, path)
        return Identity(**{name: fields[name] for name in Identity.__struct_fields__})
    except (ValueError, TypeError, KeyError) as error:
        raise WarehouseError(f"{path}: damaged: {error}", "restore this file from a backup") from error


class Store(Versions):
    """The stored files of a warehouse. Any number of processes may use it, without a lock or server."""

    def __init__(self, objects: Objects, identity: Identity, tool: str = "") -> None:
        super().__init__(objects, identity.id)
        self.identity = identity
        self.id = identity.id
        self.salt = bytes.fromhex(identity.salt)
        self.tool = tool

    @classmethod
    def open_or_create(cls, place: Location, tool: str = "") -> Store:
        """Opens a warehouse, or creates one in a new or empty folder or prefix of a bucket."""
        objects = objects_at(place)
        identity = open_or_create_identity(objects)
        with disk_errors(objects.url):
            objects.check_conditions()  # before anything is uploaded
        return cls(objects, identity, tool)

    @classmethod
    def open(cls, place: Location, tool: str = "") -> Store:
        """Opens a warehouse; raises WarehouseError, or SchemaVersionError for another format."""
        objects = objects_at(place)
        return cls(objects, read_identity(objects), tool)

    def __reduce__(self) -> tuple[object, ...]:
        """A worker opens the store itself: neither the salt nor what this process has read is sent."""
        return _reopened, (location_of(self.objects), self.id, self.tool)

    # Writing

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A temporary folder on the disk of the warehouse, for Parquet files that are being written."""
        with ExitStack() as held:
            with disk_errors(self.folder):
                folder = held.enter_context(locked_folder(self.new_staging_folder()))
            yield folder

    def new_staging_folder(self) -> Path:
        """The path of a temporary folder that does not exist yet, on the disk of the warehouse."""
        return self.folder / layout.STAGING / secrets.token_hex(8)

    def commit(
        self, staged: Sequence[Staged], intent: Intent = "now", push: Push | None = None
    ) -> tuple[RankSource, ...]:
        """Commits staged sources and returns them in the given order; the staged files are moved or packed.

        Up to 64 neighboring ranks of a run share one manifest. If the same sources were committed before
        (a task that runs twice) and are neither published nor pending, returns that commit. With the intent
        `push`, a later `seal` publishes them with the options in `push`. Any process may commit. Raises
        WarehouseError if the disk is full or refuses, or a file is not as announced.
        """
        from tracewarehouse.storage.commit import commit, groups

        with disk_errors(self.folder):
            found: dict[int, RankSource] = {}
            todo: list[Staged] = []
            for group in groups(staged):
                done = self._committed_before(group, intent, push)
                found |= {id(one): source for one, source in zip(group.members, done, strict=False)}
                todo += () if done else group.members
            committed = commit(self.objects, todo, intent, push.as_json if push else None)
            found |= {id(one): source for one, source in zip(todo, committed, strict=True)}
            return tuple(found[id(one)] for one in staged)

    def _committed_before(self, group: Group, intent: Intent, push: Push | None) -> tuple[RankSource, ...]:
        from tracewarehouse.storage.commit import earlier

        for manifest in earlier(self.objects, group, intent):
            if manifest.push != (push.as_json if push else None):
                continue
            history = self.readable(group.run)
            if any(manifest.name in version.retired for version in history):
                continue
            known = held_or_dropped(history)
            known |= {one.source.name for one in self.pending(group.run)}
            left = all(source.name not in known for source in manifest.sources)
            if left and self.missing_file(manifest.sources) is None:
                return manifest.sources
        return ()

    def commit_source(self, staged: Staged) -> RankSource:
        """Commits one source."""
        return self.commit([staged])[0]

    def publish(self, run: str, changes: Changes) -> Published:
        """Applies the changes of a call to the newest version of a run; see `merge` for the rules.

        Raises RunExists if the name exists in another spelling, UnknownName if there is nothing to
        change, WarehouseError if the disk refuses; a version is published entirely or not at all.
        """
        from tracewarehouse.storage import publish

        with disk_errors(self.folder):
            return publish.publish(self, run, changes, self.tool)

    def seal(
        self, run: str, labels: Mapping[str, str | None], expected_ranks: int | None, check: Check
    ) -> tuple[Published, RunVersion]:
        """Publishes the pushed commits of a run, unless `check` raises for the version to be written.

        Also returns the newest version. Raises UnknownName if there is neither a version nor a pushed commit.
        """
        from tracewarehouse.storage.publish import seal

        with disk_errors(self.folder):
            return seal(self, run, labels, expected_ranks, check, self.tool)

    def relabel(self, run: str, labels: Mapping[str, str | None]) -> Published:
        """Sets labels and removes those that are None; raises UnknownName."""
        return self.publish(run, Changes(labels=labels))

    def remove(self, run: str, keep_results: bool = False) -> RunVersion:
        """Publishes a tombstone and drops pending sources; raises UnknownName if there is no such run.

        Older versions stay readable as RUN@vN until `clean` deletes them. `keep_results` keeps the
        recorded results of the newest version.
        """
        from tracewarehouse.storage.publish import remove

        with disk_errors(self.folder):
            return remove(self, run, self.tool, keep_results)

    # Recorded results and acknowledgements

    def keep_results(self, files: Mapping[Recorded, Path]) -> None:
        """Stores finished Parquet files as recorded results; each appears complete or not at all."""
        with disk_errors(self.folder):
            results.keep(self.objects, {one: (path, sha256(path)) for one, path in files.items()})

    def keep_rollups(self, files: Mapping[Recorded, Path]) -> None:
        """Stores finished Parquet files as roll-ups of recorded results."""
        with disk_errors(self.folder):
            results.keep_rollups(self.objects, {one: (path, sha256(path)) for one, path in files.items()})

    def drop_kept(self, run: str) -> None:
        """No longer keeps the results of a removed run; `clean` deletes them."""
        with disk_errors(self.folder):
            names = names_in(self.objects, layout.kept(run))
            self.objects.delete([f"{layout.kept(run)}/{name}" for name in names])

    def acknowledge(self, key: str, fields: Mapping[str, str]) -> None:
        """Stores an acknowledgement, replacing an older one of that key."""
        with disk_errors(self.folder):
            results.put_acknowledgement(self.objects, key, fields)

    def acknowledged(self) -> tuple[dict[str, str], ...]:
        """Every intact acknowledgement; `verify` reports damaged ones."""
        found = (one.value for one in results.acknowledged(self.objects))
        return tuple(fields for fields in found if fields is not None)

    def forget_acknowledged(self, key: str) -> None:
        """Deletes an acknowledgement."""
        with disk_errors(self.folder):
            results.delete_acknowledgement(self.objects, key)

    # Housekeeping

    def verify(self, deep: bool = False) -> list[Problem]:
        """The problems of the stored files: manifests, presence, sizes, rows, checksums, numbering.

        Checksums and rows of files in an object store only if `deep`, which downloads them all.
        """
        from tracewarehouse.storage.verify import verify

        with disk_errors(self.folder):
            return verify(self, deep)

    def clean(
        self,
        grace_s: float = 86_400.0,
        quarantine: bool = False,
        keep_versions_s: float = KEEP_VERSIONS_S,
    ) -> CleanReport:
        """Deletes files that no kept version needs and that are older than `grace_s` seconds.

        Versions that were replaced within `keep_versions_s` are kept, unless a later one has the same rows.
        With `quarantine` also what repairs took out, whatever its age.
        """
        from tracewarehouse.storage.clean import clean

        with disk_errors(self.folder):
            report = clean(self, grace_s, quarantine, keep_versions_s)
            if self.is_remote or self.objects.stat(layout.LATEST):
                run_list.update(self.objects)
            return report

    def list_runs(self) -> None:
        """Writes the list of versions that readers over HTTP need; see `run_list`."""
        with disk_errors(self.folder):
            run_list.write(self.objects)

    def list_new_versions(self, describe: Describe) -> None:
        """Lists what this process published: in an object store for readers over HTTP, and in the run catalog
        if many versions are newer than the last one; `describe` gives a version's row of `runs`.

        Without new versions it does nothing. Failures are ignored: the next call lists the versions, too.
        """
        if not self.has_new_versions:
            return
        self.has_new_versions = False
        with suppress(TwError, OSError):
            listed = None
            if self.is_remote:
                versions = list(self.objects.walk(f"{layout.RUNS}/"))
                run_list.update(self.objects, versions)
                listed = newest_versions(versions)
            self.overview.update_catalog(describe, listed)


def location_of(objects: Objects) -> Location:
    """Where objects are, to open them again in another process."""
    if isinstance(objects, LocalObjects):
        return objects.root
    from tracewarehouse.storage.remote import RemoteObjects

    assert isinstance(objects, RemoteObjects)
    return objects.place


def _reopened(place: Location, id_: str, tool: str) -> Store:
    objects = objects_at(place)
    return Store(objects, _identity(place, id_), tool)


@lru_cache(maxsize=16)
def _identity(place: Location, id_: str) -> Identity:
    """The identity of a warehouse, read once per process; raises WarehouseError if it is another one."""
    objects = objects_at(place)
    found = read_identity(objects)
    if found.id != id_:
        raise WarehouseError(f"{objects.url}: was replaced by another warehouse", "run the command again")
    return found


def objects_at(place: Location) -> Objects:
    """The objects of a folder or URL."""
    if isinstance(place, Path):
        return LocalObjects(place)
    if place.is_web:
        from tracewarehouse.storage.remote import WebObjects

        return WebObjects(place)
    from tracewarehouse.storage.remote import RemoteObjects

    return RemoteObjects(place)
