"""Role of each rank in the layout of its job: ranks are paired by role if the layouts of two sides differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tracewarehouse.runs.selection import Selection

_GROUPS = "SELECT rank, process_groups FROM ranks WHERE process_groups IS NOT NULL"
_WORLD = "default_pg"  # the group of all ranks
Positions = dict[str, tuple[int, int]]  # kind of group → the rank's position in it, and the group's size


def roles(base: Selection, head: Selection) -> tuple[dict[int, str], dict[int, str]] | None:
    """Rank → its role on each side, such as `mesh_data 1, mesh_tensor 0`; a kind that a side lacks is 0.

    None if the layouts are equal, or do not distinguish the ranks of a side.
    """
    sides = _positions(base), _positions(head)
    if not all(sides) or _layout(sides[0]) == _layout(sides[1]):
        return None
    kinds = sorted({kind for side in sides for positions in side.values() for kind in positions})
    named = tuple({rank: _role(positions, kinds) for rank, positions in side.items()} for side in sides)
    if any(len(set(side.values())) < len(side) for side in named):
        return None
    return named[0], named[1]


def layouts(base: Selection, head: Selection) -> tuple[str, str] | None:
    """The layouts in words, `mesh_data 4 × mesh_tensor 2`, if both are known and they differ."""
    sizes = [_layout(_positions(side)) for side in (base, head)]
    if not all(sizes) or sizes[0] == sizes[1]:
        return None
    texts = [" × ".join(f"{kind} {size}" for kind, size in sorted(each.items())) for each in sizes]
    return texts[0], texts[1]


def _positions(side: Selection) -> dict[int, Positions]:
    """Rank → its position in each group; empty if a rank has two positions in groups of one kind."""
    found: dict[int, Positions] = {}
    for row in side.query_all(_GROUPS).rows():
        for kind, position, size in _memberships(row["rank"], _groups(row["process_groups"])):
            known = found.setdefault(row["rank"], {}).setdefault(kind, (position, size))
            if known != (position, size):
                return {}
    return found


def _groups(value: Any) -> Iterable[Any]:
    groups = json.loads(value) if isinstance(value, str) else value
    return groups if isinstance(groups, list) else ()


def _memberships(rank: int, groups: Iterable[Any]) -> Iterable[tuple[str, int, int]]:
    """Kind, position and size of each group with this rank."""
    for group in groups:
        ranks = group.get("ranks") if isinstance(group, dict) else None
        kind = str(group.get("pg_desc") or "").rstrip("0123456789_") if ranks else ""
        if isinstance(ranks, list) and rank in ranks and kind and kind != _WORLD:
            yield kind, ranks.index(rank), len(ranks)


def _layout(ranks: Mapping[int, Positions]) -> dict[str, int]:
    """Kind of group → its size; of groups of different sizes the largest."""
    sizes: dict[str, int] = {}
    for positions in ranks.values():
        for kind, (_, size) in positions.items():
            sizes[kind] = max(size, sizes.get(kind, 0))
    return sizes


def _role(positions: Positions, kinds: Iterable[str]) -> str:
    return ", ".join(f"{kind} {positions.get(kind, (0, 1))[0]}" for kind in kinds)
