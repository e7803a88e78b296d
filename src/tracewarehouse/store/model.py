"""The values of the store: files of a table, units (one per ingested source), versions of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Status = Literal["whole", "repaired", "damaged"]
Outcome = Literal["added", "replaced", "same", "conflict", "pending"]


@dataclass(frozen=True)
class StagedTable:
    """A Parquet file in the making: one table of one rank, not yet part of the warehouse."""

    table: str
    version: int
    path: Path
    rows: int


@dataclass(frozen=True)
class Staged:
    """What one source gave, ready to be committed: its tables and the facts of its rank."""

    run: str
    rank: int
    uid: str
    digest: str
    text_bytes: int
    reader: int
    status: Status
    tables: tuple[StagedTable, ...]
    facts: Mapping[str, Json] = field(default_factory=dict)
    # Files of the unit whose place it takes that stay as they are.
    kept: tuple[TableFile, ...] = ()


@dataclass(frozen=True)
class TableFile:
    """One unit's share of a Parquet file: `rows` of the unit, the rest of the whole file."""

    table: str
    version: int
    path: str
    rows: int
    bytes: int
    sha256: str
    file_rows: int
    file_ranks: int = 1


@dataclass(frozen=True)
class Unit:
    """One ingested source: a rank of a run. `attempt` tells two ingests of the same source apart."""

    run: str
    rank: int
    uid: str
    attempt: str
    digest: str
    text_bytes: int
    reader: int
    status: Status
    committed_at: str
    files: tuple[TableFile, ...]
    facts: Mapping[str, Json] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`<uid>-<attempt>`: this very commit, in file names and markers."""
        return f"{self.uid}-{self.attempt}"


@dataclass(frozen=True)
class Scan:
    """A file to read; `ranks` are those to keep, None where every row belongs."""

    path: str
    ranks: tuple[int, ...] | None


@dataclass(frozen=True)
class Brief:
    """What orders and names a published version: its first event (None where unknown), its first commit."""

    run: str
    number: int
    labels: Mapping[str, str]
    start_ns: int | None
    ingested_at: str
    tombstone: bool = False


@dataclass(frozen=True)
class RunVersion:
    """A published version of a run: all that readers see of it. Units are in order of rank."""

    run: str
    number: int
    units: tuple[Unit, ...]
    labels: Mapping[str, str]
    expected_ranks: int | None
    created_at: str
    tool: str
    tombstone: bool = False
    # Units that waited when the run was removed: they must not come back.
    dropped: tuple[str, ...] = ()

    def unit(self, rank: int) -> Unit | None:
        """The unit of that rank, None where the version has none."""
        return next((unit for unit in self.units if unit.rank == rank), None)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks it holds, ascending."""
        return tuple(unit.rank for unit in self.units)

    @property
    def brief(self) -> Brief:
        """It in brief: start from its traces, time of its first commit."""
        starts = [unit.facts.get("start_ns") for unit in self.units]
        first = min((start for start in starts if isinstance(start, int)), default=None)
        ingested = min((unit.committed_at for unit in self.units), default=self.created_at)
        return Brief(self.run, self.number, self.labels, first, ingested, self.tombstone)

    @property
    def bytes(self) -> int:
        """Bytes of its Parquet files; a file shared by ranks counts once."""
        return sum({file.path: file.bytes for unit in self.units for file in unit.files}.values())

    @property
    def source(self) -> str:
        """16 hex digits that say what was read into it, and how: the same for every table made of that."""
        read = [[unit.rank, unit.digest, unit.reader] for unit in self.units]
        return hashlib.sha256(json.dumps(read, separators=(",", ":")).encode()).hexdigest()[:16]

    def table_versions(self) -> dict[str, tuple[int, ...]]:
        """Table → the versions its units hold of it, ascending."""
        found: dict[str, set[int]] = {}
        for unit in self.units:
            for file in unit.files:
                found.setdefault(file.table, set()).add(file.version)
        return {table: tuple(sorted(found[table])) for table in sorted(found)}

    def scan_plan(
        self, table: str, version: int | None = None, ranks: Iterable[int] | None = None
    ) -> tuple[Scan, ...]:
        """The files that hold a table for these ranks (None: all), in order of rank.

        Paths are relative to the root. `Scan.ranks` is set where a file also holds rows of
        ranks that were not asked for, or that this version no longer takes from it.
        """
        wanted = None if ranks is None else frozenset(ranks)
        sharing: dict[str, tuple[int, list[int]]] = {}
        for unit in self.units:
            for file in unit.files:
                fits = file.table == table and version in (None, file.version)
                if fits and (wanted is None or unit.rank in wanted):
                    sharing.setdefault(file.path, (file.file_ranks, []))[1].append(unit.rank)
        return tuple(
            Scan(path, None if len(here) == held else tuple(here)) for path, (held, here) in sharing.items()
        )


BeginsWith = Callable[[Unit, Unit], bool]


@dataclass(frozen=True)
class Changes:
    """One call's own changes to a run.

    `labels`: a value of None takes the label away. `replace`: other content may take a rank's
    place. `rebuilt`: the units hold other tables of the same sources, and replace those only.
    `expected_ranks`: nothing is published until the run has that many.
    `begins_with(stored, new)`: whether the new source starts with all bytes of the stored,
    damaged one; asked only where the new one is longer.
    """

    units: tuple[Unit, ...] = ()
    drop_ranks: tuple[int, ...] = ()
    labels: Mapping[str, str | None] = field(default_factory=dict)
    replace: bool = False
    rebuilt: bool = False
    expected_ranks: int | None = None
    begins_with: BeginsWith | None = None


@dataclass(frozen=True)
class Published:
    """What came of a publish: the version written (None: nothing was), and each own rank's outcome.

    `pending` = (ranks there, ranks expected) where the run still waits for more.
    """

    version: RunVersion | None
    outcome: Mapping[int, Outcome]
    pending: tuple[int, int] | None = None


@dataclass(frozen=True)
class Waiting:
    """A committed unit that waits for the others of its run, with the labels its call gave."""

    unit: Unit
    expected_ranks: int
    replace: bool
    labels: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """Something `verify` found: where, and what is wrong."""

    run: str
    path: str
    what: str


@dataclass(frozen=True)
class CleanReport:
    """What `clean` took away."""

    files: int
    bytes: int
    versions: int
