"""Versions of stored tables: runs without a version that a query can read are excluded, with a notice.

Reading never writes: only `tw upgrade` builds a missing table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.errors import SchemaVersionError
from tracewarehouse.runs.retention import expired_lines, expired_of, expired_reason
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Rank, RankSource

_UPGRADE = hints.fill("{} rebuilds the newest version of each run", hints.call("upgrade"))

EXPIRED_HINT = hints.fill("ingest the traces again with {}", hints.ingest())
# A reason to skip a rank begins with it.
WITHOUT_TABLES = "stored without"


@dataclass(frozen=True)
class ReadableRuns:
    """The selected runs whose ranks all have the tables that are read, and notices about the others."""

    selected: tuple[SelectedRun, ...]
    notices: tuple[str, ...] = ()


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
    checked = [each for each in contracts if _is_checked(each)]
    tables = [each for each in checked if each.name not in optional]
    serving = [
        {each.version for each in catalog.compatible(table) if each.version >= table.version}
        for table in tables
    ]
    selected, expired = _without_expired(tables, selected)
    absent = without_tables(catalog, [each for each in checked if each.name in optional], selected)
    notices = (*expired, *_absent_notices(absent), *_built_earlier(tables, selected))
    return _split(catalog, tables, serving, selected, notices)


def without_tables(
    catalog: Catalog, contracts: Iterable[Contract], selected: Sequence[SelectedRun]
) -> dict[str, tuple[str, ...]]:
    """Run → the names of these tables that it was stored without, in any version; only runs without one.

    An earlier release did not have the tables yet; `tw upgrade` builds them.
    """
    tables = [each for each in contracts if _is_checked(each)]
    return {
        each.run: lacking
        for each in selected
        if (lacking := tuple(table.name for table in tables if _is_absent(each, table, catalog)))
    }


def _absent_notices(absent: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for run, tables in absent.items():
        yield hints.fill("{} was stored without {}: {}", run, ", ".join(tables), _UPGRADE)


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
    tables = [each for each in contracts if _is_checked(each)]
    absent = without_tables(catalog, tables, selected) if may_be_absent else {}
    missing = {name for lacking in absent.values() for name in lacking}
    tables = [each for each in tables if each.name not in missing]
    serving = [{each.version for each in catalog.compatible(table)} for table in tables]
    names_of = {each.name for each in tables}
    notices = [line for each in selected for line in expired_lines(each.run, each.by_rank, names_of)]
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
    return any(_lacks(rank, table, versions) for rank in run.by_rank)


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
    excluded = {each.run for _, runs in missing for each in runs}
    readable = tuple(each for each in selected if each.run not in excluded)
    if excluded and not readable:
        refs = ", ".join(str(table.ref) for table, _ in missing)
        verb = "does" if len(selected) == 1 else "do"
        raise SchemaVersionError(
            f"{', '.join(each.selector for each in selected)} {verb} not have {refs}",
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
    return [each for each in selected if any(_lacks(rank, table, versions) for rank in each.by_rank)]


def check_unexpired(contracts: Iterable[Contract], selected: Sequence[SelectedRun]) -> None:
    """Raises SchemaVersionError if one of the tables expired of a selected rank."""
    for each in selected:
        _without_expired([one for one in contracts if one.is_stored], [each])


def _without_expired(
    tables: Iterable[Contract], selected: Sequence[SelectedRun]
) -> tuple[Sequence[SelectedRun], tuple[str, ...]]:
    """The runs of which none of the tables expired, and a line for each other run.

    Raises SchemaVersionError if no run remains.
    """
    names = {each.name for each in tables}
    why: dict[str, str] = {}
    for each in selected:
        gone = {table: day for rank in each.by_rank for table, day in expired_of(rank, names).items()}
        if gone:
            why[each.run] = expired_reason(gone)
    if why and len(why) == len(selected):
        raise SchemaVersionError(
            "; ".join(f"{each.selector}: {why[each.run]}" for each in selected), EXPIRED_HINT
        )
    left = [each for each in selected if each.run not in why]
    return left, tuple(f"excluded {run}: {reason}" for run, reason in why.items())


def _lacks(rank: Rank, table: Contract, versions: Collection[int]) -> bool:
    if table.name in rank.expired:
        return False
    stored = stored_versions(rank, table.name)
    return stored is not None and stored.isdisjoint(versions)


def _remedy(catalog: Catalog, tables: Iterable[Contract]) -> str:
    """The remedy for missing tables; versions that were replaced by a later one cannot be built."""
    for table in tables:
        newest = catalog.get(table.name, kind="table")
        if newest not in catalog.compatible(table):
            return f"{newest.ref} has replaced {table.ref}; run a newer version of the analysis"
    return _UPGRADE


def _built_earlier(tables: Iterable[Contract], selected: Sequence[SelectedRun]) -> Iterator[str]:
    """A notice for each table that was built by an earlier definition than that of this release."""
    for table in tables:
        runs = [each for each in selected if any(is_outdated(one, table) for one in each.sources)]
        if runs:
            yield hints.fill(
                "{} of {} was built by an earlier definition: {}", table.ref, _named(runs), _UPGRADE
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
        older = [each for each in catalog.compatible(table) if each.version < table.version]
        if not older:
            continue
        newer = {each.version for each in catalog.compatible(table)} - {each.version for each in older}
        runs = _lacking(selected, table, newer)
        known = {column.name for column in older[0].columns}
        added = [column.name for column in table.columns if column.name not in known]
        named = [name for name in added if names is None or name in names]
        if runs and named:
            column = f"{table.name}.{', '.join(named)}"
            yield hints.fill("{} is null in {}, stored without it: {}", column, _named(runs), _UPGRADE)


def _named(runs: Sequence[SelectedRun]) -> str:
    more = f" and {len(runs) - 3} more" if len(runs) > 3 else ""
    return ", ".join(each.run for each in runs[:3]) + more
