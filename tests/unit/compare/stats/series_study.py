"""What is reported of series of runs: level changes and trends, and how often by mistake.

Part of the study that writes POWER.md (`study.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stats.noise_models import INDEPENDENT, Floats, Model, autoregressive, normal
from tracewarehouse.compare.stats.change_points import find_levels

SEED = 20_261_123
SERIES = 100
BEFORE, WATCHED = 40, 60  # runs before a change, and runs that are watched without one
NEWEST = 12  # runs in which `--fail-on-change` looks for a change
AFTER = (3, 4, 6, 10)
LENGTHS = (30, 60, 100, 300)


def half_inherited(chance: np.random.Generator, rows: int, runs: int) -> Floats:
    """1 %, of which half is inherited from the run before."""
    return autoregressive(chance, rows, runs, 0.5)


WATCHED_MODELS: dict[str, Model] = {
    **{name: INDEPENDENT[name] for name in ("normal", "t3", "bad of ten")},
    "AR(0.5)": half_inherited,
}


def series(model: Model, count: int, runs: int) -> Floats:
    """Series of positive values, each in a row."""
    return np.asarray(np.exp(model(np.random.default_rng([SEED, count, runs]), count, runs)))


def ramps(size: float, count: int, runs: int) -> Floats:
    """Series with a steady rise of this size from the first run to the last."""
    return series(normal, count, runs) * np.exp(np.linspace(0, np.log1p(size), runs))


def steps(size: float, count: int, runs: int) -> Floats:
    """Series with a step of this size, at any place between 20 % and 80 % of the runs."""
    chance = np.random.default_rng([SEED, count, runs, 1])
    places = chance.uniform(0.2 * runs, 0.8 * runs, (count, 1))
    return series(normal, count, runs) * np.where(np.arange(runs) < places, 1, 1 + size)


def with_points(rows: Floats, min_effect: float = 0.01) -> float:
    """The share of series with any change point."""
    return sum(bool(find_levels(row, min_effect).points) for row in rows) / len(rows)


def trends(rows: Floats) -> float:
    """The share of series with a trend."""
    return sum(find_levels(row).trend is not None for row in rows) / len(rows)


def _cell(rows: Floats, min_effect: float = 0.01) -> str:
    found = [find_levels(row, min_effect) for row in rows]
    changed, trend = sum(bool(each.points) for each in found), sum(each.trend is not None for each in found)
    return f"{100 * changed / len(rows):.0f} / {100 * trend / len(rows):.0f}"


def trend_lines() -> Iterator[str]:
    yield "## Steady rises and steps of a history"
    yield ""
    yield f"The percentage of {SERIES} series with change points / with a trend; of the others nothing is"
    yield f"reported (seed {SEED}). σ is 1 %; the rise is from the first run to the last, the step at any"
    yield "place between 20 % and 80 % of the runs."
    yield ""
    kinds = [(ramps, size) for size in (0.03, 0.05, 0.10)] + [(steps, size) for size in (0.03, 0.05)]
    names = (f"{'rise' if kind is ramps else 'step'} of {100 * size:.0f} %" for kind, size in kinds)
    yield f"| runs | {' | '.join(names)} |"
    yield "|---:|" + "---:|" * len(kinds)
    for runs in LENGTHS:
        drawn = (kind(size, SERIES, runs) for kind, size in kinds)
        yield f"| {runs} | {' | '.join(_cell(rows) for rows in drawn)} |"


def small_lines() -> Iterator[str]:
    yield "## Small changes of a long history"
    yield ""
    yield f"The percentage of {SERIES} series with a change point / with a trend, for a step of this size in"
    yield f"the middle; σ is 1 %, `min_effect` 0.1 % (seed {SEED})."
    yield ""
    sizes = (0.0, 0.002, 0.003, 0.005)
    yield f"| runs | no step | {' | '.join(f'{100 * size:.1f} %' for size in sizes[1:])} |"
    yield "|---:|" + "---:|" * len(sizes)
    for runs in (400, 3_000):
        cells = (_cell(small_steps(size, runs), 0.001) for size in sizes)
        yield f"| {runs:,} | {' | '.join(cells)} |"


def small_steps(size: float, runs: int) -> Floats:
    """Series with a step of this size in the middle."""
    return series(normal, SERIES, runs) * np.where(np.arange(runs) < runs // 2, 1, 1 + size)


def failing_lines() -> Iterator[str]:
    yield "## `--fail-on-change`"
    yield ""
    yield f"The percentage of {SERIES} series of {BEFORE} runs and {WATCHED} more, looked at after every"
    yield "second of the latter, for which it ever fails without a change; and of series with a step after"
    yield f"{BEFORE} runs, those for which it fails {', '.join(map(str, AFTER[:-1]))} and {AFTER[-1]} runs"
    yield f"after the step (seed {SEED})."
    yield ""
    yield "| noise | ever failed | step of 2 % | step of 3 % |"
    yield "|---|---:|---:|---:|"
    for name, model in WATCHED_MODELS.items():
        rows = series(model, SERIES, BEFORE + WATCHED)
        cells = (f"{100 * ever_failed(rows):.0f}", _failing_cell(rows, 0.02), _failing_cell(rows, 0.03))
        yield f"| {name} | {' | '.join(cells)} |"


def _failing_cell(rows: Floats, size: float) -> str:
    return ", ".join(f"{100 * changed_within(rows, size, after):.0f}" for after in AFTER)


def ever_failed(rows: Floats) -> float:
    """The share of series that ever have a change among the newest runs, as CI sees them."""
    ends = range(BEFORE, rows.shape[1] + 1, 2)
    return sum(any(_has_new_change(row[:end]) for end in ends) for row in rows) / len(rows)


def changed_within(rows: Floats, size: float, after: int) -> float:
    """The share of series with a change among the newest runs, this many after a step upward."""
    end = BEFORE + after
    stepped = rows[:, :end] * np.where(np.arange(end) < BEFORE, 1, 1 + size)
    return sum(_has_new_change(row) for row in stepped) / len(rows)


def _has_new_change(row: Floats) -> bool:
    return any(point.at >= len(row) - NEWEST for point in find_levels(row).points)
