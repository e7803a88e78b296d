"""The tables of a derivation made in a connection that holds the stored tables of one rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tracewarehouse import engine
from tracewarehouse.catalog import Catalog
from tracewarehouse.contract import Contract
from tracewarehouse.derive.graph import walk
from tracewarehouse.engine import Connection
from tracewarehouse.select.chosen import Chosen
from tracewarehouse.select.reads import names_of
from tracewarehouse.select.relations import Relations
from tracewarehouse.select.session import create

NAME = "critical_path"


def tables(catalog: Catalog) -> tuple[Contract, ...]:
    """The tables that a derivation makes, each after what it stands on."""
    last = catalog.get(NAME, kind="table")
    return tuple(contract for contract in (*catalog.closure(last), last) if contract.derived == NAME)


def stored(catalog: Catalog) -> tuple[Contract, ...]:
    """Those of them that are kept."""
    return tuple(contract for contract in tables(catalog) if not contract.transient)


def sources(catalog: Catalog) -> tuple[Contract, ...]:
    """The stored tables that they are made of."""
    refs = {ref for contract in tables(catalog) for ref in contract.requires}
    found = (catalog.contracts[ref] for ref in sorted(refs))
    return tuple(contract for contract in found if contract.derived != NAME)


def attach(con: Connection, root: Path, chosen: Chosen, contracts: Sequence[Contract]) -> None:
    """Makes the stored tables of the chosen ranks readable in the connection. Raises WarehouseError."""
    relations = Relations(root, (chosen,), names_of(contracts))
    for contract in contracts:
        create(con, relations, contract)


def build(con: Connection, catalog: Catalog, scopes: Sequence[Mapping[str, Any]], last: str = NAME) -> None:
    """Makes the derived tables for these scopes of one rank, up to the one named `last`."""
    for contract in tables(catalog):
        if contract.name == "critical_scopes":
            fill(con, contract, scopes)
        elif contract.filled_by_program:
            fill(con, contract, list(_walks(con)))
        else:
            engine.create_table(con, contract, engine.sql_with_params(contract, engine.bind(contract, {})))
        if contract.name == last:
            return


def fill(con: Connection, contract: Contract, rows: Sequence[Mapping[str, object]]) -> None:
    """Makes a table without a SELECT from rows."""
    types = {column.name: column.type for column in contract.columns}
    engine.create_from_rows(con, contract.name, types, rows)


def _walks(con: Connection) -> Iterator[dict[str, object]]:
    """Each scope's critical path, node by node: back from its end along what decides."""
    ends = con.execute(
        "SELECT run_id, rank, scope, max(node) FROM critical_nodes GROUP BY run_id, rank, scope"
    ).fetchall()
    for run_id, rank, scope, last in ends:
        decides = con.execute(
            "SELECT to_node, from_node FROM critical_edges WHERE decides AND scope = ?", [scope]
        ).fetchall()
        for position, node in enumerate(walk(dict(decides), last), 1):
            yield {"run_id": run_id, "rank": rank, "scope": scope, "position": position, "node": node}
