"""Hand-written and random activities, and the tables that the builders produce from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pytest import MonkeyPatch

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.duck.arrow import schema_of
from tracewarehouse.ingest.columns import Columns, SpilledColumns
from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.tables import (
    attribution,
    events,
    kernels,
    launches,
    nesting,
    recording,
    segments,
    steps,
)
from tracewarehouse.ingest.tables import build as tables_module
from tracewarehouse.ingest.tables import model as rows_module
from tracewarehouse.ingest.tables.model import Attribution, Calls, Launches, Nesting, schemas

Row = Mapping[str, Any]
SCHEMA = schema_of(Catalog.load().get("activities", kind="table"))
ENCODED = ("ph", "category", "raw_category", "name", "pid", "tid", "shapes", "dtypes")


@dataclass(frozen=True)
class Built:
    """The results of the builders for one rank."""

    nesting: Nesting
    calls: Calls
    launches: Launches
    owners: Attribution
    tables: Mapping[str, pa.Table]

    def rows(self, table: str, *names: str) -> list[Any]:
        """The rows of a table, or some columns of them: as values if it is a single column."""
        found = self.tables[table].to_pylist()
        if not names:
            return found
        return [row[names[0]] if len(names) == 1 else tuple(row[name] for name in names) for row in found]


def slice_(
    name: str | None,
    ts: int,
    dur: int | None,
    category: str | None = "cpu_op",
    tid: str | None = "1",
    **more: Any,
) -> dict[str, Any]:
    """A slice of a host thread."""
    row = {"ph": "X", "category": category, "raw_category": category, "name": name, "pid": "1", "tid": tid}
    return row | {"ts_ns": ts, "dur_ns": dur} | more


def call(name: str | None, ts: int, dur: int, correlation: int | None = None, **more: Any) -> dict[str, Any]:
    """A call of the CUDA runtime."""
    return slice_(name, ts, dur, "cuda_runtime", correlation=correlation) | more


def gpu(name: str | None, ts: int, dur: int, correlation: int | None = None, **more: Any) -> dict[str, Any]:
    """A GPU activity of device 0, stream 7."""
    place = {"pid": "0", "tid": "7", "device": 0, "stream": 7}
    return slice_(name, ts, dur, "kernel", correlation=correlation) | place | more


def step(number: int, ts: int, dur: int, **more: Any) -> dict[str, Any]:
    """The annotation of a profiler step."""
    return slice_(f"ProfilerStep#{number}", ts, dur, "user_annotation") | more


def table_of(rows: Iterable[Row]) -> pa.Table:
    """Activities as Arrow, repetitive texts dictionary-encoded."""
    filled = [{"has_collective": False, "repaired": False} | dict(row) for row in rows]
    names = [name for name in SCHEMA.names if name not in ("run_id", "rank", "event_id")]
    columns = {name: pa.array([row.get(name) for row in filled], SCHEMA.field(name).type) for name in names}
    return pa.table({n: c.dictionary_encode() if n in ENCODED else c for n, c in columns.items()})


def columns_of(rows: Iterable[Row], spill: Path | None = None) -> Columns:
    """The columns of activities, in memory or in a file in the folder."""
    reader = table_of(rows).to_reader(max_chunksize=100)
    return Columns.read(reader) if spill is None else SpilledColumns.spill(reader, spill)


def in_small_parts(monkeypatch: MonkeyPatch, slices: int, rows: int) -> None:
    """Makes builders process a few host slices and rows at a time, as in a large rank."""
    monkeypatch.setattr(nesting, "INTERVAL_SLICES", slices)
    monkeypatch.setattr(nesting, "_LOOK_AHEAD", 2)
    monkeypatch.setattr(events, "_PART_ENDS", rows)
    monkeypatch.setattr(events, "_ID_SLAB_ROWS", rows)
    monkeypatch.setattr(rows_module, "SLAB_ROWS", rows)


def build(rows: Iterable[Row], spill: Path | None = None) -> Built:
    """All tables of the builders."""
    columns = columns_of(rows, spill)
    built = build_tables(columns)
    if isinstance(columns, SpilledColumns):
        columns.close()
    return built


def build_tables(columns: Columns) -> Built:
    """All tables that the builders make from these columns."""
    rules = rules_of()
    nest = nesting.nest(columns, rules)
    calls = launches.find_calls(columns, rules, nest)
    launched = launches.find_launches(columns, rules, nest, calls)
    annotations = steps.find_step_annotations(columns, rules)
    steps.put_steps(columns, rules, annotations, launched)
    launched = recording.clipped(columns, launched, annotations)
    owned = attribution.attribute_calls(columns, nest, calls, launched)
    by_name = launches.calls_by_name(columns, rules, calls)
    classes = kernels.classify(columns, rules, launched, owned)
    idle = kernels.stream_idle(columns, launched)
    unrecorded = recording.find_unrecorded(columns, calls, launched, by_name[0])
    (step_rows,) = steps.steps(columns, annotations, launched, unrecorded)
    tables = {
        "events": pa.concat_tables(events.events(columns, slab_rows=64)),
        "steps": step_rows,
        "kernels": pa.concat_tables(kernels.kernels(columns, launched, owned, classes, idle)),
        "runtime": launches.runtime(columns, calls, launched, owned, by_name),
        "device_segments": segments.device_segments(
            columns, calls, launched, classes, by_name[1], idle, step_rows
        ),
        "correlations": launches.correlations(calls, launched),
        "annotations": events.annotation_table(columns),
        "syncs": launches.syncs(columns, rules, calls),
    }
    declared = {
        name: tables_module._declared(name, schemas(rules)[name], rows) for name, rows in tables.items()
    }
    return Built(nest, calls, launched, owned, declared)


HOST_NAMES = (
    "aten::mm",
    "aten::linear",
    "nn.Module: Linear_0",
    "Optimizer.step#SGD.step",
    "enumerate(DataLoader)#_Iter",
    "autograd::engine::evaluate_function: MmBackward0",
    "autograd::engine::evaluate_function: CheckpointFunctionBackward",
    "torch.distributed.ddp.reducer::copy_bucket_to_grad",
    "torch/utils/checkpoint.py(1): recompute_fn",
    "plain",
    None,
    "ProfilerStep#x",
)
HOST_CATEGORIES = ("cpu_op", "cpu_op", "cpu_op", "python_function", "user_annotation", "overhead", None)
CALLS = (
    "cudaLaunchKernel",
    "cudaGraphLaunch",
    "cudaMemcpyAsync",
    "cudaStreamSynchronize",
    "frobnicate",
    None,
)
IDS = (0, -1, 2**32 - 1, 2**63 - 1, None, -7, 1, 2, 3)
SENTINELS = (0, -1, 2**32 - 1, 2**63 - 1)


def random_rows(seed: int) -> list[dict[str, Any]]:
    """Activities on a coarse grid, so that many coincide, cross, repeat, share ids or have no duration."""
    luck = Random(seed)
    origin = luck.choice((0, 0, 1_712_195_495_521_311_104, -(2**62)))
    maker = _Maker(luck, origin, luck.choice((6, 40, 400)))
    rows = [maker.row() for _ in range(luck.choice((0, 3, 30, 60, 120, 120, 400)))]
    rows += [maker.step(number) for number in range(luck.choice((0, 0, 1, 4, 9)))]
    luck.shuffle(rows)
    return rows


class _Maker:
    def __init__(self, luck: Random, origin: int, span: int) -> None:
        self.luck, self.origin, self.span = luck, origin, span
        self.ids = (*IDS, *range(10, 10 + luck.choice((1, 5, 60))))
        self.longest = luck.choice((2, span // 3 + 1, span))

    def row(self) -> dict[str, Any]:
        kinds = (
            self.host,
            self.host,
            self.host,
            self.call,
            self.call,
            self.gpu,
            self.gpu,
            self.flow,
            self.other,
        )
        return self.luck.choice(kinds)()

    def time(self) -> int:
        return self.origin + self.luck.randrange(self.span)

    def place(self) -> dict[str, Any]:
        return {
            "pid": self.luck.choice(("1", "1", "1", "", None)),
            "tid": self.luck.choice(("1", "1", "2", None)),
        }

    def length(self) -> int | None:
        return self.luck.randrange(self.longest) if self.luck.random() < 0.97 else None

    def host(self) -> dict[str, Any]:
        category, name = self.luck.choice(HOST_CATEGORIES), self.luck.choice(HOST_NAMES)
        said = self.luck.random() < 0.2
        more: dict[str, Any] = {"has_collective": said, "collective": "allreduce" if said else None}
        more |= {"shapes": self.luck.choice((None, "[[1]]")), "dtypes": self.luck.choice((None, '["float"]'))}
        ph = self.luck.choice(("X",) * 12 + ("B", "i"))
        return slice_(name, self.time(), self.length(), category, ph=ph, **more) | self.place()

    def call(self) -> dict[str, Any]:
        name, category = self.luck.choice(CALLS), self.luck.choice(("cuda_runtime", "cuda_driver"))
        row = slice_(name, self.time(), self.length(), category, correlation=self.luck.choice(self.ids))
        return row | self.place()

    def gpu(self) -> dict[str, Any]:
        row = gpu(
            self.luck.choice(("gemm", "ncclDevKernel_AllReduce", "relu", None)),
            self.time(),
            0,
            self.luck.choice(self.ids),
            dur_ns=self.length(),
            category=self.luck.choice(("kernel", "kernel", "gpu_memcpy", "gpu_memset")),
            has_collective=self.luck.random() < 0.1,
        )
        return row | {
            "device": self.luck.choice((0, 0, 1, None)),
            "stream": self.luck.choice((7, 7, 9, None)),
        }

    def flow(self) -> dict[str, Any]:
        flow = {"flow_id": self.luck.choice(("1", "2", None)), "dur_ns": None}
        if self.luck.random() < 0.5:
            row = gpu("ac2g", self.time(), 0, None, ph="f", category="ac2g", raw_category="ac2g", stream=None)
            return row | flow
        place = self.place()
        return slice_("ac2g", self.time(), 0, "ac2g", ph="s") | place | flow

    def other(self) -> dict[str, Any]:
        category = self.luck.choice(("cuda_sync", "gpu_user_annotation", "cuda_event", "Trace", "ac2g"))
        row = slice_("other", self.time(), self.length(), category, correlation=self.luck.choice(self.ids))
        return (
            row
            | {"ph": self.luck.choice(("X", "X", "C", "M")), "ts_ns": self.luck.choice((row["ts_ns"], None))}
            | ({"dur_ns": None} if self.luck.random() < 0.1 else {})
        )

    def step(self, number: int) -> dict[str, Any]:
        text = self.luck.choice((str(number), str(number % 2), "9" * 30))
        return slice_(
            f"ProfilerStep#{text}",
            self.time(),
            self.length(),
            self.luck.choice(("user_annotation", "cpu_op")),
        )


def memory_events(columns: Columns, nesting: Nesting) -> pa.Table:
    """The whole table `memory_events`."""
    slabs = events.allocation_slabs(columns, *events.find_allocations(columns, nesting))
    return pa.concat_tables(slabs, promote_options="permissive")


def flows(columns: Columns, nesting: Nesting) -> pa.Table:
    """The whole table `flows`."""
    slabs = events.flow_slabs(columns, events.find_flows(columns, nesting))
    return pa.concat_tables(slabs, promote_options="permissive")
