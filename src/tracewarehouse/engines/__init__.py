"""Engines run tasks in other processes: on this machine, later also on a cluster."""

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
from tracewarehouse.engines.local import LocalEngine

__all__ = [
    "Engine",
    "Failure",
    "LocalEngine",
    "OnProgress",
    "Task",
    "TaskProgress",
    "WorkerDied",
    "attempt",
    "results_in_order",
]
