"""What part each rank has in its job's layout: where layouts differ, ranks are paired by that."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tracewarehouse.metric import Side

_GROUPS = "SELECT rank, process_groups FROM ranks WHERE process_groups IS NOT NULL"
_ALL = "default_pg"
Places = dict[str, tuple[int, int]]  # kind of group → the rank's place in it, and how many are in it


def roles(base: Side, head: Side) -> tuple[dict[int, str], dict[int, str]] | None:
    """Rank → its role on each side, such as `mesh_data 1, mesh_tensor 0`; a kind that a side lacks is 0.

    None where the layouts are alike, or do not tell the ranks of a side apart.
    """
    told = _places(base), _places(head)
    if not all(told) or _layout(told[0]) == _layout(told[1]):
        return None
    kinds = sorted({kind for side in told for places in side.values() for kind in places})
    named = tuple({rank: _role(places, kinds) for rank, places in side.items()} for side in told)
    if any(len(set(side.values())) < len(side) for side in named):
        return None
    return named[0], named[1]


def layouts(base: Side, head: Side) -> tuple[str, str] | None:
    """The layouts in words, `mesh_data 4 × mesh_tensor 2`, where both are told and they differ."""
    found = [_layout(_places(side)) for side in (base, head)]
    if not all(found) or found[0] == found[1]:
        return None
    words = [" × ".join(f"{kind} {size}" for kind, size in sorted(each.items())) for each in found]
    return words[0], words[1]


def _places(side: Side) -> dict[int, Places]:
    """Rank → its place in each group; empty where a rank is in two of a kind, as then it has no one place."""
    found: dict[int, Places] = {}
    for row in side.query(_GROUPS).rows():
        for kind, place, size in _mine(row["rank"], _groups(row["process_groups"])):
            if found.setdefault(row["rank"], {}).setdefault(kind, (place, size)) != (place, size):
                return {}
    return found


def _groups(value: Any) -> Iterable[Any]:
    groups = json.loads(value) if isinstance(value, str) else value
    return groups if isinstance(groups, list) else ()


def _mine(rank: int, groups: Iterable[Any]) -> Iterable[tuple[str, int, int]]:
    for group in groups:
        ranks = group.get("ranks") if isinstance(group, dict) else None
        kind = str(group.get("pg_desc") or "").rstrip("0123456789_") if ranks else ""
        if isinstance(ranks, list) and rank in ranks and kind and kind != _ALL:
            yield kind, ranks.index(rank), len(ranks)


def _layout(ranks: Mapping[int, Places]) -> dict[str, int]:
    """Kind of group → its size; that of the largest, where sizes differ."""
    sizes: dict[str, int] = {}
    for places in ranks.values():
        for kind, (_, size) in places.items():
            sizes[kind] = max(size, sizes.get(kind, 0))
    return sizes


def _role(places: Places, kinds: Iterable[str]) -> str:
    return ", ".join(f"{kind} {places.get(kind, (0, 1))[0]}" for kind in kinds)
