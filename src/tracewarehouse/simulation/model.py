"""The model of a job: its kernels and collectives, and the variants of its steps."""

from __future__ import annotations

from dataclasses import dataclass

from tracewarehouse.simulation.job import Job
from tracewarehouse.simulation.kernels import ELEMENT_BYTES, Kernels
from tracewarehouse.simulation.parts import (
    DATA,
    TENSOR,
    Collective,
)

VOCABULARY = 32_000


@dataclass(frozen=True)
class Variant:
    """Which stage, and what is planted in this step."""

    stage: int
    removed: frozenset[str] = frozenset()
    extra_ns: int = 0
    item: bool = False
    overlap: bool = True
    leak_bytes: int = 0


class Model:
    """The tapes of a job, one per variant of a step."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.kernels = Kernels(job)
        self.tokens = job.batch * (job.sequence if job.mode == "training" else 1)
        self.first, self.last = 0, job.pipeline - 1
        self._collectives: dict[tuple[str, str, int, int], Collective] = {}

    def collective(self, name: str, scope: str, elements: int, edge: int = 0) -> Collective:
        """A collective over groups of a kind; elements are those of the whole message."""
        key = (name, scope, elements, edge)
        if key not in self._collectives:
            size = {TENSOR: self.job.tensor, DATA: self.job.data}.get(scope, 2)
            given = elements // size if name == "all_gather" else elements
            got = elements // size if name == "reduce_scatter" else elements
            self._collectives[key] = Collective(
                name, scope, self.kernels.collective(name), elements * ELEMENT_BYTES, given, got, name, edge
            )
        return self._collectives[key]
