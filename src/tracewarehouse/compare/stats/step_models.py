"""Whether a series has a level change, or noise that depends on the run before explains it.

Likelihoods of regressions whose noise is autoregressive (AR(1), Gaussian, with outliers drawn in): a
constant, two levels, a straight line. Without the autocorrelation every slow wave of the noise would be a
change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

_GRID = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)  # autocorrelations that are tried
_PLACE_COST = 1.5  # of the place of a level change, in log-likelihood: the best of many fits by chance
_FAR = 3.0  # standard deviations of the noise beyond which a value counts as this far
_MORE_OFF = 0.2  # the share of values by which a line or levels, farther off than the other, are ruled out


def drawn_in(values: Floats, center: Floats, noise: float) -> Floats:
    """The values, with those far from their center drawn in."""
    import numpy as np

    return np.asarray(np.clip(values, center - _FAR * noise, center + _FAR * noise))


@dataclass(frozen=True)
class Fit:
    """A regression with autoregressive noise: its log-likelihood, and the last coefficient with its error."""

    log_likelihood: float
    slope: float
    error: float
    autocorrelation: float


def fit(values: Floats, *columns: Floats) -> Fit:
    """A regression on these columns and a constant, at the best autocorrelation of its noise."""
    import numpy as np

    count = len(values)
    design = np.stack([np.ones(count), *columns, values], axis=1)
    best = Fit(-math.inf, 0.0, 0.0, 0.0)
    for r in _GRID:
        # Prais and Winsten (1954): differences to the share r of the run before; the first keeps its weight.
        whitened = np.vstack([design[:1] * math.sqrt(1 - r * r), design[1:] - r * design[:-1]])
        gram = whitened.T @ whitened
        inverse = np.linalg.pinv(gram[:-1, :-1], hermitian=True)
        coefficients = inverse @ gram[:-1, -1]
        rest = float(gram[-1, -1] - gram[-1, :-1] @ coefficients)
        rest = max(rest, 1e-12 * float(gram[-1, -1]), 1e-300)
        found = -count / 2 * math.log(rest / count) + math.log(1 - r * r) / 2
        if found > best.log_likelihood:
            error = math.sqrt(rest / max(count - len(columns) - 1, 1) * float(inverse[-1, -1]))
            best = Fit(found, float(coefficients[-1]), error, r)
    return best


def levels(count: int, bounds: Sequence[int]) -> list[Floats]:
    """A column per bound: 1 from it on."""
    import numpy as np

    return [np.asarray(np.arange(count) >= bound, dtype=np.float64) for bound in bounds]


def medians(values: Floats, bounds: Sequence[int]) -> Floats:
    """For each value the median between the bounds around it."""
    import numpy as np

    parts = np.split(values, list(bounds))
    return np.concatenate([np.full(len(part), np.median(part)) for part in parts])


@dataclass(frozen=True)
class Evidence:
    """For a change of level: twice its gain in log-likelihood, and the autocorrelation of the noise then."""

    evidence: float
    autocorrelation: float


def step_evidence(values: Floats, at: int) -> Evidence:
    """That of a change of level at this index."""
    with_step = fit(values, *levels(len(values), [at]))
    gain = with_step.log_likelihood - fit(values).log_likelihood
    return Evidence(2 * gain, with_step.autocorrelation)


def evidence_needed(count: int) -> float:
    """The evidence that a change in a series of this length needs: waves of the noise rarely have it."""
    return 2.5 * math.log(count) + 6.0


@dataclass(frozen=True)
class Line:
    """A straight line through a series: its rise from the first value to the last, with its 95 % interval."""

    rise: float
    low: float
    high: float


def line_instead(values: Floats, noise: float, bounds: Sequence[int]) -> Line | None:
    """The line that explains a series better than level changes at these bounds, and than a constant."""
    import numpy as np

    count = len(values)
    at = np.linspace(-0.5, 0.5, count)
    third = max(count // 3, 1)
    ends = float(np.median(values[:third])), float(np.median(values[-third:]))
    center = np.median(values) + (ends[1] - ends[0]) * at * count / (count - third)
    series = drawn_in(values, center, noise)
    stepped = drawn_in(values, medians(values, bounds), noise)
    # Values that are drawn in follow the line or the levels: a large step would look like a perfect line, and
    # a steep line like steps.
    off_line, off_levels = float(np.mean(series != values)), float(np.mean(stepped != values))
    if off_line > off_levels + _MORE_OFF:
        return None
    needed = 2.0 * math.log(count) + 3.0
    explained = float(np.corrcoef(series, at)[0, 1]) ** 2 if series.std() else 0.0
    if -count * math.log(max(1 - explained, 1e-12)) < needed:  # not even for independent noise
        return None
    found = fit(series, at)
    if 2 * (found.log_likelihood - fit(series).log_likelihood) < needed:
        return None
    if not bounds or off_levels > off_line + _MORE_OFF:
        return _line(found)
    by_levels = fit(stepped, *levels(count, bounds)).log_likelihood
    # Schwarz's criterion: half of log n for each size and for the slope of the line.
    cost = _PLACE_COST * len(bounds) + (len(bounds) - 1) * math.log(count) / 2
    return _line(found) if found.log_likelihood >= by_levels - cost else None


def _line(found: Fit) -> Line:
    return Line(found.slope, found.slope - 1.96 * found.error, found.slope + 1.96 * found.error)
