"""What is done to one file, in a process of its own or not: survey it, or make its tables."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tracewarehouse.catalog import Catalog
from tracewarehouse.contract import Contract
from tracewarehouse.errors import TwError
from tracewarehouse.ingest.facts import header_facts, header_of, rank_in_file
from tracewarehouse.ingest.memory import Memory, workplace
from tracewarehouse.ingest.outcome import Content
from tracewarehouse.ingest.pool import Tell
from tracewarehouse.ingest.spans import Window
from tracewarehouse.ingest.write import Writer
from tracewarehouse.storage import Json, Staged, disk_error

if TYPE_CHECKING:
    from tracewarehouse.engine import Connection
    from tracewarehouse.reader import Survey

# Facts of a rank that the tables tell; the rest comes from the header and from how the file was read.
_FROM_TABLES = "rank_facts"
# The one format that this reader reads.
FORMAT = "kineto"


@dataclass(frozen=True)
class Look:
    """Survey a file: what it is, its digest and header."""

    path: Path
    salt: bytes

    def run(self, tell: Tell) -> Survey:
        from tracewarehouse import reader

        size = self.path.stat().st_size if self.path.exists() else 0
        tell(0, size)
        survey = reader.survey(self.path, self.salt)
        tell(size, size)
        return survey


@dataclass(frozen=True)
class Clocked:
    """First start and last end of a trace."""

    window: Window


@dataclass(frozen=True)
class Clock:
    """Find the window of a trace that contends with another for one place."""

    path: Path

    def run(self, tell: Tell) -> Clocked:
        from tracewarehouse.reader import window

        return Clocked(window(self.path))


@dataclass(frozen=True)
class Grew:
    """A file changed between its survey and the end of its reading."""


@dataclass(frozen=True)
class Made:
    """What one file gave: its tables staged as Parquet, and what is told of it."""

    staged: Staged
    content: Content


@dataclass(frozen=True)
class Make:
    """Read one trace as a rank of a run and stage its tables in a folder that is there for it alone.

    `mark` is size and time of change as they were before the survey.
    """

    path: Path
    run_id: str
    rank: int
    uid: str
    digest: str
    world_size: int | None
    mark: tuple[int, int]
    salt: bytes
    folder: Path
    sql: Path
    threads: int
    memory_bytes: int
    text_bytes: int
    temp_dir: Path

    def run(self, tell: Tell) -> Made | Grew:
        from tracewarehouse.engine import Error

        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with TemporaryDirectory(prefix="tw-", dir=self.temp_dir) as work:
                return self._made(Path(work), tell)
        except OSError as error:
            raise disk_error(self.folder, error) from error
        except Error as error:
            raise too_much(self.path, error) from error

    def _made(self, work: Path, tell: Tell) -> Made | Grew:
        from tracewarehouse import reader

        with workplace(work, self.threads, self.memory_bytes, self.text_bytes) as (con, memory):
            read = partial(reader.load, con, self.path, run_id=self.run_id, rank=self.rank, salt=self.salt,
                           progress=lambda done: tell(done, 0), texts=False)  # fmt: skip
            survey = memory.enough_to_read(read)
            if survey.digest != self.digest or mark(self.path) != self.mark:
                return Grew()
            return self._tables(con, memory, survey)

    def _tables(self, con: Connection, memory: Memory, survey: Survey) -> Made:
        from tracewarehouse.ingest import sql_tables as tables

        catalog = Catalog.load(self.sql)
        stored = tables.stored_tables(catalog)
        with Writer(con, catalog, self.folder, memory) as writer:
            tables.build(con, catalog, keep=(_FROM_TABLES, "redactions"), memory=memory,
                         made=lambda table: writer.add(table) if table in stored else None)  # fmt: skip
        staged = writer.staged()
        facts = self._facts(con, survey)
        facts["tables"] = tables_told(stored)
        told = content(con, survey, facts)
        # Kept for the notice on coverage that goes with every answer about launches.
        facts |= {"gpu_ns": told.gpu_ns, "linked_ns": told.linked_ns, "with_op_ns": told.with_op_ns}
        made = Staged(
            run=self.run_id,
            rank=self.rank,
            uid=self.uid,
            digest=survey.digest,
            text_bytes=survey.text_bytes,
            format=FORMAT,
            format_version=reader_version(),
            definitions=definitions_of(stored),
            status=survey.status,  # type: ignore[arg-type]
            tables=staged,
            facts=facts,
            header=survey.header_json,
        )
        return Made(made, told)

    def _facts(self, con: Connection, survey: Survey) -> dict[str, Json]:
        """The columns of `ranks`, but for those that the source itself carries."""
        header = header_of(survey.header_json)
        facts: dict[str, Json] = header_facts(header) | {"rank_in_file": rank_in_file(header)}
        if facts["world_size"] is None:
            facts["world_size"] = self.world_size
        cursor = con.execute(f"SELECT * EXCLUDE (run_id, rank) FROM {_FROM_TABLES}")
        names = [column[0] for column in cursor.description or ()]
        row = cursor.fetchone()
        facts |= dict(zip(names, row, strict=True)) if row else {}
        redacted = con.execute("SELECT count(*) FROM redactions").fetchone()
        return facts | {
            # A file name may hold any bytes; a table holds text.
            "source_name": os.fsencode(self.path.name).decode(errors="backslashreplace"),
            "source_bytes": survey.stored_bytes,
            "status": survey.status,
            "lost_bytes": sum(loss.byte_to - loss.byte_from for loss in survey.losses),
            "lost_events": lost_events(survey),
            "redacted": redacted[0] if redacted else 0,
        }


def mark(path: Path) -> tuple[int, int]:
    """What changes when someone writes to a file: its size and the time of its last change."""
    try:
        found = path.stat()
    except OSError:
        return -1, -1
    return found.st_size, found.st_mtime_ns


def reader_version() -> int:
    """The version of the reader that reads traces now."""
    from tracewarehouse.reader import READER_VERSION

    return READER_VERSION


def definitions_of(contracts: Iterable[Contract]) -> dict[str, int]:
    """Table → the definition that it is built by now."""
    return {contract.name: contract.version for contract in contracts}


def lost_events(survey: Survey) -> int | None:
    """How many events are in the bytes that could not be read; None where that cannot be known."""
    counts = [loss.events_lost for loss in survey.losses]
    return None if None in counts else sum(count or 0 for count in counts)


def tables_told(made: Iterable[Contract], before: Json = None) -> dict[str, Json]:
    """Table → the versions a source holds, empty ones included: no rows, no file."""
    told: dict[str, Json] = dict(before) if isinstance(before, dict) else {}
    for contract in made:
        held = told.get(contract.name)
        versions: list[Json] = held if isinstance(held, list) else []
        told[contract.name] = versions if contract.version in versions else [*versions, contract.version]
    return told


def content(con: Connection, survey: Survey, facts: dict[str, Json]) -> Content:
    """What the summary of an ingest tells of one file."""
    gpu = con.execute(
        "SELECT coalesce(sum(dur_ns), 0)::BIGINT, "
        "coalesce(sum(dur_ns) FILTER (launch_state = 'linked'), 0)::BIGINT, "
        "coalesce(sum(dur_ns) FILTER (op_id IS NOT NULL), 0)::BIGINT FROM kernels"
    ).fetchone() or (0, 0, 0)

    def fact(name: str) -> int:
        value = facts.get(name)
        return value if isinstance(value, int) else 0

    return Content(
        status=survey.status,  # type: ignore[arg-type]
        text_bytes=survey.text_bytes,
        events=fact("events"),
        non_events=fact("non_events"),
        lost_bytes=fact("lost_bytes"),
        lost_events=lost_events(survey),
        steps=fact("steps"),
        gpu_ns=gpu[0],
        linked_ns=gpu[1],
        with_op_ns=gpu[2],
        quality=_quality(con),
    )


def _quality(con: Connection) -> dict[str, int]:
    rules = con.execute('SELECT rule, sum("rows")::BIGINT FROM data_quality GROUP BY rule ORDER BY rule')
    return dict(rules.fetchall())


def too_much(path: Path, error: Exception) -> TwError:
    """DuckDB's own failure as ours: out of memory and out of disk are the two a user can act on."""
    first = str(error).strip().partition("\n")[0]
    if "memory" in first.lower():
        return TwError(f"{path}: not enough memory: {first}", "fewer files at once: --jobs 1")
    if "no space" in first.lower():
        return TwError(f"{path}: no space left to write", "free some space and repeat")
    return TwError(f"{path}: {first}", "this should not happen: `--debug` shows where")
