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
from tracewarehouse.storage.parquet_file import UNREADABLE, Level, fault


def intact_runs(
    store: Versions,
    catalog: Catalog,
    contracts: Iterable[Contract],
    selected: Sequence[SelectedRun],
    level: Level,
    allow_none: bool = False,
) -> ReadableRuns:
    """The runs whose files of these tables pass the check, and notices about the others.

    Raises DamagedRunError for a damaged run that was selected by name, or if no run is left, unless
    `allow_none`.
    """
    wanted = {each.ref for table in contracts if table.is_stored for each in catalog.compatible(table)}
    tables = frozenset((ref.name, ref.version) for ref in wanted)
    faults = file_faults(store, selected, level, tables)
    if not faults:
        return ReadableRuns(tuple(selected))
    intact = tuple(each for each in selected if each.run not in faults)
    for each in selected:
        if each.run in faults and (each.named or not (intact or allow_none)):
            raise damaged_run(each.run, faults[each.run])
    return ReadableRuns(intact, _notices(faults))


def file_faults(
    store: Versions,
    selected: Sequence[SelectedRun],
    level: Level,
    tables: Collection[tuple[str, int]] | None = None,
) -> dict[str, str]:
    """Run → its first damaged file and the problem, of these tables (name, version) or of all."""
    files = {each.run: _files(each.sources, tables) for each in selected}
    problems = store.fetch(file for each in files.values() for file in each)
    found = ((run, _fault(store, each, problems, level)) for run, each in files.items())
    return {run: what for run, what in found if what is not None}


def damaged_run(run: str, what: str) -> DamagedRunError:
    """The error of a run with a damaged file."""
    if UNREADABLE in what:
        return DamagedRunError(
            f"run {run} cannot be read: {what}", "check the owner and permissions of the file"
        )
    return DamagedRunError(f"run {run} is damaged: {what}", hints.repair(run))


def _notices(faults: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"run {run} is left out: {what}"
        if UNREADABLE in what
        else hints.fill("run {} is damaged and left out: {}; {}", run, what, hints.repair(run))
        for run, what in faults.items()
    )


def _files(
    sources: Iterable[RankSource], tables: Collection[tuple[str, int]] | None
) -> tuple[TableFile, ...]:
    """The files of these tables, each once."""
    files = {
        file.path: file
        for source in sources
        for file in source.files
        if tables is None or (file.table, file.version) in tables
    }
    return tuple(files.values())


def _fault(
    store: Versions, files: Iterable[TableFile], problems: Mapping[str, str], level: Level
) -> str | None:
    for file in files:
        what = problems.get(file.path) or fault(store.path(file.path), file, level)
        if what is not None:
            store.files.forget(file.path)
            return f"{file.path}: {what}"
    return None
