"""All stored tables of a rank, built in order of their dependencies; each is passed on once it is ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.errors import TwError
from tracewarehouse.formats.base import ACTIVITIES
from tracewarehouse.ingest.columns import APART, Columns
from tracewarehouse.ingest.naming import header_facts, header_of
from tracewarehouse.ingest.tables.attribution import attribute_calls
from tracewarehouse.ingest.tables.events import (
    allocation_slabs,
    annotation_table,
    counters,
    events,
    find_allocations,
    find_flows,
    flow_slabs,
    samples_gpu,
)
from tracewarehouse.ingest.tables.kernels import KINDS, classify, hlo_of, kernels, stream_idle
from tracewarehouse.ingest.tables.launches import (
    calls_by_name,
    correlations,
    find_calls,
    find_launches,
    runtime,
    syncs,
)
from tracewarehouse.ingest.tables.model import QualityInput, pairing_ids, schemas
from tracewarehouse.ingest.tables.modules import find_modules, kernel_modules, module_table, with_annotations
from tracewarehouse.ingest.tables.nesting import nest
from tracewarehouse.ingest.tables.op_work import hlo_work, op_work
from tracewarehouse.ingest.tables.quality import (
    ADDED_TABLES,
    Coverage,
    FiredRule,
    activity_facts,
    coverage,
    data_quality,
    fired_rules,
    rank_facts,
    timeline_rules,
)
from tracewarehouse.ingest.tables.recording import (
    Limit,
    clipped,
    find_unrecorded,
    limits,
    several_processes,
    step_facts,
)
from tracewarehouse.ingest.tables.segments import device_segments
from tracewarehouse.ingest.tables.steps import find_step_annotations, put_steps, steps

if TYPE_CHECKING:
    from tracewarehouse.formats.base import Outcome
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Calls, Launches, Nesting, Positions, StepAnnotations

Batches: TypeAlias = "pa.Table | Iterable[pa.RecordBatch]"
# Of all ranks, whole or in slabs; or a table of each.
Rows: TypeAlias = "pa.Table | Iterator[pa.Table] | list[pa.Table]"
Add = Callable[[str, "Batches"], object]
# Maximum rows of ranks that are joined, and of each.
JOINED_ROWS: Final = 1 << 16
_RANK: Final = pa.field("rank", pa.int32())
# Columns with an event_id, except the one of `events` with an id of the Python tracer.
_EVENT_IDS: Final = frozenset((
    "event_id", "parent_id", "end_id", "kernel_id", "runtime_id", "op_id", "top_op_id", "module_id",
    "annotation_id", "stream_previous_id", "forward_id", "start_id", "slice_id", "main_kernel_id", "wait_id",
    "after_id",
))  # fmt: skip
_ID_OF_TRACER: Final = ("events", "module_id")
# Columns with a position in nesting order.
_POSITIONS: Final = frozenset(("pre", "post"))
_TIMELINE = "memory_timeline"
_QUALITY = "data_quality"


class Built(Struct, frozen=True):
    """What is known of a rank after its tables are built; `quality` maps rules to numbers of rows."""

    facts: dict[str, Any]
    coverage: Coverage
    quality: dict[str, int]


class RankTables(Struct, frozen=True):
    """What was read of a rank: the tables of its source, and the facts about the source."""

    rank: int
    tables: Mapping[str, Columns | pa.Table]
    outcome: Outcome

    @property
    def rows(self) -> int:
        """The number of its activities."""
        columns = _activities(self)
        return 0 if columns is None else columns.rows

    @property
    def is_joinable(self) -> bool:
        """Whether its tables can be built together with those of others: small, and with usual ids."""
        columns = self.tables.get(ACTIVITIES)
        if type(columns) is not Columns or len(self.tables) > 1 or columns.rows > JOINED_ROWS:
            return False
        links = pairing_ids(columns, slice(None))
        python = (
            columns.ints(name).values for name in ("python_id", "python_parent_id") if columns.has(name)
        )
        ids = [links.values[links.valid], *python]
        return all(int(each.min(initial=0)) >= 0 and int(each.max(initial=0)) < APART for each in ids)


def build(
    ranks: Sequence[RankTables], rules: Rules, add: Add, step_pattern: str | None = None
) -> tuple[Built, ...]:
    """Passes every stored table to `add` by name, empty ones too, without the column `run_id`.

    Tables that a format provides itself are stored unchanged. The tables of several ranks, which must be
    joinable, have the column `rank` and are in order of it. Batches of one rank may be consumed in another
    thread while the next table is built. `step_pattern` is the pattern of annotations that mark steps. Raises
    TwError if tables or columns differ from the contracts.
    """
    missing = dict(schemas(rules))
    builders = _Builders(ranks, rules, step_pattern)
    additions = {}
    for name, rows in ranks[0].tables.items():
        if not isinstance(rows, pa.Table):
            continue
        if name not in missing:
            raise TwError(f"{name} is not a stored table", "the format is at fault")
        add(name, _declared(name, missing.pop(name), rows))
        if name in ADDED_TABLES:
            additions[name] = rows
    for name, rows in builders.from_activities():
        if name in missing:
            whole = pa.concat_tables(rows) if isinstance(rows, list) else rows
            declared = _as_declared(name, missing.pop(name), whole)
            add(name, declared if len(ranks) == 1 else builders.by_rank(name, declared, rows))
    built = []
    quality = []
    for rank, fired, facts, covered in zip(
        ranks, builders.fired, builders.facts, builders.coverage, strict=True
    ):
        columns, timeline = _activities(rank), rank.tables.get(_TIMELINE)
        found = data_quality(fired, columns, rank.outcome, rules)
        of_rank = rank_facts(facts, timeline, rank.outcome.base_time_ns, additions)
        counts = dict(zip(found.column("rule").to_pylist(), found.column("rows").to_pylist(), strict=True))
        built.append(Built(of_rank, covered, counts))
        quality.append(found if len(ranks) == 1 else _with_rank(found, rank.rank))
    schema = missing.pop(_QUALITY)
    add(
        _QUALITY,
        _declared(_QUALITY, schema if len(ranks) == 1 else schema.append(_RANK), pa.concat_tables(quality)),
    )
    for name, schema in missing.items():
        add(name, schema.empty_table())
    return tuple(built)


def _activities(rank: RankTables) -> Columns | None:
    found = rank.tables.get(ACTIVITIES)
    return found if isinstance(found, Columns) else None


def _with_rank(rows: pa.Table, rank: int) -> pa.Table:
    return rows.append_column(_RANK, pa.array(np.full(len(rows), rank, np.int32)))


class _Builders(Struct):
    """The builders in order; intermediate results are freed as soon as the next table is requested.

    What belongs to a rank is in order of `ranks`. `nested`: the host slices of the ranks before each.
    """

    ranks: Sequence[RankTables]
    rules: Rules
    step_pattern: str | None = None
    facts: Sequence[dict[str, Any]] = ({},)
    coverage: tuple[Coverage, ...] = (Coverage(),)
    fired: tuple[list[FiredRule], ...] = ([],)
    limits: Sequence[list[Limit]] = ([],)
    of_steps: Sequence[dict[str, Any]] = ({},)
    columns: Columns | None = None
    nested: Positions = np.zeros(1, np.int64)

    @property
    def device_names(self) -> list[str | None]:
        """The name of the GPU of each rank."""
        outcomes = [rank.outcome for rank in self.ranks]
        found = [
            outcome.facts.get("device_name") or header_facts(header_of(outcome.header_json))["device_name"]
            for outcome in outcomes
        ]
        return [None if name is None else str(name) for name in found]

    def by_rank(self, table: str, declared: Batches, built: Rows) -> pa.Table:
        """The rows of several ranks with the column `rank`, in order of it, and ids as if it were alone.

        The ranks are known from `built`, if that is a table of each, else from the first id of each row.
        """
        columns = self.columns
        assert columns is not None
        rows = declared if isinstance(declared, pa.Table) else pa.Table.from_batches(declared)
        if isinstance(built, list):
            index = np.repeat(np.arange(len(built)), [len(of_rank) for of_rank in built])
        else:
            ids = [name for name in ("event_id", "kernel_id", "runtime_id") if name in rows.column_names]
            if not ids:
                raise TwError(
                    f"{table} has no event_id, kernel_id or runtime_id, so the ranks of its rows are unknown",
                    "the builder must return a table of each rank",
                )
            index = columns.rank_index(rows.column(ids[0]).to_numpy())
        for names, first in ((_EVENT_IDS, columns.bounds), (_POSITIONS, self.nested)):
            for position, name in enumerate(rows.column_names):
                if name in names and (table, name) != _ID_OF_TRACER:
                    own = pc.subtract(rows.column(position), pa.array(first[index]))
                    rows = rows.set_column(position, name, own)
        ranks = np.array([rank.rank for rank in self.ranks], np.int32)
        rows = rows.append_column(_RANK, pa.array(ranks[index]))
        is_sorted = bool((index[1:] >= index[:-1]).all())
        return rows if is_sorted else rows.take(pa.array(np.argsort(index, kind="stable")))

    def from_activities(self) -> Iterator[tuple[str, Rows]]:
        """The tables that are built from the activities."""
        parts = [columns for rank in self.ranks if (columns := _activities(rank)) is not None]
        if not parts:
            timeline = self.ranks[0].tables.get(_TIMELINE)
            self.fired = ([] if timeline is None else list(timeline_rules(timeline)),)
            return
        self.columns = parts[0] if len(parts) == 1 else Columns.joined(parts)
        columns, rules = self.columns, self.rules
        nesting = nest(columns, rules)
        self.nested = np.array([rows.start for rows in columns.slices(nesting.rows)])
        calls = find_calls(columns, rules, nesting)
        launches = find_launches(columns, rules, nesting, calls)
        headers = [rank.outcome.header_json for rank in self.ranks]
        step_annotations = find_step_annotations(columns, rules, self.step_pattern, headers)
        put_steps(columns, rules, step_annotations, launches)
        launches = clipped(columns, launches, step_annotations)
        # The largest table first: it is written while the others are built.
        yield "events", events(columns)
        attribution = attribute_calls(columns, nesting, calls, launches)
        hlo = hlo_of(columns, rules, launches, headers)
        self.coverage = coverage(columns, launches, attribution, hlo)
        classes = classify(columns, rules, launches, attribution)
        idle = stream_idle(columns, launches)
        yield "kernels", kernels(columns, launches, attribution, classes, idle, hlo)
        by_name = calls_by_name(columns, rules, calls)
        yield "runtime", runtime(columns, calls, launches, attribution, by_name)
        yield "correlations", correlations(calls, launches)
        unrecorded = find_unrecorded(columns, calls, launches, by_name[0])
        step_rows = steps(columns, step_annotations, launches, unrecorded)
        self.of_steps = [step_facts(rows) for rows in step_rows]
        yield "steps", step_rows
        parts_of = zip(columns.slices(calls.rows), columns.slices(launches.rows), step_rows, strict=True)
        segments = [
            device_segments(
                columns,
                calls.part(c),
                launches.part(g),
                classes.part(g),
                by_name[1][c],
                idle.part(g),
                of_rank,
            )
            for c, g, of_rank in parts_of
        ]
        self.limits = limits(columns, unrecorded, launches, step_rows, segments)
        yield "device_segments", segments
        del idle, segments
        owners = None
        if (frames := find_modules(columns, nesting)) is not None:
            owners = kernel_modules(columns, nesting, calls, launches, attribution, classes, frames)
            yield "modules", module_table(columns, frames)
        if columns.has("graph_id") or hlo is not None:
            owners = with_annotations(owners, columns, rules, launches, attribution, classes, hlo)
        if owners is not None:
            yield "kernel_modules", owners
        del frames, owners
        if hlo is not None:
            work = hlo_work(columns, launches, hlo, self.device_names)
        else:
            work = op_work(columns, rules, nesting, launches, attribution, classes, self.device_names)
        if work is not None:
            yield "op_work", work
        communicates = [
            bool((classes.kind[g] == KINDS.index("communication")).any())
            for g in columns.slices(launches.rows)
        ]
        del classes
        yield from self._host(columns, nesting, step_annotations, calls, launches, communicates)

    def _host(
        self,
        columns: Columns,
        nesting: Nesting,
        step_annotations: Sequence[StepAnnotations],
        calls: Calls,
        launches: Launches,
        communicates: Sequence[bool],
    ) -> Iterator[tuple[str, Rows]]:
        yield "annotations", annotation_table(columns)
        yield "syncs", syncs(columns, self.rules, calls)
        flow_rows = find_flows(columns, nesting)
        without_start = flow_rows.without_start
        yield "flows", flow_slabs(columns, flow_rows)
        del flow_rows
        allocations = find_allocations(columns, nesting)
        allocating = set(columns.rank_index(allocations[0]).tolist())
        yield "memory_events", allocation_slabs(columns, *allocations)
        del allocations
        values = counters(columns, self.rules)
        counting = columns.rank_index(values.column("event_id").to_numpy())
        yield "counters", values
        given = QualityInput(columns, self.rules, calls, launches, without_start, step_annotations)
        self.fired = fired_rules(given)
        ranks = zip(
            columns.parts,
            columns.bounds.tolist(),
            columns.slices(nesting.rows),
            columns.slices(launches.rows),
            step_annotations,
            strict=False,
        )
        facts = []
        for rank, (part, first, host, device, steps_) in enumerate(ranks):
            counted = values.filter(counting == rank) if len(values) else values
            has = {
                "memory_events": rank in allocating,
                "counters": len(counted) > 0,
                "gpu_metrics": samples_gpu(counted, self.rules),
                "collectives": communicates[rank],
            }
            own = launches.part(device)
            own = replace(own, rows=own.rows - np.int32(first))
            host_rows = nesting.rows[host] - np.int32(first)
            alone = activity_facts(part, self.rules, host_rows, own, steps_, has)
            found = [*self.limits[rank], *several_processes(self.fired[rank])]
            facts.append(alone | self.of_steps[rank] | ({"limits": found} if found else {}))
        self.facts = facts


def _as_declared(table: str, schema: pa.Schema, rows: pa.Table | Iterator[pa.Table]) -> Batches:
    """The rows with the declared columns: a single slab as a table, several as lazy batches."""
    if isinstance(rows, pa.Table):
        return _declared(table, schema, rows)
    first, second = next(rows, None), next(rows, None)
    if first is None:
        return schema.empty_table()
    if second is None:
        return _declared(table, schema, first)
    slabs = (_declared(table, schema, slab) for slab in chain((first, second), rows))
    return chain.from_iterable(slab.to_batches() for slab in slabs)


def _declared(table: str, schema: pa.Schema, rows: pa.Table) -> pa.Table:
    given = dict(zip(rows.schema.names, rows.itercolumns(), strict=True))
    nothing = pa.chunked_array([pa.nulls(rows.num_rows)])
    lacking = [each.name for each in schema if not each.nullable and each.name not in given]
    columns = [_typed(table, field, given.pop(field.name, nothing)) for field in schema]
    if given:
        raise TwError(f"{table} has no column {', '.join(given)}", "a format or builder is at fault")
    if lacking:
        raise TwError(f"{table} lacks {', '.join(lacking)}", "a format or builder is at fault")
    return pa.Table.from_arrays(columns, names=schema.names)


def _typed(table: str, field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in its declared type; texts may be dictionary-encoded, and a missing column is all null."""
    type_ = column.type
    if type_ == field.type or pa.types.is_dictionary(type_) and type_.value_type == field.type:
        return column
    if pa.types.is_null(type_):
        return column.cast(field.type)
    raise TwError(f"{table}: {field.name} is {type_}, not {field.type}", "a format or builder is at fault")
