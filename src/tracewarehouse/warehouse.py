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

from tracewarehouse import hints
from tracewarehouse.analyses import Analyses
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import StoreUnavailable, TwError
from tracewarehouse.limits import Limits
from tracewarehouse.location import Location, StoreUrl, location, paths_in
from tracewarehouse.query.selection import Selection
from tracewarehouse.result import Result
from tracewarehouse.runs.rows import catalog_row, damaged_runs, list_new_versions
from tracewarehouse.runs.selection import SelectedRun, as_list, unversioned, unversioned_runs
from tracewarehouse.storage.model import (
    KEEP_VERSIONS_S,
    TARGET_BYTES,
    CleanReport,
    Compacted,
    Expired,
    Problem,
    Published,
    UnreadableRun,
)
from tracewarehouse.storage.objects import Objects
from tracewarehouse.storage.parquet_file import Level, default_level
from tracewarehouse.storage.store import Store, objects_at
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    from concurrent.futures import Future

    import polars

    from tracewarehouse.compare.diff.diff import Diff
    from tracewarehouse.compare.history.baseline import PartsEvent
    from tracewarehouse.compare.history.history import History
    from tracewarehouse.compare.history.record import RecordProgress, RecordReport
    from tracewarehouse.derive.critical_path import Derived
    from tracewarehouse.engines import EngineOrName
    from tracewarehouse.export.writer import Exported
    from tracewarehouse.ingest.outcome import IngestReport, Progress, UpgradeReport, Watch
    from tracewarehouse.ingest.secrets import RemovalReport, SecretReport
    from tracewarehouse.present.answers import Findings
    from tracewarehouse.present.report.document import Page
    from tracewarehouse.query.shell_file import NextFile
    from tracewarehouse.runs.removal import Removed
    from tracewarehouse.runs.rows import Fetched, RunInfo
    from tracewarehouse.storage.delta import CopiedTables
    from tracewarehouse.upkeep import RepairReport, Sealed

_DEFAULT_LIMITS: Final = Limits()
# Reading less takes no longer than opening the file for shells, which needs 50 MB.
_LONG_READ_BYTES: Final = 32 << 20
P = ParamSpec("P")
R = TypeVar("R")


def writing(method: Callable[P, R]) -> Callable[P, R]:
    """A method that changes the warehouse: refused where writing is not allowed; then lists new versions."""

    @wraps(method)
    def checked(*args: P.args, **named: P.kwargs) -> R:
        warehouse: Warehouse = args[0]  # type: ignore[assignment]
        root, dry_run = warehouse.root, named.get("dry_run")
        # The first write tests an object store; a dry run in a folder writes nothing.
        if warehouse.read_only or (root.is_web if isinstance(root, StoreUrl) else not dry_run):
            warehouse._objects().check_writable()
        try:
            result = method(*args, **named)
        except (TwError, StoreUnavailable):  # it may have published some runs before
            warehouse._list_new_versions()
            raise
        warehouse._list_new_versions()
        return result

    return checked


class Warehouse(Analyses[Result]):
    """The runs in a folder or at a URL, or some of them; `tw.open` returns one.

    Every analysis is a method: `wh.temporal_breakdown()`. The first `ingest` creates the folder. Reading
    writes only what `check` and `report` store. Each file is checked when it is first opened.

    Runs are named by selectors: a name, its beginning or end, `fp8-*`, `fp8-on@v2`, `@latest`, `@previous`,
    `label:commit=3f2a`, or a list `a,b`.

    Args:
        path: A folder or URL.
        storage_options: Options of the store, as for `tw.open`.
        catalog: Definitions of tables and analyses (default: those of this release).
        verify: Compares each file with its SHA-256 (default: with its CRC-32; TW_VERIFY=1 sets it).
        read_only: Nothing is written: `check` and `report` store nothing, methods that write are refused.

    Raises:
        ParamError: There are `storage_options` for a folder.
        WarehouseError: The URL is not supported. Methods raise it if there is no warehouse to read, or if it
            cannot be written.
        DamagedRunError: Methods raise it if they are given the name of a damaged run; other calls leave it
            out.

    Example:
        >>> with tw.Warehouse("warehouse", verify=True) as warehouse:
        ...     len(warehouse.runs())
        2
    """

    def __init__(
        self,
        path: str | PathLike[str] | StoreUrl,
        *,
        storage_options: Mapping[str, object] | None = None,
        catalog: Catalog | None = None,
        verify: bool = False,
        read_only: bool = False,
    ) -> None:
        self.read_only = read_only
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
        """Closes the connections, as a `with` statement does at its end; the next read opens new ones.

        Example:
            >>> wh.close()
        """
        if self._opened is not None:
            self._opened.close()

    @property
    def selection(self) -> Selection:
        """The selected runs and ranks, with the connections that read them.

        Raises:
            WarehouseError: There is no warehouse.

        Example:
            >>> wh.select("fp8-on").selection.selected()[0].run
            'fp8-on'
        """
        if self._opened is None:
            store = Store.open(self.root, tool=__version__)
            store.objects.read_only = self.read_only
            self._opened = self._select_all(store)
        return self._opened

    def _objects(self) -> Objects:
        objects = objects_at(self.root)
        objects.read_only = self.read_only
        return objects

    def _select_all(self, store: Store) -> Selection:
        return Selection(store, self.catalog, level=self._level, noted=self.noted)

    def _narrowed(self, selection: Selection) -> Self:
        other = copy(self)
        other._opened = selection
        return other

    @property
    def store(self) -> Store:
        """The files of the warehouse.

        Raises:
            WarehouseError: There is no warehouse.

        Example:
            >>> wh.store.runs()
            ('fp8-off', 'fp8-on')
        """
        return self.selection.store

    def selected(self) -> tuple[SelectedRun, ...]:
        """Returns the selected runs in time order; without a selection, the newest version of every run.

        Returns:
            Runs with `run` (name), `selector` (`RUN@vN`), `version` and `ranks`.

        Example:
            >>> [(each.selector, each.ranks) for each in wh.select("fp8-on").selected()]
            [('fp8-on@v2', (0, 1, 2, 3))]
        """
        return self.selection.selected()

    @property
    def left_out(self) -> tuple[UnreadableRun, ...]:
        """The damaged runs that `selected` leaves out, each with `run`, `key`, `why` and `hint`.

        Example:
            >>> wh.left_out
            ()
        """
        return self.selection.left_out

    def select(
        self, runs: str | Iterable[str] | None = None, ranks: int | Iterable[int] | None = None
    ) -> Self:
        """Narrows the warehouse to runs and ranks, each run in its current version.

        Args:
            runs: Selectors (None: those of this warehouse).
            ranks: Rank numbers (None: all).

        Raises:
            UnknownName: A selector or rank matches nothing.

        Example:
            >>> wh.select("fp8-on", ranks=[0, 1])
            Warehouse('...warehouse', runs=['fp8-on@v2'])
        """
        return self._narrowed(self.selection.select(runs, ranks))

    def on(self, engine: EngineOrName) -> Self:
        """Returns the same warehouse with analyses computed by the workers of an engine.

        The rows are the same. Workers read groups of ranks.

        Args:
            engine: `"local"`, `"ray"`, `"spark"`, or one of `tw.engine`, which several analyses can use.

        Raises:
            EngineError: The engine cannot be started; raised later, when an analysis runs.

        Example:
            >>> wh.select("fp8-on", ranks=0).on("local").kernel_summary()
        """
        return self._narrowed(self.selection.on(engine))

    def analyze(self, name: str, version: int | None = None, **params: object) -> Result:
        """Runs an analysis on the selected runs.

        Args:
            name: `NAME` or `NAME@2`.
            version: Its version (default: the newest).
            params: Its parameters; `help(wh.NAME)` lists them.

        Returns:
            The rows; `help(wh.NAME)` lists the columns with their units. `skipped` lists the ranks whose
            traces lack data that it needs, `notices` the runs that were excluded.

        Raises:
            UnknownName: There is no such analysis or version.
            ParamError: A parameter is unknown or has an invalid value.
            SchemaVersionError: No run has the columns that it reads.

        Example:
            >>> wh.select("fp8-on", ranks=0).analyze("temporal_breakdown").columns()[3]
            Field(name='window_ns', type='BIGINT', unit='ns')
        """
        return self.selection.analyze(name, version, **params)

    def query(self, sql: str, limits: Limits | None = _DEFAULT_LIMITS) -> Result:
        """Runs one SELECT on tables, views and analyses of the selected runs; read-only.

        DuckDB applies the limits; it does not count long strings or interrupt functions. `tw query` runs the
        statement in a process that it ends.

        Args:
            limits: Beyond one of them, the query fails and returns nothing (default: 100,000 rows, 30 s, 1
                GB; None: no limits).

        Raises:
            QueryError: DuckDB rejects the statement; with its message.
            QueryLimitError: The query exceeds a limit.

        Example:
            >>> wh.query("SELECT count(*) AS kernels FROM kernels WHERE rank = 0").rows()
            [{'kernels': 126}]
            >>> wh.query("SELECT name, dur_ns FROM kernels", tw.Limits(max_rows=None))
        """
        return self.selection.query(sql, limits)

    def scan(self, table: str) -> polars.LazyFrame:
        """Opens a stored table as a Polars LazyFrame over the files of the selected ranks.

        Returns:
            The columns of the table, times in ns. JSON columns are strings; a column that a run lacks is
            null.

        Raises:
            UnknownName: There is no such stored table.
            SchemaVersionError: No run has the table in a version that this release reads.

        Example:
            >>> wh.scan("kernels").select("name", "dur_ns").head(5).collect()
        """
        return self.selection.scan(table)

    def runs(self) -> Result:
        """Lists the runs, including pending ones.

        Returns:
            A row per run, with the columns of the table `runs`: `run_id`, `labels`, `start_ns`, `world_size`,
            `version`, `state`, `bytes`, and more. With `verify`, every file is read to find damaged runs.

        Example:
            >>> wh.runs().select("run_id", "version", "state").rows()
            [{'run_id': 'fp8-off', 'version': 2, 'state': 'complete'}, {'run_id': 'fp8-on', ...}]
        """
        from tracewarehouse.runs.rows import list_runs

        selected = self.selection.runs
        return list_runs(self.store, self.catalog, selected, lambda: self.left_out, self._level)

    def info(self, run: str) -> RunInfo:
        """Describes a run.

        Returns:
            `run` (the columns of `runs`), `ranks` (a row per rank), `tables` (rows, bytes and files of each),
            and `versions`. With `verify`, every file of the run is read.

        Raises:
            UnknownName: The selector does not match one run.
            DamagedRunError: A file of the run is damaged.

        Example:
            >>> wh.info("fp8-on").versions
            (1, 2)
        """
        from tracewarehouse.runs.rows import run_info

        selection = self.selection.one_run(run)
        return run_info(self.store, self.catalog, selection.selected()[0], selection.level)

    def check(self, runs: str | Iterable[str] | None = None, *, passed: bool = False) -> Findings:
        """Finds what limits the speed of runs: the findings of all rules, most severe first.

        `print` shows them as sentences. What caused the waits at collectives is computed once and stored with
        the run, if the warehouse can be written.

        Args:
            runs: Selectors (None: all selected).
            passed: Also lists checks that passed, with severity `none`.

        Returns:
            A row per finding: `run_id`, `rank`, `rule`, `severity`, `share` (ratio), `saving_ns` (ns, an
            upper bound for the analyzed interval), `observation`, `advice`, and more. `skipped` lists the
            ranks whose traces lack data that a rule needs.

        Raises:
            UnknownName: A selector matches nothing.

        Example:
            >>> wh.check("fp8-on").select("rule", "severity", "saving_ns").head(3)
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
        """Compares two runs, or two sets of runs.

        Every analysis is a method of the result: `wh.diff("a", "b").kernel_summary()`; `.changes()` compares
        the runs as a whole. Values are per rank; if the analysis has steps, per complete step.

        Args:
            base: Selectors; `"@baseline"`: recorded runs like `head` since the last change, at least 3.
            head: Selectors.
            by_rank: Compares each rank with its counterpart.
            all_steps: Includes incomplete steps.
            measure: The column that classifies rows as increased or decreased (default: the first time).
            alpha: Significance level of the verdicts (default 0.05).
            min_effect: Smallest relative change that matters (ratio, default 0.01).
            noise: `"within"`: variation within these runs; `"history"`: variation between recorded runs
                before them, on the same GPUs, since the last change.
            match_label: Labels that runs of the history must share with these, such as `branch`.

        Raises:
            UnknownName: A selector or label matches nothing.
            ParamError: `noise` is invalid.
            NoBaseline: There are too few recorded runs.

        Example:
            >>> wh.diff("fp8-off", "fp8-on").kernel_summary().select("name", "delta_sum_ns", "verdict")
            >>> wh.diff("fp8-off", "fp8-on", by_rank=True).temporal_breakdown()
        """
        from tracewarehouse.compare.diff.diff import READS, Diff
        from tracewarehouse.compare.history.baseline import Compared, alike_runs, sides_with_history

        selection = self.selection
        selection.will_read(map(self.catalog.get, READS))
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
        """Shows a metric over recorded runs in time order, with its changes.

        It reads what `record` has stored, also of removed runs.

        Args:
            metric: A column of an analysis, `step_time`, or a percentile over steps such as `p99(step_time)`.
            runs: Selectors (None: all).
            where: Conditions such as `label.branch=main`.
            by: Labels such as `label.gpu`; there is a series per value.
            min_effect: Smallest change to report (ratio, default 0.01).
            normalize: `sample`, `token` or `label.K`: times and sizes per unit of work, as in `diff`.

        Raises:
            UnknownName: A run, label or metric is unknown.
            ParamError: The metric or a condition is invalid.
            TwError: No results are recorded.

        Example:
            >>> wh.history("step_time").polars().select("run_id", "value", "level")
        """
        from tracewarehouse.compare.history.read import metric_history

        filters = as_list(runs), as_list(where) or (), as_list(by) or ()
        return metric_history(self.selection, metric, *filters, min_effect, normalize, True)

    def moved_parts(
        self, runs: str | Iterable[str] | None = None, *, where: str | Iterable[str] = ()
    ) -> tuple[PartsEvent, ...]:
        """Finds the kernels, operators and idle causes that changed between recorded runs.

        At most 5 % of the changes are there by chance.

        Args:
            runs: Selectors (None: all).
            where: Conditions, as for `history`.

        Returns:
            An event per pair of runs, with `before`, `after` and `parts`; each part has `kind`, `name`,
            `calls` and `ns` (before and after, per step or rank) and `q`.

        Raises:
            UnknownName: A run or label is unknown.
            ParamError: A condition is invalid.
            TwError: No results of `kernel_summary`, `op_summary` or `idle_breakdown` are recorded.

        Example:
            >>> wh.moved_parts()
            ()
        """
        from tracewarehouse.compare.history.baseline import moved_parts
        from tracewarehouse.compare.history.read import recorded_runs

        selected = recorded_runs(self.selection, as_list(runs), as_list(where) or ())
        return moved_parts(self.store, self.catalog, selected)

    def recorded_runs(self) -> tuple[SelectedRun, ...]:
        """Returns the selected runs; without a selection, also removed runs with recorded results.

        Returns:
            Runs in time order, as `selected` returns them.

        Example:
            >>> [each.selector for each in wh.recorded_runs()]
            ['fp8-off@v2', 'fp8-on@v2']
        """
        from tracewarehouse.compare.history.read import recorded_runs

        return recorded_runs(self.selection)

    def report(
        self, run: str, head: str | None = None, *, notify: Callable[[str], None] | None = None
    ) -> Page:
        """Makes a report: where GPU time went, what limits the run, and what is unknown.

        Args:
            head: Compares `run` with this run.
            notify: Receives progress messages.

        Returns:
            The report; its `html()` is the file.

        Raises:
            UnknownName: A selector does not match one run.

        Example:
            >>> page = wh.report("fp8-on")
            >>> page.title
            'fp8-on'
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
        """Makes a report on many runs, with a row per run.

        Args:
            runs: Selectors (None: all selected).
            metrics: Adds a column for each, written as for `history`.
            notify: Receives progress messages.

        Returns:
            The report; its `html()` is the file.

        Raises:
            UnknownName: A run or metric is unknown.
            ParamError: A metric is invalid.

        Example:
            >>> wh.report_runs(metrics="step_time").title
            '2 runs'
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
        """Estimates the step time after each fix, or with some work scaled. Nothing is stored.

        Args:
            scale: Scales such as `kernels[kind=communication]=0.5` (default: the fixes of the analysis
                `what_if`).
            ranks: Rank numbers (None: all).
            steps: Step numbers; with `annotations` and `entire_trace` the scopes to scale, as for `derive`.
            by: `"category"`, or `"op"` for a row per operator and name.

        Returns:
            A row per fix: `step_ns` (ns), `after_ns`, `saving_ns`, `saving_share` (ratio), `assumption`. With
            scales, a row per rank, scope and category of the critical path: `base_ns` (ns, measured),
            `new_ns`, `saved_ns`; the category `length` is the total. Waits at collectives stay as recorded.

        Raises:
            UnknownName: The run, a rank or a scope is unknown.
            ParamError: A scale is invalid, or a scope is given without a scale.

        Example:
            >>> wh.whatif("fp8-on").select("fix", "step_ns", "saving_ns")
            >>> wh.whatif("fp8-on", "kernels[kind=communication]=0.5", ranks=0, steps=11)
        """
        from tracewarehouse.derive.critical_path import ScopeRequest
        from tracewarehouse.derive.whatif import fixes_of, whatif_of

        part = self.selection.one_run(run)
        part = part if ranks is None else part.select(ranks=ranks)
        scopes, scales = ScopeRequest.of(steps, annotations, entire_trace), as_list(scale)
        return whatif_of(part, scopes, scales, by) if scales else fixes_of(part, scopes, by)

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
        """Exports ranks as one JSON trace: the header, every event as in the file, then added events.

        The clocks of several ranks are aligned where collectives allow it. `start` and `end`, `step`, or
        `around` select a time range; slices that overlap it are complete.

        Args:
            rank: Rank numbers (default: the only rank of the run).
            counters: Counter tracks to add: `queue_length`, `memory_bandwidth` (default: for time ranges, the
                first).
            overlays: Tracks to add, such as `steps` and `idle` (default: for time ranges, some).
            start: `"1.2s"` after the first event, or a number as in the tables (ns).
            end: The same.
            around: A rule of `check`: the range of its worst occurrence in that rank.
            margin: Time on both sides of the range (ns, or text such as `"1ms"`).
            plain: Adds no events.

        Returns:
            `chunks` of text, to be read once, `ranks`, `is_new` (False: an unchanged copy), and `notices`.

        Raises:
            UnknownName: The run, a rank, counter, overlay or rule is unknown.
            ParamError: A time range is invalid, or `rank` is missing.

        Example:
            >>> exported = wh.export_trace("fp8-on", 0, step=11)
            >>> _ = Path("step.json").write_text("".join(exported.chunks))
        """
        from tracewarehouse.export.request import export_request
        from tracewarehouse.export.writer import export_run

        request = export_request(counters, overlays, start, end, step, around, margin, plain)
        return export_run(self.selection, run, rank, request)

    def files(self, run: str, table: str) -> Result:
        """Lists the committed Parquet files of a table of a run.

        Returns:
            A row per file: `key` (relative to the warehouse), `bytes`, `rows`, `ranks`, `sha256`. Rows and
            ranks are those that the version of the run uses.

        Raises:
            UnknownName: The run or table is unknown.

        Example:
            >>> [(row["rows"], row["ranks"]) for row in wh.files("fp8-on", "kernels").rows()]
            [(252, '0-3')]
        """
        from tracewarehouse.runs.rows import committed_files

        return committed_files(self.selection.one_run(run).selected()[0], table)

    def fetch(self, runs: str | Iterable[str] | None = None, *, tables: str | Iterable[str] = ()) -> Fetched:
        """Downloads the files of runs in an object store and checks them; later reads download nothing.

        Args:
            runs: Selectors (None: all selected).
            tables: Names of tables (default: all).

        Returns:
            `files` and `bytes` of the runs, and how many of these were `downloaded`.

        Raises:
            UnknownName: A run or table is unknown.
            WarehouseError: The files need more than TW_MIRROR_BYTES.
            DamagedRunError: A file differs from its checksum.

        Example:
            >>> wh.fetch("fp8-on", tables=["kernels", "steps"])
            Fetched(files=2, bytes=..., downloaded=0, downloaded_bytes=0)
        """
        from tracewarehouse.runs.rows import fetch_files

        selected = self.selected() if runs is None else self.select(runs).selected()
        return fetch_files(self.store, selected, as_list(tables) or ())

    def export_delta(
        self,
        destination: str | PathLike[str] | None = None,
        runs: str | Iterable[str] | None = None,
        *,
        tables: Sequence[str] = (),
    ) -> tuple[CopiedTables, ...]:
        """Registers the stored files as Delta tables, in place or as copies; removed runs are deleted there.

        In place, `data/TABLE/_delta_log` names the files of the newest version of every run, and from then on
        every method that publishes a version updates it. The row of a run in `runs` is written last.

        Args:
            destination: A folder or URL for copies (None: in place, nothing is copied).
            runs: Selectors of runs to copy (None: all).
            tables: Names of tables to copy (default: all); `runs` and those that are there already are, too.

        Returns:
            What was written of each run: `run`, `version`, the tables `written`, and `removed`.

        Raises:
            UnknownName: A run or table is unknown.
            ParamError: There are runs or tables, but no destination.
            WarehouseError: The Delta tables cannot be written.

        Example:
            >>> [each.run for each in wh.export_delta()]
            ['fp8-off', 'fp8-on']
            >>> wh.export_delta("lake", "fp8-on")
        """
        from tracewarehouse.upkeep import export_delta

        return export_delta(self.selection, destination, as_list(runs), tables)

    @contextmanager
    def shell_file(self, on_notice: Callable[[str], object] | None = None) -> Iterator[Path]:
        """Provides a DuckDB file to open read-only: `warehouse.duckdb`, updated, or one over the selection.

        One over a selection is temporary, as are all if the warehouse cannot be written. Damaged runs are
        left out.

        Args:
            on_notice: Receives a line about each damaged run.

        Returns:
            A context manager with the path.

        Raises:
            WarehouseError: The file cannot be written.

        Example:
            >>> with wh.select("fp8-on").shell_file() as path:
            ...     path.suffix
            '.duckdb'
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
        shell_file: bool = False,
    ) -> IngestReport:
        """Ingests trace files and folders. The same content again writes nothing.

        An unreadable file does not stop the others.

        Args:
            paths: Files, folders, patterns with `*`, or URLs of them (`s3://`, `gs://`, `az://`).
            run: Name of the run (default: from the folder or file).
            labels: Labels of the run.
            rank: Rank of a single file (default: from the trace).
            expect_ranks: The ranks wait; the call that brings the last one publishes them, or `seal`.
            jobs: Maximum number of processes (default: one per core).
            replace: Replaces ranks that are stored with other content.
            min_age_s: A truncated file that changed more recently is skipped for now (seconds, default 30).
            strict: Stores nothing unless every file is intact.
            inbox: Ingests what training jobs left in the inbox, or those of `paths` there. `run` names the
                job; its later starts are runs `RUN+1`, `RUN+2`, ….
            temp_dir: Folder for data that does not fit in memory (default: on the disk of the warehouse).
            time_unit: Unit of times in the files (default: that of their format).
            step_pattern: Regular expression for annotations that mark steps; its first group is the number.
            redact: Replaces strings that look like secrets.
            auto_labels: Adds labels from the environment: git commit, batch job, ….
            progress: Receives the progress of each file in bytes.
            engine: `"local"`, `"ray"`, `"spark"`, or one of `tw.engine`: other machines read and commit.
            shell_file: Adds the runs to `warehouse.duckdb`, which is otherwise out of date until `refresh`.

        Returns:
            `files` with the outcome of each (`path`, `state`, `run`, `rank`, `reason`, `hint`), `runs`,
            `notes`.

        Raises:
            ParamError: An argument is invalid, or a label looks like a secret.
            EngineError: The engine cannot be started or cannot reach the warehouse.

        Example:
            >>> wh.ingest("traces", run="nightly", labels={"commit": "3f2a91c"})
            <IngestReport runs: nightly@v1; files: 4 intact>
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
        if not shell_file or store.is_remote:
            return ingest(store, self.catalog, sources, options, progress, engine)
        with _ShellFile(store, self.catalog, progress) as file:
            return file.with_runs_of(ingest(store, self.catalog, sources, options, file.watch, engine))

    def inbox(self) -> Result:
        """Lists what waits in the inbox to be ingested.

        Returns:
            A row per run: `run`, `files` (traces) and `bytes`.

        Example:
            >>> wh.inbox().rows()
            [{'run': 'nightly', 'files': 1, 'bytes': ...}]
        """
        from tracewarehouse.ingest.pipeline import waiting

        return waiting(objects_at(self.root))

    @writing
    def discard(self, runs: str | Iterable[str]) -> list[Path]:
        """Deletes the traces of runs from the inbox without ingesting them.

        Args:
            runs: Names of runs in the inbox.

        Returns:
            The paths of the deleted traces.

        Raises:
            UnknownName: A run has no traces in the inbox.

        Example:
            >>> len(wh.discard("nightly"))
            1
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
        """Publishes the ranks of a run that wait for others, as one version.

        Args:
            expect_ranks: Number of ranks that the run must have (default: that stated at ingest, else the
                world size).
            allow_missing: Publishes although ranks are missing.
            labels: Labels to add.

        Returns:
            `run`, `version`, `written` (False: there was nothing new), `ranks`, `expected_ranks`,
            `conflicts`.

        Raises:
            UnknownName: The run is unknown.
            MissingRanks: Ranks are missing.
            ParamError: `run` names a version, or a label looks like a secret.

        Example:
            >>> wh.seal("fp8-on").written
            False
        """
        from tracewarehouse.ingest.secrets import without_secrets
        from tracewarehouse.upkeep import seal

        return seal(
            self.store,
            unversioned(run, "a seal"),
            expect_ranks=expect_ranks,
            allow_missing=allow_missing,
            labels=without_secrets(self.store, labels or {}),
        )

    @writing
    def label(self, run: str, labels: Mapping[str, str | None]) -> Published:
        """Sets labels of a run, in a new version; a label that is None is removed.

        Returns:
            `newest` (the version), `version` (the same if it was written in this call, else None), and more.

        Raises:
            UnknownName: The run is unknown.
            ParamError: `run` names a version, or a label looks like a secret.

        Example:
            >>> wh.label("fp8-on", {"branch": "main", "commit": None}).newest.number
            3
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
        """Removes the runs that match all conditions; there must be at least one.

        Removed versions are readable until `clean`.

        Args:
            runs: Selectors.
            where: Conditions such as `label.branch=main`.
            older_than: An age such as `90d`.
            keep_results: Keeps recorded results for histories. Removing such a run again by name removes
                them.
            dry_run: Changes nothing.

        Returns:
            `run`, `ranks`, `bytes` and `results` of each removed run.

        Raises:
            UnknownName: A selector matches nothing.
            ParamError: There is no condition, or one is invalid.
            PartlyDone: It failed after some runs were removed.

        Example:
            >>> wh.remove("fp8-off", dry_run=True)
            (Removed(run='fp8-off', ranks=4, bytes=..., results=...),)
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
        """Stores results of analyses for `history`, those that are not stored yet.

        Results are over all ranks, with default parameters, and per step if the analysis supports it.

        Args:
            runs: Selectors (None: all).
            analyses: `NAME` or `NAME@2` (None: all without a row per event, time or interval).
            progress: Receives the progress.
            engine: `"local"` (this process), `"ray"`, `"spark"`, or one of `tw.engine`.

        Returns:
            `written` and `present` (numbers of results), `bytes`, `failed`, `notices`.

        Raises:
            UnknownName: A run or analysis is unknown.
            EngineError: The engine cannot be started.

        Example:
            >>> wh.record("fp8-on", analyses=["temporal_breakdown"]).written
            1
        """
        from tracewarehouse.compare.history.record import record_on, record_runs, recordable
        from tracewarehouse.engines import opened
        from tracewarehouse.upkeep import register_recorded

        contracts = recordable(self.catalog, as_list(analyses))
        selection = self.selection.select(runs)
        if engine == "local":
            recorded = record_runs(selection, contracts, progress)
        else:
            with opened(engine) as running:
                recorded = record_on(running, self.root, selection, contracts)
        register_recorded(selection, contracts, [run.run for run in selection.selected()])
        return replace(recorded, notices=(*damaged_runs(selection.left_out), *recorded.notices))

    @writing
    def acknowledge(self, metric: str, run: str, why: str | None) -> str:
        """Stores why a metric changed at a run, for its history.

        Args:
            why: The reason; None removes it.

        Returns:
            The run, as `RUN@vN`.

        Raises:
            UnknownName: The metric or run is unknown.
            ParamError: The reason is empty or looks like a secret.
            TwError: There is no reason to remove.

        Example:
            >>> wh.acknowledge("step_time", "fp8-on", "larger batch")
            'fp8-on@v2'
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
        """Computes tables that SQL cannot express, as a new version of the run; existing ones are kept.

        Args:
            name: `critical_path`; `wait_attribution` (who caused waits); `graphs` (the operators of kernels
                in graph launches). The last two read all ranks and have no scopes.
            ranks: Rank numbers (None: all).
            steps: Step numbers (default: each complete step; without steps, the entire trace).
            annotations: `NAME#K`, the K-th annotation of that name, from 0.
            entire_trace: The entire trace is the scope.
            capture: Run with the captures of graphs (default: traces of the same folder with `capture` in
                their file name).
            engine: Where critical paths are derived: `"local"`, `"ray"`, `"spark"`, or one of `tw.engine`.

        Returns:
            `run`, `scopes` (those of each rank), `version` (None: nothing new), `notices`.

        Raises:
            UnknownName: The derivation, run, a rank or a scope is unknown.
            ParamError: An argument does not apply to this derivation.
            EngineError: The engine cannot be started.

        Example:
            >>> wh.derive("critical_path", "fp8-on", ranks=0, steps=11).scopes
            {0: ('step 11',)}
        """
        from tracewarehouse.derive.critical_path import ScopeRequest
        from tracewarehouse.derive.derivations import derive_tables

        scopes = ScopeRequest.of(steps, annotations, entire_trace)
        run = unversioned(run, "a derivation")
        return derive_tables(self.selection, name, run, ranks, scopes, capture, engine)

    def refresh(self, on_notice: Callable[[str], object] | None = None) -> Path:
        """Writes `warehouse.duckdb` for DuckDB shells, and the list of runs for readers over `https://`.

        Every other write leaves them out of date. A damaged run is left out.

        Args:
            on_notice: Receives a line about each damaged run.

        Returns:
            The path of the file.

        Raises:
            WarehouseError: The file cannot be written.

        Example:
            >>> wh.refresh().name
            'warehouse.duckdb'
        """
        from tracewarehouse.query.shell_file import refresh

        if not (isinstance(self.root, StoreUrl) and self.root.is_web):
            self.store.list_runs(catalog_row)
        return refresh(self.store, self.catalog, on_notice)

    @writing
    def upgrade(self) -> UpgradeReport:
        """Rebuilds, from `events`, tables of another version or an earlier definition, and recorded results.

        It first converts a warehouse of release 0.2.0.

        Returns:
            `lines` (one per rebuilt table and run, and per run with new results) and `failed` (run to
            reason).

        Raises:
            WarehouseError: A file of release 0.2.0 is missing or damaged.

        Example:
            >>> wh.upgrade()
            UpgradeReport(lines=(), failed={})
        """
        from tracewarehouse.ingest.format2 import convert
        from tracewarehouse.upkeep import upgrade

        converted = convert(objects_at(self.root), self.catalog, __version__)
        report = upgrade(self.selection)
        return replace(report, lines=(*converted, *report.lines))

    def verify(self, *, deep: bool = False) -> list[Problem]:
        """Checks the stored files.

        Args:
            deep: Downloads the files of an object store to compare checksums.

        Returns:
            The problems, each with `run`, `path` and `what`.

        Example:
            >>> wh.verify()
            []
        """
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
        """Repairs damaged runs; it deletes nothing.

        It restores versions from the index and commits, and tables from the stored events, and computes
        recorded results again. Ranks with damaged events are dropped, unless `source` has their traces.

        Args:
            runs: Names (None: the entire warehouse).
            source: Files and folders with traces.
            dry_run: Changes nothing.

        Returns:
            `steps` (what was restored, what is lost) and `problems` (what is left).

        Raises:
            UnknownName: A run is unknown.

        Example:
            >>> wh.repair(dry_run=True)
            RepairReport(steps=(), problems=())
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
        """Combines small files of runs into few large ones with the same rows.

        Recorded results stay valid. `clean` deletes the replaced files.

        Args:
            runs: Names (None: all).
            target_bytes: Size of the new files (bytes, default 128 MB); files of at least half of it stay.
            dry_run: Changes nothing.

        Returns:
            For each run, `run`, `version`, and files and bytes before and after.

        Raises:
            UnknownName: A run is unknown.
            ParamError: `target_bytes` is not positive, or a name is that of a version.
            WarehouseError: A file is damaged.

        Example:
            >>> wh.compact("fp8-on")[0].rewritten
            0
        """
        from tracewarehouse.upkeep import compact_runs

        return compact_runs(self.selection, unversioned_runs(runs, "a compaction"), target_bytes, dry_run)

    @writing
    def expire(self, policy: str | PathLike[str], *, dry_run: bool = False) -> tuple[Expired, ...]:
        """Drops the tables that have expired by a retention policy; `clean` deletes the files.

        Analyses that read a dropped table skip its ranks. Ingesting the same traces again restores the
        tables.

        Args:
            policy: A TOML file.
            dry_run: Changes nothing.

        Returns:
            For each run, `run`, `version`, `tables`, `ranks`, `files` and `bytes` that are no longer used.

        Raises:
            ParamError: The policy is invalid.

        Example:
            >>> _ = Path("policy.toml").write_text('rule = [{ tables = ["flows"], older_than = "7d" }]')
            >>> wh.expire("policy.toml", dry_run=True)
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
        """Deletes old files that no kept version needs. Runs with lost or damaged objects are skipped.

        Args:
            grace_s: Files that are not older are kept (seconds, default 1 day).
            taken_out: Also deletes what repairs took out.
            keep_versions_s: Versions that were replaced more recently are kept (seconds, default 30 days),
                unless a later one has the same rows.

        Returns:
            The numbers of deleted `files`, `bytes` and `versions`, and the runs that were `skipped`.

        Example:
            >>> wh.clean()
            CleanReport(files=0, bytes=0, versions=0, skipped=())
        """
        from tracewarehouse.storage.clean import clean

        list_new_versions(self.store)  # Delta logs name no file that is deleted
        return clean(self.store, grace_s, taken_out, keep_versions_s)

    def secrets(self, runs: str | Iterable[str] | None = None) -> SecretReport:
        """Searches everything stored, or stored of some runs, for what looks like a secret; changes nothing.

        It searches columns, headers, commits, versions, recorded results, `warehouse.duckdb`, paths and the
        inbox.

        Args:
            runs: Names (None: all).

        Returns:
            `found` (each with `file`, `where`, `rule` and the number of `values`), `files` (the number of
            files read) and `failed`.

        Raises:
            UnknownName: A run is unknown.

        Example:
            >>> wh.secrets("fp8-on").found
            []
        """
        from tracewarehouse.formats.redact.rules import POLICY_FILE, policy_of
        from tracewarehouse.ingest.secrets import scan_warehouse

        names = unversioned_runs(runs, "a search")
        return scan_warehouse(self.store, names, policy_of(self.store.folder_with(POLICY_FILE)))

    @writing
    def remove_secrets(
        self, runs: str | Iterable[str] | None = None, *, redact: bool = True, purge: bool = False
    ) -> RemovalReport:
        """Publishes clean versions of the runs in which `secrets` finds some.

        Tables are built again from events with the secrets replaced, and affected results are recorded again.
        Traces in the inbox stay as they are.

        Args:
            runs: Names (None: all).
            redact: Publishes clean versions; False, with `purge`, only deletes.
            purge: Deletes the old versions; no other process may write to the warehouse.

        Returns:
            `lines` (what was done) and `left` (what still has secrets, and what to do).

        Raises:
            UnknownName: A run is unknown.
            TwError: A run with secrets has pending ranks.

        Example:
            >>> wh.remove_secrets("fp8-on", purge=True)
            RemovalReport(lines=(), left=())
        """
        from tracewarehouse.upkeep import remove_secrets

        return remove_secrets(self.selection, unversioned_runs(runs, "a search"), redact=redact, purge=purge)

    def _list_new_versions(self) -> None:
        """Adds what this warehouse published to the lists of runs, if it published anything."""
        if self._opened is not None:
            list_new_versions(self._opened.store)


class _ShellFile:
    """`warehouse.duckdb`, which a thread opens while an ingest reads a large trace: a core is idle then."""

    def __init__(self, store: Store, catalog: Catalog, progress: Watch | None) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._store, self._catalog, self._progress = store, catalog, progress
        self._threads = ThreadPoolExecutor(1)
        self._opened: Future[NextFile] | None = None

    def watch(self, step: Progress) -> None:
        """Reports a step of the ingest, and opens the file once a large trace is read."""
        if self._progress is not None:
            self._progress(step)
        if step.stage == "read" and step.total_bytes >= _LONG_READ_BYTES and self._opened is None:
            self._opened = self._threads.submit(self._open)

    def _open(self) -> NextFile:
        from tracewarehouse.query.shell_file import NextFile

        return NextFile(self._store, self._catalog)

    def with_runs_of(self, report: IngestReport) -> IngestReport:
        """Adds what an ingest published; the report with notes on what could not be added."""
        if not any(run.written for run in report.runs):
            return report
        from tracewarehouse.query.shell_file import update

        notes: list[str] = []
        try:
            if not self._store.is_listed_in_parts:  # the parts of the runs were written
                self._store.list_runs(catalog_row)
            opened = self._opened.result() if self._opened else None
            update(self._store, self._catalog, notes.append, opened)
        except (TwError, OSError) as error:  # the runs are already published
            rebuild = hints.call("refresh")
            notes.append(
                hints.fill("warehouse.duckdb is out of date: {}; rebuild it with {}", error, rebuild)
            )
        return replace(report, notes=(*report.notes, *notes))

    def __enter__(self) -> _ShellFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()
        if self._opened and not self._opened.exception():
            self._opened.result().close()
