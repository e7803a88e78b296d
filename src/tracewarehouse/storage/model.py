"""Stored values: table files, rank sources, versions of runs, and the changes that a call makes to a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property, update_wrapper
from pathlib import Path
from typing import Any, Literal, TypeVar, TypeVarTuple

from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse.exact_text import rank_ranges

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Status = Literal["intact", "repaired", "damaged"]
# Fields of a later release in a stored object: readers ignore them, rewriters keep them.
Unknown = tuple[tuple[str, Json], ...]

# The main source of a rank is the one that fills this table.
MAIN_TABLE = "events"
# Tables that every source may fill: they never make two sources conflict.
SHARED_TABLES = frozenset({"data_quality"})
# The fact of a source, and the field of a version, that name the tables that retention dropped.
EXPIRED = "expired"
# The fact of a source with the digest of the users' rules that classified its kernels.
KERNEL_RULES = "kernel_rules"
# The tables that depend on these rules.
CLASSIFIED = frozenset({"kernels", "device_segments", "kernel_modules", "op_work"})


class TableFile(Struct, frozen=True):
    """A source's share of a stored Parquet file: `rows` are the source's, the rest is of the file.

    The footer is the Parquet metadata with its length and the closing magic: the last `footer_bytes` bytes.
    """

    table: str
    version: int
    path: str
    rows: int
    bytes: int
    sha256: str
    footer_bytes: int
    footer_sha256: str
    file_rows: int
    first_rank: int
    last_rank: int
    file_ranks: int = 1
    crc32: int = 0
    unknown: Unknown = ()


class RankSource(Struct, frozen=True):
    """One committed source of a rank of a run. `attempt` distinguishes two commits of the same source.

    `commit` is the name of the commit, which alone has the source's header.
    `facts` are the columns of `ranks` except the header.
    """

    run: str
    rank: int
    uid: str
    attempt: str
    commit: str
    digest: str
    part: str
    format: str
    format_version: int
    definitions: Mapping[str, int]
    text_bytes: int
    status: Status
    committed_at: str
    files: tuple[TableFile, ...]
    facts: Mapping[str, Json] = field(default_factory=dict)
    unknown: Unknown = ()

    @property
    def name(self) -> str:
        """`<uid>-<attempt>`: identifies this commit of the source."""
        return f"{self.uid}-{self.attempt}"

    @property
    def identity(self) -> tuple[str, str]:
        """Digest and part: identify the source, whatever read it."""
        return self.digest, self.part

    @property
    def expired(self) -> dict[str, str]:
        """Table → the date on which retention dropped its files; the fact `expired` has the rule, too."""
        expired = self.facts.get(EXPIRED)
        if not isinstance(expired, dict):
            return {}
        return {table: str(reason["at"]) for table, reason in expired.items() if isinstance(reason, dict)}

    @property
    def fills(self) -> frozenset[str]:
        """Tables that it has rows of, or had until they expired, except those that every source may fill."""
        return frozenset(file.table for file in self.files).union(self.expired) - SHARED_TABLES

    @property
    def is_redacted(self) -> bool:
        """Whether its strings were searched for secrets when it was read; see the fact `redaction`."""
        redaction = self.facts.get("redaction")
        return not isinstance(redaction, dict) or redaction.get("rules") != 0

    @property
    def kernel_rules(self) -> str:
        """The digest of the users' rules that classified its kernels; empty for none."""
        return str(self.facts.get(KERNEL_RULES) or "")

    def is_classified_by(self, digest: str) -> bool:
        """Whether rules with this digest would classify its GPU activities as they are; it may have none."""
        return not self.facts.get("gpu") or self.kernel_rules == digest

    def overlaps(self, other: RankSource) -> bool:
        """Whether a rank cannot hold both: they fill a common table, or one of them fills none."""
        filled, filled_by_other = self.fills, other.fills
        return not filled or not filled_by_other or not filled.isdisjoint(filled_by_other)

    def is_current(self, format: str, format_version: int, definitions: Mapping[str, int]) -> bool:
        """Whether reading the same content with this format and these definitions would change nothing.

        The format and its version must be equal, and no table expired. A table that was rebuilt by
        a newer definition since then is not a reason to read the file again.
        """
        is_alike = (self.format, self.format_version) == (format, format_version) and not self.expired
        return is_alike and all(self.definitions.get(table, 0) >= one for table, one in definitions.items())


class Rank(Struct, frozen=True, dict=True):
    """What a version holds of one rank: one source, or several in order of their names."""

    sources: tuple[RankSource, ...]

    @property
    def run(self) -> str:
        """The run's name."""
        return self.sources[0].run

    @cached_property
    def rank(self) -> int:
        """The rank's number."""
        return self.sources[0].rank

    @cached_property
    def main(self) -> RankSource:
        """The source that fills the events; else the first by name."""
        if len(self.sources) == 1:
            return self.sources[0]
        filling = (one for one in self.sources if MAIN_TABLE in one.fills)
        return next(filling, self.sources[0])

    @cached_property
    def facts(self) -> Mapping[str, Json]:
        """The facts of the main source, with the true flags and the tables of the other sources."""
        if len(self.sources) == 1:
            return self.main.facts
        merged = dict(self.main.facts)
        for source in self.sources:
            merged |= {name: True for name, value in source.facts.items() if value is True}
        facts = [tables for source in self.sources if isinstance(tables := source.facts.get("tables"), dict)]
        if facts:
            versions_of: dict[str, list[Json]] = {}
            for tables in facts:
                for table, versions in tables.items():
                    listed = versions if isinstance(versions, list) else [versions]
                    all_versions = versions_of.setdefault(table, [])
                    all_versions += [version for version in listed if version not in all_versions]
            merged["tables"] = dict(versions_of)
        return merged

    @cached_property
    def expired(self) -> dict[str, str]:
        """Table → the date on which retention dropped it from one of its sources."""
        return {table: date for source in self.sources for table, date in source.expired.items()}

    @cached_property
    def files(self) -> tuple[TableFile, ...]:
        """The files of all its sources."""
        return tuple(file for source in self.sources for file in source.files)

    @cached_property
    def tables(self) -> Mapping[str, frozenset[int]]:
        """Table → the versions of its files."""
        versions: dict[str, frozenset[int]] = {}
        for file in self.files:
            versions[file.table] = versions.get(file.table, frozenset()) | {file.version}
        return versions

    @property
    def status(self) -> Status:
        """The worst status of its sources."""
        statuses = {source.status for source in self.sources}
        return "damaged" if "damaged" in statuses else "repaired" if "repaired" in statuses else "intact"

    @property
    def committed_at(self) -> str:
        """When the last of its sources was committed."""
        return max(source.committed_at for source in self.sources)


class Scan(Struct, frozen=True):
    """A file to read, and the version of its table.

    `ranks` are the ranks to keep, because others may share the file; None keeps every row.
    """

    path: str
    ranks: tuple[int, ...] | None
    version: int = 0


# 1973; smaller times are relative to an unknown start, and cannot order runs.
_WALL_CLOCK_NS = 10**17


class Brief(Struct, frozen=True, gc=False):
    """What orders and names a published version: its first event (None if unknown) and first commit."""

    run: str
    number: int
    labels: Mapping[str, str]
    start_ns: int | None
    ingested_at: str
    tombstone: bool = False

    @property
    def selector(self) -> str:
        """`RUN@vN`."""
        return f"{self.run}@v{self.number}"

    @property
    def order(self) -> tuple[int, str]:
        """The sort key of runs: start time from the trace, else time of ingest; ties by name."""
        if self.start_ns is not None and self.start_ns >= _WALL_CLOCK_NS:
            return self.start_ns, self.run
        time = datetime.fromisoformat(self.ingested_at)
        epoch = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
        since_epoch = (time if time.tzinfo else time.replace(tzinfo=epoch.tzinfo)) - epoch
        return since_epoch // timedelta(microseconds=1) * 1_000, self.run


class UnreadableRun(Struct, frozen=True):
    """A run whose newest version is damaged or lost: its name (or key), the version's key, and the reason."""

    run: str
    key: str
    why: str
    hint: str | None = None


class Summary(Struct, frozen=True, gc=False):
    """What is known of a version without its files: ranks as first and last of each range, bytes, times.

    `hardware` and `kernel_rules` are None in versions of many files that were written without them.
    """

    ranks: tuple[tuple[int, int], ...]
    commits: tuple[str, ...]
    tables: dict[str, tuple[int, ...]]
    bytes: int
    source: str
    start_ns: int | None
    ingested_at: str
    hardware: tuple[int, tuple[str, ...]] | None = None
    kernel_rules: tuple[str, ...] | None = None


# A file with the share of each source: position and rank of the source, and its rows.
FileShares = tuple["TableFile", Sequence[tuple[int, int, int]]]


class StoredList(Struct, frozen=True):
    """The object with the files and sources of a version of many files: key, size, checksum and contents."""

    key: str
    bytes: int
    sha256: str
    summary: Summary


class LateSources(Sequence[RankSource]):
    """The sources of a version of which a summary is known.

    `load()` reads them, or the version, when they are looked at.
    """

    def __init__(self, summary: Summary, load: Callable[[], Sequence[RankSource] | RunVersion]) -> None:
        self.summary, self.load = summary, load

    @cached_property
    def loaded(self) -> tuple[RankSource, ...]:
        """All sources."""
        loaded = self.load()
        return tuple(loaded.sources if isinstance(loaded, RunVersion) else loaded)

    def __len__(self) -> int:
        return len(self.loaded)

    def __getitem__(self, index: int | slice) -> Any:
        return self.loaded[index]

    def __eq__(self, other: object) -> bool:
        return self is other or self.loaded == (other.loaded if isinstance(other, LateSources) else other)

    def __hash__(self) -> int:
        return hash(self.summary.source)


class ManySources(LateSources):
    """The sources of a version of many files; `read(tables)` reads the files of these tables."""

    def __init__(
        self,
        stored: StoredList,
        read: Callable[[Iterable[str]], Iterable[FileShares]],
        load: Callable[[], tuple[RankSource, ...]],
    ) -> None:
        super().__init__(stored.summary, load)
        self.stored, self.read = stored, read

    def shares(self, tables: Iterable[str]) -> Iterator[tuple[int, int, TableFile]]:
        """Position and rank of each source with its share of each file of these tables."""
        for file, shares in self.read(tables):
            for position, rank, rows in shares:
                yield position, rank, replace(file, rows=rows)


class RunVersion(Struct, frozen=True, dict=True):
    """A published version of a run: what readers see. Sources are in order of rank, then of name.

    `previous` is the SHA-256 of the version before. `retired` names commits that waited and that an earlier
    version held, or that were not published: they wait no more. `results_of` numbers earlier versions of
    which recorded results are kept though the run was removed. Versions below `kept_from` may be deleted.
    `taken_out` are keys of objects that a repair found damaged or lost. `compacted` describes the last
    compaction. `expired` maps the tables that retention dropped from a rank to the last date.
    `must_understand` lists fields without which the version would be misread. `warehouse` has id and salt of
    the warehouse. `nonce` makes the bytes of the object unique.
    """

    run: str
    number: int
    sources: Sequence[RankSource]
    labels: Mapping[str, str]
    expected_ranks: int | None
    created_at: str
    tool: str
    tombstone: bool = False
    previous: str = ""
    retired: tuple[str, ...] = ()
    results_of: tuple[int, ...] = ()
    kept_from: int = 1
    taken_out: tuple[str, ...] = ()
    compacted: Json = None
    expired: Json = None
    must_understand: tuple[str, ...] = ()
    warehouse: Json = None
    nonce: str = ""
    unknown: Unknown = ()

    @cached_property
    def by_rank(self) -> tuple[Rank, ...]:
        """Its ranks, ascending, each with all its sources."""
        by_rank: dict[int, list[RankSource]] = {}
        for source in self.sources:
            by_rank.setdefault(source.rank, []).append(source)
        return tuple(Rank(tuple(by_rank[rank])) for rank in sorted(by_rank))

    def emptied(self) -> RunVersion:
        """The same number without what it holds; what it says of earlier versions stays."""
        fields = {name: getattr(self, name) for name in ("retired", "results_of", "kept_from", "taken_out")}
        return RunVersion(self.run, self.number, (), {}, None, self.created_at, self.tool, **fields)

    def rank(self, number: int) -> Rank | None:
        """The rank of that number, None if the version has none."""
        return next((rank for rank in self.by_rank if rank.rank == number), None)

    @cached_property
    def summary(self) -> Summary:
        """What most readers need; of a version of many files it is read without them."""
        if isinstance(self.sources, LateSources):
            return self.sources.summary
        starts = [rank.facts.get("start_ns") for rank in self.by_rank]
        files = {file.path: file for source in self.sources for file in source.files}
        tables: dict[str, set[int]] = {}
        for file in files.values():
            tables.setdefault(file.table, set()).add(file.version)
        identity = sorted(
            [one.rank, one.digest, one.part, one.format, one.format_version] for one in self.sources
        )
        return Summary(
            ranks=tuple(rank_ranges(rank.rank for rank in self.by_rank)),
            commits=tuple(sorted({source.commit for source in self.sources})),
            tables={table: tuple(sorted(tables[table])) for table in sorted(tables)},
            bytes=sum(file.bytes for file in files.values()),
            source=hashlib.sha256(json.dumps(identity, separators=(",", ":")).encode()).hexdigest()[:16],
            start_ns=min((start for start in starts if isinstance(start, int)), default=None),
            ingested_at=min((source.committed_at for source in self.sources), default=self.created_at),
            hardware=_hardware(self.by_rank),
            kernel_rules=_kernel_rules(self.sources),
        )

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of its ranks, ascending."""
        return tuple(rank for first, last in self.summary.ranks for rank in range(first, last + 1))

    @property
    def brief(self) -> Brief:
        """Its name, labels, start time from its traces, and time of its first commit."""
        facts = self.summary
        return Brief(self.run, self.number, self.labels, facts.start_ns, facts.ingested_at, self.tombstone)

    @property
    def bytes(self) -> int:
        """Bytes of its Parquet files; a file shared by ranks counts once."""
        return self.summary.bytes

    @cached_property
    def kernel_rules(self) -> tuple[str, ...]:
        """The digests of the users' rules that classified its ranks with GPU activities; "" for none."""
        rules = self.summary.kernel_rules
        return _kernel_rules(self.sources) if rules is None else rules

    @cached_property
    def hardware(self) -> tuple[int, tuple[str, ...]]:
        """The number of its ranks, its world size if that is known, and its GPU models."""
        return self.summary.hardware or _hardware(self.by_rank)

    @property
    def source(self) -> str:
        """16 hex digits that identify what was read into it, and how; rebuilt tables do not change them."""
        return self.summary.source

    @property
    def paths(self) -> frozenset[str]:
        """The keys of its files."""
        return frozenset(file.path for source in self.sources for file in source.files)

    def shares(self, tables: Collection[str]) -> Iterator[tuple[int, int, TableFile]]:
        """Position and rank of each source with its share of each file of these tables."""
        if isinstance(self.sources, ManySources):
            return self.sources.shares(tables)
        return (
            (position, source.rank, file)
            for position, source in enumerate(self.sources)
            for file in source.files
            if file.table in tables
        )

    def scan_plan(
        self, table: str, version: int | Sequence[int] | None = None, ranks: Iterable[int] | None = None
    ) -> tuple[Scan, ...]:
        """The files of a table for these ranks (None: all), in order of rank, relative to the root.

        Each source is read in the first of these versions that it holds; None means every version.
        """
        chosen = None if ranks is None else frozenset(ranks)
        versions = (version,) if isinstance(version, int) else version
        of_source: dict[int, list[tuple[int, TableFile]]] = {}
        for position, rank, file in self.shares((table,)):
            if chosen is None or rank in chosen:
                of_source.setdefault(position, []).append((rank, file))
        sharing: dict[str, tuple[TableFile, list[int]]] = {}
        for position in sorted(of_source):
            for rank, file in _first_held(of_source[position], versions):
                sharing.setdefault(file.path, (file, []))[1].append(rank)
        return tuple(
            Scan(path, None if len(ranks_of_file) == file.file_ranks else tuple(ranks_of_file), file.version)
            for path, (file, ranks_of_file) in sharing.items()
        )


def _hardware(ranks: Sequence[Rank]) -> tuple[int, tuple[str, ...]]:
    sizes = [size for rank in ranks if isinstance(size := rank.facts.get("world_size"), int)]
    names = {str(rank.facts["device_name"]) for rank in ranks if rank.facts.get("device_name")}
    return max(sizes, default=len(ranks)), tuple(sorted(names))


def _kernel_rules(sources: Iterable[RankSource]) -> tuple[str, ...]:
    return tuple(sorted({one.kernel_rules for one in sources if one.facts.get("gpu")}))


R = TypeVar("R")
Ts = TypeVarTuple("Ts")


def once_per_version(function: Callable[[RunVersion, *Ts], R]) -> Callable[[RunVersion, *Ts], R]:
    """Remembers what a function finds in a version, which never changes: a page needs it a hundred times.

    Its other arguments are hashable.
    """

    def remembered(version: RunVersion, *args: *Ts) -> R:
        results: dict[object, R] = version.__dict__.setdefault("_found", {})
        if (function, args) not in results:
            results[function, args] = function(version, *args)
        return results[function, args]

    return update_wrapper(remembered, function)


def _first_held(
    shares: list[tuple[int, TableFile]], versions: Sequence[int] | None
) -> list[tuple[int, TableFile]]:
    """The shares of the first of these versions that a source holds."""
    if versions is None:
        return shares
    by_version = ([share for share in shares if share[1].version == version] for version in versions)
    return next((held for held in by_version if held), [])


class Problem(Struct, frozen=True):
    """A problem that `verify` found: the run, the key of the object, and what is wrong."""

    run: str
    path: str
    what: str


class CleanReport(Struct, frozen=True):
    """What `clean` deleted: number of files, their bytes, and versions.

    `skipped`: runs of which nothing was deleted, because lost or damaged objects may have held their files.
    """

    files: int
    bytes: int
    versions: int
    skipped: tuple[str, ...] = ()


Outcome = Literal["added", "replaced", "same", "conflict", "pending"]
# The size of the files that a compaction writes.
TARGET_BYTES = 128_000_000
# How long `clean` keeps replaced versions.
KEEP_VERSIONS_S = 30 * 86_400.0


class StagedTable(Struct, frozen=True):
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


class Staged(Struct, frozen=True):
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


def common_fields(record: Struct, kind: type[Struct]) -> dict[str, Any]:
    """The fields of a record that another kind of record has, too."""
    names = record.__struct_fields__
    return {name: getattr(record, name) for name in kind.__struct_fields__ if name in names}


def staged_again(
    source: RankSource, header: str, tables: Iterable[StagedTable], kept: Iterable[TableFile], **changes: Any
) -> Staged:
    """A stored source with new tables and the files `kept`; all else stays, but for the `changes`."""
    fields = common_fields(source, Staged) | changes
    return Staged(**fields, header=header, tables=tuple(tables), kept=tuple(kept))


class PendingSource(Struct, frozen=True):
    """A committed source that waits for the other ranks of its run, with the labels of its call."""

    source: RankSource
    expected_ranks: int
    replace: bool
    labels: Mapping[str, str | None] = field(default_factory=dict)


# (stored, new) → whether the new source starts with all bytes of the stored, damaged one.
BeginsWith = Callable[[RankSource, RankSource], bool]


class Changes(Struct, frozen=True):
    """What one call changes in a run.

    `labels`: a value of None removes the label. `replace`: replace other content that fills the same tables.
    `rebuilt`: the sources are rebuilt from stored ones, and replace only those.
    `expected_ranks`: nothing is published until the run has that many; ranks that calls before this one left
    waiting count and are published, too. `seal`: publishes what waits, however many ranks there are.
    `begins_with(stored, new)`: whether the new source starts with all bytes of the stored, damaged one;
    called only if the new one is longer. `drop_sources` and `damaged` are names of stored sources: to drop,
    and not to be taken for what the call brings, because their files are damaged. `replaces`: name of a
    source of the call → name of the stored one whose place it takes; if the run no longer holds that one,
    nothing changes for its rank. `compacted` describes a compaction.
    """

    sources: tuple[RankSource, ...] = ()
    drop_ranks: tuple[int, ...] = ()
    labels: Mapping[str, str | None] = {}
    replace: bool = False
    rebuilt: bool = False
    expected_ranks: int | None = None
    seal: bool = False
    begins_with: BeginsWith | None = None
    drop_sources: frozenset[str] = frozenset()
    damaged: frozenset[str] = frozenset()
    replaces: Mapping[str, str] = {}
    compacted: Json = None


class Published(Struct, frozen=True):
    """The result of a publish: the version written (None: nothing), and the outcome of each source.

    `newest`: the newest version, written or not. `outcome` maps the names of the call's sources to outcomes,
    also of those that waited before. `pending` = (ranks present, ranks expected) if the run still waits for
    more. `waited`: the sources that waited before.
    """

    version: RunVersion | None
    newest: RunVersion
    outcome: Mapping[str, Outcome]
    pending: tuple[int, int] | None = None
    waited: tuple[PendingSource, ...] = ()


class Compacted(Struct, frozen=True):
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


class Expired(Struct, frozen=True):
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
