"""All stored tables of a rank, built in order of their dependencies; each is passed on once it is ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from msgspec import Struct, field

from tracewarehouse.duck.arrow import type_of
from tracewarehouse.errors import TwError
from tracewarehouse.formats.base import ACTIVITIES
from tracewarehouse.ingest.columns import Columns
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
from tracewarehouse.ingest.tables.kernels import classify, kernels
from tracewarehouse.ingest.tables.launches import (
    calls_by_name,
    correlations,
    find_calls,
    find_launches,
    runtime,
    syncs,
)
from tracewarehouse.ingest.tables.model import QualityInput
from tracewarehouse.ingest.tables.modules import find_modules, kernel_modules, module_table
from tracewarehouse.ingest.tables.nesting import nest
from tracewarehouse.ingest.tables.op_work import op_work
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
from tracewarehouse.ingest.tables.segments import device_segments
from tracewarehouse.ingest.tables.steps import find_step_annotations, put_steps, steps

if TYPE_CHECKING:
    from tracewarehouse.contracts.catalog import Catalog
    from tracewarehouse.contracts.contract import Contract
    from tracewarehouse.formats.base import Outcome
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Calls, Launches, Nesting, StepAnnotations

Batches: TypeAlias = "pa.Table | Iterable[pa.RecordBatch]"
Add = Callable[[str, "Batches"], object]
# Columns that every stored table has and that the writer adds.
KEYS = ("run_id", "rank")
_TIMELINE = "memory_timeline"
_QUALITY = "data_quality"


class Built(Struct, frozen=True):
    """What is known of a rank after its tables are built; `quality` maps rules to numbers of rows."""

    facts: dict[str, Any]
    coverage: Coverage
    quality: dict[str, int]


def stored_tables(catalog: Catalog) -> tuple[Contract, ...]:
    """The newest versions of the tables that an ingest stores, by name."""
    return tuple(table for table in catalog.tables() if table.definition and not table.transient)


def build(
    tables: Mapping[str, Columns | pa.Table],
    outcome: Outcome,
    rules: Rules,
    add: Add,
    step_range: str | None = None,
) -> Built:
    """Passes every stored table to `add` by name, empty ones too, without the columns `run_id` and `rank`.

    `tables` are those of the source; tables that a format provides itself are stored unchanged. Batches may
    be consumed in another thread while the next table is built. `step_range` is the pattern of annotations
    that mark steps. Raises TwError if tables or columns differ from the contracts.
    """
    missing = dict(_schemas(rules))
    device = outcome.facts.get("device_name") or header_facts(header_of(outcome.header_json))["device_name"]
    builders = _Builders(tables, rules, step_range, None if device is None else str(device))
    additions = {}
    for name, rows in tables.items():
        if not isinstance(rows, pa.Table):
            continue
        if name not in missing:
            raise TwError(f"{name} is not a stored table", "the format is at fault")
        add(name, _declared(name, missing.pop(name), rows))
        if name in ADDED_TABLES:
            additions[name] = rows
    for name, rows in builders.from_activities():
        if name in missing:
            add(name, _as_declared(name, missing.pop(name), rows))
    quality = data_quality(builders.fired, builders.columns, outcome, rules)
    add(_QUALITY, _declared(_QUALITY, missing.pop(_QUALITY), quality))
    for name, schema in missing.items():
        add(name, schema.empty_table())
    facts = rank_facts(builders.facts, builders.timeline, outcome.base_time_ns, additions)
    counts = dict(zip(quality.column("rule").to_pylist(), quality.column("rows").to_pylist(), strict=True))
    return Built(facts, builders.coverage, counts)


class _Builders(Struct):
    """The builders in order; intermediate results are freed as soon as the next table is requested."""

    tables: Mapping[str, Columns | pa.Table]
    rules: Rules
    step_range: str | None = None
    device_name: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)
    fired: list[FiredRule] = field(default_factory=list)

    @property
    def columns(self) -> Columns | None:
        """The activities, if the source has any."""
        found = self.tables.get(ACTIVITIES)
        return found if isinstance(found, Columns) else None

    @property
    def timeline(self) -> pa.Table | None:
        """The memory timeline, if the source has one."""
        found = self.tables.get(_TIMELINE)
        return found if isinstance(found, pa.Table) else None

    def from_activities(self) -> Iterator[tuple[str, pa.Table | Iterator[pa.Table]]]:
        """The tables that are built from the activities."""
        if self.columns is None:
            self.fired = [] if self.timeline is None else list(timeline_rules(self.timeline))
            return
        columns, rules = self.columns, self.rules
        nesting = nest(columns, rules)
        calls = find_calls(columns, rules, nesting)
        launches = find_launches(columns, rules, nesting, calls)
        step_annotations = find_step_annotations(columns, rules, self.step_range)
        put_steps(columns, rules, step_annotations, launches)
        # The largest table first: it is written while the others are built.
        yield "events", events(columns)
        attribution = attribute_calls(columns, nesting, calls, launches)
        self.coverage = coverage(columns, launches, attribution)
        classes = classify(columns, rules, launches.rows)
        yield "kernels", kernels(columns, launches, attribution, classes)
        by_name = calls_by_name(columns, rules, calls)
        yield "runtime", runtime(columns, calls, launches, attribution, by_name)
        yield "correlations", correlations(calls, launches)
        step_rows = steps(columns, step_annotations, launches)
        yield "steps", step_rows
        yield "device_segments", device_segments(columns, calls, launches, classes, by_name[1], step_rows)
        if (frames := find_modules(columns, nesting)) is not None:
            rows = kernel_modules(columns, rules, nesting, calls, launches, attribution, frames)
            yield "modules", module_table(columns, frames)
            yield "kernel_modules", rows
            del frames, rows
        if (work := op_work(columns, rules, nesting, launches, attribution, self.device_name)) is not None:
            yield "op_work", work
        yield from self._host(columns, nesting, step_annotations, calls, launches)

    def _host(
        self,
        columns: Columns,
        nesting: Nesting,
        step_annotations: StepAnnotations,
        calls: Calls,
        launches: Launches,
    ) -> Iterator[tuple[str, pa.Table | Iterator[pa.Table]]]:
        yield "annotations", annotation_table(columns)
        yield "syncs", syncs(columns, calls)
        flow_rows = find_flows(columns, nesting)
        without_start = flow_rows.without_start
        yield "flows", flow_slabs(columns, flow_rows)
        del flow_rows
        allocations = find_allocations(columns, nesting)
        has = {"memory_events": len(allocations[0]) > 0}
        yield "memory_events", allocation_slabs(columns, *allocations)
        del allocations
        values = counters(columns, self.rules)
        has |= {"counters": values.num_rows > 0, "gpu_metrics": samples_gpu(values, self.rules)}
        yield "counters", values
        del values
        given = QualityInput(columns, self.rules, calls, launches, without_start, step_annotations)
        self.fired = list(fired_rules(given))
        self.facts = activity_facts(columns, self.rules, nesting, launches, step_annotations, has)


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


@cache
def _schemas(rules: Rules) -> dict[str, pa.Schema]:
    """Stored table → its columns without `KEYS`, nullable as declared."""
    return {
        contract.name: pa.schema(
            [pa.field(c.name, type_of(c.type), c.null) for c in contract.columns if c.name not in KEYS]
        )
        for contract in stored_tables(rules.catalog)
    }
