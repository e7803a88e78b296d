"""Which versions of its tables a source holds. Empty tables are not written, so files alone do not tell.

A source says it itself: its fact `tables` maps a table to the versions it has of it, empty ones too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tracewarehouse.contract import Contract
from tracewarehouse.select.chosen import Chosen
from tracewarehouse.select.reads import is_stored
from tracewarehouse.storage import Rank, RankSource


def held(source: Rank | RankSource, table: str) -> frozenset[int]:
    """The versions of a table that a source or a rank holds; none where nothing is known of it."""
    told = source.facts.get("tables")
    if isinstance(told, dict) and table in told:
        versions = told[table]
        listed = versions if isinstance(versions, list) else [versions]
        return frozenset(version for version in listed if isinstance(version, int))
    return frozenset(file.version for file in source.files if file.table == table)


def lacking(contracts: Iterable[Contract], chosen: Sequence[Chosen]) -> dict[Contract, tuple[Chosen, ...]]:
    """Stored tables, each with the chosen runs that hold it in other versions only; not what is derived."""
    found: dict[Contract, tuple[Chosen, ...]] = {}
    for contract in contracts:
        if is_stored(contract) and not contract.derived:
            runs = tuple(each for each in chosen if any(_lacks(rank, contract) for rank in each.by_rank))
            if runs:
                found[contract] = runs
    return found


def _lacks(rank: Rank, contract: Contract) -> bool:
    versions = held(rank, contract.name)
    return bool(versions) and contract.version not in versions
