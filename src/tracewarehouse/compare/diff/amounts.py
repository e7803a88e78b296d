"""Time of both sides by the rows of each breakdown level: totals of a side, and means of its replicates.

The split into levels is the contract `diff_amounts`. This module fills its inputs: it keeps the intervals
that count, pairs ranks, and recognizes kernels that were replaced by another one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from tracewarehouse.compare.diff.replacements import LocatedKernel, replacements

if TYPE_CHECKING:
    from tracewarehouse.compare.diff.breakdown import SideTimes
    from tracewarehouse.contracts.catalog import Catalog
    from tracewarehouse.duck.engine import Connection


Roles = tuple[Mapping[int, str], Mapping[int, str]]
Key = tuple[str, str]  # level and name
Replicate = tuple[Any, ...]  # a run, or a step of a run
Divisors = tuple[Mapping[str, Fraction], Mapping[str, Fraction]]  # of the times of each run, per side

SIDES = ("base", "head")
LEVELS = ("breakdown", "kernels", "operators", "categories", "modules", "work", "ranks")
_LABELED = ("kind", "name", "path_sig", "op_sig")  # what identifies a kernel at its location

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
_KERNELS = """
SELECT
  kernels.* EXCLUDE ({interval}),
  '{side}' AS side,
  {interval} AS interval_id,
  coalesce(replaced.label, kernels.name) AS label
FROM {side}_kernels_result AS kernels
LEFT JOIN {side}_replaced AS replaced
  ON replaced.kind = kernels.kind
  AND replaced.name = kernels.name
  AND replaced.path_sig IS NOT DISTINCT FROM kernels.path_sig
  AND replaced.op_sig IS NOT DISTINCT FROM kernels.op_sig
SEMI JOIN {side}_intervals AS used
  ON used.run_id = kernels.run_id AND used.rank = kernels.rank AND used.interval_id = {interval}
"""
_LOCATED = """
SELECT kind, name, path_sig, op_sig, sum(count)::BIGINT, sum(exclusive_ns)::BIGINT
FROM {side}_kernels_result
SEMI JOIN {side}_intervals AS used
  ON used.run_id = {side}_kernels_result.run_id
  AND used.rank = {side}_kernels_result.rank
  AND used.interval_id = {interval}
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
  sum(work),
  {replicate}
FROM diff_amounts
WHERE side = '{side}'
GROUP BY level, name, {replicate}
ORDER BY level, name, {replicate}
"""


@dataclass(frozen=True)
class Total:
    """A row of one side over all its intervals; `has_calls` is False if it does not consist of kernels.

    `work` are its FLOP or bytes; None if it is not counted in them.
    """

    ns: Fraction = Fraction(0)
    count: int = 0
    sum_ns: Fraction = Fraction(0)
    has_calls: bool = False
    work: int | None = None

    def __add__(self, other: Total) -> Total:
        return Total(
            self.ns + other.ns,
            self.count + other.count,
            self.sum_ns + other.sum_ns,
            self.has_calls or other.has_calls,
            (self.work or 0) + (other.work or 0) if self.work is not None or other.work is not None else None,
        )


@dataclass(frozen=True)
class SideAmounts:
    """One side: its intervals and their total length, and the total and replicates' means of each row."""

    intervals: int
    length_ns: Fraction
    totals: Mapping[Key, Total]
    replicates: tuple[Replicate, ...]
    lengths: tuple[float, ...]  # the mean interval of each replicate
    means: Mapping[Key, Mapping[Replicate, Fraction]] = field(repr=False)
    replaced: frozenset[str] = frozenset()  # labels of kernels that another one replaced

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
) -> tuple[SideAmounts, SideAmounts]:
    """Both sides by level and row; a replicate is a run if `by_run`, else a step of a run.

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
        replaced = _label_replaced(con, base.interval)
        _label_ranks(con, roles)
        for contract, sql in ((segments, _SEGMENTS), (kernels, _KERNELS)):
            engine.create_table(con, contract)
            for side in SIDES:
                engine.fill_table(con, contract, sql.format(side=side, interval=base.interval))
        engine.create_table(con, levels, levels.body)
        left, right = (
            _side(con, side, by_run, replaced, by) for side, by in zip(SIDES, divisors, strict=True)
        )
        return left, right


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
    parts = _PARTS
    if times.waits is not None:
        con.register(f"{side}_waits_result", times.waits.arrow())
        parts += _WAITS
    con.execute(f"CREATE VIEW {side}_parts AS {parts.format(side=side, interval=times.interval)}")


def _label_replaced(con: Connection, interval: str) -> frozenset[str]:
    """Creates the tables `base_replaced` and `head_replaced` with labels `A → B`; returns the labels."""
    from tracewarehouse.duck.engine import create_from_rows

    located = {
        side: [
            LocatedKernel(*row)
            for row in con.execute(_LOCATED.format(side=side, interval=interval)).fetchall()
        ]
        for side in SIDES
    }
    sizes = [con.execute(f"SELECT count(*) FROM {side}_intervals").fetchall()[0][0] for side in SIDES]
    new_names, old_names = replacements(located["base"], located["head"], sizes[1] / sizes[0])
    labels = {
        "base": {kernel: f"{kernel.name} → {new}" for kernel, new in new_names.items()},
        "head": {kernel: f"{old} → {kernel.name}" for kernel, old in old_names.items()},
    }
    types = dict.fromkeys((*_LABELED, "label"), "VARCHAR")
    for side, by_kernel in labels.items():
        rows = [
            {**{name: getattr(kernel, name) for name in _LABELED}, "label": label}
            for kernel, label in by_kernel.items()
        ]
        create_from_rows(con, f"{side}_replaced", types, rows)
    return frozenset(label for by_kernel in labels.values() for label in by_kernel.values())


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
    paired = len(ranks[0]) == len(ranks[1])
    for number, side in enumerate(SIDES):
        others = ranks[1 - number] if paired else []
        rows = [
            {
                "rank": rank,
                "label": roles[number].get(rank, str(rank)) if roles else _rank_label(number, rank, other),
            }
            for rank, other in zip_longest(ranks[number], others)
        ]
        create_from_rows(con, f"{side}_ranks", {"rank": "INTEGER", "label": "VARCHAR"}, rows)


def _rank_label(side: int, rank: int, other: int | None) -> str:
    if other is None or other == rank:
        return str(rank)
    return f"{other} → {rank}" if side else f"{rank} → {other}"


def _side(
    con: Connection, side: str, by_run: bool, replaced: frozenset[str], divisors: Mapping[str, Fraction]
) -> SideAmounts:
    replicate = "run_id" if by_run else "run_id, interval_id"
    lengths = con.execute(
        f"SELECT count(*), sum(length_ns)::BIGINT, {replicate} FROM {side}_intervals"
        f" GROUP BY {replicate} ORDER BY {replicate}"
    ).fetchall()
    sizes = {tuple(key): intervals for intervals, _, *key in lengths}
    one = Fraction(1)
    times = [Fraction(ns) / divisors.get(key[0], one) for _, ns, *key in lengths]
    totals: dict[Key, Total] = defaultdict(Total)
    means: dict[Key, dict[Replicate, Fraction]] = defaultdict(dict)
    for level, part, ns, count, sum_ns, has_calls, work, *key in con.execute(
        _TOTALS.format(side=side, replicate=replicate)
    ).fetchall():
        by = divisors.get(key[0], one)
        amount = None if work is None else int(work)
        totals[level, part] += Total(ns / by, count, sum_ns / by, has_calls, amount)
        means[level, part][tuple(key)] = ns / by / sizes[tuple(key)]
    return SideAmounts(
        intervals=sum(sizes.values()),
        length_ns=sum(times, start=Fraction(0)),
        totals=dict(totals),
        replicates=tuple(sizes),
        lengths=tuple(float(ns / size) for ns, size in zip(times, sizes.values(), strict=True)),
        means=means,
        replaced=replaced,
    )
