"""Breakdown of the change in mean step time: levels that each sum exactly to both means, with tests per row.

The mean is over complete steps of a rank, its GPU windows, or occurrences of an annotation. The contract
`diff_amounts` splits it into levels; this module fills its inputs: it keeps the intervals that count, and
pairs ranks, and kernels that do the same work under other names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from itertools import groupby, zip_longest
from statistics import fmean
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.compare.diff.comparable import roles
from tracewarehouse.compare.diff.levels import (
    COMPLETE_STEPS,
    OWN_WORK,
    WAIT,
    ZERO,
    Level,
    Row,
    both_have_attribution,
    exposed_waits,
    of_both_sides,
    ranked,
    with_awaited_folded,
)
from tracewarehouse.compare.diff.pairing import LocatedKernel, replacements
from tracewarehouse.compare.metric.expression import WorkUnit
from tracewarehouse.compare.stats.two_sample import MIN_SAMPLES
from tracewarehouse.compare.stats.verdict import blocks
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import ParamError, TwError
from tracewarehouse.present.render.text import plural, show
from tracewarehouse.query.selection import Selection
from tracewarehouse.result import Field, Provenance, Result, Skipped, from_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from tracewarehouse.compare.diff.gate import Work
    from tracewarehouse.duck.engine import Connection


Roles = tuple[Mapping[int, str], Mapping[int, str]]
Key = tuple[str, str]  # level and name
Replicate = tuple[Any, ...]  # a run, or a step of a run
Divisors = tuple[Mapping[str, Fraction], Mapping[str, Fraction]]  # of the times of each run, per side

SIDES = ("base", "head")
LEVELS = ("breakdown", "kernels", "operators", "categories", "modules", "work", "ranks")
_LABELED = ("kind", "name", "path_sig", "op_sig", "module_path")  # what identifies a kernel at its location

_INTERVALS = "SELECT run_id, rank, {interval} AS interval_id, {length_ns}::BIGINT AS length_ns FROM {source}"
_SEGMENTS = """
SELECT
  parts.run_id,
  parts.rank,
  '{side}' AS side,
  parts.interval_id,
  own.label AS rank_label,
  parts.category,
  awaited.label AS waits_for,
  parts.category_ns
FROM {side}_parts AS parts
JOIN {side}_ranks AS own USING (rank)
LEFT JOIN {side}_ranks AS awaited ON awaited.rank = parts.waits_for
SEMI JOIN {side}_intervals AS used
  ON used.run_id = parts.run_id AND used.rank = parts.rank AND used.interval_id = parts.interval_id
"""
_PARTS = """
SELECT run_id, rank, {interval} AS interval_id, category, NULL::INTEGER AS waits_for, category_ns
FROM {side}_parts_result
"""
_WAITS = """
WHERE category <> 'exposed_wait'
UNION ALL
SELECT run_id, rank, step, 'exposed_wait', waits_for, wait_ns FROM {side}_waits_result
"""
_IN_INTERVALS = """
SELECT kernels.* EXCLUDE ({interval}), {interval} AS interval_id
FROM {side}_kernels_result AS kernels
SEMI JOIN {side}_intervals AS used
  ON used.run_id = kernels.run_id AND used.rank = kernels.rank AND used.interval_id = {interval}
"""
_KERNELS = """
SELECT kernels.*, '{side}' AS side, coalesce(replaced.label, kernels.name) AS label
FROM {side}_kernels AS kernels
LEFT JOIN {side}_replaced AS replaced
  ON replaced.kind = kernels.kind
  AND replaced.name = kernels.name
  AND replaced.path_sig IS NOT DISTINCT FROM kernels.path_sig
  AND replaced.op_sig IS NOT DISTINCT FROM kernels.op_sig
  AND replaced.module_path = kernels.module_path
"""
_LOCATED = """
SELECT kind, name, path_sig, op_sig, sum(count)::BIGINT, sum(exclusive_ns)::BIGINT, module_path
FROM {side}_kernels
WHERE name IS NOT NULL
GROUP BY ALL
ORDER BY ALL
"""
_TOTALS = """
SELECT
  level,
  name,
  sum(exclusive_ns)::BIGINT,
  coalesce(sum(count), 0)::BIGINT,
  coalesce(sum(sum_ns), 0)::BIGINT,
  count(count) > 0,
  CASE WHEN count(work) = count(*) THEN sum(work) END,
  CASE WHEN min(work_unit) = max(work_unit) THEN min(work_unit) END,
  {replicate}
FROM (FROM diff_amounts UNION ALL ({own}))
WHERE side = '{side}'
GROUP BY level, name, {replicate}
ORDER BY level, name, {replicate}
"""

# Own time of each rank, that is without communication and waiting, as a level.
_OWN = """
SELECT amounts.* REPLACE (format('rank {{}}{own_work}', ranks.label) AS level, NULL AS interval_id)
FROM diff_amounts AS amounts
JOIN {side}_ranks AS ranks USING (rank)
WHERE level = 'kernels' AND side = '{side}' AND NOT starts_with(name, 'waiting: ')
  AND name NOT IN (SELECT coalesce(label, '(no name)') FROM diff_kernels WHERE kind = 'communication')
"""


class Total(Struct, frozen=True):
    """A row of one side over all its intervals; `has_calls` is False if it does not consist of kernels.

    `work` are its FLOP or bytes; None if they are not known of all of it.
    """

    ns: Fraction = Fraction(0)
    count: int = 0
    sum_ns: Fraction = Fraction(0)
    has_calls: bool = False
    work: Fraction | None = Fraction(0)
    work_unit: str | None = None

    def __add__(self, other: Total) -> Total:
        is_known = self.work is not None and other.work is not None
        units = {self.work_unit, other.work_unit} - {None}
        return Total(
            self.ns + other.ns,
            self.count + other.count,
            self.sum_ns + other.sum_ns,
            self.has_calls or other.has_calls,
            (self.work or ZERO) + (other.work or ZERO) if is_known and len(units) == 1 else None,
            units.pop() if len(units) == 1 else None,
        )


class SideAmounts(Struct, frozen=True):
    """One side: its intervals and their total length, and the total and replicates' means of each row."""

    intervals: int
    length_ns: Fraction
    totals: Mapping[Key, Total]
    replicates: tuple[Replicate, ...]
    lengths: tuple[float, ...]  # the mean interval of each replicate
    means: Mapping[Key, Mapping[Replicate, Fraction]]
    joined: Mapping[str, str] = {}  # what happened to kernels that are one row, by its label

    def replicate_means(self, key: Key) -> list[float]:
        """The mean of a row in each replicate, 0 where it is absent."""
        means = self.means.get(key, {})
        return [float(means.get(replicate, 0)) for replicate in self.replicates]


def amounts(
    catalog: Catalog,
    base: SideTimes,
    head: SideTimes,
    by_run: bool,
    roles: Roles | None,
    divisors: Divisors = ({}, {}),
    jobs: Mapping[str, str] = {},
) -> tuple[SideAmounts, SideAmounts]:
    """Both sides by level and row; a replicate is a run if `by_run`, else a step of a run.

    Runs of one job (`jobs`: by run), the profiling windows of its processes, are one replicate.

    With `roles`, rank to role on each side, ranks of one role are paired; else those of one number. Times of
    runs in `divisors` are divided, exactly.
    """
    from tracewarehouse.duck import engine
    from tracewarehouse.duck.engine import scratch

    contracts = [
        catalog.get(name, kind="table") for name in ("diff_segments", "diff_kernels", "diff_amounts")
    ]
    segments, kernels, levels = contracts
    with scratch() as con:
        for side, times in zip(SIDES, (base, head), strict=True):
            _register(con, side, times)
        joined = _label_joined(con)
        _label_ranks(con, roles)
        for contract, sql in ((segments, _SEGMENTS), (kernels, _KERNELS)):
            engine.create_table(con, contract)
            for side in SIDES:
                engine.fill_table(con, contract, sql.format(side=side))
        engine.create_table(con, levels, levels.body)
        base_amounts, head_amounts = (
            _side(con, side, by_run, joined, divisor, jobs)
            for side, divisor in zip(SIDES, divisors, strict=True)
        )
        return base_amounts, head_amounts


def _register(con: Connection, side: str, times: SideTimes) -> None:
    """Registers the results of a side, and creates the table of its intervals."""
    con.register(f"{side}_parts_result", times.parts.arrow())
    con.register(f"{side}_kernels_result", times.kernels.arrow())
    source, length_ns = f"{side}_parts_result GROUP BY ALL", "sum(category_ns)"
    if times.intervals is not None:
        con.register(f"{side}_intervals_result", times.intervals)
        source, length_ns = f"{side}_intervals_result", "length_ns"
    sql = _INTERVALS.format(interval=times.interval, length_ns=length_ns, source=source)
    con.execute(f"CREATE TABLE {side}_intervals AS {sql}")
    con.execute(f"CREATE VIEW {side}_kernels AS {_IN_INTERVALS.format(side=side, interval=times.interval)}")
    parts = _PARTS
    if times.waits is not None:
        con.register(f"{side}_waits_result", times.waits.arrow())
        parts += _WAITS
    con.execute(f"CREATE VIEW {side}_parts AS {parts.format(side=side, interval=times.interval)}")


def _label_joined(con: Connection) -> dict[str, str]:
    """Creates the tables `base_replaced` and `head_replaced` with labels `A → B`; returns what they mean."""
    from tracewarehouse.duck.engine import create_from_rows

    located = [
        [LocatedKernel(*row) for row in con.execute(_LOCATED.format(side=side)).fetchall()] for side in SIDES
    ]
    sizes = [con.execute(f"SELECT count(*) FROM {side}_intervals").fetchall()[0][0] for side in SIDES]
    replaced = replacements(located[0], located[1], sizes[1] / sizes[0])
    types = dict.fromkeys((*_LABELED, "label"), "VARCHAR")
    for side, by_kernel in zip(SIDES, replaced, strict=True):
        rows = [
            {**{name: getattr(kernel, name) for name in _LABELED}, "label": joined.label}
            for kernel, joined in by_kernel.items()
        ]
        create_from_rows(con, f"{side}_replaced", types, rows)
    return {joined.label: joined.change for side in replaced for joined in side.values()}


def _label_ranks(con: Connection, roles: Roles | None) -> None:
    """Creates the tables `base_ranks` and `head_ranks` with the label that pairs ranks of both sides.

    Ranks are paired by role, else by number; in their order if both sides have the same number of ranks.
    """
    from tracewarehouse.duck.engine import create_from_rows

    ranks = [
        [
            rank
            for (rank,) in con.execute(f"SELECT DISTINCT rank FROM {side}_intervals ORDER BY rank").fetchall()
        ]
        for side in SIDES
    ]
    are_paired = len(ranks[0]) == len(ranks[1])
    for number, side in enumerate(SIDES):
        partners = ranks[1 - number] if are_paired else []
        rows = [
            {
                "rank": rank,
                "label": roles[number].get(rank, str(rank)) if roles else _rank_label(number, rank, partner),
            }
            for rank, partner in zip_longest(ranks[number], partners)
        ]
        create_from_rows(con, f"{side}_ranks", {"rank": "INTEGER", "label": "VARCHAR"}, rows)


def _rank_label(side: int, rank: int, other: int | None) -> str:
    if other is None or other == rank:
        return str(rank)
    return f"{other} → {rank}" if side else f"{rank} → {other}"


def _side(
    con: Connection,
    side: str,
    by_run: bool,
    joined: Mapping[str, str],
    divisors: Mapping[str, Fraction],
    jobs: Mapping[str, str],
) -> SideAmounts:
    replicate = "run_id" if by_run else "run_id, interval_id"
    lengths = con.execute(
        f"SELECT count(*), sum(length_ns)::BIGINT, {replicate} FROM {side}_intervals"
        f" GROUP BY {replicate} ORDER BY {replicate}"
    ).fetchall()

    def replicate_of(key: Sequence[Any]) -> Replicate:
        return (jobs.get(key[0], key[0]),) if by_run else tuple(key)

    sizes: Counter[Replicate] = Counter()
    times: dict[Replicate, Fraction] = defaultdict(Fraction)
    unchanged = Fraction(1)
    for intervals, ns, *key in lengths:
        sizes[replicate_of(key)] += intervals
        times[replicate_of(key)] += Fraction(ns) / divisors.get(key[0], unchanged)
    totals: dict[Key, Total] = defaultdict(Total)
    means: dict[Key, dict[Replicate, Fraction]] = defaultdict(partial(defaultdict, Fraction))
    for level, name, ns, count, sum_ns, has_calls, work, unit, *key in con.execute(
        _TOTALS.format(side=side, replicate=replicate, own=_OWN.format(side=side, own_work=OWN_WORK))
    ).fetchall():
        divisor = divisors.get(key[0], unchanged)
        amount = None if work is None else int(work) / divisor
        totals[level, name] += Total(ns / divisor, count, sum_ns / divisor, has_calls, amount, unit)
        means[level, name][replicate_of(key)] += ns / divisor / (sizes.get(replicate_of(key)) or 1)
    return SideAmounts(
        intervals=sum(sizes.values()),
        length_ns=sum(times.values(), start=Fraction(0)),
        totals=dict(totals),
        replicates=tuple(sizes),
        lengths=tuple(float(times[replicate_key] / size) for replicate_key, size in sizes.items()),
        means=means,
        joined=joined,
    )


# Complete steps of ranks with GPU activities.
_STEPS = """
SELECT run_id, rank, step, period_ns AS length_ns
FROM steps
SEMI JOIN kernels ON kernels.run_id = steps.run_id AND kernels.rank = steps.rank
WHERE NOT partial
"""
STEP, WINDOW, ANNOTATION = "step", "window", "annotation:"
MIN_STEPS = 3  # complete steps of a rank; with fewer the interval is the window


class Breakdown(Struct, frozen=True):
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
    skipped: tuple[Skipped, ...]  # ranks that are left out
    on_host: bool = False  # without GPU activities: what the training threads run, from `host_account`
    unit: str | None = None  # what times are per, such as `sample`; None if they are of the entire interval
    scale: int = 1  # of how many units of work: 1,000 of `1,000 tokens`
    incomplete: tuple[str, ...] = ()  # the steps that are left out because they are incomplete, in words
    own: Mapping[Key, Row] = {}  # by its row in `ranks` and name, a rank's own time per interval of that rank

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
    that is `exposed_wait for rank N`, for the rank that arrived last or, with waits attributed on both sides,
    the one that caused most of the wait; a slow link shows as `exposed_transfer`. In `ranks` the late rank's
    own time grew, of the others only their waiting. Ranks are paired by number; by their role in the job if
    the layouts differ; in order if the numbers differ but both sides have as many.
    """
    on_host = not any(len(side.query("SELECT DISTINCT run_id FROM kernels")) for side in (base, head))
    is_chosen = per is not None
    per, notices = resolve_interval(per, (base, head), on_host)
    read = host_times if on_host else side_times
    times = read("base", base, per), read("head", head, per)
    if per == STEP and not on_host:
        has_attribution = both_have_attribution(base, head)
        times = _with_waits(times[0], base, has_attribution), _with_waits(times[1], head, has_attribution)
    jobs = {run.run: run.job for side in (base, head) for run in side.selected()}
    by_run = sum(len({run.job for run in side.selected()}) for side in (base, head)) >= MIN_SAMPLES
    if work is not None:
        work = work.scaled(_mean_step_ns(times, per))
    divisors: Divisors = work.divisors if work else ({}, {})
    unit = work.text if work else None
    if per == WINDOW and not is_chosen and (steps := _unequal_steps(base, head)):
        divisors, unit = steps, STEP
        notices.append("the windows have different numbers of steps: times are per recorded step")
    sides = amounts(catalog or Catalog.load(), *times, by_run, roles(base, head), divisors, jobs)
    level_per = f"{per} per {unit}" if unit else per
    labeled = _labeling(base, head) if per == STEP and work is None else replace
    provenance = of_both_sides(*(side.parts.provenance for side in times))
    means = [side.length_ns / side.intervals for side in sides]
    own_keys = dict.fromkeys(key for side in sides for key in side.totals if key[0].endswith(OWN_WORK))
    ranks = max(1, len({rank for rank, _ in own_keys}))
    return Breakdown(
        per=per,
        base_mean=means[0],
        head_mean=means[1],
        base_intervals=sides[0].intervals,
        head_intervals=sides[1].intervals,
        replicate="run" if by_run else "step",
        levels=tuple(labeled(_level(name, sides, level_per, alpha, provenance)) for name in LEVELS),
        notices=tuple(dict.fromkeys((*notices, *(line for side in times for line in side.parts.notices)))),
        incomplete=tuple(_incomplete_steps(base, head)) if per == STEP else (),
        skipped=tuple(dict.fromkeys(line for side in times for line in side.parts.skipped)),
        on_host=on_host,
        unit=unit,
        scale=work.scale if work else 1,
        own={key: _row(key, sides, ranks) for key in own_keys} if ranks > 1 else {},
    )


def _labeling(*sides: Selection) -> Callable[[Level], Level]:
    """Adds the work of a step by the labels of all runs, tokens or else samples, to rows of calls."""
    for name in ("token", "sample"):
        with suppress(TwError):
            unit = WorkUnit.parse(name)
            works = [[unit.of(run.version) for run in side.selected()] for side in sides]
            base, head = (sum(work, ZERO) / len(work) for work in works)
            return lambda level: level.with_labeled(f"{name}s", base, head)
    return replace


def _unequal_steps(base: Selection, head: Selection) -> Divisors | None:
    """The steps that a rank recorded in each run; None if there are as many in all, or a run has none."""
    sql = "SELECT run_id, count(*) AS steps, count(DISTINCT rank) AS ranks FROM steps GROUP BY run_id"
    sides = [
        {row["run_id"]: Fraction(row["steps"], row["ranks"]) for row in side.query(sql).rows()}
        for side in (base, head)
    ]
    runs = {run.run for side in (base, head) for run in side.selected()}
    is_known = runs == sides[0].keys() | sides[1].keys()
    return (sides[0], sides[1]) if is_known and len({*sides[0].values(), *sides[1].values()}) > 1 else None


_ALL_STEPS = """
SELECT run_id, step, bool_and(partial) AS is_left_out, avg(period_ns) AS ns
FROM steps GROUP BY run_id, step ORDER BY run_id, step
"""


def _incomplete_steps(*sides: Selection) -> Iterator[str]:
    """Per side the steps that are complete on no rank, so that what happens in them is not compared."""
    for name, side in zip(("base", "head"), sides, strict=True):
        rows = side.query(_ALL_STEPS).rows()
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
    lengths_ns = [side.intervals["length_ns"].to_pylist() for side in times if side.intervals is not None]
    return fmean(ns for side in lengths_ns for ns in side)


def _with_waits(times: SideTimes, side: Selection, has_attribution: bool) -> SideTimes:
    """The same times, with those of exposed waits by the rank that is waited for."""
    waiting = WAIT in times.parts.arrow()["category"].unique().to_pylist()
    return replace(times, waits=exposed_waits(side, has_attribution)) if waiting else times


def _level(
    name: str, sides: tuple[SideAmounts, SideAmounts], per: str, alpha: float, provenance: Provenance
) -> Level:
    keys = dict.fromkeys(key for side in sides for key in side.totals if key[0] == name)
    rows = with_awaited_folded([_row(key, sides) for key in keys])
    return Level(name, ranked(_with_tests(rows, sides, alpha)), per, provenance)


def _row(key: Key, sides: tuple[SideAmounts, SideAmounts], ranks: int = 1) -> Row:
    base, head = (side.totals.get(key, Total()) for side in sides)
    has_calls = base.has_calls or head.has_calls
    work = base + head
    of_work = key[0] == "work" and work.work_unit is not None
    counts = [(side.work or ZERO) if of_work else side.count for side in (base, head)]
    intervals = [Fraction(side.intervals, ranks) for side in sides]
    return Row(
        part=key[1],
        base=base.ns / intervals[0],
        head=head.ns / intervals[1],
        base_count=counts[0] / intervals[0] if has_calls else None,
        head_count=counts[1] / intervals[1] if has_calls else None,
        base_sum=base.sum_ns / intervals[0],
        head_sum=head.sum_ns / intervals[1],
        of_work=of_work,
        base_work=None if work.work is None else (base.work or ZERO) / intervals[0],
        head_work=None if work.work is None else (head.work or ZERO) / intervals[1],
        work_unit={"flop": "FLOP"}.get(work.work_unit or "", work.work_unit),
        joined=sides[0].joined.get(key[1]) if key[0] == "kernels" else None,
        base_replicates=tuple(sides[0].replicate_means(key)),
        head_replicates=tuple(sides[1].replicate_means(key)),
    )


def _with_tests(rows: Sequence[Row], sides: tuple[SideAmounts, SideAmounts], alpha: float) -> list[Row]:
    """The rows with their tests: by run, or by blocks of steps if a side has one run."""
    from tracewarehouse.compare.stats.many_series import row_tests

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


class SideTimes(Struct, frozen=True):
    """Results of one side: `parts` and `kernels` by run, rank and the column `interval`.

    `intervals` are the complete steps with their length_ns; None if all intervals of `parts` count.
    """

    interval: str
    intervals: pa.Table | None
    parts: Result
    kernels: Result
    waits: Result | None = None  # `exposed_wait` of steps by the rank that is waited for


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
    raise ParamError(f"unknown interval {per!r}", "use step, window or annotation:NAME")


def _has_enough_steps(side: Selection, on_host: bool) -> bool:
    """Whether every run has a rank with enough complete steps."""
    steps = side.query(COMPLETE_STEPS if on_host else _STEPS).rows()
    most_steps: Counter[str] = Counter()
    for (run, _), count in Counter((row["run_id"], row["rank"]) for row in steps).items():
        most_steps[run] = max(most_steps[run], count)
    return all(most_steps[selected.run] >= MIN_STEPS for selected in side.selected())


def side_times(name: str, side: Selection, per: str) -> SideTimes:
    """The times of a side per interval; raises TwError if it has none."""
    if per == STEP:
        steps = side.query(_STEPS).arrow()
        times = SideTimes("step", steps, side.analyze("step_account"), side.analyze("step_kernels"))
        hint = hints.fill("break down the entire trace: {}", hints.option("interval", "window"))
        return _check_not_empty(name, times, "no complete step", hint)
    annotation = None if per == WINDOW else per.removeprefix(ANNOTATION)
    analyses = "window_account", "window_kernels"
    results = [side.analyze(name_of, annotation=annotation) for name_of in analyses]
    listing = hints.fill("{} lists the annotations", hints.analysis("annotation_breakdown"))
    lacking = f"no {annotation or 'GPU activity'}"
    return _check_not_empty(
        name, SideTimes("occurrence", None, *results), lacking, listing if annotation else None
    )


def host_times(name: str, side: Selection, per: str) -> SideTimes:
    """The same for ranks without GPU activities, by what their training thread runs. Raises ParamError."""
    if per not in (STEP, WINDOW):
        raise ParamError(f"interval {per!r} needs GPU activities", "use step or window")
    account = side.analyze("host_account", entire_trace=per == WINDOW)
    if per == STEP:
        interval, lacking, steps = "step", "no complete step", side.query(COMPLETE_STEPS).arrow()
    else:
        interval, lacking, steps = "occurrence", "no host slices", None
    kernels = side.analyze("step_kernels" if per == STEP else "window_kernels")
    keys = (Field("run_id", "VARCHAR"), Field("rank", "INTEGER"), Field(interval, "BIGINT"))
    fields = (*keys, Field("category", "VARCHAR"), Field("category_ns", "BIGINT", "ns"))
    rows = []
    for row in account.rows():
        number = 1 if row["step"] is None else row["step"]  # without a step it is the only interval
        category = f"{row['category']}: {row['name'] or '(no name)'}"
        rows.append([row["run_id"], row["rank"], number, category, row["self_ns"]])
    parts = replace(
        from_rows(fields, rows),
        provenance=account.provenance,
        skipped=account.skipped,
        notices=account.notices,
    )
    return _check_not_empty(name, SideTimes(interval, steps, parts, kernels), lacking, None)


def _check_not_empty(name: str, times: SideTimes, lacking: str, hint: str | None) -> SideTimes:
    if len(times.parts if times.intervals is None else times.intervals):
        return times
    reason = ", ".join(sorted({rank.reason for rank in times.parts.skipped})) or lacking
    raise TwError(f"{name} has no data to break down: {reason}", hint)
