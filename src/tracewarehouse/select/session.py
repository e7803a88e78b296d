"""Connections that see the chosen ranks, and nothing else."""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from threading import Lock

from tracewarehouse.catalog import Catalog
from tracewarehouse.contract import Contract, Ref
from tracewarehouse.engine import Connection, Error, connect
from tracewarehouse.errors import WarehouseError
from tracewarehouse.select.chosen import Chosen
from tracewarehouse.select.reads import below, names_of, readable
from tracewarehouse.select.relations import Relations

# Connections that wait for the next question: base and head of a comparison, each whole and in part.
_IDLE = 4


@contextmanager
def session(
    root: Path, catalog: Catalog, chosen: Sequence[Chosen], contracts: Iterable[Contract] | None = None
) -> Iterator[Connection]:
    """A connection of its own with views over just the files of the chosen ranks.

    It holds what `contracts` read (None: every table and view, in the newest version). Raises
    WarehouseError where a file is gone.
    """
    with closing(_Open(_connect())) as opened:
        opened.add(root, chosen, *_needed(catalog, contracts))
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
    def session(self, chosen: Sequence[Chosen], contracts: Iterable[Contract]) -> Iterator[Connection]:
        """Like `session`; nobody may change settings of the connection. Raises WarehouseError."""
        wanted, names = _needed(self.catalog, contracts)
        # A connection does not outlive a fork.
        key = (os.getpid(), tuple((each.selector, each.ranks) for each in chosen))
        opened = self._take(key, names) or _Open(_connect())
        try:
            opened.add(self.root, chosen, wanted, names)
            yield opened.con
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


@dataclass(frozen=True)
class _Open:
    """A connection, and what each relation in it is made of."""

    con: Connection
    made: dict[str, Ref] = field(default_factory=dict)

    def agrees(self, names: dict[Ref, str]) -> bool:
        """Whether no relation here is another version of what is wanted by its name."""
        return all(self.made.get(name, ref) == ref for ref, name in names.items())

    def add(
        self, root: Path, chosen: Sequence[Chosen], wanted: Iterable[Contract], names: dict[Ref, str]
    ) -> None:
        relations = Relations(root, tuple(chosen), names)
        for contract in wanted:
            if names[contract.ref] not in self.made:
                create(self.con, relations, contract)
                self.made[names[contract.ref]] = contract.ref

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
        hint = "tw verify says what is missing; tw refresh after a move"
        raise WarehouseError(f"{relations.root}: {contract.ref} cannot be read: {what}", hint) from error
