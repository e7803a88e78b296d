"""`Warehouse`: queries, analyses, comparisons, reports and exports of the runs in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from tracewarehouse.analyses import Analyses
from tracewarehouse.errors import TwError
from tracewarehouse.result import Result
from tracewarehouse.storage.parquet_file import Level
from tracewarehouse.warehouse_files import WarehouseFiles
from tracewarehouse.warehouse_queries import WarehouseQueries

if TYPE_CHECKING:
    from tracewarehouse.compare.diff import Diff
    from tracewarehouse.compare.history import History, PartsEvent
    from tracewarehouse.present.report import Page
    from tracewarehouse.runs.rows import RunInfo


T = TypeVar("T")


class Warehouse(WarehouseQueries, Analyses[Result], WarehouseFiles):
    """The runs in a folder, or those of them that `select` selected.

    Every analysis is a method: `wh.temporal_breakdown()`. The first `ingest` creates the folder; until then,
    methods that read raise WarehouseError. Reading never writes to the folder.
    """

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
        from tracewarehouse.compare.diff import READS, Diff
        from tracewarehouse.compare.history import sides_with_history

        self._pool.will_read(map(self.catalog.get, READS))
        if base != "@baseline" and spread == "own":
            sides = self.select(base), self.select(head)
            return Diff(*sides, self.catalog, by_rank, all_steps, measure, alpha, min_effect)
        before, after, earlier = sides_with_history(self, base, head, spread, same)
        return Diff(before, after, self.catalog, by_rank, all_steps, measure, alpha, min_effect, earlier)

    def check(self, runs: str | Iterable[str] | None = None, *, passed: bool = False) -> Result:
        """Findings of runs, by default of all selected ones: a row per finding, most severe first.

        `runs` are selectors: `wh.check("fp8-on")`. The columns are those of every rule (`tw describe
        input_bound`) and the rule's name; `passed` adds passing checks, with severity none. `saving_ns` is an
        upper bound on the time saved in the analyzed interval. Ranks whose trace lacks data that a rule needs
        are in `Result.abstained`.
        """
        from tracewarehouse.findings import rules, run_rules

        part = self if runs is None else self.select(runs)
        part._pool.will_read(rules(self.catalog))
        ranks = [(each.run, rank) for each in part.selected() for rank in each.ranks]
        return run_rules(self.catalog, part.run_or_skip, ranks, passed=passed)

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
        from tracewarehouse.compare.history import ValueForm, build_history, label_keys
        from tracewarehouse.compare.metric import WorkUnit, parse_statistic

        statistic, parsed = parse_statistic(metric, self.catalog)
        selected = self._recorded(runs, where)
        keys = label_keys([by] if isinstance(by, str) else by, selected)
        form = ValueForm(statistic, None if normalize is None else WorkUnit.parse(normalize))
        return build_history(self.store, self.catalog, parsed, selected, keys, min_effect, form)

    def moved_parts(
        self, runs: str | Iterable[str] | None = None, *, where: str | Iterable[str] = ()
    ) -> tuple[PartsEvent, ...]:
        """Which kernels, operators and idle causes changed between which recorded runs: all at once.

        `runs` and `where` select runs as in `history`. At most 5 % of the changes are there by chance. Raises
        UnknownName, ParamError, and TwError if no results of `kernel_summary`, `op_summary` or
        `idle_breakdown` are recorded.
        """
        from tracewarehouse.compare.history import moved_parts

        return moved_parts(self.store, self.catalog, self._recorded(runs, where))

    def runs(self) -> Result:
        """A row per run, with the columns of the table `runs`, including pending runs.

        With `verify`, every file of the runs is read, and the state of a run with a damaged one is `damaged`.
        """
        from tracewarehouse.duck.arrow import table_of
        from tracewarehouse.runs.rows import (
            damaged_files,
            damaged_row,
            damaged_runs,
            nothing_stored,
            pending_row,
            provenance_of,
        )

        contract = self.catalog.get("runs", kind="table")
        rows, faults = self._run_rows()
        selectors = tuple(f"{row['run_id']}@v{row['version']}" for row in rows)
        lines = nothing_stored(rows)
        pending: list[dict[str, Any]] = []
        if self._selected is None:
            published = {row["run_id"] for row in rows}
            waiting = self.store.pending_runs()
            pending = [pending_row(waits) for run, waits in waiting.items() if run not in published]
            rows += pending
        rows += [damaged_row(each) for each in self.left_out]
        text = "{run_id} is pending: {ranks_present} of {ranks_expected} ranks ingested"
        found = (
            *damaged_runs(self.left_out),
            *damaged_files(faults),
            *(text.format_map(row) for row in pending),
        )
        provenance = replace(provenance_of(self.catalog, self._selected or (), contract), runs=selectors)
        return Result(table_of(contract, rows), provenance, contract, notices=found or lines)

    def _run_rows(self) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """The rows of the selected runs, and run → problem of the damaged ones if files are verified."""
        from tracewarehouse.runs.rows import listed_rows, run_row

        if self._selected is None and self._level is not Level.FULL:
            return listed_rows(self.store), {}
        selected = self.selected()
        faults = self._verified_files(selected)
        damaged = {run: {"state": "damaged"} for run in faults}
        return [run_row(each.version) | damaged.get(each.run, {}) for each in selected], faults

    def info(self, run: str) -> RunInfo:
        """A run with its ranks, tables and versions; raises UnknownName.

        With `verify`, every file of the run is read; raises DamagedRunError for a damaged one.
        """
        from tracewarehouse.duck.arrow import table_of
        from tracewarehouse.runs.readable import damaged_run, untested
        from tracewarehouse.runs.rows import (
            RunInfo,
            built_rows,
            provenance_of,
            redactions,
            run_row,
            table_sizes,
        )

        part = self._one(run)
        each = part.selected()[0]
        for run_id, what in self._verified_files([each]).items():
            raise damaged_run(run_id, what)
        contract = self.catalog.get("ranks", kind="table")
        rows = built_rows(self.store, contract, [each])
        ranks = Result(table_of(contract, rows), provenance_of(self.catalog, (each,), contract), contract)
        versions = self.store.versions(each.run)
        return RunInfo(
            run_row(each.version),
            ranks,
            table_sizes(each),
            versions,
            redactions(each),
            untested(each.sources),
        )

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
        from tracewarehouse.present.report import one_run

        report_progress = notify or (lambda _: None)
        if head is not None:
            return self._report_of_two(run, head, force, report_progress)
        part = self._one(run)
        report_progress("running checks")
        return one_run(part, part.info(part.selected()[0].run), part.check(), report_progress)

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
        from tracewarehouse.compare.metric import measure, parse_metric
        from tracewarehouse.present.report import many_runs

        texts = [metrics] if isinstance(metrics, str) else metrics
        wanted = [parse_metric(text, self.catalog) for text in texts]
        part = self if runs is None else self.select(runs)
        report_progress = notify or (lambda _: None)
        report_progress("running checks")
        findings = part.check()
        report_progress("measuring")
        measured = [measured for metric in wanted for measured in measure(metric, part)]
        return many_runs(part, findings, measured, report_progress)

    def _report_of_two(self, base: str, head: str, force: bool, notify: Callable[[str], None]) -> Page:
        from tracewarehouse.compare.metric import measure, parse_metric
        from tracewarehouse.present.report import two_runs

        notify("comparing")
        compared = self.diff(base, head)
        change = compared.changes(force=force)
        times = measure(parse_metric("step_time", self.catalog), compared.base, compared.head)
        one_each = [self._one(side[0]) for side in (change.base, change.head)]
        return two_runs(change, times, self._recorded_steps(), one_each, notify)

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
        from tracewarehouse.derive.critical_path import ScopeRequest, path_sources
        from tracewarehouse.derive.whatif import parse, whatif

        scales = [parse(text) for text in ([scale] if isinstance(scale, str) else scale)]
        part = self._one(run) if ranks is None else self._one(run).select(ranks=ranks)
        readable = self._readable(path_sources(self.catalog), part.selected())
        wanted = ScopeRequest.of(steps, annotations, entire_trace)
        found = whatif(self.store, self.catalog, readable.selected[0], wanted, scales, by)
        return replace(found, notices=(*readable.notices, *found.notices))
