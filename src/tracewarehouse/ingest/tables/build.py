"""All stored tables of a rank, in the order in which each can be made, each handed over once it is ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from tracewarehouse.duck.arrow import schema_of
from tracewarehouse.errors import TwError
from tracewarehouse.formats.base import ACTIVITIES
from tracewarehouse.ingest.columns import Columns
from tracewarehouse.ingest.tables.annotations import annotation_table
from tracewarehouse.ingest.tables.counters import counters
from tracewarehouse.ingest.tables.event_rules import Fired, fired, fired_on_timeline
from tracewarehouse.ingest.tables.events import events
from tracewarehouse.ingest.tables.evidence import Evidence
from tracewarehouse.ingest.tables.facts import Coverage, Held, coverage, of_activities, of_rank
from tracewarehouse.ingest.tables.flows import find_arrows, flow_slabs
from tracewarehouse.ingest.tables.kernels import kernels
from tracewarehouse.ingest.tables.launches import find_calls, find_launches
from tracewarehouse.ingest.tables.memory import allocation_slabs, find_allocations
from tracewarehouse.ingest.tables.nesting import nest
from tracewarehouse.ingest.tables.owners import find_owners
from tracewarehouse.ingest.tables.quality import data_quality
from tracewarehouse.ingest.tables.runtime import correlations, runtime
from tracewarehouse.ingest.tables.steps import find_marks, find_spans, put_steps, steps
from tracewarehouse.ingest.tables.syncs import syncs

if TYPE_CHECKING:
    from tracewarehouse.contracts.catalog import Catalog
    from tracewarehouse.contracts.contract import Contract
    from tracewarehouse.formats.base import Outcome
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Calls, Launches, Nesting, Owners, StepMarks

Batches: TypeAlias = "pa.Table | Iterable[pa.RecordBatch]"
Add = Callable[[str, "Batches"], object]
# Columns that every stored table has and no builder makes: the writer adds them.
KEYS = ("run_id", "rank")
_TIMELINE = "memory_timeline"
_QUALITY = "data_quality"


@dataclass(frozen=True)
class Built:
    """What is known of a rank when all its tables are handed over; `quality` is rule → rows."""

    facts: dict[str, Any]
    coverage: Coverage
    quality: dict[str, int]


def stored_tables(catalog: Catalog) -> tuple[Contract, ...]:
    """The tables that an ingest stores, newest versions, by name."""
    return tuple(table for table in catalog.tables() if table.definition and not table.transient)


def build(
    tables: Mapping[str, Columns | pa.Table],
    outcome: Outcome,
    rules: Rules,
    add: Add,
    step_range: str | None = None,
) -> Built:
    """Hands every stored table to `add`, empty ones too, by name, without the columns `run_id` and `rank`.

    `tables` are those of the source, read; what a format fills itself stands as it gives it. Batches that are
    handed over may be consumed in another thread while the next table is built. `step_range` is the pattern
    of annotations that mark steps. Raises TwError where tables or columns are not those of the contracts.
    """
    missing = dict(_schemas(rules))
    work = _Work(tables, rules, step_range)
    for name, rows in work.given():
        if name not in missing:
            raise TwError(f"{name} is not a stored table", "the format is at fault")
        add(name, _as_declared(name, missing.pop(name), rows))
    for name, rows in work.built():
        if name in missing:
            add(name, _as_declared(name, missing.pop(name), rows))
    quality = data_quality(work.fired, work.columns, outcome, rules)
    add(_QUALITY, _declared(_QUALITY, missing.pop(_QUALITY), quality))
    for name, schema in missing.items():
        add(name, schema.empty_table())
    facts = of_rank(work.told, work.timeline, outcome.base_time_ns)
    counts = dict(zip(quality.column("rule").to_pylist(), quality.column("rows").to_pylist(), strict=True))
    return Built(facts, work.coverage, counts)


@dataclass
class _Work:
    """The order of the builders; what is no longer needed goes as soon as the table after it is asked for."""

    tables: Mapping[str, Columns | pa.Table]
    rules: Rules
    step_range: str | None = None
    told: dict[str, Any] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)
    fired: list[Fired] = field(default_factory=list)

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

    def given(self) -> Iterator[tuple[str, pa.Table]]:
        """What the format filled itself."""
        for name, rows in self.tables.items():
            if isinstance(rows, pa.Table):
                yield name, rows

    def built(self) -> Iterator[tuple[str, pa.Table | Iterator[pa.Table]]]:
        """What is built from the activities."""
        if self.columns is None:
            self.fired = [] if self.timeline is None else list(fired_on_timeline(self.timeline))
            return
        columns, rules = self.columns, self.rules
        nesting = nest(columns, rules)
        calls = find_calls(columns, rules, nesting)
        launches = find_launches(columns, rules, nesting, calls)
        marks = find_marks(columns, rules, self.step_range)
        put_steps(columns, rules, find_spans(marks), launches)
        # The largest table first: it is written while the others are built.
        yield "events", events(columns)
        owners = find_owners(columns, nesting, calls, launches)
        self.coverage = coverage(columns, launches, owners)
        yield from self._device(columns, marks, calls, launches, owners)
        yield from self._host(columns, nesting, marks, calls, launches)

    def _device(
        self, columns: Columns, marks: StepMarks, calls: Calls, launches: Launches, owners: Owners
    ) -> Iterator[tuple[str, pa.Table | Iterator[pa.Table]]]:
        yield "kernels", kernels(columns, self.rules, launches, owners)
        yield "runtime", runtime(columns, self.rules, calls, launches, owners)
        yield "correlations", correlations(calls, launches)
        yield "steps", steps(columns, marks, launches)

    def _host(
        self, columns: Columns, nesting: Nesting, marks: StepMarks, calls: Calls, launches: Launches
    ) -> Iterator[tuple[str, pa.Table | Iterator[pa.Table]]]:
        yield "annotations", annotation_table(columns)
        yield "syncs", syncs(columns, calls)
        arrows = find_arrows(columns, nesting)
        lost = arrows.without_start
        yield "flows", flow_slabs(columns, arrows)
        del arrows
        allocations = find_allocations(columns, nesting)
        allocated = len(allocations[0]) > 0
        yield "memory_events", allocation_slabs(columns, *allocations)
        del allocations
        values = counters(columns, self.rules)
        counted = values.num_rows > 0
        yield "counters", values
        del values
        self.fired = list(fired(Evidence(columns, self.rules, nesting, calls, launches, lost, marks)))
        held = Held(nesting, launches, marks, counted, allocated)
        self.told = of_activities(columns, held, self.rules)


def _as_declared(table: str, schema: pa.Schema, rows: pa.Table | Iterator[pa.Table]) -> Batches:
    """The rows with the declared columns; a single slab as a table, several as batches still to be made."""
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
    columns = [_typed(table, field, given.pop(field.name, nothing)) for field in schema]
    if given:
        raise TwError(f"{table} has no column {', '.join(given)}", "a format or builder is at fault")
    return pa.Table.from_arrays(columns, names=schema.names)


def _typed(table: str, field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as declared; texts may be dictionary-encoded, a column that nobody gave has no type yet."""
    type_ = column.type
    if type_ == field.type or pa.types.is_dictionary(type_) and type_.value_type == field.type:
        return column
    if pa.types.is_null(type_):
        return column.cast(field.type)
    raise TwError(f"{table}: {field.name} is {type_}, not {field.type}", "a format or builder is at fault")


@cache
def _schemas(rules: Rules) -> dict[str, pa.Schema]:
    """Stored table → the columns that a builder makes."""
    return {
        contract.name: pa.schema(
            [pa.field(each.name, each.type) for each in schema_of(contract) if each.name not in KEYS]
        )
        for contract in stored_tables(rules.catalog)
    }
