"""A warehouse as one object: a directory, no server, no lock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tracewarehouse import hints
from tracewarehouse.analyses import Analyses
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.errors import (
    ParamError,
    QueryError,
    SchemaVersionError,
    TwError,
    UnknownName,
    WarehouseError,
)
from tracewarehouse.exact_text import rank_list
from tracewarehouse.result import Provenance, Result
from tracewarehouse.runs.selection import SelectedRun, in_order, narrow, only_ranks, select_runs
from tracewarehouse.storage import CleanReport, Problem, Published, Store, check_labels, parse_reference
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    import polars
    import pyarrow as pa

    from tracewarehouse.derive import Derived
    from tracewarehouse.diff import Diff
    from tracewarehouse.duck.engine import Connection
    from tracewarehouse.export import Exported, ExportRequest
    from tracewarehouse.history import History, RecordProgress, RecordReport
    from tracewarehouse.ingest.outcome import IngestReport, UpgradeReport, Watch
    from tracewarehouse.query.connections import Sessions
    from tracewarehouse.report import Page
    from tracewarehouse.runs.removal import Removed
    from tracewarehouse.runs.rows import RunInfo


class Warehouse(Analyses[Result]):
    """The runs in a folder, or those that `select` chose of them.

    Every analysis is a method: `wh.temporal_breakdown()`. A folder that is not there yet is made by the
    first `ingest`; whatever reads raises WarehouseError until then.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        catalog: Catalog | None = None,
        selected: Sequence[SelectedRun] | None = None,
    ) -> None:
        self.root = Path(path).absolute()
        self.catalog = catalog or Catalog.load()
        self._selected = None if selected is None else tuple(selected)

    def __repr__(self) -> str:
        if self._selected is None:
            return f"Warehouse({str(self.root)!r})"
        return f"Warehouse({str(self.root)!r}, runs={[each.selector for each in self._selected]})"

    @cached_property
    def store(self) -> Store:
        """The files below; raises WarehouseError where there is no warehouse."""
        return Store.open(self.root, tool=__version__)

    def selected(self) -> tuple[SelectedRun, ...]:
        """What is looked at, in order of time: the selection, else every run as it is now."""
        return select_runs(self.store) if self._selected is None else self._selected

    # Reading

    def select(
        self, runs: str | Iterable[str] | None = None, ranks: int | Iterable[int] | None = None
    ) -> Warehouse:
        """The same warehouse narrowed to runs (selectors) and ranks, each run in the version it has now.

        Raises UnknownName for a selector or rank without a match.
        """
        selected = (
            self.selected() if runs is None else self._matching([runs] if isinstance(runs, str) else runs)
        )
        if ranks is not None:
            selected = only_ranks(selected, [ranks] if isinstance(ranks, int) else ranks)
        return self._with(selected)

    def run(self, name: str, version: int | None = None, **params: object) -> Result:
        """The rows of an analysis (`name` or `name@2`; newest version by default).

        Ranks whose trace lacks what it needs are in `Result.abstained`. A table that is stored in another
        version only is rebuilt first, with a notice. Raises UnknownName, ParamError.
        """
        from tracewarehouse.contracts.params import bind
        from tracewarehouse.query.dependencies import below
        from tracewarehouse.runs.capabilities import able
        from tracewarehouse.runs.notices import nothing_stored, notices

        contract = self.catalog.get(name, version, kind="analysis")
        values = bind(contract.params, params, str(contract.ref))
        part, rebuilt = self._with_tables(below(self.catalog, [contract]))
        found = able(contract, part.selected())
        table = part._with(found.selected)._answer(contract, values)
        provenance = part._provenance(contract, values)
        told = (*rebuilt, *nothing_stored(part.selected()), *notices(found.selected, contract))
        return Result(table, provenance, contract, found.abstained, told)

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
    ) -> Diff:
        """What differs between two runs, or sets of runs (selectors): `wh.diff("a", "b").name_summary()`.

        Values are per rank, and per complete step where the analysis tells steps and not `all_steps`; with
        `by_rank` ranks stay apart. `measure` decides about increased and decreased; `alpha` and `min_effect`
        are those of its verdicts. `.changes()` compares as a whole. Raises UnknownName.
        """
        from tracewarehouse.diff import Diff

        sides = self.select(base), self.select(head)
        return Diff(*sides, self.catalog, by_rank, all_steps, measure, alpha, min_effect)

    def check(self, *, passed: bool = False) -> Result:
        """What looks wrong in the chosen runs, gravest first: a row per finding, from the rules in SQL.

        Its columns are those of every rule (`tw describe input_bound`), with the rule's name; with `passed`
        also what was judged and found well, as severity none. `saving_ns` is what could be saved at most of
        the time that was judged. Ranks whose trace lacks what a rule needs are in `Result.abstained`.
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

        `runs` are selectors, `where` conditions like `label.branch=main`; `by` labels (`label.gpu`) give a
        line each. Removed runs whose results were kept are among them. Changes smaller than `min_effect` are
        not told. It reads what `record` has written, and says which runs lack it. Raises UnknownName,
        ParamError, TwError where nothing is recorded.
        """
        from tracewarehouse.history import build_history, label_keys
        from tracewarehouse.metric import parse_metric

        parsed = parse_metric(metric, self.catalog)
        selected = self._recorded(runs, where)
        keys = label_keys([by] if isinstance(by, str) else by, selected)
        return build_history(self.store, self.catalog, parsed, selected, keys, min_effect)

    def _recorded(
        self, runs: str | Iterable[str] | None, where: str | Iterable[str] = ()
    ) -> tuple[SelectedRun, ...]:
        """The runs that are meant, those among them of which only results are left."""
        from tracewarehouse.history import matching_runs, runs_with_results

        selected = (
            runs_with_results(self.store, self.selected()) if self._selected is None else self._selected
        )
        named = [runs] if isinstance(runs, str) else runs
        return matching_runs(selected, named, [where] if isinstance(where, str) else where)

    def query(self, sql: str) -> Result:
        """The rows of one SELECT over the tables and views; it can neither write nor read other files.

        Raises QueryError, in DuckDB's words.
        """
        from tracewarehouse.duck.engine import NotThere
        from tracewarehouse.query.dependencies import named, readable

        try:
            return self._query(sql, named(self.catalog, sql))
        except QueryError as error:
            if not isinstance(error.__cause__, NotThere):
                raise
            name = error.message.partition("Table with name ")[2].partition(" ")[0]
            if any(ref.name == name for ref in self.catalog.refs("analysis")):
                error.with_hint(
                    hints.fill(
                        "it is an analysis: {}",
                        hints.Hint(f"wh.{name}()", f"tw show {name}; tw shell has it as a view"),
                    )
                )
                raise
            return self._query(sql, readable(self.catalog))  # now DuckDB can say what else might be meant

    def _query(self, sql: str, wanted: Sequence[Contract]) -> Result:
        from tracewarehouse.duck.engine import query
        from tracewarehouse.query.connections import session
        from tracewarehouse.query.sandbox import check_reads_only, lock
        from tracewarehouse.runs.notices import nothing_stored, notices

        part, rebuilt = self._with_tables(wanted)
        with session(self.root, self.catalog, part.selected(), wanted) as con:
            check_reads_only(con, sql)
            lock(con, self.root / "data")
            table = query(con, sql)
        selected = part.selected()
        told = (*rebuilt, *nothing_stored(selected), *notices(selected))
        return Result(table, part._provenance(None, {}, sql), notices=told)

    def scan(self, table: str) -> polars.LazyFrame:
        """A stored table as a Polars LazyFrame over just the files of what was chosen.

        JSON columns are strings. Raises UnknownName.
        """
        from tracewarehouse.query.relations import scan

        contract = self.catalog.get(table)
        part, _ = self._with_tables([contract])
        return scan(self.root, contract, part.selected())

    def runs(self) -> Result:
        """A row per run, with the columns of the table `runs`; runs that wait for ranks, too."""
        from tracewarehouse.duck.arrow import table_of
        from tracewarehouse.runs.notices import nothing_stored
        from tracewarehouse.runs.rows import pending_row, run_row

        selected = self.selected()
        contract = self.catalog.get("runs", kind="table")
        rows = [run_row(each.version) for each in selected]
        pending: list[dict[str, Any]] = []
        if self._selected is None:
            published = {each.run for each in selected}
            waiting = self.store.waiting_runs()
            pending = [pending_row(waits) for run, waits in waiting.items() if run not in published]
            rows += pending
        told = tuple("{run_id}: pending {ranks_present}/{ranks_expected}".format_map(row) for row in pending)
        told = told or nothing_stored(selected)
        return Result(table_of(contract, rows), self._provenance(contract, {}), contract, notices=told)

    def info(self, run: str) -> RunInfo:
        """One run in full; raises UnknownName."""
        from tracewarehouse.duck.arrow import table_of
        from tracewarehouse.runs.rows import RunInfo, built_rows, run_row, table_sizes

        part = self._one(run)
        each = part.selected()[0]
        contract = self.catalog.get("ranks", kind="table")
        ranks = Result(
            table_of(contract, built_rows(self.root, contract, [each])),
            part._provenance(contract, {}),
            contract,
        )
        versions = self.store.versions(each.run)
        return RunInfo(run_row(each.version), ranks, table_sizes(each), versions)

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
        """A rank's trace as it was read, as JSON text in pieces: its header, every event, then what is added.

        Several ranks stand side by side, their clocks aligned where collectives tell how. `start` and `end`
        (`"1.2s"` since the first event, or a number as in the tables), `step` or `around` cut a part out,
        with `margin` on both sides: slices that overlap it stay whole. A finding is a rule of `check`: around
        where it is worst, in that rank. `counters` are of `export.COUNTERS`,
        `overlays` of `export.OVERLAYS`: they add events and change none; parts have some unless `plain`. The
        rank may be left out where the run has one. Raises UnknownName, ParamError.
        """
        from tracewarehouse.export import contracts_read, export, export_request, worst_occurrence
        from tracewarehouse.query.dependencies import below

        wanted = export_request(counters, overlays, start, end, step, around, margin, plain)
        whole = self._one(run)
        part = whole if rank is None else whole.select(ranks=rank)
        found = self._found(whole, part, wanted)
        if rank is None and around is not None:
            part = whole.select(ranks=worst_occurrence(around, found, run)[0])
        (selected,) = part.selected()
        if rank is None and len(selected.ranks) != 1:
            hint = hints.fill("select one with {}: {}", hints.option("rank", "N"), rank_list(selected.ranks))
            raise ParamError(f"{selected.run} has several ranks", hint)
        whole, _ = whole._with_tables(below(self.catalog, contracts_read(self.catalog, wanted)))
        return export(self.root, self.catalog, whole.selected()[0], selected.ranks, wanted, found)

    def _found(self, whole: Warehouse, part: Warehouse, wanted: ExportRequest) -> list[dict[str, Any]]:
        """Findings of a part to draw, or where one is asked for, of its ranks in the whole run."""
        from tracewarehouse.findings import rules

        ranks = part.selected()[0].ranks
        if wanted.around is not None:
            known = [rule.name for rule in rules(self.catalog)]
            if wanted.around not in known:
                raise UnknownName("finding", wanted.around, known)
            return [row for row in whole.check().rows() if row["rank"] in ranks]
        return part.check().rows() if wanted.draws_findings(len(ranks)) else []

    def report(
        self,
        run: str,
        head: str | None = None,
        *,
        force: bool = False,
        say: Callable[[str], None] | None = None,
    ) -> Page:
        """One page on a run: what its GPUs did, what held them up, what is not known; `.html()` is the file.

        With `head`, on what changed from `run` to it, `force` even if the two are not comparable. It works
        out all it shows and stores nothing; `say` is told what is being worked out. Raises UnknownName,
        NotComparable.
        """
        from tracewarehouse.report import one_run

        tell = say or (lambda _: None)
        if head is not None:
            return self._report_of_two(run, head, force, tell)
        part = self._one(run)
        tell("running checks")
        return one_run(part, part.info(part.selected()[0].run), part.check(), tell)

    def _report_of_two(self, base: str, head: str, force: bool, say: Callable[[str], None]) -> Page:
        from tracewarehouse.metric import measure, parse_metric
        from tracewarehouse.report import two_runs

        say("comparing")
        compared = self.diff(base, head)
        change = compared.changes(force=force)
        times = measure(parse_metric("step_time", self.catalog), compared.base, compared.head)
        return two_runs(change, times, self._recorded_steps(), say)

    def _recorded_steps(self) -> History | None:
        """The history of the step time, None where nothing is recorded."""
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
        """How long scopes would take with parts scaled as `kernels[kind=communication]=0.5`; stores nothing.

        Scopes are those of `derive`. A row per rank, scope and category of the critical path (with `by="op"`
        also operator and name): base_ns as it is, new_ns as it would be, saved_ns; the category `length` is
        the whole. Collectives and their waits are taken as this rank recorded them. Raises ParamError,
        UnknownName.
        """
        from tracewarehouse.derive.build import sources
        from tracewarehouse.derive.scale import parse
        from tracewarehouse.derive.scopes import ScopeRequest
        from tracewarehouse.derive.whatif import whatif

        scales = [parse(text) for text in ([scale] if isinstance(scale, str) else scale)]
        part = self._one(run) if ranks is None else self._one(run).select(ranks=ranks)
        part, told = part._with_tables(sources(self.catalog))
        wanted = ScopeRequest.of(steps, annotations, entire_trace)
        found = whatif(self.root, self.catalog, part.selected()[0], wanted, scales, by)
        return replace(found, notices=(*told, *found.notices))

    # Writing

    def ingest(
        self,
        *paths: str | PathLike[str],
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
        progress: Watch | None = None,
    ) -> IngestReport:
        """Ingests trace files and folders; the report says what became of each file.

        A file that cannot be read stops no other. The same content again writes nothing. What does not fit
        into memory is kept in `temp_dir` meanwhile, None for the warehouse's disk. `time_unit` is the unit
        of the times in the files where it is not that of their format. `refresh` afterwards writes the file
        for DuckDB shells.
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
            settle_s=settle_s,
            strict=strict,
            inbox=inbox,
            temp_dir=Path(temp_dir) if temp_dir is not None else None,
            time_unit=time_unit,
        )
        store = Store.create(self.root, tool=__version__)
        return ingest(store, self.catalog, paths, options, progress)

    def record(
        self,
        runs: str | Iterable[str] | None = None,
        *,
        analyses: str | Iterable[str] | None = None,
        progress: Callable[[RecordProgress], None] | None = None,
    ) -> RecordReport:
        """Keeps results of analyses (`name` or `name@2`; None: the newest of each) for `history`.

        Of the runs (selectors; None: all) it works out what is not recorded yet, whole and with the defaults
        of all parameters, steps apart where an analysis can tell them. Raises UnknownName.
        """
        from tracewarehouse.history import record
        from tracewarehouse.query.dependencies import below

        named = [analyses] if isinstance(analyses, str) else analyses
        contracts = (
            self.catalog.analyses()
            if named is None
            else tuple(self.catalog.get(name, kind="analysis") for name in dict.fromkeys(named))
        )
        part, _ = self.select(runs)._with_tables(below(self.catalog, contracts))
        return record(self.store, self.catalog, part.selected(), contracts, self._with, progress)

    def acknowledge(self, metric: str, run: str, why: str | None) -> str:
        """Keeps why a metric changed at a run, for its history to show; None takes that back. Gives the run.

        Raises UnknownName, ParamError.
        """
        from tracewarehouse.history import acknowledge
        from tracewarehouse.metric import parse_metric

        found = self._recorded(run)
        if len(found) != 1:
            names = ", ".join(each.selector for each in found)
            raise UnknownName("single run", run, [], f"it matches {names}")
        acknowledge(self.store, parse_metric(metric, self.catalog), found[0], why)
        return found[0].selector

    def label(self, run: str, labels: Mapping[str, str | None]) -> Published:
        """Sets labels of a run, takes away those that are None: a new version of it. Raises UnknownName."""
        one = self._one(self._whole(run, "a label")).selected()[0]
        return self.store.relabel(one.run, check_labels(labels))

    def remove(
        self,
        runs: str | Iterable[str] | None = None,
        *,
        where: str | Iterable[str] = (),
        older_than: str | timedelta | None = None,
        keep_results: bool = False,
        dry_run: bool = False,
    ) -> tuple[Removed, ...]:
        """Takes out the runs that all conditions mean: selectors, `label.K=V`, an age like `90d`.

        At least one condition is needed. Older versions stay readable until `clean`. With `keep_results` what
        was recorded of them stays for good, and a history goes on to show it; removing such a run by its name
        again lets go of that, too. Raises UnknownName.
        """
        from tracewarehouse.runs.removal import Removed, matching, parse_age_ns, parse_where

        wanted = [runs] if isinstance(runs, str) else None if runs is None else list(runs)
        labels = parse_where([where] if isinstance(where, str) else where)
        age_ns = None if older_than is None else parse_age_ns(older_than)
        if not wanted and not labels and age_ns is None:
            raise ParamError("nothing to select runs by", "specify runs, a label or an age")
        wanted = wanted and [self._whole(each, "removal") for each in wanted]
        waiting = self._waiting_only(wanted or ())
        kept = [] if keep_results else self._kept_only(wanted or ())
        named = [each for each in wanted or () if each not in waiting and each not in kept]
        selected = self._matching(named) if wanted else self.selected()
        found = matching(selected, labels, age_ns, time.time_ns())
        results = self.store.results_of(each.version for each in found) if keep_results else {}
        gone = [
            Removed(each.run, len(each.version.ranks), each.version.bytes, results.get(each.run, 0))
            for each in found
        ]
        gone += [Removed(run, ranks, 0) for run, ranks in waiting.items()]
        if gone and not dry_run:
            for each in gone:
                self.store.remove(each.run, keep_results)
        for run in () if dry_run else kept:
            self.store.drop_kept(run)
        return (*gone, *(Removed(run, 0, 0) for run in kept))

    def refresh(self) -> Path:
        """Writes `warehouse.duckdb` for DuckDB shells, over the runs as they are now; gives its path.

        `tw shell` and `tw ingest` do so too. Whatever else writes leaves the file as it was: out of date.
        """
        from tracewarehouse.query.shell_file import refresh

        return refresh(self.store, self.catalog)

    def upgrade(self) -> UpgradeReport:
        """Rebuilds tables that are stored in other versions than this release reads, from `events`.

        A warehouse of format 1 is converted first, rank by rank; repeat the call after a kill. The report has
        a line per run converted, and per table and run; nothing to do gives none. It names the ranks that
        could not be converted, whose stored files are damaged: their traces are to be ingested again.
        """
        from tracewarehouse.ingest.outcome import UpgradeReport
        from tracewarehouse.query.dependencies import readable
        from tracewarehouse.storage.format1 import Format1

        converted = UpgradeReport(())
        if Format1.is_at(self.root):
            from tracewarehouse.ingest.from_format1 import convert

            converted = convert(self.root, self.catalog, __version__)
            self.refresh()
        rebuilt = self._with_tables(readable(self.catalog))[1]
        return replace(converted, lines=(*converted.lines, *rebuilt))

    def derive(
        self,
        name: str,
        run: str,
        *,
        ranks: int | Iterable[int] | None = None,
        steps: int | Iterable[int] = (),
        annotations: str | Iterable[str] = (),
        entire_trace: bool = False,
    ) -> Derived:
        """Makes tables that need more than SQL, as a new version of the run; `critical_path` is the only one.

        By default for each complete step, or the whole trace where there are no steps; else for steps by
        number, annotations as `NAME#K` (the K-th of that name, from 0), or the `entire_trace`. Scopes that
        are already derived are not computed again. Raises UnknownName, ParamError.
        """
        from tracewarehouse.derive import ScopeRequest, derive
        from tracewarehouse.derive.build import NAME, sources

        if name != NAME:
            raise UnknownName("derivation", name, [NAME])
        whole_run = self._one(self._whole(run, "a derivation"))
        part = whole_run if ranks is None else whole_run.select(ranks=ranks)
        part, told = part._with_tables(sources(self.catalog))
        wanted = ScopeRequest.of(steps, annotations, entire_trace)
        derived = derive(self.store, self.catalog, part.selected()[0], wanted)
        return replace(derived, notices=(*told, *derived.notices))

    def verify(self) -> list[Problem]:
        """What is wrong with the stored files, of format 1 too; nothing in a sound warehouse."""
        from tracewarehouse.storage.format1 import Format1

        return Format1(self.root).verify() if Format1.is_at(self.root) else self.store.verify()

    def clean(self, grace_s: float = 86_400.0) -> CleanReport:
        """Takes away files that no kept version needs and that are older than `grace_s` seconds."""
        return self.store.clean(grace_s)

    # The shell

    @contextmanager
    def shell_file(self) -> Iterator[Path]:
        """A DuckDB file to open read-only: `warehouse.duckdb`, brought up to date, or one over the selection.

        Where the warehouse may not be written, a file of the moment takes its place.
        """
        from tempfile import TemporaryDirectory

        from tracewarehouse.query.shell_file import NAME, is_current, write

        selected = self.selected()
        if self._selected is None:
            path = self.root / NAME
            if is_current(path, self.root, self.catalog, selected) or self._refreshed():
                yield path
                return
        with TemporaryDirectory(prefix="tw-") as folder:
            path = Path(folder) / NAME
            write(path, self.store, self.catalog, selected)
            yield path

    def _refreshed(self) -> bool:
        try:
            self.refresh()
        except (WarehouseError, OSError):
            return False
        return True

    # Parts

    def _with(self, selected: Sequence[SelectedRun]) -> Warehouse:
        narrowed = Warehouse(self.root, catalog=self.catalog, selected=selected)
        narrowed.__dict__["store"] = self.store  # keeps the versions it has read
        narrowed.__dict__["_sessions"] = self._sessions
        return narrowed

    def _matching(self, runs: Iterable[str]) -> tuple[SelectedRun, ...]:
        return select_runs(self.store, runs) if self._selected is None else narrow(self._selected, runs)

    def _one(self, run: str) -> Warehouse:
        found = self._matching([run])
        if len(found) != 1:
            names = ", ".join(each.run for each in found)
            raise UnknownName("single run", run, [], f"it matches {names}")
        return self._with(found)

    def _whole(self, run: str, what: str) -> str:
        """The selector itself; raises ParamError for a version: what is done is done to the run."""
        name, version = parse_reference(run)
        if version is not None:
            raise ParamError(f"{run} is one version, and {what} applies to the run", f"use {name}")
        return run

    def _waiting_only(self, runs: Iterable[str]) -> dict[str, int]:
        """Those of the names that nothing is published of yet, with their waiting ranks."""
        wanted = set(runs)
        waiting = self.store.waiting_runs() if wanted else {}
        return {
            run: len({one.source.rank for one in waits})
            for run, waits in waiting.items()
            if run in wanted and not self.store.newest(run)
        }

    def _kept_only(self, wanted: Iterable[str]) -> list[str]:
        """Those of the names that only results are left of."""
        kept = {version.run for version in self.store.kept()} if wanted else set()
        return [run for run in dict.fromkeys(wanted) if run in kept and not self.store.newest(run)]

    @cached_property
    def _sessions(self) -> Sessions:
        from tracewarehouse.query.connections import Sessions

        return Sessions(self.root, self.catalog)

    def _answer(self, contract: Contract, values: Mapping[str, object]) -> pa.Table:
        return self._sessions.answer(self.selected(), contract, values)

    @contextmanager
    def _session(self, contracts: Iterable[Contract]) -> Iterator[Connection]:
        """A connection that is kept for the next question over the same ranks."""
        with self._sessions.session(self.selected(), contracts) as con:
            yield con

    def _with_tables(self, contracts: Iterable[Contract]) -> tuple[Warehouse, tuple[str, ...]]:
        """This selection with every table in the version asked for, and what had to be rebuilt for it."""
        from tracewarehouse.runs.capabilities import lacking

        selected = self.selected()
        missing = lacking(contracts, selected)
        if not missing:
            return self._with(selected), ()
        runs = {each.run: each for part in missing.values() for each in part}
        for each in runs.values():
            newest = self.store.newest(each.run)
            if newest is None or newest.number != each.version.number:
                tables = ", ".join(str(contract.ref) for contract in missing)
                raise SchemaVersionError(
                    f"{each.selector} does not hold {tables}, and an older version cannot be rebuilt",
                    f"select {each.run} without a version",
                )
        from tracewarehouse.ingest.upgrade import upgrade

        upgrade(self.store, self.catalog, sorted(runs), tuple(missing))
        told = tuple(
            f"{contract.ref} was rebuilt for {', '.join(each.run for each in part)}"
            for contract, part in missing.items()
        )
        return self._with(in_order(self._renewed(each, each.run in runs) for each in selected)), told

    def _renewed(self, each: SelectedRun, rebuilt: bool) -> SelectedRun:
        newest = self.store.newest(each.run) if rebuilt else None
        return each if newest is None else SelectedRun(newest, each.ranks)

    def _provenance(
        self, contract: Contract | None, values: Mapping[str, object], sql: str | None = None
    ) -> Provenance:
        from tracewarehouse.query.dependencies import below

        selected = self.selected()
        analysis = contract if contract and contract.kind == "analysis" else None
        read = below(self.catalog, [contract]) if contract else ()
        return Provenance(
            tool=__version__,
            runs=tuple(each.selector for each in selected),
            analysis=analysis.name if analysis else None,
            version=analysis.version if analysis else None,
            own_hash=self.catalog.own_hash(contract) if contract else None,
            effective_hash=self.catalog.effective_hash(contract) if contract else None,
            params=dict(values),
            tables={each.name: each.version for each in read},
            ranks={each.run: list(each.ranks) for each in selected if each.is_part} or None,
            sql=sql,
        )
