"""`Warehouse`: queries, analyses, comparisons, reports and exports of the runs in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tracewarehouse import hints
from tracewarehouse.analyses import Analyses
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.errors import ParamError, QueryError, TwError, UnknownName, WarehouseError
from tracewarehouse.exact_text import rank_list
from tracewarehouse.result import Result
from tracewarehouse.storage.file_check import Level
from tracewarehouse.warehouse_writes import WarehouseWrites

if TYPE_CHECKING:
    import polars
    import pyarrow as pa

    from tracewarehouse.diff import Diff
    from tracewarehouse.duck.limited import Limits
    from tracewarehouse.export import Exported, ExportRequest
    from tracewarehouse.history import History, PartsEvent
    from tracewarehouse.query.dependencies import Dependencies
    from tracewarehouse.report import Page
    from tracewarehouse.runs.rows import RunInfo
    from tracewarehouse.runs.table_versions import ReadableRuns


T = TypeVar("T")


class Warehouse(Analyses[Result], WarehouseWrites):
    """The runs in a folder, or those of them that `select` selected.

    Every analysis is a method: `wh.temporal_breakdown()`. The first `ingest` creates the folder; until then,
    methods that read raise WarehouseError. Reading never writes to the folder.
    """

    def run(self, name: str, version: int | None = None, **params: object) -> Result:
        """The rows of an analysis (`name` or `name@2`; newest version by default).

        Ranks whose trace lacks data that it needs are in `Result.abstained`. Runs that were stored without a
        column that it reads are excluded, with a notice. Raises UnknownName, ParamError, and
        SchemaVersionError if no run remains.
        """
        from tracewarehouse.contracts.params import bind
        from tracewarehouse.query.dependencies import Dependencies
        from tracewarehouse.runs.capabilities import with_capabilities
        from tracewarehouse.runs.notices import nothing_stored, notices, partly_selected, provenance_of
        from tracewarehouse.runs.table_versions import readable_runs

        contract = self.catalog.get(name, version, kind="analysis")
        bound = bind(contract.params, params, str(contract.ref))
        dependencies = Dependencies.of(self.catalog, [contract])
        selected = self.selected()

        readable = readable_runs(self.catalog, dependencies.contracts, selected)
        capable = with_capabilities(contract, readable.selected)

        def attempt(level: Level) -> tuple[ReadableRuns, pa.Table]:
            runs = replace(readable, selected=capable.selected)
            intact = self._intact(dependencies.contracts, runs, level)
            return intact, self._with(intact.selected)._execute(contract, bound, dependencies)

        intact, table = self._without_damage(attempt)
        damaged = {each.run for each in capable.selected} - {each.run for each in intact.selected}
        answered = [each for each in readable.selected if each.run not in damaged]
        provenance = provenance_of(self.catalog, answered, contract, bound, dependencies.contracts)
        lines = (
            *intact.notices,
            *nothing_stored(selected),
            *partly_selected(selected, contract),
            *notices(intact.selected, contract),
        )
        return Result(table, provenance, contract, capable.abstained, lines)

    def _without_damage(self, attempt: Callable[[Level], T]) -> T:
        """The result of an attempt; if it fails on bytes that cannot be decoded, again without those runs."""
        from tracewarehouse.duck.engine import UNREADABLE

        try:
            return attempt(self._level)
        except QueryError as error:
            if self._level is Level.FULL or not isinstance(error.__cause__, UNREADABLE):
                raise
            failed = error
        try:
            return attempt(Level.FULL)
        except QueryError:
            raise failed from failed.__cause__

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
        spread: str = "own",
        same: str | Iterable[str] = (),
    ) -> Diff:
        """Compares two runs, or sets of runs (selectors): `wh.diff("a", "b").name_summary()`.

        Values are per rank, and per complete step if the analysis has steps, unless `all_steps`; `by_rank`
        keeps ranks separate. `measure` classifies rows as increased or decreased; `alpha` and `min_effect`
        apply to the verdicts. `.changes()` compares the runs as a whole.

        With `spread="history"`, the noise between runs is that of recorded runs before them, on the same GPUs
        and with the same labels `same` (`label.branch`), since the last change point. `"@baseline"` as base
        is these runs themselves: its verdict is on all of them, the breakdown on the newest that are stored.
        Raises UnknownName, ParamError; TwError if there are too few such runs.
        """
        from tracewarehouse.diff import Diff
        from tracewarehouse.history import sides_with_history

        if base != "@baseline" and spread == "own":
            sides = self.select(base), self.select(head)
            return Diff(*sides, self.catalog, by_rank, all_steps, measure, alpha, min_effect)
        before, after, earlier = sides_with_history(self, base, head, spread, same)
        return Diff(before, after, self.catalog, by_rank, all_steps, measure, alpha, min_effect, earlier)

    def check(self, *, passed: bool = False) -> Result:
        """Findings of the selected runs, most severe first: a row per finding, from the rules in SQL.

        The columns are those of every rule (`tw describe input_bound`) and the rule's name; `passed` adds
        passing checks, with severity none. `saving_ns` is an upper bound on the time saved in the analyzed
        interval. Ranks whose trace lacks data that a rule needs are in `Result.abstained`.
        """
        from tracewarehouse.findings import run_rules

        ranks = [(each.run, rank) for each in self.selected() for rank in each.ranks]
        return run_rules(self.catalog, self.run, ranks, passed=passed)

    def history(
        self,
        metric: str,
        runs: str | Iterable[str] | None = None,
        *,
        where: str | Iterable[str] = (),
        by: str | Iterable[str] = (),
        min_effect: float = 0.01,
    ) -> History:
        """A metric over recorded runs in time order, with its changes: `wh.history("step_time").polars()`.

        `runs` are selectors, `where` conditions like `label.branch=main`; `by` labels (`label.gpu`) give one
        series per value. Removed runs with recorded results are included. Changes smaller than `min_effect`
        are not reported. It reads what `record` has stored, with a notice about runs without results. Raises
        UnknownName, ParamError, and TwError if no results are recorded.
        """
        from tracewarehouse.history import build_history, label_keys
        from tracewarehouse.metric import parse_metric

        parsed = parse_metric(metric, self.catalog)
        selected = self._recorded(runs, where)
        keys = label_keys([by] if isinstance(by, str) else by, selected)
        return build_history(self.store, self.catalog, parsed, selected, keys, min_effect)

    def moved_parts(
        self, runs: str | Iterable[str] | None = None, *, where: str | Iterable[str] = ()
    ) -> tuple[PartsEvent, ...]:
        """Which kernels changed between which recorded runs: all kernels at once, in time order.

        `runs` and `where` select runs as in `history`. At most 5 % of the changes are there by chance. Raises
        UnknownName, ParamError, and TwError if no results of `kernel_summary` are recorded.
        """
        from tracewarehouse.history import moved_parts

        return moved_parts(self.store, self.catalog, self._recorded(runs, where))

    def query(
        self,
        sql: str,
        *,
        max_rows: int | None = 100_000,
        timeout_s: float | None = 30.0,
        memory_bytes: int | None = 1_000_000_000,
    ) -> Result:
        """The rows of one SELECT on tables and views; read-only, and limited to files of the selected runs.

        A query that returns more than `max_rows` rows, runs for longer than `timeout_s` or needs more than
        `memory_bytes` fails and returns nothing; None switches a limit off. `scan` has no limits. Raises
        QueryError with DuckDB's message, QueryLimitError beyond a limit.
        """
        from tracewarehouse.duck.limited import Limits

        return self._query(sql, Limits(max_rows, timeout_s, memory_bytes))

    def query_all(self, sql: str) -> Result:
        """Like `query`, without limits: for SQL that is not typed by a user."""
        from tracewarehouse.duck.limited import NO_LIMITS

        return self._query(sql, NO_LIMITS)

    def _query(self, sql: str, limits: Limits) -> Result:
        from tracewarehouse.duck.engine import MISSING_NAME
        from tracewarehouse.query.dependencies import mentioned, queryable

        try:
            return self._query_over(sql, mentioned(self.catalog, sql), limits)
        except QueryError as error:
            if not isinstance(error.__cause__, MISSING_NAME):
                raise
            name = error.message.partition("Table with name ")[2].partition(" ")[0]
            if any(ref.name == name for ref in self.catalog.refs("analysis")):
                shown = hints.Hint(f"wh.{name}()", f"tw show {name}; tw shell has it as a view")
                error.with_hint(hints.fill("it is an analysis: {}", shown))
                raise
            return self._query_over(sql, queryable(self.catalog), limits)  # DuckDB can suggest other names

    def _query_over(self, sql: str, contracts: Sequence[Contract], limits: Limits) -> Result:
        from tracewarehouse.contracts.sql_tokens import names_read
        from tracewarehouse.duck.limited import query
        from tracewarehouse.query.connections import user_connection
        from tracewarehouse.query.sandbox import check_reads_only
        from tracewarehouse.runs.notices import nothing_stored, notices, provenance_of

        selected = self.selected()

        def attempt(level: Level) -> tuple[ReadableRuns, pa.Table]:
            runs = self._queryable(contracts, selected, names_read(sql), level)
            with user_connection(self.root, self.catalog, runs.selected, contracts, limits) as con:
                check_reads_only(con, sql)
                return runs, query(con, sql, limits)

        runs, table = self._without_damage(attempt)
        lines = (*runs.notices, *nothing_stored(selected), *notices(runs.selected))
        return Result(table, provenance_of(self.catalog, runs.selected, sql=sql), notices=lines)

    def scan(self, table: str) -> polars.LazyFrame:
        """A stored table as a Polars LazyFrame over the files of the selected ranks.

        JSON columns are strings; a column that a run was stored without is null. Raises UnknownName, and
        SchemaVersionError if no run has the table in a version that this release reads.
        """
        from tracewarehouse.query.relations import scan

        contract = self.catalog.get(table)
        runs = self._queryable([contract], self.selected(), ())
        return scan(self.root, contract, self.catalog.compatible(contract), runs.selected)

    def runs(self) -> Result:
        """A row per run, with the columns of the table `runs`, including pending runs."""
        from tracewarehouse.duck.arrow import table_of
        from tracewarehouse.runs.notices import damaged_runs, nothing_stored, provenance_of
        from tracewarehouse.runs.rows import damaged_row, pending_row, run_row

        selected = self.selected()
        contract = self.catalog.get("runs", kind="table")
        rows = [run_row(each.version) for each in selected]
        pending: list[dict[str, Any]] = []
        if self._selected is None:
            published = {each.run for each in selected}
            waiting = self.store.pending_runs()
            pending = [pending_row(waits) for run, waits in waiting.items() if run not in published]
            rows += pending
        rows += [damaged_row(each) for each in self.left_out]
        text = "{run_id} is pending: {ranks_present} of {ranks_expected} ranks ingested"
        lines = (*damaged_runs(self.left_out), *(text.format_map(row) for row in pending))
        lines = lines or nothing_stored(selected)
        provenance = provenance_of(self.catalog, selected, contract)
        return Result(table_of(contract, rows), provenance, contract, notices=lines)

    def info(self, run: str) -> RunInfo:
        """A run with its ranks, tables and versions; raises UnknownName."""
        from tracewarehouse.duck.arrow import table_of
        from tracewarehouse.runs.notices import provenance_of
        from tracewarehouse.runs.rows import RunInfo, built_rows, redactions, run_row, table_sizes

        part = self._one(run)
        each = part.selected()[0]
        contract = self.catalog.get("ranks", kind="table")
        rows = built_rows(self.root, contract, [each])
        ranks = Result(table_of(contract, rows), provenance_of(self.catalog, (each,), contract), contract)
        versions = self.store.versions(each.run)
        return RunInfo(run_row(each.version), ranks, table_sizes(each), versions, redactions(each))

    def export_trace(
        self,
        run: str,
        rank: int | Iterable[int] | None = None,
        *,
        counters: Iterable[str] | None = None,
        overlays: Iterable[str] | None = None,
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
        from tracewarehouse.export import contracts_read, export, export_request, worst_occurrence
        from tracewarehouse.query.dependencies import dependencies

        request = export_request(counters, overlays, start, end, step, around, margin, plain)
        all_ranks = self._one(run)
        part = all_ranks if rank is None else all_ranks.select(ranks=rank)
        findings = self._findings_to_draw(all_ranks, part, request)
        if rank is None and around is not None:
            part = all_ranks.select(ranks=worst_occurrence(around, findings, run)[0])
        (selected,) = part.selected()
        if rank is None and len(selected.ranks) != 1:
            hint = hints.fill("select one with {}: {}", hints.option("rank", "N"), rank_list(selected.ranks))
            raise ParamError(f"{selected.run} has several ranks", hint)
        read = dependencies(self.catalog, contracts_read(self.catalog, request))
        self.store.headers(rank.main for rank in selected.by_rank)  # raises if a manifest is damaged
        (run_read,) = self._queryable(read, all_ranks.selected(), (), Level.FULL).selected
        return export(self.root, self.catalog, run_read, selected.ranks, request, findings)

    def _findings_to_draw(
        self, all_ranks: Warehouse, part: Warehouse, request: ExportRequest
    ) -> list[dict[str, Any]]:
        """The findings of the exported ranks; for `around`, from rules that ran on the entire run."""
        from tracewarehouse.findings import rules

        ranks = part.selected()[0].ranks
        if request.around is not None:
            known = [rule.name for rule in rules(self.catalog)]
            if request.around not in known:
                raise UnknownName("finding", request.around, known)
            return [row for row in all_ranks.check().rows() if row["rank"] in ranks]
        return part.check().rows() if request.draws_findings(len(ranks)) else []

    def report(
        self,
        run: str,
        head: str | None = None,
        *,
        force: bool = False,
        notify: Callable[[str], None] | None = None,
    ) -> Page:
        """A report on a run: where GPU time went, what limits it, what is unknown; `.html()` is the file.

        With `head`, the report compares `run` with it, with `force` even if they are not comparable. Nothing
        is stored; `notify` receives progress messages. Raises UnknownName, NotComparable.
        """
        from tracewarehouse.report import one_run

        report_progress = notify or (lambda _: None)
        if head is not None:
            return self._report_of_two(run, head, force, report_progress)
        part = self._one(run)
        report_progress("running checks")
        return one_run(part, part.info(part.selected()[0].run), part.check(), report_progress)

    def _report_of_two(self, base: str, head: str, force: bool, notify: Callable[[str], None]) -> Page:
        from tracewarehouse.metric import measure, parse_metric
        from tracewarehouse.report import two_runs

        notify("comparing")
        compared = self.diff(base, head)
        change = compared.changes(force=force)
        times = measure(parse_metric("step_time", self.catalog), compared.base, compared.head)
        return two_runs(change, times, self._recorded_steps(), notify)

    def _recorded_steps(self) -> History | None:
        """The history of the step time; None if no results are recorded."""
        try:
            return self.history("step_time")
        except TwError:
            return None

    def whatif(
        self,
        run: str,
        scale: str | Iterable[str],
        *,
        ranks: int | Iterable[int] | None = None,
        steps: int | Iterable[int] = (),
        annotations: str | Iterable[str] = (),
        entire_trace: bool = False,
        by: str = "category",
    ) -> Result:
        """Estimates the duration of scopes with work scaled as `kernels[kind=communication]=0.5`.

        Scopes are those of `derive`. A row per rank, scope and category of the critical path (with `by="op"`
        also operator and name): base_ns measured, new_ns estimated, saved_ns; the category `length` is the
        total. Collectives and their waits are those that this rank recorded. Nothing is stored. Raises
        ParamError, UnknownName.
        """
        from tracewarehouse.derive.build import sources
        from tracewarehouse.derive.scale import parse
        from tracewarehouse.derive.scopes import ScopeRequest
        from tracewarehouse.derive.whatif import whatif

        scales = [parse(text) for text in ([scale] if isinstance(scale, str) else scale)]
        part = self._one(run) if ranks is None else self._one(run).select(ranks=ranks)
        readable = self._readable(sources(self.catalog), part.selected())
        wanted = ScopeRequest.of(steps, annotations, entire_trace)
        found = whatif(self.root, self.catalog, readable.selected[0], wanted, scales, by)
        return replace(found, notices=(*readable.notices, *found.notices))

    @contextmanager
    def shell_file(self) -> Iterator[Path]:
        """A DuckDB file to open read-only: the updated `warehouse.duckdb`, or one over the selection.

        The latter is a temporary file, as is the former if the warehouse is not writable.
        """
        from tracewarehouse.query.shell_file import NAME, intact, is_current, write
        from tracewarehouse.temp_folders import temporary_folder

        level = Level.FULL if self._level is Level.FULL else Level.SIZE
        selected = intact(self.store, self.catalog, self.selected(), level)
        if self._selected is None:
            path = self.root / NAME
            if is_current(path, self.root, self.catalog, selected) or self._refreshed():
                yield path
                return
        with temporary_folder() as folder:
            path = folder / NAME
            write(path, self.store, self.catalog, selected)
            yield path

    def _refreshed(self) -> bool:
        try:
            self.refresh()
        except (WarehouseError, OSError):
            return False
        return True

    def _execute(
        self, contract: Contract, bound: Mapping[str, object], dependencies: Dependencies
    ) -> pa.Table:
        return self._pool.execute(self.selected(), contract, bound, dependencies)
