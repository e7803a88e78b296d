"""Repair of a warehouse: stored objects, then tables, derived tables, recorded results, and lost ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tracewarehouse import hints
from tracewarehouse.errors import SchemaVersionError, TwError, UnknownName, WarehouseError
from tracewarehouse.location import Location
from tracewarehouse.storage import Problem, disk_errors, layout, quarantine, root, run_key
from tracewarehouse.storage.objects import Objects
from tracewarehouse.storage.repair import RunRepair, Step, repair_side_objects
from tracewarehouse.storage.store import objects_at
from tracewarehouse.storage.verify import verify

if TYPE_CHECKING:
    from tracewarehouse.contracts.catalog import Catalog
    from tracewarehouse.ingest.outcome import IngestReport
    from tracewarehouse.ingest.repair import LostSource
    from tracewarehouse.runs.selection import SelectedRun
    from tracewarehouse.storage import Store
    from tracewarehouse.warehouse_base import WarehouseBase


class Repairable(Protocol):
    """A warehouse that can be written."""

    root: Location
    catalog: Catalog

    @property
    def store(self) -> Store: ...
    def select(self, runs: str) -> WarehouseBase: ...
    def ingest(self, *paths: Path, run: str, rank: int, settle_s: float) -> IngestReport: ...
    def refresh(self) -> Path: ...
    def _verified(self, selected: Sequence[SelectedRun]) -> WarehouseBase: ...


@dataclass(frozen=True)
class RepairReport:
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


def repair(
    warehouse: Repairable,
    runs: Iterable[str] | None,
    source: Sequence[str | PathLike[str]],
    dry_run: bool,
) -> RepairReport:
    """See `Warehouse.repair`."""
    from tracewarehouse.compare.history.record import repair_results

    steps: list[Step] = _identity(objects_at(warehouse.root), dry_run)
    if steps and dry_run:
        return RepairReport(tuple(steps))
    store = warehouse.store
    store.forget()
    keys = _keys(warehouse, runs)
    lost: list[LostSource] = []
    for key in keys:
        with _failures(store, key, steps):
            _repair_run(warehouse, key, dry_run, steps, lost)
        store.forget()
    named = None if runs is None else keys
    with _failures(store, "", steps):
        # Step by step: those before a failure count.
        steps.extend(repair_side_objects(store, named, dry_run))
        steps.extend(repair_results(store, warehouse.catalog, keys, warehouse._verified, dry_run))
        if source and lost and not dry_run:
            _ingest_again(warehouse, lost, [Path(path) for path in source], steps)
        if runs is None:
            steps += _shell_file(warehouse, dry_run)
    problems = () if dry_run else _problems(warehouse, named)
    return RepairReport(tuple(steps), tuple(problems))


@contextmanager
def _failures(store: Store, run: str, steps: list[Step]) -> Iterator[None]:
    """Adds a failed step for an error of the block; a full disk or a refused write is one."""
    try:
        with disk_errors(store.folder):
            yield
    except TwError as error:
        store.forget()
        steps.append(Step(run, "", f"repair failed: {error.message}", is_failure=True))


def _identity(objects: Objects, dry_run: bool) -> list[Step]:
    """Writes `_tw/warehouse.json` again if it is lost or damaged, though runs are stored."""
    try:
        root.read(objects)
    except SchemaVersionError:
        raise
    except WarehouseError:
        if not objects.folders(f"{layout.RUNS}/"):
            raise
    else:
        return []
    if not dry_run:
        with disk_errors(objects.url):
            for _, data in objects.get_many([layout.WAREHOUSE]):
                if data is not None:
                    objects.put({f"{layout.QUARANTINE}/@warehouse/{layout.WAREHOUSE}": data})
                    objects.delete([layout.WAREHOUSE])
            root.restore(objects)
    return [Step("", layout.WAREHOUSE, "written again; the salt of redacted values is lost", is_loss=True)]


def _keys(warehouse: Repairable, runs: Iterable[str] | None) -> tuple[str, ...]:
    store = warehouse.store
    folders = (layout.RUNS, layout.RECEIPTS, layout.SOURCES, layout.WAITING, layout.KEPT)
    known = sorted({key for folder in folders for key in store.keys(folder)})
    if runs is None:
        return tuple(known)
    wanted = tuple(dict.fromkeys(map(run_key, runs)))
    for key in wanted:
        if key not in known:
            raise UnknownName("run", key, [store.name(each) for each in known])
    return wanted


def _repair_run(
    warehouse: Repairable, key: str, dry_run: bool, steps: list[Step], lost: list[LostSource]
) -> None:
    """Repairs one run; adds what was done to `steps`, also if it fails in the middle."""
    from tracewarehouse.ingest.repair import TableRepair

    objects = RunRepair(warehouse.store, key, dry_run)
    try:
        objects.repair()
    finally:
        steps += objects.steps
    warehouse.store.forget()
    tables = TableRepair(warehouse.store, warehouse.catalog, key, objects.versions, dry_run)
    try:
        tables.repair()
    except BaseException:
        steps += [step for step in tables.steps if step.is_loss]  # nothing was rebuilt
        raise
    steps += tables.steps
    lost += tables.lost
    warehouse.store.forget()
    if tables.underived:
        steps.append(_derive_again(warehouse, key, tables.underived, dry_run))


def _derive_again(warehouse: Repairable, key: str, ranks: Sequence[int], dry_run: bool) -> Step:
    """Derives the scopes again that the ranks had."""
    from tracewarehouse.derive import ScopeRequest, derive
    from tracewarehouse.derive.critical_path import stored_scopes

    name = warehouse.store.name(key)
    step = Step(key, layout.versions(key), f"critical_path derived again for rank {min(ranks)} and others")
    if len(ranks) == 1:
        step = Step(key, layout.versions(key), f"critical_path derived again for rank {ranks[0]}")
    if dry_run:
        return step
    try:
        by_scopes: dict[tuple[str, ...], list[int]] = defaultdict(list)
        selected = warehouse.select(runs=name).select(ranks=ranks).selected()[0]
        for rank in selected.by_rank:
            by_scopes[stored_scopes(rank)].append(rank.rank)
        for scopes, of in by_scopes.items():
            part = warehouse.select(runs=name).select(ranks=of).selected()[0]
            derive(warehouse.store, warehouse.catalog, part, ScopeRequest(scopes))
    except TwError as error:
        hint = hints.derive("critical_path", name)
        text = hints.fill("critical_path lost: {}; {}", error.message, hint)
        return Step(key, layout.versions(key), text, is_loss=True)
    return step


def _ingest_again(
    warehouse: Repairable, lost: Sequence[LostSource], paths: Sequence[Path], steps: list[Step]
) -> None:
    """Ingests the traces of lost ranks that are among the paths, each for its own run and rank."""
    from tracewarehouse.formats.file_text import prefix_digest
    from tracewarehouse.ingest.survey import discover

    files = [each.path for each in discover(list(paths)).files]
    for one in lost:
        for path in files:
            try:
                is_same = prefix_digest(path, one.text_bytes) == one.digest
            except (TwError, OSError):
                continue
            if is_same:
                report = warehouse.ingest(path, run=one.run, rank=one.rank, settle_s=0)
                if report.exit_code == 0:
                    at = next(number for number, step in enumerate(steps) if step.what == one.line)
                    text = f"rank {one.rank} ingested again from {path}"
                    steps[at] = Step(steps[at].run, steps[at].key, text)
                    break


def _shell_file(warehouse: Repairable, dry_run: bool) -> list[Step]:
    """Quarantines a damaged warehouse.duckdb and writes it again."""
    from tracewarehouse.query.shell_file import NAME, fault

    what = fault(warehouse.store.path(NAME))
    if what is None:
        return []
    if not dry_run:
        quarantine.take_out(warehouse.store, NAME)
        try:
            warehouse.refresh()
        except (TwError, OSError) as error:
            return [Step("", NAME, f"derived file quarantined; not written again: {error}")]
    return [Step("", NAME, "derived file written again")]


def _problems(warehouse: Repairable, keys: Sequence[str] | None) -> list[Problem]:
    found = verify(warehouse.store)
    return found if keys is None else [each for each in found if each.run and run_key(each.run) in keys]
