"""Where a file's tables are made, and how much memory that takes: little, and more only where it must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from tracewarehouse.engine import Connection

Done = TypeVar("Done")

# From here on the tables of a file stand on disk while they are made; its text is a fourth of them.
LARGE_TEXT_BYTES: Final = 96 << 20
# Python, its libraries, the chunks in hand and what DuckDB does not count take some 330 MB besides.
_LARGE_MEMORY_BYTES: Final = 340 << 20
# While it is read there is the text in hand besides, and DuckDB has only to put rows away.
_READING_BYTES: Final = 256 << 20
# Columns of a wide table.
_WIDE: Final = 30
# Little at a time, for what DuckDB took it keeps.
_MORE: Final = 1.3


@dataclass
class Memory:
    """What DuckDB may take now, and the most that it may ever; None: as the connection was opened."""

    con: Connection
    limit_bytes: int | None = None
    most_bytes: int | None = None
    _growing: Lock = field(default_factory=Lock)
    _wide: Lock = field(default_factory=Lock)

    def turn(self, columns: int) -> AbstractContextManager[object]:
        """Where memory is short, one wide table at a time is made or written.

        DuckDB does not count all that it takes for one.
        """
        short = (
            self.limit_bytes is not None
            and self.most_bytes is not None
            and self.limit_bytes < self.most_bytes
        )
        return self._wide if short and columns >= _WIDE else nullcontext()

    def enough_for(self, work: Callable[[], Done]) -> Done:
        """Does the work, and does it again with more memory for as long as that is what it lacks.

        Raises DuckDB's OutOfMemory where all there is does not do.
        """
        from tracewarehouse.engine import OutOfMemory

        while True:
            had = self.limit_bytes
            try:
                return work()
            except OutOfMemory:
                if not self._grow(had):
                    raise

    def enough_to_read(self, work: Callable[[], Done]) -> Done:
        """Reads a large file with less memory, and once more with the most where that does not do.

        A single event of many MB may take a multiple of it.
        """
        from tracewarehouse.engine import OutOfMemory

        if self.limit_bytes != _LARGE_MEMORY_BYTES:
            return work()
        self._set(_READING_BYTES)
        try:
            with suppress(OutOfMemory):
                return work()
            self._set(self.most_bytes)
            return work()
        finally:
            self._set(self.limit_bytes)

    def _set(self, limit_bytes: int | None) -> None:
        if limit_bytes is not None:
            self.con.cursor().execute(f"SET memory_limit = '{limit_bytes}B'")

    def _grow(self, had: int | None) -> bool:
        """Somewhat more than it had, if nobody else has seen to that."""
        with self._growing:
            if had is None or self.limit_bytes is None or self.most_bytes is None:
                return False
            if self.limit_bytes == had:
                if had >= self.most_bytes:
                    return False
                self.limit_bytes = min(int(_MORE * had), self.most_bytes)
                self._set(self.limit_bytes)
            return True


@contextmanager
def workplace(
    folder: Path, threads: int, most_bytes: int, text_bytes: int
) -> Iterator[tuple[Connection, Memory]]:
    """A database for the tables of a file of so much text: in memory, or in the folder for a large one."""
    from tracewarehouse.engine import connect

    large = text_bytes >= LARGE_TEXT_BYTES
    limit = min(_LARGE_MEMORY_BYTES, most_bytes) if large else most_bytes
    con = connect(
        threads=threads,
        memory_limit=f"{limit}B",
        temp_directory=folder / "spill",
        database=folder / "tables.duckdb" if large else None,
    )
    try:
        yield con, Memory(con, limit, most_bytes)
    finally:
        con.close()
