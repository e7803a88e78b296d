"""What a call writes and what becomes of it: staged sources, changes to a run, and their outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tracewarehouse.storage.model import Json, RankSource, RunVersion, Status, TableFile, Unknown

Outcome = Literal["added", "replaced", "same", "conflict", "pending"]
# `now`: the call that commits also publishes. `push`: a later seal publishes.
Intent = Literal["now", "push"]
# The size of the files that a compaction writes.
TARGET_BYTES = 128_000_000
# How long `clean` keeps replaced versions.
KEEP_VERSIONS_S = 30 * 86_400.0


@dataclass(frozen=True)
class StagedTable:
    """One source's rows of a table in a Parquet file that is not yet part of the warehouse.

    `rows` are this source's. A file may already be packed with several ranks: each of them names the same
    `path` in its own StagedTable, with its own `rows`, and the same `file_rows` (rows of the whole file)
    and `ranks` (the ranks in the file, ascending, one source each). Such a file is moved unchanged, and all
    its ranks must be in the same commit. If `ranks` is empty, the file holds this source alone, and small
    neighbors are packed by the commit.
    """

    table: str
    version: int
    path: Path
    rows: int
    file_rows: int | None = None
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Staged:
    """The tables and facts of one source of one rank, ready to be committed.

    `digest` is the digest of the content, `part` names the part of the file that describes the rank ("" for a
    file of one rank); the two identify the source. `definitions` maps each table to the definition it was
    built with. `uid` hashes what the commit is made of (see `layout.uid`). `kept` are unchanged files of the
    source that it replaces. `header` is the metadata in the trace file, a JSON object as text.
    `committed_at` is set when a stored source is rebuilt: it keeps its time of ingestion, and its `unknown`.
    """

    run: str
    rank: int
    uid: str
    digest: str
    text_bytes: int
    format: str
    format_version: int
    definitions: Mapping[str, int]
    status: Status
    tables: tuple[StagedTable, ...]
    part: str = ""
    facts: Mapping[str, Json] = field(default_factory=dict)
    header: str = "{}"
    kept: tuple[TableFile, ...] = ()
    committed_at: str | None = None
    unknown: Unknown = ()


@dataclass(frozen=True)
class PendingSource:
    """A committed source that waits for the other ranks of its run, with the labels of its call.

    `expected_ranks` is 0 if its call did not state it.
    """

    source: RankSource
    expected_ranks: int
    replace: bool
    labels: Mapping[str, str | None] = field(default_factory=dict)


# (stored, new) → whether the new source starts with all bytes of the stored, damaged one.
BeginsWith = Callable[[RankSource, RankSource], bool]


@dataclass(frozen=True)
class Changes:
    """What one call changes in a run.

    `labels`: a value of None removes the label. `replace`: replace other content that fills the same tables.
    `rebuilt`: the sources are rebuilt from stored ones, and replace only those.
    `expected_ranks`: nothing is published until the run has that many, unless `allow_missing`. `pushed`:
    sources of earlier calls that left publishing to this one, each with the options of its call.
    `begins_with(stored, new)`: whether the new source starts with all bytes of the stored, damaged one;
    called only if the new one is longer. `drop_sources` and `damaged` are names of stored sources: to drop,
    and not to be taken for what the call brings, because their files are damaged. `replaces`: name of a
    source of the call → name of the stored one whose place it takes; if the run no longer holds that one,
    nothing changes for its rank. `compacted` describes a compaction.
    """

    sources: tuple[RankSource, ...] = ()
    drop_ranks: tuple[int, ...] = ()
    labels: Mapping[str, str | None] = field(default_factory=dict)
    replace: bool = False
    rebuilt: bool = False
    expected_ranks: int | None = None
    allow_missing: bool = False
    pushed: tuple[PendingSource, ...] = ()
    begins_with: BeginsWith | None = None
    drop_sources: frozenset[str] = frozenset()
    damaged: frozenset[str] = frozenset()
    replaces: Mapping[str, str] = field(default_factory=dict)
    compacted: Json = None


@dataclass(frozen=True)
class Published:
    """The result of a publish: the version written (None: nothing), and the outcome of each source.

    `outcome` maps the names of the call's sources to outcomes, also of those that were pushed before.
    `pending` = (ranks present, ranks expected) if the run still waits for more. `pushed`: what a seal read.
    """

    version: RunVersion | None
    outcome: Mapping[str, Outcome]
    pending: tuple[int, int] | None = None
    pushed: tuple[PendingSource, ...] = ()


@dataclass(frozen=True)
class Compacted:
    """The result for a run: number of its version, files and bytes before and after, files replaced.

    `bytes_after` is None for a dry run. `skipped_ranks` changed while the files were written and keep
    theirs.
    """

    run: str
    version: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int | None
    rewritten: int = 0
    skipped_ranks: tuple[int, ...] = ()


# Rank → table → why it expires: its date and the rule.
Expiring = Mapping[int, Mapping[str, Json]]


@dataclass(frozen=True)
class Expired:
    """What expired of a run: its version, the tables, ranks, files and bytes that no rank reads any more.

    `shared_files` are still read by other ranks; a compaction separates them. `skipped_ranks` changed
    meanwhile and keep their tables.
    """

    run: str
    version: int
    tables: tuple[str, ...]
    ranks: int
    files: int
    bytes: int
    shared_files: int
    skipped_ranks: tuple[int, ...] = ()
