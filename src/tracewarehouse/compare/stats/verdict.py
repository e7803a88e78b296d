"""Verdict on the step times of two sides (slower, faster, no change, inconclusive) and the runs it needs.

With one run per side, blocks of its steps serve as independent samples. With several, notices warn of a
drift, which looks like a change unless the sides were run alternately.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from tracewarehouse.compare.stats.two_sample import (
    MIN_SAMPLES,
    Earlier,
    MoreRuns,
    ShiftTest,
    components,
    history_notices,
    lag1,
    midranks,
    more_runs,
    outlier_notices,
    runs_to_conclude,
    shift,
    with_history,
)
from tracewarehouse.errors import ParamError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


Sides = Sequence[bool]  # in the order of start: whether the run is of head

MIN_SIDE = 12  # runs per side from which dependence is found in at least 80 % (AR(1) with 0.7)
LEVEL = 0.05
DEPENDENCE_LEVEL = 0.0425  # at most 5 % of independent pairs are warned of, of whatever noise (POWER.md)
UNKNOWN_ORDER = "start times are unknown or equal, so that a drift between base and head looks like a change"
NOT_INTERLEAVED = "base and head were not run alternately, so that a drift between them looks like a change"
DEPENDENT = "runs depend on the runs before them, so that the interval is too narrow"
_KEPT = 0.7  # the autocorrelation that the test is made for
_DRAWS = 1_999
_SEED = 20_261_123
_TIE = 1e-12


def order_notices(base: Sequence[float], head: Sequence[float], order: Sides | None) -> Iterator[str]:
    """Why a drift may look like a change, from the values of both sides in the order of start.

    Sides that do not alternate are always reported. `order` is empty if it is unknown, None if it does not
    matter.
    """
    if order is None or min(len(base), len(head)) < 2:
        return
    if len(order) != len(base) + len(head):
        yield UNKNOWN_ORDER
        return
    has_few_runs = min(len(base), len(head)) < MIN_SIDE
    sides = {False: iter(base), True: iter(head)}
    values = [next(sides[side]) for side in order]
    is_dependent = dependence_p(values, order) <= DEPENDENCE_LEVEL
    if is_dependent:
        yield DEPENDENT
    if not is_interleaved(order):
        hidden = has_few_runs and not is_dependent
        unseen = f"; with fewer than {MIN_SIDE} runs per side it cannot be seen" if hidden else ""
        yield f"{NOT_INTERLEAVED}{unseen}: run base and head alternately, or use history"


def is_interleaved(sides: Sides) -> bool:
    """Whether the sides alternate at least as often as in 95 % of random orders; needs two runs per side.

    By the number of switches between sides (Wald and Wolfowitz 1940); never if one side precedes the other.
    """
    head = sum(sides)
    base = len(sides) - head
    switches = sum(side != next_side for side, next_side in zip(sides, sides[1:], strict=False))
    return min(base, head) < 2 or switches > 1 and _switches_cdf(base, head, switches) >= LEVEL


def _switches_cdf(base: int, head: int, switches: int) -> float:
    """P(at most this many switches) in a random order."""
    total = math.comb(base + head, base)
    ways = 0
    for runs in range(2, switches + 2):
        half, odd = divmod(runs, 2)
        if odd:
            ways += math.comb(base - 1, half) * math.comb(head - 1, half - 1)
            ways += math.comb(base - 1, half - 1) * math.comb(head - 1, half)
        else:
            ways += 2 * math.comb(base - 1, half - 1) * math.comb(head - 1, half - 1)
    return ways / total


def dependence_p(values: Sequence[float], sides: Sides) -> float:
    """p of independent runs, against runs that inherit a part of the deviation of the run before.

    `values` and `sides` are in the order of start. The point-optimal statistic of King (1985) for an
    autocorrelation of 0.7, on normal scores of the deviations from the median of their side; its distribution
    is that of random orders within each side.
    """
    import numpy as np
    from scipy.special import ndtri

    is_head, times = np.asarray(sides, dtype=bool), np.asarray(values, dtype=np.float64)
    residuals = times - np.where(is_head, np.median(times[is_head]), np.median(times[~is_head]))
    # Normal scores of the midranks.
    scores = np.asarray(ndtri((midranks(residuals) - 0.375) / (len(residuals) + 0.25)))
    weights = _weights(tuple(sides))
    null = _statistic(scores[_orders(tuple(sides))], weights)
    observed = float(_statistic(scores[None, :], weights)[0])
    return (1 + int((null <= observed + _TIE).sum())) / (len(null) + 1)


@lru_cache(maxsize=32)
def _orders(sides: tuple[bool, ...]) -> npt.NDArray[np.int64]:
    """Random orders within each side: a row per order, with the index of the run in each place."""
    import numpy as np

    chance, head = np.random.default_rng([_SEED, len(sides), sum(sides)]), np.array(sides, dtype=bool)
    orders = np.zeros((_DRAWS, len(sides)), dtype=np.int64)
    for side in (head, ~head):
        places = np.flatnonzero(side)
        orders[:, places] = places[chance.random((_DRAWS, len(places))).argsort(axis=1)]
    return orders


@lru_cache(maxsize=32)
def _weights(sides: tuple[bool, ...]) -> Floats:
    """The inverse covariance of runs with that autocorrelation, without the means of the sides."""
    import numpy as np

    places, is_head = np.arange(len(sides)), np.array(sides, dtype=bool)
    precision = np.linalg.inv(_KEPT ** np.abs(places[:, None] - places[None, :]))
    design = np.stack([is_head, ~is_head], axis=1).astype(np.float64)
    weighted = design.T @ precision
    return np.asarray(precision - weighted.T @ np.linalg.solve(weighted @ design, weighted))


def _statistic(scores: Floats, weights: Floats) -> Floats:
    """The weighted squares of each row; small if neighbors are alike."""
    import numpy as np

    return np.asarray(((scores @ weights) * scores).sum(axis=1))


# With "usual step unchanged" the median did not change, but the mean did.
Word = Literal["slower", "faster", "no change", "usual step unchanged", "inconclusive"]
SampleKind = Literal["run", "step", "window"]
MIN_STEPS = 3  # per side, below which the sample is the window
_BEYOND_RUNS = 0.10  # from this end of an interval on, the noise between runs does not explain it
_RUNS_VARY = "runs of one job vary by 1–3 %, some by more: more runs show whether the change did this"
_MORE_THAN_RUNS = "runs of one job vary by 1–3 %, less than this difference"
_STEPS_VARY = "runs of one job vary by 1–3 %, and these steps too much for a conclusion"
_OF_RECORDINGS: dict[Word, str] = {
    "slower": "this recording is slower",
    "faster": "this recording is faster",
    "no change": "these recordings are alike",
}
_SCALES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


class Verdict(Struct, frozen=True):
    """How the step time of head compares with that of base.

    Times in ns, changes relative (0.03 is +3 %). `change` is the ratio of the two medians minus 1, and `low`
    to `high` its interval by the `test`. `sample` is the kind of sample: runs, steps of one run (the verdict
    then holds within these runs only), or one window per side. `needs_runs` estimates how many more runs a
    conclusion takes, of the side that lacks more, None if unknown; `needs` has both sides. `notices` say what
    the verdict cannot know.
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
    sample: SampleKind
    needs_runs: int | None = None
    reason: str | None = None
    needs: MoreRuns | None = None
    test: str | None = None
    notices: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """The word; of steps of one run per side, a statement on these recordings."""
        return _OF_RECORDINGS.get(self.word, self.word) if self.sample == "step" else self.word

    def line(self, subject: str = "median step", because: str | None = None) -> str:
        """`median step 103.1 → 106.2 ms, +3.0 % [2.1, 3.9], slower; mean +3.4 %`.

        With one run per side, the reason is part of it: what the recordings do not show. `because` says what
        moves the mean.
        """
        if self.base_median_ns is None or self.head_median_ns is None:
            return f"{self.word}: {self.reason}"
        times = _times_text(self.base_median_ns, self.head_median_ns)
        if self.sample == "window":  # its change is that of its mean
            return f"{subject} {times}, {self._change_text()} (not tested: {self.reason})"
        medians = f"{subject} {times}, {self._change_text()}"
        mean = "" if self.mean_change is None else f" mean {_percent(self.mean_change, '+')} %"
        mean += f", because {because}" if because else ""
        if self.sample == "step":
            return f"{medians}{mean and f',{mean}'}: {self.outcome}; {self.reason}"
        needs = f" (needs about {self.needs})" if self.needs else ""
        return f"{medians}, {self.word}{needs}{mean and f';{mean}'}"

    def _change_text(self) -> str:
        assert self.change is not None
        if self.low is None or self.high is None:
            return f"{_percent(self.change, '+')} %"
        digits = 1 if self.high - self.low >= 0.002 else 2
        low, high = _percent(self.low, "", digits), _percent(self.high, "", digits)
        return f"{_percent(self.change, '+', digits)} % [{low}, {high}]"


def verdict(
    base: StepTimes,
    head: StepTimes,
    *,
    alpha: float = 0.05,
    min_effect: float = 0.01,
    total_means: tuple[float, float] | None = None,
    order: Sides | None = None,
    earlier: Earlier | None = None,
) -> Verdict:
    """The verdict on head against base, from steps that the caller selected.

    The sample is the run (its median step) if there are four runs or more in total; a side may then have a
    single run, whose variance is assumed to be that of the other side. With fewer runs it is the block of
    steps, and with fewer than three steps on a side the window. With `earlier` runs the sample is always
    the run, and the spread is theirs; base is these runs if they are its baseline. All tests are on
    logarithms, so that a change is relative. The interval of confidence 1 - alpha decides: within ±
    min_effect it is *no change*, even if it excludes 0, or *usual step unchanged* if the mean moved by more
    than that; otherwise *slower* above 0, *faster* below 0, and *inconclusive* if it contains 0. `order`
    holds for each run with steps, in the order of start, whether it is of head; it is empty if that is
    unknown. `total_means` replaces the means of the steps, which are reported in addition. Raises
    ParamError if alpha or min_effect is out of range.
    """
    _check_params(alpha, min_effect)
    kind = _sample_kind(base, head, earlier)
    samples = _samples(base, kind), _samples(head, kind)
    medians = _median_time(base, kind), _median_time(head, kind)
    if earlier is not None and earlier.is_baseline:
        medians = median(earlier.values), medians[1]
    change = _relative_change(medians)
    test = _test(samples, kind, alpha, earlier)
    missing = _ENOUGH_STEPS - min(len(base.times), len(head.times))
    if test is not None and kind == "step" and missing > 0:
        test = test.widened(1 + _DOUBT * missing, alpha)
    if test is not None and change is not None:
        test = test.relative().around(change)
    word = _word(test, min_effect)
    means = total_means or (_mean_time(base), _mean_time(head))
    mean_change = _relative_change(means)
    if word == "no change" and mean_change is not None and abs(mean_change) > min_effect:
        word = "usual step unchanged"
    is_open = kind == "run" and word == "inconclusive" and earlier is None
    needed = runs_to_conclude(*samples, alpha=alpha, min_effect=min_effect) if is_open else None
    needs = None if needed is None else more_runs((len(samples[0]), len(samples[1])), needed)
    return Verdict(
        word,
        *medians,
        change,
        test.low if test else None,
        test.high if test else None,
        test.p if test else None,
        *means,
        mean_change,
        kind,
        max(needs.base, needs.head) if needs else None,
        _reason(kind, base, head, test, word),
        needs,
        test.method if test else None,
        (*_notices(samples, kind, order, earlier), *_advice(base, head, kind, word)) if test else (),
    )


def _test(
    samples: tuple[Sequence[float], Sequence[float]], kind: SampleKind, alpha: float, earlier: Earlier | None
) -> ShiftTest | None:
    """The test of the samples, None if there are too few."""
    if earlier is not None and kind == "run":
        return with_history(*samples, earlier, alpha)
    counts = [len(side) for side in samples]
    if kind == "window" or min(counts) == 0 or sum(counts) < MIN_SAMPLES:
        return None
    return shift(*samples, alpha)


def _notices(
    samples: tuple[Sequence[float], Sequence[float]],
    kind: SampleKind,
    order: Sides | None,
    earlier: Earlier | None,
) -> Iterator[str]:
    """What the verdict cannot know."""
    if earlier is not None:
        yield from history_notices(samples, earlier)
    elif kind == "run":
        yield from outlier_notices(*samples)
        yield from order_notices(*samples, order)


def _advice(base: StepTimes, head: StepTimes, kind: SampleKind, word: Word) -> Iterator[str]:
    """Whether more runs or more steps help, if the verdict is open."""
    if kind != "run" or word != "inconclusive":
        return
    sides = [[[math.log(step) for step in run] for run in side.nonempty_runs] for side in (base, head)]
    spread = components(sides)
    if spread is not None:
        yield spread.advice


def _check_params(alpha: float, min_effect: float) -> None:
    if not 0 < alpha < 1:
        raise ParamError(f"alpha is {alpha}", "it must be between 0 and 1, often 0.05")
    if not min_effect >= 0:
        raise ParamError(f"min_effect is {min_effect}", "it must be at least 0, often 0.01")


def _sample_kind(base: StepTimes, head: StepTimes, earlier: Earlier | None) -> SampleKind:
    runs = (len(base.nonempty_runs), len(head.nonempty_runs))
    if earlier is not None and runs[1] and (runs[0] or earlier.is_baseline):
        return "run"
    if min(runs) and sum(runs) >= MIN_SAMPLES:
        return "run"
    return "step" if min(len(base.times), len(head.times)) >= MIN_STEPS else "window"


def _samples(side: StepTimes, kind: SampleKind) -> list[float]:
    """The values to compare: logarithms of the median of each run, or of each block of steps."""
    if kind == "run":
        return [math.log(median(run)) for run in side.nonempty_runs]
    run_blocks = ((run, block) for run in side.nonempty_runs for block in blocks(run))
    return [math.log(median(run[step] for step in block)) for run, block in run_blocks]


def _word(test: ShiftTest | None, min_effect: float) -> Word:
    if test is None:
        return "inconclusive"
    if -min_effect <= test.low and test.high <= min_effect:
        return "no change"
    return "slower" if test.low > 0 else "faster" if test.high < 0 else "inconclusive"


def _reason(
    kind: SampleKind, base: StepTimes, head: StepTimes, test: ShiftTest | None, word: Word
) -> str | None:
    if kind == "window":
        empty = [name for name, side in (("base", base), ("head", head)) if not side.times]
        return f"no complete step in {' and '.join(empty)}" if empty else "one sample per side"
    if kind == "step":
        if test is None:
            return "too few independent steps for an interval"
        if word == "inconclusive":
            return _STEPS_VARY
        return _MORE_THAN_RUNS if max(test.low, -test.high) > _BEYOND_RUNS else _RUNS_VARY
    if word == "inconclusive":
        return "the interval contains 0 and extends beyond ± min-effect"
    return None


def _median_time(side: StepTimes, kind: SampleKind) -> float | None:
    values = [median(run) for run in side.nonempty_runs] if kind == "run" else side.times
    return float(median(values)) if values else None


def _mean_time(side: StepTimes) -> float | None:
    return fmean(side.times) if side.times else None


def _relative_change(pair: tuple[float | None, float | None]) -> float | None:
    base, head = pair
    return head / base - 1 if base and head is not None else None


def _times_text(base: float, head: float) -> str:
    """Both times in the unit of the larger, with four digits of it; far apart, each in its own unit."""
    if min(base, head) * 20 < max(base, head) and min(base, head) > 0:
        return " → ".join(_times_text(time_ns, time_ns).partition(" → ")[2] for time_ns in (base, head))
    top = max(base, head)
    scale, name = next((pair for pair in _SCALES if top >= pair[0]), _SCALES[-1])
    digits = 0 if scale == 1 else 1 if top >= 100 * scale else 2 if top >= 10 * scale else 3
    return f"{base / scale:.{digits}f} → {head / scale:.{digits}f} {name}"


def _percent(value: float, sign: str, digits: int = 1) -> str:
    rounded = round(100 * value, digits) + 0.0  # no minus sign before a zero
    return f"{rounded:{sign}.{digits}f}"


class StepTimes(Struct, frozen=True):
    """The step times of each run in ns, in time order. Raises ParamError for times that are not above 0."""

    runs: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        shortest = min(self.times, default=1)
        if shortest <= 0:
            raise ParamError(f"a step of {shortest} ns cannot be compared", "exclude this step")

    @property
    def times(self) -> tuple[float, ...]:
        """The steps of all runs, in ns."""
        return tuple(chain.from_iterable(self.runs))

    @property
    def nonempty_runs(self) -> tuple[tuple[float, ...], ...]:
        """The runs that have steps."""
        return tuple(run for run in self.runs if run)


MAX_BLOCKS = 300  # per run; more cost time and add no information
MIN_BLOCKS = 4
# Fewer steps hide whether they depend on each other. The interval is widened so that at most 10 % of equal
# pairs are called different if steps inherit 60 % of the deviation of the one before (stats/POWER.md).
_ENOUGH_STEPS, _DOUBT = 20, 0.06
MAX_AUTOCORRELATION = 0.95
_ONE_PERCENT = 2.33  # standard errors


def blocks(times: Sequence[float]) -> tuple[range, ...]:
    """The steps of one run, by index, in blocks of nearly equal length that are nearly independent.

    Single steps if adjacent steps are not correlated; otherwise blocks of twice the time in which the
    correlation fades, (1 + r) / (1 - r) for a process with autocorrelation r at lag 1. r is computed from
    ranks, since times have heavy tails, and corrected for its bias in short series (Marriott and Pope 1954).
    Four blocks or more, unless the correlation is significant at 1 %: that of a few steps is hardly known.
    """
    count = len(times)
    if not count:
        return ()
    r = lag1_autocorrelation(times) if count > 3 else 0.0
    length = max(_block_length(r, count), math.ceil(count / MAX_BLOCKS))
    is_certain = count < MIN_BLOCKS or r >= _ONE_PERCENT / math.sqrt(count)
    number = max(1 if is_certain else MIN_BLOCKS, count // length)
    bounds = [count * block // number for block in range(number + 1)]
    return tuple(range(start, end) for start, end in pairwise(bounds))


def _block_length(r: float, count: int) -> int:
    r = min(r + (1 + 3 * r) / count, MAX_AUTOCORRELATION)
    if r < 1 / math.sqrt(count):  # one standard error: missing a correlation is the worse mistake
        return 1
    return math.ceil(2 * (1 + r) / (1 - r))


def lag1_autocorrelation(times: Sequence[float]) -> float:
    """The autocorrelation of ranks at lag 1; 0 if all values are equal."""
    import numpy as np

    return lag1(midranks(np.asarray(times, dtype=np.float64)))
