"""`tw record`: runs analyses and stores their results for a history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.compare.history.recorded import can_roll_up, roll_up
from tracewarehouse.compare.metric.values import COMPLETE_STEPS_SQL, Lengths, lengths, ranks_with_data
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import FINDINGS, Contract
from tracewarehouse.engines import Engine, TaskProgress, advice, results_in_order
from tracewarehouse.errors import TwError
from tracewarehouse.findings import findings_of
from tracewarehouse.location import Location
from tracewarehouse.query.connections import event_count
from tracewarehouse.query.relations import dependencies
from tracewarehouse.query.selection import Selection
from tracewarehouse.result import Result
from tracewarehouse.runs.readable import why_outdated, with_capabilities
from tracewarehouse.runs.rows import notices
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import layout, results
from tracewarehouse.storage.model import Json
from tracewarehouse.storage.pack import consecutive
from tracewarehouse.storage.repair import Step
from tracewarehouse.storage.results import Recorded, RecordedAnalysis, is_intact, write_result
from tracewarehouse.storage.store import Store
from tracewarehouse.version import __version__

# Runs share a query because a connection costs more than a small analysis. Their rows must fit in memory.
_RUNS_PER_BATCH = 32
_BYTES_PER_BATCH = 64 << 20

Steps = Mapping[int, Sequence[int]]  # rank → its complete steps


class FailedResult(Struct, frozen=True):
    """A result that could not be computed."""

    run: str
    analysis: str
    reason: str


class RecordReport(Struct, frozen=True):
    """The outcome: results `written` in `bytes`, those `present` before, and those that `failed`."""

    runs: tuple[str, ...]
    analyses: tuple[str, ...]
    written: int
    present: int
    bytes: int
    failed: tuple[FailedResult, ...] = ()
    notices: tuple[str, ...] = ()


class RecordProgress(Struct, frozen=True):
    """The progress of a recording: finished and total results, and the current analysis."""

    done: int
    total: int
    analysis: str


OnProgress = Callable[[RecordProgress], None]
Narrow = Callable[[Sequence[SelectedRun]], Selection]


def record(
    store: Store,
    catalog: Catalog,
    selected: Sequence[SelectedRun],
    analyses: Sequence[Contract],
    narrow: Narrow,
    on_progress: OnProgress | None = None,
) -> RecordReport:
    """Computes and stores the results of the selected runs, with all ranks, that are not recorded yet.

    Each result is stored as soon as it is computed; a run that fails does not stop the others. A run whose
    tables are of an earlier version or definition fails: its result would not be one of this release.
    """
    recorder = _Recorder(store, catalog, analyses, narrow, on_progress, selected)
    for batch in run_batches(selected):
        recorder.record_batch(batch)
    for contract in analyses if recorder.written else ():
        if not pack(store, contract, len(selected)):
            break  # of the others, about as many are recorded
    return RecordReport(
        tuple(run.selector for run in selected),
        tuple(str(contract.ref) for contract in analyses),
        recorder.written,
        len(analyses) * len(selected) - recorder.missing,
        recorder.bytes,
        tuple(recorder.failed),
    )


def pack(store: Store, contract: Contract, written: int) -> bool:
    """Copies the results that no pack has into one, if there are many: a history opens fewer files.

    `written`: how many this call may have added. False if few runs are recorded at all.
    """
    folder = layout.results(contract.name, contract.version)
    runs = len(store.objects.folders(f"{folder}/"))
    if runs < results.PACK_RESULTS:
        return False
    packed_runs = sum(map(results.pack_size, results.packs(store.objects, folder)))
    if max(written, runs - packed_runs) < results.PACK_RESULTS:
        return True
    whole, rollups = store.with_rollups(contract.name, contract.version)
    packed = results.Packs.read(store.objects, store.files, folder).files
    others = {recorded: key for recorded, key in whole.items() if recorded not in rollups}
    for keys in (rollups, others):
        unpacked = {recorded: key for recorded, key in keys.items() if key not in packed}
        store.files.copy(unpacked.values())
        intact = [key for recorded, key in unpacked.items() if is_intact(store.path(key), recorded)]
        paths = {key: store.path(key) for key in intact}
        if len(paths) >= results.PACK_RESULTS:
            with store.staging() as staging:
                results.write_pack(store.objects, staging, folder, paths)
    return True


def record_again(
    store: Store, catalog: Catalog, selected: Sequence[SelectedRun], narrow: Narrow
) -> tuple[str, ...]:
    """Records results that are recorded under an earlier definition only; a line per run."""
    runs = {(run.run.lower(), run.version.source): run for run in selected}
    outdated: dict[tuple[str, ...], list[Contract]] = {}
    for contract in (*catalog.all("analysis"), catalog.get(FINDINGS)):
        keys = {(key.run, key.source) for key in store.recorded(contract.name, contract.version)}
        selectors = tuple(sorted(runs[key].selector for key in keys & runs.keys()))
        if selectors:
            outdated.setdefault(selectors, []).append(contract)
    written: Counter[str] = Counter()
    for selectors, contracts in outdated.items():
        outdated_runs = [run for run in selected if run.selector in selectors]
        recorder = _Recorder(store, catalog, contracts, narrow, None, outdated_runs)
        for batch in run_batches(outdated_runs):
            recorder.record_batch(batch)
        written += recorder.written_by_run
    return tuple(
        f"{run}: recorded {count} result{'' if count == 1 else 's'} again"
        for run, count in sorted(written.items())
    )


def run_batches(selected: Sequence[SelectedRun]) -> Iterator[tuple[SelectedRun, ...]]:
    """Runs that one query covers."""

    def belongs(batch: Sequence[SelectedRun], each: SelectedRun) -> bool:
        size = sum(run.version.bytes for run in (*batch, each))
        return len(batch) < _RUNS_PER_BATCH and size <= _BYTES_PER_BATCH

    return consecutive(selected, belongs)


class _Recorder:
    """A recording in progress."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        analyses: Sequence[Contract],
        narrow: Narrow,
        on_progress: OnProgress | None,
        selected: Sequence[SelectedRun],
    ) -> None:
        self.store, self.catalog, self.narrow, self.on_progress = store, catalog, narrow, on_progress
        self.analyses = [RecordedAnalysis.of(contract, catalog) for contract in analyses]
        versions = [run.version for run in selected]
        self.present = {
            analysis.contract.ref: {key for key, _ in store.recorded_of(analysis, versions).values()}
            for analysis in self.analyses
        }
        self.missing = sum(len(self.without_result(analysis, selected)) for analysis in self.analyses)
        self.written_by_run: Counter[str] = Counter()
        self.bytes = 0
        self.failed: list[FailedResult] = []
        self.lengths: Lengths = {}  # of the runs of a batch
        self.found: dict[tuple[str, tuple[str, ...]], Result] = {}  # by a rule in runs of a batch

    def without_result(
        self, analysis: RecordedAnalysis, selected: Sequence[SelectedRun]
    ) -> list[SelectedRun]:
        """The runs that have no recorded result of the analysis."""
        present = self.present[analysis.contract.ref]
        return [run for run in selected if present.isdisjoint(analysis.possible_keys(run.version))]

    def record_batch(self, batch: Sequence[SelectedRun]) -> None:
        """Records some runs, analysis by analysis."""
        missing_runs = [(analysis, self.without_result(analysis, batch)) for analysis in self.analyses]
        missing_runs = [(analysis, runs) for analysis, runs in missing_runs if runs]
        if not missing_runs:
            return
        # Run → rank → complete steps, for the runs that have any.
        steps: dict[str, dict[int, list[int]]] = {}
        self.found = {}
        narrowed = self.narrow(batch)
        _, [self.lengths] = lengths([narrowed])
        for row in narrowed.query(COMPLETE_STEPS_SQL).rows():
            steps.setdefault(row["run_id"], {}).setdefault(row["rank"], []).append(row["step"])
        for analysis, missing in missing_runs:
            # The runs whose tables are those of this release; the others fail.
            read = dependencies(self.catalog, analysis.parts)
            reasons = {run.run: why_outdated(self.catalog, read, run) for run in missing}
            for run in missing:
                if reason := reasons[run.run]:
                    self.failed.append(FailedResult(run.selector, str(analysis.contract.ref), reason))
            runs = [run for run in missing if not reasons[run.run]]
            if self.on_progress is not None:
                done = self.written + len(self.failed)
                self.on_progress(RecordProgress(done, self.missing, analysis.contract.name))
            if analysis.contract.steps_optional:
                self.try_together(analysis, [run for run in runs if run.run in steps], steps)
                runs = [run for run in runs if run.run not in steps]
            self.try_together(analysis, runs, steps)

    @property
    def written(self) -> int:
        """The number of results written."""
        return self.written_by_run.total()

    def try_together(
        self, analysis: RecordedAnalysis, runs: Sequence[SelectedRun], steps: Mapping[str, Steps]
    ) -> None:
        """Runs the analysis on several runs at once; if that fails, on each separately."""
        if not runs:
            return
        try:
            self.compute(analysis, runs, steps)
        except TwError as error:
            if len(runs) == 1:
                reason = hints.fill("{}; {}", error.message, error.hint) if error.hint else error.message
                self.failed.append(FailedResult(runs[0].selector, str(analysis.contract.ref), reason))
                return
            for run in runs:
                self.try_together(analysis, [run], steps)

    def compute(
        self, analysis: RecordedAnalysis, runs: Sequence[SelectedRun], steps: Mapping[str, Steps]
    ) -> None:
        """Computes and stores a result per run; either all of the runs have complete steps or none."""
        contract, by_step = analysis.contract, runs[0].run in steps
        result = self.result(self.narrow(runs), contract, analysis.params(by_step))
        ranks = ranks_with_data(result, runs)
        files: dict[Recorded, Path] = {}
        rollups: dict[Recorded, Path] = {}
        with self.store.staging() as folder:
            for number, run in enumerate(runs):
                capable = with_capabilities(contract, [run]).selected
                run_result = result.of_run(run.run, run.selector, notices(capable, contract))
                path = folder / f"{number}.parquet"
                key = analysis.key(run.version, run.run in steps)
                complete = steps.get(run.run, {}) if "step" in contract.grain else {}
                metadata: dict[str, Json] = {  # what a history needs besides the rows
                    "run_id": run.run,
                    "number": run.version.number,
                    "ranks": list(ranks[run.run].with_data),
                    "reason": ranks[run.run].reason,
                    "complete": {str(rank): list(numbers) for rank, numbers in sorted(complete.items())},
                    "lengths": {str(rank): {**length} for rank, length in self.lengths[run.run].items()},
                }
                write_result(path, key, run_result.table, run_result.parquet_schema().metadata, metadata)
                files[key] = path
                if can_roll_up(contract):
                    file = folder / f"{number}-rollup.parquet"
                    rollup = roll_up(contract, run_result.table, complete)
                    write_result(file, key, rollup, {}, metadata, few_rows=True)
                    rollups |= {key: file} if _is_smaller(file, path) else {}
            size = sum(path.stat().st_size for path in files.values())
            self.store.keep_rollups(rollups)
            self.store.keep_results(files)
        self.written_by_run.update(run.run for run in runs)
        self.bytes += size

    def result(self, runs: Selection, contract: Contract, params: Mapping[str, object]) -> Result:
        """The rows of an analysis, or the findings of all rules, of which some were run before."""
        names = tuple(selected_run.selector for selected_run in runs.selected())
        if contract.is_recorded:
            by_rule = {rule: result for (rule, of), result in self.found.items() if of == names}
            return findings_of(
                runs, contract, lambda name: by_rule[name] if name in by_rule else runs.analyze_or_skip(name)
            )
        result = runs.analyze(contract.name, contract.version, **params)
        if contract in self.catalog.rules():
            self.found[contract.name, names] = result
        return result


def _is_smaller(rolled: Path, rows: Path) -> bool:
    """Whether a roll-up pays: the rows of few ranks take less space."""
    return rolled.stat().st_size < rows.stat().st_size


def repair_results(
    store: Store, catalog: Catalog, keys: Sequence[str], narrow: Narrow, dry_run: bool
) -> Iterator[Step]:
    """Renames damaged results of these runs, records them again, and unlists those that are lost."""

    def renamed(parsed: Callable[[str], Recorded | None]) -> dict[str, Recorded]:
        of_runs = {
            key: result for result, key in results.every(store.objects, parsed=parsed) if result.run in keys
        }
        faults = {key: results.fault(store.path(key), result) for key, result in of_runs.items()}
        damaged = {key: result for key, result in of_runs.items() if faults[key] is not None}
        results.set_aside(store.objects, () if dry_run else damaged)
        return damaged

    lost = renamed(results.parse)
    listed = filter(None, map(results.parse, results.listed(store.objects)))
    sources = {(result.run, result.source) for result in listed if result.run in keys}
    lost |= {key: recorded for recorded, key in results.missing(store.objects, sources) if recorded}
    for key, recorded in lost.items():
        is_back = _record_again(store, catalog, recorded, narrow, dry_run)
        what = "recorded result computed again" if is_back else "recorded result lost: it cannot be computed"
        yield Step(recorded.run, key, what, not is_back)
    lost_for_good = frozenset(key for key in lost if store.objects.stat(key) is None)
    if not dry_run:
        results.set_aside(store.objects, results.unlist(store.objects, lost_for_good))
    # Roll-ups only repeat what the results hold.
    for key, recorded in renamed(results.parse_rollup).items():
        yield Step(recorded.run, key, "damaged roll-up renamed: its result is read in its place")


def _record_again(store: Store, catalog: Catalog, recorded: Recorded, narrow: Narrow, dry_run: bool) -> bool:
    """Whether the result is recorded again, or could be."""
    try:
        version = store.newest(recorded.run)
        (contract,) = recordable(catalog, [f"{recorded.analysis}@{recorded.version}"])
        if version is None or version.source != recorded.source:
            return False
        if RecordedAnalysis.of(contract, catalog).definition(version) != recorded.effective:
            return False
        if dry_run:
            return True
        selected = SelectedRun(version, version.ranks)
        record(store, catalog, [selected], [contract], narrow)
    except TwError:
        return False
    return recorded in store.recorded(contract.name, contract.version)


def recordable(catalog: Catalog, names: Iterable[str] | None) -> tuple[Contract, ...]:
    """The analyses by name, `name` or `name@2`; None: all summaries. Raises UnknownName.

    The findings of all rules come last.
    """
    findings = catalog.get(FINDINGS, kind="table")
    names = None if names is None else dict.fromkeys(names)
    if names is None:
        return (*(contract for contract in catalog.analyses() if contract.is_summary), findings)
    others = [name for name in names if name not in (FINDINGS, str(findings.ref))]
    findings_last = (findings,) if len(others) < len(names) else ()
    return (*(catalog.get(name, kind="analysis") for name in others), *findings_last)


def record_runs(
    selection: Selection, analyses: Sequence[Contract], on_progress: OnProgress | None = None
) -> RecordReport:
    """Records analyses of the selected runs in this process."""
    selection.pool.will_read(analyses)
    selected = selection.selected()
    return record(selection.store, selection.catalog, selected, analyses, selection.verified, on_progress)


# A task opens the warehouse and hashes the files of its runs: fewer analyses would cost more than they save.
_LEAST_ANALYSES = 8


class RecordTask(Struct, frozen=True):
    """Records some analyses of some runs; a second run of the task writes only what is missing."""

    root: Location
    sql: Path | None
    runs: tuple[str, ...]
    analyses: tuple[str, ...]

    def run(self, progress: TaskProgress) -> RecordReport:
        """Records them in this process."""
        catalog = Catalog.load(self.sql)
        selection = Selection(Store.open(self.root, tool=__version__), catalog).select(self.runs)
        return record_runs(selection, recordable(catalog, self.analyses))


def record_on(
    engine: Engine, root: Location, selection: Selection, analyses: Sequence[Contract]
) -> RecordReport:
    """Records runs on an engine: batches of runs, and of analyses if there are too few runs."""
    catalog, selected = selection.catalog, selection.selected()
    missing = _Recorder(selection.store, catalog, analyses, selection.verified, None, selected).missing
    batches = list(run_batches(selected))
    per_batch = -(-2 * engine.slots // max(1, len(batches)))
    size = max(_LEAST_ANALYSES, -(-len(analyses) // per_batch))
    names = [str(analysis.ref) for analysis in analyses]
    tasks = [
        RecordTask(
            root,
            catalog.custom_folder,
            tuple(run.selector for run in batch),
            tuple(names[start : start + size]),
        )
        for batch in batches
        for start in range(0, len(names), size)
    ]
    reports = [report for report in results_in_order(engine, tasks) if isinstance(report, RecordReport)]
    failed = tuple(failure for report in reports for failure in report.failed)
    runs = tuple(run.selector for batch in batches for run in batch)
    # What a lost worker had written is present when its task runs again.
    written = missing - len(failed)
    total = RecordReport(runs, tuple(names), written, len(runs) * len(names) - missing, 0, failed)
    note = advice(engine, event_count(run for batch in batches for run in batch))
    notices = (note,) if note else ()
    return replace(total, bytes=sum(report.bytes for report in reports), notices=notices)
