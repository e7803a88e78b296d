"""Connections that read selected runs: pooled, sandboxed for SQL of users, and in batches of ranks."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Ref
from tracewarehouse.contracts.sql_tokens import quote_name, quote_text, token_texts
from tracewarehouse.duck.arrow import concatenate, schema_of
from tracewarehouse.duck.engine import (
    Connection,
    Error,
    OutOfMemory,
    connect,
    execute,
    expect_few_rows,
    limit_memory,
    statement_kind,
)
from tracewarehouse.errors import ContractError, QueryError, WarehouseError
from tracewarehouse.limits import Limits, half_bytes
from tracewarehouse.query.relations import (
    Dependencies,
    Mentioned,
    Relations,
    create_analyses,
    create_empty,
    create_help,
    needed,
    queryable,
    shared_views,
)
from tracewarehouse.result import Skipped
from tracewarehouse.runs.readable import compatible_tables
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage.model import Rank, RunVersion, once_per_version
from tracewarehouse.storage.versions import Versions
from tracewarehouse.temp_folders import new_folder

if TYPE_CHECKING:
    import pyarrow as pa


# Sorting and grouping larger batches takes longer per event.
BATCH_EVENTS = 2_000_000
_RANK_ORDER = ["run_id", "rank"]


def event_count(selected: Iterable[SelectedRun]) -> int:
    """The number of events of all selected ranks."""
    return sum(_events_of(run.version, run.ranks) for run in selected)


@once_per_version
def _events_of(version: RunVersion, ranks: tuple[int, ...]) -> int:
    return sum(map(_events, SelectedRun(version, ranks).by_rank))


def rank_batches(
    contract: Contract, read: Sequence[Contract], selected: Sequence[SelectedRun]
) -> list[tuple[SelectedRun, ...]]:
    """The selected ranks in batches, in the order of the result; one batch unless ranks are independent.

    `read` are all dependencies of the analysis.
    """
    # What reads events, itself or in a view, holds several copies of them at once.
    reads_events = any(each.name == "events" for each in read)
    limit = min(BATCH_EVENTS, _FEW_EVENTS) if reads_events else BATCH_EVENTS
    has_built = any(each.is_built for each in read)
    if has_built or event_count(selected) <= limit or not is_by_rank(contract, read):
        return [tuple(selected)]
    return event_batches(selected, limit)


def is_by_rank(contract: Contract, read: Iterable[Contract]) -> bool:
    """Whether the rows of an analysis are those of each rank alone, one rank after the other."""
    order = list(dict.fromkeys((*contract.order, *contract.grain)))[:2]
    # Some rows of `data_quality` compare ranks.
    return (
        contract.scope == "rank"
        and order == _RANK_ORDER
        and all(each.name != "data_quality" for each in read)
    )


def event_batches(
    selected: Iterable[SelectedRun], most_events: int | None = None
) -> list[tuple[SelectedRun, ...]]:
    """Consecutive ranks with up to this number of events each (None: 2 million), in order of run and rank."""
    limit = most_events or BATCH_EVENTS
    return list(_consecutive_ranks(selected, lambda rank: {(rank.run, rank.rank): _events(rank)}, limit))


def _consecutive_ranks(
    selected: Iterable[SelectedRun], sizes: Callable[[Rank], Mapping[Hashable, int]], limit: int
) -> Iterator[tuple[SelectedRun, ...]]:
    """The ranks of one or several runs in batches that fit, or have one rank, in order of run and rank.

    `sizes` are those of what a rank reads. What several ranks share, such as a file, counts once.
    """
    batch: list[SelectedRun] = []
    keys_read: set[Hashable] = set()
    size = 0
    for run in sorted(selected, key=lambda run: run.run):
        ranks: list[int] = []
        for rank in run.by_rank:
            rank_sizes = sizes(rank)
            added = sum(count for key, count in rank_sizes.items() if key not in keys_read)
            if size and size + added > limit:
                yield (*batch, replace(run, ranks=tuple(ranks))) if ranks else tuple(batch)
                batch, ranks, keys_read, size, added = [], [], set(), 0, sum(rank_sizes.values())
            keys_read |= rank_sizes.keys()
            size += added
            ranks.append(rank.rank)
        batch.append(replace(run, ranks=tuple(ranks)))
    yield tuple(batch)


def _events(rank: Rank) -> int:
    count = rank.facts.get("events")
    return count if isinstance(count, int) else 0


def copy_batches(
    store: Versions,
    catalog: Catalog,
    contract: Contract,
    read: Sequence[Contract],
    selected: Sequence[SelectedRun],
) -> list[tuple[SelectedRun, ...]]:
    """The selected ranks in batches that fit, in the order of the result.

    Empty if all of them fit at once, if the ranks of the analysis are not independent, or if a single rank
    does not fit: then the download of the whole selection says so.
    """
    limit = store.files.budget()
    has_built = any(each.is_built for each in read)
    if limit is None or has_built or not is_by_rank(contract, read):
        return []
    tables = compatible_tables(catalog, read)
    batches = list(_consecutive_ranks(selected, lambda rank: _files([rank], tables), limit))
    fits = all(sum(_files(each.by_rank, tables).values()) <= limit for batch in batches for each in batch)
    return batches if len(batches) > 1 and fits else []


def _files(ranks: Iterable[Rank], tables: frozenset[tuple[str, int]]) -> dict[Hashable, int]:
    """Key → size of the files of these tables."""
    return {
        file.path: file.bytes
        for rank in ranks
        for source in rank.sources
        for file in source.files
        if (file.table, file.version) in tables
    }


_PIVOT_BEGINS = frozenset({"PIVOT", "PIVOT_WIDER", "WITH", "FROM"})


def lock(con: Connection, folder: Path) -> None:
    """Limits the connection to files in `folder` until it is closed."""
    con.execute(f"SET allowed_directories = [{quote_text(str(folder))}]")
    _lock(con)


def lock_to_files(con: Connection, files: Iterable[str]) -> None:
    """Limits the connection to these files until it is closed; those of removed runs are not readable."""
    listed = ", ".join(map(quote_text, sorted(files)))
    con.execute(f"SET allowed_paths = [{listed}]")
    _lock(con)


def _lock(con: Connection) -> None:
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")


def check_reads_only(con: Connection, sql: str) -> None:
    """Raises QueryError unless the SQL is one statement that DuckDB classifies as SELECT."""
    kind = _kind(con, sql)
    if kind == "EXPLAIN":
        words = token_texts(sql)[1:]
        # EXPLAIN ANALYZE runs what it explains.
        kind = _kind(con, " ".join(words[1:] if words[0].upper() == "ANALYZE" else words))
    if kind != "SELECT":
        raise QueryError(f"{kind} statements are not allowed: queries are read-only", "write one SELECT")


def _kind(con: Connection, sql: str) -> str:
    kind = statement_kind(con, sql)
    # DuckDB splits a PIVOT into two statements: it creates a temporary type for the columns, then selects.
    begins = token_texts(sql)[0].upper()
    return "SELECT" if kind == "MULTI" and begins in _PIVOT_BEGINS else kind


# Idle connections: base and head of a comparison, each with all ranks and with some, for analyses and with
# views.
_IDLE = 8
# Up to this number of events, rows of views are cached for later queries: about 1 GB at most.
_CACHED_EVENTS = 2_000_000
# Up to this number of events, planning a query takes longer than running it.
_FEW_EVENTS = 300_000
# A sparing connection may use this memory, or this much per event; what exceeds it is written to disk.
_SPARING_BYTES, _SPARING_BYTES_PER_EVENT = 200_000_000, 250
# Up to this number of events, one thread answers at least as soon as several, with less CPU time.
_ONE_THREAD_EVENTS = 50_000


# What follows `name AS` in a `WITH` clause.
_BODY_BEGINS = frozenset({"(", "materialized", "not"})


@contextmanager
def connection(
    store: Versions,
    catalog: Catalog,
    selected: Sequence[SelectedRun],
    contracts: Iterable[Contract] | None = None,
) -> Iterator[Connection]:
    """A new connection with views over the files of the selected ranks.

    It has all dependencies of `contracts` (None: every table and view in its newest version). Raises
    WarehouseError if a file is missing.
    """
    contracts = queryable(catalog) if contracts is None else contracts
    relations = Relations(store, tuple(selected), Dependencies.of(catalog, contracts))
    with closing(_PooledConnection(_connect())) as opened:
        opened.add(relations)
        yield opened.con


@contextmanager
def user_connection(
    store: Versions,
    catalog: Catalog,
    selected: Sequence[SelectedRun],
    named: Mentioned,
    skipped: Mapping[Contract, Sequence[Skipped]],
    limits: Limits,
    copies: Mapping[str, Path] = {},
) -> Iterator[Connection]:
    """Like `connection`, for SQL of users: within the memory limit, and limited to the files of the views.

    It has the named analyses too, without the ranks that each of them skips. `copies` are of files: key →
    path.
    """
    dependencies = Dependencies.over(catalog, named.contracts, others=named.analyses)
    relations = Relations(store, tuple(selected), dependencies, copies)
    with closing(_PooledConnection(_connect())) as opened:
        con = opened.con
        opened.add(relations)
        create_analyses(con, catalog, relations, skipped)
        if named.lists:
            create_empty(con, (analysis for analysis in catalog.analyses() if analysis not in named.analyses))
        if named.has_help:
            create_help(con, (*queryable(catalog), *catalog.analyses()))
        limit_memory(con, limits.memory_bytes)
        lock_to_files(con, relations.paths())
        yield con


class ConnectionPool:
    """Connections over selected ranks that later queries reuse with their views.

    A connection has one user at a time. Views stay valid because published versions never change. If it
    `is_sparing`, analyses of many events write to disk what exceeds some memory, as far as DuckDB can.
    """

    def __init__(
        self, store: Versions, catalog: Catalog, threads: int | None = None, memory_bytes: int | None = None
    ) -> None:
        self.store = store
        self.catalog = catalog
        self.threads = threads
        self.memory_bytes = memory_bytes
        self.is_sparing = False
        self._announced: dict[Ref, Contract] = {}
        self._shared: frozenset[Ref] = frozenset()
        self._idle: list[tuple[object, _PooledConnection]] = []
        self._lock = Lock()
        weakref.finalize(self, _close_all, self._idle)

    def will_read(self, contracts: Iterable[Contract]) -> None:
        """Announces analyses and views: up to 2 million events, what they share is computed once.

        It is kept until each announced analysis that reads it has run.
        """
        self._announced |= {contract.ref: contract for contract in contracts}
        self._shared = shared_views(self.catalog, self._announced.values())

    def close(self) -> None:
        """Closes the connections that no query uses; later queries open new ones."""
        with self._lock:
            _close_all(self._idle)

    def carry(self, before: SelectedRun, after: SelectedRun) -> None:
        """Connections over a version go on over `after`, which only has more derived tables than it."""
        with self._lock:
            for index, (key, opened) in enumerate(self._idle):
                if key == _key((before,)):
                    opened.forget_built(self.catalog)
                    self._idle[index] = _key((after,)), opened

    @contextmanager
    def connection(
        self, selected: Sequence[SelectedRun], contracts: Iterable[Contract]
    ) -> Iterator[Connection]:
        """Like `connection`; its settings must not be changed. Raises WarehouseError."""
        relations = Relations(self.store, tuple(selected), Dependencies.of(self.catalog, contracts))
        # Not one of `execute`: an analysis over views takes longer to plan than with a `WITH` clause.
        with self._borrowed(relations, "views") as opened:
            opened.add(relations)
            yield opened.con

    @contextmanager
    def with_relations(
        self, selected: Sequence[SelectedRun], contracts: Iterable[Contract], sql: str
    ) -> Iterator[tuple[Connection, str]]:
        """A connection, and the SELECT as it runs there: on few events with relations in a `WITH` clause.

        They are then those of analyses, so that views are computed once for both, and a single run is an
        ENUM. `contracts` are what it reads, each after its dependencies. Raises WarehouseError.
        """
        read = tuple(contracts)
        texts = [text.strip('"').lower() for text in token_texts(sql)]
        relations = Relations(self.store, tuple(selected), Dependencies.of(self.catalog, read))
        relation_names = {ref: name for ref, name in relations.names.items() if name in texts}
        if event_count(selected) > _FEW_EVENTS or _defines_any(texts, relation_names.values()):
            with self.connection(selected, read) as con:
                yield con, sql
            return
        with self._borrowed(relations) as connection:
            yield connection.con, _joined(connection.with_clause(relations, tuple(relation_names), sql), sql)

    def execute(
        self,
        selected: Sequence[SelectedRun],
        contract: Contract,
        bound: Mapping[str, object],
        dependencies: Dependencies,
    ) -> pa.Table:
        """The rows of an analysis for bound parameters. Raises WarehouseError, QueryError, ContractError."""
        if not selected:  # the plan of a query without input takes as long as any other
            return schema_of(contract).empty_table()
        relations = Relations(self.store, tuple(selected), dependencies)
        with self._borrowed(relations) as opened:
            try:
                rows = self._rows(opened, relations, contract, bound)
            except (Error, ContractError, QueryError) as error:
                if self.is_sparing and isinstance(error.__cause__ or error, OutOfMemory):
                    limit_memory(opened.con, None)
                    rows = self._rows(opened, relations, contract, bound)
                elif isinstance(error.__cause__, OutOfMemory):
                    raise
                else:
                    # With views instead of a `WITH` clause, the error names the file or line of the analysis.
                    opened.add(relations)
                    return execute(opened.con, contract, bound)
            opened.forget_read(self.catalog, self._announced.values(), contract)
            return rows

    def execute_over(
        self,
        selected: Sequence[SelectedRun],
        contract: Contract,
        bound: Mapping[str, object],
        dependencies: Dependencies,
        computed: Iterable[tuple[Contract, pa.Table]],
    ) -> pa.Table:
        """Like `execute`, with the rows of some views, which may lack columns that nothing reads."""
        relations = Relations(self.store, tuple(selected), dependencies)
        with closing(_PooledConnection(_connect(self.threads))) as opened:
            for view, rows in computed:
                relations.create_computed(opened.con, view, rows)
                opened.created[relations.names[view.ref]] = view.ref
            clause = opened.with_clause(relations, contract.requires, contract.body)
            return execute(opened.con, contract, bound, clause)

    def _rows(
        self,
        opened: _PooledConnection,
        relations: Relations,
        contract: Contract,
        bound: Mapping[str, object],
    ) -> pa.Table:
        read, selected = relations.dependencies.contracts, relations.selected
        batches = rank_batches(contract, read, selected)
        if len(batches) > 1 and not any(relations.names[each.ref] in opened.created for each in read):
            parts = (Relations(self.store, batch, relations.dependencies) for batch in batches)
            clauses = (part.with_clause(read, contract.body) for part in parts)
            return concatenate([execute(opened.con, contract, bound, clause) for clause in clauses])
        clause = opened.with_clause(relations, contract.requires, contract.body)
        return execute(opened.con, contract, bound, clause, event_count(selected) <= _FEW_EVENTS)

    @contextmanager
    def _borrowed(self, relations: Relations, purpose: str = "") -> Iterator[_PooledConnection]:
        key = _key(relations.selected, purpose)
        events = event_count(relations.selected)
        opened = self._take(key, relations.names)
        if opened is None:
            threads = 1 if events <= _ONE_THREAD_EVENTS else self.threads
            is_limited = self.is_sparing and events > _FEW_EVENTS and not purpose
            sparing_bytes = max(_SPARING_BYTES, _SPARING_BYTES_PER_EVENT * events)
            limit = half_bytes(sparing_bytes) if is_limited else self.memory_bytes
            opened = _PooledConnection(_connect(threads, limit))
            if events <= _FEW_EVENTS:
                expect_few_rows(opened.con)
        opened.shared = self._shared if events <= _CACHED_EVENTS else frozenset()
        try:
            yield opened
        except BaseException:
            opened.close()
            raise
        with self._lock:
            self._idle.append((key, opened))
            surplus = [connection for _, connection in self._idle[:-_IDLE]]
            del self._idle[:-_IDLE]
        for connection in surplus:
            connection.close()

    def _take(self, key: object, names: Mapping[Ref, str]) -> _PooledConnection | None:
        with self._lock:
            for index, (other, opened) in enumerate(self._idle):
                if other == key and opened.agrees(names):
                    del self._idle[index]
                    return opened
        return None


class _PooledConnection(Struct):
    """A connection, the versions of the relations created in it, and the views that a query has read.

    Queries to come share the views in `shared`.
    """

    con: Connection
    created: dict[str, Ref] = field(default_factory=dict)
    read_before: set[Ref] = field(default_factory=set)
    shared: frozenset[Ref] = frozenset()
    has_run: set[Ref] = field(default_factory=set)
    computed: set[Ref] = field(default_factory=set)  # views whose rows are held

    def agrees(self, names: Mapping[Ref, str]) -> bool:
        """Whether no relation created here is another version of one with the same name."""
        return all(self.created.get(name, ref) == ref for ref, name in names.items())

    def add(self, relations: Relations) -> None:
        """Creates the relations that are missing."""
        for contract in self._missing(relations):
            self._create(relations, contract)

    def with_clause(self, relations: Relations, requires: Collection[Ref], query: str) -> str:
        """The `WITH` clause of a query that requires these relations, in which each is bound only once.

        A view is materialized when a second query reads it, at once if it is shared.
        """
        missing = self._missing(relations)
        read = {each.ref for each in needed(missing, requires)}
        for contract in missing:
            if contract.is_built and not relations.can_inline(contract):
                self._create(relations, contract)
            elif contract.kind == "view" and contract.ref in read & self.shared:
                self._materialize(relations, contract)
            elif contract.kind == "view" and contract.ref in requires:
                if contract.ref in self.read_before and event_count(relations.selected) <= _CACHED_EVENTS:
                    self._materialize(relations, contract)
                self.read_before.add(contract.ref)
        return relations.with_clause(needed(self._missing(relations), requires), query)

    def _missing(self, relations: Relations) -> list[Contract]:
        """The relations that do not exist, each after its dependencies."""
        return [
            each for each in relations.dependencies.contracts if relations.names[each.ref] not in self.created
        ]

    def _materialize(self, relations: Relations, view: Contract) -> None:
        clause = relations.with_clause(needed(self._missing(relations), view.requires), view.body)
        name = relations.names[view.ref]
        self.con.execute(
            f"CREATE TABLE {quote_name(name)} AS {clause}SELECT * FROM (\n{relations.sql(view)}\n)"
        )
        self.created[name] = view.ref
        self.computed.add(view.ref)

    def _create(self, relations: Relations, contract: Contract) -> None:
        create(self.con, relations, contract)
        self.created[relations.names[contract.ref]] = contract.ref

    def forget_built(self, catalog: Catalog) -> None:
        """Drops the tables that say what is stored of the ranks; they are created again when needed."""
        self._forget(lambda ref: catalog.contracts[ref].is_built)

    def forget_read(self, catalog: Catalog, announced: Iterable[Contract], analysis: Contract) -> None:
        """Drops the shared views that no announced analysis is still to read, after this one has run."""
        self.has_run.add(analysis.ref)
        waiting = [each.ref for each in announced if each.ref not in self.has_run]
        read: set[Ref] = set()
        while waiting:
            ref = waiting.pop()
            if ref not in read:
                read.add(ref)
                waiting += () if ref in self.computed else catalog.contracts[ref].requires
        self._forget(((self.computed & self.shared) - read).__contains__)

    def _forget(self, is_forgotten: Callable[[Ref], bool]) -> None:
        for name, ref in [*self.created.items()]:
            if is_forgotten(ref):
                self.con.execute(f"DROP TABLE {quote_name(name)}")
                del self.created[name]
                self.computed.discard(ref)

    def close(self) -> None:
        """Closes the connection."""
        self.con.close()


def _key(selected: Iterable[SelectedRun], purpose: str = "") -> object:
    """What a connection is for. It cannot be used after a fork, so the process id is part of it."""
    return (os.getpid(), purpose, tuple((run.selector, run.ranks) for run in selected))


def _defines_any(texts: Sequence[str], names: Iterable[str]) -> bool:
    """Whether a `WITH` clause of the SQL may define one of these names, or is recursive."""
    words = zip(texts, texts[1:], texts[2:], strict=False)
    defined = {name for name, after, begin in words if after == "as" and begin in _BODY_BEGINS}
    return not defined.isdisjoint(names) or "recursive" in texts[:2]


def _joined(clause: str, sql: str) -> str:
    """The SQL with another `WITH` clause before its own."""
    first_word, after = sql.lstrip()[:4], sql.lstrip()[4:]
    if not clause or first_word.upper() != "WITH":
        return clause + sql
    return f"{clause.rstrip()},{after}"


def _connect(threads: int | None = None, memory_bytes: int | None = None) -> Connection:
    # The folder is for what does not fit in memory.
    con = connect(threads=threads, memory_bytes=memory_bytes, temp_directory=new_folder())
    con.execute("SET parquet_metadata_cache = true")  # the files never change
    return con


def _close_all(idle: list[tuple[object, _PooledConnection]]) -> None:
    while idle:
        idle.pop()[1].close()


def create(con: Connection, relations: Relations, contract: Contract) -> None:
    """Creates one relation; raises WarehouseError if its files cannot be read."""
    try:
        relations.create(con, contract)
    except Error as error:
        message = str(error).partition("\n")[0]
        hint = hints.fill(
            "{} lists missing files; after a move: {}", hints.call("verify"), hints.call("refresh")
        )
        raise WarehouseError(
            f"{relations.store.objects.url}: {contract.ref} cannot be read: {message}", hint
        ) from error
