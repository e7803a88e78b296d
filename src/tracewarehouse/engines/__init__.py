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
from tracewarehouse.engines.choice import NAMES, EngineOrName, advice, cores, engine, is_remote, opened
from tracewarehouse.engines.local import LocalEngine

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
