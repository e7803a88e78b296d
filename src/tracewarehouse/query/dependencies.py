"""Dependencies of contracts in order, with the names of their relations and compatible stored versions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Kind, Ref

_WORD: Final = re.compile(r"\w+")
# Words with these prefixes list relations, so all of them must exist.
_LISTS_RELATIONS: Final = ("show", "describe", "summarize", "duckdb_", "pragma", "information_schema", "pg_")


@dataclass(frozen=True)
class Dependencies:
    """The tables and views that contracts read, each after its own dependencies.

    `names` has the name of each relation. `compatible` has the versions of each stored table whose rows can
    be read in its place, newest first; older versions lack some nullable columns.
    """

    contracts: tuple[Contract, ...]
    names: Mapping[Ref, str]
    compatible: Mapping[Ref, tuple[Contract, ...]]

    @classmethod
    def of(cls, catalog: Catalog, contracts: Iterable[Contract]) -> Dependencies:
        """The dependencies of these contracts, including the tables and views among them."""
        contracts = tuple(contracts)
        direct = [ref for contract in contracts for ref in contract.requires]
        return cls.over(catalog, dependencies(catalog, contracts), direct)

    @classmethod
    def over(
        cls,
        catalog: Catalog,
        contracts: tuple[Contract, ...],
        unqualified: Iterable[Ref] = (),
        others: Iterable[Contract] = (),
    ) -> Dependencies:
        """These relations; `others` get names too. Versions in `unqualified` have names without a version."""
        names = relation_names((*contracts, *others), unqualified)
        return cls(
            contracts, names, {each.ref: catalog.compatible(each) for each in contracts if each.is_stored}
        )

    def views_below(self, contract: Contract) -> list[Contract]:
        """The views that a view reads, and those that they read, each after its own dependencies."""
        if contract.kind != "view":
            return []
        read = set(contract.requires)
        found = []
        for each in reversed(self.contracts):  # readers before their dependencies
            if each.kind == "view" and each.ref in read:
                found.append(each)
                read |= set(each.requires)
        return found[::-1]


def queryable(catalog: Catalog) -> tuple[Contract, ...]:
    """The newest version of every table and view that users can query, each after its dependencies."""
    tables = [table for table in catalog.tables() if not table.transient]
    return dependencies(catalog, (*tables, *catalog.views()))


@dataclass(frozen=True)
class Mentioned:
    """What SQL may name: tables and views, each after its dependencies, and analyses.

    `lists`: the SQL lists relations, so all must exist; `has_help`: it reads `tw_help`.
    """

    contracts: tuple[Contract, ...]
    analyses: tuple[Contract, ...] = ()
    lists: bool = False
    has_help: bool = False


def mentioned(catalog: Catalog, sql: str, *, every: bool = False) -> Mentioned:
    """What the SQL may name; `every`: all tables and views."""
    words = {word.lower() for word in _WORD.findall(sql)}
    lists = every or any(word.startswith(_LISTS_RELATIONS) for word in words)
    analyses = _newest(catalog, "analysis", words)
    found = (
        queryable(catalog) if lists else [*_newest(catalog, "table", words), *_newest(catalog, "view", words)]
    )
    known = [contract for contract in found if not contract.transient]
    return Mentioned(dependencies(catalog, (*known, *analyses)), analyses, lists, "tw_help" in words)


def _newest(catalog: Catalog, kind: Kind, words: Collection[str]) -> tuple[Contract, ...]:
    names = {ref.name for ref in catalog.refs(kind)}
    return tuple(catalog.get(name) for name in sorted(names.intersection(words)))


def dependencies(catalog: Catalog, contracts: Iterable[Contract]) -> tuple[Contract, ...]:
    """The contracts (except analyses) and all tables and views they read, each after its dependencies."""
    order: dict[Ref, Contract] = {}

    def visit(contract: Contract) -> None:
        if contract.kind != "table":  # dependencies of tables are read at ingest only
            for ref in contract.requires:
                visit(catalog.contracts[ref])
        if contract.kind != "analysis":
            order.setdefault(contract.ref, contract)

    for contract in contracts:
        visit(contract)
    return tuple(order.values())


def shared_views(catalog: Catalog, read: Iterable[Contract]) -> frozenset[Ref]:
    """The views that would be computed more than once if these analyses and views were read one by one.

    A view below others counts once for each statement that computes it: those below a shared view are
    computed with it, once.
    """
    read = tuple(read)
    computed_in: dict[Ref, set[Ref]] = defaultdict(set)
    for contract in read:
        for ref in (contract.ref,) if contract.kind == "view" else contract.requires:
            computed_in[ref].add(contract.ref)
    for contract in reversed(dependencies(catalog, read)):  # readers before their dependencies
        if contract.kind == "view":
            statements = computed_in[contract.ref]
            for ref in contract.requires:
                computed_in[ref] |= {contract.ref} if len(statements) > 1 else statements
    return frozenset(ref for ref, statements in computed_in.items() if len(statements) > 1)


def relation_names(contracts: Iterable[Contract], unqualified: Iterable[Ref] = ()) -> dict[Ref, str]:
    """Ref → name of its relation: `kernels` for the one in `unqualified` or the newest, else `kernels_v1`."""
    refs = {contract.ref for contract in contracts}
    bare = {ref.name: ref for ref in sorted(refs)} | {ref.name: ref for ref in unqualified if ref in refs}
    return {ref: ref.name if bare[ref.name] == ref else f"{ref.name}_v{ref.version}" for ref in refs}
