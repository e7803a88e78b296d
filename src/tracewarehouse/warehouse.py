"""`Warehouse`: queries, analyses, comparisons, reports and exports of the runs in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import timedelta
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, ParamSpec, Self, TypeVar

from msgspec.structs import asdict, replace

from tracewarehouse.analyses import Analyses
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import StoreUnavailable, TwError
from tracewarehouse.location import Location, StoreUrl, location, paths_in
from tracewarehouse.memory_limits import Limits
from tracewarehouse.query.selection import Selection
from tracewarehouse.result import Result
from tracewarehouse.runs.rows import catalog_row, damaged_runs
from tracewarehouse.runs.selection import SelectedRun, as_list, unversioned, unversioned_runs
from tracewarehouse.storage import (
    KEEP_VERSIONS_S,
    TARGET_BYTES,
    CleanReport,
    Compacted,
    Expired,
    Problem,
    Published,
    Store,
    UnreadableRun,
)
from tracewarehouse.storage.parquet_file import Level, default_level
from tracewarehouse.storage.store import objects_at
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    import polars

    from tracewarehouse.compare.diff.diff import Diff
    from tracewarehouse.compare.history.baseline import PartsEvent
    from tracewarehouse.compare.history.page import History
    from tracewarehouse.compare.history.record import RecordProgress, RecordReport
    from tracewarehouse.derive.critical_path import Derived
    from tracewarehouse.engines import EngineOrName
    from tracewarehouse.export import Exported
    from tracewarehouse.export.delta import CopiedTables
    from tracewarehouse.ingest.outcome import IngestReport, UpgradeReport, Watch
    from tracewarehouse.ingest.secrets import RemovalReport, SecretReport
    from tracewarehouse.present.answers import Findings
    from tracewarehouse.present.report.document import Page
    from tracewarehouse.runs.removal import Removed
    from tracewarehouse.runs.rows import Fetched, RunInfo
    from tracewarehouse.runs.seal import Sealed
    from tracewarehouse.upkeep import RepairReport

_DEFAULT_LIMITS: Final = Limits()
P = ParamSpec("P")
R = TypeVar("R")


def writing(method: Callable[P, R]) -> Callable[P, R]:
    """A method that changes the warehouse: refused where writing is not allowed; then lists new versions."""

    @wraps(method)
    def checked(*args: P.args, **named: P.kwargs) -> R:
        warehouse: Warehouse = args[0]  # type: ignore[assignment]
        root, dry_run = warehouse.root, named.get("dry_run")
        # The first write tests an object store; a dry run in a folder writes nothing.
        if root.is_web if isinstance(root, StoreUrl) else not dry_run:
            objects_at(root).check_writable()
        try:
            done = method(*args, **named)
        except (TwError, StoreUnavailable):  # it may have published some runs before
            warehouse._list_new_versions()
            raise
        warehouse._list_new_versions()
        return done

    return checked


class Warehouse(Analyses[Result]):
    """The runs in a folder, or those of them that `select` selected.

    Every analysis is a method: `wh.temporal_breakdown()`. The first `ingest` creates the folder; until then,
    methods that read raise WarehouseError. Reading writes nothing but what `check` and `report` store. Each
    file is checked when it is first opened: its CRC-32, with `verify` (or TW_VERIFY=1) its SHA-256.
    """

    def __init__(
        self,
        path: str | PathLike[str] | StoreUrl,
        *,
        storage_options: Mapping[str, object] | None = None,
        catalog: Catalog | None = None,
        verify: bool = False,
    ) -> None:
        self.root: Location = location(path, storage_options)
        self.catalog = catalog or Catalog.load()
        self._level = Level.FULL if verify else default_level()
        self._opened: Selection | None = None
        self.noted: dict[str, str] = {}  # run → why, of the runs that answers left out

    def __repr__(self) -> str:
        if self._opened is None or self._opened.runs is None:
            return f"Warehouse({str(self.root)!r})"
        return f"Warehouse({str(self.root)!r}, runs={[run.selector for run in self._opened.runs]})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections, as a `with` statement does at its end; the next read opens new ones."""
        if self._opened is not None:
            self._opened.close()

    @property
    def selection(self) -> Selection:
        """What is selected; raises WarehouseError if there is no warehouse."""
        if self._opened is None:
            self._opened = self._select_all(Store.open(self.root, tool=__version__))
        return self._opened

    def _select_all(self, store: Store) -> Selection:
        return Selection(store, self.catalog, level=self._level, noted=self.noted)

    def _narrowed(self, selection: Selection) -> Self:
        other = copy(self)
        other._opened = selection
        return other

    @property
    def store(self) -> Store:
        """The files of the warehouse; raises WarehouseError if there is none."""
        return self.selection.store

    def selected(self) -> tuple[SelectedRun, ...]:
        """The selected runs in time order; without a selection, the newest version of every run."""
        return self.selection.selected()

    @property
    def left_out(self) -> tuple[UnreadableRun, ...]:
        """The damaged runs that `selected` leaves out; naming one of them is an error instead."""
        return self.selection.left_out

    def select(
        self, runs: str | Iterable[str] | None = None, ranks: int | Iterable[int] | None = None
    ) -> Self:
        """The same warehouse narrowed to runs (selectors) and ranks, each run in its current version.

        Raises UnknownName for a selector or rank without a match.
        """
        return self._narrowed(self.selection.select(runs, ranks))

    def on(self, engine: EngineOrName) -> Self:
        """The same warehouse with analyses computed by the workers of an engine, with the same rows.

        `engine` is `"local"`, `"ray"`, or one that `tw.engine` made, which several analyses can use. Groups
        of ranks are read by workers: `wh.select("fp8-on").on("ray").kernel_summary()`. Raises EngineError
        later, when an analysis runs.
        """
        return self._narrowed(self.selection.on(engine))

    def analyze(self, name: str, version: int | None = None, **params: object) -> Result:
        """The rows of an analysis (`name` or `name@2`; newest version by default).

        Ranks whose trace lacks data that it needs are in `Result.skipped`. Runs that were stored without a
        column that it reads are excluded, with a notice. Raises UnknownName, ParamError, and
        SchemaVersionError if no run remains.
        """
        return self.selection.analyze(name, version, **params)

    def query(self, sql: str, limits: Limits | None = _DEFAULT_LIMITS) -> Result:
        """The rows of one SELECT on tables, views and analyses of the selected runs; read-only.

        Beyond a limit (by default 100,000 rows, 30 s, 1 GB) it fails and returns nothing: `wh.query(sql,
        tw.Limits(max_rows=None))`; with `limits=None` there are none. They are DuckDB's, which counts no long
        strings and interrupts no function: `tw query` runs in a process that is killed. Raises QueryError
        (DuckDB's message), QueryLimitError.
        """
        return self.selection.query(sql, limits)

    def scan(self, table: str) -> polars.LazyFrame:
        """A stored table as a Polars LazyFrame over the files of the selected ranks.

        JSON columns are strings; a column that a run was stored without is null. Raises UnknownName, and
        SchemaVersionError if no run has the table in a version that this release reads.
        """
        return self.selection.scan(table)

    def runs(self) -> Result:
        """A row per run, with the columns of the table `runs`, including pending runs.

        With `verify`, every file of the runs is read, and the state of a run with a damaged one is `damaged`.
        """
        from tracewarehouse.runs.rows import list_runs

        selected = self.selection.runs
        return list_runs(self.store, self.catalog, selected, lambda: self.left_out, self._level)

    def info(self, run: str) -> RunInfo:
        """A run with its ranks, tables and versions; raises UnknownName.

        With `verify`, every file of the run is read; raises DamagedRunError for a damaged one.
        """
        from tracewarehouse.runs.rows import run_info

        selection = self.selection.one_run(run)
        return run_info(self.store, self.catalog, selection.selected()[0], selection.level)

    def check(self, runs: str | Iterable[str] | None = None, *, passed: bool = False) -> Findings:
        """Findings of runs, by default of all selected ones: a row per finding, most severe first.

        `runs` are selectors: `wh.check("fp8-on")`. The columns are those of every rule (`tw describe
        input_bound`) and the rule's name; `passed` adds passing checks, with severity none. `saving_ns` is an
        upper bound on the time saved in the analyzed interval. Ranks whose trace lacks data that a rule needs
        are in `Result.skipped`. Which ranks caused the waits at collectives, and why, is found out once and
        stored with the run, if the warehouse can be written.
        """
        from tracewarehouse.findings import check_runs
        from tracewarehouse.present.answers import Findings

        selection = self.selection if runs is None else self.selection.select(runs)
        return Findings(**asdict(check_runs(selection, passed=passed)))

    def diff(
        self,
        base: str | Iterable[str],
        head: str | Iterable[str],
        *,
        by_rank: bool = False,
        all_steps: bool = False,
        measure: str | None = None,
        alpha: float = 0.05,
        min_effect: float = 0.01,
        noise: str = "within",
        match_label: str | Iterable[str] = (),
    ) -> Diff:
        """Compares two runs, or sets of runs (selectors): `wh.diff("a", "b").name_summary()`.

        Values are per rank, and per complete step if the analysis has steps, unless `all_steps`; `by_rank`
        keeps ranks separate. `measure` classifies rows as increased or decreased; `alpha` and `min_effect`
        apply to the verdicts. `.changes()` compares the runs as a whole.

        With `noise="history"`, the noise between runs is that of recorded runs before them, on the same GPUs
        and with the same labels `match_label` (`branch`), since the last change point. `"@baseline"` as base
        is these runs themselves, from 3 on after a change: its verdict is on all of them, the breakdown on
        the newest that are stored. Raises UnknownName, ParamError; TwError if there are too few such runs.
        """
        from tracewarehouse.compare.diff.diff import READS, Diff
        from tracewarehouse.compare.history.baseline import Compared, alike_runs, sides_with_history

        selection = self.selection
        selection.pool.will_read(map(self.catalog.get, READS))
        options = by_rank, all_steps, measure, alpha, min_effect
        if base != "@baseline" and noise == "within":
            before, after = selection.select(base), selection.select(head)
            alike = alike_runs(selection, Compared(before.selected(), after.selected()))
            return Diff(before, after, self.catalog, *options, alike=alike)
        before, after, *finders = sides_with_history(selection, base, head, noise, match_label)
        return Diff(before, after, self.catalog, *options, *finders)

    def history(
        self,
        metric: str,
        runs: str | Iterable[str] | None = None,
        *,
        where: str | Iterable[str] = (),
        by: str | Iterable[str] = (),
        min_effect: float = 0.01,
        normalize: str | None = None,
    ) -> History:
        """A metric over recorded runs in time order, with its changes: `wh.history("step_time").polars()`.

        `runs` are selectors, `where` conditions like `label.branch=main`; `by` labels (`label.gpu`) give one
        series per value. Removed runs with recorded results are included. Changes smaller than `min_effect`
        are not reported. `p99(step_time)` is a percentile of the steps of each run. With `normalize`
        (`sample`, `token` or `label.K`), times and sizes are per sample or token of a step, as in `diff`;
        runs without the label have no value. It reads what `record` has stored, with a notice about runs
        without results. Raises UnknownName, ParamError, and TwError if no results are recorded.
        """
        from tracewarehouse.compare.history.read import metric_history

        wanted = as_list(runs), as_list(where) or (), as_list(by) or ()
        return metric_history(self.selection, metric, *wanted, min_effect, normalize, True)

    def moved_parts(
        self, runs: str | Iterable[str] | None = None, *, where: str | Iterable[str] = ()
    ) -> tuple[PartsEvent, ...]:
        """Which kernels, operators and idle causes changed between which recorded runs: all at once.

        `runs` and `where` select runs as in `history`. At most 5 % of the changes are there by chance. Raises
        UnknownName, ParamError, and TwError if no results of `kernel_summary`, `op_summary` or
        `idle_breakdown` are recorded.
        """
        from tracewarehouse.compare.history.baseline import moved_parts
        from tracewarehouse.compare.history.read import recorded_runs

        selected = recorded_runs(self.selection, as_list(runs), as_list(where) or ())
        return moved_parts(self.store, self.catalog, selected)

    def recorded_runs(self) -> tuple[SelectedRun, ...]:
        """The selected runs in time order; of all runs, also removed ones with recorded results."""
        from tracewarehouse.compare.history.read import recorded_runs

        return recorded_runs(self.selection)

    def report(
        self, run: str, head: str | None = None, *, notify: Callable[[str], None] | None = None
    ) -> Page:
        """A report on a run: where GPU time went, what limits it, what is unknown; `.html()` is the file.

        With `head`, the report compares `run` with it. Nothing is stored but what `check` stores; `notify`
        receives progress messages. Raises UnknownName.
        """
        from tracewarehouse.present.report.reports import one_run_page, two_runs_page

        report_progress = notify or (lambda _: None)
        if head is None:
            return one_run_page(self.selection.one_run(run), report_progress)
        return two_runs_page(self.selection, self.diff(run, head), report_progress)

    def report_runs(
        self,
        runs: str | Iterable[str] | None = None,
        *,
        metrics: str | Iterable[str] = (),
        notify: Callable[[str], None] | None = None,
    ) -> Page:
        """A report on many runs (selectors; None: all), one row per run, as `report`.

        `metrics` adds a column each, written as for `history`. Raises UnknownName, ParamError.
        """
        from tracewarehouse.present.report.reports import many_runs_page

        part = self.selection if runs is None else self.selection.select(runs)
        return many_runs_page(part, as_list(metrics) or (), notify or (lambda _: None))

    def whatif(
        self,
        run: str,
        scale: str | Iterable[str] = (),
        *,
        ranks: int | Iterable[int] | None = None,
        steps: int | Iterable[int] = (),
        annotations: str | Iterable[str] = (),
        entire_trace: bool = False,
        by: str = "category",
    ) -> Result:
        """Estimates the step time after each fix (analysis `what_if`), or with some work scaled.

        With scales like `kernels[kind=communication]=0.5`, estimates the duration of the scopes of `derive`.
        A row per rank, scope and category of the critical path (with `by="op"` also operator and name):
        base_ns measured, new_ns estimated, saved_ns; the category `length` is the total. Collectives and
        their waits are those that this rank recorded. Nothing is stored. Raises ParamError, UnknownName.
        """
        from tracewarehouse.derive.critical_path import ScopeRequest
        from tracewarehouse.derive.whatif import fixes_of, whatif_of

        part = self.selection.one_run(run)
        part = part if ranks is None else part.select(ranks=ranks)
        wanted, scales = ScopeRequest.of(steps, annotations, entire_trace), as_list(scale)
        return whatif_of(part, wanted, scales, by) if scales else fixes_of(part, wanted, by)

    def export_trace(
        self,
        run: str,
        rank: int | Iterable[int] | None = None,
        *,
        counters: str | Iterable[str] | None = None,
        overlays: str | Iterable[str] | None = None,
        start: int | str | None = None,
        end: int | str | None = None,
        step: int | None = None,
        around: str | None = None,
        margin: int | str | None = None,
        plain: bool = False,
    ) -> Exported:
        """A rank's trace as JSON text in chunks: its header, every event as in the file, then added events.

        Several ranks are merged into one trace, with clocks aligned where collectives allow it. `start` and
        `end` (`"1.2s"` since the first event, or a number as in the tables), `step` or `around` select a time
        range, with `margin` on both sides; slices that overlap it are complete. `around` is a rule of
        `check`: the range is its worst occurrence, in that rank. `counters` (`export.COUNTERS`) and
        `overlays` (`export.OVERLAYS`) add events and change none; time ranges have some unless `plain`. The
        rank is optional if the run has one rank. Raises UnknownName, ParamError.
        """
        from tracewarehouse.export import export_request, export_run

        request = export_request(counters, overlays, start, end, step, around, margin, plain)
        return export_run(self.selection, run, rank, request)

    def files(self, run: str, table: str) -> Result:
        """The committed Parquet files of a table of a run: key, bytes, rows, ranks and SHA-256 of each.

        Keys are relative to the warehouse. `rows` and `ranks` are those that the version names in the file.
        Raises UnknownName.
        """
        from tracewarehouse.runs.rows import committed_files

        return committed_files(self.selection.one_run(run).selected()[0], table)

    def fetch(self, runs: str | Iterable[str] | None = None, *, tables: str | Iterable[str] = ()) -> Fetched:
        """Downloads the files of runs (selectors; None: all selected) in an object store, and checks them.

        Questions about them then download nothing. Raises WarehouseError if they need more than
        TW_MIRROR_BYTES, DamagedRunError for a file that differs from its checksum, UnknownName.
        """
        from tracewarehouse.runs.rows import fetch_files

        selected = self.selected() if runs is None else self.select(runs).selected()
        return fetch_files(self.store, selected, as_list(tables) or ())

    def export_delta(
        self,
        destination: str | PathLike[str],
        runs: str | Iterable[str] | None = None,
        *,
        tables: Sequence[str] = (),
    ) -> tuple[CopiedTables, ...]:
        """Copies tables of runs (None: all) to Delta tables below a folder or URL, each version exactly once.

        By default `kernels`, `steps`, `annotations`, `runs` and `ranks`. JSON and ENUM columns become text.
        `tw_published` is written last and lists the tables of each run. Rows of removed runs are deleted.
        Raises UnknownName, ParamError without the extra `delta`, WarehouseError.
        """
        from tracewarehouse.export.delta import copy_tables

        return copy_tables(self.selection, destination, as_list(runs), tables)

    @contextmanager
    def shell_file(self, on_notice: Callable[[str], object] | None = None) -> Iterator[Path]:
        """A DuckDB file to open read-only: the updated `warehouse.duckdb`, or one over the selection.

        Damaged runs are left out, unless they were selected by name; `on_notice` gets a line about each.
        The latter is a temporary file, as is the former if the warehouse is not writable.
        """
        from tracewarehouse.query.shell_file import shell_file

        with shell_file(self.selection, self.refresh, on_notice) as path:
            yield path

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
        min_age_s: float = 30.0,
        strict: bool = False,
        inbox: bool = False,
        temp_dir: str | PathLike[str] | None = None,
        time_unit: Literal["us", "ns"] | None = None,
        step_pattern: str | None = None,
        redact: bool = True,
        auto_labels: bool = False,
        progress: Watch | None = None,
        engine: EngineOrName = "local",
    ) -> IngestReport:
        """Ingests trace files and folders, each an argument or in a list; the report has each file's outcome.

        A path may be a URL (`s3://`, `gs://`, `az://`) of an object or a folder, or a pattern with `*`; each
        object is downloaded once. An unreadable file does not stop the others. Ingesting the same content
        again writes nothing. Data that does not fit in memory spills to `temp_dir`, by default on the disk of
        the warehouse. `time_unit` is the unit of times in the files if it is not that of their format.
        `step_pattern` is a regular expression for annotations that mark steps; its first group is the step
        number. With `redact`, strings that look like secrets are replaced. `auto_labels` labels runs by the
        environment of this call (git commit, batch job, …), as `tw ingest` does. With
        `expect_ranks` the ranks wait, and the call that brings the last one publishes them, or `seal`. With
        `engine` (`"ray"`, or one of `tw.engine`) other machines read the files and commit what they
        build. Call `refresh` afterwards to write the file for DuckDB shells.

        `inbox` ingests the traces that training jobs left in the inbox, or those of `paths` there. Of a job
        that started several times, the later starts are runs `RUN+1`, `RUN+2`, …; `run` names the job.
        """
        from tracewarehouse.ingest.outcome import Options
        from tracewarehouse.ingest.pipeline import ingest

        options = Options(
            run=run,
            labels=dict(labels or {}),
            rank=rank,
            expect_ranks=expect_ranks,
            jobs=jobs,
            replace=replace,
            min_age_s=min_age_s,
            strict=strict,
            inbox=inbox,
            temp_dir=Path(temp_dir) if temp_dir is not None else None,
            time_unit=time_unit,
            step_pattern=step_pattern,
            redact=redact,
            auto_labels=auto_labels,
        )
        sources = paths_in(paths)
        store = Store.open_or_create(self.root, tool=__version__)
        if self._opened is None:
            self._opened = self._select_all(store)
        self._opened.store = store
        return ingest(store, self.catalog, sources, options, progress, engine)

    def inbox(self) -> Result:
        """What waits in the inbox to be ingested: a row per run, with the number and bytes of its traces."""
        from tracewarehouse.ingest.pipeline import waiting

        return waiting(objects_at(self.root))

    @writing
    def discard(self, runs: str | Iterable[str]) -> list[Path]:
        """Deletes the traces of runs from the inbox without ingesting them, and returns their paths.

        `runs` are names of folders of the inbox. Raises UnknownName for one without traces.
        """
        from tracewarehouse.ingest.pipeline import discard

        return discard(objects_at(self.root), as_list(runs) or ())

    @writing
    def seal(
        self,
        run: str,
        *,
        expect_ranks: int | None = None,
        allow_missing: bool = False,
        labels: Mapping[str, str] | None = None,
    ) -> Sealed:
        """Publishes the ranks of a run that wait for others as one version; with nothing new, writes nothing.

        The run must have `expect_ranks` ranks, by default those that were stated at ingest, else the world
        size of the traces. Raises MissingRanks unless `allow_missing`, UnknownName for an unknown run,
        ParamError for a label that looks like a secret.
        """
        from tracewarehouse.ingest.secrets import without_secrets
        from tracewarehouse.runs.seal import seal

        return seal(
            self.store,
            unversioned(run, "a seal"),
            expect_ranks=expect_ranks,
            allow_missing=allow_missing,
            labels=without_secrets(self.store, labels or {}),
        )

    @writing
    def label(self, run: str, labels: Mapping[str, str | None]) -> Published:
        """Sets labels of a run in a new version, removes those that are None.

        Raises UnknownName, ParamError for a label that looks like a secret.
        """
        from tracewarehouse.ingest.secrets import without_secrets

        selected = self.selection.one_run(unversioned(run, "a label")).selected()[0]
        return self.store.relabel(selected.run, without_secrets(self.store, labels))

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
        from tracewarehouse.runs.removal import remove_runs

        names, conditions = unversioned_runs(runs, "removal") or (), as_list(where) or ()
        within = self.selection.runs
        return remove_runs(self.store, within, names, conditions, older_than, keep_results, dry_run)

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
        from tracewarehouse.compare.history.record import record_on, record_runs, recordable
        from tracewarehouse.engines import opened

        contracts = recordable(self.catalog, as_list(analyses))
        selection = self.selection.select(runs)
        if engine == "local":
            done = record_runs(selection, contracts, progress)
        else:
            with opened(engine) as running:
                done = record_on(running, self.root, selection, contracts)
        return replace(done, notices=(*damaged_runs(selection.left_out), *done.notices))

    @writing
    def acknowledge(self, metric: str, run: str, why: str | None) -> str:
        """Stores why a metric changed at a run, for its history; None removes it. Returns the run.

        Raises UnknownName, TwError if there is none to remove, ParamError, also for a reason that looks like
        a secret.
        """
        from tracewarehouse.compare.history.read import acknowledge_run
        from tracewarehouse.ingest.secrets import check_no_secret

        check_no_secret(self.store, "the reason", {"reason": why})
        return acknowledge_run(self.selection, metric, run, why)

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

        `wait_attribution` and `graphs` read all ranks of the run, without scopes. `graphs` finds the
        operators of kernels in graph launches: captures are looked for in the trace itself, then in the run
        `capture`, by default in traces of the same folder with `capture` in their file name, for the same
        rank and world size. `critical_path` is computed for each complete step by default, or for the entire
        trace if there are no steps; else for steps by number, annotations as `NAME#K` (the K-th of that name,
        from 0), or the `entire_trace`. What is already derived is not computed again. The ranks of a critical
        path are derived by the workers of `engine`. Raises UnknownName, ParamError, EngineError.
        """
        from tracewarehouse.derive.critical_path import ScopeRequest
        from tracewarehouse.derive.derivations import derive_tables

        wanted = ScopeRequest.of(steps, annotations, entire_trace)
        run = unversioned(run, "a derivation")
        return derive_tables(self.selection, name, run, ranks, wanted, capture, engine)

    def refresh(self, on_notice: Callable[[str], object] | None = None) -> Path:
        """Writes `warehouse.duckdb` for DuckDB shells, over the current runs; returns its path.

        A damaged run is left out; `on_notice` gets a line about it. `tw shell` and `tw ingest` do so too.
        Every other write leaves the file out of date. Also writes the list of runs that readers over
        `https://` need.
        """
        from tracewarehouse.query.shell_file import refresh

        if not (isinstance(self.root, StoreUrl) and self.root.is_web):
            self.store.list_runs(catalog_row)
        return refresh(self.store, self.catalog, on_notice)

    @writing
    def upgrade(self) -> UpgradeReport:
        """Rebuilds tables that are stored in another version or by an earlier definition, from `events`.

        A warehouse of release 0.2.0 is converted first. Results that were recorded under an earlier
        definition are recorded again. The report has a line per rebuilt table and run, and per run with new
        results; none if nothing was done. It names runs that could not be rebuilt, and why.
        """
        from tracewarehouse.ingest.format2 import convert
        from tracewarehouse.upkeep import upgrade

        converted = convert(objects_at(self.root), self.catalog, __version__)
        report = upgrade(self.selection)
        return replace(report, lines=(*converted, *report.lines))

    def verify(self, *, deep: bool = False) -> list[Problem]:
        """Problems of the stored files; `deep` downloads those of an object store to compare checksums."""
        from tracewarehouse.upkeep import problems

        return problems(self.store, deep)

    @writing
    def repair(
        self,
        runs: str | Iterable[str] | None = None,
        *,
        source: str | PathLike[str] | Iterable[str | PathLike[str]] = (),
        dry_run: bool = False,
    ) -> RepairReport:
        """Repairs damaged runs (names; None: the entire warehouse); nothing is ever deleted.

        Versions are restored from the index and the commits, tables from the stored events, recorded results
        are computed again. Ranks whose events are damaged are dropped, unless their trace is among the files
        and folders of `source`. Damaged objects stay where they are, and the new version of the run names
        them as taken out. The report says what was restored and what is lost; `dry_run` changes nothing.
        Raises UnknownName.
        """
        from tracewarehouse.upkeep import RepairReport, repair, restore_identity

        steps = restore_identity(objects_at(self.root), dry_run)
        if steps and dry_run:
            return RepairReport(steps)
        return repair(self.selection, as_list(runs), paths_in([source]), dry_run, steps)

    @writing
    def compact(
        self,
        runs: str | Iterable[str] | None = None,
        *,
        target_bytes: int = TARGET_BYTES,
        dry_run: bool = False,
    ) -> tuple[Compacted, ...]:
        """Writes small files of runs (None: all) as few files of about `target_bytes` with the same rows.

        Files of at least half that size stay, unless ranks in them were replaced. Recorded results stay
        valid. `clean` deletes the replaced files. Raises UnknownName, WarehouseError for a damaged file.
        """
        from tracewarehouse.upkeep import compact_runs

        return compact_runs(self.selection, unversioned_runs(runs, "a compaction"), target_bytes, dry_run)

    @writing
    def expire(self, policy: str | PathLike[str], *, dry_run: bool = False) -> tuple[Expired, ...]:
        """Drops the tables that expired by a retention policy, a TOML file, from the runs.

        Analyses that read a dropped table skip its ranks; recorded results stay. Ingesting the same traces
        again restores them. Without `dry_run`, new versions are published; `clean` deletes the files.
        Raises ParamError for an invalid policy.
        """
        from tracewarehouse.upkeep import expire_tables

        return expire_tables(self.selection, Path(policy), dry_run)

    @writing
    def clean(
        self,
        grace_s: float = 86_400.0,
        *,
        taken_out: bool = False,
        keep_versions_s: float = KEEP_VERSIONS_S,
    ) -> CleanReport:
        """Deletes files that no kept version needs and that are older than `grace_s` seconds.

        Versions that were replaced within `keep_versions_s` seconds are kept, unless a later one has the same
        rows. Runs with lost or damaged objects are skipped. `taken_out` also deletes what repairs took out.
        """
        from tracewarehouse.storage.clean import clean

        return clean(self.store, grace_s, taken_out, keep_versions_s)

    def secrets(self, runs: str | Iterable[str] | None = None) -> SecretReport:
        """What looks like a secret in everything stored, or in what is stored of some runs (names).

        Columns, headers, commits, versions, recorded results, `warehouse.duckdb`, paths and traces in the
        inbox are searched by the rules of redaction. Nothing is changed.
        """
        from tracewarehouse.formats.redact import POLICY_FILE, policy_of
        from tracewarehouse.ingest.secrets import scan_warehouse

        names = unversioned_runs(runs, "a search")
        return scan_warehouse(self.store, names, policy_of(self.store.folder_with(POLICY_FILE)))

    @writing
    def remove_secrets(
        self, runs: str | Iterable[str] | None = None, *, redact: bool = True, purge: bool = False
    ) -> RemovalReport:
        """Publishes clean versions of runs in which `secrets` finds some; `purge` deletes the old versions.

        Tables are built again from the stored events with secrets replaced; recorded results that held some
        are recorded again. Traces in the inbox stay as they are until they are ingested. With `purge`, no
        other process may write to the warehouse.
        """
        from tracewarehouse.upkeep import remove_secrets

        return remove_secrets(self.selection, unversioned_runs(runs, "a search"), redact=redact, purge=purge)

    def _list_new_versions(self) -> None:
        """Adds what this warehouse published to the lists of runs, if it published anything."""
        if self._opened is not None:
            self._opened.store.list_new_versions(catalog_row)
