"""What is stored already: the content of targets, and the sources of objects that an earlier call read.

A source of an object has the fact `source_object`: a hash of URL, size and tag, the number of sources in the
object, and what the object says about rank and world size. An object without it, or of another tag, is
downloaded, and found by the digest of its content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.errors import DamagedRunError
from tracewarehouse.formats.base import Format, Outcome, Part, number
from tracewarehouse.formats.registry import format_named
from tracewarehouse.ingest.attempts import Attempt, place_of_run, stored_recording
from tracewarehouse.ingest.naming import (
    folder_of,
    folder_run_name,
    header_of,
    rank_in_stored_header,
    split_path,
)
from tracewarehouse.ingest.outcome import FileOutcome, Options, content_of
from tracewarehouse.ingest.rules import digest_of
from tracewarehouse.ingest.sources import RECORDINGS, RankCommit, Source, Target, TraceFile
from tracewarehouse.storage import layout
from tracewarehouse.storage.layout import CommitName, is_waiting
from tracewarehouse.storage.model import Json, RankSource, RunVersion
from tracewarehouse.storage.parquet_file import Level, fault
from tracewarehouse.storage.store import Store

_FACT: Final = "source_object"
# Runs that may hold the same content by their first event, and the most of them that are read.
_NEAR_NS: Final = 3_600 * 10**9
_MOST_NEAR: Final = 8


class StoredRanks(Struct):
    """What is already stored, read once per run; `definitions` are the current definitions of tables.

    A stored source is current if a build now would be equal, and its files are there. With `time_unit` in the
    options, sources that were read in another unit are outdated; without it, the unit of the earlier call
    stays. The same applies to `step_pattern`. Sources that were redacted are outdated without `redact`, and
    the others with it. With `replace` every source is outdated.
    """

    store: Store
    definitions: Mapping[str, int]
    options: Options
    _names_by_run: dict[str, tuple[CommitName, ...]] = field(default_factory=dict)
    _left: dict[tuple[str, tuple[CommitName, ...]], tuple[RankSource, ...]] = field(default_factory=dict)
    _keys: tuple[str, ...] = ()
    # The newest version of each run, or why it cannot be read.
    _newest_by_run: dict[str, RunVersion | DamagedRunError | None] = field(default_factory=dict)
    # Whether files of sources are damaged, by their keys: ranks share files.
    _damaged: dict[frozenset[str], bool] = field(default_factory=dict)

    def look_again(self) -> None:
        """Other calls may have published: what is looked up next is in the current versions."""
        self._newest_by_run.clear()
        self._keys = ()
        if not self.store.is_remote:
            self._damaged.clear()

    def looked_up(self, source: Source) -> Source:
        """The source with what is stored as its target; without a target if its run cannot be written."""
        target, format_ = source.target, source.format
        version = self._newest(target.run) if target.run else None
        if isinstance(version, DamagedRunError) or (version and version.run != target.run):
            return replace(source, target=Target())
        rank = version.rank(target.rank) if version else None
        stored = [one for one in (rank.sources if rank else ()) if one.format == format_.name]
        is_current = any(self._is_current(one, format_, version) for one in stored[:1])
        unpublished = [
            one
            for one in self._unpublished(target.run, target.rank)
            # The name of a run may have been spelled differently.
            if (one.run, one.rank, one.format) == (target.run, target.rank, format_.name)
            and self._is_built_alike(one, format_)
        ]
        return replace(
            source,
            # Sent to workers, which need no files of it.
            published=replace(stored[0], files=()) if stored else None,
            is_current=is_current,
            unpublished=replace(unpublished[0], files=()) if unpublished else None,
        )

    def settled(self, source: Source) -> Source | FileOutcome:
        """A source that was read, if its tables are built or to be built for its target; else why not."""
        target, commit = source.target, source.committed
        if source.is_built:
            return source
        version = self._newest(target.run)
        if isinstance(version, DamagedRunError):
            return source.outcome("refused", version.message, version.hint)
        if version and version.run != target.run:
            spelling = self.store.spelling(target.run)
            reason = f"run {target.run}: run names are case-insensitive, and run {spelling} already exists"
            hint = hints.fill("use {}, or another name", hints.option("run", spelling))
            return replace(source.outcome("refused", reason, hint), notes=())
        source = self.looked_up(source)
        stored = source.published
        if stored and stored.digest == commit.digest:
            return source.outcome("same", "already stored") if source.is_current else source
        if stored and not source.may_replace(commit.status, commit.text_bytes, self.options.replace):
            return conflict(source, stored.facts.get("source_name"))
        return source

    def known(self, source: Source) -> RankCommit:
        """The commit of a source whose content is stored as its target."""
        stored, rank = source.known, source.part.rank
        assert stored is not None
        if rank is None:
            rank = rank_in_stored_header(header_of(self.store.headers([stored])[stored.name]))
        return _known(stored, source.is_current, rank, source.part.world_size)

    def stored_rank(self, run: str | None, source: Source) -> int | None:
        """The rank of a run with the content of a source that was read; None if the run is damaged."""
        version = self._newest(run) if run else None
        sources = version.sources if isinstance(version, RunVersion) else ()
        identity = source.committed.digest, source.part.name
        return next((stored.rank for stored in sources if stored.identity == identity), None)

    def renamed(self, sources: Iterable[Source]) -> list[Source]:
        """Sources that were read; those of a run whose content another run has, as the ranks of that one.

        A rule of an earlier release, or a user, gave its name.
        """
        by_run: dict[str, list[Source]] = {}
        for source in sources:
            by_run.setdefault(source.target.run, []).append(source)
        return [source for run, members in by_run.items() for source in self._renamed(run, members)]

    def _renamed(self, run: str, members: list[Source]) -> list[Source]:
        is_requested = self.options.run is not None or any(source.file.note for source in members)
        if is_requested or any(self.stored_rank(run, source) is not None for source in members):
            return members
        start_ns = min(source.committed.window[0] or 0 for source in members)
        near = sorted((abs((brief.start_ns or 0) - start_ns), brief.run) for brief in self.store.briefs())
        for other_run in [name for distance_ns, name in near if distance_ns <= _NEAR_NS][:_MOST_NEAR]:
            ranked = [(source, self.stored_rank(other_run, source)) for source in members]
            if all(rank is not None for _, rank in ranked):
                return [
                    replace(source, target=replace(source.target, run=other_run, rank=rank, named_after=""))
                    for source, rank in ranked
                ]
        return members

    def attempts(self, run: str) -> list[Attempt]:
        """The starts of a job that are stored, or wait for other ranks; an empty one in place of a gap."""
        if not self._keys:
            self._keys = tuple({*self.store.keys(layout.VERSIONS), *self.store.keys(layout.COMMITS)})
        places = {key: place_of_run(run, key) for key in self._keys if key.startswith(run.lower())}
        attempts: dict[int, Attempt] = {}
        for key, place in sorted(places.items()):
            if place is None:
                continue
            version = self._newest(key)
            waiting = [one for one in self._unpublished(key) if is_waiting(one.commit)]
            for source in (*(version.sources if isinstance(version, RunVersion) else ()), *waiting):
                recording = stored_recording(source, place[1], self.options.replace)
                attempts.setdefault(place[0], Attempt()).add(recording)
        return [attempts.get(number) or Attempt() for number in range(max(attempts, default=-1) + 1)]

    def objects(self, files: Sequence[TraceFile], clean: Callable[[str], str]) -> list[Source]:
        """The sources, as read, of those objects that are stored completely and would be read the same now.

        `clean` returns a name without secrets.
        """
        salt = self.store.salt
        objects = {file.object.identity(salt): file for file in files if file.object}
        if not objects or self.options.replace:
            return []
        sources = []
        for identity, parts in self._by_object(objects.values(), clean).items():
            file = objects.get(identity)
            for stored in parts.values() if file else ():
                format_, fact = format_named(stored.format), _object_fact(stored)
                assert format_ is not None and file is not None
                rank, world_size = number(fact.get("rank")), number(fact.get("world_size"))
                part = Part(stored.part, rank, world_size, addition=str(fact.get("addition") or ""))
                commit = _known(stored, self._is_published(stored), rank, world_size)
                whole = replace(file, parts=len(parts))
                sources.append(Source(whole, format_, part, file.stamp, stored.text_bytes, commit=commit))
        return sources

    def _by_object(
        self, files: Iterable[TraceFile], clean: Callable[[str], str]
    ) -> dict[str, dict[str, RankSource]]:
        """Hash of an object → the sources by part; only of objects of which every part is stored."""
        # The files may belong to these runs, by the names of files and folders.
        run, split_paths = self.options.run, [split_path(file.path) for file in files]
        named = {name for each in split_paths for name in (each.job.name, each.stem, each.remainder) if name}
        names = {run} if run is not None else named | {file.path.parent.name for file in files}
        texts = sorted({re.escape(folder_run_name(clean(name)).lower()) for name in names})
        pattern = re.compile(rf"(?:^|\.)(?:{'|'.join(texts)})(?:$|[.~])")
        keys = {*self.store.keys(layout.VERSIONS), *self.store.keys(layout.COMMITS)}
        by_object: dict[str, dict[str, RankSource]] = {}
        for key in sorted(filter(pattern.search, keys)):
            try:
                version = self.store.newest(key)
            except DamagedRunError:
                continue
            for source in (*(version.sources if version else ()), *self._unpublished(key)):
                identity = _object_fact(source).get("id")
                if isinstance(identity, str):
                    by_object.setdefault(identity, {}).setdefault(source.part, source)
        return {
            identity: parts
            for identity, parts in by_object.items()
            if all(_object_fact(source).get("parts") == len(parts) for source in parts.values())
            and all(map(self._is_reusable, parts.values()))
        }

    def _is_reusable(self, source: RankSource) -> bool:
        """Whether a source would be read and built the same now, and its files are there."""
        format_ = format_named(source.format)
        version = self._newest(source.run) if self._is_published(source) else None
        return format_ is not None and self._is_current(source, format_, version)

    def _is_published(self, source: RankSource) -> bool:
        """Whether the newest version of its run holds this source."""
        version = self._newest(source.run)
        return isinstance(version, RunVersion) and any(one.name == source.name for one in version.sources)

    def _newest(self, run: str) -> RunVersion | DamagedRunError | None:
        if run not in self._newest_by_run:
            try:
                self._newest_by_run[run] = self.store.newest(run)
            except DamagedRunError as error:
                self._newest_by_run[run] = error
        return self._newest_by_run[run]

    def _unpublished(self, run: str, rank: int | None = None) -> tuple[RankSource, ...]:
        """The unpublished sources that this call may use; of a rank, those in its commits."""
        if not run:
            return ()
        if run not in self._names_by_run:
            self._names_by_run[run] = self.store.unpublished_names(run)
        names = self._names_by_run[run]
        if rank is not None:
            names = tuple(name for name in names if name.first <= rank <= name.last)
        if (run, names) not in self._left:
            self._left[run, names] = self.store.unpublished(run, names)
        return self._left[run, names]

    def _is_current(
        self, source: RankSource, format_: Format, version: RunVersion | DamagedRunError | None
    ) -> bool:
        """Whether a build of a source of a version would be equal, and its files are there."""
        if self.options.replace or not self._is_built_alike(source, format_):
            return False
        beside = version.sources if isinstance(version, RunVersion) else (source,)
        return not self._has_damage(source, beside)

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

    def _is_built_alike(self, source: RankSource, format_: Format) -> bool:
        """Whether a source would be read and built the same now."""
        options = self.options
        required = {"time_unit": options.time_unit, "step_range": options.step_pattern}
        return (
            source.is_redacted == options.redact
            and source.is_classified_by(digest_of(options.kernel_rules))
            and all(value in (None, source.facts.get(name)) for name, value in required.items())
            and source.is_current(format_.name, format_.version, self.definitions)
        )


def _known(stored: RankSource, is_published: bool, rank: int | None, world_size: int | None) -> RankCommit:
    """What an earlier call read of a stored source; of an unpublished one, its commit."""
    start, end = stored.facts.get("start_ns"), stored.facts.get("end_ns")
    window = (start, end) if isinstance(start, int) and isinstance(end, int) else (None, None)
    return RankCommit(
        stored.digest,
        stored.status,
        stored.text_bytes,
        rank,
        world_size,
        window,
        is_known=True,
        content=None if is_published else content_of(stored.facts, stored.status),
        place=None if is_published else (stored.run, stored.rank),
        uid=stored.uid,
        commit=stored.commit,
    )


def object_fact(source: Source, salt: bytes, outcome: Outcome) -> dict[str, Json]:
    """The fact of a source that was read from an object; nothing for a file, or if another file is joined."""
    if source.file.object is None or source.beside:
        return {}
    fact: dict[str, Json] = {"id": source.file.object.identity(salt), "parts": source.file.parts}
    fact |= {"rank": outcome.rank, "world_size": outcome.world_size, "addition": source.part.addition}
    return {_FACT: fact}


def _object_fact(source: RankSource) -> Mapping[str, Json]:
    fact = source.facts.get(_FACT)
    return fact if isinstance(fact, dict) else {}


def has_damage(store: Store, source: RankSource) -> bool:
    """Whether a file of the source is missing, or its size or footer differs from what was written.

    In an object store only sizes are compared: its files would be downloaded for the rest.
    """
    if store.is_remote:
        return bool(store.missing_files([source]))
    return any(fault(store.path(file.path), file, Level.FOOTER) is not None for file in source.files)


def conflict(source: Source, stored_from: Json = None) -> FileOutcome:
    """The refusal of a source whose rank is stored with different content, of the file with this name."""
    path, run = source.file.path, source.target.run
    reason = f"rank {source.target.rank} of run {run} already exists with different content"
    folder = folder_run_name(split_path(folder_of(path) / path.name).job.name)
    another_run = hints.option("run", "NAME" if folder.lower() == run.lower() else folder)
    hint = hints.fill("{} overwrites it, {} stores it as another run", hints.option("replace"), another_run)
    if source.published is None and source.format.name.startswith(("kineto", *RECORDINGS)):
        text = "if both files recorded one process, ingest them together with {}; {} stores this one apart"
        hint = hints.fill(text, hints.option("replace"), another_run)
    reason = f"{reason}, from {stored_from}" if stored_from else reason
    return replace(source.outcome("refused", reason, hint), notes=())
