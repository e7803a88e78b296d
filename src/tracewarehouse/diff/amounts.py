"""What two sides spent, summed up by the levels of an account, over all of a side and by its replicates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracewarehouse.diff.breakdown import Spent


Roles = tuple[Mapping[int, str], Mapping[int, str]]
LEVELS = ("breakdown", "kernels", "operators", "categories", "ranks")

_PLACE = ("kind", "name", "path_sig", "op_sig")

Key = tuple[str, str]  # level and part
Replicate = tuple[object, ...]  # a run, or a step of a run


@dataclass
class Sums:
    """What a part of one side took in all units together; `counted` is False where it is no kernel's."""

    ns: int = 0
    count: int = 0
    sum_ns: int = 0
    counted: bool = False


@dataclass(frozen=True)
class Amounts:
    """One side, summed up: its units, their length, and for each part its sums and its replicates' means."""

    units: int
    length_ns: int
    sums: Mapping[Key, Sums]
    replicates: tuple[Replicate, ...]
    lengths: tuple[float, ...]  # the mean unit of each replicate
    means: Mapping[Key, Mapping[Replicate, Fraction]] = field(repr=False)
    renamed: frozenset[str] = frozenset()

    def of(self, key: Key) -> list[float]:
        """The mean of a part in each replicate, 0 where it is absent."""
        found = self.means.get(key, {})
        return [float(found.get(each, 0)) for each in self.replicates]


def amounts(base: Spent, head: Spent, by_run: bool, roles: Roles | None) -> tuple[Amounts, Amounts]:
    """Both sides by level and part; a replicate is a run where `by_run`, else a step of a run.

    With `roles`, rank to role on each side, ranks of one role are one part; else those of one number.
    """
    from tracewarehouse.duck.engine import connect

    with connect() as con:
        for side, spent in (("base", base), ("head", head)):
            _tell(con, side, spent)
        renamed = _label(con)
        _pair_ranks(con, roles)
        return _side(con, "base", by_run, renamed), _side(con, "head", by_run, renamed)


def _tell(con: Any, side: str, spent: Spent) -> None:
    """Makes the tables of a side: `_units`, and `_parts` and `_kernels` of these units alone."""
    for name, result in (("parts", spent.parts), ("kernels", spent.kernels)):
        con.register(f"{side}_{name}_told", result.arrow())
    if spent.units is None:
        sums = "sum(category_ns)::BIGINT AS length_ns"
        told = f"{spent.unit} AS unit, {sums} FROM {side}_parts_told GROUP BY ALL"
    else:
        con.register(f"{side}_units_told", spent.units)
        told = f"unit, length_ns FROM {side}_units_told"
    con.execute(f"CREATE TABLE {side}_units AS SELECT run_id, rank, {told}")
    for name in ("parts", "kernels"):
        told = f"(SELECT *, {spent.unit} AS unit FROM {side}_{name}_told)"
        same = f"SEMI JOIN {side}_units USING (run_id, rank, unit)"
        con.execute(f"CREATE TABLE {side}_{name} AS SELECT * FROM {told} {same}")


def _label(con: Any) -> frozenset[str]:
    """Makes the tables of other names, `base_names` and `head_names`: A → B; gives these labels."""
    from tracewarehouse.duck.engine import create_from_rows

    cells = {side: _cells(con, side) for side in ("base", "head")}
    forth, back = renames(cells["base"], cells["head"])
    labels = {
        "base": {cell: f"{cell.name} → {other}" for cell, other in forth.items()},
        "head": {cell: f"{other} → {cell.name}" for cell, other in back.items()},
    }
    for side, named in labels.items():
        rows = [
            {**{name: getattr(cell, name) for name in _PLACE}, "label": label}
            for cell, label in named.items()
        ]
        create_from_rows(con, f"{side}_names", dict.fromkeys((*_PLACE, "label"), "VARCHAR"), rows)
    return frozenset(label for named in labels.values() for label in named.values())


def _pair_ranks(con: Any, roles: Roles | None) -> None:
    """Makes the tables of ranks' names: by role, else by number, in their order where others are as many."""
    from tracewarehouse.duck.engine import create_from_rows

    base, head = (
        [rank for (rank,) in con.execute(f"SELECT DISTINCT rank FROM {side}_units ORDER BY rank").fetchall()]
        for side in ("base", "head")
    )
    pairs = list(zip(base, head, strict=True)) if len(base) == len(head) else []
    label = {pair: f"{pair[0]}" if pair[0] == pair[1] else f"{pair[0]} → {pair[1]}" for pair in pairs}
    for side, place, ranks in (("base", 0, base), ("head", 1, head)):
        named = roles[place] if roles else {pair[place]: text for pair, text in label.items()}
        rows = [{"rank": rank, "label": named.get(rank, str(rank))} for rank in ranks]
        create_from_rows(con, f"{side}_ranks", {"rank": "INTEGER", "label": "VARCHAR"}, rows)


def _cells(con: Any, side: str) -> list[Cell]:
    rows = con.execute(
        "SELECT kind, name, path_sig, op_sig, sum(count)::BIGINT, sum(exclusive_ns)::BIGINT"
        f" FROM {side}_kernels WHERE name IS NOT NULL GROUP BY ALL ORDER BY ALL"
    )
    return [Cell(*row) for row in rows.fetchall()]


def _side(con: Any, side: str, by_run: bool, renamed: frozenset[str]) -> Amounts:
    con.execute(f"CREATE TABLE {side}_amounts AS {_AMOUNTS.format(side=side)}")
    units, length_ns = con.execute(
        f"SELECT count(*), coalesce(sum(length_ns), 0)::BIGINT FROM {side}_units"
    ).fetchone()
    keys = "run_id" if by_run else "run_id, unit"
    told = con.execute(
        f"SELECT count(*), sum(length_ns)::BIGINT, {keys} FROM {side}_units GROUP BY {keys} ORDER BY {keys}"
    ).fetchall()
    sizes = {tuple(key): ranks for ranks, _, *key in told}
    return Amounts(
        units=units,
        length_ns=length_ns,
        sums=_sums(con, side),
        replicates=tuple(sizes),
        lengths=tuple(ns / ranks for ranks, ns, *_ in told),
        means=_means(con, side, keys, sizes),
        renamed=renamed,
    )


# Busy time by kernel, operator and category; idle time is told apart on every level, so that each is whole.
_AMOUNTS = """
SELECT
  level,
  category AS part,
  run_id,
  rank,
  unit,
  category_ns AS ns,
  NULL::BIGINT AS count,
  NULL::BIGINT AS sum_ns
FROM {side}_parts
CROSS JOIN (VALUES ('breakdown'), ('kernels'), ('operators'), ('categories')) AS levels (level)
WHERE level = 'breakdown' OR starts_with(category, 'idle_')
UNION ALL
SELECT
  'ranks',
  format('rank {{}} {{}}', named.label, if(category = 'exposed_comm', category, 'own')),
  run_id,
  rank,
  unit,
  category_ns,
  NULL,
  NULL
FROM {side}_parts
JOIN {side}_ranks AS named USING (rank)
UNION ALL
SELECT
  'kernels',
  coalesce(names.label, kernels.name, '(no name)'),
  run_id,
  rank,
  unit,
  exclusive_ns,
  count,
  sum_ns
FROM {side}_kernels AS kernels
LEFT JOIN {side}_names AS names
  ON names.kind = kernels.kind
  AND names.name = kernels.name
  AND names.path_sig IS NOT DISTINCT FROM kernels.path_sig
  AND names.op_sig IS NOT DISTINCT FROM kernels.op_sig
UNION ALL
SELECT
  'operators',
  coalesce(op, '(no operator)') || if(is_graph, ' (graph launch)', ''),
  run_id,
  rank,
  unit,
  exclusive_ns,
  count,
  sum_ns
FROM {side}_kernels
UNION ALL
SELECT 'categories', pass || ' ' || kind, run_id, rank, unit, exclusive_ns, count, sum_ns
FROM {side}_kernels
"""


def _sums(con: Any, side: str) -> dict[Key, Sums]:
    rows = con.execute(
        "SELECT level, part, sum(ns)::BIGINT, coalesce(sum(count), 0)::BIGINT,"
        " coalesce(sum(sum_ns), 0)::BIGINT, count(count) > 0"
        f" FROM {side}_amounts GROUP BY level, part"
    )
    return {(level, part): Sums(*sums) for level, part, *sums in rows.fetchall()}


def _means(
    con: Any, side: str, keys: str, sizes: Mapping[Replicate, int]
) -> dict[Key, dict[Replicate, Fraction]]:
    rows = con.execute(
        f"SELECT level, part, sum(ns)::BIGINT, {keys} FROM {side}_amounts GROUP BY level, part, {keys}"
    )
    found: dict[Key, dict[Replicate, Fraction]] = defaultdict(dict)
    for level, part, ns, *key in rows.fetchall():
        found[level, part][tuple(key)] = Fraction(ns, sizes[tuple(key)])
    return found


Place = tuple[Hashable, ...]


@dataclass(frozen=True)
class Cell:
    """A kernel at a place of the model, on one side: how often it ran there and for how long."""

    kind: str
    name: str
    path_sig: str | None
    op_sig: str | None
    count: int = field(compare=False)
    ns: int = field(compare=False)


PlaceOf = Callable[[Cell], Place | None]


def renames(base: Sequence[Cell], head: Sequence[Cell]) -> tuple[dict[Cell, str], dict[Cell, str]]:
    """For cells of base their name in head, for cells of head their name in base, where that is another one.

    A kernel is renamed at a place where it is gone and another one of its kind is new. Of several the most
    frequent are paired first; what is left over is gone, or new.
    """
    forth: dict[Cell, str] = {}
    back: dict[Cell, str] = {}
    for place_of in _places(base, head):
        before, after = _by_place(base, place_of), _by_place(head, place_of)
        for place in before.keys() & after.keys():
            old, new = before[place], after[place]
            gone = _by_name(cell for cell in old if cell not in forth)
            come = _by_name(cell for cell in new if cell not in back)
            kept = {cell.name for cell in old} & {cell.name for cell in new}
            for one, other in zip(_frequent(gone, kept), _frequent(come, kept), strict=False):
                forth |= dict.fromkeys(gone[one], other)
                back |= dict.fromkeys(come[other], one)
    return forth, back


def _places(base: Sequence[Cell], head: Sequence[Cell]) -> tuple[PlaceOf, ...]:
    """What a place is, the narrowest first: path and operator, the path, the operator where paths differ."""
    paths = {cell.path_sig for cell in base} & {cell.path_sig for cell in head}

    def narrow(cell: Cell) -> Place | None:
        return None if cell.path_sig is None else (cell.kind, cell.path_sig, cell.op_sig)

    def path(cell: Cell) -> Place | None:
        return None if cell.path_sig is None else (cell.kind, cell.path_sig)

    def operator(cell: Cell) -> Place | None:
        return None if cell.op_sig is None or cell.path_sig in paths else (cell.kind, cell.op_sig)

    return narrow, path, operator


def _by_place(cells: Iterable[Cell], place_of: Callable[[Cell], Place | None]) -> dict[Place, list[Cell]]:
    found: dict[Place, list[Cell]] = defaultdict(list)
    for cell in cells:
        place = place_of(cell)
        if place is not None:
            found[place].append(cell)
    return found


def _by_name(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        found[cell.name].append(cell)
    return found


def _frequent(named: dict[str, list[Cell]], kept: set[str]) -> list[str]:
    """The names that the other side does not have there, the most frequent first."""
    sums = {
        name: (sum(cell.count for cell in cells), sum(cell.ns for cell in cells))
        for name, cells in named.items()
        if name not in kept
    }
    return sorted(sums, key=lambda name: (-sums[name][0], -sums[name][1], name))
