"""From paths to published runs: look, name, plan, make, publish, tell."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

from tracewarehouse.catalog import Catalog
from tracewarehouse.ingest import inbox, machine
from tracewarehouse.ingest.discover import Found, discover
from tracewarehouse.ingest.look import Trace, look
from tracewarehouse.ingest.make import Ready, make
from tracewarehouse.ingest.naming import Naming, assign
from tracewarehouse.ingest.outcome import FileOutcome, IngestReport, Options, Progress, Watch
from tracewarehouse.ingest.plan import Job, plan
from tracewarehouse.ingest.pool import Workers
from tracewarehouse.ingest.publish import publish, relabel, run_outcomes
from tracewarehouse.ingest.spans import Window
from tracewarehouse.ingest.worker import Clock, Clocked
from tracewarehouse.store import Store

# Once a trace is published there is no need for its file in the inbox, but of a damaged one more may be had.
_TAKEN = ("whole", "repaired", "same")


def ingest(
    store: Store,
    catalog: Catalog,
    paths: Iterable[str | PathLike[str]],
    options: Options = Options(),  # noqa: B008  frozen
    progress: Watch | None = None,
) -> IngestReport:
    """Take files and folders into the warehouse; with `inbox` and no paths, what lies in its inbox.

    A file that cannot be taken stops no other: the report tells each file's fate. Raises ParamError for a run
    name that cannot be used, WarehouseError where the disk refuses. Nothing is ever half published.
    """
    started = time.monotonic()
    found = _found(store, list(paths), options)
    jobs = machine.jobs(options.jobs, [file.path for file in found.files])
    with Workers(jobs) as workers:
        report = _Call(store, catalog, options, progress or _unwatched, workers).run(found)
    return replace(report, seconds=time.monotonic() - started, strict=options.strict)


def _unwatched(_: Progress) -> None:
    """Nobody looks."""


def _found(store: Store, paths: list[str | PathLike[str]], options: Options) -> Found:
    return inbox.waiting_files(store.root) if options.inbox and not paths else discover(paths)


@dataclass(frozen=True)
class _Call:
    store: Store
    catalog: Catalog
    options: Options
    watch: Watch
    workers: Workers

    def run(self, found: Found) -> IngestReport:
        files = [FileOutcome(one.path, "refused", reason=one.reason, hint=one.hint) for one in found.refused]
        files += [FileOutcome(one.path, "skipped", reason=one.reason) for one in found.passed]
        traces, others = look(self.workers, found.files, self.store.salt, self.options, self.watch)
        naming = self._name(traces)
        planned = plan(self.store, self.catalog, self.options, traces, naming)
        files += [*others, *planned.settled]
        done, written = self._store(planned.jobs, files)
        files += done
        if self.options.inbox:
            self._empty_inbox(files)
        ordered = tuple(sorted(files, key=lambda file: file.path))
        return IngestReport(ordered, run_outcomes(self.store, ordered, written), naming.notes)

    def _name(self, traces: Sequence[Trace]) -> Naming:
        run = None if self.options.inbox else self.options.run
        files = [trace.file for trace in traces]
        return assign(files, windows=self._windows, run=run, rank=self.options.rank)

    def _windows(self, paths: Sequence[Path]) -> dict[Path, Window]:
        """A file that cannot be read again has no window, and so no place beside another."""
        windows: dict[Path, Window] = dict.fromkeys(paths, (None, None))
        for number, found in self.workers.run([Clock(path) for path in paths], lambda *_: None):
            if isinstance(found, Clocked):
                windows[paths[number]] = found.window
        return windows

    def _store(
        self, jobs: Sequence[Job], before: Sequence[FileOutcome]
    ) -> tuple[list[FileOutcome], set[str]]:
        """Make and publish. Without jobs the warehouse is not touched, but for labels asked for."""
        same = {file.run for file in before if file.state == "same" and file.run}
        if not jobs:
            return [], set() if self._spoilt(before) else relabel(self.store, self.options, same)
        with self.store.staging() as staging:
            ready, failed = make(
                self.workers, self.store, self.catalog, jobs, staging, self.options, self.watch
            )
            if self._spoilt([*before, *failed]) or self._damaged(ready):
                return failed + [_held_back(one) for one in ready], set()
            done, written = publish(self.store, self.options, ready)
        return failed + done, written | relabel(self.store, self.options, same - written)

    def _spoilt(self, files: Iterable[FileOutcome]) -> bool:
        return self.options.strict and any(file.state == "refused" for file in files)

    def _damaged(self, ready: Iterable[Ready]) -> bool:
        return self.options.strict and any(one.content.status == "damaged" for one in ready)

    def _empty_inbox(self, files: Iterable[FileOutcome]) -> None:
        for file in files:
            if file.state in _TAKEN and not _stored_damaged(self.store, file):
                inbox.take_away(file.path)


def _held_back(one: Ready) -> FileOutcome:
    place = one.job.place
    reason = "is damaged" if one.content.status == "damaged" else "another file is refused or damaged"
    hint = "with --strict nothing is stored unless all files are whole"
    return FileOutcome(place.path, "refused", place.run, place.rank, reason, hint, place.notes)


def _stored_damaged(store: Store, file: FileOutcome) -> bool:
    version = store.newest(file.run) if file.run else None
    unit = version.unit(file.rank) if version and file.rank is not None else None
    return unit is not None and unit.status == "damaged"
