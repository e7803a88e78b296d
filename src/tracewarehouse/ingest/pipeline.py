"""An ingest: four phases, and the records that pass between them.

    discover   paths → TraceFile: files in folders, objects, the inbox
    survey     TraceFile → Source: format, parts, and what the first megabyte says about run and rank
    assign     all Sources of the call together → Source.target: run and rank, by rules on names and headers
    build      Source → RankCommit: read once, tables, Parquet files, a commit of the ranks of a task
    publish    RankCommits of a run → RunVersion; every file gets a FileOutcome

A source is built for the target that its beginning shows. The whole file may say another rank, another file
may turn out unreadable or equal, and times may show another order of profiling windows. So `assign` goes over
the sources as read again, and those that are not built for their target are built once more by the same
function; what it built for another target is never published. Objects that an earlier call read, and content
that is stored for its target, are not built.

Options are one object. A phase reports a file that it cannot take as a FileOutcome; no file stops another.
Workers commit what they build; with `strict` ranks are staged, and committed in the last phase. A
kill before it leaves commits that the next call finds; publishing is atomic.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
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
    TaskFailure,
    WorkerDied,
    advice,
    is_remote,
    opened,
)
from tracewarehouse.errors import EngineError, ParamError, UnknownName
from tracewarehouse.formats.redact.rules import POLICY_FILE, policy_of
from tracewarehouse.formats.redact.text import Redactor, check_text, clean_name
from tracewarehouse.formats.registry import is_picklable
from tracewarehouse.ingest import resources
from tracewarehouse.ingest.assignment import assign
from tracewarehouse.ingest.build import BuildRanks, FileProgress, definitions, task_groups
from tracewarehouse.ingest.inbox import spool_note
from tracewarehouse.ingest.outcome import FileOutcome, IngestReport, Options, Watch
from tracewarehouse.ingest.publication import publish, relabel, run_outcomes
from tracewarehouse.ingest.rules import kernel_rules_of, rules_of
from tracewarehouse.ingest.sources import NCCL, Source, TraceFile
from tracewarehouse.ingest.stored import StoredRanks, conflict
from tracewarehouse.ingest.survey import Discovered, discover, discover_inbox, discover_objects, survey
from tracewarehouse.location import is_url
from tracewarehouse.result import Field, Result, from_rows
from tracewarehouse.storage.commits import now
from tracewarehouse.storage.model import RunVersion
from tracewarehouse.storage.objects import Objects
from tracewarehouse.storage.store import Store
from tracewarehouse.temp_folders import PREFIX, delete_unused, locked_folder

# States of files that are published.
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
    redaction policy or kernel rules, WarehouseError if writing fails, EngineError.
    """
    started = time.monotonic()
    redactor = Redactor(store.salt, policy_of(store.folder_with(POLICY_FILE), options.redact))
    for name, value in options.labels.items():
        check_text(redactor, "a label", {name: value})
    options = replace(options, kernel_rules=kernel_rules_of(store))
    files, outcomes = _discovered(store, list(paths), options)
    with (
        _engine(store, options, files, engine) as running,
        store.staging(is_needed=False) as staging,  # workers report it if the disk refuses to write
        _copies(options, staging) as copies,
    ):
        if options.step_pattern is not None:
            rules_of(catalog.folder).check_pattern(options.step_pattern)
        stored = StoredRanks(store, definitions(catalog), options)
        call = _Call(
            store, catalog, options, progress or (lambda _: None), running, staging, redactor, stored
        )
        files = [file.with_copy(copies) for file in files]
        stored_sources, sources = call.survey(files, outcomes)
        sources = [*stored_sources, *call.build(sources, "first", outcomes)]
        ready, again, notes = call.settle(sources, outcomes)
        built = call.build(again, "again", outcomes)
        ready += [source for source in built if source.is_built]
        outcomes += [conflict(source) for source in built if not source.is_built]
        written = call.publish(ready, outcomes)
        outcomes += _of_recordings(sources, outcomes, call._clean)
        if options.inbox:
            _empty_inbox(store, outcomes, {file.path: file for file in files})
        ordered = tuple(sorted(outcomes, key=lambda outcome: outcome.path))
        runs = run_outcomes(store, ordered, written, call.waiting)
    seconds = time.monotonic() - started
    return _with_advice(IngestReport(ordered, runs, tuple(notes), seconds, options.strict), engine)


def _with_advice(report: IngestReport, engine: EngineOrName) -> IngestReport:
    """The report with a note if another engine suits its events better."""
    events = sum(file.content.events for file in report.stored if file.content)
    note = advice(engine, events) if events else None
    return replace(report, notes=(*report.notes, note)) if note else report


def spooled_runs(warehouse: Objects) -> dict[str, list[TraceFile]]:
    """Run → its traces in the inbox, by run."""
    by_run: dict[str, list[TraceFile]] = {}
    for file in discover_inbox(warehouse):
        by_run.setdefault(file.path.parent.name, []).append(file)
    return dict(sorted(by_run.items()))


def waiting(warehouse: Objects) -> Result:
    """A row per run in the inbox, with the number and bytes of its traces."""
    fields = [Field("run", "VARCHAR"), Field("files", "BIGINT", "count"), Field("bytes", "BIGINT", "bytes")]
    spooled = spooled_runs(warehouse)
    return from_rows(
        fields, [(run, len(of), sum(file.stamp[0] for file in of)) for run, of in spooled.items()]
    )


def discard(warehouse: Objects, runs: Iterable[str]) -> list[Path]:
    """Deletes the traces of runs from the inbox. Raises UnknownName for a run without any."""
    by_run = spooled_runs(warehouse)
    chosen = sorted(set(runs))
    for run in chosen:
        if run not in by_run:
            raise UnknownName("run in the inbox", run, by_run)
    files = [file for run in chosen for file in by_run[run]]
    for file in files:
        file.take_out()
    return [file.path for file in files]


def _discovered(store: Store, paths: list[str | PathLike[str]], options: Options) -> Discovered:
    if options.inbox and not paths:
        spooled = spooled_runs(store.objects)
        if options.run is not None and len(spooled) > 1:
            text = f"the inbox has traces of {len(spooled)} runs: {', '.join(spooled)}"
            raise ParamError(text, "name the files of one of them, or ingest the others first")
        return [file for files in spooled.values() for file in files], []
    files, outcomes = discover(path for path in paths if not is_url(os.fspath(path)))
    if options.inbox:
        files = [replace(file, note=spool_note(file.path)) for file in files]
    urls = [str(path) for path in paths if is_url(os.fspath(path))]
    objects, of_objects = discover_objects(urls, store.objects) if urls else ([], [])
    return [*files, *objects], [*outcomes, *of_objects]


@contextmanager
def _engine(
    store: Store, options: Options, files: Sequence[TraceFile], chosen: EngineOrName
) -> Iterator[Engine]:
    # Workers are new processes: a format that is registered only in this process, or an object that only
    # this process sees, is read here.
    objects = [file.object for file in files if file.object]
    is_here = not (is_picklable() and store.objects.is_shared and all(each.is_shared for each in objects))
    if is_remote(chosen) and is_here:
        reason = "other processes cannot read this warehouse, or a format that was registered here"
        raise EngineError(reason, hints.fill("use {}", hints.option("engine", "local")))
    if chosen != "local" and not is_here:
        with opened(chosen, options.jobs) as running:
            yield running
        return
    local = [file.path for file in files if file.object is None]
    jobs = 1 if is_here else resources.jobs(options.jobs, local, [each.entry.bytes for each in objects])
    with LocalEngine(jobs) as running:
        yield running


@contextmanager
def _copies(options: Options, staging: Path) -> Iterator[Path]:
    """A folder for local copies of objects."""
    if options.temp_dir is None:
        yield staging / "copies"
        return
    delete_unused(options.temp_dir)  # of a killed call
    with locked_folder(options.temp_dir / f"{PREFIX}{secrets.token_hex(8)}") as folder:
        yield folder


class _Call(Struct):
    """One call of `ingest` and its phases; a phase adds the outcomes of what it cannot take."""

    store: Store
    catalog: Catalog
    options: Options
    watch: Watch
    engine: Engine
    staging: Path
    redactor: Redactor
    stored: StoredRanks
    started_at: str = field(default_factory=now)
    # Run → ranks present and expected, of the runs that wait for others.
    waiting: dict[str, tuple[int, int]] = field(default_factory=dict)

    def survey(
        self, files: Sequence[TraceFile], outcomes: list[FileOutcome]
    ) -> tuple[list[Source], list[Source]]:
        """The sources of objects that an earlier call read, and those to read.

        These have the targets that their beginnings show, with what is stored there, or none.
        """
        stored = self.stored.objects(files, self._clean)
        paths = {source.file.path for source in stored}
        unknown = [file for file in files if file.path not in paths]
        sources, refused = survey(self.engine, unknown, self.options.inbox, self.watch)
        outcomes += refused
        assigned = assign([*stored, *sources], self.options, self._clean, self.stored.attempts)
        self.stored.look_again()
        sources = [*assigned.sources, *(source for source, _ in assigned.others)]
        return stored, [self.stored.looked_up(source) for source in sources if not source.commit]

    def _clean(self, name: str) -> str:
        return clean_name(self.redactor, name)

    def build(self, sources: Sequence[Source], name: str, outcomes: list[FileOutcome]) -> list[Source]:
        """The sources as read, with tables where they may have them; `name` is that of the pass.

        The sources of a task whose worker dies are retried once, one by one.
        """
        options = self.options
        # Staged files are on the disk of the worker.
        stage_only = options.strict and not is_remote(self.engine)
        folder, sql = self.staging.relative_to(self.store.folder), self.catalog.custom_folder
        tasks = [
            BuildRanks(
                group, folder / f"{name}-{number:06d}", self.store, sql, options, stage_only, self.started_at
            )
            for number, group in enumerate(task_groups(sources, self.engine.slots))
        ]
        progress = FileProgress(self.watch)
        finished: list[Source] = []
        retried: list[BuildRanks] = []
        for number, results in self.engine.run(tasks, progress.of(tasks), retry=False):
            if isinstance(results, WorkerDied):
                retried += tasks[number].one_by_one()
            else:
                self._collect(tasks[number], results, progress, finished, outcomes)
        for number, results in self.engine.run_alone(retried, progress.of(retried)):
            self._collect(retried[number], results, progress, finished, outcomes)
        return finished

    def _collect(
        self,
        task: BuildRanks,
        results: object,
        progress: FileProgress,
        finished: list[Source],
        outcomes: list[FileOutcome],
    ) -> None:
        """Adds the sources of a finished task to those that were read, or their outcomes."""
        for position, source in enumerate(task.sources):
            if isinstance(results, TaskFailure):
                result = source.file.failed(results, self.options.inbox)
            else:
                result = results[position]  # type: ignore[index]
            progress.finished(source, result)
            if isinstance(result, FileOutcome):
                outcomes.append(result)
                continue
            commit = self.stored.known(source) if result.is_known else result
            commit = replace(commit, apart=result.apart)
            finished.append(replace(source, commit=commit, text_bytes=commit.text_bytes))

    def settle(
        self, sources: Sequence[Source], outcomes: list[FileOutcome]
    ) -> tuple[list[Source], list[Source], list[str]]:
        """The sources with tables for their final targets, those to build again, and notes on names."""
        self.stored.look_again()
        assigned = assign(sources, self.options, self._clean, self.stored.attempts)
        for source, outcome in sorted(assigned.others, key=lambda pair: pair[1].state == "refused"):
            # After someone followed the hint, the content of a refused file is a rank of the run.
            rank = self.stored.stored_rank(outcome.run, source) if outcome.state == "refused" else None
            same = FileOutcome(outcome.path, "same", outcome.run, rank, f"stored as rank {rank}")
            outcomes.append(outcome if rank is None else same)
        ready: list[Source] = []
        again: list[Source] = []
        for source in self.stored.renamed(assigned.sources):
            settled = self.stored.settled(source)
            if isinstance(settled, FileOutcome):
                outcomes.append(settled)
            else:
                (ready if settled.is_built else again).append(settled)
        notes = [*assigned.notes, *_name_notes([*ready, *again])]
        if any(source.format.name == NCCL for source in ready):
            notes.append(
                "ingest files of NCCL's plug-in with the trace of their process: their collectives are then"
                " linked with its kernels"
            )
        return ready, again, notes

    def publish(self, ready: Sequence[Source], outcomes: list[FileOutcome]) -> dict[str, RunVersion]:
        """Publishes what is ready, and sets the labels of the options on otherwise unchanged runs."""
        options = self.options
        same = {file.run for file in outcomes if file.state == "same" and file.run}
        is_refused = any(file.state == "refused" or file.unanswered for file in outcomes)
        if options.strict and (is_refused or any(source.is_damaged for source in ready)):
            hint = hints.fill(
                "with {}, nothing is stored unless all files are intact", hints.option("strict")
            )
            for source in ready:
                reason = "is damaged" if source.is_damaged else "another file is refused or damaged"
                outcomes.append(source.outcome("refused", reason, hint))
            return {}
        published, written, self.waiting = publish(self.store, options, ready, self.redactor)
        outcomes += published
        return written | relabel(self.store, options, same - written.keys())


def _of_recordings(
    sources: Iterable[Source], outcomes: Sequence[FileOutcome], clean: Callable[[str], str]
) -> list[FileOutcome]:
    """The outcomes of recordings by other tools, by those of the traces that they are beside."""
    of_traces = {outcome.path: outcome for outcome in outcomes}
    recordings: dict[tuple[Path, str], FileOutcome] = {}
    hint = hints.fill("ingest it alone with {}", hints.option("run", "NAME"))
    for source in sources:
        if (trace := of_traces.get(source.file.path)) is None:
            continue
        name, apart = source.file.path.name, source.commit.apart if source.commit else ()
        for beside in source.beside:
            path, prefix = beside.file.path, f"{clean(beside.file.path.name)}: "
            why = next((text.removeprefix(prefix) for text in apart if text.startswith(prefix)), None)
            outcome = FileOutcome(
                path, "refused", trace.run, trace.rank, trace.reason or f"joined with {name}"
            )
            if why is not None:
                reason = f"not joined with {name}: {why}"
                recordings.setdefault(beside.key, replace(outcome, reason=reason, hint=hint))
            elif trace.state in _STORED and source.commit:
                recordings[beside.key] = replace(outcome, state=trace.state, reason=f"joined with {name}")
            else:
                recordings.setdefault(beside.key, replace(outcome, state=trace.state))
    return list(recordings.values())


def _name_notes(sources: Iterable[Source]) -> Iterator[str]:
    """A note for each thing that named runs."""
    named = sorted({(one.target.named_after, one.target.run) for one in sources if one.target.named_after})
    for thing, group in groupby(named, key=itemgetter(0)):
        runs = [run for _, run in group]
        run_list = ", ".join(runs[:3] + ["…"] * (len(runs) > 3))
        yield hints.fill(
            "named after {}: {}; {} gives another name", thing, run_list, hints.option("run", "NAME")
        )


def _empty_inbox(store: Store, outcomes: Iterable[FileOutcome], files: Mapping[Path, TraceFile]) -> None:
    """Removes what is published from the inbox, but a damaged trace, which a longer one may replace."""
    for outcome in outcomes:
        version = store.newest(outcome.run) if outcome.run and outcome.state in _STORED else None
        rank = version.rank(outcome.rank) if version and outcome.rank is not None else None
        if outcome.state not in _STORED or (rank is not None and rank.status == "damaged"):
            continue
        files[outcome.path].take_out()
