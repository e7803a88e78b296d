"""The writing side of a warehouse: methods that change its folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar

from tracewarehouse import hints
from tracewarehouse.errors import DamagedRunError, ParamError, TwError, UnknownName
from tracewarehouse.location import StoreUrl, paths_in
from tracewarehouse.runs.rows import damaged_runs
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import (
    Published,
    Store,
    check_labels,
)
from tracewarehouse.storage.parquet_file import Level
from tracewarehouse.storage.store import objects_at
from tracewarehouse.version import __version__
from tracewarehouse.warehouse_base import WarehouseBase

if TYPE_CHECKING:
    from tracewarehouse.compare.history import RecordProgress, RecordReport
    from tracewarehouse.derive import Derived
    from tracewarehouse.engines import EngineOrName
    from tracewarehouse.ingest.outcome import IngestReport, UpgradeReport, Watch
    from tracewarehouse.runs.removal import Removed
    from tracewarehouse.runs.seal import Sealed

P = ParamSpec("P")
R = TypeVar("R")


def writing(method: Callable[P, R]) -> Callable[P, R]:
    """A method that changes the warehouse: refused where writing is not allowed; then lists new versions."""

    @wraps(method)
    def checked(*args: P.args, **named: P.kwargs) -> R:
        warehouse: WarehouseBase = args[0]  # type: ignore[assignment]
        if _is_checked_first(warehouse.root, bool(named.get("dry_run"))):
            objects_at(warehouse.root).check_writable()
        try:
            done = method(*args, **named)
        except TwError:  # it may have published some runs before
            warehouse._list_new_versions()
            raise
        warehouse._list_new_versions()
        return done

    return checked


def _is_checked_first(root: Path | StoreUrl, dry_run: bool) -> bool:
    """False for object stores, which the first write tests, and for a dry run in a folder."""
    return root.is_web if isinstance(root, StoreUrl) else not dry_run


class WarehouseWrites(WarehouseBase):
    """The methods that write: ingest, seal, record, label, remove, upgrade, derive, refresh."""

    @writing
    def ingest(
        self,
        *paths: str | PathLike[str] | Iterable[str | PathLike[str]],
        run: str | None = None,
        labels: Mapping[str, str] | None = None,
        rank: int | None = None,
        expect_ranks: int | None = None,
        jobs: int | None = None,
        replace: bool = False,
        settle_s: float = 30.0,
        strict: bool = False,
        inbox: bool = False,
        temp_dir: str | PathLike[str] | None = None,
        time_unit: Literal["us", "ns"] | None = None,
        step_range: str | None = None,
        redact: bool = True,
        auto_labels: bool = False,
        push: bool = False,
        progress: Watch | None = None,
        engine: EngineOrName = "local",
    ) -> IngestReport:
        """Ingests trace files and folders, each an argument or in a list; the report has each file's outcome.

        A path may be a URL (`s3://`, `gs://`, `az://`) of an object or a folder, or a pattern with `*`; each
        object is downloaded once. An unreadable file does not stop the others. Ingesting the same content
        again writes nothing. Data that does not fit in memory spills to `temp_dir`, by default on the disk of
        the warehouse. `time_unit` is the unit of times in the files if it is not that of their format.
        `step_range` is a regular expression for annotations that mark steps; its first group is the step
        number. With `redact`, strings that look like secrets are replaced. `auto_labels` labels runs by the
        environment of this call (git commit, batch job, …), as `tw ingest` does. With `push` the ranks are
        stored and `seal` publishes them; with `expect_ranks`, too, the call that brings the last rank does.
        With `engine` (`"ray"`, or one of `tw.engine`) other machines read the files and commit what they
        build. Call `refresh` afterwards to write the file for DuckDB shells.
        """
        from tracewarehouse.ingest.outcome import Options
        from tracewarehouse.ingest.pipeline import ingest

        sources = paths_in(paths)
        options = Options(
            run=run,
            labels=dict(labels or {}),
            rank=rank,
            expect_ranks=expect_ranks,
            jobs=jobs,
            replace=replace,
            settle_s=settle_s,
            strict=strict,
            inbox=inbox,
            temp_dir=Path(temp_dir) if temp_dir is not None else None,
            time_unit=time_unit,
            step_range=step_range,
            redact=redact,
            auto_labels=auto_labels,
            push=push,
        )
        store = self._store = Store.open_or_create(self.root, tool=__version__)
        return ingest(store, self.catalog, sources, options, progress, engine)

    @writing
    def seal(
        self,
        run: str,
        *,
        expect_ranks: int | None = None,
        allow_missing: bool = False,
        labels: Mapping[str, str] | None = None,
    ) -> Sealed:
        """Publishes the ranks of a run that jobs pushed, as one version; with nothing new, writes nothing.

        The run must have `expect_ranks` ranks, by default those that the pushes state, else the world size of
        the traces. Raises MissingRanks unless `allow_missing`, UnknownName for an unknown run, ParamError for
        a label that looks like a secret.
        """
        from tracewarehouse.runs.seal import seal

        for name, value in check_labels(labels or {}).items():
            self._check_text("a label", {name: value})
        return seal(
            self.store,
            self._unversioned(run, "a seal"),
            expect_ranks=expect_ranks,
            allow_missing=allow_missing,
            labels=labels,
        )

    @writing
    def record(
        self,
        runs: str | Iterable[str] | None = None,
        *,
        analyses: str | Iterable[str] | None = None,
        progress: Callable[[RecordProgress], None] | None = None,
        engine: EngineOrName = "local",
    ) -> RecordReport:
        """Stores results of analyses (`name` or `name@2`; None: all summaries) for `history`.

        Summaries are the analyses without a row per event, point in time or interval, in the newest version.

        Results of the runs (selectors; None: all) that are not recorded yet are computed, over all ranks,
        with default parameters, per step if an analysis supports it: in this process, or by the workers of
        `engine`. Raises UnknownName, EngineError.
        """
        from tracewarehouse.compare.history import record

        named = [analyses] if isinstance(analyses, str) else analyses
        contracts = (
            tuple(contract for contract in self.catalog.analyses() if contract.is_summary)
            if named is None
            else tuple(self.catalog.get(name, kind="analysis") for name in dict.fromkeys(named))
        )
        selection = self.select(runs)
        selected, left_out = selection.selected(), damaged_runs(selection.left_out)
        if engine == "local":
            self._pool.will_read(contracts)
            done = record(self.store, self.catalog, selected, contracts, self._verified, progress)
            return replace(done, notices=(*left_out, *done.notices))
        from tracewarehouse.compare.history import missing_results, run_batches
        from tracewarehouse.engines import opened
        from tracewarehouse.warehouse_tasks import record_on

        missing = missing_results(self.store, self.catalog, selected, contracts)
        with opened(engine) as running:
            batches = list(run_batches(selected))
            done = record_on(running, type(self), self.root, self.catalog, batches, contracts, missing)
            return replace(done, notices=(*left_out, *done.notices))

    @writing
    def acknowledge(self, metric: str, run: str, why: str | None) -> str:
        """Stores why a metric changed at a run, for its history; None removes it. Returns the run.

        Raises UnknownName, TwError if there is none to remove, ParamError, also for a reason that looks like
        a secret.
        """
        from tracewarehouse.compare.history import acknowledge
        from tracewarehouse.compare.metric import parse_statistic

        _, parsed = parse_statistic(metric, self.catalog)  # one reason for all statistics of a metric
        runs = self._recorded(run)
        if len(runs) != 1:
            names = ", ".join(each.selector for each in runs)
            raise UnknownName("single run", run, [], f"it matches {names}")
        self._check_text("the reason", {"reason": why})
        acknowledge(self.store, parsed, runs[0], why)
        return runs[0].selector

    def recorded_runs(self) -> tuple[SelectedRun, ...]:
        """The selected runs in time order; of all runs, also removed ones with recorded results."""
        from tracewarehouse.compare.history import runs_with_results

        if self._selected is not None:
            return self._selected
        return runs_with_results(self.store, self.selected())

    def _recorded(
        self, runs: str | Iterable[str] | None, where: str | Iterable[str] = ()
    ) -> tuple[SelectedRun, ...]:
        """The runs that match these selectors, including removed ones with recorded results."""
        from tracewarehouse.compare.history import matching_runs

        selected = self.recorded_runs()
        named = [runs] if isinstance(runs, str) else runs
        return matching_runs(selected, named, [where] if isinstance(where, str) else where)

    @writing
    def label(self, run: str, labels: Mapping[str, str | None]) -> Published:
        """Sets labels of a run in a new version, removes those that are None.

        Raises UnknownName, ParamError for a label that looks like a secret.
        """
        for name, value in check_labels(labels).items():
            self._check_text("a label", {name: value})
        one = self._one(self._unversioned(run, "a label")).selected()[0]
        return self.store.relabel(one.run, labels)

    def _check_text(self, what: str, texts: Mapping[str, str | None]) -> None:
        """Raises ParamError for a text that looks like a secret."""
        from tracewarehouse.formats.redact import POLICY_FILE, Redactor, check_text, policy_of

        check_text(Redactor(self.store.salt, policy_of(self.store.folder_with(POLICY_FILE))), what, texts)

    @writing
    def remove(
        self,
        runs: str | Iterable[str] | None = None,
        *,
        where: str | Iterable[str] = (),
        older_than: str | timedelta | None = None,
        keep_results: bool = False,
        dry_run: bool = False,
    ) -> tuple[Removed, ...]:
        """Removes the runs that match all conditions: selectors, `label.K=V`, an age like `90d`.

        At least one condition is required. Older versions are readable until `clean`. With `keep_results`
        recorded results are kept, and histories show them; removing such a run by its name again removes
        them, too. Raises UnknownName.
        """
        from tracewarehouse.runs.removal import (
            Removal,
            damaged_runs,
            matching,
            parse_age_ns,
            parse_where,
            pending_runs,
            runs_with_kept_results,
        )

        wanted = [runs] if isinstance(runs, str) else list(runs or ())
        labels = parse_where([where] if isinstance(where, str) else where)
        age_ns = None if older_than is None else parse_age_ns(older_than)
        if not wanted and not labels and age_ns is None:
            raise ParamError("no runs specified", "specify runs, a label or an age to remove")
        wanted = [self._unversioned(each, "removal") for each in wanted]
        pending = pending_runs(self.store, wanted)
        kept = () if keep_results else runs_with_kept_results(self.store, wanted)
        damaged = damaged_runs(self.store, wanted)
        named = [each for each in wanted if each not in pending and each not in (*kept, *damaged)]
        selected = self._matching(named) if wanted else self.selected()
        if damaged and (labels or age_ns is not None or keep_results):
            raise DamagedRunError(
                f"run {damaged[0]} is damaged: its labels, age and results cannot be read",
                hints.repair(damaged[0]),
            )
        published = matching(selected, labels, age_ns, time.time_ns())
        removal = Removal(published, pending, kept, keep_results, damaged)
        report = removal.report(self.store)
        if not dry_run:
            removal.apply(self.store)
        return report

    def refresh(self, on_notice: Callable[[str], object] | None = None) -> Path:
        """Writes `warehouse.duckdb` for DuckDB shells, over the current runs; returns its path.

        A damaged run is left out; `on_notice` gets a line about it. `tw shell` and `tw ingest` do so too.
        Every other write leaves the file out of date. Also writes the list of runs that readers over
        `https://` need.
        """
        from tracewarehouse.query.shell_file import refresh

        if not (isinstance(self.root, StoreUrl) and self.root.is_web):
            self.store.list_runs()
        return refresh(self.store, self.catalog, on_notice)

    @writing
    def upgrade(self) -> UpgradeReport:
        """Rebuilds tables that are stored in another version or by an earlier definition, from `events`.

        Results that were recorded under an earlier definition are recorded again. The report has a line per
        rebuilt table and run, and per run with new results; none if nothing was done. It names runs that
        could not be rebuilt, and why.
        """
        from tracewarehouse.compare.history import record_again
        from tracewarehouse.ingest.outcome import UpgradeReport
        from tracewarehouse.ingest.rebuild import upgrade

        rebuilt, errors = upgrade(self.store, self.catalog, [each.run for each in self.selected()])
        recorded = record_again(self.store, self.catalog, self.selected(), self._verified)
        failed = {run: error.message for run, error in errors.items()}
        failed |= {each.run: hints.fill("{}; {}", each.why, each.hint or "") for each in self.left_out}
        return UpgradeReport((*rebuilt, *recorded), failed)

    @writing
    def derive(
        self,
        name: str,
        run: str,
        *,
        ranks: int | Iterable[int] | None = None,
        steps: int | Iterable[int] = (),
        annotations: str | Iterable[str] = (),
        entire_trace: bool = False,
        capture: str | None = None,
        engine: EngineOrName = "local",
    ) -> Derived:
        """Computes tables that SQL cannot express, as a new version of the run.

        `blame` and `graphs` read all ranks of the run and have no scopes. `graphs` finds the operators of
        kernels in graph launches: captures are looked for in the trace itself, then in the run `capture`, by
        default in traces of the same folder with `capture` in their file name, for the same rank and world
        size. `critical_path` is computed for each complete
        step by default, or for the entire trace if there are no steps; else for steps by number, annotations
        as `NAME#K` (the K-th of that name, from 0), or the `entire_trace`. What is already derived is not
        computed again. The ranks of a critical path are derived by the workers of `engine`. Raises
        UnknownName, ParamError, EngineError.
        """
        from tracewarehouse.contracts.contract import DERIVATIONS
        from tracewarehouse.derive import ScopeRequest, derive
        from tracewarehouse.derive.critical_path import path_sources
        from tracewarehouse.engines import is_remote

        if name not in DERIVATIONS:
            raise UnknownName("derivation", name, DERIVATIONS)
        if name != "graphs" and capture is not None:
            raise ParamError(f"{name} reads no captures", "leave out capture")
        if name != "critical_path" and is_remote(engine):
            raise ParamError(f"{name} reads all ranks at once, in this process", "leave out engine")
        if name in ("blame", "graphs"):
            if ranks is not None or steps or annotations or entire_trace:
                raise ParamError(
                    f"{name} has no scopes", "leave out ranks, steps, annotations and entire_trace"
                )
            return self._derive_blame(run) if name == "blame" else self._derive_graphs(run, capture)
        entire_run = self._one(self._unversioned(run, "a derivation"))
        part = entire_run if ranks is None else entire_run.select(ranks=ranks)
        readable = self._readable(path_sources(self.catalog), part.selected(), Level.FULL)
        wanted = ScopeRequest.of(steps, annotations, entire_trace)
        derived = derive(self.store, self.catalog, readable.selected[0], wanted, engine)
        return replace(derived, notices=(*readable.notices, *derived.notices))

    def _derive_blame(self, run: str) -> Derived:
        from tracewarehouse.derive.blame import derive_blame
        from tracewarehouse.derive.critical_path import derivation_sources

        (selected,) = self._one(self._unversioned(run, "a derivation")).selected()
        readable = self._readable(derivation_sources(self.catalog, "blame"), [selected], Level.FULL)
        derived = derive_blame(self.store, self.catalog, readable.selected[0])
        return replace(derived, notices=(*readable.notices, *derived.notices))

    def _derive_graphs(self, run: str, capture: str | None) -> Derived:
        from tracewarehouse.derive.critical_path import derivation_sources
        from tracewarehouse.derive.graphs import CaptureRuns, derive_graphs

        (selected,) = self._one(self._unversioned(run, "a derivation")).selected()
        named = self._one(capture).selected() if capture is not None else ()
        tables = derivation_sources(self.catalog, "graphs")
        readable = self._readable(tables, [selected], Level.FULL)
        others = self._readable(tables, named or self.selected()).selected
        runs = CaptureRuns(others[0] if named else None, others)
        derived = derive_graphs(self.store, self.catalog, readable.selected[0], runs)
        return replace(derived, notices=(*readable.notices, *derived.notices))
