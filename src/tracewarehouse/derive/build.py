"""The tables of a derivation made in a connection that holds the stored tables of one rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.duck import engine
from tracewarehouse.duck.engine import Connection
from tracewarehouse.query.connections import create
from tracewarehouse.query.dependencies import Dependencies
from tracewarehouse.query.relations import Relations
from tracewarehouse.runs.selection import SelectedRun

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


def attach(con: Connection, root: Path, catalog: Catalog, selected: SelectedRun) -> None:
    """Makes the sources of a derivation readable in the connection. Raises WarehouseError."""
    relations = Relations(root, (selected,), Dependencies.over(catalog, sources(catalog)))
    for contract in relations.dependencies.contracts:
        create(con, relations, contract)


def build(con: Connection, catalog: Catalog, scopes: Sequence[Mapping[str, Any]], last: str = NAME) -> None:
    """Makes the derived tables for these scopes of one rank, up to the one named `last`."""
    for contract in tables(catalog):
        if contract.name == "critical_scopes":
            fill(con, contract, scopes)
        elif contract.filled_by_program:
            fill(con, contract, list(_walks(con)))
        else:
            engine.create_table(con, contract, engine.sql_with_params(contract, {}))
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
            "SELECT to_node, from_node FROM critical_edges WHERE is_limiting AND scope = ?", [scope]
        ).fetchall()
        for position, node in enumerate(walk(dict(decides), last), 1):
            yield {"run_id": run_id, "rank": rank, "scope": scope, "position": position, "node": node}


def walk(before: Mapping[int, int], last: int) -> list[int]:
    """The nodes from the one after the first up to `last`; `before` is the node that decided each."""
    path = []
    node = last
    while node in before:
        path.append(node)
        node = before[node]
    return path[::-1]


def longest(edges: Iterable[tuple[int, int, int]], nodes: int) -> tuple[list[int], list[int]]:
    """For each node the longest way to it from the first, and the edge by which that comes, -1 for none.

    `edges` are (from, to, weight), sorted by `to`, nodes counted from 1. Of ways alike the first given.
    """
    length, by = [0] * (nodes + 1), [-1] * (nodes + 1)
    for number, (source, target, weight) in enumerate(edges):
        way = length[source] + weight
        if by[target] < 0 or way > length[target]:
            length[target], by[target] = way, number
    return length, by


def back(edges: Sequence[tuple[int, int, int]], by: Sequence[int], last: int) -> list[int]:
    """The numbers of the edges on the longest way to `last`, first to last."""
    path = []
    node = last
    while by[node] >= 0:
        path.append(by[node])
        node = edges[by[node]][0]
    return path[::-1]
