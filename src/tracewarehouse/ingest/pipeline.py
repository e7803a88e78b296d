"""The phases of an ingest: survey, build at provisional ranks, assign final ones, rebuild, publish."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from os import PathLike
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.engines import (
    Engine,
    EngineOrName,
    LocalEngine,
    WorkerDied,
    advice,
    is_remote,
    opened,
)
from tracewarehouse.errors import EngineError
from tracewarehouse.formats.redact import POLICY_FILE, Redactor, check_text, clean_name, policy_of
from tracewarehouse.formats.registry import is_picklable
from tracewarehouse.ingest import inbox, resources
from tracewarehouse.ingest.build import BuildRanks, FileProgress, Settings, definitions
from tracewarehouse.ingest.naming import header_of, rank_of
from tracewarehouse.ingest.outcome import FileOutcome, IngestReport, Options, Progress, Watch, left_content
from tracewarehouse.ingest.plan import (
    Decisions,
    Item,
    ReadSource,
    ReadySource,
    Report,
    StoredObjects,
    StoredSources,
    UnreadSource,
    assign_all,
    conflict,
    decide,
    item_of,
    provisional_assignments,
    read_before,
    task_groups,
    unread_outcome,
)
from tracewarehouse.ingest.publication import PushedRanks, publish, push, relabel, run_outcomes
from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.survey import (
    Candidate,
    DiscoveredFiles,
    SurveyedSource,
    discover,
    discover_urls,
    survey,
)
from tracewarehouse.location import is_url
from tracewarehouse.storage import RunVersion, Store
from tracewarehouse.storage.manifests import now
from tracewarehouse.storage.remote import SourceObject
from tracewarehouse.temp_folders import PREFIX, delete_unused, locked_folder

# Published traces are removed from the inbox; of a damaged one a longer file may still arrive.
_STORED = ("intact", "repaired", "same")


def ingest(
    store: Store,
    catalog: Catalog,
    paths: Iterable[str | PathLike[str]],
    options: Options = Options(),  # noqa: B008  frozen
    progress: Watch | None = None,
    engine: EngineOrName = "local",
) -> IngestReport:
    """Ingests files and folders into the warehouse; with `inbox` and no paths, the files in its inbox.

    A file that cannot be ingested does not affect others: the report has an outcome for each. Publishing is
    atomic. Workers of another engine must be able to read the files; they commit what they build. Raises
    ParamError for an invalid run name and for a label that looks like a secret, PolicyError for an invalid
    redaction policy, WarehouseError if writing fails, EngineError.
    """
    started = time.monotonic()
    redactor = Redactor(store.salt, policy_of(store.folder_with(POLICY_FILE), options.redact))
    for name, value in options.labels.items():
        check_text(redactor, "a label", {name: value})
    found = _discovered(store, list(paths), options)
    with (
        _engine(store, options, found, engine) as running,
        _staging(store) as staging,
        _copies(options, staging) as copies,
    ):
        call = _Ingest(store, catalog, options, progress or _ignored, running, staging, copies, redactor)
        report = call.run(found)
    events = sum(file.content.events for file in report.stored if file.content)
    note = advice(engine, events) if events else None
    notes = (*report.notes, note) if note else report.notes
    return replace(report, notes=notes, seconds=time.monotonic() - started, strict=options.strict)


@contextmanager
def _engine(store: Store, options: Options, found: DiscoveredFiles, chosen: EngineOrName) -> Iterator[Engine]:
    # Workers are new processes: a format that is registered only in this process, or an object that only
    # this process sees, is read here.
    objects = (file.remote for file in found.files if file.remote)
    here = not (is_picklable() and store.objects.is_shared and all(each.is_shared for each in objects))
    if is_remote(chosen) and (here or options.push):
        reason = (
            "other processes cannot read this warehouse, or a format that was registered here"
            if here
            else "pushed ranks are committed by the process that pushes them"
        )
        raise EngineError(reason, hints.fill("use {}", hints.option("engine", "local")))
    if chosen != "local" and not here:
        with opened(chosen, options.jobs) as running:
            yield running
        return
    jobs = 1 if here else _jobs(options, found)
    with LocalEngine(jobs) as running:
        yield running


def _ignored(_: Progress) -> None:
    """Ignores progress."""


def _jobs(options: Options, found: DiscoveredFiles) -> int:
    local = [file.path for file in found.files if file.remote is None]
    return resources.jobs(
        options.jobs, local, [file.remote.entry.bytes for file in found.files if file.remote]
    )


def _discovered(store: Store, paths: list[str | PathLike[str]], options: Options) -> DiscoveredFiles:
    if options.inbox and not paths:
        if store.is_remote:
            from tracewarehouse.ingest.survey import discover_inbox

            return discover_inbox(store.objects)  # type: ignore[arg-type]
        return DiscoveredFiles(
            tuple(Candidate(path, named=False) for path in inbox.spooled_files(store.folder)), ()
        )
    urls = [str(path) for path in paths if is_url(os.fspath(path))]
    local = [path for path in paths if not is_url(os.fspath(path))]
    return discover(local).with_more(discover_urls(urls, store.objects))


@contextmanager
def _copies(options: Options, staging: Path) -> Iterator[Path]:
    """A folder for local copies of objects."""
    if options.temp_dir is None:
        yield staging / "copies"
        return
    delete_unused(options.temp_dir)  # of a killed call
    with locked_folder(options.temp_dir / f"{PREFIX}{secrets.token_hex(8)}") as folder:
        yield folder


@contextmanager
def _staging(store: Store) -> Iterator[Path]:
    """A folder for uncommitted files of tasks; workers report it if the disk refuses to write."""
    folder = store.new_staging_folder()
    with ExitStack() as held:
        with suppress(OSError):
            held.enter_context(locked_folder(folder))
        yield folder


class _Ingest(Struct, dict=True):
    """One call of `ingest`: read and build, assign runs and ranks, build again where needed, publish."""

    store: Store
    catalog: Catalog
    options: Options
    watch: Watch
    engine: Engine
    staging: Path
    copies: Path
    redactor: Redactor
    started_at: str = field(default_factory=now)
    # With `push`: run → the ranks that were stored for a later seal.
    pushed: dict[str, PushedRanks] = field(default_factory=dict)

    def run(self, found: DiscoveredFiles) -> IngestReport:
        if self.options.step_range is not None:
            rules_of(self.catalog.folder).check_pattern(self.options.step_range)
        files = [FileOutcome(one.path, "refused", reason=one.reason, hint=one.hint) for one in found.refused]
        files += [FileOutcome(one.path, "skipped", reason=one.reason) for one in found.skipped]
        # Objects that an earlier call stored are not looked at.
        objects = StoredObjects(self._stored, self.copies, self._clean_name)
        stored = objects.sources(found.files, self.options.run)
        known = {source.path for source in stored}
        unknown = [file for file in found.files if file.path not in known]
        surveyed, others = survey(self.engine, unknown, self.options, self.watch, self.copies)
        sources = sorted([*stored, *surveyed], key=lambda one: (one.path, one.part.name))
        named = {one.path for one in found.files if one.named}
        reads, failed = self._read(sources, named)
        naming = assign_all(sources, reads, self.options, self._clean_name)
        decisions = decide(self._stored, self.options, sources, reads, naming)
        self._build_again(sources, named, decisions)
        files += [*others, *failed, *decisions.outcomes]
        done, written = self._publish(decisions.ready, files)
        files += done
        if self.options.inbox:
            self._empty_inbox(files, {one.path: one.remote for one in found.files if one.remote})
        ordered = tuple(sorted(files, key=lambda file: file.path))
        runs = run_outcomes(self.store, ordered, written, self.pushed)
        return IngestReport(ordered, runs, naming.notes)

    def _clean_name(self, name: str) -> str:
        return clean_name(self.redactor, name)

    @cached_property
    def _stored(self) -> StoredSources:
        options = self.options
        return StoredSources(
            self.store,
            definitions(self.catalog),
            options.time_unit,
            options.step_range,
            options.replace,
            options.redact,
            reuse=not options.push,
        )

    def _settings(self, sources: Sequence[SurveyedSource]) -> Settings:
        options = self.options
        is_single = len(sources) == 1
        return Settings(
            store=self.store,
            sql=self.catalog.custom_folder,
            temp_dir=options.temp_dir,
            replace=options.replace,
            settle_s=options.settle_s,
            # Staged files are on the disk of the worker.
            stage_only=(options.strict and not is_remote(self.engine)) or options.push,
            reuse=not options.push,
            single_source=is_single,
            force_rank=is_single and options.rank is not None,
            time_unit=options.time_unit,
            step_range=options.step_range,
            redact=options.redact,
            started_at=self.started_at,
        )

    def _read(
        self, sources: Sequence[SurveyedSource], named: Collection[Path]
    ) -> tuple[dict[int, ReadSource], list[FileOutcome]]:
        """Reads every source once, and builds its tables for its provisional run and rank, if it has one."""
        assignments = provisional_assignments(sources, self.options, self._clean_name)
        self._stored.look_again()
        items = [
            item_of(self._stored, number, source, assignments.get(number))
            for number, source in enumerate(sources)
        ]
        reads = {
            number: read_before(number, source, self._stored.holds(source.stored))
            for number, source in enumerate(sources)
            if source.stored
        }
        failed: list[FileOutcome] = []
        for report in self._build(sources, [one for one in items if one.number not in reads], "first"):
            source = sources[report.number]
            if isinstance(report, ReadSource):
                reads[report.number] = self._completed(source, items[report.number], report)
            else:
                failed.append(unread_outcome(source, report, self.options, named=source.path in named))
        return dict(sorted(reads.items())), failed

    def _build_again(
        self, sources: Sequence[SurveyedSource], named: Collection[Path], decisions: Decisions
    ) -> None:
        """Builds sources with a wrong provisional run or rank again; the first build is never published."""
        for report in self._build(sources, decisions.rebuilds, "again"):
            source, assignment = sources[report.number], decisions.assignments[report.number]
            if isinstance(report, UnreadSource):
                decisions.outcomes.append(
                    unread_outcome(
                        source, report, self.options, named=source.path in named, assignment=assignment
                    )
                )
            elif report.built_tables is None:
                decisions.outcomes.append(conflict(assignment, None))
            else:
                decisions.ready.append(ReadySource(source, assignment, report, report.built_tables))

    def _build(self, sources: Sequence[SurveyedSource], items: Sequence[Item], name: str) -> Iterator[Report]:
        """A report per item. The sources of a task whose worker dies are retried once, one by one."""
        settings = self._settings(sources)
        staging = self.staging.relative_to(self.store.folder)
        tasks = [
            BuildRanks(group, staging / f"{name}-{number:06d}", settings)
            for number, group in enumerate(task_groups(items, self.engine.slots))
        ]
        progress = FileProgress(self.watch)
        remaining: list[BuildRanks] = []
        for number, found in self.engine.run(tasks, progress.of(tasks), retry=False):
            if isinstance(found, WorkerDied):
                remaining += tasks[number].one_by_one()
            else:
                yield from progress.finished(tasks[number], found)
        for number, found in self.engine.run_alone(remaining, progress.of(remaining)):
            yield from progress.finished(remaining[number], found)

    def _completed(self, source: SurveyedSource, one: Item, read: ReadSource) -> ReadSource:
        """A report of known content, completed from what is stored."""
        stored = self._stored.known(one.target, one.format) if read.known else None
        if stored is None or stored.digest != read.digest:
            return read
        start, end = stored.facts.get("start_ns"), stored.facts.get("end_ns")
        is_timed = isinstance(start, int) and isinstance(end, int)
        rank = source.part.rank
        return replace(
            read,
            rank=rank if rank is not None else rank_of(header_of(self.store.headers([stored])[stored.name])),
            world_size=source.part.world_size,
            window=(start, end) if is_timed else (None, None),
            content=left_content(stored) if read.built_tables else None,
        )

    def _publish(
        self, ready: Sequence[ReadySource], before: Sequence[FileOutcome]
    ) -> tuple[list[FileOutcome], dict[str, RunVersion]]:
        """Publishes what is ready, and sets the labels of the options on otherwise unchanged runs."""
        same = {file.run for file in before if file.state == "same" and file.run}
        is_refused = any(file.state == "refused" for file in before)
        if self.options.strict and (is_refused or any(one.read.status == "damaged" for one in ready)):
            return [_not_stored(one) for one in ready], {}
        if self.options.push:
            done, written, self.pushed = push(self.store, self.options, ready, self.redactor)
            return done, written
        done, written = publish(self.store, self.options, ready, self.redactor)
        return done, written | relabel(self.store, self.options, same - written.keys())

    def _empty_inbox(self, files: Iterable[FileOutcome], objects: Mapping[Path, SourceObject]) -> None:
        for file in files:
            if file.state not in _STORED or _stored_damaged(self.store, file):
                continue
            if (found := objects.get(file.path)) is not None:
                found.delete(f"{found.entry.key}{inbox.NOTE_SUFFIX}")
            else:
                inbox.remove(file.path)


def _not_stored(one: ReadySource) -> FileOutcome:
    assignment = one.assignment
    reason = "is damaged" if one.read.status == "damaged" else "another file is refused or damaged"
    hint = hints.fill("with {}, nothing is stored unless all files are intact", hints.option("strict"))
    return FileOutcome(
        assignment.path, "refused", assignment.run, assignment.rank, reason, hint, assignment.notes
    )


def _stored_damaged(store: Store, file: FileOutcome) -> bool:
    version = store.newest(file.run) if file.run else None
    rank = version.rank(file.rank) if version and file.rank is not None else None
    return rank is not None and rank.status == "damaged"
