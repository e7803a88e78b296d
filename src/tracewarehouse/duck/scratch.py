"""Short-lived connections that share a database in memory, since a new database takes 20 ms."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from threading import Lock

from tracewarehouse.duck.engine import Connection, Error, connect
from tracewarehouse.memory_limits import half_bytes

# A database cannot be used after a fork, and its threads and memory limit belong to it.
_Key = tuple[int, int | None, int | None]
_databases: dict[_Key, Connection] = {}
_lock = Lock()
_numbers = count(1)


@contextmanager
def scratch(threads: int | None = None) -> Iterator[Connection]:
    """A connection for a few statements, whose tables and views no other connection sees.

    They are dropped at the end. Its settings must not be changed: they are those of the shared database.
    Its cursors do not see the tables, so `engine.execute` cannot run here.
    """
    name, key = f"scratch_{next(_numbers)}", (os.getpid(), threads, half_bytes())
    with _lock:
        shared = _databases.get(key) or _databases.setdefault(key, connect(threads=threads))
        shared.execute(f"ATTACH ':memory:' AS {name}")
    con = shared.cursor()
    try:
        con.execute(f"USE {name}")
        yield con
    except BaseException:
        _forget(key, shared)
        raise
    finally:
        con.close()
        with _lock, suppress(Error):
            shared.execute(f"DETACH {name}")


def _forget(key: _Key, shared: Connection) -> None:
    """After an error a database may refuse all further statements: the next connection gets a new one."""
    with _lock:
        if _databases.get(key) is shared:
            del _databases[key]
