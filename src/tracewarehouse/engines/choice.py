"""Which engine runs the tasks of a call, and when another one would pay."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

from tracewarehouse import hints
from tracewarehouse.engines.base import Engine
from tracewarehouse.engines.local import LocalEngine
from tracewarehouse.errors import UnknownName

# An engine, which stays open, or the name of one that is made for the call.
EngineOrName: TypeAlias = Engine | str
NAMES: Final = ("local", "ray")
# Below this number of events, sending tasks to other machines takes longer than the work: 10 million events
# are about 3 GB of JSON, some minutes of one core.
FEW_EVENTS: Final = 10_000_000
# Above it, one machine with 8 cores ingests for more than 5 minutes.
MANY_EVENTS: Final = 100_000_000


def engine(name: str = "local", *, address: str | None = None, jobs: int | None = None) -> Engine:
    """An engine for the `engine` argument of `ingest`, `record`, `derive` and `run`; close it after use.

    `local` runs tasks in processes of this machine, `ray` on a Ray cluster (extra `ray`): the one at
    `address` (`auto`, HOST:PORT), that of RAY_ADDRESS, or a new one on this machine. `jobs`: maximum number
    of tasks at a time. Raises UnknownName, MissingExtra.
    """
    if name == "ray":
        from tracewarehouse.engines.ray import RayEngine

        return RayEngine(address, jobs)
    if name != "local":
        raise UnknownName("engine", name, NAMES)
    return LocalEngine(jobs or cores())


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def opened(chosen: EngineOrName, jobs: int | None = None) -> Iterator[Engine]:
    """The engine of a call: one that the caller made, which stays open, or a new one by name."""
    if not isinstance(chosen, str):
        yield chosen
        return
    made = engine(chosen, jobs=jobs)
    try:
        yield made
    finally:
        made.close()


def is_remote(chosen: EngineOrName | None) -> bool:
    """Whether tasks may run on other machines."""
    return chosen is not None and (chosen if isinstance(chosen, str) else chosen.name) != "local"


def advice(chosen: EngineOrName | None, events: int) -> str | None:
    """A notice if the other engine suits this number of events better."""
    if is_remote(chosen) and events < FEW_EVENTS:
        text = "{} events are few: below {} million, {} is faster"
        return hints.fill(text, f"{events:,}", FEW_EVENTS // 1_000_000, hints.option("engine", "local"))
    if not is_remote(chosen) and events >= MANY_EVENTS:
        text = "{} events are many: {} spreads them over machines"
        return hints.fill(text, f"{events:,}", hints.option("engine", "ray"))
    return None
