"""Warehouses that read their files once, into tables in memory; on request with copies of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec
import pyarrow as pa

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.duck import engine
from tracewarehouse.query.relations import Dependencies, Relations
from tracewarehouse.query.selection import Selection
from tracewarehouse.result import Result
from tracewarehouse.runs.rows import provenance_of
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse


@dataclass(frozen=True)
class Copy:
    """What is added to the run, rank, names and times of the rows of all tables in a copy."""

    run: str = ""
    rank: int = 0
    name: str = ""
    shift_ns: int = 0

    def sql(self, contract: Contract, relation: str) -> str | None:
        """The copied rows of a table; None if it has no runs, or no ranks to add to."""
        columns = {column.name: column for column in contract.columns}
        if "run_id" not in columns or (self.rank and "rank" not in columns):
            return None
        changed = {"run_id": f"run_id || '{self.run}'"}
        if self.rank:
            changed["rank"] = f"rank + {self.rank}"
        if self.name and "name" in columns:
            changed["name"] = f"name || '{self.name}'"
        for column in columns.values():
            if column.unit == "ts" and self.shift_ns:
                changed[column.name] = f'"{column.name}" + {self.shift_ns}'
        listed = ", ".join(f'{value} AS "{name}"' for name, value in changed.items())
        return f'SELECT * REPLACE ({listed}) FROM "{relation}"'


@dataclass
class Kept:
    """Connections over selected ranks with their tables in memory, created once.

    `stores_views`: their views, too. A query of small tables takes longer to plan than to run.
    `copies`: their rows once more, with other runs and ranks.
    """

    stores_views: bool = False
    copies: tuple[Copy, ...] = ()
    connections: dict[object, engine.Connection] = field(default_factory=dict)
    made: dict[object, Contract] = field(default_factory=dict)

    def connection(self, wh: Selection, contracts: Iterable[Contract]) -> engine.Connection:
        contracts = tuple(contracts)
        dependencies = Dependencies.of(wh.catalog, contracts)
        kernels = tuple(sorted(name for name in dependencies.names.values() if name.startswith("kernels_v")))
        # Views name the version of a table that they read, so that each set of names has a connection.
        key = (kernels, *((each.selector, each.ranks) for each in wh.selected()))
        if key not in self.connections:
            # The query of a broken view may not end: it fails at the memory limit, without spilling.
            self.connections[key] = engine.connect(threads=1, memory_bytes=2_000_000_000)
            self.connections[key].execute("SET temp_directory = ''")
        con = self.connections[key]
        relations = Relations(wh.store, wh.selected(), dependencies)
        newest: dict[str, Contract] = {}  # compatible versions of a table have one name
        for each in dependencies.contracts:
            if each.kind == "table":
                name = relations.names[each.ref]
                newest[name] = max(each, newest.get(name, each), key=lambda one: one.version)
        for contract in newest.values():
            self._make(con, relations, contract, (key, relations.names[contract.ref]))
        for contract in dependencies.contracts:
            if self.stores_views and contract.kind == "view":
                self._make(con, relations, contract, (key, relations.names[contract.ref]))
        return con

    def _make(self, con: engine.Connection, relations: Relations, contract: Contract, key: object) -> None:
        before = self.made.get(key)
        if before is contract or before == contract:
            return
        name = relations.names[contract.ref]
        if contract.body:
            con.execute(f'CREATE OR REPLACE TABLE "{name}" AS {relations.sql(contract)}')
        else:
            if before is not None:  # another version of the table has the name
                _drop(con, name)
            relations.create(con, contract)
        if self.copies and (contract.is_stored or contract.is_built):
            rows = [f'SELECT * FROM "{name}"', *(copy.sql(contract, name) for copy in self.copies)]
            con.execute(f"CREATE TABLE copied AS {' UNION ALL '.join(filter(None, rows))}")
            _drop(con, name)
            con.execute(f'ALTER TABLE copied RENAME TO "{name}"')
        self.made[key] = contract


def _drop(con: engine.Connection, name: str) -> None:
    sql = "SELECT table_type FROM information_schema.tables WHERE table_name = ?"
    for (kind,) in con.execute(sql, [name]).fetchall():
        con.execute(f'DROP {"VIEW" if kind == "VIEW" else "TABLE"} "{name}"')


class KeptSelection(Selection):
    """A selection whose tables are in memory."""

    kept: Kept

    def query_unlimited(self, sql: str) -> Result:
        """The rows of a SELECT over one table or view."""
        contract = self.catalog.get(sql.partition(" FROM ")[2].split()[0])
        rows = engine.query(self.kept.connection(self, [contract]), self.views(contract) + sql)
        return Result(rows, provenance_of(self.catalog, self.selected(), sql=sql))

    def _execute(
        self, contract: Contract, bound: Mapping[str, object], dependencies: Dependencies
    ) -> pa.Table:
        con = self.kept.connection(self, [contract])
        return engine.execute(con, contract, bound, self.views(contract), few=True)

    def views(self, contract: Contract) -> str:
        """The `WITH` clause of all views that it reads, and itself: a view with several readers runs once.

        Empty if they are stored.
        """
        if self.kept.stores_views:
            return ""
        dependencies = Dependencies.of(self.catalog, [contract])
        views = [each for each in dependencies.contracts if each.kind == "view"]
        return Relations(self.store, self.selected(), dependencies).with_clause(views)


class KeptWarehouse(Warehouse):
    """A warehouse that reads its files once."""

    def __init__(
        self,
        *args: Any,
        kept: Kept | None = None,
        store: Store | None = None,
        selected: Sequence[SelectedRun] | None = None,
        **other: Any,
    ) -> None:
        super().__init__(*args, **other)
        self._kept = kept or Kept()
        if store is not None:
            self._opened = self._select_all(store)
            self._opened.runs = None if selected is None else tuple(selected)

    def _select_all(self, store: Store) -> KeptSelection:
        selection = KeptSelection(store, self.catalog, level=self._level)
        selection.kept = self._kept
        return selection

    def over(self, selected: Sequence[SelectedRun]) -> KeptWarehouse:
        """The same over other runs."""
        return self._narrowed(self.selection.over(selected))

    def replace(self, contract: Contract) -> None:
        """Replaces the body of a contract; hashes are unchanged."""
        assert not self._kept.stores_views, "stored views may read it"
        own = msgspec.structs.replace(self.catalog.contracts[contract.ref], body=contract.body)
        contracts = MappingProxyType({**self.catalog.contracts, own.ref: own})
        self.catalog = Catalog(contracts, self.catalog.folder, self.catalog._hashes)
        self.selection.catalog = self.catalog

    def connection(self, contract: Contract) -> tuple[engine.Connection, str]:
        """A connection with the tables of a contract, and the `WITH` clause of the views that it reads."""
        selection = self.selection
        assert isinstance(selection, KeptSelection)
        return self._kept.connection(selection, [contract]), selection.views(contract)
