"""Commits: staged Parquet files are packed, synced and moved, then named by one object per group of ranks.

The life of a commit: `commit` writes the data files, then the object; no reader sees either. Then
`Store.publish` writes a version that names the files: with this one object, which exists or does not, its
ranks count. A process that is killed between the two leaves a commit without a version. The next ingest of
the same trace finds it (`StoredRanks.looked_up` in `ingest/stored.py`) while it is younger than `FRESH`, and
publishes it without building its tables again; a task that runs twice finds its own in `Store.commit`
(`earlier`). A commit that waits for other ranks is written once more under a name that says so (`wait`), and
is published by the call that brings the last one, or by `seal`. Every other one is deleted by `tw clean`
(`plan` in `clean.py`) once it is older than the grace period.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from tracewarehouse import hints
from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage import layout, pack
from tracewarehouse.storage.codec import (
    FORMAT,
    check_understood,
    in_order,
    sealed,
    source_records,
    sources_of,
    unsealed,
)
from tracewarehouse.storage.layout import CommitName, group_uid
from tracewarehouse.storage.model import (
    EXPIRED,
    Changes,
    PendingSource,
    RankSource,
    RunVersion,
    Staged,
    TableFile,
    Unknown,
    common_fields,
)
from tracewarehouse.storage.objects import Objects
from tracewarehouse.storage.parquet_file import file_facts

# A call uses what another call left for so long; `clean` spares what running calls may use.
FRESH = timedelta(hours=1)
_FIELDS = frozenset(("format", "must_understand", "run", "committed_at", "waits", "files", "sources"))


class Waits(Struct, frozen=True):
    """What a waiting commit leaves to the call that publishes it."""

    expected_ranks: int
    replace: bool
    labels: Mapping[str, str | None]


class Commit(Struct, frozen=True):
    """A commit: its sources in order, and the header of each by the source's name."""

    run: str
    name: str
    committed_at: str
    sources: tuple[RankSource, ...]
    headers: Mapping[str, str] = field(default_factory=dict)
    waits: Waits | None = None
    unknown: Unknown = ()

    @property
    def key(self) -> str:
        """The key of the object."""
        return layout.commit(self.run, self.name)


def now() -> str:
    """The time in UTC with microseconds, as text that sorts."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def encode(commit: Commit) -> bytes:
    """A commit as sealed JSON; per source the record of a version, and the header."""
    files, sources = source_records(commit.sources)
    for source, record in zip(commit.sources, sources, strict=True):
        assert isinstance(record, dict)
        record["header"] = commit.headers.get(source.name)
    must_understand = [EXPIRED] if any(source.expired for source in commit.sources) else []
    fields = {"format": FORMAT, "must_understand": must_understand, "run": commit.run}
    fields |= {"committed_at": commit.committed_at, "waits": commit.waits, **dict(commit.unknown)}
    return sealed(fields | {"files": files, "sources": sources})


def _decode(data: bytes, name: str, path: str) -> Commit:
    try:
        fields = unsealed(data)
        check_understood(fields, path)
        sources = sources_of(fields["run"], fields["files"], fields["sources"])
        if any(source.commit != name for source in sources):
            raise ValueError(f"it is {sources[0].commit}")
        headers = {
            source.name: record["header"]
            for source, record in zip(sources, fields["sources"], strict=True)
            if record["header"] is not None
        }
        waits = Waits(**fields["waits"]) if fields["waits"] else None
        unknown = tuple((name, fields[name]) for name in fields.keys() - _FIELDS)
        return Commit(fields["run"], name, fields["committed_at"], sources, headers, waits, unknown)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise WarehouseError(
            f"{path}: damaged commit: {error}",
            hints.fill(
                "run {}; then ingest its ranks again with {}", hints.call("verify"), hints.option("replace")
            ),
        ) from error


def read(objects: Objects, run: str, name: str) -> Commit:
    """A commit by its file name; raises WarehouseError if it is missing or damaged."""
    (result,) = read_many(objects, run, [name])
    if isinstance(result, WarehouseError):
        raise result
    return result


def read_many(objects: Objects, run: str, names: Iterable[str]) -> Iterator[Commit | WarehouseError]:
    """Each commit, or the error of one that is missing or damaged; an object store reads many at once."""
    for key, data in objects.get_many(layout.commit(run, name) for name in names):
        path = objects.describe(key)
        if data is None:
            yield WarehouseError(f"{path}: commit missing", "ingest its ranks again")
            continue
        try:
            yield _decode(data, key.rpartition("/")[2], path)
        except WarehouseError as error:
            yield error


def names(objects: Objects, run: str) -> tuple[CommitName, ...]:
    """The names of all commits of a run, published or not, sorted; ignores foreign files."""
    parsed = map(CommitName.parse, objects.names(layout.commits(run)))
    return tuple(name for name in parsed if name is not None)


def headers(objects: Objects, sources: Iterable[RankSource]) -> dict[str, str]:
    """The header of each source, by the source's name; each commit is read once.

    Raises WarehouseError if a commit is missing or damaged.
    """
    commits_by_run: dict[str, dict[str, None]] = {}
    members = set()
    for source in sources:
        commits_by_run.setdefault(source.run, {})[source.commit] = None
        members.add(source.name)
    by_source: dict[str, str] = {}
    for run, listed in commits_by_run.items():
        for commit in read_many(objects, run, listed):
            if isinstance(commit, WarehouseError):
                raise commit
            by_source |= {name: text for name, text in commit.headers.items() if name in members}
    return by_source


# Writing


def groups(staged: Sequence[Staged]) -> Iterator[tuple[Staged, ...]]:
    """The sources of each commit: at most `PACK_RANKS` neighboring ranks of one run.

    Ranks that share a packed file stay together.
    """
    ordered = sorted(staged, key=lambda one: (one.run, one.rank))
    for _, members in groupby(ordered, key=lambda one: one.run):
        listed = tuple(members)
        last = {table.path: index for index, one in enumerate(listed) for table in one.tables}
        start = reach = 0
        for end in range(1, len(listed) + 1):
            reach = max(reach, *(last[table.path] for table in listed[end - 1].tables), 0)
            if end == len(listed) or (end - start >= pack.PACK_RANKS and reach < end):
                yield listed[start:end]
                start = end


def commit(objects: Objects, staged: Sequence[Staged]) -> tuple[RankSource, ...]:
    """Commits staged sources and returns them in the given order: first all files, then the commits.

    Readers see nothing before a publish.
    """
    if len({(source.run, source.rank, source.digest, source.part) for source in staged}) != len(staged):
        raise ValueError("a call must commit each source of a rank once")
    moves: dict[str, Path] = {}
    committed = [_commit(group, moves) for group in groups(staged)]
    written = {commit.key: encode(commit) for commit in committed}
    try:
        objects.adopt(moves)
        objects.put(written)
    except OSError:  # a full disk
        objects.delete([*written, *moves])
        raise
    by_identity = {(one.run, one.rank, *one.identity): one for commit in committed for one in commit.sources}
    return tuple(by_identity[source.run, source.rank, source.digest, source.part] for source in staged)


def _commit(members: Sequence[Staged], moves: dict[str, Path]) -> Commit:
    """The commit of a group; adds the keys of its files to `moves`."""
    name = _name(members, secrets.token_hex(4))
    files: list[list[TableFile]] = [list(member.kept) for member in members]
    places = {id(member): index for index, member in enumerate(members)}
    for group in pack.groups(members):
        first, table = group[0].staged, group[0].table
        key = layout.table_file(
            table.table, table.version, first.run, first.rank, f"{name.uid}-{name.attempt}"
        )
        if key in moves:  # another source of the same rank fills the table, too
            key = key.replace(f"-{name.attempt}.", f"-{secrets.token_hex(4)}.")
        moves[key] = pack.one_file(group)
        for part, file in zip(group, _table_files(group, key, moves[key]), strict=True):
            files[places[id(part.staged)]].append(file)
    committed_at = now()
    sources = tuple(_source(one, name, committed_at, own) for one, own in zip(members, files, strict=True))
    headers = {source.name: member.header for source, member in zip(sources, members, strict=True)}
    return Commit(members[0].run, name.text, committed_at, sources, headers)


def _name(members: Sequence[Staged], attempt: str) -> CommitName:
    return CommitName(members[0].rank, members[-1].rank, group_uid(one.uid for one in members), attempt)


def _table_files(group: Sequence[pack.RowGroup], key: str, path: Path) -> Iterator[TableFile]:
    """Each source's share of the file."""
    facts = file_facts(path)
    rows = group[0].table.file_rows if group[0].table.ranks else sum(part.table.rows for part in group)
    for part in group:
        table = part.table
        yield TableFile(
            table=table.table,
            version=table.version,
            path=key,
            rows=table.rows,
            file_rows=rows if rows is not None else table.rows,
            first_rank=group[0].staged.rank,
            last_rank=group[-1].staged.rank,
            file_ranks=len(group),
            **asdict(facts),
        )


def _source(staged: Staged, name: CommitName, committed_at: str, files: Sequence[TableFile]) -> RankSource:
    fields = common_fields(staged, RankSource) | {
        "definitions": dict(staged.definitions),
        "facts": dict(staged.facts),
        "committed_at": staged.committed_at or committed_at,
    }
    return RankSource(**fields, attempt=name.attempt, commit=name.text, files=in_order(files))


def earlier(objects: Objects, members: Sequence[Staged], since: datetime) -> Iterator[Commit]:
    """Commits since then of exactly these sources, tables and rows, so that a retry finds them.

    The caller checks whether they were published. Damaged ones, or deleted meanwhile, do not count.
    """
    run, name = members[0].run, _name(members, "")
    prefix = layout.commit_prefix(name.first, name.last, name.uid)
    listed = objects.walk(layout.commit(run, prefix))
    parsed = (CommitName.parse(entry.key.rpartition("/")[2]) for entry in listed)
    for commit in read_many(objects, run, [name.text for name in parsed if name and not name.waits]):
        if isinstance(commit, WarehouseError):
            continue
        is_young = datetime.fromisoformat(commit.committed_at) > since
        if is_young and all(map(_same, members, commit.sources)):
            yield commit


def _same(staged: Staged, source: RankSource) -> bool:
    new_rows = Counter((table.table, table.version, table.rows) for table in staged.tables if table.rows)
    new_rows += Counter((file.table, file.version, file.rows) for file in staged.kept)
    old_rows = Counter((file.table, file.version, file.rows) for file in source.files)
    return (staged.uid, staged.status, new_rows) == (source.uid, source.status, old_rows)


# Commits that wait for the other ranks of their run (`--expect-ranks`)


def unsettled(names: Iterable[CommitName], head: RunVersion) -> tuple[CommitName, ...]:
    """The commits among these that still wait: the newest version neither holds nor retired them."""
    settled = {*head.summary.commits, *head.retired, *(key.rpartition("/")[2] for key in head.taken_out)}
    return tuple(name for name in names if name.waits and name.text not in settled)


def wait(objects: Objects, changes: Changes, source_names: Collection[str]) -> tuple[RankSource, ...]:
    """Writes the commits of a call again as waiting ones, with its sources of these names; returns them.

    The first form stays until `clean`: another process may be publishing it.
    """
    if not source_names or changes.expected_ranks is None:
        return ()
    waits = Waits(changes.expected_ranks, changes.replace, dict(changes.labels))
    run = changes.sources[0].run
    written = []
    by_commit: dict[str, set[str]] = {}
    for source in changes.sources:
        if source.name in source_names and not layout.is_waiting(source.commit):
            by_commit.setdefault(source.commit, set()).add(source.name)
    for committed in read_many(objects, run, by_commit):
        if isinstance(committed, WarehouseError):
            raise committed
        name = committed.name.replace(".json", ".wait.json")
        sources = tuple(
            replace(one, commit=name) for one in committed.sources if one.name in by_commit[committed.name]
        )
        written.append(replace(committed, name=name, sources=sources, waits=waits))
    if written:
        # The mark first: a waiting commit is never without one.
        objects.put({layout.waiting(run): sealed({"format": FORMAT, "must_understand": [], "run": run})})
        objects.put({commit.key: encode(commit) for commit in written})
    return tuple(source for commit in written for source in commit.sources)


def waiting(objects: Objects, run: str, names: Iterable[str]) -> Iterator[PendingSource | WarehouseError]:
    """The sources of waiting commits with the options of their calls; the error of a damaged commit."""
    for commit in read_many(objects, run, names):
        if isinstance(commit, WarehouseError):
            yield commit
        elif commit.waits is not None:
            waits = commit.waits
            for source in commit.sources:
                yield PendingSource(source, waits.expected_ranks, waits.replace, waits.labels)
