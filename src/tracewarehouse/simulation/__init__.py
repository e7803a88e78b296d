"""A simulated distributed job: traces as PyTorch writes them, and the right answers about them.

The scheduler that makes the traces keeps the books, so an analysis can be compared with what really happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracewarehouse.simulation.job import DIALECTS, GPUS, KINDS, MODES, Injection, Job, Noise

if TYPE_CHECKING:
    from tracewarehouse.simulation.write import Simulated, simulate

__all__ = ["DIALECTS", "GPUS", "KINDS", "MODES", "Injection", "Job", "Noise", "Simulated", "simulate"]


def __getattr__(name: str) -> object:
    """What writes a job is loaded on first use: help texts need its knobs only."""
    if name not in ("Simulated", "simulate"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tracewarehouse.simulation import write

    return getattr(write, name)
