"""Upkeep that spans several packages: sealing, repair, secrets, rebuilt tables, compaction, retention.

Repair restores stored objects, then tables, derived tables, recorded results, and lost ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from os import PathLike
from pathlib import Path

from msgspec import Struct

from tracewarehouse import hints
from tracewarehouse.compare.history.record import record_again, record_runs, recordable, repair_results
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.derive.critical_path import ScopeRequest, derive, stored_scopes
from tracewarehouse.errors import (
    MissingRanks,
    ParamError,
    SchemaVersionError,
    TwError,
    UnknownName,
    WarehouseError,
)
from tracewarehouse.exact_text import missing_ranks
from tracewarehouse.formats.file_text import prefix_digest
from tracewarehouse.formats.redact.rules import POLICY_FILE, policy_of
from tracewarehouse.ingest import rebuild
from tracewarehouse.ingest.inbox import INBOX
from tracewarehouse.ingest.outcome import Options, UpgradeReport
from tracewarehouse.ingest.pipeline import ingest
from tracewarehouse.ingest.repair import LostSource, TableRepair
from tracewarehouse.ingest.secrets import RemovalReport, SecretFound, SecretRemoval, scan_warehouse
from tracewarehouse.ingest.survey import discover
from tracewarehouse.location import location
from tracewarehouse.present.render.text import plural
from tracewarehouse.query import shell_file
from tracewarehouse.query.selection import Selection
from tracewarehouse.result import Result
from tracewarehouse.runs.removal import expiring, read_policy
from tracewarehouse.runs.rows import catalog_row, copied_rows, expected_ranks
from tracewarehouse.runs.selection import SelectedRun, explain_unknown
from tracewarehouse.storage import delta, layout, results, store
from tracewarehouse.storage.compact import compact, expire
from tracewarehouse.storage.delta import CopiedTables
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.model import Brief, Changes, Compacted, Expired, Problem, RunVersion
from tracewarehouse.storage.objects import Objects, disk_errors
from tracewarehouse.storage.repair import RunRepair, Step, repair_side_objects
from tracewarehouse.storage.store import Store, objects_at
from tracewarehouse.storage.verify import verify


class RepairReport(Struct, frozen=True):
    """What a repair did, or would do, and the problems that are left."""

    steps: tuple[Step, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 repaired, 4 repaired in part: data is lost or problems are left, 1 nothing could be repaired."""
        failed = any(step.is_failure for step in self.steps)
        if (self.problems or failed) and all(step.is_failure for step in self.steps):
            return 1
        return 4 if self.problems or failed or any(step.is_loss for step in self.steps) else 0


def restore_identity(objects: Objects, dry_run: bool) -> tuple[Step, ...]:
    """Writes `_tw/warehouse.json` again if it is lost or damaged, though runs are stored."""
    try:
        store.read_identity(objects)
    except SchemaVersionError:
        raise
    except WarehouseError:
        if not objects.folders(f"{layout.VERSIONS}/"):
            raise
    else:
        return ()
    stated = store.stated_identity(objects)
    if not dry_run:
        with disk_errors(objects.url):
            for _, data in objects.get_many([layout.WAREHOUSE]):
                if data is not None:
                    objects.put({f"{layout.WAREHOUSE}{layout.ASIDE}": data})
                    objects.delete([layout.WAREHOUSE])
            store.restore_identity(objects, stated)
    loss = "its id and salt are in versions of runs" if stated else "the salt of redacted values is lost"
    return (Step("", layout.WAREHOUSE, f"written again; {loss}", is_loss=not stated),)


def repair(
    selection: Selection,
    runs: Iterable[str] | None,
    source: Iterable[str | PathLike[str]],
    dry_run: bool,
    before: Sequence[Step] = (),
) -> RepairReport:
    """Repairs damaged runs (None: the entire warehouse), after the steps `before`; deletes nothing."""
    steps = list(before)
    store = selection.store
    store.forget()
    keys = _keys(store, runs)
    lost: list[LostSource] = []
    for key in keys:
        with _failures(store, key, steps):
            _repair_run(selection, key, dry_run, steps, lost)
        store.forget()
    named_keys = None if runs is None else keys
    with _failures(store, "", steps):
        # Step by step: those before a failure count.
        steps.extend(repair_side_objects(store, named_keys, dry_run))
        steps.extend(repair_results(store, selection.catalog, keys, selection.verified, dry_run))
        if source and lost and not dry_run:
            _ingest_again(selection, lost, [Path(path) for path in source], steps)
        if runs is None:
            steps += _rewrite_shell_file(selection, dry_run)
    remaining = [] if dry_run else verify(store)
    if named_keys is not None:
        remaining = [problem for problem in remaining if problem.run and run_key(problem.run) in named_keys]
    return RepairReport(tuple(steps), tuple(remaining))


@contextmanager
def _failures(store: Store, run: str, steps: list[Step]) -> Iterator[None]:
    """Adds a failed step for an error of the block; a full disk or a refused write is one."""
    try:
        with disk_errors(store.folder):
            yield
    except TwError as error:
        store.forget()
        steps.append(Step(run, "", f"repair failed: {error.message}", is_failure=True))


def _keys(store: Store, runs: Iterable[str] | None) -> tuple[str, ...]:
    stored = sorted({*store.run_keys(), *store.keys(layout.COMMITS)})
    if runs is None:
        return tuple(stored)
    wanted_keys = tuple(dict.fromkeys(map(run_key, runs)))
    for key in wanted_keys:
        if key not in stored:
            raise UnknownName("run", key, [store.name(each) for each in stored])
    return wanted_keys


def _repair_run(
    selection: Selection, key: str, dry_run: bool, steps: list[Step], lost: list[LostSource]
) -> None:
    """Repairs one run; adds what was done to `steps`, also if it fails in the middle."""
    store = selection.store
    objects = RunRepair(store, key, dry_run)
    try:
        objects.repair()
    finally:
        steps += objects.steps
    store.forget()
    tables = TableRepair(store, selection.catalog, key, objects.versions, dry_run)
    try:
        tables.repair()
    except BaseException:
        steps += [step for step in tables.steps if step.is_loss]  # nothing was rebuilt
        raise
    steps += tables.steps
    lost += tables.lost
    store.forget()
    if tables.underived:
        steps.append(_derive_again(selection, key, tables.underived, dry_run))


def _derive_again(selection: Selection, key: str, ranks: Sequence[int], dry_run: bool) -> Step:
    """Derives the scopes again that the ranks had."""
    name = selection.store.name(key)
    others = " and others" if len(ranks) > 1 else ""
    step = Step(key, layout.versions(key), f"critical_path derived again for rank {min(ranks)}{others}")
    if dry_run:
        return step
    try:
        by_scopes: dict[tuple[str, ...], list[int]] = defaultdict(list)
        selected = selection.select(runs=name).select(ranks=ranks).selected()[0]
        for rank in selected.by_rank:
            by_scopes[stored_scopes(rank)].append(rank.rank)
        for scopes, scope_ranks in by_scopes.items():
            subset = selection.select(runs=name).select(ranks=scope_ranks).selected()[0]
            derive(selection.store, selection.catalog, subset, ScopeRequest(scopes))
    except TwError as error:
        hint = hints.derive("critical_path", name)
        text = hints.fill("critical_path lost: {}; {}", error.message, hint)
        return Step(key, layout.versions(key), text, is_loss=True)
    return step


def _ingest_again(
    selection: Selection, lost: Sequence[LostSource], paths: Sequence[Path], steps: list[Step]
) -> None:
    """Ingests the traces of lost ranks that are among the paths, each for its own run and rank."""
    files = [file.path for file in discover(paths)[0]]
    for source in lost:
        for path in files:
            try:
                is_same = prefix_digest(path, source.text_bytes) == source.digest
            except (TwError, OSError):
                continue
            if is_same:
                options = Options(run=source.run, rank=source.rank, min_age_s=0)
                report = ingest(selection.store, selection.catalog, [path], options)
                if report.exit_code == 0:
                    position = next(number for number, step in enumerate(steps) if step.what == source.line)
                    text = f"rank {source.rank} ingested again from {path}"
                    steps[position] = Step(steps[position].run, steps[position].key, text)
                    break


def _rewrite_shell_file(selection: Selection, dry_run: bool) -> list[Step]:
    """Writes a damaged warehouse.duckdb again."""
    fault = shell_file.fault(selection.store.path(shell_file.NAME))
    if fault is None:
        return []
    if not dry_run:
        try:
            shell_file.refresh(selection.store, selection.catalog)
        except (TwError, OSError) as error:
            return [Step("", shell_file.NAME, f"derived file not written again: {error}")]
    return [Step("", shell_file.NAME, "derived file written again")]


def remove_secrets(
    selection: Selection, runs: Sequence[str] | None, *, redact: bool, purge: bool
) -> RemovalReport:
    """Publishes clean versions of the runs (None: all) that hold secrets; `purge` deletes old versions."""
    store = selection.store
    policy = policy_of(store.folder_with(POLICY_FILE))
    secrets = scan_warehouse(store, runs, policy).found
    removal = SecretRemoval(store, selection.catalog, policy)
    lines: list[str] = []
    keys = {secret.run for secret in secrets if secret.run and not secret.file.startswith(f"{INBOX}/")}
    names, former = {key: store.spelling(key) for key in keys}, []
    for key, run in sorted(names.items()):
        files = {secret.file for secret in secrets if secret.run == key}
        if redact and (files & removal.held_by_newest(run) or _holds_secret_name(store, secrets, key)):
            names[key] = removal.redact(run)
            former += [run] if names[key] != run else []
            lines.append(f"{names[key]}: published without secrets")
    if redact:
        lines += _record_without_secrets(selection, secrets)
        reasons = removal.redact_reasons()
        lines += [f"{plural(reasons, 'acknowledgement reason')} redacted"] if reasons else []
    if purge and keys:
        removal.purge(sorted(set(names.values())), former)
        lines.append("old versions deleted")
    if lines:
        store.objects.delete(layout.LISTS)
    if lines and store.path(shell_file.NAME).exists():
        store.list_runs(catalog_row)
        shell_file.refresh(store, selection.catalog)
    remaining = scan_warehouse(store, runs, policy).found
    return RemovalReport(
        tuple(lines), tuple(sorted({f"{secret.file}: {secret.where}" for secret in remaining}))
    )


def _holds_secret_name(store: Store, secrets: Iterable[SecretFound], key: str) -> bool:
    """Whether the name of a run that readers see is a secret itself."""
    is_named = any(secret.run == key and secret.where == "path" for secret in secrets)
    return is_named and store.newest(key) is not None


def _record_without_secrets(selection: Selection, secrets: Iterable[SecretFound]) -> list[str]:
    """Deletes recorded results that hold secrets, and records them again."""
    store = selection.store
    files = sorted({secret.file for secret in secrets if results.parse(secret.file)})
    folders = sorted({file.rpartition("/")[0] for file in files})
    rollups = [
        key for folder in folders for _, key in results.every(store.objects, folder, results.parse_rollup)
    ]
    analyses = sorted({file.split("/")[1] for file in files})
    folders_of_analyses = [f"{layout.RESULTS}/{analysis}" for analysis in analyses]
    packs = [key for each in folders_of_analyses for key in results.packs(store.objects, each)]
    store.objects.delete([*rollups, *packs, *files])
    runs = sorted({store.spelling(file.split("/")[2]) for file in files} & set(store.runs()))
    if analyses and runs:
        record_runs(selection.select(runs), recordable(selection.catalog, analyses))
    return [f"{len(files)} recorded results redacted"] if files else []


def upgrade(selection: Selection) -> UpgradeReport:
    """Rebuilds tables that are stored in another version; records outdated results again."""
    store, catalog = selection.store, selection.catalog
    rebuilt, errors = rebuild.upgrade(store, catalog, [run.run for run in selection.selected()])
    recorded = record_again(store, catalog, selection.selected(), selection.verified)
    failed = {run: error.message for run, error in errors.items()}
    failed |= {run.run: hints.fill("{}; {}", run.why, run.hint or "") for run in selection.left_out}
    return UpgradeReport((*rebuilt, *recorded), failed)


def problems(store: Store, deep: bool) -> list[Problem]:
    """The problems of the stored files, and of `warehouse.duckdb`."""
    fault = shell_file.fault(store.path(shell_file.NAME))
    return [*store.verify(deep), *([Problem("", shell_file.NAME, fault)] if fault else [])]


def export_delta(
    selection: Selection,
    destination: str | PathLike[str] | None,
    runs: Sequence[str] | None,
    names: Sequence[str],
) -> tuple[CopiedTables, ...]:
    """Registers all runs in the Delta logs of the warehouse, or copies tables of runs (None: all)."""
    store, catalog = selection.store, selection.catalog
    if destination is None:
        if runs or names:
            raise ParamError("all runs and tables are registered in place", "name a folder or URL for copies")
        store.objects.check_conditions()
        with disk_errors(store.folder):
            copies = delta.complete(store, copied_rows)
            register_recorded(selection, recordable(catalog, None), None)
            return copies
    tables = delta.tables(catalog)
    for name in names:
        if name not in tables:
            raise UnknownName("table", name, list(tables))
    objects = objects_at(location(destination))
    with disk_errors(objects.url):
        objects.check_conditions()
        logged = {*(names or tables), *objects.folders(""), delta.RUNS}
        logs = {name: delta.log_of(objects, name, table) for name, table in tables.items() if name in logged}
        copies = tuple(_copies(selection, runs, logs))
        contracts = () if names else recordable(catalog, None)
        delta.register_results(store, catalog, runs and [copy.run for copy in copies], contracts, objects)
        return copies


def register_recorded(
    selection: Selection, contracts: Sequence[Contract], runs: Sequence[str] | None
) -> None:
    """Registers recorded results of runs (None: all) in Delta logs, if there are any, and rolls them up."""
    store, catalog = selection.store, selection.catalog
    if store.objects.stat(layout.DELTA) is None:
        return
    delta.register_results(store, catalog, runs, contracts)
    for analysis in catalog.analyses():
        if analysis.scope == "fleet":
            delta.register_rows(
                store, catalog, analysis, partial(_over_runs, Selection(store, catalog), analysis.name)
            )


def _over_runs(every: Selection, name: str, briefs: Sequence[Brief]) -> Result:
    """The rows of an analysis over these runs, those that can be read."""
    versions = []
    for brief in briefs:
        with suppress(TwError):
            versions.append(every.store.get(brief.run, brief.number))
    return every.over([SelectedRun(version, version.ranks) for version in versions]).analyze(name)


def _copies(
    selection: Selection, runs: Sequence[str] | None, logs: Mapping[str, delta.DeltaLog]
) -> Iterator[CopiedTables]:
    """Copies each run that the logs do not have in its newest version, then deletes removed runs."""
    store = selection.store
    removed = {key: number for key, (number, is_removed) in store.numbers().items() if is_removed}
    gone = removed.keys() if runs is None else {name.lower() for name in runs} & removed.keys()
    present = None if runs is None else [name for name in runs if name.lower() not in gone]
    selected = selection.selected() if present is None else selection.matching(present) if present else ()
    copied = [
        (run.run, run.version.number, partial(_copy, selection.over([run]), run, logs)) for run in selected
    ]
    nothing = [(store.name(key), removed[key], None) for key in sorted(gone)]
    for run, number, files in (*copied, *nothing):
        target = delta.Target(run, delta.app_of(store, run), number, files or (lambda _: {}), files is None)
        written = delta.copy(logs, target)
        yield CopiedTables(run, number, tuple(written), removed=files is None)


# Ranks whose rows are in memory at once.
_RANKS_PER_FILE = 64


def _copy(
    side: Selection, run: SelectedRun, logs: Mapping[str, delta.DeltaLog], table: str
) -> dict[str, delta.Action]:
    """Writes files with the rows of a run, some ranks each; `side` has this run alone."""
    is_whole = table in delta.copied_tables(side.catalog)
    starts = [0] if is_whole else range(0, len(run.ranks), _RANKS_PER_FILE)
    actions: dict[str, delta.Action] = {}
    for first in starts:
        ranks = run.ranks[first : first + _RANKS_PER_FILE]
        condition = "" if is_whole else f" WHERE rank BETWEEN {ranks[0]} AND {ranks[-1]}"
        rows = side.query(f"SELECT * FROM {table}{condition}", limits=None).table
        actions |= logs[table].add_rows(rows, run.run, None if is_whole else (ranks[0], ranks[-1]))
    return actions


def compact_runs(
    selection: Selection, names: Sequence[str] | None, target_bytes: int, dry_run: bool
) -> tuple[Compacted, ...]:
    """Compacts the runs, each once; None: all. Raises ParamError, UnknownName, WarehouseError."""
    if target_bytes < 1:
        raise ParamError("target_bytes is not positive", "give the size of a file in bytes")
    store, selected = selection.store, selection.matching(names) if names else selection.selected()
    unique = dict.fromkeys(run.run for run in selected)
    compacted = []
    with disk_errors(store.folder):
        for run in unique:
            try:
                compacted.append(compact(store, run, target_bytes, dry_run))
            except UnknownName:  # another process removed it
                if store.newest(run) is not None:
                    raise
    return tuple(compacted)


def expire_tables(selection: Selection, policy: Path, dry_run: bool) -> tuple[Expired, ...]:
    """Drops the tables that expired by a retention policy. Raises ParamError for an invalid one."""
    rules, now = read_policy(policy, selection.catalog), datetime.now(UTC)
    tables = {run.run: expiring(run.version, rules, now) for run in selection.selected()}
    with disk_errors(selection.store.folder):
        return tuple(
            expire(selection.store, run, expired, dry_run) for run, expired in tables.items() if expired
        )


class Sealed(Struct, frozen=True):
    """The newest version of a run after a seal; `written` if this call published it.

    `conflicts`: waiting ranks that were not published, because the run has them with different content.
    """

    run: str
    version: int
    written: bool
    ranks: tuple[int, ...]
    expected_ranks: int | None
    conflicts: tuple[int, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 success, 4 if some ranks were not published."""
        return 4 if self.conflicts else 0


def seal(
    store: Store,
    run: str,
    *,
    expect_ranks: int | None = None,
    allow_missing: bool = False,
    labels: Mapping[str, str | None] | None = None,
) -> Sealed:
    """Publishes all waiting ranks of a run in one version; with nothing new, writes nothing.

    The run must have `expect_ranks` ranks, by default those that were stated at ingest, else the world size
    of the traces. Raises MissingRanks unless `allow_missing`, UnknownName if there is no such run.
    """

    def check(version: RunVersion) -> None:
        if not allow_missing:
            _check_complete(version, expect_ranks)

    try:
        changes = Changes(labels=labels or {}, expected_ranks=expect_ranks, seal=True)
        published = store.publish(run, changes, check)
    except UnknownName as unknown:
        explain_unknown(store, unknown)
        raise
    refused = {name for name, outcome in published.outcome.items() if outcome == "conflict"}
    conflicts = {commit.source.rank for commit in published.waited if commit.source.name in refused}
    newest = published.newest
    return Sealed(
        newest.run,
        newest.number,
        published.version is not None,
        newest.ranks,
        expected_ranks(newest),
        tuple(sorted(conflicts)),
    )


def _check_complete(version: RunVersion, expect_ranks: int | None) -> None:
    expected = expect_ranks or expected_ranks(version) or 0
    present = len(version.ranks)
    if present >= expected:
        return
    missing, ranks = missing_ranks(version.ranks, expected)
    noun = "rank" if missing == 1 else "ranks"
    raise MissingRanks(
        f"run {version.run}: {noun} {ranks} of {expected} missing; nothing was published",
        hints.fill("ingest them, or publish without them: {}", hints.option("allow_missing")),
        present,
    )
