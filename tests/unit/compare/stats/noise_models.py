"""Logs of run values with noise of several kinds, in time order: what a comparison of runs must withstand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Chance = np.random.Generator
PERIOD = 24  # runs of the day cycle


def normal(chance: Chance, rows: int, runs: int) -> Floats:
    """Rows of runs with a standard deviation of 1 %."""
    return np.asarray(0.01 * chance.standard_normal((rows, runs)))


def t3(chance: Chance, rows: int, runs: int) -> Floats:
    """Student's t with 3 degrees of freedom, scaled by 0.7 %."""
    return np.asarray(0.007 * chance.standard_t(3, (rows, runs)))


def bad_of_ten(chance: Chance, rows: int, runs: int) -> Floats:
    """Normal; one run of ten is 10 % slow."""
    return np.asarray(normal(chance, rows, runs) + 0.1 * (chance.random((rows, runs)) < 0.1))


def bimodal(chance: Chance, rows: int, runs: int) -> Floats:
    """0.5 %, and every second run is 3 % slow."""
    fine = 0.005 * chance.standard_normal((rows, runs))
    return np.asarray(fine + 0.03 * (chance.random((rows, runs)) < 0.5))


def autoregressive(chance: Chance, rows: int, runs: int, kept: float = 0.7) -> Floats:
    """1 %, of which a share is inherited from the run before."""
    values = 0.01 * chance.standard_normal((rows, runs))
    for at in range(1, runs):
        values[:, at] = kept * values[:, at - 1] + (1 - kept**2) ** 0.5 * values[:, at]
    return np.asarray(values)


def day_cycle(chance: Chance, rows: int, runs: int) -> Floats:
    """A sine of ±1 % with a period of 24 runs and a random phase, plus 0.5 %."""
    phase = 2 * np.pi * chance.random((rows, 1))
    wave = 0.01 * np.sin(2 * np.pi * np.arange(runs) / PERIOD + phase)
    return np.asarray(wave + 0.005 * chance.standard_normal((rows, runs)))


def weekends(chance: Chance, rows: int, runs: int) -> Floats:
    """Normal; two runs of seven are 2 % fast."""
    day = (np.arange(runs) + chance.integers(0, 7, (rows, 1))) % 7
    return np.asarray(normal(chance, rows, runs) - 0.02 * (day < 2))


Model = Callable[[Chance, int, int], Floats]
INDEPENDENT: dict[str, Model] = {
    "normal": normal,
    "t3": t3,
    "bad of ten": bad_of_ten,
    "bimodal": bimodal,
}
DEPENDENT: dict[str, Model] = {"AR(0.7)": autoregressive, "day cycle": day_cycle}
WAVES: dict[str, Model] = {**DEPENDENT, "weekends": weekends}
