"""Runs whose files are intact: the others are left out with a notice, or are an error if they were named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
    faults = {each.run: what for each in selected if (what := _fault(store, each.sources, tables, level))}
    if not faults:
        return ReadableRuns(tuple(selected))
    intact = tuple(each for each in selected if each.run not in faults)
    for each in selected:
        if each.run in faults and (each.named or not intact):
            raise DamagedRunError(f"run {each.run} is damaged: {faults[each.run]}", hints.repair(each.run))
    return ReadableRuns(intact, _notices(faults))


def _notices(faults: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        hints.fill("run {} is damaged and left out: {}; {}", run, what, hints.repair(run))
        for run, what in faults.items()
    )


def _fault(
    store: Versions, sources: Iterable[RankSource], tables: frozenset[tuple[str, int]], level: Level
) -> str | None:
    """The first damaged file of these tables and its problem."""
    files: dict[str, TableFile] = {}
    for source in sources:
        for file in source.files:
            if (file.table, file.version) in tables:
                files[file.path] = file
    found = ((key, fault(store.path(key), file, level)) for key, file in files.items())
    return next((f"{key}: {what}" for key, what in found if what is not None), None)
