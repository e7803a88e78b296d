"""Building the tables of a source: one pass over its file, in this process or a worker, with progress.

A source that fails or is already stored does not affect the others, which are committed together.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import cached_property, partial
from pathlib import Path, PurePath
from shutil import rmtree
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.engines import Failure, OnProgress, TaskProgress, attempt
from tracewarehouse.formats.base import ACTIVITIES, Outcome, Request
from tracewarehouse.formats.file_text import UnsupportedFormatError
from tracewarehouse.formats.redact import (
    POLICY_FILE,
    Policy,
    Redactor,
    clean_name,
    fingerprint,
    policy_of,
    rules,
)
from tracewarehouse.ingest.assignment import Assignment
from tracewarehouse.ingest.naming import header_facts, header_of, rank_in_file
from tracewarehouse.ingest.open_files import ObjectChanged, file_stamp, without_copy
from tracewarehouse.ingest.outcome import (
    Content,
    Progress,
    Watch,
    content_of,
    is_cut_short,
    lost_events,
    window,
)
from tracewarehouse.ingest.parquet import RankFiles
from tracewarehouse.ingest.plan import (
    BuiltTables,
    Item,
    ReadSource,
    Report,
    StoredSources,
    Target,
    UnreadSource,
    object_fact,
)
from tracewarehouse.ingest.resources import check_memory, is_large, no_huge_pages, system_allocator
from tracewarehouse.storage import Json, Staged, Store, disk_error, uid

if TYPE_CHECKING:
    import pyarrow as pa

    from tracewarehouse.contracts.contract import Contract
    from tracewarehouse.ingest.columns import Columns

    Tables: TypeAlias = Mapping[str, Columns | pa.Table]


def definitions(catalog: Catalog) -> dict[str, int]:
    """The current definition of every stored table."""
    return {contract.name: contract.definition or 0 for contract in _tables(catalog)}


def _tables(catalog: Catalog) -> Sequence[Contract]:
    from tracewarehouse.ingest.tables.build import stored_tables

    return stored_tables(catalog)


def uid_of(group: SourceGroup, item: Item, outcome: Outcome, target: Target) -> str:
    """The identity of a source as its target: content, format, definitions and options."""
    settings = group.settings
    options = {
        "time_unit": settings.time_unit,
        "step_range": settings.step_range,
        "redact": "" if settings.redact else "no",
    }
    return uid(
        outcome.digest,
        target.run,
        target.rank,
        part=item.part.name,
        format=item.format.name,
        format_version=item.format.version,
        definitions=group.stored.definitions,
        options={name: value for name, value in options.items() if value},
    )


def facts_of(
    group: SourceGroup, item: Item, built: Mapping[str, Json], outcome: Outcome, target: Target
) -> dict[str, Json]:
    """The facts that are stored for the rank, the columns of `ranks`; `built` are those of its tables."""
    header, settings = header_of(outcome.header_json), group.settings
    facts: dict[str, Json] = header_facts(header) | {"rank_in_file": rank_in_file(header)}
    facts |= {**outcome.facts, **built}  # type: ignore[dict-item]
    if settings.time_unit is not None:
        facts["time_unit"] = settings.time_unit
    if settings.step_range is not None:
        facts["step_range"] = settings.step_range
    known = outcome.world_size if outcome.world_size is not None else facts["world_size"]
    name = os.fsencode(item.path.name).decode(errors="backslashreplace")
    return facts | {
        "world_size": known if known is not None else target.world_size,
        # A file name may hold any bytes; a table holds text.
        "source_name": clean_name(group.redactor, name),
        **object_fact(item, group.store.salt, outcome),
        "source_bytes": outcome.stored_bytes,
        "status": outcome.status,
        "lost_bytes": sum(loss.byte_to - loss.byte_from for loss in outcome.losses),
        "lost_events": lost_events(outcome),
        "redacted": len(outcome.redactions),
        "redaction": redacted_by(group.policy),
        "tables": {contract.name: [contract.version] for contract in _tables(group.catalog)},
    }


def redacted_by(policy: Policy) -> Json:
    """The version of the redaction rules (0: not redacted), and the hash of the policy (empty for none)."""
    return {"rules": rules(policy).version, "policy": fingerprint(policy)}


# Reported instead of the number of bytes once everything is read and tables are being built.
BUILDING: Final = -1
# File in the folder of a task with what the driver commits once all files are known.
STAGED: Final = "staged.pickle"


class Settings(Struct, frozen=True):
    """Settings of all tasks of a call; see Options.

    `sql` is the folder of the contracts, None for that of the installation. `stage_only`: tables are only
    staged; the driver commits them once all files are known. `single_source`: the call has no other source.
    `force_rank`: the rank of the target overrides the rank in the source. `started_at` is the ingest time of
    all sources, so that the order of runs does not depend on the speed of workers.
    """

    store: Store
    sql: Path | None = None
    temp_dir: Path | None = None
    replace: bool = False
    settle_s: float = 0.0
    stage_only: bool = False
    single_source: bool = False
    force_rank: bool = False
    time_unit: Literal["us", "ns"] | None = None
    step_range: str | None = None
    redact: bool = True
    reuse: bool = True
    started_at: str | None = None


class SourceGroup(Struct, dict=True):
    """The sources of a task; those with tables are committed together."""

    settings: Settings
    folder: Path
    store: Store
    catalog: Catalog
    files: RankFiles
    # Files that stay open until everything is written.
    opened: ExitStack
    reports: list[Report] = field(default_factory=list)
    # Index in `reports` → what will be committed, without its tables.
    built: dict[int, Staged] = field(default_factory=dict)

    @cached_property
    def stored(self) -> StoredSources:
        """What is already stored."""
        settings = self.settings
        return StoredSources(
            self.store,
            definitions(self.catalog),
            settings.time_unit,
            settings.step_range,
            settings.replace,
            settings.redact,
            reuse=settings.reuse,
        )

    @cached_property
    def policy(self) -> Policy:
        """The redaction policy of the warehouse."""
        return policy_of(self.store.folder_with(POLICY_FILE), self.settings.redact)

    @cached_property
    def redactor(self) -> Redactor:
        """Replaces secrets in names."""
        return Redactor(self.store.salt, self.policy)

    def add(self, item: Item, progress: Callable[[int], None]) -> None:
        """Reads one source and builds its tables."""
        path = item.remote.local(self.folder) if item.remote else item.path
        source = _SourceBuild(self, item, progress, path)
        found = attempt(source, _ignored)
        if isinstance(found, Failure):
            if item.target:
                self.files.drop(item.target.rank)
            # A half-written file can fail in many ways.
            failure = without_copy(found, item.path, path) if item.remote else found
            found = (
                UnreadSource(item.number, "changed")
                if source.is_changed()
                else UnreadSource(item.number, "failed", failure)
            )
        if item.remote and not (isinstance(found, ReadSource) and item.may_be_read_again(found)):
            item.remote.forget(path)
        self.reports.append(found)  # type: ignore[arg-type]

    def finish(self) -> tuple[Report, ...]:
        """Commits or stages what was built and returns the reports."""
        if self.built:
            run = next(iter(self.built.values())).run
            tables = self.files.staged(run)
            staged = [replace(one, tables=tables.get(one.rank, ())) for one in self.built.values()]
            if self.settings.stage_only:
                (self.folder / STAGED).write_bytes(pickle.dumps(staged))
                built_tables = [BuiltTables(one.run, one.rank, one.uid, staged=self.folder) for one in staged]
            else:
                sources = self.store.commit(staged)
                built_tables = [BuiltTables(one.run, one.rank, one.uid, one.manifest) for one in sources]
            for position, one in zip(self.built, built_tables, strict=True):
                report = self.reports[position]
                assert isinstance(report, ReadSource)
                self.reports[position] = replace(report, built_tables=one)
        return tuple(self.reports)


def _ignored(_done: int, _total: int) -> None:
    """Ignored: sources report their progress themselves."""


class _SourceBuild(Struct, frozen=True):
    """One source of a task; `run` raises if it fails."""

    group: SourceGroup
    item: Item
    progress: Callable[[int], None]
    # The file itself, or the copy of an object.
    path: Path
    # Bytes of text that the format has read so far.
    read_bytes: list[int] = field(default_factory=lambda: [0])

    def run(self, _: TaskProgress) -> Report:
        """Reads the source and builds its tables if it may be stored as its target."""
        check_memory(self.item.text_bytes)
        with system_allocator() if is_large(self.item.text_bytes) else nullcontext():
            return self._run()

    def _run(self) -> Report:
        item, settings = self.item, self.group.settings
        self.progress(0)
        if self.is_changed():
            return UnreadSource(item.number, "changed")
        request = Request(
            salt=self.group.store.salt,
            spill=self._spill,
            progress=self._progress,
            known_digest=item.target.known_digest if item.target else None,
            time_unit=settings.time_unit,
            policy=self.group.policy,
        )
        try:
            if item.remote:
                item.remote.fetch(self.path)
            source = item.format.open(self.path).read(item.part, request)
            tables = {name: self._read(name, reader) for name, reader in source.tables.items()}
            outcome = source.outcome().without_secrets(self.group.redactor)
            del source  # frees the memory of the reader
        except ObjectChanged:
            return UnreadSource(item.number, "changed")
        except UnsupportedFormatError as error:
            return UnreadSource(item.number, "other", kind=error.format, details=error.details)
        if self.is_changed() or item.digest not in (None, outcome.digest):
            return UnreadSource(item.number, "changed")
        if is_cut_short(outcome) and time.time() - item.stamp[1] / 1e9 < settings.settle_s:
            return UnreadSource(item.number, "unfinished")
        return self._known(outcome) if not tables else self._report(tables, outcome)

    def is_changed(self) -> bool:
        """Whether the file was written to; an object is compared while it is downloaded."""
        return self.item.remote is None and file_stamp(self.path) != self.item.stamp

    @property
    def _spill(self) -> Path:
        """Folder for temporary files, which are unlinked as soon as they are open."""
        return self.group.settings.temp_dir or self.group.folder

    def _progress(self, read_bytes: int) -> None:
        self.read_bytes[-1] = read_bytes
        self.progress(read_bytes)

    def _read(self, name: str, reader: pa.RecordBatchReader) -> Columns | pa.Table:
        from tracewarehouse.ingest.columns import read_table

        # Either everything is read by now, or only the estimate is known.
        text_bytes = self.read_bytes[-1] or self.item.text_bytes
        return read_table(name, reader, text_bytes, self._spill, self.group.opened)

    def _known(self, outcome: Outcome) -> ReadSource:
        """The report of content that is already stored as the target, published or not."""
        item, target = self.item, self.item.target
        assert target is not None
        published, unpublished = target.published, target.unpublished
        if published and published.is_current:
            return ReadSource(
                item.number, published.digest, published.status, published.text_bytes, known=True
            )
        assert unpublished is not None
        built_tables = BuiltTables(target.run, target.rank, unpublished.uid, unpublished.manifest)
        return ReadSource(
            item.number,
            unpublished.digest,
            unpublished.status,
            outcome.text_bytes,
            known=True,
            built_tables=built_tables,
        )

    def _report(self, tables: Tables, outcome: Outcome) -> Report:
        """The report of a source that was read; its tables are built if it may be stored as its target."""
        read = ReadSource(
            self.item.number,
            outcome.digest,
            outcome.status,
            outcome.text_bytes,
            outcome.rank,
            outcome.world_size,
            window(tables.get(ACTIVITIES)),
        )
        target = self._target(outcome)
        published = target.published if target else None
        if target is None:
            return read
        if published and published.digest == outcome.digest:
            if published.is_current:
                return replace(read, known=True)
        elif published and not published.may_be_replaced_by(
            outcome.status, outcome.text_bytes, self.group.settings.replace
        ):
            return read
        source_uid = uid_of(self.group, self.item, outcome, target)
        if target.unpublished and target.unpublished.uid == source_uid:
            return replace(
                read,
                built_tables=BuiltTables(target.run, target.rank, source_uid, target.unpublished.manifest),
            )
        return replace(read, content=self._build(tables, outcome, target, source_uid))

    def _target(self, outcome: Outcome) -> Target | None:
        """The target; None if the source specifies another rank and the call has other sources."""
        target, settings = self.item.target, self.group.settings
        if target is None or settings.force_rank or outcome.rank in (None, target.rank):
            return target
        if not settings.single_source:
            return None
        # No other source can affect the assignment.
        wanted = Assignment(self.item.path, target.run, outcome.rank, target.world_size)
        return self.group.stored.target(self.item.format, wanted)

    def _build(self, tables: Tables, outcome: Outcome, target: Target, source_uid: str) -> Content:
        """Builds the tables of the rank, which is committed with the others of its group."""
        from tracewarehouse.ingest.rules import rules_of
        from tracewarehouse.ingest.tables.build import build

        group, item = self.group, self.item
        self.progress(BUILDING)
        built = build(
            tables,
            outcome,
            rules_of(group.catalog.folder),
            partial(group.files.add, target.run, target.rank),
            group.settings.step_range,
        )
        facts = facts_of(group, item, built.facts, outcome, target)
        content = content_of(outcome, facts, built)
        # Stored for the coverage notice of analyses that use launches.
        facts |= {
            "gpu_ns": content.gpu_ns,
            "launch_known_ns": content.launch_known_ns,
            "with_op_ns": content.with_op_ns,
        }
        group.built[len(group.reports)] = Staged(
            run=target.run,
            rank=target.rank,
            uid=source_uid,
            digest=outcome.digest,
            text_bytes=outcome.text_bytes,
            format=item.format.name,
            format_version=item.format.version,
            definitions=group.stored.definitions,
            status=outcome.status,
            tables=(),
            part=item.part.name,
            facts=facts,
            header=outcome.header_json,
            committed_at=self.group.settings.started_at,
        )
        return content


# Tables of less text than this are written faster than a thread starts.
_MIN_THREAD_BYTES: Final = 4 << 20


class BuildRanks(Struct, frozen=True):
    """Reads the items, builds the tables of those with a target, and commits them as one group.

    `folder` for uncommitted files is relative to that of the warehouse on the machine of the worker.
    """

    items: tuple[Item, ...]
    folder: PurePath
    settings: Settings

    def run(self, progress: TaskProgress) -> tuple[Report, ...]:
        """Returns a report per item. `progress(position, bytes)` reports how much text of an item is read."""
        store, catalog = self.settings.store, Catalog.load(self.settings.sql)
        folder = store.folder / self.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            largest_bytes = max((item.text_bytes for item in self.items), default=0)
            single = len(self.items) == 1 and largest_bytes >= _MIN_THREAD_BYTES
            # A large file reuses the same memory for long and benefits from huge pages.
            is_short = not any(is_large(item.text_bytes) for item in self.items)
            with (
                no_huge_pages() if is_short else nullcontext(),
                ExitStack() as opened,
                RankFiles(catalog, folder, single, is_large(largest_bytes)) as files,
            ):
                group = SourceGroup(self.settings, folder, store, catalog, files, opened)
                for position, item in enumerate(self.items):
                    group.add(item, partial(progress, position))
                return group.finish()
        except OSError as error:
            raise disk_error(folder, error) from error
        finally:
            if not self.settings.stage_only:  # the driver may be on another machine
                rmtree(folder, ignore_errors=True)

    def one_by_one(self) -> list[BuildRanks]:
        """One task per item."""
        folders = (
            self.folder.with_name(f"{self.folder.name}-{position}") for position in range(len(self.items))
        )
        return [
            BuildRanks((one,), folder, self.settings) for one, folder in zip(self.items, folders, strict=True)
        ]


def staged_in(folder: Path) -> list[Staged]:
    """What a task only staged."""
    found: list[Staged] = pickle.loads((folder / STAGED).read_bytes())
    return found


class FileProgress(Struct):
    """Translates the progress of tasks to that of files."""

    watch: Watch
    done: dict[int, int] = field(default_factory=dict)

    def of(self, tasks: Sequence[BuildRanks]) -> OnProgress:
        """The callback for the progress of these tasks."""

        def on_progress(task: int, position: int, done_bytes: int) -> None:
            self._report(tasks[task].items[position], done_bytes)

        return on_progress

    def _report(self, one: Item, done_bytes: int) -> None:
        before = self.done.get(one.number, 0)
        if done_bytes == BUILDING:
            self.watch(Progress(one.path, "tables", before, before))
        else:
            self.done[one.number] = done = max(before, done_bytes)
            self.watch(Progress(one.path, "read", done, max(done, one.text_bytes)))

    def finished(self, task: BuildRanks, found: object) -> Iterator[Report]:
        """The reports of a finished task."""
        for position, one in enumerate(task.items):
            if isinstance(found, Failure):
                report: Report = UnreadSource(one.number, "failed", found)
            else:
                report = found[position]  # type: ignore[index]
            read_bytes = report.text_bytes if isinstance(report, ReadSource) else one.text_bytes
            total = max(1, self.done.get(one.number, 0), read_bytes)
            self.watch(Progress(one.path, "done", total, total))
            yield report
