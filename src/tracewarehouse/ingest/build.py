"""The third phase of an ingest: sources are read once, their tables built and committed.

A task reads one large source or several small ones, in this process or a worker. A source that fails or is
stored already does not affect the others, which are committed together.
"""

from __future__ import annotations

import os
import pickle
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path, PurePath
from shutil import rmtree
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.engines import OnProgress, TaskProgress, task_failure
from tracewarehouse.formats.base import ACTIVITIES, AFTER_THE_END, Outcome, Request
from tracewarehouse.formats.base import Source as FileSource
from tracewarehouse.formats.file_text import UnsupportedFormatError
from tracewarehouse.formats.redact.rules import POLICY_FILE, Policy, fingerprint, policy_of, rules
from tracewarehouse.formats.redact.text import Redactor, clean_name
from tracewarehouse.ingest.attempts import attempt_fact
from tracewarehouse.ingest.naming import SOURCE_FOLDER, header_facts, header_of, rank_in_file, source_folder
from tracewarehouse.ingest.outcome import (
    BY_ANOTHER_PROCESS,
    FileOutcome,
    Options,
    Progress,
    State,
    Watch,
    content_of,
)
from tracewarehouse.ingest.parquet import RankFiles
from tracewarehouse.ingest.resources import check_memory, is_large, system_allocator
from tracewarehouse.ingest.rules import digest_of
from tracewarehouse.ingest.sources import CHANGED, ObjectChanged, RankCommit, Source, TimeWindow, file_stamp
from tracewarehouse.ingest.stored import StoredRanks, object_fact
from tracewarehouse.ingest.survey import other_format
from tracewarehouse.storage.layout import uid
from tracewarehouse.storage.model import KERNEL_RULES, Json, Staged
from tracewarehouse.storage.objects import disk_error, disk_errors, is_removed
from tracewarehouse.storage.pack import consecutive
from tracewarehouse.storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.tables.build import Built, RankTables

    Tables: TypeAlias = Mapping[str, Columns | pa.Table]

# A task holds the tables of small ranks in memory until it writes them side by side, one file per table.
GROUP_RANKS = 64
GROUP_BYTES = 64 << 20
# Tables of less text than this are written faster than a thread starts.
_MIN_THREAD_BYTES: Final = 4 << 20
# Reported instead of the number of bytes once everything is read and tables are being built.
_BUILDING: Final = -1
# File in the folder of a task with what the driver commits once all files are known.
_STAGED: Final = "staged.pickle"


def task_groups(sources: Iterable[Source], jobs: int) -> list[tuple[Source, ...]]:
    """The sources of each task: one large one, or small ones of one run in order of rank; largest first.

    There are at least as many tasks as processes, so that no core idles while another one packs small ranks.
    """
    # Two sources of a rank are never in one task.
    by_run: dict[tuple[str, str], list[Source]] = defaultdict(list)
    for source in sources:
        by_run[source.target.run, source.part.addition].append(source)
    total_bytes = sum(source.text_bytes for members in by_run.values() for source in members)
    limit = min(GROUP_BYTES, -(-total_bytes // jobs))

    def belongs(group: Sequence[Source], source: Source) -> bool:
        size = sum(one.text_bytes for one in group) + source.text_bytes
        return len(group) < GROUP_RANKS and size <= limit

    groups: list[tuple[Source, ...]] = []
    for members in by_run.values():
        members.sort(key=lambda source: (source.target.rank, source.key))
        groups += consecutive(members, belongs)
    return sorted(groups, key=lambda group: -sum(source.text_bytes for source in group))


class BuildRanks(Struct, frozen=True):
    """Reads sources, builds the tables of those with a target, and commits them as one group.

    `folder` for uncommitted files is relative to that of the warehouse on the machine of the worker. `sql` is
    the folder of the contracts, None for that of the installation. `stage_only`: tables are only staged; the
    driver commits them once all files are known. `started_at` is the ingest time of all sources, so that the
    order of runs does not depend on the speed of workers.
    """

    sources: tuple[Source, ...]
    folder: PurePath
    store: Store
    sql: Path | None
    options: Options
    stage_only: bool
    started_at: str

    def run(self, progress: TaskProgress) -> tuple[RankCommit | FileOutcome, ...]:
        """The commit or outcome of each source. `progress(position, bytes)` reports the text that is read."""
        folder = self.store.folder / self.folder
        largest_bytes = max(source.text_bytes for source in self.sources)
        is_single = len(self.sources) == 1 and largest_bytes >= _MIN_THREAD_BYTES
        catalog = Catalog.load(self.sql)
        try:
            with (
                disk_errors(folder),
                ExitStack() as opened,
                RankFiles(catalog, folder, is_single, is_large(largest_bytes)) as files,
            ):
                folder.mkdir(parents=True, exist_ok=True)
                policy = policy_of(self.store.folder_with(POLICY_FILE), self.options.redact)
                redactor = Redactor(self.store.salt, policy)
                group = _Group(self, folder, catalog, files, opened, policy, redactor)
                for position, source in enumerate(self.sources):
                    group.add(source, partial(progress, position))
                return group.committed()
        finally:
            if not self.stage_only:  # the driver may be on another machine
                rmtree(folder, ignore_errors=True)

    def one_by_one(self) -> list[BuildRanks]:
        """One task per source."""
        name = self.folder.name
        return [
            replace(self, sources=(source,), folder=self.folder.with_name(f"{name}-{position}"))
            for position, source in enumerate(self.sources)
        ]


class _Waiting(Struct, frozen=True):
    """A source that is read and whose tables are not built."""

    source: Source
    commit: RankCommit
    rank: RankTables


class _Group(Struct):
    """The sources of a task while they are built; those with tables are committed together."""

    task: BuildRanks
    folder: Path
    catalog: Catalog
    files: RankFiles
    # Files that stay open until everything is written.
    opened: ExitStack
    policy: Policy
    redactor: Redactor
    results: list[RankCommit | FileOutcome] = field(default_factory=list)
    # Index in `results` → what will be committed, without its tables.
    staged: dict[int, Staged] = field(default_factory=dict)
    # Index in `results` → small ranks that are read; their tables are built together.
    waiting: dict[int, _Waiting] = field(default_factory=dict)

    def add(self, source: Source, progress: Callable[[int], None]) -> None:
        """Reads one source, and builds its tables if it may be stored as its target."""
        file = source.file
        path = file.local(self.folder)
        try:
            check_memory(source.text_bytes + sum(one.text_bytes for one in source.beside))
            with system_allocator() if is_large(source.text_bytes) else nullcontext():
                progress(0)
                result = _left(source) if _is_changed(source) else self._read(source, path, progress)
        except ObjectChanged:
            result = _left(source)
        except UnsupportedFormatError as error:
            result = other_format(file, error.format, error.details)
        except Exception as error:
            result = self._failed(source, error)
        if self.task.options.inbox and isinstance(result, FileOutcome) and not (file.copy or path.exists()):
            result = _left(source, "skipped", BY_ANOTHER_PROCESS, None)
        is_built = len(self.results) in self.waiting
        if file.copy and file.parts == 1 and not _may_be_read_again(source, result, is_built):
            path.unlink(missing_ok=True)
        self.results.append(result)

    def _failed(self, source: Source, error: Exception) -> FileOutcome:
        """The outcome of a source that could not be read or built: a half-written file fails in many ways."""
        copy = source.file.local(self.folder) if source.file.copy else None
        inbox = self.task.options.inbox
        if isinstance(error, OSError) and is_removed(error):
            error = disk_error(self.folder, error)
        return _left(source) if _is_changed(source) else source.file.failed(task_failure(error), inbox, copy)

    def _build_waiting(self) -> None:
        """Builds the tables of the ranks that are read: together, or if that fails one by one."""
        waiting = dict(self.waiting)
        self.waiting.clear()
        try:
            built: Mapping[int, RankCommit | FileOutcome] = self._build_tables(waiting)
        except Exception:
            built = {position: self._built_alone(position, one) for position, one in waiting.items()}
        for position, result in built.items():
            self.results[position] = result

    def _built_alone(self, position: int, one: _Waiting) -> RankCommit | FileOutcome:
        try:
            return self._build_tables({position: one})[position]
        except Exception as error:
            return self._failed(one.source, error)

    def committed(self) -> tuple[RankCommit | FileOutcome, ...]:
        """Commits or stages what was built and returns the results."""
        self._build_waiting()
        if self.staged:
            tables = self.files.staged(next(iter(self.staged.values())).run)
            staged = [replace(one, tables=tables.get(one.rank, ())) for one in self.staged.values()]
            if self.task.stage_only:
                (self.folder / _STAGED).write_bytes(pickle.dumps(staged))
                commits = [""] * len(staged)
            else:
                commits = [one.commit for one in self.task.store.commit(staged)]
            folder = self.folder if self.task.stage_only else None
            for position, commit in zip(self.staged, commits, strict=True):
                result = self.results[position]
                assert isinstance(result, RankCommit)
                self.results[position] = replace(result, commit=commit, staged=folder)
        return tuple(self.results)

    def _read(self, source: Source, path: Path, progress: Callable[[int], None]) -> RankCommit | FileOutcome:
        """What reading a source shows, and the commit of its tables, without its place."""
        from tracewarehouse.ingest.columns import read_table

        options, read_bytes = self.task.options, 0
        # Folder for temporary files, which are unlinked as soon as they are open.
        spill = options.temp_dir or self.folder

        def on_progress(done_bytes: int) -> None:
            nonlocal read_bytes
            read_bytes = done_bytes
            progress(done_bytes)

        if source.file.copy:
            source.file.fetch(path)
        # The digest of two files is known once both are read.
        known = source.known.digest if source.known and not source.beside else None
        salt = self.task.store.salt
        request = Request(salt, spill, on_progress, False, known, options.time_unit, self.policy)
        read = source.format.open(path).read(source.part, request)
        if source.beside:
            read = self._joined(read, source.beside, replace(request, progress=None))
        tables = {
            # Either everything is read by now, or only the estimate is known.
            name: read_table(name, reader, read_bytes or source.text_bytes, spill, self.opened)
            for name, reader in read.tables.items()
        }
        outcome = read.outcome().without_secrets(self.redactor)
        del read  # frees the memory of the reader
        if _is_changed(source) or (source.commit and source.commit.digest != outcome.digest):
            return _left(source)
        if _is_cut_short(outcome) and time.time() - source.stamp[1] / 1e9 < options.min_age_s:
            reason = f"is truncated and was modified less than {options.min_age_s:g} s ago"
            hint = "ingest it again later, or with "
            return _left(source, "pending", reason, hints.Hint(f"{hint}min_age_s=0", f"{hint}--min-age 0"))
        if not tables:
            return RankCommit(outcome.digest, outcome.status, outcome.text_bytes, is_known=True)
        return self._built(source, tables, outcome, progress)

    def _joined(self, trace: FileSource, beside: Sequence[Source], request: Request) -> FileSource:
        """The trace with what other tools recorded beside it, as far as that can be read and matches."""
        from tracewarehouse.formats.mapped import JoinedSource, Recording

        def read(one: Source) -> FileSource:
            path = one.file.local(self.folder)
            if one.file.copy:
                one.file.fetch(path)
            return one.format.open(path).read(one.part, request)

        return JoinedSource(
            trace,
            [
                Recording(clean_name(self.redactor, one.file.path.name), one.format.name, partial(read, one))
                for one in beside
            ],
        )

    def _built(
        self, source: Source, tables: Tables, outcome: Outcome, progress: Callable[[int], None]
    ) -> RankCommit:
        """The commit with tables, unless the source is stored, may not be, or has another rank.

        A small rank only waits for its tables.
        """
        from tracewarehouse.ingest.tables.build import JOINED_ROWS, RankTables

        commit = RankCommit(
            outcome.digest,
            outcome.status,
            outcome.text_bytes,
            outcome.rank,
            outcome.world_size,
            _window(tables),
            apart=tuple(found.example for found in outcome.findings if found.rule == "not_joined"),
        )
        target, published = source.target, source.published
        # A rank that only the whole file says may move it, and others, to other runs and ranks.
        is_moved = source.commit is None and outcome.rank not in (None, source.rank, target.rank)
        if not target.run or is_moved:
            return commit
        if published and published.digest == outcome.digest:
            if source.is_current:
                return replace(commit, is_known=True)
        elif not source.may_replace(outcome.status, outcome.text_bytes, self.task.options.replace):
            return commit
        if source.commit is None and self._is_elsewhere(replace(source, commit=commit)):
            return commit
        source_uid = self._uid(source, outcome)
        commit = replace(commit, place=(target.run, target.rank), uid=source_uid)
        if source.unpublished and source.unpublished.uid == source_uid:
            return replace(commit, commit=source.unpublished.commit)
        progress(_BUILDING)
        read, position = RankTables(target.rank, tables, outcome), len(self.results)
        is_joinable = len(self.task.sources) > 1 and read.is_joinable
        if not is_joinable or read.rows + sum(one.rank.rows for one in self.waiting.values()) > JOINED_ROWS:
            self._build_waiting()
        waiting = _Waiting(source, commit, read)
        if is_joinable:
            self.waiting[position] = waiting
            return commit
        return self._build_tables({position: waiting})[position]

    def _is_elsewhere(self, source: Source) -> bool:
        """Whether another run has the content: the driver decides whether it belongs there."""
        stored = StoredRanks(self.task.store, definitions(self.catalog), self.task.options)
        return stored.renamed([source])[0].target.run != source.target.run

    def _build_tables(self, waiting: Mapping[int, _Waiting]) -> dict[int, RankCommit]:
        """Builds the tables of sources, and adds them to what will be committed; of all sources or none."""
        from tracewarehouse.ingest.columns import Columns
        from tracewarehouse.ingest.rules import rules_of
        from tracewarehouse.ingest.tables.build import build

        if not waiting:
            return {}
        ranks = [one.rank for one in waiting.values()]
        numbers = [rank.rank for rank in ranks]
        run = next(one.source.target.run for one in waiting.values())
        add = partial(self.files.add, run, numbers)
        commits, staged = {}, {}
        try:
            if isinstance(activities := ranks[0].tables.get(ACTIVITIES), Columns):
                self.files.split_ahead(activities)
            options = self.task.options
            rules = rules_of(self.catalog.folder, options.kernel_rules)
            built = build(ranks, rules, add, options.step_pattern)
            for (position, one), known in zip(waiting.items(), built, strict=True):
                staged[position] = new = self._staged(one, known)
                content = content_of(new.facts, new.status, new.text_bytes, known.quality)
                commits[position] = replace(one.commit, content=content)
        except Exception:
            self.files.drop(numbers)
            raise
        self.staged |= staged
        return commits

    def _staged(self, one: _Waiting, built: Built) -> Staged:
        """What will be committed of a rank, without its tables."""
        outcome, source = one.rank.outcome, one.source
        facts = self._facts(source, outcome, built.facts) | {
            # Stored for the coverage notice of analyses that use launches.
            **asdict(built.coverage),
        }
        return Staged(
            run=source.target.run,
            rank=one.rank.rank,
            uid=one.commit.uid,
            digest=outcome.digest,
            text_bytes=outcome.text_bytes,
            format=source.format.name,
            format_version=source.format.version,
            definitions=definitions(self.catalog),
            status=outcome.status,
            tables=(),
            part=source.part.name,
            facts=facts,
            header=outcome.header_json,
            committed_at=self.task.started_at,
        )

    def _uid(self, source: Source, outcome: Outcome) -> str:
        """The identity of a source as its target: content, format, definitions and options."""
        options = self.task.options
        named = {
            **_given(options),
            "redact": "" if options.redact else "no",
            KERNEL_RULES: digest_of(options.kernel_rules),
        }
        return uid(
            outcome.digest,
            source.target.run,
            source.target.rank,
            part=source.part.name,
            format=source.format.name,
            format_version=source.format.version,
            definitions=definitions(self.catalog),
            options={name: value for name, value in named.items() if value},
        )

    def _facts(self, source: Source, outcome: Outcome, of_tables: Mapping[str, Json]) -> dict[str, Json]:
        """The facts that are stored for a rank, the columns of `ranks`."""
        header = header_of(outcome.header_json)
        facts: dict[str, Json] = header_facts(header) | {"rank_in_file": rank_in_file(header)}
        facts |= {**outcome.facts, **of_tables, **_given(self.task.options)}  # type: ignore[dict-item]
        facts["framework"] = of_tables.get("framework") or outcome.facts.get("framework")  # type: ignore[assignment]
        lost_events = [loss.events_lost for loss in outcome.losses]
        known = outcome.world_size if outcome.world_size is not None else facts["world_size"]
        name = os.fsencode(source.file.path.name).decode(errors="backslashreplace")
        return facts | {
            "world_size": known if known is not None else source.target.world_size,
            # A file name may hold any bytes; a table holds text.
            "source_name": clean_name(self.redactor, name),
            SOURCE_FOLDER: source_folder(source.file.path, self.task.store.salt),
            **object_fact(source, self.task.store.salt, outcome),
            **attempt_fact(source),
            "source_bytes": outcome.stored_bytes,
            "status": outcome.status,
            "lost_bytes": sum(loss.byte_to - loss.byte_from for loss in outcome.losses),
            "lost_events": None if None in lost_events else sum(filter(None, lost_events)),
            "redacted": len(outcome.redactions),
            "redaction": redacted_by(self.policy),
            **kernel_rules_fact(digest_of(self.task.options.kernel_rules), of_tables),
            "tables": {contract.name: [contract.version] for contract in self.catalog.stored_tables()},
        }


def kernel_rules_fact(digest: str, facts: Mapping[str, Json]) -> dict[str, Json]:
    """The fact of a rank about users' rules: their digest, if they could classify an activity of it."""
    has_rules = facts.get("gpu") and (digest or KERNEL_RULES in facts)
    return {KERNEL_RULES: digest} if has_rules else {}


def definitions(catalog: Catalog) -> dict[str, int]:
    """The current definition of every stored table."""
    return {contract.name: contract.definition or 0 for contract in catalog.stored_tables()}


def redacted_by(policy: Policy) -> Json:
    """The version of the redaction rules (0: not redacted), and the hash of the policy (empty for none)."""
    return {"rules": rules(policy).version, "policy": fingerprint(policy)}


def _given(options: Options) -> dict[str, str]:
    """The options that decide what is read, where they are given."""
    named = {"time_unit": options.time_unit, "step_range": options.step_pattern}
    return {name: value for name, value in named.items() if value is not None}


def _is_changed(source: Source) -> bool:
    """Whether a file was written to; an object is compared while it is downloaded."""
    if any(_is_changed(one) for one in source.beside):
        return True
    return source.file.object is None and file_stamp(source.file.path) != source.stamp


def _left(
    source: Source,
    state: State = "pending",
    reason: str = CHANGED,
    hint: str | None = "ingest it again later",
) -> FileOutcome:
    """The outcome of a source that is not read now; its run and rank are sure if it was read before."""
    run, rank = (source.target.run, source.target.rank) if source.commit else (None, None)
    return FileOutcome(source.file.path, state, run, rank, reason, hint)


def _may_be_read_again(source: Source, result: RankCommit | FileOutcome, is_built: bool) -> bool:
    """Whether the call may need the file after this: to build it at another place, or to compare it."""
    if isinstance(result, FileOutcome) or result.is_known:
        return False
    is_compared = source.published is not None and source.published.status == "damaged"
    return is_compared or not (is_built or result.content)


def _is_cut_short(outcome: Outcome) -> bool:
    """Whether a writer may continue the file: its end is missing."""
    ends = (loss for loss in outcome.losses if loss.byte_to >= outcome.text_bytes)
    return any(loss.reason != AFTER_THE_END for loss in ends)


def _window(tables: Tables) -> TimeWindow:
    """First start and last end of the slices of a source; None if no slice has a time."""
    from tracewarehouse.ingest.tables.model import window

    activities = tables.get(ACTIVITIES)
    if activities is None:
        return None, None
    assert not hasattr(activities, "schema")
    timed = activities.valid("ts_ns") & activities.is_one_of("ph", ["X"])
    return window(activities, timed) if timed.any() else (None, None)


def staged_in(folder: Path) -> list[Staged]:
    """What a task only staged."""
    staged: list[Staged] = pickle.loads((folder / _STAGED).read_bytes())
    return staged


class FileProgress(Struct):
    """Translates the progress of tasks to that of files."""

    watch: Watch
    # Source → bytes of text that are read.
    done: dict[tuple[Path, str], int] = field(default_factory=dict)

    def of(self, tasks: Sequence[BuildRanks]) -> OnProgress:
        """The callback for the progress of these tasks."""

        def on_progress(task: int, position: int, done_bytes: int) -> None:
            source = tasks[task].sources[position]
            path, before = source.file.path, self.done.get(source.key, 0)
            if done_bytes == _BUILDING:
                self.watch(Progress(path, "tables", before, before))
            else:
                self.done[source.key] = done = max(before, done_bytes)
                self.watch(Progress(path, "read", done, max(done, source.text_bytes)))

        return on_progress

    def finished(self, source: Source, result: RankCommit | FileOutcome) -> None:
        """Reports that a source is done."""
        read_bytes = result.text_bytes if isinstance(result, RankCommit) else source.text_bytes
        total = max(1, self.done.get(source.key, 0), read_bytes)
        self.watch(Progress(source.file.path, "done", total, total))
