"""Engines run tasks in other processes, on this machine or on a Ray cluster."""

from tracewarehouse.engines.base import (
    Engine,
    Failure,
    OnProgress,
    Task,
    TaskProgress,
    WorkerDied,
    attempt,
    results_in_order,
)
from tracewarehouse.engines.local import (
    NAMES,
    EngineOrName,
    LocalEngine,
    advice,
    cores,
    engine,
    is_remote,
    opened,
)

__all__ = [
    "NAMES",
    "Engine",
    "EngineOrName",
    "Failure",
    "LocalEngine",
    "OnProgress",
    "Task",
    "TaskProgress",
    "WorkerDied",
    "advice",
    "attempt",
    "cores",
    "engine",
    "is_remote",
    "opened",
    "results_in_order",
]
