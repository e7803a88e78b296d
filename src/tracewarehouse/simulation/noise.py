"""Factors of time of the run, each step and each kernel; seeded by place, so that order does not matter."""

from __future__ import annotations

import math
from random import Random

from tracewarehouse.simulation.job import Job

ONE = 1 << 20  # factors are whole numbers of this part, so that times stay whole
TABLE = 997  # factors of kernels are drawn once and used in turn


class Noise:
    """The factors of one run."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.run = math.exp(job.noise.run * Random(f"{job.seed}/run").gauss(0, 1))
        draw = Random(f"{job.seed}/kernel")
        self.table = [_whole(math.exp(job.noise.kernel * draw.gauss(0, 1))) for _ in range(TABLE)]
        self._steps = [self._step(step) for step in range(job.steps)]

    def step(self, step: int) -> float:
        """The factor of a step: of the run and its own."""
        return self._steps[step]

    def _step(self, step: int) -> float:
        draw = Random(f"{self.job.seed}/step/{step}")
        spread = _student(draw) if draw.random() < self.job.noise.outliers else draw.gauss(0, 1)
        return self.run * math.exp(self.job.noise.step * spread)


def _student(draw: Random) -> float:
    """A value of Student's t with three degrees of freedom: now and then far out."""
    return draw.gauss(0, 1) / math.sqrt(sum(draw.gauss(0, 1) ** 2 for _ in range(3)) / 3)


def _whole(factor: float) -> int:
    return round(factor * ONE)


def scaled(factor: float) -> int:
    """A factor as a whole number of parts of ONE."""
    return _whole(factor)
