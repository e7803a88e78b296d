"""What is stored of the runs and ranks that sources will be stored as."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tracewarehouse.errors import DamagedRunError
from tracewarehouse.formats.base import Format, Status
from tracewarehouse.formats.registry import format_named
from tracewarehouse.ingest.naming.assignment import Assignment
from tracewarehouse.storage import RankSource, RunVersion, Store
from tracewarehouse.storage.parquet_file import Level, fault

# `clean` deletes unpublished commits after a grace period, unless they wait; younger ones can be reused.
_FRESH = timedelta(hours=1)


@dataclass(frozen=True)
class PublishedSource:
    """The published source of the same format for a target; `is_current` if a build now would be equal."""

    digest: str
    status: Status
    text_bytes: int
    is_current: bool

    def may_be_replaced_by(self, status: Status, text_bytes: int, replace: bool) -> bool:
        """Whether other content may replace it. Publishing decides finally, by what is stored then."""
        if replace:
            return True
        return self.status == "damaged" and (status != "damaged" or text_bytes > self.text_bytes)


@dataclass(frozen=True)
class UnpublishedSource:
    """A commit for a target that an interrupted call did not publish."""

    digest: str
    status: Status
    uid: str
    manifest: str


@dataclass(frozen=True)
class Target:
    """The run and rank that a source will be stored as, and what is stored. `world_size`: as in the name."""

    run: str
    rank: int
    world_size: int | None = None
    published: PublishedSource | None = None
    unpublished: UnpublishedSource | None = None

    @property
    def known_digest(self) -> str | None:
        """The digest of content that need not be read completely."""
        if self.published and self.published.is_current:
            return self.published.digest
        return self.unpublished.digest if self.unpublished else None


@dataclass(frozen=True)
class StoredSources:
    """What is already stored, read once per run.

    `definitions` are the current definitions of tables. With `time_unit`, sources that were read in another
    unit are outdated; without it, the unit of the earlier call stays. The same applies to `step_range`.
    Sources that were redacted are outdated without `redact`, and the others with it. With `replace` every
    source is outdated, and always one with a missing or damaged file. Without `reuse`, commits that
    interrupted calls left are not used.
    """

    store: Store
    definitions: Mapping[str, int]
    time_unit: str | None = None
    step_range: str | None = None
    replace: bool = False
    redact: bool = True
    reuse: bool = True
    _unpublished_by_run: dict[str, dict[int, list[RankSource]]] = field(default_factory=dict)
    # What `target` has read: the newest version of each run, or why it cannot be read.
    _newest_by_run: dict[str, RunVersion | DamagedRunError | None] = field(default_factory=dict)

    # Whether files of sources are damaged, by their keys: ranks share files.
    _damaged: dict[frozenset[str], bool] = field(default_factory=dict)

    def look_again(self) -> None:
        """Other calls may have published: the next targets are those of the current versions."""
        self._newest_by_run.clear()
        if not self.store.is_remote:
            self._damaged.clear()

    def target(self, format_: Format, assignment: Assignment) -> Target | None:
        """The target of an assignment; None if its run is damaged or exists in another spelling."""
        version = self._newest(assignment.run)
        if isinstance(version, DamagedRunError) or (version and version.run != assignment.run):
            return None
        source, unpublished = (
            _source_in(version, assignment.rank, format_),
            self.unpublished(assignment.run, assignment.rank, format_),
        )
        return Target(
            assignment.run,
            assignment.rank,
            assignment.world_size,
            self._published(source, format_, version.sources) if source and version else None,
            UnpublishedSource(unpublished.digest, unpublished.status, unpublished.uid, unpublished.manifest)
            if unpublished
            else None,
        )

    def damage(self, run: str) -> DamagedRunError | None:
        """The error of a run whose newest version is damaged."""
        found = self._newest(run)
        return found if isinstance(found, DamagedRunError) else None

    def source(self, run: str, rank: int, format_: Format) -> RankSource | None:
        """The published source of this format."""
        found = self._newest(run)
        if isinstance(found, DamagedRunError):
            raise found
        return _source_in(found, rank, format_)

    def _newest(self, run: str) -> RunVersion | DamagedRunError | None:
        if run not in self._newest_by_run:
            try:
                self._newest_by_run[run] = self.store.newest(run)
            except DamagedRunError as error:
                self._newest_by_run[run] = error
        return self._newest_by_run[run]

    def unpublished(self, run: str, rank: int, format_: Format) -> RankSource | None:
        """An unpublished, current commit that `clean` will not delete yet."""
        found = [one for one in self.unpublished_of(run) if (one.rank, one.format) == (rank, format_.name)]
        return next((one for one in found if self._is_current(one, format_)), None)

    def unpublished_of(self, run: str) -> list[RankSource]:
        """The unpublished commits of a run that `clean` will not delete yet; none with `reuse` off."""
        if not self.reuse:
            return []
        if run not in self._unpublished_by_run:
            self._unpublished_by_run[run] = self._find_unpublished(run)
        return [source for found in self._unpublished_by_run[run].values() for source in found]

    def holds(self, source: RankSource) -> bool:
        """Whether the newest version of its run holds this source."""
        version = self._newest(source.run)
        return isinstance(version, RunVersion) and any(one.name == source.name for one in version.sources)

    def is_reusable(self, source: RankSource) -> bool:
        """Whether a source would be read and built the same now, and its files are there."""
        format_ = format_named(source.format)
        version = self._newest(source.run)
        beside = version.sources if isinstance(version, RunVersion) and self.holds(source) else (source,)
        return format_ is not None and self._published(source, format_, beside).is_current

    def _find_unpublished(self, run: str) -> dict[int, list[RankSource]]:
        waiting = {one.source.name for one in self.store.pending(run)}
        found: dict[int, list[RankSource]] = defaultdict(list)
        for source in self.store.unpublished(run):
            age = datetime.now(UTC) - datetime.fromisoformat(source.committed_at)
            if age < _FRESH or source.name in waiting:
                found[source.rank].append(source)
        return found

    def known(self, target: Target | None, format_: Format) -> RankSource | None:
        """The source whose content need not be read completely to be stored at a target."""
        if target is None or target.known_digest is None:
            return None
        if target.published and target.published.is_current:
            return self.source(target.run, target.rank, format_)
        return self.unpublished(target.run, target.rank, format_)

    def _published(
        self, source: RankSource, format_: Format, beside: Sequence[RankSource]
    ) -> PublishedSource:
        is_current = not self.replace and self._is_current(source, format_)
        is_current = is_current and not self._has_damage(source, beside)
        return PublishedSource(source.digest, source.status, source.text_bytes, is_current)

    def _has_damage(self, source: RankSource, beside: Sequence[RankSource]) -> bool:
        """Whether a file of a source is missing or damaged; in a store, those `beside` it are listed too."""
        key = frozenset(file.path for file in source.files)
        if key not in self._damaged and self.store.is_remote:
            missing = self.store.missing_files(beside)
            for one in beside:
                paths = frozenset(file.path for file in one.files)
                self._damaged[paths] = not missing.isdisjoint(paths)
        elif key not in self._damaged:
            self._damaged[key] = has_damage(self.store, source)
        return self._damaged[key]

    def _is_current(self, source: RankSource, format_: Format) -> bool:
        """Whether a source would be read and built the same now."""
        options = {"time_unit": self.time_unit, "step_range": self.step_range}
        is_same = source.is_redacted == self.redact and all(
            value in (None, source.facts.get(name)) for name, value in options.items()
        )
        return is_same and source.is_current(format_.name, format_.version, self.definitions)


def _source_in(version: RunVersion | None, rank: int, format_: Format) -> RankSource | None:
    """The source of this format of a rank."""
    found = version.rank(rank) if version else None
    sources = found.sources if found else ()
    return next((one for one in sources if one.format == format_.name), None)


def has_damage(store: Store, source: RankSource) -> bool:
    """Whether a file of the source is missing, or its size or footer differs from what was written.

    In an object store only sizes are compared: its files would be downloaded for the rest.
    """
    if store.is_remote:
        return store.missing_file([source]) is not None
    return any(fault(store.path(file.path), file, Level.FOOTER) is not None for file in source.files)
