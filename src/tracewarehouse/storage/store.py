"""The store of a warehouse: its identity, commits of sources, versions of runs, and what readers see."""

from __future__ import annotations

import itertools
import json
import random
import secrets
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from tracewarehouse import hints
from tracewarehouse.errors import DamagedRunError, SchemaVersionError, TwError, UnknownName, WarehouseError
from tracewarehouse.location import Location
from tracewarehouse.storage import codec, commits, layout, results
from tracewarehouse.storage.codec import (
    FORMAT,
    MANY_FILES,
    check_understood,
    encode_version,
    sealed,
    unsealed,
)
from tracewarehouse.storage.commits import now
from tracewarehouse.storage.model import (
    EXPIRED,
    Changes,
    Json,
    ManySources,
    PendingSource,
    Problem,
    Published,
    RankSource,
    RunVersion,
    Staged,
    StoredList,
)
from tracewarehouse.storage.objects import LocalObjects, Objects, disk_errors
from tracewarehouse.storage.parquet_file import sha256
from tracewarehouse.storage.publish import Merged, merge
from tracewarehouse.storage.results import Recorded
from tracewarehouse.storage.versions import Versions
from tracewarehouse.temp_folders import leased_folder


class Identity(Struct, frozen=True):
    """The content of `_tw/warehouse.json`. The salt, in hex, makes hashes of secrets unique to it."""

    format: int
    id: str
    salt: str
    created_at: str


def read_identity(objects: Objects, create: bool = False) -> Identity:
    """The identity of a warehouse; raises WarehouseError or SchemaVersionError.

    `create`: creates a warehouse in a new or empty place, unless another process just created it. Raises
    WarehouseError if the place holds other objects, or cannot keep one of two writers from overwriting the
    other.
    """
    with disk_errors(objects.url):
        try:
            data = objects.get(layout.WAREHOUSE)
        except (FileNotFoundError, NotADirectoryError) as error:
            if not create or isinstance(error, NotADirectoryError):
                raise objects.absent(error) from None
            objects.prepare()
            restore_identity(objects)
            return read_identity(objects)
    return _decode(objects, data)


def restore_identity(objects: Objects, stated: Mapping[str, str] | None = None) -> None:
    """Writes an identity unless there is one: what is known, else a new one, with other hashes of secrets."""
    with disk_errors(objects.url):
        identity = Identity(FORMAT, uuid.uuid4().hex, secrets.token_hex(32), now())
        identity = replace(identity, **stated or {})
        objects.put_if_absent(layout.WAREHOUSE, sealed({**asdict(identity), "must_understand": []}))


def stated_identity(objects: Objects) -> Mapping[str, str] | None:
    """The identity that the versions of runs state; None if none does."""
    for entry in objects.walk(f"{layout.VERSIONS}/"):
        with suppress(OSError, ValueError, KeyError):
            return msgspec.convert(unsealed(objects.get(entry.key))["warehouse"], dict[str, str])
    return None


def _decode(objects: Objects, data: bytes) -> Identity:
    path = objects.describe(layout.WAREHOUSE)
    try:
        # The format first: other formats may lack all other fields.
        format_number = int(json.loads(data)["format"])
        if format_number != FORMAT:
            raise SchemaVersionError(
                f"{objects.url}: warehouse of format {format_number}; this release reads format {FORMAT}",
                hints.fill("{} converts that of an earlier release", hints.call("upgrade"))
                if format_number < FORMAT
                else "install a newer tracewarehouse",
            )
        fields = unsealed(data)
        check_understood(fields, path)
        return Identity(**{name: fields[name] for name in Identity.__struct_fields__})
    except (ValueError, TypeError, KeyError) as error:
        raise WarehouseError(
            f"{path}: damaged: {error}", hints.fill("{} writes it again", hints.call("repair"))
        ) from error


# Half the grace period of `clean`: what was committed since then is there.
_SPARED = timedelta(hours=12)
# After a conflict: the first and the longest pause, and for how long a call tries.
_PAUSE_S, _LONGEST_PAUSE_S, _PATIENCE_S = 0.06, 4.0, 120.0

P = ParamSpec("P")
R = TypeVar("R")


def with_disk_errors(method: Callable[Concatenate[Store, P], R]) -> Callable[Concatenate[Store, P], R]:
    """A method of the store whose OSError becomes a WarehouseError that names the folder and a remedy."""

    @wraps(method)
    def guarded(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with disk_errors(self.folder):
            return method(self, *args, **kwargs)

    return guarded


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
        identity = read_identity(objects, create=True)
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
    def staging(self, prefix: str = "", is_needed: bool = True) -> Iterator[Path]:
        """A temporary folder on the disk of the warehouse, whose lease shows others that this call runs.

        Unless it is needed, a full disk only means that the folder does not exist.
        """
        folder = self.folder / layout.STAGING / f"{prefix}{secrets.token_hex(8)}"
        with ExitStack() as stack:
            with disk_errors(self.folder) if is_needed else suppress(OSError):
                stack.enter_context(leased_folder(folder))
            yield folder

    @with_disk_errors
    def commit(self, staged: Sequence[Staged]) -> tuple[RankSource, ...]:
        """Commits staged sources and returns them in the given order; the staged files are moved or packed.

        Up to 64 neighboring ranks of a run share one commit. If the same sources were committed before
        (a task that runs twice) and are neither published nor waiting, returns that commit. Any process may
        commit. Raises WarehouseError if the disk is full or refuses, or a file is not as announced.
        """
        by_id: dict[int, RankSource] = {}
        uncommitted: list[Staged] = []
        for group in commits.groups(staged):
            earlier = self._committed_before(group)
            by_id |= {id(member): source for member, source in zip(group, earlier, strict=False)}
            uncommitted += () if earlier else group
        committed = commits.commit(self.objects, uncommitted)
        by_id |= {id(member): source for member, source in zip(uncommitted, committed, strict=True)}
        return tuple(by_id[id(member)] for member in staged)

    def _committed_before(self, members: Sequence[Staged]) -> tuple[RankSource, ...]:
        run = members[0].run
        for commit in commits.earlier(self.objects, members, self.usable_since()):
            settled = self.settled(run) | {one.source.name for one in self.pending(run)}
            is_new = commit.name not in settled and settled.isdisjoint(one.name for one in commit.sources)
            if is_new and not self.missing_files(commit.sources):
                return commit.sources
        return ()

    @with_disk_errors
    def publish(
        self, run: str, changes: Changes, check: Callable[[RunVersion], None] | None = None
    ) -> Published:
        """Applies the changes of a call to the newest version of a run; see `merge` for the rules.

        `check` is called with the version to be written, or the newest one if nothing changes; it raises to
        prevent that. Raises RunExists if the name exists in another spelling, UnknownName if there is nothing
        to change, WarehouseError if the disk refuses; a version is published entirely or not at all.
        """
        identities = {(source.rank, *source.identity) for source in changes.sources}
        if len(identities) != len(changes.sources) or any(source.run != run for source in changes.sources):
            raise ValueError("a publish must name each source of its run once")
        self._check_files(changes.sources)
        look = self._look(run, changes)
        if look.merged.pending is not None:
            names = {name for name, outcome in look.merged.outcome.items() if outcome == "pending"}
            waits = {source.name: source for source in commits.wait(self.objects, changes, names)}
            if waits:
                # Others see now what waits here: the last of several calls at once finds all ranks.
                changes = replace(changes, sources=tuple(waits.get(one.name, one) for one in changes.sources))
                look = self._look(run, changes)
        for attempt in attempts(f"run {run}"):
            look = self._look(run, changes) if attempt else look
            base, waiting, merged = look.base, look.waiting, look.merged
            if check is not None:
                check(merged.version or base)
            if merged.pending is not None:
                return Published(None, base, merged.outcome, _present(look, changes), waiting)
            if merged.version is None:
                self.confirm(base)
                return Published(None, base, merged.outcome, waited=waiting)
            self._check_files([one.source for one in waiting])
            # After a conflict, a listing shows first whether another call was quicker again.
            if attempt and merged.version.number <= self.newest_number(run):
                continue
            if written := self.put(merged.version):
                if look.names:
                    self._unmark(written)
                return Published(written, written, merged.outcome, waited=waiting)
        raise AssertionError("unreachable")

    def _look(self, run: str, changes: Changes) -> _Seen:
        """Merges the changes with what is stored now; reads what waits for this call.

        That is everything if there may be enough ranks, else what has ranks of the call. Raises UnknownName,
        DamagedRunError.
        """
        # What waits before the newest version: what does not wait any more was published earlier.
        listed = commits.names(self.objects, run) if changes.expected_ranks or changes.seal else ()
        base = self.head(run)
        names = commits.unsettled(listed, base)
        chosen = names
        if not changes.seal and len(_possible(base, changes, names)) < (changes.expected_ranks or 0):
            ranks = {source.rank for source in changes.sources}
            chosen = tuple(name for name in names if not ranks.isdisjoint(range(name.first, name.last + 1)))
        waiting = []
        for pending in commits.waiting(self.objects, run, [name.text for name in chosen]):
            if isinstance(pending, WarehouseError):
                raise DamagedRunError(f"run {run} is damaged: {pending.message}", hints.repair(run))
            waiting.append(pending)
        if not changes.sources and not waiting and (base.number == 0 or base.tombstone):
            raise UnknownName("run", run, self.runs())
        return _Seen(base, names, tuple(waiting), merge(base, changes, waiting))

    def _check_files(self, sources: Sequence[RankSource]) -> None:
        """Raises WarehouseError for files that `clean` deleted; it spares recent ones: no requests."""
        recent = datetime.now(UTC) - _SPARED
        older = [
            one
            for one in sources
            if not (self.is_remote and datetime.fromisoformat(one.committed_at) > recent)
        ]
        for missing in sorted(self.missing_files(older)):
            holds = (one.rank for one in sources for file in one.files if file.path == missing)
            raise WarehouseError(
                f"{self.objects.describe(missing)}: removed by tw clean of another process before rank"
                f" {next(holds)} was published",
                "ingest it again",
            )

    def put(self, version: RunVersion) -> RunVersion | None:
        """Publishes a version under its number, then its index entry; None if another call was first."""
        expired: dict[str, Json] = {}
        if not isinstance(version.sources, ManySources):
            for source in version.sources:
                for table, date in source.expired.items():
                    expired[table] = max(date, str(expired.get(table, "")))
            version = replace(version, expired=expired or None)
        must_understand = [name for name in version.must_understand if name != EXPIRED]
        # Releases that read a version with expired tables must know them.
        must_understand += [EXPIRED] if version.expired else []
        version = replace(
            version,
            sources=self._listed(version),
            labels=dict(version.labels),
            must_understand=tuple(must_understand),
            previous=self.digest(version.run, version.number - 1) if version.number > 1 else "",
            created_at=now(),
            tool=self.tool,
            warehouse={"id": self.id, "salt": self.identity.salt},
            nonce=secrets.token_hex(16),
        )
        data = encode_version(version)
        if not self.objects.put_if_absent(layout.version(version.run, version.number), data):
            return None
        self.remember(version, codec.digest(data))
        # The version is published, even if the disk is full now; the next publish writes the entry.
        with suppress(OSError, TwError):
            self.write_entry(version)
        return version

    def _listed(self, version: RunVersion) -> Sequence[RankSource]:
        """The sources of a version; those of many files are written to an object first."""
        if isinstance(version.sources, ManySources) or len(version.paths) <= MANY_FILES:
            return version.sources
        data = codec.encode_sources(version.sources)
        key = layout.version_list(version.run, version.number, secrets.token_hex(4))
        self.objects.put({key: data})
        stored = StoredList(key, len(data), codec.digest(data), version.summary)
        return codec.many_sources(self.objects, version.run, stored)

    def write_entry(self, version: RunVersion) -> None:
        """Writes the index entry of the newest version; looks once more, since another call may be newer."""
        run = version.run
        while True:
            entry = codec.entry_of(version, self.digest(run, version.number))
            self.objects.put({layout.entry(run): codec.encode_entry(entry)})
            newest = max(self.versions(run), default=0)
            if newest <= version.number:
                return
            version = self.get(run, newest)

    def confirm(self, newest: RunVersion) -> None:
        """Writes the index entry that a killed call did not."""
        entry = self.entry(newest.run)
        if newest.number and (entry is None or entry.number < newest.number):
            self.write_entry(newest)

    def _unmark(self, newest: RunVersion) -> None:
        """Deletes the mark of waiting commits unless others wait since."""
        with suppress(OSError):
            self.objects.delete([layout.waiting(newest.run)])
            if commits.unsettled(commits.names(self.objects, newest.run), newest):
                fields = {"format": FORMAT, "must_understand": [], "run": newest.run}
                self.objects.put({layout.waiting(newest.run): sealed(fields)})

    @with_disk_errors
    def amend(self, run: str, change: Callable[[RunVersion], RunVersion]) -> RunVersion:
        """Publishes the newest version of a run with other fields; returns it, unchanged or written."""
        for _ in attempts(f"run {run}"):
            head = self.head(run)
            changed = change(head)
            if changed is head:
                return head
            if written := self.put(replace(changed, number=head.number + 1)):
                return written
        raise AssertionError("unreachable")

    def take_out(self, run: str, keys: Collection[str]) -> None:
        """Names objects of a run as taken out: no version after this one, and no reader, needs them."""

        def change(head: RunVersion) -> RunVersion:
            new_keys = sorted(set(keys).difference(head.taken_out))
            return replace(head, taken_out=(*head.taken_out, *new_keys)) if new_keys else head

        self.amend(run, change)

    @with_disk_errors
    def delete_history(self, run: str) -> None:
        """Deletes all versions of a run before the newest, whose content is published once more."""
        if len(self.versions(run)) > 1:
            newest = self.amend(run, lambda head: replace(head, kept_from=head.number + 1))
            gone = [number for number in self.versions(run) if number < newest.number]
            self.objects.delete(
                [layout.version(run, number) for number in gone if number not in newest.results_of]
            )

    def relabel(self, run: str, labels: Mapping[str, str | None]) -> Published:
        """Sets labels and removes those that are None; raises UnknownName."""
        return self.publish(run, Changes(labels=labels))

    @with_disk_errors
    def remove(self, run: str, keep_results: bool = False) -> RunVersion:
        """Publishes a tombstone and drops waiting sources; raises UnknownName if there is no such run.

        Older versions stay readable as RUN@vN until `clean` deletes them. `keep_results` keeps the
        recorded results of the newest version.
        """
        for _ in attempts(f"run {run}"):
            names = commits.names(self.objects, run)
            try:
                head = self.head(run)
            except DamagedRunError:  # of a damaged run only its name and number, which is all a removal needs
                number = self.newest_number(run)
                head = RunVersion(self.name(layout.run_key(run)), number, (), {}, None, "", "")
            waits = commits.unsettled(names, head)
            if (head.number == 0 or head.tombstone) and not waits:
                raise UnknownName("run", run, self.runs())
            results = (head.number,) if keep_results and not head.tombstone else ()
            tombstone = replace(
                head.emptied(),
                number=head.number + 1,
                tombstone=True,
                retired=tuple(name.text for name in names if name.waits),
                results_of=(*head.results_of, *results),
            )
            if written := self.put(tombstone):
                if names:
                    self._unmark(written)
                return written
        raise AssertionError("unreachable")

    # Recorded results and acknowledgements

    @with_disk_errors
    def keep_results(self, files: Mapping[Recorded, Path]) -> None:
        """Stores finished Parquet files as recorded results; each appears complete or not at all."""
        keys = {recorded.key(sha256(path)): path for recorded, path in files.items()}
        self.objects.adopt(keys)
        results.write_list(self.objects, list(keys))

    @with_disk_errors
    def keep_rollups(self, files: Mapping[Recorded, Path]) -> None:
        """Stores finished Parquet files as roll-ups of recorded results."""
        keys = {path: recorded.key(sha256(path)).removesuffix(".parquet") for recorded, path in files.items()}
        self.objects.adopt({f"{key}{results.ROLLUP}": path for path, key in keys.items()})

    def drop_kept(self, run: str) -> None:
        """No longer keeps the results of a removed run; `clean` deletes them."""
        self.amend(run, lambda head: replace(head, results_of=()) if head.results_of else head)

    @with_disk_errors
    def acknowledge(self, key: str, fields: Mapping[str, str]) -> None:
        """Stores an acknowledgement, replacing an older one of that key, and lists it."""
        path = results.acknowledgement(key)
        self.objects.put({path: sealed(fields)})
        if path not in results.listed(self.objects):
            results.write_list(self.objects, [path])

    def acknowledged(self) -> tuple[dict[str, str], ...]:
        """Every intact acknowledgement; `verify` reports damaged ones."""
        listed = (fields for _, fields in results.acknowledged(self.objects))
        return tuple(fields for fields in listed if not isinstance(fields, str))

    @with_disk_errors
    def forget_acknowledged(self, key: str) -> None:
        """Deletes an acknowledgement, which no list names any more then."""
        path = results.acknowledgement(key)
        self.objects.delete([*results.unlist(self.objects, frozenset([path])), path])

    # Housekeeping

    @with_disk_errors
    def verify(self, deep: bool = False) -> list[Problem]:
        """The problems of the stored files: commits, presence, sizes, rows, checksums, numbering.

        Checksums and rows of files in an object store only if `deep`, which downloads them all.
        """
        from tracewarehouse.storage.verify import verify

        return verify(self, deep)


class _Seen(Struct, frozen=True):
    """The newest version of a run, the commits that wait, those of them that were read, and the merge."""

    base: RunVersion
    names: tuple[layout.CommitName, ...]
    waiting: tuple[PendingSource, ...]
    merged: Merged


def _possible(base: RunVersion, changes: Changes, waiting: Sequence[layout.CommitName]) -> set[int]:
    """The ranks of the run with all that waits; by the names of commits, which may leave out ranks."""
    ranks = {source.rank for source in changes.sources}.union(() if base.tombstone else base.ranks)
    return ranks.union(*(range(name.first, name.last + 1) for name in waiting))


def _present(look: _Seen, changes: Changes) -> tuple[int, int]:
    """Ranks present and expected: counted by names if not all that waits was read."""
    ranks, expected = look.merged.pending or (0, 0)
    possible = len(_possible(look.base, changes, look.names))
    return (possible if possible < expected else ranks), expected


def attempts(what: str) -> Iterator[int]:
    """0, 1, … with longer and longer pauses, so that of many writers one after the other succeeds.

    The first pause is about as long as the attempt took: shorter ones do not spread the writers. Raises
    WarehouseError if it takes too long.
    """
    end = time.monotonic() + _PATIENCE_S
    for attempt in itertools.count():
        started = time.monotonic()
        yield attempt
        now_s = time.monotonic()
        if now_s > end:
            raise WarehouseError(
                f"{what}: other processes published versions for {_PATIENCE_S:g} s",
                "run it again; nothing is lost",
            )
        pause_s = max(_PAUSE_S, now_s - started) * 2**attempt
        time.sleep(random.uniform(0.5, 1.5) * min(pause_s, _LONGEST_PAUSE_S))


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
    identity = read_identity(objects)
    if identity.id != id_:
        raise WarehouseError(f"{objects.url}: was replaced by another warehouse", "run the command again")
    return identity


def objects_at(place: Location) -> Objects:
    """The objects of a folder or URL."""
    if isinstance(place, Path):
        return LocalObjects(place)
    if place.is_web:
        from tracewarehouse.storage.remote import WebObjects

        return WebObjects(place)
    from tracewarehouse.storage.remote import RemoteObjects

    return RemoteObjects(place)
