"""Runs whose files are intact: the others are left out with a notice, or are an error if they were named."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.errors import DamagedRunError
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.runs.table_versions import ReadableRuns
from tracewarehouse.storage import RankSource, TableFile, Versions
from tracewarehouse.storage.file_check import Level, fault


def intact_runs(
    store: Versions,
    catalog: Catalog,
    contracts: Iterable[Contract],
    selected: Sequence[SelectedRun],
    level: Level,
) -> ReadableRuns:
    """The runs whose files of these tables pass the check, and notices about the others.

    Raises DamagedRunError for a damaged run that was selected by name, or if no run is left.
    """
    wanted = {each.ref for table in contracts if table.is_stored for each in catalog.compatible(table)}
    tables = frozenset((ref.name, ref.version) for ref in wanted)
    faults = file_faults(store, selected, level, tables)
    if not faults:
        return ReadableRuns(tuple(selected))
    intact = tuple(each for each in selected if each.run not in faults)
    for each in selected:
        if each.run in faults and (each.named or not intact):
            raise damaged_run(each.run, faults[each.run])
    return ReadableRuns(intact, _notices(faults))


def file_faults(
    store: Versions,
    selected: Sequence[SelectedRun],
    level: Level,
    tables: Collection[tuple[str, int]] | None = None,
) -> dict[str, str]:
    """Run → its first damaged file and the problem, of these tables (name, version) or of all."""
    found = ((each.run, _fault(store, each.sources, tables, level)) for each in selected)
    return {run: what for run, what in found if what is not None}


def damaged_run(run: str, what: str) -> DamagedRunError:
    """The error of a run with a damaged file."""
    return DamagedRunError(f"run {run} is damaged: {what}", hints.repair(run))


def _notices(faults: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        hints.fill("run {} is damaged and left out: {}; {}", run, what, hints.repair(run))
        for run, what in faults.items()
    )


def _fault(
    store: Versions, sources: Iterable[RankSource], tables: Collection[tuple[str, int]] | None, level: Level
) -> str | None:
    files: dict[str, TableFile] = {}
    for source in sources:
        for file in source.files:
            if tables is None or (file.table, file.version) in tables:
                files[file.path] = file
    found = ((key, fault(store.path(key), file, level)) for key, file in files.items())
    return next((f"{key}: {what}" for key, what in found if what is not None), None)
