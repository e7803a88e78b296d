"""Analyses, SQL and scans over the selected runs of a warehouse."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tracewarehouse.contracts.contract import Contract
from tracewarehouse.errors import QueryError, SchemaVersionError
from tracewarehouse.result import Abstained, Result
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage.parquet_file import Level
from tracewarehouse.warehouse_base import WarehouseBase

if TYPE_CHECKING:
    import polars
    import pyarrow as pa

    from tracewarehouse.duck.engine import Connection, Limits
    from tracewarehouse.engines import EngineOrName
    from tracewarehouse.query.relations import Dependencies, Mentioned
    from tracewarehouse.runs.readable import ReadableRuns


T = TypeVar("T")


class WarehouseQueries(WarehouseBase):
    """The methods that run an analysis or SQL."""

    def run(self, name: str, version: int | None = None, **params: object) -> Result:
        """The rows of an analysis (`name` or `name@2`; newest version by default).

        Ranks whose trace lacks data that it needs are in `Result.abstained`. Runs that were stored without a
        column that it reads are excluded, with a notice. Raises UnknownName, ParamError, and
        SchemaVersionError if no run remains.
        """
        from tracewarehouse.contracts.contract import bind
        from tracewarehouse.query.connections import copy_batches
        from tracewarehouse.query.relations import Dependencies
        from tracewarehouse.runs.readable import readable_runs, with_capabilities, without_expired
        from tracewarehouse.runs.rows import nothing_stored, notices, partly_read, provenance_of

        contract = self.catalog.get(name, version, kind="analysis")
        bound = bind(contract.params, params, str(contract.ref))
        dependencies = Dependencies.of(self.catalog, [contract])
        selected = self.selected()

        unexpired = without_expired(contract, dependencies.contracts, selected)
        readable = readable_runs(self.catalog, dependencies.contracts, unexpired.selected, contract.optional)
        capable = with_capabilities(contract, readable.selected)

        def attempt(level: Level) -> tuple[ReadableRuns, pa.Table]:
            runs = replace(readable, selected=capable.selected)
            if self._engine is not None:
                return self._spread(self._engine, contract, bound, dependencies, runs, level)
            if batches := copy_batches(
                self.store, self.catalog, contract, dependencies.contracts, runs.selected
            ):
                return runs, self._in_batches(batches, contract, bound, dependencies, level)
            intact = self._intact(dependencies.contracts, runs, level)
            table = self._with(intact.selected)._execute(contract, bound, dependencies)
            return _with_advice(intact), table

        intact, table = self._without_damage(attempt)
        damaged = {each.run for each in capable.selected} - {each.run for each in intact.selected}
        answered = [each for each in readable.selected if each.run not in damaged]
        provenance = provenance_of(self.catalog, answered, contract, bound, dependencies.contracts)
        lines = (
            *intact.notices,
            *nothing_stored(selected),
            *partly_read(selected, capable.selected, contract),
            *notices(intact.selected, contract),
        )
        return Result(table, provenance, contract, (*unexpired.abstained, *capable.abstained), lines)

    def _spread(
        self,
        chosen: EngineOrName,
        contract: Contract,
        bound: Mapping[str, object],
        dependencies: Dependencies,
        runs: ReadableRuns,
        level: Level,
    ) -> tuple[ReadableRuns, pa.Table]:
        """The rows of an analysis from the workers of an engine, and notices about it."""
        from tracewarehouse.engines import advice, opened
        from tracewarehouse.query.connections import event_count
        from tracewarehouse.query.distributed import Spread

        # From a store, the workers download the files and check them.
        if not self.store.is_remote:
            runs = self._intact(dependencies.contracts, runs, level)
        note = advice(chosen, event_count(runs.selected))
        with opened(chosen) as running:
            table = Spread(self.store, self.catalog, running, level).run(contract, bound, runs.selected)
        if table is None:
            runs = self._intact(dependencies.contracts, runs, level)
            table = self._with(runs.selected)._execute(contract, bound, dependencies)
            note = f"{contract.name} cannot be computed by groups of ranks: it ran in this process"
        return replace(runs, notices=(*runs.notices, note) if note else runs.notices), table

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
        from tracewarehouse.duck.arrow import concatenate
        from tracewarehouse.runs.readable import ReadableRuns

        parts = []
        for batch in batches:
            named = ReadableRuns(tuple(replace(each, named=True) for each in batch))
            with self.store.files.for_now():
                intact = self._intact(dependencies.contracts, named, level)
                parts.append(self._with(intact.selected)._execute(contract, bound, dependencies))
        return concatenate(parts)

    def run_or_skip(self, name: str, version: int | None = None, **params: object) -> Result:
        """Like `run`, for checks and reports: runs stored before a table existed are skipped.

        Their ranks are in `Result.abstained`.
        """
        skipped = self._without_tables(self.catalog.get(name, version, kind="analysis"))
        if not skipped:
            return self.run(name, version, **params)
        runs = {each.run_id for each in skipped}
        remaining = tuple(each for each in self.selected() if each.run not in runs)
        result = self._with(remaining, self.left_out).run(name, version, **params)
        notices = result.notices if remaining else ()
        return replace(result, abstained=(*skipped, *result.abstained), notices=notices)

    def _without_tables(self, analysis: Contract) -> tuple[Abstained, ...]:
        """The ranks of runs that lack a table; for other missing data, an upgrade does not help."""
        from tracewarehouse.query.relations import Dependencies
        from tracewarehouse.runs.readable import absent_reason, with_capabilities, without_tables

        selected = self.selected()
        read = Dependencies.of(self.catalog, [analysis]).contracts
        needed = [each for each in read if each.name not in analysis.optional]
        lacking = without_tables(self.catalog, needed, selected)
        if not lacking:
            return ()
        old = [each for each in selected if each.run in lacking]
        other = {(each.run_id, each.rank): each for each in with_capabilities(analysis, old).abstained}
        return tuple(
            other.get((each.run, rank)) or Abstained(each.run, rank, absent_reason(lacking[each.run]))
            for each in old
            for rank in each.ranks
        )

    def _without_damage(self, attempt: Callable[[Level], T]) -> T:
        """The result of an attempt; if it fails on bytes that cannot be decoded, again without those runs."""
        from tracewarehouse.duck.engine import UNREADABLE

        try:
            return attempt(self._level)
        except QueryError as error:
            if self._level is Level.FULL or not isinstance(error.__cause__, UNREADABLE):
                raise
            failed = error
        try:
            return attempt(Level.FULL)
        except QueryError:
            raise failed from failed.__cause__

    def query(
        self,
        sql: str,
        *,
        max_rows: int | None = 100_000,
        timeout_s: float | None = 30.0,
        memory_bytes: int | None = 1_000_000_000,
    ) -> Result:
        """The rows of one SELECT on tables, views and analyses of the selected runs; read-only.

        A query that returns more than `max_rows` rows, runs for longer than `timeout_s` or needs more than
        `memory_bytes` fails and returns nothing; None switches a limit off. `scan` has no limits. Raises
        QueryError with DuckDB's message, QueryLimitError beyond a limit.
        """
        from tracewarehouse.duck.engine import Limits

        return self._query(sql, Limits(max_rows, timeout_s, memory_bytes))

    def query_all(self, sql: str) -> Result:
        """Like `query`, without limits: for SQL that is not typed by a user."""
        return self._query(sql, None)

    def _query(self, sql: str, limits: Limits | None) -> Result:
        """The rows of one SELECT; without limits if it is not typed by a user."""
        from tracewarehouse.duck.engine import MISSING_NAME
        from tracewarehouse.query.relations import mentioned

        try:
            return self._query_over(sql, mentioned(self.catalog, sql), limits)
        except QueryError as error:
            if not isinstance(error.__cause__, MISSING_NAME):
                raise
            # Now DuckDB can suggest other names.
            return self._query_over(sql, mentioned(self.catalog, sql, every=True), limits)

    def _query_over(self, sql: str, named: Mentioned, limits: Limits | None) -> Result:
        from tracewarehouse.contracts.sql_tokens import names_read
        from tracewarehouse.duck.arrow import with_plain_text
        from tracewarehouse.duck.engine import NO_LIMITS, query
        from tracewarehouse.query.connections import check_reads_only
        from tracewarehouse.runs.rows import nothing_stored, notices, provenance_of

        selected = self.selected()

        def attempt(level: Level) -> tuple[ReadableRuns, dict[Contract, tuple[Abstained, ...]], pa.Table]:
            runs = self._queryable(named.contracts, selected, names_read(sql), level, may_be_absent=True)
            skipped = {each: self._skipped(each, runs.selected) for each in named.analyses}
            with self._connection(runs.selected, named, skipped, limits, sql) as (con, complete):
                check_reads_only(con, complete)
                table = query(con, complete, limits or NO_LIMITS)
                return runs, skipped, table if limits else with_plain_text(table)

        runs, skipped, table = self._without_damage(attempt)
        named_runs = {each.run for each in _filtered(selected, sql) or selected}
        abstained = dict.fromkeys(
            each for ranks in skipped.values() for each in ranks if each.run_id in named_runs
        )
        used = _used(runs.selected, sql, table)
        lines = (*runs.notices, *nothing_stored(selected), *notices(used))
        provenance = provenance_of(self.catalog, runs.selected, sql=sql)
        return Result(table, provenance, abstained=tuple(abstained), notices=lines)

    @contextmanager
    def _connection(
        self,
        selected: Sequence[SelectedRun],
        named: Mentioned,
        skipped: Mapping[Contract, Sequence[Abstained]],
        limits: Limits | None,
        sql: str,
    ) -> Iterator[tuple[Connection, str]]:
        """A new connection for SQL of users, one of the pool for other SQL on tables and views; and the SQL
        as it runs there.
        """
        from tracewarehouse.duck.engine import NO_LIMITS
        from tracewarehouse.query.connections import user_connection

        if limits is None and not (named.analyses or named.lists or named.has_help):
            with self._pool.with_relations(selected, named.contracts, sql) as opened:
                yield opened
            return
        chosen = limits or NO_LIMITS
        with user_connection(self.store, self.catalog, selected, named, skipped, chosen) as con:
            yield con, sql

    def _skipped(self, analysis: Contract, selected: Sequence[SelectedRun]) -> tuple[Abstained, ...]:
        """The ranks that an analysis skips: those without needed data, and runs without a needed column."""
        from tracewarehouse.query.relations import Dependencies
        from tracewarehouse.runs.readable import readable_runs, with_capabilities, without_expired

        read = Dependencies.of(self.catalog, [analysis]).contracts
        current: list[SelectedRun] = []
        unexpired = without_expired(analysis, read, selected)
        skipped: list[Abstained] = [*unexpired.abstained]
        for each in unexpired.selected:
            try:
                current += readable_runs(self.catalog, read, [each], analysis.optional).selected
            except SchemaVersionError as error:
                skipped += [Abstained(each.run, rank, error.message) for rank in each.ranks]
        return (*skipped, *with_capabilities(analysis, current).abstained)

    def scan(self, table: str) -> polars.LazyFrame:
        """A stored table as a Polars LazyFrame over the files of the selected ranks.

        JSON columns are strings; a column that a run was stored without is null. Raises UnknownName, and
        SchemaVersionError if no run has the table in a version that this release reads.
        """
        from tracewarehouse.query.relations import scan

        contract = self.catalog.get(table)
        runs = self._queryable([contract], self.selected(), ())
        return scan(self.store, contract, self.catalog.compatible(contract), runs.selected)

    def _execute(
        self, contract: Contract, bound: Mapping[str, object], dependencies: Dependencies
    ) -> pa.Table:
        return self._pool.execute(self.selected(), contract, bound, dependencies)


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
        return [each for each in selected if each.run in runs]
    return _filtered(selected, sql) or list(selected)


def _filtered(selected: Sequence[SelectedRun], sql: str) -> list[SelectedRun]:
    """The runs that the SQL filters by; empty if it does not name any."""
    return [each for each in selected if _is_filtered_by(sql, each.run)]


def _is_filtered_by(sql: str, run: str) -> bool:
    """Whether a condition on `run_id` names the run."""
    name = re.escape(f"'{run}'")
    return re.search(rf"\brun_id\s*(?:=\s*{name}|IN\s*\([^)]*{name})", sql, re.IGNORECASE) is not None
