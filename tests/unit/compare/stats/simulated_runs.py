"""Runs with the noise of the simulator, without traces: the times of their steps and rows."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from tracewarehouse.simulation import Noise
from tracewarehouse.simulation.job import Job
from tracewarehouse.simulation.kernels import ONE, TABLE
from tracewarehouse.simulation.kernels import Noise as Factors

Floats = npt.NDArray[np.float64]

STEP_NS = 100_000_000
STEPS = 21
ROWS = 200
HEAVY = Noise(run=0.01, step=0.01, kernel=0.02, outliers=0.1)
ALIKE = Noise(run=0.0, step=0.01, kernel=0.02, outliers=0.1)  # runs that differ by their steps only


@cache
def shares() -> Floats:
    """The share of the step of each row: 6 % for the largest, below 0.1 % for the smallest."""
    sizes = np.exp(np.random.default_rng(1).standard_normal(ROWS))
    return np.asarray(sizes / sizes.sum())


def factors(seed: int, noise: Noise, steps: int = STEPS) -> Factors:
    """The factors of one run."""
    return Factors(Job(seed=seed, steps=steps, noise=noise))


def step_times(run: Factors) -> tuple[int, ...]:
    """The times of a run's steps in ns."""
    return tuple(round(STEP_NS * run.step(step)) for step in range(run.job.steps))


def row_times(run: Factors) -> Floats:
    """The times of a run's rows in ns, rows by steps: one kernel per row and step, with its own factor."""
    steps = np.arange(run.job.steps)
    turns = np.asarray(run.table)[(steps[None, :] * ROWS + np.arange(ROWS)[:, None]) % TABLE] / ONE
    factor = np.array([run.step(int(step)) for step in steps])
    return np.asarray(STEP_NS * shares()[:, None] * turns * factor[None, :])
