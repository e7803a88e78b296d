"""The phases of an ingest: survey, build at provisional ranks, assign final ones, rebuild, publish."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.engines import Engine, Failure, LocalEngine, OnProgress, WorkerDied
from tracewarehouse.errors import ParamError
from tracewarehouse.formats.redact import POLICY_FILE, Redactor, check_text, clean_name, policy_of
from tracewarehouse.formats.registry import is_picklable
from tracewarehouse.ingest import inbox, resources
from tracewarehouse.ingest.build_rank import BUILDING, Settings, definitions
from tracewarehouse.ingest.build_task import BuildRanks
from tracewarehouse.ingest.naming.header import header_of, rank_of
from tracewarehouse.ingest.outcome import FileOutcome, IngestReport, Options, Progress, Watch, left_content
from tracewarehouse.ingest.plan import (
    Item,
    ReadSource,
    Report,
    StoredSources,
    UnreadSource,
    item_of,
    provisional_assignments,
    task_groups,
)
from tracewarehouse.ingest.publication import (
    Decisions,
    ReadySource,
    assign_all,
    conflict,
    decide,
    publish,
    relabel,
    run_outcomes,
    unread_outcome,
)
from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.survey import Candidate, DiscoveredFiles, SurveyedSource, discover, survey
from tracewarehouse.storage import Store
from tracewarehouse.storage.manifests import now
from tracewarehouse.temp_folders import locked_folder

# Published traces are removed from the inbox; of a damaged one a longer file may still arrive.
_STORED = ("intact", "repaired", "same")


def ingest(
    store: Store,
    catalog: Catalog,
    paths: Iterable[str | PathLike[str]],
    options: Options = Options(),  # noqa: B008  frozen
    progress: Watch | None = None,
) -> IngestReport:
    """Ingests files and folders into the warehouse; with `inbox` and no paths, the files in its inbox.

    A file that cannot be ingested does not affect others: the report has an outcome for each. Publishing is
    atomic. Raises ParamError for an invalid run name and for a label that looks like a secret, PolicyError
    for an invalid redaction policy, WarehouseError if writing fails.
    """
    started = time.monotonic()
    redactor = Redactor(store.salt, policy_of(store.folder_with(POLICY_FILE), options.redact))
    for name, value in options.labels.items():
        check_text(redactor, "a label", {name: value})
    found = _discovered(store, list(paths), options)
    # Workers are new processes: a format that is registered only in this process is read here.
    one = not (is_picklable() and store.objects.is_shared)
    jobs = 1 if one else resources.jobs(options.jobs, [file.path for file in found.files])
    with LocalEngine(jobs) as engine, _staging(store) as staging:
        call = _Ingest(store, catalog, options, progress or _ignored, engine, staging, redactor)
        report = call.run(found)
    return replace(report, seconds=time.monotonic() - started, strict=options.strict)


def _ignored(_: Progress) -> None:
    """Ignores progress."""


def _discovered(store: Store, paths: list[str | PathLike[str]], options: Options) -> DiscoveredFiles:
    if options.inbox and not paths:
        if store.is_remote:
            raise ParamError(
                f"{store.objects.url}: a warehouse in an object store has no inbox",
                "ingest from the folder of a local inbox",
            )
        return DiscoveredFiles(
            tuple(Candidate(path, named=False) for path in inbox.spooled_files(store.folder)), ()
        )
    return discover(paths)


@contextmanager
def _staging(store: Store) -> Iterator[Path]:
    """A folder for uncommitted files of tasks; workers report it if the disk refuses to write."""
    folder = store.new_staging_folder()
    with ExitStack() as held:
        with suppress(OSError):
            held.enter_context(locked_folder(folder))
        yield folder


@dataclass
class _Ingest:
    """One call of `ingest`: read and build, assign runs and ranks, build again where needed, publish."""

    store: Store
    catalog: Catalog
    options: Options
    watch: Watch
    engine: Engine
    staging: Path
    redactor: Redactor
    started_at: str = field(default_factory=now)

    def run(self, found: DiscoveredFiles) -> IngestReport:
        if self.options.step_range is not None:
            rules_of(self.catalog.folder).check_pattern(self.options.step_range)
        files = [FileOutcome(one.path, "refused", reason=one.reason, hint=one.hint) for one in found.refused]
        files += [FileOutcome(one.path, "skipped", reason=one.reason) for one in found.skipped]
        sources, others = survey(self.engine, found.files, self.options, self.watch)
        named = {one.path for one in found.files if one.named}
        reads, failed = self._read(sources, named)
        naming = assign_all(sources, reads, self.options, self._clean_name)
        decisions = decide(self._stored, self.options, sources, reads, naming)
        self._build_again(sources, named, decisions)
        files += [*others, *failed, *decisions.outcomes]
        done, written = self._publish(decisions.ready, files)
        files += done
        if self.options.inbox:
            self._empty_inbox(files)
        ordered = tuple(sorted(files, key=lambda file: file.path))
        return IngestReport(ordered, run_outcomes(self.store, ordered, written), naming.notes)

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
        )

    def _settings(self, sources: Sequence[SurveyedSource]) -> Settings:
        options = self.options
        is_single = len(sources) == 1
        return Settings(
            store=self.store,
            sql=self.catalog.folder,
            temp_dir=options.temp_dir,
            replace=options.replace,
            settle_s=options.settle_s,
            stage_only=options.strict,
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
        reads: dict[int, ReadSource] = {}
        failed: list[FileOutcome] = []
        for report in self._build(sources, items, "first"):
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
        tasks = [
            BuildRanks(group, self.staging / f"{name}-{number:06d}", settings)
            for number, group in enumerate(task_groups(items, self.engine.slots))
        ]
        progress = _FileProgress(self.watch)
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
        stored = self._stored.known(one) if read.known else None
        if stored is None or stored.digest != read.digest:
            return read
        start, end = stored.facts.get("start_ns"), stored.facts.get("end_ns")
        is_timed = isinstance(start, int) and isinstance(end, int)
        rank = source.part.rank
        return replace(
            read,
            rank=rank if rank is not None else rank_of(header_of(self.store.headers([stored])[stored.name])),
            world_size=source.part.world_size,
            window=(start, end) if is_timed else (None, None),  # type: ignore[arg-type]
            content=left_content(stored) if read.built_tables else None,
        )

    def _publish(
        self, ready: Sequence[ReadySource], before: Sequence[FileOutcome]
    ) -> tuple[list[FileOutcome], set[str]]:
        """Publishes what is ready, and sets the labels of the options on otherwise unchanged runs."""
        same = {file.run for file in before if file.state == "same" and file.run}
        if self._is_incomplete(ready, before):
            return [_not_stored(one) for one in ready], set()
        done, written = publish(self.store, self.options, ready, self.redactor)
        return done, written | relabel(self.store, self.options, same - written)

    def _is_incomplete(self, ready: Iterable[ReadySource], files: Iterable[FileOutcome]) -> bool:
        """Whether --strict is set and a file is refused or damaged."""
        return self.options.strict and (
            any(file.state == "refused" for file in files)
            or any(one.read.status == "damaged" for one in ready)
        )

    def _empty_inbox(self, files: Iterable[FileOutcome]) -> None:
        for file in files:
            if file.state in _STORED and not _stored_damaged(self.store, file):
                inbox.remove(file.path)


@dataclass
class _FileProgress:
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
