"""What contracts read, in order, and what each of it is called; looks into contracts only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Ref

_WORD: Final = re.compile(r"\w+")
# What such a word begins asks what there is.
_ASKS_FOR_ALL: Final = ("show", "describe", "summarize", "duckdb_", "pragma", "information_schema", "pg_")


def readable(catalog: Catalog) -> tuple[Contract, ...]:
    """The newest version of every table and view that people read, each after what it stands on."""
    tables = [table for table in catalog.tables() if not table.transient]
    return below(catalog, (*tables, *catalog.views()))


def named(catalog: Catalog, sql: str) -> tuple[Contract, ...]:
    """Of what people read all that the SQL may name, and what that stands on, each after that.

    It is everything where the SQL asks what there is.
    """
    words = {word.lower() for word in _WORD.findall(sql)}
    if any(word.startswith(_ASKS_FOR_ALL) for word in words):
        return readable(catalog)
    refs = (*catalog.refs("table"), *catalog.refs("view"))
    found = [catalog.get(name) for name in sorted(words & {ref.name for ref in refs})]
    return below(catalog, (contract for contract in found if not contract.transient))


def below(catalog: Catalog, contracts: Iterable[Contract]) -> tuple[Contract, ...]:
    """The contracts (but analyses) with all that must be there for them, each after what it stands on."""
    order: dict[Ref, Contract] = {}

    def visit(contract: Contract) -> None:
        if contract.kind != "table":  # a table's own sources were there when it was made
            for ref in contract.requires:
                visit(catalog.contracts[ref])
        if contract.kind != "analysis":
            order.setdefault(contract.ref, contract)

    for contract in contracts:
        visit(contract)
    return tuple(order.values())


def names_of(contracts: Iterable[Contract], plain: Iterable[Ref] = ()) -> dict[Ref, str]:
    """Ref → name of its relation: bare for `plain` and else the newest, `kernels_v1` for older ones."""
    refs = {contract.ref for contract in contracts}
    bare = {ref.name: ref for ref in sorted(refs)} | {ref.name: ref for ref in plain}
    return {ref: ref.name if bare[ref.name] == ref else f"{ref.name}_v{ref.version}" for ref in refs}
