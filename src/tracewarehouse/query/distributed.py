"""Analyses computed in parts, by tasks of an engine, whose rows are combined.

The rows of a task are small and returned at once, or a file in a folder that all workers reach: TW_PARTS, or
on one machine the user's cache. The files are deleted when the answer is complete; nothing is written to the
warehouse.

Runs that fit in a group are computed whole. Of larger ones, an analysis of single ranks runs per group of
ranks. One that compares ranks reads views, some of which are of single ranks: those are computed per group of
ranks (map), and the analysis runs unchanged over their rows, in a task per run (reduce). The contracts decide
which views these are.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Ref, computed_contract
from tracewarehouse.contracts.sql_tokens import names_in, quote_name
from tracewarehouse.duck.arrow import concatenate, from_bytes, to_bytes, with_plain_text
from tracewarehouse.duck.engine import (
    Connection,
    Error,
    connect,
    create_table,
    limit_memory,
    query,
    result_columns,
)
from tracewarehouse.engines import (
    Engine,
    EngineOrName,
    TaskProgress,
    engine,
    is_remote,
    results_in_order,
)
from tracewarehouse.errors import WarehouseError
from tracewarehouse.limits import Limits, cores
from tracewarehouse.location import is_url
from tracewarehouse.query.connections import (
    BATCH_EVENTS,
    ConnectionPool,
    event_batches,
    event_count,
    is_by_rank,
    lock_to_files,
)
from tracewarehouse.query.relations import Dependencies
from tracewarehouse.runs.readable import intact_runs
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage.parquet_file import Level
from tracewarehouse.storage.store import Store
from tracewarehouse.temp_folders import cache_folder

if TYPE_CHECKING:
    import pyarrow as pa


FOLDER: Final = "TW_PARTS"
# Fewer are returned by the task itself: all of them pass through the memory of the driver.
_INLINE_BYTES = 16 << 10
# Files of a process that was killed.
_OLD_S = 7 * 86_400.0

# Run, number of its version, ranks, and whether it was selected by its name.
Ranks = tuple[str, int, tuple[int, ...], bool]


class GroupRows(Struct, frozen=True):
    """The rows of a part: as bytes, or where they are in a file."""

    data: bytes = b""
    path: Path | None = None
    offset: int = 0
    size: int = 0

    @classmethod
    def of(cls, parts: Sequence[bytes], folder: Path | None) -> tuple[GroupRows, ...]:
        """The rows of a task: in one file, unless they are few or there is no folder."""
        if folder is None or sum(map(len, parts)) < _INLINE_BYTES:
            return tuple(map(cls, parts))
        path = folder / secrets.token_hex(8)
        path.write_bytes(b"".join(parts))
        begins = accumulate(map(len, parts), initial=0)
        return tuple(cls(b"", path, offset, len(part)) for offset, part in zip(begins, parts, strict=False))

    def read(self) -> pa.Table:
        """The rows. Raises WarehouseError if this process does not reach the folder of parts."""
        if self.path is None:
            return from_bytes(self.data)
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                return from_bytes(file.read(self.size))
        except FileNotFoundError:
            hint = f"{FOLDER} must name a folder that the workers and this process share"
            raise WarehouseError(f"{self.path}: a worker wrote it, but it is not here", hint) from None


Parts = tuple[GroupRows, ...]


def rows_of(parts: Iterable[GroupRows]) -> pa.Table:
    """The rows of all parts, in order."""
    return concatenate([part.read() for part in parts])


class Wanted(Struct, frozen=True):
    """An analysis, or a view as such, of some ranks, with bound parameters."""

    contract: Contract
    bound: Mapping[str, object]
    selected: tuple[SelectedRun, ...]

    @property
    def key(self) -> object:
        """What decides the rows."""
        params = tuple(sorted((name, repr(value)) for name, value in self.bound.items()))
        return self.contract.ref, params, tuple((run.selector, run.ranks) for run in self.selected)


def numbered(selected: Iterable[SelectedRun]) -> tuple[Ranks, ...]:
    """Runs and ranks as tasks carry them."""
    return tuple((run.run, run.version.number, run.ranks, run.named) for run in selected)


def selected_of(store: Store, runs: Iterable[Ranks]) -> list[SelectedRun]:
    """The runs and ranks of a task."""
    return [SelectedRun(store.get(run, number), ranks, named) for run, number, ranks, named in runs]


class _Request(Struct, frozen=True):
    """What a task computes; `computed` are the rows of the views that other tasks have computed."""

    contract: Contract
    bound: Mapping[str, object]
    ranks: tuple[Ranks, ...]
    computed: tuple[tuple[Contract, Parts], ...] = ()


class ComputePart(Struct, frozen=True):
    """Computes analyses on some ranks; the worker checks and opens the files.

    `threads`: of DuckDB, None for one per core.
    """

    store: Store
    sql: Path | None
    requests: tuple[_Request, ...]
    level: Level
    folder: Path | None
    threads: int | None

    def run(self, progress: TaskProgress) -> Parts:
        """The rows of each request."""
        catalog = Catalog.load(self.sql)
        pool = ConnectionPool(self.store, catalog, self.threads)
        pool.will_read(each.contract for each in self.requests)
        results = []
        for request in self.requests:
            results.append(to_bytes(self._rows(catalog, pool, request)))
            progress(len(results), len(self.requests))
        return GroupRows.of(results, self.folder)

    def _rows(self, catalog: Catalog, pool: ConnectionPool, request: _Request) -> pa.Table:
        contract = request.contract
        # Rows without a damaged run would be incomplete.
        selected = [replace(each, named=True) for each in selected_of(self.store, request.ranks)]
        read = Dependencies.of(catalog, [contract])
        if request.computed:
            computed = ((view, rows_of(parts)) for view, parts in request.computed)
            return pool.execute_over(selected, contract, request.bound, read, computed)
        intact_runs(self.store, catalog, read.contracts, selected, self.level)
        return pool.execute(selected, contract, request.bound, read)


def parts_folder(on_this_machine: bool) -> Path | None:
    """A new folder for parts; None if there is none that all workers reach.

    Raises WarehouseError if the folder that TW_PARTS names cannot be written.
    """
    variable = os.environ.get(FOLDER)
    if is_url(variable):
        raise WarehouseError(f"{FOLDER} is a URL", "name a folder that all workers reach")
    try:
        if not variable and not on_this_machine:
            return None
        shared = Path(variable).absolute() if variable else cache_folder() / "parts"
        with suppress(OSError):
            for path in shared.iterdir():
                if time.time() - path.stat().st_mtime > _OLD_S:
                    shutil.rmtree(path, ignore_errors=True)
        folder = shared / secrets.token_hex(8)
        folder.mkdir(mode=0o700, parents=True)
        return folder
    except (OSError, RuntimeError) as error:
        if variable:
            raise WarehouseError(f"{FOLDER}: {error}", "name a folder that all workers reach") from error
        return None


class Spread:
    """The analyses of a selection on an engine, and the rows that are known.

    `chosen`: the engine, None for this process, which then only has what is known; `part_events`: the size of
    a group of ranks.
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        level: Level,
        chosen: EngineOrName | None = None,
        known: Mapping[object, Parts] | None = None,
        part_events: int = BATCH_EVENTS,
    ) -> None:
        self.store, self.catalog, self.level, self.chosen = store, catalog, level, chosen
        # They are computed together when the first of them is needed.
        self.announced: dict[Ref, Contract] = {}
        self.known: dict[object, Parts] = dict(known or {})
        self._part_events = part_events

    @cached_property
    def engine(self) -> Engine:
        """The engine; one that is made by its name ends with this object."""
        assert self.chosen is not None
        if not isinstance(self.chosen, str):
            return self.chosen
        made = engine(self.chosen)
        weakref.finalize(self, made.close)
        return made

    @cached_property
    def _folder(self) -> Path | None:
        """The folder of parts, which is deleted with this object."""
        folder = parts_folder(self.engine.on_this_machine)
        if folder is not None:
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    def compute(self, wanted: Iterable[Wanted]) -> None:
        """Computes the rows of analyses unless they are known. Raises TwError if a task fails."""
        missing = {each.key: each for each in wanted if each.selected and each.key not in self.known}
        if missing and self.chosen is not None:
            self.known.update(zip(missing, self._parts([*missing.values()]), strict=True))

    def _parts(self, wanted: Sequence[Wanted]) -> list[Parts]:
        groups = self.groups(_union(wanted))
        counts = Counter(each.run for group in groups for each in group)
        split = {run for run, count in counts.items() if count > 1}
        rows: dict[object, list[GroupRows]] = defaultdict(list)
        self._run([self._of_group(wanted, group, split) for group in groups], rows)
        self._run([*self._reduced(wanted, split, rows)], rows)
        return [
            tuple(part for run in sorted(counts) for part in rows[number, run])
            for number in range(len(wanted))
        ]

    def groups(self, selected: Sequence[SelectedRun]) -> list[tuple[SelectedRun, ...]]:
        """Consecutive ranks, at most `part_events`, and enough groups for all workers."""
        share = -(-event_count(selected) // self.engine.slots)
        return event_batches(selected, min(self._part_events, max(1, share)))

    def _of_group(
        self, wanted: Sequence[Wanted], group: Sequence[SelectedRun], split: Collection[str]
    ) -> dict[object, _Request]:
        """Where rows belong → what computes them, of the runs and ranks of a group."""
        requests: dict[object, _Request] = {}
        for number, each in enumerate(wanted):
            own = _within(each.selected, group)
            computed_whole = own if self._is_by_rank(each) else [run for run in own if run.run not in split]
            if computed_whole:
                request = _Request(each.contract, each.bound, numbered(computed_whole))
                requests[number, computed_whole[0].run] = request
            for run in own if computed_whole is not own else ():
                for view in mapped_views(self.catalog, each.contract) if run.run in split else ():
                    query = view_query(self.catalog, each.contract, view)
                    requests[_view_key(each, query, run.run)] = _Request(query, {}, numbered([run]))
        return requests

    def _reduced(
        self,
        wanted: Sequence[Wanted],
        split: Collection[str],
        rows: Mapping[object, Sequence[GroupRows]],
    ) -> Iterator[dict[object, _Request]]:
        """What remains of the runs that were split: analyses of several ranks, over the rows of views."""
        for number, each in enumerate(wanted):
            for run in each.selected if not self._is_by_rank(each) else ():
                if run.run in split:
                    views = mapped_views(self.catalog, each.contract)
                    queries = (view_query(self.catalog, each.contract, view) for view in views)
                    parts = (tuple(rows[_view_key(each, query, run.run)]) for query in queries)
                    computed = tuple(zip(views, parts, strict=True))
                    request = _Request(each.contract, each.bound, numbered([run]), computed)
                    yield {(number, run.run): request}

    def _run(
        self, requests: Sequence[Mapping[object, _Request]], rows: dict[object, list[GroupRows]]
    ) -> None:
        threads = 1 if is_remote(self.engine) else max(1, cores() // self.engine.slots)
        common = self.level, self._folder, threads
        sql = self.catalog.custom_folder
        tasks = [ComputePart(self.store, sql, tuple(request.values()), *common) for request in requests]
        for each, parts in zip(requests, results_in_order(self.engine, tasks), strict=True):
            for key, part in zip(each, parts, strict=True):  # type: ignore[call-overload]
                rows[key].append(part)

    def _is_by_rank(self, wanted: Wanted) -> bool:
        return is_by_rank(wanted.contract, Dependencies.of(self.catalog, [wanted.contract]).contracts)


def _union(wanted: Iterable[Wanted]) -> list[SelectedRun]:
    """The runs and ranks of all analyses."""
    ranks: dict[str, set[int]] = defaultdict(set)
    runs: dict[str, SelectedRun] = {}
    for each in (run for analysis in wanted for run in analysis.selected):
        runs[each.run] = each
        ranks[each.run].update(each.ranks)
    return [replace(each, ranks=tuple(sorted(ranks[run]))) for run, each in runs.items()]


def _within(selected: Sequence[SelectedRun], group: Sequence[SelectedRun]) -> list[SelectedRun]:
    """The ranks of a selection that are in a group, in its order."""
    ranks_of = {run.run: frozenset(run.ranks) for run in selected}
    narrowed = (
        replace(each, ranks=tuple(rank for rank in each.ranks if rank in ranks_of.get(each.run, ())))
        for each in group
    )
    return [part for part in narrowed if part.ranks]


def _view_key(wanted: Wanted, query: Contract, run: str) -> object:
    """What several analyses share: the columns of a view of the same ranks."""
    ranks = next(each.ranks for each in wanted.selected if each.run == run)
    return query.name, query.body, run, ranks


def mapped_views(catalog: Catalog, analysis: Contract) -> tuple[Contract, ...]:
    """The views of single ranks that an analysis of several reads, directly or through views of several."""
    return tuple(each for each in _below(catalog, analysis) if each.kind == "view" and each.scope == "rank")


def _below(catalog: Catalog, analysis: Contract) -> tuple[Contract, ...]:
    """What an analysis reads, through views of several ranks, down to tables and views of single ranks."""
    read: dict[Ref, Contract] = {}

    def visit(contract: Contract) -> None:
        for each in (catalog.contracts[ref] for ref in contract.requires):
            if read.setdefault(each.ref, each) is each and each.kind == "view" and each.scope == "run":
                visit(each)

    if analysis.scope == "run":
        visit(analysis)
    return tuple(read.values())


def view_query(catalog: Catalog, analysis: Contract, view: Contract) -> Contract:
    """A view as an analysis, with the columns that its readers name."""
    readers = [analysis, *(contract for contract in _below(catalog, analysis) if contract.scope == "run")]
    names = names_in(reader.body for reader in readers if reader.kind != "table")
    columns = tuple(each for each in view.columns if names is None or each.name in names) or view.columns
    listed = ", ".join(quote_name(column.name) for column in columns)
    query = computed_contract(
        view.name,
        group=view.group or "",
        summary=view.summary,
        requires=(view.ref,),
        grain=(),
        order=tuple(each.name for each in columns if not each.type.startswith("MAP(")),
        columns=columns,
    )
    return replace(query, scope="rank", body=f"SELECT {listed} FROM {quote_name(view.name)}")


# Aggregate → the aggregate of its values in several groups.
_COUNT: Final = "CAST(sum({}) AS BIGINT)"
_MERGED = {"count": _COUNT, "count_star": _COUNT, "sum": "sum({})", "min": "min({})", "max": "max({})"}
# Of DuckDB's syntax trees: expressions of one row, beside columns and functions.
_OF_ROWS = {"BETWEEN", "CASE", "CAST", "COMPARISON", "CONJUNCTION", "CONSTANT", "OPERATOR"}
_SCALAR = """
SELECT function_name FROM duckdb_functions() GROUP BY ALL HAVING bool_and(function_type = 'scalar')
"""
_EXPRESSIONS = """
SELECT key, value FROM json_tree(json_serialize_sql(?::VARCHAR))
WHERE key IN ('class', 'function_name', 'column_names')
"""


class SpreadQuery(Struct, frozen=True):
    """A SELECT of users in two: `partial` over each group of ranks, `final` over the rows of all groups.

    `types` are those of the rows of `partial`, which take the place of the only relation.
    """

    relation: Contract
    partial: str
    final: str
    types: Mapping[str, str]

    @classmethod
    def of(cls, sql: str, known: Iterable[Contract]) -> SpreadQuery | None:
        """None unless it only counts, sums, or takes the minimum or maximum of rows of one relation.

        Sums of floating-point numbers depend on the order, so they are left to one process.
        """
        with connect(threads=1) as con, suppress(Error, _NotSpread):
            tree = _Tree(con, sql, known)
            final = tree.final([name for name, _ in result_columns(con, sql)])
            partial = tree.partial()
            types = dict(result_columns(con, partial))
            if not {"DOUBLE", "FLOAT"}.intersection(types[name] for name in tree.sums):
                return cls(tree.relation, partial, final, types)
        return None

    def merged(self, parts: Sequence[pa.Table], limits: Limits) -> pa.Table:
        """The rows of the query, from those of all groups."""
        columns = ", ".join(f"CAST({quote_name(name)} AS {type_})" for name, type_ in self.types.items())
        names = ", ".join(map(quote_name, self.types))
        with connect() as con:
            con.register("tw_rows", concatenate([with_plain_text(part) for part in parts]))
            con.execute(
                f"CREATE TABLE {quote_name(self.relation.name)} ({names}) AS SELECT {columns} FROM tw_rows"
            )
            con.unregister("tw_rows")
            limit_memory(con, limits.memory_bytes)
            lock_to_files(con, ())
            return query(con, self.final, limits)


class _NotSpread(Exception):
    """A query has something that is not computed by groups."""


class _Tree:
    """The syntax tree of a SELECT, with its aggregates and the columns that it reads outside of them."""

    def __init__(self, con: Connection, sql: str, known: Iterable[Contract]) -> None:
        statement = json.loads(con.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()[0][0])
        statements = statement.get("statements", ())
        node = statements[0]["node"] if len(statements) == 1 else {}
        table = node.get("from_table", {})
        names = {each.name: each for each in known}
        if table.get("type") != "BASE_TABLE" or table["table_name"] not in names or table["sample"]:
            raise _NotSpread
        if node["cte_map"]["map"] or node["qualify"] or node["sample"]:
            raise _NotSpread
        self._statement, self._node, self._con = statement, node, con
        self.relation = names[table["table_name"]]
        create_table(con, self.relation)
        self._qualifiers = {table["table_name"], table["alias"]}
        self._known = {column.name.lower(): column.name for column in self.relation.columns}
        classes = _OF_ROWS | {"COLUMN_REF", "FUNCTION"}
        aliases = {each["alias"].lower() for each in node["select_list"]}
        functions = {*_MERGED, *(name for (name,) in con.execute(_SCALAR).fetchall())}
        for kind, text in con.execute(_EXPRESSIONS, [sql]).fetchall():
            value = json.loads(text)
            if kind == "column_names":
                is_known = bool(self._column(value)) or value[-1].lower() in aliases
            else:
                is_known = value in (classes if kind == "class" else functions)
            if not is_known:
                raise _NotSpread
        self._aggregates: list[Any] = []
        self._columns: dict[str, None] = {}
        self.sums: list[str] = []

    def final(self, names: Sequence[str]) -> str:
        """The statement over the rows of all groups; its columns have these names."""
        node = self._merged({**self._node, "where_clause": None, "from_table": None})
        columns = [{**each, "alias": name} for each, name in zip(node["select_list"], names, strict=True)]
        return self._text({**node, "select_list": columns, "from_table": self._node["from_table"]})

    def partial(self) -> str:
        """The statement over each group: the columns and the aggregates that `final` reads."""
        if not (self._aggregates or self._node["group_expressions"]):
            raise _NotSpread
        columns = [self._expression(quote_name(name)) for name in self._columns]
        other: dict[str, Any] = {"modifiers": [], "having": None, "group_expressions": [], "group_sets": []}
        other |= {"aggregate_handling": "FORCE_AGGREGATES", "select_list": columns + self._aggregates}
        return self._text({**self._node, **other})

    def _merged(self, node: Any) -> Any:
        """A part of the tree with aggregates of aggregates."""
        if isinstance(node, list):
            return [self._merged(each) for each in node]
        if not isinstance(node, dict):
            return node
        name = node.get("function_name")
        if name in _MERGED and node["class"] == "FUNCTION":
            if node["distinct"] or node["order_bys"]["orders"] or len(node["arguments"]) > 1:
                raise _NotSpread
            column = f"tw_{len(self._aggregates)}"
            self._aggregates.append({**node, "alias": column})
            if name == "sum":
                self.sums.append(column)
            return {**self._expression(_MERGED[name].format(column)), "alias": node["alias"]}
        if node.get("class") == "COLUMN_REF" and (column_read := self._column(node["column_names"])):
            self._columns[column_read] = None
        return {key: self._merged(value) for key, value in node.items()}

    def _column(self, names: Sequence[str]) -> str | None:
        """The column of the relation that a reference reads."""
        first = names[1] if len(names) > 1 and names[0] in self._qualifiers else names[0]
        return self._known.get(first.lower())

    def _expression(self, text: str) -> Any:
        sql = f"SELECT {text}"
        ((parsed,),) = self._con.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
        return json.loads(parsed)["statements"][0]["node"]["select_list"][0]

    def _text(self, node: Mapping[str, Any]) -> str:
        statement = {**self._statement["statements"][0], "node": node}
        tree = json.dumps({**self._statement, "statements": [statement]})
        return str(self._con.execute("SELECT json_deserialize_sql(?::JSON)", [tree]).fetchall()[0][0])
