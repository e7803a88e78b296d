"""Versions with other files: compaction into few large ones, and retention without tables of some ranks."""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.contracts.contract import Ref
from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage.commits import now
from tracewarehouse.storage.model import (
    EXPIRED,
    TARGET_BYTES,
    Changes,
    Compacted,
    Expired,
    Expiring,
    Json,
    RankSource,
    RunVersion,
    StagedTable,
    TableFile,
    staged_again,
)
from tracewarehouse.storage.pack import Share, merge
from tracewarehouse.storage.parquet_file import content_fault
from tracewarehouse.storage.store import Store

# Ranks that share files and a manifest, which holds the headers of all of them.
BLOCK_RANKS = 256


class NewFile(Struct, frozen=True):
    """A file to write: the shares of its sources, ranks ascending."""

    table: str
    version: int
    shares: tuple[tuple[RankSource, TableFile], ...]


class Compaction(Struct, frozen=True, dict=True):
    """What a compaction does to a version of a run."""

    version: RunVersion
    files: tuple[NewFile, ...]

    @cached_property
    def replaced(self) -> dict[str, TableFile]:
        """Key → each file that is replaced."""
        return {file.path: file for new in self.files for _, file in new.shares}

    @property
    def files_before(self) -> int:
        """The number of Parquet files that the version reads."""
        return len(self.version.paths)

    @property
    def files_after(self) -> int:
        """The number of files afterwards."""
        return self.files_before - len(self.replaced) + len(self.files)


def plan(version: RunVersion, target_bytes: int = TARGET_BYTES, least_bytes: int | None = None) -> Compaction:
    """Files without unused rows stay if they are large; the others are grouped by rank.

    `least_bytes` is the size of a large file (None: half the target).
    """
    least = target_bytes / 2 if least_bytes is None else least_bytes
    shelves: dict[tuple[str, int, int], list[tuple[RankSource, TableFile]]] = defaultdict(list)
    turns: Counter[tuple[int, str, int]] = Counter()
    # Key → the rows of the file that the version reads; replaced ranks leave unused ones.
    used_rows: Counter[str] = Counter()
    for source in version.sources:
        for file in source.files:
            used_rows[file.path] += file.rows
            place = (source.rank, file.table, file.version)
            shelves[file.table, file.version, turns[place]].append((source, file))
            turns[place] += 1
    blocks = {rank: index // BLOCK_RANKS for index, rank in enumerate(version.ranks)}

    def is_kept(file: TableFile) -> bool:
        return used_rows[file.path] == file.file_rows and file.bytes >= least

    new_files = []
    for (table, number, _), shelf in shelves.items():
        small = [share for share in shelf if not is_kept(share[1])]
        for shares in _groups(small, blocks, target_bytes):
            file = shares[0][1]
            is_alone = all(other.path == file.path for _, other in shares) and len(shares) == file.file_ranks
            if not (is_alone and used_rows[file.path] == file.file_rows):
                new_files.append(NewFile(table, number, tuple(shares)))
    return Compaction(version, tuple(new_files))


def _groups(
    shelf: Sequence[tuple[RankSource, TableFile]], blocks: Mapping[int, int], target_bytes: int
) -> Iterator[list[tuple[RankSource, TableFile]]]:
    """Groups of consecutive ranks of one block, of about the target in bytes."""
    group: list[tuple[RankSource, TableFile]] = []
    size = 0
    for source, file in shelf:
        share = file.bytes * file.rows // max(file.file_rows, 1)
        if group and (size + share > target_bytes or blocks[source.rank] != blocks[group[-1][0].rank]):
            yield group
            group, size = [], 0
        group.append((source, file))
        size += share
    if group:
        yield group


def compact(
    store: Store,
    run: str,
    target_bytes: int = TARGET_BYTES,
    dry_run: bool = False,
    least_bytes: int | None = None,
) -> Compacted:
    """Compacts the newest version of a run; the replaced files stay until `clean`.

    Sources keep their identity, so recorded results stay valid. A rank that another call changes meanwhile
    keeps what that call published. Raises UnknownName, WarehouseError for a damaged file.
    """
    head = store.existing(run)
    planned = plan(head, target_bytes, least_bytes)
    bytes_before, count = head.bytes, planned.files_before
    if dry_run or not planned.files:
        after = None if planned.files else bytes_before
        return Compacted(
            head.run, head.number, count, planned.files_after, bytes_before, after, len(planned.replaced)
        )
    described: dict[str, Json] = {"at": now(), "target_bytes": target_bytes}
    with store.staging():  # `clean` spares what it commits until it is published
        replaces, sources = _commit(store, planned)
        published = store.publish(head.run, Changes(sources=sources, replaces=replaces, compacted=described))
    skipped = {source.rank for source in sources if published.outcome[source.name] != "replaced"}
    version = published.version or store.head(run)
    files, ranks, rewritten = len(version.paths), tuple(sorted(skipped)), len(planned.replaced)
    return Compacted(version.run, version.number, count, files, bytes_before, version.bytes, rewritten, ranks)


def _commit(store: Store, planned: Compaction) -> tuple[dict[str, str], tuple[RankSource, ...]]:
    """Commits the new files block by block; name of each new source → name of the replaced one."""
    headers = store.headers(planned.version.sources)
    blocks = {rank: index // BLOCK_RANKS for index, rank in enumerate(planned.version.ranks)}
    by_block: dict[int, list[NewFile]] = defaultdict(list)
    for new_file in planned.files:
        by_block[blocks[new_file.shares[0][0].rank]].append(new_file)
    replaces: dict[str, str] = {}
    sources: list[RankSource] = []
    for files in by_block.values():
        with store.staging() as folder:
            old_sources = {source.name: source for new_file in files for source, _ in new_file.shares}
            tables = _write(store, files, folder)
            staged = [
                staged_again(
                    old,
                    headers[old.name],
                    tables[old.name],
                    (file for file in old.files if file.path not in planned.replaced),
                )
                for old in old_sources.values()
            ]
            committed = store.commit(staged)
        replaces |= {new.name: name for new, name in zip(committed, old_sources, strict=True)}
        sources += committed
    return replaces, tuple(sources)


def _write(store: Store, files: Sequence[NewFile], folder: Path) -> dict[str, list[StagedTable]]:
    """Name of a source → its shares of the new files."""
    tables: dict[str, list[StagedTable]] = defaultdict(list)
    for output in files:
        path = folder / f"{output.table}-{secrets.token_hex(4)}.parquet"
        local = _intact(store, output)
        shares = [Share(one.rank, local[file.path], file.rows, file.file_rows) for one, file in output.shares]
        merge(Ref(output.table, output.version), shares, path)
        rows, ranks = sum(file.rows for _, file in output.shares), tuple(one.rank for one, _ in output.shares)
        for source, file in output.shares:
            share = StagedTable(output.table, output.version, path, file.rows, rows, ranks)
            tables[source.name].append(share)
    return tables


def _intact(store: Store, output: NewFile) -> dict[str, Path]:
    """Key → local path of the inputs; a damaged file must not get a new checksum."""
    files = {file.path: file for _, file in output.shares}
    faults: dict[str, str | None] = dict(store.files.fetch(files.values()))
    if not store.is_remote:
        faults |= {
            key: content_fault(store.path(key), file.bytes, file.sha256) for key, file in files.items()
        }
    for key, what in faults.items():
        if what is not None:
            run = output.shares[0][0].run
            raise WarehouseError(f"run {run} is damaged: {key}: {what}", hints.repair(run))
    return {key: store.path(key) for key in files}


def expire(store: Store, run: str, expiring: Expiring, dry_run: bool = False) -> Expired:
    """Publishes a version without these tables of these ranks; facts and recorded results stay.

    Ingesting the same trace again restores them. Raises UnknownName.
    """
    head = store.existing(run)
    old_sources = {source.name: source for source in head.sources if _dropped(source, expiring)}
    changed = {name: _without(source, expiring) for name, source in old_sources.items()}
    report = _report(head, old_sources, changed)
    if dry_run or not old_sources:
        return report
    headers = store.headers(old_sources.values())
    dropped = {file.path for source in old_sources.values() for file in source.files}
    staged = [staged_again(source, headers[source.name], (), source.files) for source in changed.values()]
    with store.staging():
        committed = store.commit(staged)
        replaces = {new.name: name for new, name in zip(committed, changed, strict=True)}
        published = store.publish(head.run, Changes(sources=committed, replaces=replaces))
    skipped = sorted({source.rank for source in committed if published.outcome[source.name] != "replaced"})
    version = published.version or store.head(run)
    for path in dropped - version.paths:
        store.files.forget(path)
    return replace(report, version=version.number, skipped_ranks=tuple(skipped))


def _dropped(source: RankSource, expiring: Expiring) -> dict[str, Json]:
    """The tables of the source that expire, and why."""
    tables = expiring.get(source.rank, {})
    return {file.table: tables[file.table] for file in source.files if file.table in tables}


def _without(source: RankSource, expiring: Expiring) -> RankSource:
    gone = _dropped(source, expiring)
    expired, tables = source.facts.get(EXPIRED), source.facts.get("tables")
    facts: dict[str, Json] = {**source.facts}
    facts[EXPIRED] = {**(expired if isinstance(expired, dict) else {}), **gone}
    if isinstance(tables, dict):
        facts["tables"] = {name: versions for name, versions in tables.items() if name not in gone}
    return replace(source, facts=facts, files=tuple(file for file in source.files if file.table not in gone))


def _report(head: RunVersion, old: Mapping[str, RankSource], new: Mapping[str, RankSource]) -> Expired:
    before = {file.path: file for source in old.values() for file in source.files}
    after = {file.path for source in head.sources for file in new.get(source.name, source).files}
    read_less = {
        file.path for name, source in old.items() for file in source.files if file not in new[name].files
    }
    gone = [file for path, file in before.items() if path not in after]
    tables = {table for source in new.values() for table in source.expired} - {
        table for source in old.values() for table in source.expired
    }
    return Expired(
        head.run,
        head.number,
        tuple(sorted(tables | {file.table for file in gone})),
        len({source.rank for source in old.values()}),
        len(gone),
        sum(file.bytes for file in gone),
        len(read_less & after),
    )
