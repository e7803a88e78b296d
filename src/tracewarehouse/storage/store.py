"""The store of a warehouse: its identity, commits of sources, versions of runs, and what readers see."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from tracewarehouse import hints
from tracewarehouse.errors import SchemaVersionError, WarehouseError
from tracewarehouse.location import Location
from tracewarehouse.storage import commits, layout, results
from tracewarehouse.storage.codec import FORMAT, check_understood, sealed, unsealed
from tracewarehouse.storage.commits import now
from tracewarehouse.storage.model import (
    KEEP_VERSIONS_S,
    Changes,
    CleanReport,
    Problem,
    Published,
    RankSource,
    RunVersion,
    Staged,
)
from tracewarehouse.storage.objects import LocalObjects, Objects, disk_errors
from tracewarehouse.storage.results import Recorded
from tracewarehouse.storage.versions import Versions
from tracewarehouse.temp_folders import locked_folder


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
                hints.fill("{} converts that of an earlier release", hints.call("upgrade"))
                if number < FORMAT
                else "install a newer tracewarehouse",
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

    def commit(self, staged: Sequence[Staged]) -> tuple[RankSource, ...]:
        """Commits staged sources and returns them in the given order; the staged files are moved or packed.

        Up to 64 neighboring ranks of a run share one commit. If the same sources were committed before
        (a task that runs twice) and are neither published nor waiting, returns that commit. Any process may
        commit. Raises WarehouseError if the disk is full or refuses, or a file is not as announced.
        """
        with disk_errors(self.folder):
            found: dict[int, RankSource] = {}
            todo: list[Staged] = []
            for group in commits.groups(staged):
                done = self._committed_before(group)
                found |= {id(one): source for one, source in zip(group, done, strict=False)}
                todo += () if done else group
            committed = commits.commit(self.objects, todo)
            found |= {id(one): source for one, source in zip(todo, committed, strict=True)}
            return tuple(found[id(one)] for one in staged)

    def _committed_before(self, members: Sequence[Staged]) -> tuple[RankSource, ...]:
        run = members[0].run
        for commit in commits.earlier(self.objects, members):
            settled = self.settled(run) | {one.source.name for one in self.pending(run)}
            left = commit.name not in settled and settled.isdisjoint(one.name for one in commit.sources)
            if left and self.missing_file(commit.sources) is None:
                return commit.sources
        return ()

    def commit_source(self, staged: Staged) -> RankSource:
        """Commits one source."""
        return self.commit([staged])[0]

    def publish(
        self, run: str, changes: Changes, check: Callable[[RunVersion], None] | None = None
    ) -> Published:
        """Applies the changes of a call to the newest version of a run; see `merge` for the rules.

        `check` raises to prevent the version that it is given. Raises RunExists if the name exists in
        another spelling, UnknownName if there is nothing to change, WarehouseError if the disk refuses; a
        version is published entirely or not at all.
        """
        from tracewarehouse.storage import publish

        with disk_errors(self.folder):
            return publish.publish(self, run, changes, self.tool, check)

    def take_out(self, run: str, keys: Collection[str]) -> None:
        """Names objects of a run as taken out: no version after this one, and no reader, needs them."""
        from tracewarehouse.storage import publish

        def change(head: RunVersion) -> RunVersion:
            new = sorted(set(keys).difference(head.taken_out))
            return replace(head, taken_out=(*head.taken_out, *new)) if new else head

        with disk_errors(self.folder):
            publish.amend(self, run, self.tool, change)

    def delete_history(self, run: str) -> None:
        """Deletes all versions of a run before the newest, whose content is published once more."""
        from tracewarehouse.storage import publish

        with disk_errors(self.folder):
            if len(self.versions(run)) > 1:
                kept = publish.amend(
                    self, run, self.tool, lambda head: replace(head, kept_from=head.number + 1)
                )
                gone = [number for number in self.versions(run) if number < kept.number]
                self.objects.delete(
                    [layout.version(run, number) for number in gone if number not in kept.results_of]
                )

    def relabel(self, run: str, labels: Mapping[str, str | None]) -> Published:
        """Sets labels and removes those that are None; raises UnknownName."""
        return self.publish(run, Changes(labels=labels))

    def remove(self, run: str, keep_results: bool = False) -> RunVersion:
        """Publishes a tombstone and drops waiting sources; raises UnknownName if there is no such run.

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
            results.keep(self.objects, files)

    def keep_rollups(self, files: Mapping[Recorded, Path]) -> None:
        """Stores finished Parquet files as roll-ups of recorded results."""
        with disk_errors(self.folder):
            results.keep_rollups(self.objects, files)

    def drop_kept(self, run: str) -> None:
        """No longer keeps the results of a removed run; `clean` deletes them."""
        from tracewarehouse.storage import publish

        def change(head: RunVersion) -> RunVersion:
            return replace(head, results_of=()) if head.results_of else head

        with disk_errors(self.folder):
            publish.amend(self, run, self.tool, change)

    def acknowledge(self, key: str, fields: Mapping[str, str]) -> None:
        """Stores an acknowledgement, replacing an older one of that key."""
        with disk_errors(self.folder):
            results.put_acknowledgement(self.objects, key, fields)

    def acknowledged(self) -> tuple[dict[str, str], ...]:
        """Every intact acknowledgement; `verify` reports damaged ones."""
        found = (fields for _, fields in results.acknowledged(self.objects))
        return tuple(fields for fields in found if not isinstance(fields, str))

    def forget_acknowledged(self, key: str) -> None:
        """Deletes an acknowledgement."""
        with disk_errors(self.folder):
            results.delete_acknowledgement(self.objects, key)

    # Housekeeping

    def verify(self, deep: bool = False) -> list[Problem]:
        """The problems of the stored files: commits, presence, sizes, rows, checksums, numbering.

        Checksums and rows of files in an object store only if `deep`, which downloads them all.
        """
        from tracewarehouse.storage.verify import verify

        with disk_errors(self.folder):
            return verify(self, deep)

    def clean(
        self,
        grace_s: float = 86_400.0,
        taken_out: bool = False,
        keep_versions_s: float = KEEP_VERSIONS_S,
    ) -> CleanReport:
        """Deletes files that no kept version needs and that are older than `grace_s` seconds.

        Versions that were replaced within `keep_versions_s` are kept, unless a later one has the same rows.
        With `taken_out` also what repairs took out, whatever its age.
        """
        from tracewarehouse.storage.clean import clean

        with disk_errors(self.folder):
            return clean(self, self.tool, grace_s, taken_out, keep_versions_s)


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
