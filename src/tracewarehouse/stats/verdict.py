"""The verdict on the step time of two sides: slower, faster, no change, or not known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import NormalDist, fmean, median
from typing import Literal

from tracewarehouse.errors import ParamError
from tracewarehouse.stats.shift import ENOUGH, Shift, pooled, shift

Word = Literal["slower", "faster", "no change", "inconclusive"]
Unit = Literal["run", "step", "window"]
STEPS = 3  # of a side, below which they are a window
_SCALES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


@dataclass(frozen=True)
class Verdict:
    """What can be said of the step time of head against base.

    Times in ns, changes relative (0.03 is +3 %). `change` is the shift of the typical step with its interval
    `low` to `high`; it need not be the ratio of the two medians shown, which lie between runs. `unit` is what
    was compared: runs, steps of one run (then the verdict holds within these runs only), or one window per
    side. `needs_runs` is about how many more runs per side it takes for a conclusion, where that can be told.
    """

    word: Word
    base_median_ns: float | None
    head_median_ns: float | None
    change: float | None
    low: float | None
    high: float | None
    p: float | None
    base_mean_ns: float | None
    head_mean_ns: float | None
    mean_change: float | None
    unit: Unit
    needs_runs: int | None = None
    reason: str | None = None

    def line(self, what: str = "median step") -> str:
        """`median step 103.1 → 106.2 ms, +3.0 % [2.1, 3.9], slower; mean +3.4 %`; `what` was timed."""
        if self.base_median_ns is None or self.head_median_ns is None:
            return f"{self.word}: {self.reason}"
        times = _times(self.base_median_ns, self.head_median_ns)
        mean = "" if self.mean_change is None else f"; mean {_percent(self.mean_change, '+')} %"
        return f"{what} {times}, {self._size()}, {self.word}{self._note()}{mean}"

    def _size(self) -> str:
        assert self.change is not None
        if self.low is None or self.high is None:
            return f"{_percent(self.change, '+')} %"
        digits = 1 if self.high - self.low >= 0.002 else 2
        low, high = _percent(self.low, "", digits), _percent(self.high, "", digits)
        return f"{_percent(self.change, '+', digits)} % [{low}, {high}]"

    def _note(self) -> str:
        if self.unit == "window":
            return f": {self.reason}"
        if self.unit == "step":
            return " (within-run only)"
        if self.needs_runs is None:
            return ""
        more = "1 more run" if self.needs_runs == 1 else f"{self.needs_runs:,} more runs"
        return f" (needs about {more} per side)"


def verdict(
    base: Steps,
    head: Steps,
    *,
    alpha: float = 0.05,
    min_effect: float = 0.01,
    total_means: tuple[float, float] | None = None,
) -> Verdict:
    """The verdict on head against base, from steps that the caller has chosen.

    The unit is the run (its median step) where there are four runs or more in all; a side may then have one,
    whose spread is taken to be that of the other side. With fewer runs it is the block of steps, and with
    fewer than three steps on a side the window. All on logs, so that a change is relative. The interval of
    confidence 1 - alpha decides: within ± min_effect it is *no change*, also if 0 lies outside of it;
    else above 0 *slower*, below 0 *faster*, and where it holds 0 *inconclusive*. `total_means` replaces the
    means of the steps, which are told beside. Raises ParamError for an alpha or min_effect out of range.
    """
    _check(alpha, min_effect)
    unit = _unit(base, head)
    left, right = _logs(base, unit), _logs(head, unit)
    known = unit != "window" and min(len(left), len(right)) > 0 and len(left) + len(right) >= ENOUGH
    found = shift(left, right, alpha) if known else None
    word = _word(found, min_effect)
    open_runs = unit == "run" and word == "inconclusive"
    medians = (_centre(base, unit), _centre(head, unit))
    means = total_means or (_mean(base), _mean(head))
    return Verdict(
        word,
        *medians,
        _back(found.by) if found else _ratio(medians),
        _back(found.low) if found else None,
        _back(found.high) if found else None,
        found.p if found else None,
        *means,
        _ratio(means),
        unit,
        _more(left, right, alpha, min_effect) if open_runs else None,
        _reason(unit, base, head, found, word),
    )


def _check(alpha: float, min_effect: float) -> None:
    if not 0 < alpha < 1:
        raise ParamError(f"alpha is {alpha}", "it lies between 0 and 1, often 0.05")
    if not min_effect >= 0:
        raise ParamError(f"min_effect is {min_effect}", "it is 0 or more, often 0.01")


def _unit(base: Steps, head: Steps) -> Unit:
    runs = (len(base.present), len(head.present))
    if min(runs) and sum(runs) >= ENOUGH:
        return "run"
    return "step" if min(len(base.times), len(head.times)) >= STEPS else "window"


def _logs(side: Steps, unit: Unit) -> list[float]:
    """The values to compare: logs of the median of each run, or of each block of steps."""
    if unit == "run":
        return [math.log(median(run)) for run in side.present]
    pieces = ((run, piece) for run in side.present for piece in blocks(run))
    return [math.log(median(run[step] for step in piece)) for run, piece in pieces]


def _word(found: Shift | None, min_effect: float) -> Word:
    if found is None:
        return "inconclusive"
    low, high = _back(found.low), _back(found.high)
    if -min_effect <= low and high <= min_effect:
        return "no change"
    return "slower" if low > 0 else "faster" if high < 0 else "inconclusive"


def _more(base: Sequence[float], head: Sequence[float], alpha: float, min_effect: float) -> int | None:
    """Runs to add per side."""
    needed = runs_for_a_conclusion(base, head, alpha=alpha, min_effect=min_effect)
    have = 2 / (1 / len(base) + 1 / len(head))
    return None if needed is None else max(1, math.ceil(needed - have))


def _reason(unit: Unit, base: Steps, head: Steps, found: Shift | None, word: Word) -> str | None:
    if unit == "window":
        lacks = [name for name, side in (("base", base), ("head", head)) if not side.times]
        return f"no complete step in {' and '.join(lacks)}" if lacks else "one window per side"
    if unit == "step" and found is None:
        return "too few blocks of steps that do not hang together"
    if unit == "step":
        return "within-run only: how far runs lie apart is not known"
    if word == "inconclusive":
        return "the interval holds 0, and reaches beyond the least effect that matters"
    return None


def _centre(side: Steps, unit: Unit) -> float | None:
    values = [median(run) for run in side.present] if unit == "run" else side.times
    return float(median(values)) if values else None


def _mean(side: Steps) -> float | None:
    return fmean(side.times) if side.times else None


def _ratio(pair: tuple[float | None, float | None]) -> float | None:
    base, head = pair
    return head / base - 1 if base and head is not None else None


def _back(by: float) -> float:
    """A difference of logs as a relative change."""
    return math.expm1(by) if by < 700 else math.inf


def _times(base: float, head: float) -> str:
    """Both times in the unit of the larger, with four digits of it."""
    top = max(base, head)
    scale, name = next((pair for pair in _SCALES if top >= pair[0]), _SCALES[-1])
    digits = 0 if scale == 1 else 1 if top >= 100 * scale else 2 if top >= 10 * scale else 3
    return f"{base / scale:.{digits}f} → {head / scale:.{digits}f} {name}"


def _percent(value: float, sign: str, digits: int = 1) -> str:
    shown = round(100 * value, digits) + 0.0  # no minus before a zero
    return f"{shown:{sign}.{digits}f}"


FEWEST = 2
TOO_FINE = 10  # parts of the spread between runs: to see less takes thousands of runs
SURE = 12.0  # shifts in standard errors, above which no distribution need be asked


def runs_needed(spread: float, shift: float, *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Runs per side that find a shift with this power; both numbers on the scale of logs of runs' medians.

    The least number for which Student's t has the power, by the noncentral t; from where the approximation
    of Guenther (1981) points to. Takes a shift other than 0.
    """
    side, found = NormalDist().inv_cdf(1 - alpha / 2), NormalDist().inv_cdf(power)
    about = 2 * ((side + found) * spread / shift) ** 2 + side**2 / 4
    runs = max(FEWEST, math.floor(about) - 1)
    while _power(runs, abs(shift) / spread if spread else math.inf, alpha) < power:
        runs += 1
    return runs


def _power(runs: int, ratio: float, alpha: float) -> float:
    """The power of Student's t with this many runs per side, for a shift of `ratio` standard deviations."""
    from scipy.special import nctdtr, stdtrit

    free, apart = 2 * runs - 2, ratio * math.sqrt(runs / 2)
    edge = float(stdtrit(free, 1 - alpha / 2))
    return 1.0 if apart > edge + SURE * math.sqrt(1 + edge) else 1 - float(nctdtr(free, apart, edge))


def runs_for_a_conclusion(
    base: Sequence[float], head: Sequence[float], *, alpha: float, min_effect: float
) -> int | None:
    """Runs per side, in all, for a conclusion with a power of 0.8, from logs of runs' medians.

    They find a shift of the size seen or, where that is below min_effect, exclude one of min_effect: when
    nothing changed, as many as find it with a power of 0.9, since either end of the interval may fail. A
    spread from few runs is more often too small than too large, so its median bias is taken off (Wilson and
    Hilferty 1931). None where it takes thousands.
    """
    free = len(base) + len(head) - 2
    spread = pooled(base, head) / (1 - 2 / (9 * free)) ** 1.5
    size, least = abs(fmean(head) - fmean(base)), math.log1p(min_effect)
    power, aim = (0.8, size) if size > least else (0.9, least)
    return runs_needed(spread, aim, alpha=alpha, power=power) if aim > spread / TOO_FINE else None


@dataclass(frozen=True)
class Steps:
    """For each run the times of its steps in ns, in order of time. Raises ParamError for less than 1 ns."""

    runs: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        shortest = min(self.times, default=1)
        if shortest < 1:
            raise ParamError(f"a step of {shortest} ns cannot be compared", "leave that step out")

    @property
    def times(self) -> tuple[int, ...]:
        """The steps of all runs, in ns."""
        return tuple(chain.from_iterable(self.runs))

    @property
    def present(self) -> tuple[tuple[int, ...], ...]:
        """The runs that have steps."""
        return tuple(run for run in self.runs if run)


MOST = 300  # blocks of a run; more cost time and tell no more
NEARLY_ONE = 0.95


def blocks(times: Sequence[float]) -> tuple[range, ...]:
    """The steps of one run, by their index, in blocks of nearly equal length that hold each step once.

    Single steps where neighbours are not correlated; else blocks of twice the time in which the correlation
    fades, (1 + r) / (1 - r) for a process with autocorrelation r of neighbours. r is taken from ranks, since
    times have heavy tails, and corrected for its bias in short series (Marriott and Pope 1954).
    """
    count = len(times)
    if not count:
        return ()
    length = max(_length(times), math.ceil(count / MOST))
    pieces = max(1, count // length)
    ends = [count * piece // pieces for piece in range(pieces + 1)]
    return tuple(range(start, end) for start, end in zip(ends, ends[1:], strict=False))


def _length(times: Sequence[float]) -> int:
    found = neighbours(times) if len(times) > 3 else 0.0
    found = min(found + (1 + 3 * found) / len(times), NEARLY_ONE)
    if found < 1 / math.sqrt(len(times)):  # one standard error: to miss a correlation is the worse mistake
        return 1
    return math.ceil(2 * (1 + found) / (1 - found))


def neighbours(times: Sequence[float]) -> float:
    """The autocorrelation of ranks at lag 1; 0 where all are equal."""
    import numpy as np

    _, place, counts = np.unique(np.asarray(times), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2)[place]
    ranks = ranks - ranks.mean()
    whole = float(ranks @ ranks)
    return float(ranks[1:] @ ranks[:-1]) / whole if whole else 0.0
