"""Builds the tables of a derivation for one rank, in a connection with its stored tables; longest paths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.duck import engine
from tracewarehouse.duck.engine import Connection
from tracewarehouse.query.connections import create
from tracewarehouse.query.relations import Dependencies, Relations
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Versions

NAME = "critical_path"


def tables(catalog: Catalog) -> tuple[Contract, ...]:
    """The tables of the critical path, each after those it depends on."""
    last = catalog.get(NAME, kind="table")
    return tuple(contract for contract in (*catalog.closure(last), last) if contract.derived == NAME)


def stored(catalog: Catalog) -> tuple[Contract, ...]:
    """The tables of the critical path that are stored."""
    return tuple(contract for contract in tables(catalog) if not contract.transient)


def sources(catalog: Catalog) -> tuple[Contract, ...]:
    """The stored tables that the derivation reads."""
    refs = {ref for contract in tables(catalog) for ref in contract.requires}
    required = (catalog.contracts[ref] for ref in sorted(refs))
    return tuple(contract for contract in required if contract.derived != NAME)


def attach(con: Connection, store: Versions, catalog: Catalog, selected: SelectedRun) -> None:
    """Makes the sources of a derivation readable in the connection. Raises WarehouseError."""
    relations = Relations(store, (selected,), Dependencies.over(catalog, sources(catalog)))
    for contract in relations.dependencies.contracts:
        create(con, relations, contract)


def build(con: Connection, catalog: Catalog, scopes: Sequence[Mapping[str, Any]], last: str = NAME) -> None:
    """Builds the derived tables for these scopes of one rank, up to the one named `last`."""
    for contract in tables(catalog):
        if contract.name == "critical_scopes":
            create_from_rows(con, contract, scopes)
        elif contract.filled_by_program:
            create_from_rows(con, contract, list(_path_rows(con)))
        else:
            engine.create_table(con, contract, engine.sql_with_params(contract, {}))
        if contract.name == last:
            return


def create_from_rows(con: Connection, contract: Contract, rows: Sequence[Mapping[str, object]]) -> None:
    """Creates a table without a SELECT from rows."""
    types = {column.name: column.type for column in contract.columns}
    engine.create_from_rows(con, contract.name, types, rows)


def _path_rows(con: Connection) -> Iterator[dict[str, object]]:
    """The nodes of each scope's critical path: backward from its end along the limiting dependencies."""
    ends = con.execute(
        "SELECT run_id, rank, scope, max(node) FROM critical_nodes GROUP BY run_id, rank, scope"
    ).fetchall()
    for run_id, rank, scope, last in ends:
        limiting = con.execute(
            "SELECT to_node, from_node FROM critical_edges WHERE is_limiting AND scope = ?", [scope]
        ).fetchall()
        for position, node in enumerate(backward_path(dict(limiting), last), 1):
            yield {"run_id": run_id, "rank": rank, "scope": scope, "position": position, "node": node}


def backward_path(previous: Mapping[int, int], last: int) -> list[int]:
    """The path to `last` without its first node; `previous` is the limiting predecessor of each node."""
    path = []
    node = last
    while node in previous:
        path.append(node)
        node = previous[node]
    return path[::-1]


def longest_paths(edges: Iterable[tuple[int, int, int]], nodes: int) -> tuple[list[int], list[int]]:
    """The length of the longest path to each node, and the number of its last edge, -1 if there is none.

    `edges` are (from, to, weight), sorted by `to`; nodes are numbered from 1. Ties go to the first edge.
    """
    length, last_edge = [0] * (nodes + 1), [-1] * (nodes + 1)
    for number, (source, target, weight) in enumerate(edges):
        candidate = length[source] + weight
        if last_edge[target] < 0 or candidate > length[target]:
            length[target], last_edge[target] = candidate, number
    return length, last_edge


def path_edges(edges: Sequence[tuple[int, int, int]], last_edge: Sequence[int], last: int) -> list[int]:
    """The numbers of the edges on the longest path to `last`, in order."""
    path = []
    node = last
    while last_edge[node] >= 0:
        path.append(last_edge[node])
        node = edges[last_edge[node]][0]
    return path[::-1]
