"""Breakdown of the change in mean step time: levels that each sum exactly to both means, with tests per row.

The interval that is averaged is a complete step of a rank, its GPU window, or an annotation's occurrence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tracewarehouse import hints
from tracewarehouse.compare.diff.amounts import LEVELS, Key, SideAmounts, Total, amounts
from tracewarehouse.compare.diff.levels import WAIT, Level, Row, ranked, with_awaited_folded
from tracewarehouse.compare.diff.roles import roles
from tracewarehouse.compare.diff.waits import both_have_blame, exposed_waits
from tracewarehouse.compare.stats import MIN_SAMPLES, blocks, row_tests
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import ParamError, TwError
from tracewarehouse.present.render.text import plural, show
from tracewarehouse.result import Abstained, Field, Provenance, Result, from_rows
from tracewarehouse.runs.selection import Selection

if TYPE_CHECKING:
    import pyarrow as pa

    from tracewarehouse.compare.diff.work import Work

# As above, also of ranks without GPU activities.
_HOST_STEPS = "SELECT run_id, rank, step, period_ns AS length_ns FROM steps WHERE NOT partial"
STEP, WINDOW, ANNOTATION = "step", "window", "annotation:"
MIN_STEPS = 3  # complete steps of a rank; with fewer the interval is the window

_STEPS = """
SELECT run_id, rank, step, period_ns AS length_ns
FROM steps
SEMI JOIN kernels ON kernels.run_id = steps.run_id AND kernels.rank = steps.rank
WHERE NOT partial
"""


@dataclass(frozen=True)
class Breakdown:
    """The mean interval of both sides, split into levels that each sum to both means exactly.

    An interval is a complete step of a rank (`per="step"`), a rank's GPU window, or an occurrence of an
    annotation. `replicate` is what the tests treat as one measurement: run, or step (within one run).
    """

    per: str
    base_mean: Fraction
    head_mean: Fraction
    base_intervals: int
    head_intervals: int
    replicate: str
    levels: tuple[Level, ...]
    notices: tuple[str, ...]
    abstained: tuple[Abstained, ...]  # ranks that are left out
    on_host: bool = False  # without GPU activities: what the training threads run, from `host_account`
    unit: str | None = None  # what times are per, such as `sample`; None if they are of the entire interval
    scale: int = 1  # of how many units of work: 1,000 of `1,000 tokens`
    incomplete: tuple[str, ...] = ()  # the steps that are left out because they are incomplete, in words

    @property
    def whole(self) -> str:
        """What a time is of, in words: `step`, or `step per sample`."""
        return f"{self.per} per {self.unit}" if self.unit else self.per

    @property
    def delta(self) -> Fraction:
        """The change of the mean, in ns."""
        return self.head_mean - self.base_mean

    def level(self, name: str) -> Level:
        """One of breakdown, kernels, operators, categories, modules, work, ranks; raises KeyError."""
        return {level.name: level for level in self.levels}[name]


def breakdown(
    base: Selection,
    head: Selection,
    *,
    per: str | None = None,
    alpha: float = 0.05,
    catalog: Catalog | None = None,
    work: Work | None = None,
) -> Breakdown:
    """Why the mean step of head is longer or shorter than that of base.

    `per` is `step` (complete ones only), `window` (first to last GPU activity of a rank) or `annotation:NAME`
    (each occurrence on a rank); by default steps if every run has a rank with three complete ones, else
    windows. Ranks without GPU activities are left out; if no rank has any, what the training threads run is
    broken down instead, by category and by operator. Raises ParamError for another `per`; TwError if a side
    has no such interval. With `work`, times are per unit of the work of a step, and `per` is the step.

    A late rank makes the others wait in collectives, so their steps grow as much as its own. In the breakdown
    that is `exposed_wait for rank N`, for the rank that arrived last or, with blame derived on both sides,
    the one that caused most of the wait; a slow link shows as `exposed_transfer`. In `ranks` the late rank's
    own time grew, of the others only their waiting. Ranks are paired by number; by their role in the job if
    the layouts differ; in order if the numbers differ but both sides have as many.
    """
    on_host = not any(_has_gpu(side) for side in (base, head))
    per, notices = resolve_interval(per, (base, head), on_host)
    read = host_times if on_host else side_times
    times = read("base", base, per), read("head", head, per)
    if per == STEP and not on_host:
        has_blame = both_have_blame(base, head)
        times = _with_waits(times[0], base, has_blame), _with_waits(times[1], head, has_blame)
    by_run = sum(len(side.selected()) for side in (base, head)) >= MIN_SAMPLES
    if work is not None:
        work = work.scaled(_mean_step_ns(times, per))
    divisors = work.divisors if work else ({}, {})
    sides = amounts(catalog or Catalog.load(), *times, by_run, roles(base, head), divisors)
    text = work.text if work else None
    level_per = f"{per} per {text}" if text else per
    provenance = _provenance(times)
    means = [side.length_ns / side.intervals for side in sides]
    return Breakdown(
        per=per,
        base_mean=means[0],
        head_mean=means[1],
        base_intervals=sides[0].intervals,
        head_intervals=sides[1].intervals,
        replicate="run" if by_run else "step",
        levels=tuple(_level(name, sides, level_per, alpha, provenance) for name in LEVELS),
        notices=tuple(dict.fromkeys((*notices, *(each for side in times for each in side.parts.notices)))),
        incomplete=tuple(_incomplete_steps(base, head)) if per == STEP else (),
        abstained=tuple(dict.fromkeys(each for side in times for each in side.parts.abstained)),
        on_host=on_host,
        unit=text,
        scale=work.scale if work else 1,
    )


_ALL_STEPS = """
SELECT run_id, step, bool_and(partial) AS is_left_out, avg(period_ns) AS ns
FROM steps GROUP BY run_id, step ORDER BY run_id, step
"""


def _incomplete_steps(*sides: Selection) -> Iterator[str]:
    """Per side the steps that are complete on no rank, so that what happens in them is not compared."""
    for name, side in zip(("base", "head"), sides, strict=True):
        rows = side.query_all(_ALL_STEPS).rows()
        left_out = [row for row in rows if row["is_left_out"]]
        runs = {row["run_id"] for row in rows}
        if not left_out:
            continue
        counted = f"{len(rows) - len(left_out)} of {plural(len(rows), 'step')}"
        if len(runs) > 1:
            yield f"compared {counted} in the {len(runs)} runs of {name}; the others are incomplete"
            continue
        steps, times = (
            " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
            for texts in (
                [str(row["step"]) for row in left_out],
                [show(row["ns"], "ns") for row in left_out],
            )
        )
        verb = "steps {} are" if len(left_out) > 1 else "step {} is"
        yield f"compared {counted} of {runs.pop()}; {verb.format(steps)} incomplete ({times})"


def _mean_step_ns(times: Sequence[SideTimes], per: str) -> float:
    """The mean step of both sides; raises ParamError if other intervals are broken down."""
    if per != STEP:
        raise ParamError("only times of complete steps can be normalized", f"this breakdown is per {per}")
    found = [side.intervals["length_ns"].to_pylist() for side in times if side.intervals is not None]
    return fmean(ns for side in found for ns in side)


def _with_waits(times: SideTimes, side: Selection, has_blame: bool) -> SideTimes:
    """The same times, with those of exposed waits by the rank that is waited for."""
    waiting = WAIT in times.parts.arrow()["category"].unique().to_pylist()
    return replace(times, waits=exposed_waits(side, has_blame)) if waiting else times


def _provenance(times: Sequence[SideTimes]) -> Provenance:
    base, head = (side.parts.provenance for side in times)
    ranks = {**(base.ranks or {}), **(head.ranks or {})} or None
    return replace(base, runs=(*base.runs, *head.runs), ranks=ranks)


def _level(
    name: str, sides: tuple[SideAmounts, SideAmounts], per: str, alpha: float, provenance: Provenance
) -> Level:
    keys = dict.fromkeys(key for side in sides for key in side.totals if key[0] == name)
    rows = with_awaited_folded([_row(key, sides) for key in keys])
    return Level(name, ranked(_with_tests(rows, sides, alpha)), per, provenance)


def _row(key: Key, sides: tuple[SideAmounts, SideAmounts]) -> Row:
    base, head = (side.totals.get(key, Total()) for side in sides)
    has_calls = base.has_calls or head.has_calls
    of_work = (base.work or head.work) is not None
    counts = [(side.work or 0) if of_work else side.count for side in (base, head)]
    intervals = [side.intervals for side in sides]
    return Row(
        part=key[1],
        base=base.ns / intervals[0],
        head=head.ns / intervals[1],
        base_count=Fraction(counts[0], intervals[0]) if has_calls else None,
        head_count=Fraction(counts[1], intervals[1]) if has_calls else None,
        base_sum=base.sum_ns / intervals[0],
        head_sum=head.sum_ns / intervals[1],
        of_work=of_work,
        replaced=key[0] == "kernels" and key[1] in sides[0].replaced,
        base_replicates=tuple(sides[0].replicate_means(key)),
        head_replicates=tuple(sides[1].replicate_means(key)),
    )


def _with_tests(rows: Sequence[Row], sides: tuple[SideAmounts, SideAmounts], alpha: float) -> list[Row]:
    """The rows with their tests: by run, or by blocks of steps if a side has one run."""
    samples = [list(_replicate_blocks(side)) for side in sides]
    base = [_block_means(row.base_replicates, samples[0]) for row in rows]
    head = [_block_means(row.head_replicates, samples[1]) for row in rows]
    totals = [float(side.length_ns or 1) / side.intervals for side in sides]
    weights = [max(float(row.base) / totals[0], float(row.head) / totals[1]) for row in rows]
    tests = row_tests(base, head, weights, alpha=alpha)
    return [replace(row, test=test) for row, test in zip(rows, tests, strict=True)]


def _replicate_blocks(side: SideAmounts) -> Iterator[list[int]]:
    """The replicates of each independent sample, by index: each run, or blocks of the steps of a run."""
    for _, indexes in groupby(range(len(side.replicates)), key=lambda index: side.replicates[index][0]):
        steps = list(indexes)
        for block in blocks([side.lengths[index] for index in steps]):
            yield [steps[index] for index in block]


def _block_means(values: Sequence[float], samples: Sequence[Sequence[int]]) -> list[float]:
    return [sum(values[index] for index in sample) / len(sample) for sample in samples]


@dataclass(frozen=True)
class SideTimes:
    """Results of one side: `parts` and `kernels` by run, rank and the column `interval`.

    `intervals` are the complete steps with their length_ns; None if all intervals of `parts` count.
    """

    interval: str
    intervals: pa.Table | None
    parts: Result
    kernels: Result
    waits: Result | None = None  # `exposed_wait` of steps by the rank that is waited for


def _has_gpu(side: Selection) -> bool:
    return bool(len(side.query_all("SELECT DISTINCT run_id FROM kernels")))


def resolve_interval(
    per: str | None, sides: tuple[Selection, Selection], on_host: bool = False
) -> tuple[str, list[str]]:
    """The interval to break down, by default the step if possible, and notices; raises ParamError."""
    if per is None:
        if all(_has_enough_steps(side, on_host) for side in sides):
            return STEP, []
        return WINDOW, [f"fewer than {MIN_STEPS} complete steps: the breakdown covers the entire trace"]
    if per in (STEP, WINDOW) or per.startswith(ANNOTATION) and per != ANNOTATION:
        return per, []
    raise ParamError(f"unknown per {per!r}", "use step, window or annotation:NAME")


def _has_enough_steps(side: Selection, on_host: bool) -> bool:
    """Whether every run has a rank with enough complete steps."""
    steps = side.query_all(_HOST_STEPS if on_host else _STEPS).rows()
    most: Counter[str] = Counter()
    for (run, _), count in Counter((row["run_id"], row["rank"]) for row in steps).items():
        most[run] = max(most[run], count)
    return all(most[each.run] >= MIN_STEPS for each in side.selected())


def side_times(name: str, side: Selection, per: str) -> SideTimes:
    """The times of a side per interval; raises TwError if it has none."""
    if per == STEP:
        steps = side.query_all(_STEPS).arrow()
        times = SideTimes("step", steps, side.run("step_account"), side.run("step_kernels"))
        hint = hints.fill("break down the entire trace: {}", hints.option("per", "window"))
        return _check_not_empty(name, times, "no complete step", hint)
    annotation = None if per == WINDOW else per.removeprefix(ANNOTATION)
    results = [side.run(analysis, annotation=annotation) for analysis in ("window_account", "window_kernels")]
    listing = hints.fill("{} lists the annotations", hints.analysis("annotation_breakdown"))
    lacking = f"no {annotation or 'GPU activity'}"
    return _check_not_empty(
        name, SideTimes("occurrence", None, *results), lacking, listing if annotation else None
    )


def host_times(name: str, side: Selection, per: str) -> SideTimes:
    """The same for ranks without GPU activities, by what their training thread runs. Raises ParamError."""
    if per not in (STEP, WINDOW):
        raise ParamError(f"per {per!r} needs GPU activities", "use step or window")
    interval, account, lacking = (
        "step",
        side.run("host_account", entire_trace=per == WINDOW),
        "no complete step",
    )
    kernels = side.run("step_kernels" if per == STEP else "window_kernels")
    steps = side.query_all(_HOST_STEPS).arrow() if per == STEP else None
    if per == WINDOW:
        interval, lacking = "occurrence", "no host slices"
    keys = (Field("run_id", "VARCHAR"), Field("rank", "INTEGER"), Field(interval, "BIGINT"))
    fields = (*keys, Field("category", "VARCHAR"), Field("category_ns", "BIGINT", "ns"))
    parts = from_rows(fields, [_named_row(row) for row in account.rows()])
    parts = replace(
        parts, provenance=account.provenance, abstained=account.abstained, notices=account.notices
    )
    return _check_not_empty(name, SideTimes(interval, steps, parts, kernels), lacking, None)


def _named_row(row: Mapping[str, Any]) -> list[object]:
    """A row of `host_account` by category and name; without a step it is the only interval."""
    interval = 1 if row["step"] is None else row["step"]
    named = f"{row['category']}: {row['name'] or '(no name)'}"
    return [row["run_id"], row["rank"], interval, named, row["self_ns"]]


def _check_not_empty(name: str, times: SideTimes, lacking: str, hint: str | None) -> SideTimes:
    if len(times.parts if times.intervals is None else times.intervals):
        return times
    reason = ", ".join(sorted({each.reason for each in times.parts.abstained})) or lacking
    raise TwError(f"{name} has no data to break down: {reason}", hint)
