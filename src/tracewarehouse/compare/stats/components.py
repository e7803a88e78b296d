"""Where the spread between step times comes from: runs, or steps of a run (nested variance components)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from tracewarehouse.compare.stats.earlier import robust_deviation

MIN_RUNS, MIN_STEPS = 3, 3
_MOST = 0.8  # share of the spread of a run's value from which advice is clear


@dataclass(frozen=True)
class Components:
    """Standard deviations, as ratios of the time, between runs and between steps of a run.

    `steps` is the harmonic mean of the numbers of steps of the runs.
    """

    run: float
    step: float
    steps: float

    @property
    def between_runs(self) -> float:
        """The share of the variance of a run's value that more steps do not reduce."""
        of_steps = self.step**2 / self.steps
        total = self.run**2 + of_steps
        return self.run**2 / total if total else 0.0

    @property
    def advice(self) -> str:
        """What reduces the spread."""
        share = f"{100 * self.between_runs:.0f} % of the spread of a run's value is between runs"
        if self.between_runs >= _MOST:
            return f"{share}: more runs help, more steps do not"
        if self.between_runs <= 1 - _MOST:
            return f"{share}: more steps help as much as more runs"
        return f"{share}: more runs help, more steps a little"


def components(sides: Sequence[Sequence[Sequence[float]]]) -> Components | None:
    """From the logs of step times by side and run, by the method of moments; None if there are too few.

    Sides may differ in their level. A negative estimate of the variance between runs is 0. Outliers among the
    steps count with the robust deviation of each run.
    """
    import numpy as np

    runs = [[np.asarray(run) for run in side if len(run) >= MIN_STEPS] for side in sides]
    usable = [side for side in runs if len(side) >= 2]
    count = sum(map(len, usable))
    if count < MIN_RUNS:
        return None
    within = fmean(robust_deviation(run) ** 2 for side in usable for run in side)
    steps = count / sum(1 / len(run) for side in usable for run in side)
    freedom = count - len(usable)
    between = (
        sum((len(side) - 1) * variance([float(run.mean()) for run in side]) for side in usable) / freedom
    )
    return Components(max(between - within / steps, 0.0) ** 0.5, within**0.5, steps)


def variance_shares(
    rows: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> list[float] | None:
    """The share of each row in the variance of the sum of all rows; they sum to 1.

    A row has its values in the replicates of base and of head. The share is the covariance of the row with
    the sum over the variance of the sum, around the mean of each side. None if there are too few replicates,
    or the sum does not vary.
    """
    import numpy as np

    centered = [
        values - values.mean(axis=1, keepdims=True)
        for side in zip(*rows, strict=True)
        if (values := np.asarray(side, dtype=np.float64)).shape[1] >= 2
    ]
    if not centered or sum(side.shape[1] - 1 for side in centered) < MIN_RUNS - 1:
        return None
    both = np.hstack(centered)
    total = both.sum(axis=0)
    variance_of_sum = float(total @ total)
    return [float(row @ total) / variance_of_sum for row in both] if variance_of_sum else None
