"""A stored rank source with the tables of a derivation, ready to be committed."""

from __future__ import annotations

from collections.abc import Mapping

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.ingest.upgrade.rebuild import rebuilt, table_versions_fact
from tracewarehouse.runs.derivations import FACT
from tracewarehouse.storage import Json, RankSource, Staged, StagedTable


def stored_tables(catalog: Catalog, name: str) -> tuple[Contract, ...]:
    """The stored tables of a derivation."""
    return tuple(each for each in catalog.tables() if each.derived == name and not each.transient)


def sources(catalog: Catalog, name: str) -> tuple[Contract, ...]:
    """The stored tables that a derivation reads, through views too."""
    last = catalog.get(name, kind="table")
    return tuple(each for each in catalog.closure(last) if each.is_stored and each.derived != name)


def definition(catalog: Catalog, name: str) -> str:
    """The hash of what defines a derivation."""
    return catalog.effective_hash(catalog.get(name, kind="table"))


def with_derived(
    catalog: Catalog,
    source: RankSource,
    header: str,
    name: str,
    files: tuple[StagedTable, ...],
    fact: Mapping[str, Json],
) -> Staged:
    """The source with these files in place of the tables of the derivation that it may have.

    `fact` is recorded with the definition.
    """
    contracts = stored_tables(catalog, name)
    names = {contract.name for contract in contracts}
    tables, known = source.facts.get("tables"), source.facts.get(FACT)
    others = {table: versions for table, versions in _dict(tables).items() if table not in names}
    facts: dict[str, Json] = {
        **source.facts,
        name: True,
        "tables": table_versions_fact(contracts, others),
        FACT: {**_dict(known), name: {"hash": definition(catalog, name), **fact}},
    }
    kept = tuple(file for file in source.files if file.table not in names)
    return rebuilt(source, header, files, facts, source.definitions, kept)


def _dict(value: Json) -> dict[str, Json]:
    return dict(value) if isinstance(value, dict) else {}
