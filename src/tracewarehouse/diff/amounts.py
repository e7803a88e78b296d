"""Time of both sides by the rows of each breakdown level: totals of a side, and means of its replicates.

The split into levels is the contract `diff_amounts`. This module fills its inputs: it keeps the intervals
that count, pairs ranks, and recognizes kernels that were replaced by another one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracewarehouse.contracts.catalog import Catalog
    from tracewarehouse.diff.breakdown import SideTimes
    from tracewarehouse.duck.engine import Connection


Roles = tuple[Mapping[int, str], Mapping[int, str]]
Key = tuple[str, str]  # level and name
Replicate = tuple[object, ...]  # a run, or a step of a run

SIDES = ("base", "head")
LEVELS = ("breakdown", "kernels", "operators", "categories", "modules", "work", "ranks")
_COUNT_TOLERANCE = 0.02  # of the calls per interval of a kernel and its replacement
_LABELED = ("kind", "name", "path_sig", "op_sig")  # what identifies a kernel at its location

_INTERVALS = "SELECT run_id, rank, {interval} AS interval_id, {length_ns}::BIGINT AS length_ns FROM {source}"
_SEGMENTS = """
SELECT run_id, rank, '{side}' AS side, {interval} AS interval_id, label AS rank_label, category, category_ns
FROM {side}_parts_result
JOIN {side}_ranks USING (rank)
SEMI JOIN {side}_intervals AS used
  ON used.run_id = {side}_parts_result.run_id
  AND used.rank = {side}_parts_result.rank
  AND used.interval_id = {interval}
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

    ns: int = 0
    count: int = 0
    sum_ns: int = 0
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
    length_ns: int
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
    catalog: Catalog, base: SideTimes, head: SideTimes, by_run: bool, roles: Roles | None
) -> tuple[SideAmounts, SideAmounts]:
    """Both sides by level and row; a replicate is a run if `by_run`, else a step of a run.

    With `roles`, rank to role on each side, ranks of one role are paired; else those of one number.
    """
    from tracewarehouse.duck import engine

    contracts = [
        catalog.get(name, kind="table") for name in ("diff_segments", "diff_kernels", "diff_amounts")
    ]
    segments, kernels, levels = contracts
    with engine.connect() as con:
        for side, times in zip(SIDES, (base, head), strict=True):
            _register(con, side, times)
        replaced = _label_replaced(con, base.interval)
        _label_ranks(con, roles)
        for contract, sql in ((segments, _SEGMENTS), (kernels, _KERNELS)):
            engine.create_table(con, contract)
            for side in SIDES:
                engine.fill_table(con, contract, sql.format(side=side, interval=base.interval))
        engine.create_table(con, levels, levels.body)
        return _side(con, "base", by_run, replaced), _side(con, "head", by_run, replaced)


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


def _side(con: Connection, side: str, by_run: bool, replaced: frozenset[str]) -> SideAmounts:
    replicate = "run_id" if by_run else "run_id, interval_id"
    lengths = con.execute(
        f"SELECT count(*), sum(length_ns)::BIGINT, {replicate} FROM {side}_intervals"
        f" GROUP BY {replicate} ORDER BY {replicate}"
    ).fetchall()
    sizes = {tuple(key): intervals for intervals, _, *key in lengths}
    totals: dict[Key, Total] = defaultdict(Total)
    means: dict[Key, dict[Replicate, Fraction]] = defaultdict(dict)
    for level, part, ns, count, sum_ns, has_calls, work, *key in con.execute(
        _TOTALS.format(side=side, replicate=replicate)
    ).fetchall():
        totals[level, part] += Total(ns, count, sum_ns, has_calls, None if work is None else int(work))
        means[level, part][tuple(key)] = Fraction(ns, sizes[tuple(key)])
    return SideAmounts(
        intervals=sum(sizes.values()),
        length_ns=sum(ns for _, ns, *_ in lengths),
        totals=dict(totals),
        replicates=tuple(sizes),
        lengths=tuple(ns / intervals for intervals, ns, *_ in lengths),
        means=means,
        replaced=replaced,
    )


@dataclass(frozen=True)
class LocatedKernel:
    """A kernel at a location of the model, on one side: how often it ran there and for how long."""

    kind: str
    name: str
    path_sig: str | None
    op_sig: str | None
    count: int = field(compare=False)
    ns: int = field(compare=False)


Location = tuple[Hashable, ...]
Locate = Callable[[LocatedKernel], Location | None]


def replacements(
    base: Sequence[LocatedKernel], head: Sequence[LocatedKernel], scale: float = 1.0
) -> tuple[dict[LocatedKernel, str], dict[LocatedKernel, str]]:
    """The name in head of each kernel of base that was replaced, and the name in base of its replacement.

    A kernel is replaced at a location that it was removed from and where another one of its kind was added
    that does the same work as often: `scale` is the number of intervals of head over that of base. Of
    several, the most frequent are paired first; the remaining ones are removed, or added.
    """
    new_names: dict[LocatedKernel, str] = {}
    old_names: dict[LocatedKernel, str] = {}
    for locate in _locators(base, head):
        before, after = _by_location(base, locate), _by_location(head, locate)
        for location in before.keys() & after.keys():
            old, new = before[location], after[location]
            common = {kernel.name for kernel in old} & {kernel.name for kernel in new}
            removed = _by_name(kernel for kernel in old if kernel not in new_names)
            added = _by_name(kernel for kernel in new if kernel not in old_names)
            left = _most_frequent(added, common)
            for old_name in _most_frequent(removed, common):
                fits = (name for name in left if _can_replace(removed[old_name], added[name], scale))
                new_name = next(fits, None)
                if new_name is None:
                    continue
                left.remove(new_name)
                new_names |= dict.fromkeys(removed[old_name], new_name)
                old_names |= dict.fromkeys(added[new_name], old_name)
    return new_names, old_names


_ROLES = {
    "matrix product": ("gemm", "cutlass", "xmma", "matmul", "conv", "wgrad", "dgrad", "winograd"),
    "attention": ("flash", "fmha", "attention", "attn"),
    "normalization": ("softmax", "norm"),
    "optimizer": ("multi_tensor", "adam", "sgd"),
    "reduction": ("reduce", "triton_red"),
    "pointwise": ("elementwise", "triton_poi", "pointwise"),
    "embedding": ("embedding", "gather", "scatter", "index"),
}


def _role(name: str) -> str | None:
    """What a kernel of this name does; None if its name does not say."""
    lowered = name.lower()
    return next((role for role, words in _ROLES.items() if any(word in lowered for word in words)), None)


def _can_replace(old: Sequence[LocatedKernel], new: Sequence[LocatedKernel], scale: float) -> bool:
    """Whether a kernel does the work of another: as often per interval, and with no other role."""
    counts = sum(kernel.count for kernel in old) * scale, sum(kernel.count for kernel in new)
    roles = _role(old[0].name), _role(new[0].name)
    as_often = abs(counts[0] - counts[1]) <= _COUNT_TOLERANCE * max(counts)
    return as_often and (None in roles or roles[0] == roles[1])


def _locators(base: Sequence[LocatedKernel], head: Sequence[LocatedKernel]) -> tuple[Locate, ...]:
    """What a location is, the narrowest first: path and operator, path, operator where paths differ."""
    paths = {kernel.path_sig for kernel in base} & {kernel.path_sig for kernel in head}

    def path_and_operator(kernel: LocatedKernel) -> Location | None:
        return None if kernel.path_sig is None else (kernel.kind, kernel.path_sig, kernel.op_sig)

    def path(kernel: LocatedKernel) -> Location | None:
        return None if kernel.path_sig is None else (kernel.kind, kernel.path_sig)

    def operator(kernel: LocatedKernel) -> Location | None:
        known = kernel.op_sig is not None and kernel.path_sig not in paths
        return (kernel.kind, kernel.op_sig) if known else None

    return path_and_operator, path, operator


def _by_location(kernels: Iterable[LocatedKernel], locate: Locate) -> dict[Location, list[LocatedKernel]]:
    grouped: dict[Location, list[LocatedKernel]] = defaultdict(list)
    for kernel in kernels:
        location = locate(kernel)
        if location is not None:
            grouped[location].append(kernel)
    return grouped


def _by_name(kernels: Iterable[LocatedKernel]) -> dict[str, list[LocatedKernel]]:
    grouped: dict[str, list[LocatedKernel]] = defaultdict(list)
    for kernel in kernels:
        grouped[kernel.name].append(kernel)
    return grouped


def _most_frequent(by_name: Mapping[str, Sequence[LocatedKernel]], common: set[str]) -> list[str]:
    """The names that are not on both sides, the most frequent first."""
    sums: dict[str, Any] = {
        name: (-sum(kernel.count for kernel in kernels), -sum(kernel.ns for kernel in kernels), name)
        for name, kernels in by_name.items()
        if name not in common
    }
    return sorted(sums, key=lambda name: sums[name])
