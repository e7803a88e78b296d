"""Selected runs and ranks of a warehouse, and what they answer: analyses, SQL, and scans of tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import ARGS, ARGS_SQL, Contract, bind
from tracewarehouse.contracts.sql_tokens import names_in, names_read, quote_text
from tracewarehouse.duck.arrow import concatenate, with_plain_text, with_units
from tracewarehouse.errors import DamagedRunError, QueryError, SchemaVersionError, TwError, UnknownName
from tracewarehouse.result import Result, Skipped
from tracewarehouse.runs.readable import (
    CapableRanks,
    ReadableRuns,
    absent_reason,
    intact_runs,
    queryable_runs,
    readable_runs,
    with_capabilities,
    without_expired,
    without_tables,
)
from tracewarehouse.runs.rows import (
    catalog_row,
    damaged_runs,
    nothing_stored,
    notices,
    partly_read,
    provenance_of,
    recording_limits,
)
from tracewarehouse.runs.selection import (
    Match,
    SelectedRun,
    StoredRuns,
    as_list,
    in_order,
    is_plain,
    matching_runs,
    only_ranks,
    select_runs,
)
from tracewarehouse.storage.model import UnreadableRun
from tracewarehouse.storage.objects import ColumnCopies
from tracewarehouse.storage.parquet_file import Level, default_level
from tracewarehouse.storage.results import RecordedAnalysis
from tracewarehouse.storage.store import Store
from tracewarehouse.temp_folders import temporary_folder

if TYPE_CHECKING:
    import polars
    import pyarrow as pa

    from tracewarehouse.duck.engine import Connection
    from tracewarehouse.engines import EngineOrName, TaskProgress
    from tracewarehouse.limits import Limits
    from tracewarehouse.query.connections import ConnectionPool
    from tracewarehouse.query.distributed import Parts, Ranks, Spread, SpreadQuery, Wanted
    from tracewarehouse.query.relations import Dependencies, Mentioned

T = TypeVar("T")
# The columns by which runs and ranks are selected.
_KEYS = "run_id, rank"


class _Prepared(Struct, frozen=True):
    """An analysis with bound parameters; of the selected runs those that it reads, with what they lack."""

    contract: Contract
    bound: Mapping[str, object]
    dependencies: Dependencies
    unexpired: CapableRanks
    readable: ReadableRuns
    capable: CapableRanks


class Call(Struct, frozen=True):
    """Calls a function with a selection in a worker, where the rows of some analyses are `known`."""

    store: Store
    sql: Path | None
    runs: tuple[Ranks, ...] | None
    left_out: tuple[UnreadableRun, ...]
    level: Level
    known: Mapping[object, Parts]
    function: Callable[[Selection], object]

    def run(self, progress: TaskProgress) -> tuple[object, dict[str, str]]:
        """What the function returns, and the runs that it left out."""
        from tracewarehouse.query.distributed import Spread, selected_of

        selection = Selection(self.store, Catalog.load(self.sql), level=self.level)
        selection.spread = Spread(self.store, selection.catalog, self.level, known=self.known)
        if self.runs is not None:
            selection = selection.over(selected_of(self.store, self.runs), self.left_out)
        return self.function(selection), selection.noted


class Selection:
    """Selected runs and ranks of a store, None: all runs, each in its newest version.

    Each file is checked when it is first opened: its CRC-32, at level FULL its SHA-256. `spread` says
    where analyses run if not here, `left_out` are damaged runs that were not selected by name.
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        runs: Sequence[SelectedRun] | None = None,
        *,
        left_out: Sequence[UnreadableRun] = (),
        pool: ConnectionPool | None = None,
        level: Level | None = None,
        spread: Spread | None = None,
        noted: dict[str, str] | None = None,
    ) -> None:
        self.store, self.catalog = store, catalog
        self.runs = None if runs is None else tuple(runs)
        self._left_out = tuple(left_out)
        self._pool = pool
        self.level = default_level() if level is None else level
        self.spread = spread
        self._steps = ""  # a condition on the table `steps`
        # Run → why, of the runs that answers left out; narrowed selections add to it.
        self.noted: dict[str, str] = {} if noted is None else noted

    @property
    def pool(self) -> ConnectionPool:
        """The connections that read the runs; narrowed selections share them."""
        if self._pool is None:
            from tracewarehouse.query.connections import ConnectionPool

            self._pool = ConnectionPool(self.store, self.catalog)
        return self._pool

    def close(self) -> None:
        """Closes the connections; the next read opens new ones."""
        if self._pool is not None:
            self._pool.close()

    def selected(self) -> tuple[SelectedRun, ...]:
        """The selected runs in time order; without a selection, the newest version of every run."""
        if self.runs is None:
            return in_order(SelectedRun(version, version.ranks) for version in self.store.present())
        return self.runs

    @property
    def left_out(self) -> tuple[UnreadableRun, ...]:
        """The damaged runs that `selected` leaves out; naming one of them is an error instead."""
        return self.store.unreadable() if self.runs is None else self._left_out

    def select(
        self, runs: str | Iterable[str] | None = None, ranks: int | Iterable[int] | None = None
    ) -> Self:
        """Narrowed to runs (selectors) and ranks, each run in its current version.

        Raises UnknownName for a selector or rank without a match.
        """
        names, briefs = as_list(runs), None
        if names and self.runs is None and not any(map(is_plain, names)):
            entries = self.store.entries(catalog_row)  # and `left_out`
            briefs = [entry.brief for entry in entries if not entry.tombstone]
        selected = select_runs(self.store, names, briefs) if self.runs is None else self.matching(names)
        if ranks is not None:
            selected = only_ranks(selected, [ranks] if isinstance(ranks, int) else ranks)
        return self.over(selected, () if selected and all(run.named for run in selected) else self.left_out)

    def matching(self, runs: Iterable[str] | None) -> tuple[SelectedRun, ...]:
        """The selected runs that match the selectors; raises UnknownName."""
        return matching_runs(self.store, self.runs, runs)

    def one_run(self, run: str) -> Self:
        """Narrowed to a single run; raises UnknownName if the selector matches several."""
        matches = self.matching([run])
        if len(matches) != 1:
            names = ", ".join(match.run for match in matches)
            raise UnknownName("single run", run, [], f"it matches {names}")
        return self.over(matches)

    def over(self, runs: Sequence[SelectedRun], left_out: Sequence[UnreadableRun] = ()) -> Self:
        """The same over other runs; shares the store, with its cached versions, and the connections."""
        other = copy(self)
        other._pool = self.pool
        other.runs, other._left_out = tuple(runs), tuple(left_out)
        return other

    def on(self, engine: EngineOrName) -> Self:
        """The same with analyses computed by the workers of an engine."""
        from tracewarehouse.query.distributed import Spread

        other = copy(self)
        other.spread = Spread(self.store, self.catalog, self.level, engine)
        return other

    @property
    def has_workers(self) -> bool:
        """Whether an engine computes its analyses."""
        return self.spread is not None and self.spread.chosen is not None

    def will_read(self, contracts: Iterable[Contract]) -> None:
        """Announces analyses and views: what they share is computed once, on an engine all together."""
        contracts = tuple(contracts)
        self.pool.will_read(contracts)
        if self.spread is not None:
            self.spread.announced |= {each.ref: each for each in contracts if each.kind == "analysis"}

    def in_worker(self, function: Callable[[Selection], T]) -> T:
        """What a function returns for this selection in a worker, which has the announced analyses."""
        assert self.spread is not None
        self.spread.compute(self._announced(self.level))
        return self._called(function, [self.runs], self.spread.known)[0]

    def each_in_worker(self, function: Callable[[Selection], T], runs: Iterable[SelectedRun]) -> list[T]:
        """What a function returns for each of these runs, in workers that compute the analyses of one run."""
        return self._called(function, [(run,) for run in runs], {})

    def _called(
        self,
        function: Callable[[Selection], T],
        groups: Iterable[tuple[SelectedRun, ...] | None],
        known: Mapping[object, Parts],
    ) -> list[T]:
        from tracewarehouse.engines import results_in_order
        from tracewarehouse.query.distributed import numbered

        assert self.spread is not None
        sql = self.catalog.custom_folder
        numbers = [None if each is None else numbered(each) for each in groups]
        calls = [Call(self.store, sql, each, self.left_out, self.level, known, function) for each in numbers]
        answers: Any = results_in_order(self.spread.engine, calls)
        for _, noted in answers:
            self.noted.update(noted)
        return [result for result, _ in answers]

    def _announced(self, level: Level) -> Iterator[Wanted]:
        """The announced analyses with the runs that each reads; not one that raises an error."""
        from tracewarehouse.query.distributed import Wanted

        assert self.spread is not None
        selected = self.selected()
        for contract in self.spread.announced.values():
            with suppress(TwError):
                lacking = {rank.run_id for rank in self._without_tables(contract, selected)}
                runs = [run for run in selected if run.run not in lacking]
                prepared = self._prepared(contract, {}, runs)
                readable = replace(prepared.readable, selected=prepared.capable.selected)
                if not self.store.is_remote:
                    readable = self._intact(prepared.dependencies.contracts, readable, level)
                yield Wanted(contract, prepared.bound, readable.selected)

    def of_steps(self, steps: Iterable[int]) -> Self:
        """The same with only these steps, by number, in the table `steps` of `query`."""
        other = copy(self)
        listed = ", ".join(map(str, steps))
        other._steps = f"step IN ({listed})" if listed else ""
        return other

    def until_steps(self, last: Mapping[str, int]) -> Self:
        """The same with only the steps of each run up to this number, in the table `steps` of `query`."""
        other = copy(self)
        until = (f"run_id = {quote_text(run)} AND step <= {step}" for run, step in last.items())
        other._steps = " OR ".join(until)
        return other

    def verified(self, runs: Sequence[SelectedRun]) -> Self:
        """Over these runs, for reads whose result is stored: every SHA-256 is checked, damage is an error."""
        other = self.over([replace(run, named=True) for run in runs])
        other.level = Level.FULL
        return other

    def readable(
        self,
        contracts: Iterable[Contract],
        runs: Sequence[SelectedRun] | None = None,
        level: Level | None = None,
    ) -> ReadableRuns:
        """The runs (None: the selected ones) that hold these tables in intact files, with notices."""
        contracts = tuple(contracts)
        runs = self.selected() if runs is None else runs
        return self._intact(contracts, readable_runs(self.catalog, contracts, runs), level)

    def queryable(
        self,
        contracts: Iterable[Contract],
        runs: Sequence[SelectedRun],
        names: Collection[str] | None,
        level: Level | None = None,
    ) -> ReadableRuns:
        """Like `readable`, for SQL of a user that names these columns (None: it may name all)."""
        contracts = tuple(contracts)
        readable = queryable_runs(self.catalog, contracts, runs, names, may_be_absent=False)
        return self._intact(contracts, readable, level)

    def _intact(self, contracts: Iterable[Contract], runs: ReadableRuns, level: Level | None) -> ReadableRuns:
        level = self.level if level is None else level
        intact = intact_runs(self.store, self.catalog, contracts, runs.selected, level)
        return replace(runs, selected=intact.selected, left_out=intact.left_out)

    def note(
        self, left_out: Iterable[UnreadableRun] = (), answered: int = 0
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """Run → why, of these and the damaged runs of the selection, which an answer leaves out; notices."""
        runs_left_out = {each.run: each for each in (*self.left_out, *left_out)}
        reasons = {run: each.why for run, each in runs_left_out.items()}
        self.noted.update(reasons)
        return reasons, damaged_runs(runs_left_out.values(), len(runs_left_out) + answered)

    def analyze(self, name: str, version: int | None = None, **params: object) -> Result:
        """The rows of an analysis (`name` or `name@2`; newest version by default).

        Ranks whose trace lacks data that it needs are in `Result.skipped`. Runs that were stored without a
        column that it reads are excluded, with a notice. Raises UnknownName, ParamError, and
        SchemaVersionError if no run remains.
        """
        from tracewarehouse.query.connections import ConnectionPool, copy_batches

        contract = self.catalog.get(name, version, kind="analysis")
        selected = self.selected()
        prepared = self._prepared(contract, params, selected)
        bound, dependencies, capable = prepared.bound, prepared.dependencies, prepared.capable
        # Others record meanwhile, and connections of the pool keep their views.
        pool = ConnectionPool(self.store, self.catalog) if dependencies.recorded else self.pool

        def attempt(level: Level) -> tuple[ReadableRuns, pa.Table]:
            runs = replace(prepared.readable, selected=capable.selected)
            if self.spread is not None and (answer := self._spread(self.spread, prepared, runs, level)):
                return answer
            if batches := copy_batches(
                self.store, self.catalog, contract, dependencies.contracts, runs.selected
            ):
                return runs, self._in_batches(batches, contract, bound, dependencies, level)
            intact = self._intact(dependencies.contracts, runs, level)
            table = pool.execute(intact.selected, contract, bound, dependencies)
            return _with_advice(intact), table

        try:
            intact, table = attempt(self.level)
        except QueryError as error:
            intact, table = self._without_damage(error, attempt)
        damaged = {each.run for each in capable.selected} - {each.run for each in intact.selected}
        answered = [run for run in prepared.readable.selected if run.run not in damaged]
        provenance = provenance_of(self.catalog, answered, contract, bound, dependencies.contracts)
        left_out, about_them = self.note(intact.left_out, len(intact.selected))
        lines = (
            *about_them,
            *intact.notices,
            *nothing_stored(selected),
            *partly_read(selected, capable.selected, contract),
            *self._unrecorded(dependencies.contracts, selected),
            *notices(intact.selected, contract),
        )
        skipped = (*prepared.unexpired.skipped, *capable.skipped)
        return Result(table, provenance, contract, skipped, lines, recording_limits(answered), left_out)

    def _prepared(
        self, contract: Contract, params: Mapping[str, object], selected: Sequence[SelectedRun]
    ) -> _Prepared:
        """An analysis with its parameters and those of the runs and ranks that it can read.

        Raises ParamError, and SchemaVersionError if no run has the columns.
        """
        from tracewarehouse.query.relations import Dependencies

        bound = bind(contract.params, params, str(contract.ref))
        dependencies = Dependencies.of(self.catalog, [contract])
        unexpired = without_expired(contract, dependencies.contracts, selected)
        readable = readable_runs(self.catalog, dependencies.contracts, unexpired.selected, contract.optional)
        capable = with_capabilities(contract, readable.selected)
        return _Prepared(contract, bound, dependencies, unexpired, readable, capable)

    def _spread(
        self, spread: Spread, prepared: _Prepared, runs: ReadableRuns, level: Level
    ) -> tuple[ReadableRuns, pa.Table] | None:
        """The rows of an analysis from workers, and notices about it; None if this process computes it."""
        from tracewarehouse.engines import advice
        from tracewarehouse.query.connections import event_count
        from tracewarehouse.query.distributed import Wanted, rows_of

        # From a store, the workers download the files and check them.
        if spread.chosen is not None and not self.store.is_remote:
            runs = self._intact(prepared.dependencies.contracts, runs, level)
        wanted = Wanted(prepared.contract, prepared.bound, runs.selected)
        is_announced = prepared.contract.ref in spread.announced
        if spread.chosen is not None and wanted.selected and wanted.key not in spread.known:
            spread.compute((wanted, *(self._announced(level) if is_announced else ())))
        parts = spread.known.get(wanted.key) if is_announced else spread.known.pop(wanted.key, None)
        if parts is None:
            return None
        note = None if spread.chosen is None else advice(spread.chosen, event_count(runs.selected))
        return replace(runs, notices=(*runs.notices, note) if note else runs.notices), rows_of(parts)

    def _in_batches(
        self,
        batches: Iterable[Sequence[SelectedRun]],
        contract: Contract,
        bound: Mapping[str, object],
        dependencies: Dependencies,
        level: Level,
    ) -> pa.Table:
        """The rows of an analysis over batches of ranks, each without the local copies of those before it.

        Raises DamagedRunError for a damaged file: the rows of its run would be incomplete.
        """
        batch_rows = []
        for batch in batches:
            whole_runs = ReadableRuns(tuple(replace(each, named=True) for each in batch))
            with self.store.files.for_now():
                intact = self._intact(dependencies.contracts, whole_runs, level)
                batch_rows.append(self.pool.execute(intact.selected, contract, bound, dependencies))
        return concatenate(batch_rows)

    def analyze_or_skip(self, name: str, version: int | None = None, **params: object) -> Result:
        """Like `analyze`, for checks and reports: runs stored before a table existed are skipped.

        Their ranks are in `Result.skipped`.
        """
        selected = self.selected()
        skipped = self._without_tables(self.catalog.get(name, version, kind="analysis"), selected)
        runs = {rank.run_id for rank in skipped}
        remaining = tuple(run for run in selected if run.run not in runs)
        result = self.over(remaining, self.left_out).analyze(name, version, **params)
        notices = result.notices if remaining or not skipped else ()
        return replace(result, skipped=(*skipped, *result.skipped), notices=notices)

    def _without_tables(self, analysis: Contract, selected: Sequence[SelectedRun]) -> tuple[Skipped, ...]:
        """The ranks of runs that lack a table; for other missing data, an upgrade does not help."""
        from tracewarehouse.query.relations import Dependencies

        read = Dependencies.of(self.catalog, [analysis]).contracts
        needed = [contract for contract in read if contract.name not in analysis.optional]
        lacking = without_tables(self.catalog, needed, selected)
        if not lacking:
            return ()
        old_runs = [run for run in selected if run.run in lacking]
        other = {(each.run_id, each.rank): each for each in with_capabilities(analysis, old_runs).skipped}
        return tuple(
            other.get((each.run, rank)) or Skipped(each.run, rank, absent_reason(lacking[each.run]))
            for each in old_runs
            for rank in each.ranks
        )

    def _without_damage(self, failed: QueryError, attempt: Callable[[Level], T]) -> T:
        """The result of another attempt without the runs whose bytes cannot be decoded, if that failed."""
        from tracewarehouse.duck.engine import is_unreadable

        if self.level is Level.FULL or not is_unreadable(failed.__cause__):
            raise failed
        try:
            return attempt(Level.FULL)
        except QueryError:
            raise failed from failed.__cause__

    def query(self, sql: str, limits: Limits | None = None) -> Result:
        """The rows of one SELECT; without limits if it is not typed by a user.

        Raises QueryError with DuckDB's message, QueryLimitError beyond a limit.
        """
        from tracewarehouse.duck.engine import MISSING_NAME
        from tracewarehouse.query.relations import mentioned

        if self._steps:
            sql = f"WITH steps AS (SELECT * FROM steps WHERE {self._steps}) {sql}"
        named = mentioned(self.catalog, sql)
        try:
            narrowed, unknown = (self, []) if limits is None else self._narrowed(sql, named, limits)
            with temporary_folder() as folder:
                names = None if limits is None else _names(sql, named)
                columns = None if names is None else ColumnCopies(names, folder)
                answer = narrowed._query_over(sql, named, limits, columns)
            if unknown:
                answer = replace(answer, notices=(f"no such run: {', '.join(unknown)}", *answer.notices))
            return answer
        except QueryError as error:
            if not isinstance(error.__cause__, MISSING_NAME):
                raise
            # Now DuckDB can suggest other names.
            return self._query_over(sql, mentioned(self.catalog, sql, every=True), limits)

    def _narrowed(self, sql: str, named: Mentioned, limits: Limits) -> tuple[Self, list[str]]:
        """Only the runs and ranks that the constants of the SQL select; the names of unknown runs."""
        from tracewarehouse.query.pruning import constants

        runs, ranks = constants(sql, named, limits)
        if runs is None and ranks is None:
            return self, []
        try:
            selected = self.selected() if runs is None else self._exactly(runs)
        except DamagedRunError:  # the query says what is left out
            return self, []
        wanted_runs = runs if runs is not None and self.runs is None else frozenset()
        unknown = sorted(wanted_runs.difference(each.run for each in selected))
        if ranks is not None:
            narrowed = (replace(run, ranks=tuple(sorted(ranks.intersection(run.ranks)))) for run in selected)
            selected = tuple(part for part in narrowed if part.ranks)
        return self.over(selected, self.left_out if runs is None else ()), unknown

    def _exactly(self, names: Iterable[str]) -> tuple[SelectedRun, ...]:
        """The selected runs with these names, which no other spelling selects; reads no other run."""
        if self.runs is not None:
            return tuple(run for run in self.runs if run.run in names)
        index = StoredRuns(self.store)
        versions = [index.version(Match(name)) for name in names if index.find(name, None) == name]
        return in_order(SelectedRun(version, version.ranks) for version in versions if version is not None)

    def _query_over(
        self, sql: str, named: Mentioned, limits: Limits | None, columns: ColumnCopies | None = None
    ) -> Result:
        from tracewarehouse.duck.engine import query
        from tracewarehouse.limits import NO_LIMITS
        from tracewarehouse.query.connections import check_reads_only

        selected, read = self.selected(), (*named.contracts, *named.analyses)
        spread = _spread_query(sql, read) if limits is not None and self.has_workers else None

        def attempt(level: Level) -> tuple[ReadableRuns, dict[Contract, tuple[Skipped, ...]], pa.Table]:
            # From a store, the workers download the files and check them.
            contracts = () if spread and self.store.is_remote else named.contracts
            readable = queryable_runs(self.catalog, named.contracts, selected, names_read(sql), True)
            few = columns if level < Level.FULL else None
            intact = intact_runs(self.store, self.catalog, contracts, readable.selected, level, columns=few)
            runs = replace(readable, selected=intact.selected, left_out=intact.left_out)
            copies = few.copies if few is not None else {}
            skipped = {analysis: self._skipped(analysis, runs.selected) for analysis in named.analyses}
            if spread and limits is not None and runs.selected:
                table = self._spread_over(spread, runs.selected, read, limits)
            else:
                with self._connection(runs.selected, named, skipped, limits, sql, copies) as (con, complete):
                    check_reads_only(con, complete)
                    table = query(con, complete, limits or NO_LIMITS)
            if limits is None:
                return runs, skipped, with_plain_text(table)
            units = {column.name: column.unit for contract in read for column in contract.columns}
            return runs, skipped, with_units(table, units)

        try:
            runs, skipped, table = attempt(self.level)
        except QueryError as error:
            runs, skipped, table = self._without_damage(error, attempt)
        named_runs = {each.run for each in _filtered(selected, sql) or selected}
        listed = dict.fromkeys(
            rank for ranks in skipped.values() for rank in ranks if rank.run_id in named_runs
        )
        runs_used = _used(runs.selected, sql, table)
        left_out, about_them = self.note(runs.left_out, len(runs.selected))
        lines = (
            *about_them,
            *runs.notices,
            *nothing_stored(selected or self.store.runs()),
            *self._unrecorded(() if named.lists else named.contracts, selected),
            *notices(runs_used),
            *((_NOT_SPREAD,) if limits is not None and self.has_workers and spread is None else ()),
        )
        provenance = provenance_of(self.catalog, runs.selected, sql=sql)
        recorded = recording_limits(runs_used)
        return Result(table, provenance, None, tuple(listed), lines, recorded, left_out)

    def _spread_over(
        self,
        query: SpreadQuery,
        selected: Sequence[SelectedRun],
        read: Iterable[Contract],
        limits: Limits,
    ) -> pa.Table:
        """The rows of a query that workers compute by group of ranks; by run if it reads across ranks."""
        from tracewarehouse.query.pruning import is_of_rank

        assert self.spread is not None
        # An answer without a damaged run would be incomplete.
        runs = [replace(each, named=True) for each in selected]
        by_rank = all(map(is_of_rank, read))
        groups = self.spread.groups(runs) if by_rank else [(run,) for run in runs]
        call = partial(_table_of, sql=query.partial, limits=replace(limits, max_rows=None))
        return query.merged(self._called(call, groups, {}), limits)

    @contextmanager
    def _connection(
        self,
        selected: Sequence[SelectedRun],
        named: Mentioned,
        skipped: Mapping[Contract, Sequence[Skipped]],
        limits: Limits | None,
        sql: str,
        copies: Mapping[str, Path],
    ) -> Iterator[tuple[Connection, str]]:
        """A new connection for SQL of users, one of the pool for other SQL on tables and views; and the SQL
        as it runs there.
        """
        from tracewarehouse.limits import NO_LIMITS
        from tracewarehouse.query.connections import user_connection

        is_recorded = any(contract.is_recorded for contract in named.contracts)
        is_pooled = not (named.analyses or named.lists or named.has_help or is_recorded)
        if limits is None and is_pooled:
            with self.pool.with_relations(selected, named.contracts, sql) as opened:
                yield opened
            return
        chosen = limits or NO_LIMITS
        with user_connection(self.store, self.catalog, selected, named, skipped, chosen, copies) as con:
            yield con, sql

    def _skipped(self, analysis: Contract, selected: Sequence[SelectedRun]) -> tuple[Skipped, ...]:
        """The ranks that an analysis skips: those without needed data, and runs without a needed column."""
        from tracewarehouse.query.relations import Dependencies

        read = Dependencies.of(self.catalog, [analysis]).contracts
        current: list[SelectedRun] = []
        unexpired = without_expired(analysis, read, selected)
        skipped: list[Skipped] = [*unexpired.skipped]
        for run in unexpired.selected:
            try:
                current += readable_runs(self.catalog, read, [run], analysis.optional).selected
            except SchemaVersionError as error:
                skipped += [Skipped(run.run, rank, error.message) for rank in run.ranks]
        return (*skipped, *with_capabilities(analysis, current).skipped)

    def scan(self, table: str) -> polars.LazyFrame:
        """A stored table as a Polars LazyFrame over the files of the selected ranks.

        JSON columns are strings; a column that a run was stored without is null. Raises UnknownName, and
        SchemaVersionError if no run has the table in a version that this release reads.
        """
        from tracewarehouse.query.relations import scan

        contract = self.catalog.get(table)
        runs = self.queryable([contract], self.selected(), ())
        return scan(self.store, self.catalog, contract, runs.selected)

    def _unrecorded(self, read: Iterable[Contract], selected: Sequence[SelectedRun]) -> Iterator[str]:
        """A notice per table of recorded results that some runs do not have."""
        versions = [run.version for run in selected]
        for contract in read:
            if contract.is_recorded:
                analysis = RecordedAnalysis.of(contract, self.catalog)
                missing = len(versions) - len(self.store.recorded_files(analysis, versions))
                if missing:
                    name, record = analysis.contract.name, hints.record(analysis.contract.name)
                    text = "left out {:,} of {:,} runs, of which {} is not recorded: {}"
                    yield hints.fill(text, missing, len(versions), name, record)


_NOT_SPREAD = "the query ran in this process: workers only count, sum, and find min or max of one relation"


def _spread_query(sql: str, read: Iterable[Contract]) -> SpreadQuery | None:
    from tracewarehouse.query.distributed import SpreadQuery

    return SpreadQuery.of(sql, read)


def _names(sql: str, named: Mentioned) -> frozenset[str] | None:
    """The names of all columns in files that the SQL may read, None: all columns."""
    computed = (each for each in (*named.contracts, *named.analyses) if each.kind != "table")
    texts = [sql, _KEYS, *(each.body for each in computed)]
    return names_in([*texts, ARGS_SQL] if any(ARGS in text for text in texts) else texts)


def _table_of(selection: Selection, sql: str, limits: Limits) -> pa.Table:
    return selection.query(sql, limits).table


def _with_advice(runs: ReadableRuns) -> ReadableRuns:
    """With a notice if the number of events makes an engine pay."""
    from tracewarehouse.query.connections import BATCH_EVENTS, event_count

    events = event_count(runs.selected)
    if events <= BATCH_EVENTS:
        return runs
    from tracewarehouse.engines import advice

    note = advice(None, events)
    return replace(runs, notices=(*runs.notices, note)) if note else runs


def _used(selected: Sequence[SelectedRun], sql: str, table: pa.Table) -> list[SelectedRun]:
    """The runs that an answer is about: those in its rows, else those that the SQL filters by, else all."""
    if "run_id" in table.column_names:
        runs = set(table.column("run_id").unique().to_pylist())
        return [run for run in selected if run.run in runs]
    return _filtered(selected, sql) or list(selected)


def _filtered(selected: Sequence[SelectedRun], sql: str) -> list[SelectedRun]:
    """The runs that the SQL filters by; empty if it does not name any."""
    return [run for run in selected if _is_filtered_by(sql, run.run)]


def _is_filtered_by(sql: str, run: str) -> bool:
    """Whether a condition on `run_id` names the run."""
    name = re.escape(f"'{run}'")
    return re.search(rf"\brun_id\s*(?:=\s*{name}|IN\s*\([^)]*{name})", sql, re.IGNORECASE) is not None
