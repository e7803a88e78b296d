"""From paths to published runs: survey, build at provisional places, name, build what was wrong, publish."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.engines import Engine, Failure, LocalEngine, OnProgress, WorkerDied
from tracewarehouse.formats.registry import is_picklable
from tracewarehouse.ingest import inbox, machine
from tracewarehouse.ingest.build_rank import BUILDING, BuildRanks, Settings, definitions
from tracewarehouse.ingest.content import left_content
from tracewarehouse.ingest.discover import Found, discover
from tracewarehouse.ingest.facts import header_of, rank_of
from tracewarehouse.ingest.outcome import FileOutcome, IngestReport, Options, Progress, Watch
from tracewarehouse.ingest.plan import Item, Stored, groups, item, provisional
from tracewarehouse.ingest.publish import publish, relabel, run_outcomes
from tracewarehouse.ingest.reports import NotRead, Read, Report
from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.survey import Surveyed, survey
from tracewarehouse.ingest.verdict import Ready, Verdicts, conflict, judge, name_all, not_read
from tracewarehouse.storage import Store, layout
from tracewarehouse.storage.manifests import now

# Once a trace is published there is no need for its file in the inbox, but of a damaged one more may come.
_STORED = ("intact", "repaired", "same")


def ingest(
    store: Store,
    catalog: Catalog,
    paths: Iterable[str | PathLike[str]],
    options: Options = Options(),  # noqa: B008  frozen
    progress: Watch | None = None,
) -> IngestReport:
    """Ingest files and folders into the warehouse; with `inbox` and no paths, what lies in its inbox.

    A file that cannot be ingested stops no other: the report says what became of each. Raises ParamError for
    a run name that cannot be used, WarehouseError where the disk refuses. Nothing is ever half published.
    """
    started = time.monotonic()
    found = _found(store, list(paths), options)
    # Workers are new processes: a format that only this one has is read here.
    jobs = machine.jobs(options.jobs, [file.path for file in found.files]) if is_picklable() else 1
    with LocalEngine(jobs) as engine, _staging(store) as staging:
        report = _Call(store, catalog, options, progress or _unwatched, engine, staging).run(found)
    return replace(report, seconds=time.monotonic() - started, strict=options.strict)


def _unwatched(_: Progress) -> None:
    """Nobody looks."""


def _found(store: Store, paths: list[str | PathLike[str]], options: Options) -> Found:
    return inbox.waiting_files(store.root) if options.inbox and not paths else discover(paths)


@contextmanager
def _staging(store: Store) -> Iterator[Path]:
    """Where engine make folders for what is not committed yet; gone afterwards."""
    folder = store.root / layout.STAGING / secrets.token_hex(8)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Call:
    store: Store
    catalog: Catalog
    options: Options
    watch: Watch
    engine: Engine
    staging: Path
    started_at: str = field(default_factory=now)

    def run(self, found: Found) -> IngestReport:
        if self.options.step_range is not None:
            rules_of(self.catalog.folder).check_pattern(self.options.step_range)
        files = [FileOutcome(one.path, "refused", reason=one.reason, hint=one.hint) for one in found.refused]
        files += [FileOutcome(one.path, "skipped", reason=one.reason) for one in found.passed]
        sources, others = survey(self.engine, found.files, self.options, self.watch)
        named = {one.path for one in found.files if one.named}
        reads, failed = self._read(sources, named)
        naming = name_all(sources, reads, self.options)
        verdicts = judge(self._stored, self.options, sources, reads, naming)
        self._build_again(sources, named, verdicts)
        files += [*others, *failed, *verdicts.settled]
        done, written = self._publish(verdicts.ready, files)
        files += done
        if self.options.inbox:
            self._empty_inbox(files)
        ordered = tuple(sorted(files, key=lambda file: file.path))
        return IngestReport(ordered, run_outcomes(self.store, ordered, written), naming.notes)

    @cached_property
    def _stored(self) -> Stored:
        return Stored(self.store, definitions(self.catalog), self.options.time_unit, self.options.step_range)

    def _settings(self, sources: Sequence[Surveyed]) -> Settings:
        options = self.options
        lone = len(sources) == 1
        return Settings(
            root=self.store.root,
            sql=self.catalog.folder,
            temp_dir=options.temp_dir,
            replace=options.replace,
            settle_s=options.settle_s,
            hold=options.strict,
            lone=lone,
            keep_rank=lone and options.rank is not None,
            time_unit=options.time_unit,
            step_range=options.step_range,
            started_at=self.started_at,
        )

    def _read(
        self, sources: Sequence[Surveyed], named: Collection[Path]
    ) -> tuple[dict[int, Read], list[FileOutcome]]:
        """Reads every source once, and builds its tables where its provisional place may be right."""
        places = provisional(sources, self.options)
        items = [
            item(self._stored, number, source, places.get(number)) for number, source in enumerate(sources)
        ]
        reads: dict[int, Read] = {}
        failed: list[FileOutcome] = []
        for report in self._build(sources, items, "first"):
            source = sources[report.number]
            if isinstance(report, Read):
                reads[report.number] = self._as_known(source, items[report.number], report)
            else:
                failed.append(not_read(source, report, self.options, named=source.path in named))
        return dict(sorted(reads.items())), failed

    def _build_again(self, sources: Sequence[Surveyed], named: Collection[Path], verdicts: Verdicts) -> None:
        """Builds the sources whose provisional place was wrong; what was built there is never published."""
        for report in self._build(sources, verdicts.again, "again"):
            source, place = sources[report.number], verdicts.places[report.number]
            if isinstance(report, NotRead):
                verdicts.settled.append(
                    not_read(source, report, self.options, named=source.path in named, place=place)
                )
            elif report.made is None:
                verdicts.settled.append(conflict(place, None))
            else:
                verdicts.ready.append(Ready(source, place, report, report.made))

    def _build(self, sources: Sequence[Surveyed], items: Sequence[Item], name: str) -> Iterator[Report]:
        """A report of each item. The sources of a task whose worker dies are tried once more, one by one."""
        settings = self._settings(sources)
        tasks = [
            BuildRanks(group, self.staging / f"{name}-{number:06d}", settings)
            for number, group in enumerate(groups(items, self.engine.slots))
        ]
        steps = _Steps(self.watch)
        lost: list[BuildRanks] = []
        for number, found in self.engine.run(tasks, steps.of(tasks), retry=False):
            if isinstance(found, WorkerDied):
                lost += tasks[number].one_by_one()
            else:
                yield from steps.finished(tasks[number], found)
        for number, found in self.engine.run_alone(lost, steps.of(lost)):
            yield from steps.finished(lost[number], found)

    def _as_known(self, source: Surveyed, one: Item, read: Read) -> Read:
        """What stored content says itself: from the store, where its beginning does not say."""
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
            content=left_content(stored) if read.made else None,
        )

    def _publish(
        self, ready: Sequence[Ready], before: Sequence[FileOutcome]
    ) -> tuple[list[FileOutcome], set[str]]:
        """Publishes what is ready. Without it the warehouse is not touched, but for labels asked for."""
        same = {file.run for file in before if file.state == "same" and file.run}
        if self._is_incomplete(ready, before):
            return [_held_back(one) for one in ready], set()
        done, written = publish(self.store, self.options, ready)
        return done, written | relabel(self.store, self.options, same - written)

    def _is_incomplete(self, ready: Iterable[Ready], files: Iterable[FileOutcome]) -> bool:
        """Whether a file is refused or damaged where --strict wants all of them whole."""
        return self.options.strict and (
            any(file.state == "refused" for file in files)
            or any(one.read.status == "damaged" for one in ready)
        )

    def _empty_inbox(self, files: Iterable[FileOutcome]) -> None:
        for file in files:
            if file.state in _STORED and not _stored_damaged(self.store, file):
                inbox.take_away(file.path)


@dataclass
class _Steps:
    """Progress of the files from what the tasks report."""

    watch: Watch
    done: dict[int, int] = field(default_factory=dict)

    def of(self, tasks: Sequence[BuildRanks]) -> OnProgress:
        """What hears of the progress of these tasks."""

        def told(task: int, position: int, done_bytes: int) -> None:
            self._told(tasks[task].items[position], done_bytes)

        return told

    def _told(self, one: Item, done_bytes: int) -> None:
        before = self.done.get(one.number, 0)
        if done_bytes == BUILDING:
            self.watch(Progress(one.path, "tables", before, before))
        else:
            self.done[one.number] = done = max(before, done_bytes)
            self.watch(Progress(one.path, "read", done, max(done, one.text_bytes)))

    def finished(self, task: BuildRanks, found: object) -> Iterator[Report]:
        """The reports of a task; each of its files is done."""
        for position, one in enumerate(task.items):
            if isinstance(found, Failure):
                report: Report = NotRead(one.number, "failed", found)
            else:
                report = found[position]  # type: ignore[index]
            read_bytes = report.text_bytes if isinstance(report, Read) else one.text_bytes
            total = max(1, self.done.get(one.number, 0), read_bytes)
            self.watch(Progress(one.path, "done", total, total))
            yield report


def _held_back(one: Ready) -> FileOutcome:
    place = one.place
    reason = "is damaged" if one.read.status == "damaged" else "another file is refused or damaged"
    hint = hints.fill("with {}, nothing is stored unless all files are intact", hints.option("strict"))
    return FileOutcome(place.path, "refused", place.run, place.rank, reason, hint, place.notes)


def _stored_damaged(store: Store, file: FileOutcome) -> bool:
    version = store.newest(file.run) if file.run else None
    rank = version.rank(file.rank) if version and file.rank is not None else None
    return rank is not None and rank.status == "damaged"
