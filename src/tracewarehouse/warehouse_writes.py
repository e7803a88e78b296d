"""The writing side of a warehouse: methods that change its folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tracewarehouse import hints
from tracewarehouse.errors import DamagedRunError, ParamError, UnknownName
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import (
    KEEP_VERSIONS_S,
    TARGET_BYTES,
    CleanReport,
    Compacted,
    Expired,
    Problem,
    Published,
    Store,
    check_labels,
)
from tracewarehouse.storage.file_check import Level
from tracewarehouse.version import __version__
from tracewarehouse.warehouse_base import WarehouseBase

if TYPE_CHECKING:
    from tracewarehouse.derive import Derived
    from tracewarehouse.history import RecordProgress, RecordReport
    from tracewarehouse.ingest.outcome import IngestReport, UpgradeReport, Watch
    from tracewarehouse.ingest.secret_removal import RemovalReport
    from tracewarehouse.ingest.secret_scan import SecretFound, SecretReport
    from tracewarehouse.runs.removal import Removed
    from tracewarehouse.warehouse_repair import RepairReport


class WarehouseWrites(WarehouseBase):
    """The methods that write: ingest, record, label, remove, upgrade, derive, repair, clean, refresh."""

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
        step_range: str | None = None,
        redact: bool = True,
        auto_labels: bool = False,
        progress: Watch | None = None,
    ) -> IngestReport:
        """Ingests trace files and folders; the report has the outcome of each file.

        An unreadable file does not stop the others. Ingesting the same content again writes nothing. Data
        that does not fit in memory spills to `temp_dir`, by default on the warehouse's disk. `time_unit` is
        the unit of times in the files if it is not that of their format. `step_range` is a regular expression
        for annotations that mark steps; its first group is the step number. With `redact`, strings that look
        like secrets are replaced. `auto_labels` labels runs by the environment of this call (git commit,
        batch job, …), as `tw ingest` does. Call `refresh` afterwards to write the file for DuckDB shells.
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
            step_range=step_range,
            redact=redact,
            auto_labels=auto_labels,
        )
        store = Store.open_or_create(self.root, tool=__version__)
        return ingest(store, self.catalog, paths, options, progress)

    def record(
        self,
        runs: str | Iterable[str] | None = None,
        *,
        analyses: str | Iterable[str] | None = None,
        progress: Callable[[RecordProgress], None] | None = None,
    ) -> RecordReport:
        """Stores results of analyses (`name` or `name@2`; None: all summaries) for `history`.

        Summaries are the analyses without a row per event, point in time or interval, in the newest version.

        Results of the runs (selectors; None: all) that are not recorded yet are computed, over all ranks,
        with default parameters, per step if an analysis supports it. Raises UnknownName.
        """
        from tracewarehouse.history import record

        named = [analyses] if isinstance(analyses, str) else analyses
        contracts = (
            tuple(contract for contract in self.catalog.analyses() if contract.is_summary)
            if named is None
            else tuple(self.catalog.get(name, kind="analysis") for name in dict.fromkeys(named))
        )
        selected = self.select(runs).selected()
        return record(self.store, self.catalog, selected, contracts, self._verified, progress)

    def acknowledge(self, metric: str, run: str, why: str | None) -> str:
        """Stores why a metric changed at a run, for its history; None removes it. Returns the run.

        Raises UnknownName, ParamError, also for a reason that looks like a secret.
        """
        from tracewarehouse.history import acknowledge
        from tracewarehouse.metric import parse_metric

        runs = self._recorded(run)
        if len(runs) != 1:
            names = ", ".join(each.selector for each in runs)
            raise UnknownName("single run", run, [], f"it matches {names}")
        self._check_text("the reason", {"reason": why})
        acknowledge(self.store, parse_metric(metric, self.catalog), runs[0], why)
        return runs[0].selector

    def recorded_runs(self) -> tuple[SelectedRun, ...]:
        """The selected runs in time order; of all runs, also removed ones with recorded results."""
        from tracewarehouse.history import runs_with_results

        if self._selected is not None:
            return self._selected
        return runs_with_results(self.store, self.selected())

    def _recorded(
        self, runs: str | Iterable[str] | None, where: str | Iterable[str] = ()
    ) -> tuple[SelectedRun, ...]:
        """The runs that match these selectors, including removed ones with recorded results."""
        from tracewarehouse.history import matching_runs

        selected = self.recorded_runs()
        named = [runs] if isinstance(runs, str) else runs
        return matching_runs(selected, named, [where] if isinstance(where, str) else where)

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

    def refresh(self) -> Path:
        """Writes `warehouse.duckdb` for DuckDB shells, over the current runs; returns its path.

        `tw shell` and `tw ingest` do so too. Every other write leaves the file out of date.
        """
        from tracewarehouse.query.shell_file import refresh

        return refresh(self.store, self.catalog)

    def upgrade(self) -> UpgradeReport:
        """Rebuilds tables that are stored in another version or by an earlier definition, from `events`.

        Results that were recorded under an earlier definition are recorded again. A warehouse of format 1 is
        converted first, rank by rank; repeat the call if it was interrupted. The report has a line per
        converted run, per rebuilt table and run, and per run with new results; none if nothing was done. It
        names ranks that could not be converted because their files are damaged: ingest their traces again.
        """
        from tracewarehouse.history import record_again
        from tracewarehouse.ingest.outcome import UpgradeReport
        from tracewarehouse.ingest.upgrade.rebuild import upgrade
        from tracewarehouse.storage.format1 import Format1

        converted = UpgradeReport(())
        if Format1.is_at(self.root):
            from tracewarehouse.ingest.upgrade.format1 import convert

            converted = convert(self.root, self.catalog, __version__)
            self.refresh()
        rebuilt, errors = upgrade(self.store, self.catalog, [each.run for each in self.selected()])
        recorded = record_again(self.store, self.catalog, self.selected(), self._verified)
        failed = {run: error.message for run, error in errors.items()}
        failed |= {each.run: hints.fill("{}; {}", each.why, each.hint or "") for each in self.left_out}
        return replace(converted, lines=(*converted.lines, *rebuilt, *recorded), failed=failed)

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
    ) -> Derived:
        """Computes tables that SQL cannot express, as a new version of the run.

        `blame` and `graphs` read all ranks of the run and have no scopes. `graphs` finds the operators of
        kernels in graph launches: captures are looked for in the trace itself, then in the run `capture`, by
        default in traces of the same folder with `capture` in their file name, for the same rank and world
        size. `critical_path` is computed for each complete
        step by default, or for the entire trace if there are no steps; else for steps by number, annotations
        as `NAME#K` (the K-th of that name, from 0), or the `entire_trace`. What is already derived is not
        computed again. Raises UnknownName, ParamError.
        """
        from tracewarehouse.contracts.contract import DERIVATIONS
        from tracewarehouse.derive import ScopeRequest, derive
        from tracewarehouse.derive.build import sources

        if name not in DERIVATIONS:
            raise UnknownName("derivation", name, DERIVATIONS)
        if name != "graphs" and capture is not None:
            raise ParamError(f"{name} reads no captures", "leave out capture")
        if name in ("blame", "graphs"):
            if ranks is not None or steps or annotations or entire_trace:
                raise ParamError(
                    f"{name} has no scopes", "leave out ranks, steps, annotations and entire_trace"
                )
            return self._derive_blame(run) if name == "blame" else self._derive_graphs(run, capture)
        entire_run = self._one(self._unversioned(run, "a derivation"))
        part = entire_run if ranks is None else entire_run.select(ranks=ranks)
        readable = self._readable(sources(self.catalog), part.selected(), Level.FULL)
        wanted = ScopeRequest.of(steps, annotations, entire_trace)
        derived = derive(self.store, self.catalog, readable.selected[0], wanted)
        return replace(derived, notices=(*readable.notices, *derived.notices))

    def _derive_blame(self, run: str) -> Derived:
        from tracewarehouse.derive.blame_store import derive_blame
        from tracewarehouse.derive.derived_source import sources

        (selected,) = self._one(self._unversioned(run, "a derivation")).selected()
        readable = self._readable(sources(self.catalog, "blame"), [selected], Level.FULL)
        derived = derive_blame(self.store, self.catalog, readable.selected[0])
        return replace(derived, notices=(*readable.notices, *derived.notices))

    def _derive_graphs(self, run: str, capture: str | None) -> Derived:
        from tracewarehouse.derive.derived_source import sources
        from tracewarehouse.derive.graph_store import CaptureRuns, derive_graphs

        (selected,) = self._one(self._unversioned(run, "a derivation")).selected()
        named = self._one(capture).selected() if capture is not None else ()
        tables = sources(self.catalog, "graphs")
        readable = self._readable(tables, [selected], Level.FULL)
        others = self._readable(tables, named or self.selected()).selected
        runs = CaptureRuns(others[0] if named else None, others)
        derived = derive_graphs(self.store, self.catalog, readable.selected[0], runs)
        return replace(derived, notices=(*readable.notices, *derived.notices))

    def secrets(self, runs: str | Iterable[str] | None = None) -> SecretReport:
        """What looks like a secret in everything stored, or in what is stored of some runs (names).

        Columns, headers, manifests, versions, recorded results, `warehouse.duckdb`, paths and traces in the
        inbox are searched by the rules of redaction. Nothing is changed.
        """
        from tracewarehouse.formats.redact import POLICY_FILE, policy_of
        from tracewarehouse.ingest.secret_scan import scan_warehouse

        wanted = [runs] if isinstance(runs, str) else runs
        names = None if wanted is None else [self._unversioned(run, "a search") for run in wanted]
        return scan_warehouse(self.store, names, policy_of(self.store.folder_with(POLICY_FILE)))

    def remove_secrets(
        self, runs: str | Iterable[str] | None = None, *, redact: bool = True, purge: bool = False
    ) -> RemovalReport:
        """Publishes clean versions of runs in which `secrets` finds some; `purge` deletes the old versions.

        Tables are built again from the stored events with secrets replaced; recorded results that held some
        are recorded again. Traces in the inbox stay as they are until they are ingested. With `purge`, no
        other process may write to the warehouse.
        """
        from tracewarehouse.formats.redact import POLICY_FILE, policy_of
        from tracewarehouse.ingest.inbox import INBOX
        from tracewarehouse.ingest.secret_removal import RemovalReport, SecretRemoval
        from tracewarehouse.query.shell_file import NAME
        from tracewarehouse.render.text import plural

        found = self.secrets(runs).found
        removal = SecretRemoval(self.store, self.catalog, policy_of(self.store.folder_with(POLICY_FILE)))
        lines: list[str] = []
        keys = {each.run for each in found if each.run and not each.file.startswith(f"{INBOX}/")}
        names, former = {key: self.store.spelling(key) for key in keys}, []
        for key, run in sorted(names.items()):
            files = {each.file for each in found if each.run == key}
            if redact and (files & removal.held_by_newest(run) or self._holds_secret_name(found, key)):
                names[key] = removal.redact(run)
                former += [run] if names[key] != run else []
                lines.append(f"{names[key]}: published without secrets")
        if redact:
            lines += self._record_without_secrets(found)
            reasons = removal.redact_reasons()
            lines += [f"{plural(reasons, 'acknowledgement reason')} redacted"] if reasons else []
        if purge and keys:
            removal.purge(sorted(set(names.values())), former)
            lines.append("old versions deleted")
        if lines and self.store.path(NAME).exists():
            self.refresh()
        left = self.secrets(runs).found
        return RemovalReport(tuple(lines), tuple(sorted({f"{each.file}: {each.where}" for each in left})))

    def _holds_secret_name(self, found: Iterable[SecretFound], key: str) -> bool:
        """Whether the name of a run that readers see is a secret itself."""
        is_named = any(each.run == key and each.where == "path" for each in found)
        return is_named and self.store.newest(key) is not None

    def _record_without_secrets(self, found: Iterable[SecretFound]) -> list[str]:
        """Deletes recorded results that hold secrets, and records them again."""
        files = sorted({each.file for each in found if each.file.startswith("results/")})
        folders = {file.rpartition("/")[0].replace("results/", "rollups/", 1) for file in files}
        for folder in sorted(folders):
            self.store.objects.delete([entry.key for entry in self.store.objects.walk(f"{folder}/")])
        self.store.objects.delete(files)
        analyses = sorted({file.split("/")[1] for file in files})
        runs = sorted({self.store.spelling(file.split("/")[2]) for file in files} & set(self.store.runs()))
        if analyses and runs:
            self.record(runs, analyses=analyses)
        return [f"{len(files)} recorded results redacted"] if files else []

    def verify(self, *, deep: bool = False) -> list[Problem]:
        """Problems of the stored files; `deep` downloads those of an object store to compare checksums."""
        from tracewarehouse.query.shell_file import NAME, fault
        from tracewarehouse.storage.format1 import Format1

        if Format1.is_at(self.root):
            return Format1(self.root).verify()
        what = fault(self.store.path(NAME))
        return [*self.store.verify(deep), *([Problem("", NAME, what)] if what else [])]

    def repair(
        self,
        runs: str | Iterable[str] | None = None,
        *,
        source: str | PathLike[str] | Iterable[str | PathLike[str]] = (),
        dry_run: bool = False,
    ) -> RepairReport:
        """Repairs damaged runs (names; None: the entire warehouse); nothing is ever deleted.

        Versions are restored from receipts and manifests, tables from the stored events, recorded results
        are computed again. Ranks whose events are damaged are dropped, unless their trace is among the files
        and folders of `source`. Damaged objects are moved to `_tw/quarantine`. The report says what was
        restored and what is lost; `dry_run` changes nothing. Raises UnknownName.
        """
        from tracewarehouse.warehouse_repair import repair

        named = [runs] if isinstance(runs, str) else runs
        paths = [source] if isinstance(source, str | PathLike) else list(source)
        return repair(self, named, paths, dry_run)

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
        if target_bytes < 1:
            raise ParamError("target_bytes is not positive", "give the size of a file in bytes")
        wanted = [runs] if isinstance(runs, str) else list(runs or ())
        wanted = [self._unversioned(each, "a compaction") for each in wanted]
        selected = self._matching(wanted) if wanted else self.selected()
        names = dict.fromkeys(each.run for each in selected)
        return tuple(self.store.compact(run, target_bytes, dry_run) for run in names)

    def retain(self, policy: str | PathLike[str], *, dry_run: bool = False) -> tuple[Expired, ...]:
        """Drops the tables that expired by a retention policy, a TOML file, from the runs.

        Analyses that read a dropped table skip its ranks; recorded results stay. Ingesting the same traces
        again restores them. Without `dry_run`, new versions are published; `clean` deletes the files.
        Raises ParamError for an invalid policy.
        """
        from tracewarehouse.runs.retention import expiring, read_policy

        rules, now = read_policy(Path(policy), self.catalog), datetime.now(UTC)
        found = {each.run: expiring(each.version, rules, now) for each in self.selected()}
        return tuple(self.store.expire(run, each, dry_run) for run, each in found.items() if each)

    def clean(
        self,
        grace_s: float = 86_400.0,
        *,
        quarantine: bool = False,
        keep_versions_s: float = KEEP_VERSIONS_S,
    ) -> CleanReport:
        """Deletes files that no kept version needs and that are older than `grace_s` seconds.

        Versions that were replaced within `keep_versions_s` seconds are kept, unless a later one has the same
        rows. Runs with lost or damaged objects are skipped. `quarantine` also deletes what repairs took out.
        """
        return self.store.clean(grace_s, quarantine, keep_versions_s)
