"""Simulated distributed jobs: traces in PyTorch's format, and the expected results of analyses.

The scheduler that creates the traces also computes the results, independently of SQL and of the trace files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracewarehouse.simulation.job import DIALECTS, GPUS, KINDS, MODES, Injection, Job, Noise

if TYPE_CHECKING:
    from tracewarehouse.simulation.write import Simulated, simulate

__all__ = ["DIALECTS", "GPUS", "KINDS", "MODES", "Injection", "Job", "Noise", "Simulated", "simulate"]


def __getattr__(name: str) -> object:
    """Loads the writer on first use: help texts need only the settings of a job."""
    if name not in ("Simulated", "simulate"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tracewarehouse.simulation import write

    return getattr(write, name)
