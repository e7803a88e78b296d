"""Which selected runs and ranks can answer: their table versions, the data they recorded, intact files.

Reading never builds a missing table: only `tw upgrade` does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import DERIVATIONS, DERIVED_NEEDS, Contract
from tracewarehouse.errors import DamagedRunError, SchemaVersionError
from tracewarehouse.exact_text import rank_list
from tracewarehouse.result import Skipped
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage.model import (
    Json,
    Rank,
    RankSource,
    RunVersion,
    TableFile,
    UnreadableRun,
    once_per_version,
)
from tracewarehouse.storage.objects import ColumnCopies
from tracewarehouse.storage.parquet_file import UNREADABLE, Level, fault
from tracewarehouse.storage.versions import Versions

# Format → what is untested on real data.
_UNTESTED: Final = {
    "execution_trace": "execution trace: collectives of NCCL",
    "flight_recorder": "flight recorder dumps of NCCL",
    "memory_snapshot": "memory snapshots of a GPU",
    "nsight_compute": "Nsight Compute files",
    "rocpd": "rocpd files",
    "rocprofv3": "rocprofv3: memory copies, and HIP, HSA, RCCL and marker calls",
    "rpd": "rpd files",
    "xplane": "profiles of JAX: NVIDIA GPUs and TPUs",
}
_NSYS: Final = ("nsys", "nsys_report")
# The schema of the real exports that were read.
_TESTED_SCHEMA: Final = "3.25."


def untested(sources: Iterable[RankSource]) -> tuple[str, ...]:
    """What the sources hold that is untested on real data, each once."""
    texts = (_of(source) for source in sources)
    return tuple(sorted({text for text in texts if text is not None}))


def _of(source: RankSource) -> str | None:
    if source.format not in _NSYS:
        return _UNTESTED.get(source.format)
    schema = source.facts.get("source_schema")
    is_tested = isinstance(schema, str) and schema.startswith(_TESTED_SCHEMA)
    if source.facts.get("source_layout") == "parquetdir":
        return "Nsight Systems: folders of Parquet files"
    return None if is_tested else f"Nsight Systems: export schema {schema or 'unknown'}"


def expired_reason(tables: Mapping[str, str]) -> str:
    """`expired: events, flows, 2026-11-22`: why a rank without these tables is skipped."""
    return f"expired: {', '.join([*sorted(tables), max(tables.values())])}"


def expired_of(rank: Rank, tables: Collection[str]) -> dict[str, str]:
    """The tables that expired of the rank, and when."""
    return {table: date for table, date in rank.expired.items() if table in tables}


def expired_lines(run: str, ranks: Iterable[Rank], tables: Collection[str]) -> list[str]:
    """A line for the ranks of a run of which some of the tables expired, so that they have no rows there."""
    by_rank = {rank.rank: expired for rank in ranks if (expired := expired_of(rank, tables))}
    if not by_rank:
        return []
    dates = {table: date for expired in by_rank.values() for table, date in expired.items()}
    return [f"{run} rank {rank_list(by_rank)}: {expired_reason(dates)}"]


FACT: Final = "derived"
OF_RUN: Final = ("wait_attribution",)  # derivations that read all ranks of a run


def is_current(version: RunVersion, rank: Rank, name: str) -> bool:
    """Whether the rank has the derived tables, made from the ranks that the run has now."""
    return derived_fact(rank, name).get("ranks") == version.source


def is_derived(catalog: Catalog, run: SelectedRun, name: str) -> bool:
    """Whether all ranks have the derived tables, as this release defines them, made from the ranks of now."""
    current_hash = catalog.effective_hash(catalog.get(DERIVATIONS[name], kind="table"))
    return all(
        derived_fact(rank, name).get("hash") == current_hash and is_current(run.version, rank, name)
        for rank in run.by_rank
    )


def why_nothing(rank: Rank, name: str) -> str | None:
    """Why the derived tables have no rows, as found when they were derived; None if they have rows."""
    reason = derived_fact(rank, name).get("nothing")
    return reason if isinstance(reason, str) else None


def derived_fact(rank: Rank, name: str) -> dict[str, Json]:
    """What a derivation recorded for a rank; empty if the rank does not have it."""
    derived = rank.main.facts.get(FACT)
    fact = derived.get(name) if isinstance(derived, dict) else None
    return fact if isinstance(fact, dict) else {}


# A reason to skip a rank begins with it.
WITHOUT_TABLES = "stored without"


class ReadableRuns(Struct, frozen=True):
    """The selected runs whose ranks all have the tables that are read, and notices about the others.

    `left_out` are those with damaged files.
    """

    selected: tuple[SelectedRun, ...]
    notices: tuple[str, ...] = ()
    left_out: tuple[UnreadableRun, ...] = ()


def stored_versions(source: Rank | RankSource, table: str) -> frozenset[int] | None:
    """The stored versions of a table of a source or rank, including empty ones; None if unknown."""
    in_files = frozenset(file.version for file in source.files if file.table == table)
    tables = source.facts.get("tables")
    if not isinstance(tables, dict):
        return in_files or None
    listed = tables.get(table, [])
    versions = listed if isinstance(listed, list) else [listed]
    return in_files.union(version for version in versions if isinstance(version, int))


def readable_runs(
    catalog: Catalog,
    contracts: Iterable[Contract],
    selected: Sequence[SelectedRun],
    optional: Collection[str] = (),
) -> ReadableRuns:
    """The runs that have these tables in this version or a later compatible one.

    A run with a rank that lacks one is excluded entirely, so that all its rows have the same definition;
    not if it was stored without an `optional` one, of which a notice reports this. Raises SchemaVersionError
    if no run remains.
    """
    checked = [table for table in contracts if _is_checked(table)]
    tables = [table for table in checked if table.name not in optional]
    serving = [
        {version.version for version in catalog.compatible(table) if version.version >= table.version}
        for table in tables
    ]
    selected, expired = _without_expired(tables, selected)
    absent = without_tables(catalog, [table for table in checked if table.name in optional], selected)
    notices = (*expired, *_absent_notices(absent), *_built_earlier(tables, selected))
    return _split(catalog, tables, serving, selected, notices)


def without_tables(
    catalog: Catalog, contracts: Iterable[Contract], selected: Sequence[SelectedRun]
) -> dict[str, tuple[str, ...]]:
    """Run → the names of these tables that it was stored without, in any version; only runs without one.

    An earlier release did not have the tables yet; `tw upgrade` builds them.
    """
    tables = [table for table in contracts if _is_checked(table)]
    return {
        run.run: lacking
        for run in selected
        if (lacking := tuple(table.name for table in tables if _is_absent(run, table, catalog)))
    }


def _absent_notices(absent: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for run, tables in absent.items():
        yield hints.fill("{} was stored without {}: {}", run, ", ".join(tables), hints.rebuild())


def absent_reason(tables: Iterable[str]) -> str:
    """Why a rank of a run without these tables is skipped."""
    return hints.fill("{} {}, needs {}", WITHOUT_TABLES, ", ".join(tables), hints.call("upgrade"))


def queryable_runs(
    catalog: Catalog,
    contracts: Iterable[Contract],
    selected: Sequence[SelectedRun],
    names: Collection[str] | None,
    may_be_absent: bool = False,
) -> ReadableRuns:
    """Like `readable_runs`, for a user's SQL: columns that a run was stored without are null.

    A notice reports this if the SQL names such a column (`names`; None: it may name all of them). A run
    without any version of a table is excluded, unless tables `may_be_absent`: it has no rows there.
    """
    tables = [table for table in contracts if _is_checked(table)]
    absent = without_tables(catalog, tables, selected) if may_be_absent else {}
    missing = {name for lacking in absent.values() for name in lacking}
    tables = [table for table in tables if table.name not in missing]
    serving = [{version.version for version in catalog.compatible(table)} for table in tables]
    names_of = {table.name for table in tables}
    notices = [line for run in selected for line in expired_lines(run.run, run.by_rank, names_of)]
    notices += [*_absent_notices(absent), *_built_earlier(tables, selected)]
    notices += _null_columns(catalog, tables, selected, names)
    return _split(catalog, tables, serving, selected, notices)


def why_outdated(catalog: Catalog, contracts: Iterable[Contract], run: SelectedRun) -> str | None:
    """Why a run lacks tables of this release: they are missing, or were built by an earlier definition."""
    try:
        notices = readable_runs(catalog, contracts, [run]).notices
    except SchemaVersionError as error:
        return hints.fill("{}: {}", error.message, error.hint)
    return notices[0] if notices else None


def _is_checked(contract: Contract) -> bool:
    """Whether the table must be stored; derived tables are checked as needs of analyses instead."""
    return contract.is_stored and not contract.derived


def _is_absent(run: SelectedRun, table: Contract, catalog: Catalog) -> bool:
    """Whether a rank has the table in no version of any release."""
    versions = {ref.version for ref in catalog.refs("table") if ref.name == table.name}
    return any(_lacks(rank, table, versions) for rank in _unlike(run.version, run.ranks))


def _split(
    catalog: Catalog,
    tables: Sequence[Contract],
    serving: Sequence[Collection[int]],
    selected: Sequence[SelectedRun],
    notices: Iterable[str],
) -> ReadableRuns:
    """The runs that have each table in one of its `serving` versions, and notices about the others."""
    missing: list[tuple[Contract, list[SelectedRun]]] = []
    for table, versions in zip(tables, serving, strict=True):
        runs = _lacking(selected, table, versions)
        missing += [(table, runs)] if runs else []
    excluded = {run.run for _, runs in missing for run in runs}
    readable = tuple(run for run in selected if run.run not in excluded)
    if excluded and not readable:
        refs = ", ".join(str(table.ref) for table, _ in missing)
        verb = "does" if len(selected) == 1 else "do"
        raise SchemaVersionError(
            f"{', '.join(run.selector for run in selected)} {verb} not have {refs}",
            _remedy(catalog, [table for table, _ in missing]),
        )
    lines = (
        hints.fill("excluded {}, stored without {}: {}", _named(runs), table.ref, _remedy(catalog, [table]))
        for table, runs in missing
    )
    return ReadableRuns(readable, (*lines, *notices))


def _lacking(
    selected: Iterable[SelectedRun], table: Contract, versions: Collection[int]
) -> list[SelectedRun]:
    """The runs with a rank that has the table in none of these versions."""
    ranks = ((run, _unlike(run.version, run.ranks)) for run in selected)
    return [run for run, unlike in ranks if any(_lacks(rank, table, versions) for rank in unlike)]


def check_unexpired(contracts: Iterable[Contract], selected: Sequence[SelectedRun]) -> None:
    """Raises SchemaVersionError if one of the tables expired of a selected rank."""
    for run in selected:
        _without_expired([table for table in contracts if table.is_stored], [run])


def _without_expired(
    tables: Iterable[Contract], selected: Sequence[SelectedRun]
) -> tuple[Sequence[SelectedRun], tuple[str, ...]]:
    """The runs of which none of the tables expired, and a line for each other run.

    Raises SchemaVersionError if no run remains.
    """
    names = {table.name for table in tables}
    expired_reasons: dict[str, str] = {}
    for run in selected:
        unlike = _unlike(run.version, run.ranks)
        expired = {table: day for rank in unlike for table, day in expired_of(rank, names).items()}
        if expired:
            expired_reasons[run.run] = expired_reason(expired)
    if expired_reasons and len(expired_reasons) == len(selected):
        raise SchemaVersionError(
            "; ".join(f"{run.selector}: {expired_reasons[run.run]}" for run in selected), hints.ingest_again()
        )
    readable = [run for run in selected if run.run not in expired_reasons]
    return readable, tuple(f"excluded {run_id}: {reason}" for run_id, reason in expired_reasons.items())


@once_per_version
def _unlike(version: RunVersion, ranks: tuple[int, ...]) -> tuple[Rank, ...]:
    """One of the ranks for each set of tables, of which a run of many ranks has few."""
    by_tables = {}
    for rank in SelectedRun(version, ranks).by_rank:
        held = sorted({(file.table, file.version) for file in rank.files})
        definitions = [source.definitions for source in rank.sources]
        by_tables[repr((held, definitions, rank.facts.get("tables"), rank.expired))] = rank
    return tuple(by_tables.values())


def _lacks(rank: Rank, table: Contract, versions: Collection[int]) -> bool:
    if table.name in rank.expired or not rank.tables.get(table.name, frozenset()).isdisjoint(versions):
        return False
    stored = stored_versions(rank, table.name)
    return stored is not None and stored.isdisjoint(versions)


def _remedy(catalog: Catalog, tables: Iterable[Contract]) -> str:
    """The remedy for missing tables; versions that were replaced by a later one cannot be built."""
    for table in tables:
        newest = catalog.get(table.name, kind="table")
        if newest not in catalog.compatible(table):
            return f"{newest.ref} has replaced {table.ref}; run a newer version of the analysis"
    return hints.rebuild()


def _built_earlier(tables: Iterable[Contract], selected: Sequence[SelectedRun]) -> Iterator[str]:
    """A notice for each table that was built by an earlier definition than that of this release."""
    for table in tables:
        runs = [
            run
            for run in selected
            if any(
                is_outdated(source, table)
                for rank in _unlike(run.version, run.ranks)
                for source in rank.sources
            )
        ]
        if runs:
            yield hints.fill(
                "{} of {} was built by an earlier definition: {}", table.ref, _named(runs), hints.rebuild()
            )


def is_outdated(source: RankSource, table: Contract) -> bool:
    """Whether the source's rows were built by an earlier definition of the table."""
    definition = source.definitions.get(table.name)
    return bool(definition and table.definition) and definition < table.definition  # type: ignore[operator]


def _null_columns(
    catalog: Catalog,
    tables: Iterable[Contract],
    selected: Sequence[SelectedRun],
    names: Collection[str] | None,
) -> Iterator[str]:
    """A notice for the columns that the SQL names and that some runs were stored without."""
    for table in tables:
        serving = catalog.compatible(table)
        older = [version for version in serving if version.version < table.version]
        if not older:
            continue
        runs = _lacking(selected, table, {version.version for version in serving if version not in older})
        older_names = {column.name for column in older[0].columns}
        added = [column.name for column in table.columns if column.name not in older_names]
        named_columns = [name for name in added if names is None or name in names]
        if runs and named_columns:
            column = f"{table.name}.{', '.join(named_columns)}"
            yield hints.fill("{} is null in {}, stored without it: {}", column, _named(runs), hints.rebuild())


def _named(runs: Sequence[SelectedRun]) -> str:
    others = f" and {len(runs) - 3} more" if len(runs) > 3 else ""
    return ", ".join(run.run for run in runs[:3]) + others


_MISSING = {
    "gpu": "no GPU activities recorded",
    "cpu_only": "GPU activities recorded",
    "launches": "no launches recorded",
    "shapes": "no input shapes recorded",
    "stacks": "no Python stacks recorded",
    "modules": "no modules recorded",
    "memory_events": "no memory events recorded",
    "memory_timeline": "no memory timeline",
    "snapshot": "no memory snapshot",
    "flight_records": "no flight recorder dump",
    "kernel_metrics": "no Nsight Compute metrics",
    "execution_nodes": "no execution trace",
    "collective_args": "no collective arguments recorded",
    "collectives": "no collectives recorded",
    "message_sizes": "no message sizes of collectives recorded",
    "counters": "no counters recorded",
    "gpu_metrics": "no sampled GPU metrics",
    "kernel_counters": "no kernel counters recorded",
    "device_properties": "no device properties recorded",
    "host": "no host name recorded",
}

# Reasons are stored with recorded results, so they name no command; `missing_derivations` does.
_NOT_DERIVED = "{} is not derived"
_OUTDATED = "{} is not derived for the ranks that the run has now"


class CapableRanks(Struct, frozen=True):
    """The ranks that have the data an analysis needs, and the skipped ones."""

    selected: tuple[SelectedRun, ...]
    skipped: tuple[Skipped, ...]


def missing_derivations(skipped: Iterable[Skipped]) -> tuple[hints.Hint, ...]:
    """The commands that derive missing tables, one per run."""
    needs = {text.format(need): need for need in DERIVED_NEEDS for text in (_NOT_DERIVED, _OUTDATED)}
    missing = dict.fromkeys((needs[rank.reason], rank.run_id) for rank in skipped if rank.reason in needs)
    return tuple(hints.derive(need, run) for need, run in missing)


def without_expired(
    contract: Contract, read: Iterable[Contract], selected: Sequence[SelectedRun]
) -> CapableRanks:
    """The selected ranks of which no table expired that the analysis reads; `read`: also through views."""
    tables = {table.name for table in read if table.is_stored} - set(contract.optional)
    reasons: dict[str, dict[int, str]] = {}
    for run in selected:
        expired = ((rank.rank, expired_of(rank, tables)) for rank in run.by_rank)
        reasons[run.run] = {rank: expired_reason(dates) for rank, dates in expired if dates}
    return _capable(selected, reasons)


def with_capabilities(contract: Contract, selected: Sequence[SelectedRun]) -> CapableRanks:
    """The selected ranks that have the data the contract needs; the others with the first missing kind."""
    return _capable(selected, {run.run: _reasons(contract, run) for run in selected})


def _capable(selected: Sequence[SelectedRun], reasons: Mapping[str, Mapping[int, str]]) -> CapableRanks:
    """The ranks without a reason to skip them, by run, and the skipped ones."""
    capable: list[SelectedRun] = []
    skipped: list[Skipped] = []
    for run in selected:
        of_run = reasons[run.run]
        skipped += [Skipped(run.run, rank, reason) for rank, reason in of_run.items()]
        if ranks := tuple(rank for rank in run.ranks if rank not in of_run):
            capable.append(replace(run, ranks=ranks))
    return CapableRanks(tuple(capable), tuple(skipped))


def _reasons(contract: Contract, selected: SelectedRun) -> dict[int, str]:
    ranks = selected.by_rank
    rank_needs = [need for need in contract.needs if not need.startswith("ranks>=")]
    versions = {ref.name: ref.version for ref in contract.requires}
    checked = {rank.rank: _missing_data(selected.version, rank, rank_needs, versions) for rank in ranks}
    reasons = {rank: reason for rank, reason in checked.items() if reason}
    capable_ranks = len(ranks) - len(reasons)
    for need in contract.needs:
        if need.startswith("ranks>=") and capable_ranks < _number(need):
            too_few = f"requires {_plural(_number(need), 'rank')}, found {capable_ranks}"
            return {rank.rank: reasons.get(rank.rank, too_few) for rank in ranks}
    return reasons


def _missing_data(
    version: RunVersion, rank: Rank, needs: Sequence[str], versions: Mapping[str, int]
) -> str | None:
    """Why the rank is skipped; None if it has all the data."""
    for need in needs:
        if need in DERIVED_NEEDS:
            if versions.get(need) not in (stored_versions(rank, need) or ()):
                return _NOT_DERIVED.format(need)
            if need in OF_RUN and not is_current(version, rank, need):
                return _OUTDATED.format(need)
            if nothing := why_nothing(rank, need):
                return nothing
            continue
        if need.startswith("steps>="):
            steps = rank.facts.get("steps") or 0
            if not isinstance(steps, int) or steps < _number(need):
                return f"requires {_plural(_number(need), 'step')}, found {steps}"
        elif not _has(rank, need):
            return _MISSING[need]
    return None


def _has(rank: Rank, need: str) -> bool:
    if need == "message_sizes":
        # Arguments of collectives, the input shapes of their annotations, which only PyTorch records, or
        # NCCL's payloads.
        shapes = rank.facts.get("shapes") and rank.main.format == "kineto"
        payloads = rank.main.facts.get("message_sizes")
        return bool(rank.facts.get("collective_args") or shapes or payloads)
    if need == "cpu_only":
        return not rank.facts.get("gpu")
    return rank.facts.get(need) not in (None, False)  # the host is a name


def _number(need: str) -> int:
    return int(need.partition(">=")[2])


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def compatible_tables(catalog: Catalog, contracts: Iterable[Contract]) -> frozenset[tuple[str, int]]:
    """Name and version of each stored table that can be read for these contracts."""
    stored = (table for table in contracts if table.is_stored)
    readable = (contract for table in stored for contract in catalog.compatible(table))
    return frozenset((contract.name, contract.version) for contract in readable)


def intact_runs(
    store: Versions,
    catalog: Catalog,
    contracts: Iterable[Contract],
    selected: Sequence[SelectedRun],
    level: Level,
    allow_none: bool = False,
    columns: ColumnCopies | None = None,
) -> ReadableRuns:
    """The runs whose files of these tables pass the check, and notices about the others.

    Of large remote files, copies with only `columns` may be read.

    Raises DamagedRunError for a damaged run that was selected by name, or if no run is left, unless
    `allow_none`.
    """
    faults = file_faults(store, selected, level, compatible_tables(catalog, contracts), columns)
    if not faults:
        return ReadableRuns(tuple(selected))
    intact = tuple(run for run in selected if run.run not in faults)
    for run in selected:
        if run.run in faults and (run.named or not (intact or allow_none)):
            raise damaged_run(run.run, faults[run.run])
    return ReadableRuns(intact, left_out=tuple(_unreadable(run, fault) for run, fault in faults.items()))


def file_faults(
    store: Versions,
    selected: Sequence[SelectedRun],
    level: Level,
    tables: Collection[tuple[str, int]] | None = None,
    columns: ColumnCopies | None = None,
) -> dict[str, str]:
    """Run → its first damaged file and the problem, of these tables (name, version) or of all."""
    only = None if tables is None else frozenset(tables)
    files = {run.run: _files(run.version, run.ranks, only) for run in selected}
    if columns is not None:
        store.files.copy_columns((file for listed in files.values() for file in listed), columns)
        files = {run: tuple(file for file in files[run] if file.path not in columns.copies) for run in files}
    problems = store.files.fetch(file for listed in files.values() for file in listed)
    return {
        run.run: _gone(store, run.version) or fault
        for run in selected
        if (fault := _fault(store, files[run.run], problems, level)) is not None
    }


# Why a version that was read before has no files now.
_GONE: Final = ("it was removed", "it was replaced")


def _gone(store: Versions, version: RunVersion) -> str | None:
    entry = store.entry(version.run)
    if entry is None or entry.number <= version.number:
        return None
    is_deleted = entry.tombstone or version.number not in store.versions(version.run)
    return _GONE[not entry.tombstone] if is_deleted else None


def damaged_run(run: str, what: str) -> DamagedRunError:
    """The error of a run with a damaged file."""
    if what in _GONE:
        return DamagedRunError(
            f"run {run} {what.removeprefix('it ')}", "list the runs that there are, and select again"
        )
    if UNREADABLE in what:
        return DamagedRunError(
            f"run {run} cannot be read: {what}", "check the owner and permissions of the file"
        )
    return DamagedRunError(f"run {run} is damaged: {what}", hints.repair(run))


def _unreadable(run: str, what: str) -> UnreadableRun:
    is_damaged = UNREADABLE not in what and what not in _GONE
    return UnreadableRun(run, what.partition(": ")[0], what, hints.repair(run) if is_damaged else None)


@once_per_version
def _files(
    version: RunVersion, ranks: tuple[int, ...], tables: frozenset[tuple[str, int]] | None
) -> tuple[TableFile, ...]:
    """The files of these ranks with these tables (name, version), None for all."""
    of_ranks = SelectedRun(version, ranks).files
    files = (file for file in of_ranks if tables is None or (file.table, file.version) in tables)
    return tuple({file.path: file for file in files}.values())


def _fault(
    store: Versions, files: Iterable[TableFile], problems: Mapping[str, str], level: Level
) -> str | None:
    for file in files:
        problem = problems.get(file.path) or fault(store.path(file.path), file, level)
        if problem is not None:
            store.files.forget(file.path)
            return f"{file.path}: {problem}"
    return None
