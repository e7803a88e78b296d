"""Empty databases in memory that stay, whose cursors see their tables: cheaper than a new connection."""

from __future__ import annotations

import os
from functools import cache
from itertools import count
from typing import Any

from tracewarehouse.duck import engine

_NUMBERS = count()


class MemoryDatabase:
    """A connection, and its cursors, whose tables are in a separate database."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.con = _database(os.getpid()).cursor()
        self.con.execute(f"USE {name}")

    def cursor(self) -> MemoryDatabase:
        return MemoryDatabase(self.name)

    def __enter__(self) -> MemoryDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.con.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.con, name)


def memory_database() -> Any:
    """A connection whose tables stay until the process ends."""
    name = f"database_{next(_NUMBERS)}"
    with _database(os.getpid()).cursor() as con:
        con.execute(f"ATTACH ':memory:' AS {name}")
    return MemoryDatabase(name)


@cache
def _database(process: int) -> engine.Connection:
    """A database cannot be used after a fork."""
    return engine.connect(threads=2)
