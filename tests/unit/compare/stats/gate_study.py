"""Outcomes of gates with one run per side, and false alarms of a baseline of few runs.

Part of the study that writes POWER.md (`study.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from statistics import fmean

import numpy as np

from stats.simulated_runs import HEAVY, STEPS, factors, step_times
from tracewarehouse.compare.diff.gate import Gate, GateOptions, decide, parse
from tracewarehouse.compare.metric.expression import Measured, RunValue
from tracewarehouse.compare.stats.change_points import find_levels
from tracewarehouse.compare.stats.two_sample import MIN_EARLIER, Earlier, with_history
from tracewarehouse.contracts.catalog import Catalog

SEED = 20_261_128
PAIRS = 200  # of one run per side
DRAWS, DETECTED = 10_000, 1_000  # comparisons with a baseline after a known change point, and a detected one
GATE = "step_time<=+5%"
CHANGES = (0.0, 0.05, 0.10, 0.20, 0.40)
RECORDED = (0, 3, 5, 12, 50)  # runs that show the deviation; with 0 it is assumed
BEFORE, STEP = 20, 0.05  # runs before a change point, and the change
SINCE, HEADS = (3, 5, 8), (1, 3)


@cache
def gate() -> Gate:
    """The gate of the study."""
    return parse(GATE, Catalog.load())


@cache
def run(seed: int) -> tuple[int, ...]:
    """The steps of a run."""
    return step_times(factors(SEED + seed, HEAVY))


def side(steps: tuple[int, ...], change: float = 0.0) -> Measured:
    """One run, whose steps are longer by a share of them."""
    times = tuple(step * (1 + change) for step in steps)
    mean = fmean(times)
    return Measured(gate().metric, "", (RunValue("run", mean, mean, times),))


def outcomes(change: float, recorded: int, pairs: int = PAIRS) -> Counter[str]:
    """The outcomes of the gate with one run per side, and this number of recorded runs like them."""
    found: Counter[str] = Counter()
    for pair in range(pairs):
        seed = 100 * pair
        means = tuple(fmean(run(seed + 2 + at)) for at in range(recorded))
        alike = Earlier(means, (0,), (1,)) if recorded else None
        options = GateOptions(alike=lambda metric, value, alike=alike: alike)  # type: ignore[misc]
        base, head = side(run(seed)), side(run(seed + 1), change)
        found[decide(gate(), base, head, None, options).outcome] += 1
    return found


def false_alarms(since: int, heads: int, draws: int = DRAWS, detected: int = DETECTED) -> tuple[float, float]:
    """The shares of equal comparisons called changed: with a known change point, and with a detected one.

    Of the latter, those count in which the change point is near, so that few runs follow it.
    """
    chance = np.random.default_rng([SEED, since, heads])
    rows = chance.normal(0, HEAVY.run, (draws, BEFORE + since + heads))
    rows[:, BEFORE:] += np.log1p(STEP)
    end = BEFORE + since
    known = [rejects(row[BEFORE:end], row[end:]) for row in rows]
    found = []
    for row in rows[:detected]:
        points = find_levels(np.exp(row[:end]).tolist()).points
        if points and end - points[-1].at < MIN_EARLIER:
            found.append(rejects(row[points[-1].at : end], row[end:]))
    return sum(known) / draws, sum(found) / max(len(found), 1)


def rejects(base: np.ndarray, head: np.ndarray) -> bool:  # type: ignore[type-arg]
    """Whether runs since a change and head differ."""
    earlier = Earlier(tuple(np.exp(base).tolist()), (), tuple(range(len(head))), True, "run")
    return with_history([], head.tolist(), earlier, 0.05).p <= 0.05


def gate_lines() -> Iterator[str]:
    """The section of POWER.md."""
    yield "## Gates with one run per side"
    yield ""
    yield f"The percentage of {PAIRS} pairs of one run of {STEPS} steps for which `{GATE}` fails / holds / is"
    yield f"inconclusive, by the true change (σ_run is {100 * HEAVY.run:.0f} %, seed {SEED}). The deviation"
    yield "between runs is assumed to be 3 %, or that of recorded runs."
    yield ""
    yield f"| recorded runs | {' | '.join(f'{100 * change:.0f} %' for change in CHANGES)} |"
    yield "|---|" + "---:|" * len(CHANGES)
    for recorded in RECORDED:
        cells = (_cell(outcomes(change, recorded)) for change in CHANGES)
        yield f"| {recorded or 'none: 3 %'} | {' | '.join(cells)} |"
    yield ""
    yield "## A baseline of few runs after a change"
    yield ""
    yield f"The percentage of comparisons of equal runs called changed; {BEFORE} runs before were"
    yield f"{100 * STEP:.0f} % faster. The change point is known ({DRAWS:,} comparisons), or detected by the"
    yield f"history ({DETECTED:,})."
    yield ""
    yield "| runs since the change + head | known | detected |"
    yield "|---|---:|---:|"
    for since in SINCE:
        for heads in HEADS:
            cells = (f"{100 * share:.1f}" for share in false_alarms(since, heads))
            yield f"| {since} + {heads} | {' | '.join(cells)} |"


def _cell(found: Counter[str]) -> str:
    return " / ".join(f"{100 * found[name] / found.total():.0f}" for name in ("fail", "pass", "inconclusive"))
