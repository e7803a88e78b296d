"""A simulated run stored as the tables that attribution reads, without its traces: many ranks in little time.

What the simulator schedules goes into `kernels`, `steps` and the annotations of `events`, and the header of
each rank into `ranks`; everything else stays empty. A test of the study of causes compares the attribution
with that of ingested traces.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

import tracewarehouse as tw
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.duck.arrow import type_of
from tracewarehouse.ingest.naming import header_facts
from tracewarehouse.ingest.parquet import RankFiles
from tracewarehouse.location import location
from tracewarehouse.simulation.capture import MOST_LISTED, Text, file_name, head, tail
from tracewarehouse.simulation.job import Collective, Frame, Injection, Job, Kernel
from tracewarehouse.simulation.kernels import Group
from tracewarehouse.simulation.write import JobState, RankSimulator, resolve_collectives
from tracewarehouse.storage.model import Changes, Staged
from tracewarehouse.storage.store import Store

Columns = dict[str, list[Any]]


class ScheduleRecorder:
    """Records the GPU activities, annotations and steps of a rank, in place of the simulated profiler."""

    def __init__(self, job: Job, rank: int) -> None:
        self.text = Text(job, rank)
        self.kernels: list[tuple[Any, ...]] = []
        self.annotations: list[tuple[str, int, int]] = []
        self.steps: list[tuple[int, int, int, int, int]] = []
        self.open: list[tuple[Frame, int]] = []
        self.step = self.step_ns = self.last_ns = self.number = 0

    def __getattr__(self, name: str) -> Any:
        """Everything else that the host does is not recorded."""
        if name in ("call", "sync", "memory", "thread"):
            return lambda *_: 0
        raise AttributeError(name)

    def begin_step(self, number: int, at_ns: int) -> None:
        """Begins a profiler step."""
        self.step, self.step_ns, self.last_ns = number, at_ns, 0

    def end_step(self, at_ns: int) -> None:
        """Ends it; its period lasts until the end of its last GPU activity."""
        begins = self.steps[-1][-1] if self.steps else self.step_ns
        ends = max(begins, self.step_ns, self.last_ns or at_ns)
        self.steps.append((self.step, self.step_ns, at_ns, begins, ends))

    def begin(self, frame: Frame, at_ns: int) -> None:
        """Begins a host slice."""
        self.open.append((frame, at_ns))

    def end(self, at_ns: int) -> None:
        """Ends the innermost one."""
        frame, began = self.open.pop()
        if frame.category == "user_annotation":
            self.annotations.append((frame.name, began, at_ns))

    def collective(self, _operand: Collective, _group: Group, number: int, *_: Any) -> None:
        """The number of the next collective in its group."""
        self.number = number

    def launch(self, kernel: Kernel, stream: str, _start_ns: int, _end_ns: int, begins_ns: int, ends_ns: int,
               group: Group | None = None, collective: Collective | None = None) -> None:  # fmt: skip
        """A GPU activity."""
        self.last_ns = max(self.last_ns, ends_ns)
        message = (None,) * 8
        if collective is not None and group is not None:
            message = (collective.name, group.name, group.size, _listed(group), "BFloat16",
                       collective.in_elements, collective.out_elements, self.number)  # fmt: skip
        number = self.text.streams[stream]
        self.kernels.append((kernel.name, kernel.kind, number, begins_ns, ends_ns, self.step, *message))


def _listed(group: Group) -> str:
    """The ranks of a group as ingest stores them: a long list is cut."""
    ranks = ", ".join(map(str, group.ranks[:MOST_LISTED]))
    return f"[{ranks}{', ...' if group.size > MOST_LISTED else ''}]"


def store_scheduled(folder: Path, run: str, **settings: Any) -> tuple[tw.Warehouse, dict[int, str]]:
    """A warehouse with a simulated run, and rank → cause as the simulator knows them."""
    faults = tuple(map(Injection.parse, settings.pop("injections", ())))
    state = JobState(Job(**settings, injections=faults))
    resolve_collectives(state)
    store, catalog = Store.open_or_create(location(folder)), Catalog.load()
    with store.staging() as staging, RankFiles(catalog, staging, single=False) as files:
        facts = {}
        for rank in range(state.job.ranks):
            recorder = _recorded(state, rank)
            for table, rows in _tables(recorder, state.job.start_ns):
                files.add(run, (rank,), table, _whole(catalog.get(table, kind="table"), rows))
            facts[rank] = _facts(state, rank, len(recorder.steps))
            state.groups.forget(rank)
        tables = files.staged(run)
        contracts = catalog.stored_tables()
        staged = [_staged(run, rank, tables[rank], *facts[rank], contracts) for rank in facts]
        store.publish(run, Changes(sources=tuple(store.commit(staged))))
    return tw.open(folder), dict(state.faults.late_ranks())


def _recorded(state: JobState, rank: int) -> ScheduleRecorder:
    recorder = ScheduleRecorder(state.job, rank)
    for _ in RankSimulator(state, rank, recorder).run():  # type: ignore[arg-type]
        pass  # all collectives are resolved
    return recorder


def _tables(recorder: ScheduleRecorder, zero: int) -> Iterator[tuple[str, Columns]]:
    name, kind, stream, begins, ends, step, *message = map(list, zip(*recorder.kernels, strict=True))
    yield "kernels", {
        "event_id": list(range(len(name))),
        "activity": ["memcpy" if each == "memory" else "kernel" for each in kind],
        "name": name, "short_name": name, "kind": kind, "stream": stream, "step": step,
        "device": [recorder.text.device] * len(name),
        "ts_ns": [zero + at for at in begins],
        "dur_ns": [end - at for at, end in zip(begins, ends, strict=True)],
        "pass": ["other"] * len(name), "launch_state": ["known"] * len(name),
        **dict(zip(_MESSAGE, message, strict=True)),
    }  # fmt: skip
    number, host, host_end, begins, ends = map(list, zip(*recorder.steps, strict=True))
    yield "steps", {
        "step": number, "event_id": number, "partial": [False] * len(number),
        "host_start_ns": [zero + at for at in host],
        "host_ns": [end - at for at, end in zip(host, host_end, strict=True)],
        "period_start_ns": [zero + at for at in begins],
        "period_ns": [end - at for at, end in zip(begins, ends, strict=True)],
    }  # fmt: skip
    name, begins, ends = map(list, zip(*recorder.annotations, strict=True))
    places = list(range(1, len(name) + 1))
    yield "events", {
        "event_id": places, "pre": places, "post": places, "name": name, "ph": ["X"] * len(name),
        "category": ["user_annotation"] * len(name),
        "ts_ns": [zero + at for at in begins],
        "dur_ns": [end - at for at, end in zip(begins, ends, strict=True)],
    }  # fmt: skip


_MESSAGE = (
    "collective", "process_group", "group_size", "group_ranks", "dtype", "in_elements", "out_elements",
    "sequence",
)  # fmt: skip


def _whole(contract: Contract, rows: Columns) -> pa.Table:
    """The rows with all columns of a table; what is not given is null."""
    empty = _nulls(contract, len(rows["event_id"]))
    return pa.table(
        {name: pa.array(rows[name], no.type) if name in rows else no for name, no in empty.items()}
    )


@cache
def _nulls(contract: Contract, count: int) -> dict[str, pa.Array]:
    given = {column.name: type_of(column.type) for column in contract.columns}
    return {name: pa.nulls(count, type_) for name, type_ in given.items() if name not in ("run_id", "rank")}


def _facts(state: JobState, rank: int, steps: int) -> tuple[dict[str, Any], str]:
    """The facts and the header of a rank."""
    header = head(state.job, rank, state.groups.all_of(rank)) + tail(state.job, rank)
    facts = header_facts(json.loads(header))
    flags = dict.fromkeys(("gpu", "collectives", "collective_args"), True)
    return {**facts, **flags, "rank_in_file": rank, "steps": steps, "source_name": file_name(rank)}, header


def _staged(
    run: str, rank: int, tables: Any, facts: dict[str, Any], header: str, contracts: Sequence[Contract]
) -> Staged:
    stored = {contract.name: [contract.version] for contract in contracts}
    definitions = {contract.name: contract.definition or 0 for contract in contracts}
    key = f"{rank:016x}"
    return Staged(
        run, rank, key, key, 1, "kineto", 1, definitions, "intact", tables,
        facts={**facts, "tables": stored}, header=header,
    )  # fmt: skip
