"""Connections that see the chosen ranks, and nothing else."""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from threading import Lock
from typing import TYPE_CHECKING

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Ref
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.duck.engine import Connection, Error, OutOfMemory, connect, execute, together
from tracewarehouse.errors import ContractError, QueryError, WarehouseError
from tracewarehouse.query.dependencies import below, names_of, readable
from tracewarehouse.query.rank_batches import events, slices
from tracewarehouse.query.relations import Relations
from tracewarehouse.runs.selection import SelectedRun

if TYPE_CHECKING:
    import pyarrow as pa

# Connections that wait for the next question: base and head of a comparison, each whole and in part.
_IDLE = 4
# Up to so many events the rows of views are kept from one question to the next: about 1 GB at the most.
_KEPT_EVENTS = 2_000_000
# Up to so many it takes longer to understand a question than to answer it.
_FEW_EVENTS = 300_000


@contextmanager
def session(
    root: Path, catalog: Catalog, selected: Sequence[SelectedRun], contracts: Iterable[Contract] | None = None
) -> Iterator[Connection]:
    """A connection of its own with views over just the files of the chosen ranks.

    It holds what `contracts` read (None: every table and view, in the newest version). Raises
    WarehouseError where a file is gone.
    """
    with closing(_Open(_connect())) as opened:
        opened.add(root, selected, *_needed(catalog, contracts))
        yield opened.con


class Sessions:
    """Connections over chosen ranks that are kept, with their views, from one question to the next.

    Each is lent to one caller at a time. What a version of a run holds never changes, nor do its views.
    """

    def __init__(self, root: Path, catalog: Catalog) -> None:
        self.root = root
        self.catalog = catalog
        self._idle: list[tuple[object, _Open]] = []
        self._lock = Lock()
        weakref.finalize(self, _close_all, self._idle)

    @contextmanager
    def session(self, selected: Sequence[SelectedRun], contracts: Iterable[Contract]) -> Iterator[Connection]:
        """Like `session`; nobody may change settings of the connection. Raises WarehouseError."""
        wanted, names = _needed(self.catalog, contracts)
        with self._lent(selected, names) as opened:
            opened.add(self.root, selected, wanted, names)
            yield opened.con

    def answer(
        self, selected: Sequence[SelectedRun], contract: Contract, values: Mapping[str, object]
    ) -> pa.Table:
        """The rows of an analysis. Raises WarehouseError, QueryError, ContractError."""
        wanted, names = _needed(self.catalog, [contract])
        with self._lent(selected, names) as opened:
            try:
                parts = slices(contract, wanted, selected)
                if len(parts) > 1 and not opened.made:
                    each = (Relations(self.root, part, names).common(wanted, contract.body) for part in parts)
                    return together([execute(opened.con, contract, values, given) for given in each])
                given = opened.given(Relations(self.root, tuple(selected), names), wanted, contract)
                return execute(opened.con, contract, values, given, events(selected) <= _FEW_EVENTS)
            except (Error, ContractError, QueryError) as error:
                if isinstance(error.__cause__, OutOfMemory):
                    raise
                # On views the error names what it is about: a table's file, a line of the analysis.
                opened.add(self.root, selected, wanted, names)
                return execute(opened.con, contract, values)

    @contextmanager
    def _lent(self, selected: Sequence[SelectedRun], names: dict[Ref, str]) -> Iterator[_Open]:
        # A connection does not outlive a fork.
        key = (os.getpid(), tuple((each.selector, each.ranks) for each in selected))
        opened = self._take(key, names) or _Open(_connect())
        try:
            yield opened
        except BaseException:
            opened.close()
            raise
        self._give_back(key, opened)

    def _take(self, key: object, names: dict[Ref, str]) -> _Open | None:
        with self._lock:
            for place, (other, opened) in enumerate(self._idle):
                if other == key and opened.agrees(names):
                    del self._idle[place]
                    return opened
        return None

    def _give_back(self, key: object, opened: _Open) -> None:
        with self._lock:
            self._idle.append((key, opened))
            surplus = [old for _, old in self._idle[:-_IDLE]]
            del self._idle[:-_IDLE]
        for old in surplus:
            old.close()


@dataclass
class _Open:
    """A connection, what each relation in it is made of, and the views that a question has read."""

    con: Connection
    made: dict[str, Ref] = field(default_factory=dict)
    known: set[Ref] = field(default_factory=set)

    def agrees(self, names: dict[Ref, str]) -> bool:
        """Whether no relation here is another version of what is wanted by its name."""
        return all(self.made.get(name, ref) == ref for ref, name in names.items())

    def add(
        self, root: Path, selected: Sequence[SelectedRun], wanted: Iterable[Contract], names: dict[Ref, str]
    ) -> None:
        relations = Relations(root, tuple(selected), names)
        for contract in wanted:
            if names[contract.ref] not in self.made:
                self._make(relations, contract)

    def given(self, relations: Relations, wanted: Iterable[Contract], asked: Contract) -> str:
        """The `WITH` of a question that reads these relations: to bind them there once is all they take.

        A view's rows become a table when a second question reads it.
        """
        wanted = [contract for contract in wanted if relations.names[contract.ref] not in self.made]
        for contract in wanted:
            if contract.is_built and not relations.tells(contract):
                self._make(relations, contract)
            elif contract.kind == "view" and contract.ref in asked.requires:
                if contract.ref in self.known and events(relations.selected) <= _KEPT_EVENTS:
                    self._keep(relations, contract, wanted)
                self.known.add(contract.ref)
        return relations.common(self._left(relations, asked, wanted), asked.body)

    def _left(self, relations: Relations, asked: Contract, wanted: Sequence[Contract]) -> list[Contract]:
        """What is not made yet of all that a contract stands on, but below what is made."""
        read = set(asked.requires)
        left = []
        for contract in reversed(wanted):  # readers before what they read
            if contract.ref in read and relations.names[contract.ref] not in self.made:
                left.append(contract)
                read |= set(contract.requires) if contract.kind == "view" else set()
        return left[::-1]

    def _keep(self, relations: Relations, view: Contract, wanted: Sequence[Contract]) -> None:
        given = relations.common(self._left(relations, view, wanted), view.body)
        name = relations.names[view.ref]
        self.con.execute(
            f"CREATE TABLE {quote_name(name)} AS {given}SELECT * FROM (\n{relations.sql(view)}\n)"
        )
        self.made[name] = view.ref

    def _make(self, relations: Relations, contract: Contract) -> None:
        create(self.con, relations, contract)
        self.made[relations.names[contract.ref]] = contract.ref

    def close(self) -> None:
        self.con.close()


def _needed(
    catalog: Catalog, contracts: Iterable[Contract] | None
) -> tuple[tuple[Contract, ...], dict[Ref, str]]:
    """The relations that contracts read, and what each is called."""
    wanted = readable(catalog) if contracts is None else below(catalog, contracts := tuple(contracts))
    direct = [ref for contract in contracts or () for ref in contract.requires]
    return wanted, names_of(wanted, direct)


def _connect() -> Connection:
    # DuckDB makes the folder when it first spills, and takes it away when it closes.
    con = connect(temp_directory=Path(gettempdir(), f"tw-{secrets.token_hex(8)}"))
    con.execute("SET parquet_metadata_cache = true")  # the files never change
    return con


def _close_all(idle: list[tuple[object, _Open]]) -> None:
    for _, opened in idle:
        opened.close()


def create(con: Connection, relations: Relations, contract: Contract, replace: bool = False) -> None:
    """Makes one relation; raises WarehouseError where its files cannot be read."""
    try:
        relations.create(con, contract, replace)
    except Error as error:
        what = str(error).partition("\n")[0]
        hint = hints.fill(
            "{} lists missing files; after a move: {}", hints.call("verify"), hints.call("refresh")
        )
        raise WarehouseError(f"{relations.root}: {contract.ref} cannot be read: {what}", hint) from error
