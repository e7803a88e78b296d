"""Where the spread between runs, or between steps of a run, comes from: the share of each kernel and rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracewarehouse.compare.stats import variance_shares
from tracewarehouse.display_names import category_name
from tracewarehouse.present.render.names import short_name
from tracewarehouse.present.render.text import one_line

if TYPE_CHECKING:
    from tracewarehouse.compare.diff.breakdown import Breakdown
    from tracewarehouse.compare.diff.levels import Level

_MOST_NAMED = 3
_LEAST = 0.1  # share of the variance, from which a part is named
_MOST_OF_RANKS = 0.6  # of the spread of own times, from which one rank is named
_OWN = " own"


@dataclass(frozen=True)
class Share:
    """The share of the variance between replicates that a row contributes; all of a level sum to 1.

    It is negative for a row that is shorter where the whole is longer.
    """

    level: str
    name: str
    share: float


def spread(parts: Breakdown) -> tuple[Share, ...]:
    """The rows of kernels and of ranks, the largest share first; empty with too few runs or steps."""
    return tuple(share for name in ("kernels", "ranks") for share in _of_level(parts.level(name)))


def _of_level(level: Level) -> Iterator[Share]:
    shares = variance_shares([(row.base_replicates, row.head_replicates) for row in level.rows])
    found = [Share(level.name, row.part, share) for row, share in zip(level.rows, shares or (), strict=False)]
    yield from sorted(found, key=lambda each: (-each.share, each.name))


def spread_notes(parts: Breakdown) -> Iterator[str]:
    """The kernels and idle causes, and the rank, that most of the spread comes from."""
    shares, between = spread(parts), f"{parts.replicate}s"
    kernels = [each for each in shares if each.level == "kernels" and each.share >= _LEAST][:_MOST_NAMED]
    if kernels:
        yield f"the spread between {between} comes from {_listed(kernels)}"
    own = [each for each in shares if each.level == "ranks" and each.name.endswith(_OWN)]
    total = sum(max(each.share, 0.0) for each in own)
    # A late rank lengthens the steps of the others as much, by waiting: compare own times only.
    if len(own) > 1 and own[0].share >= max(_LEAST, _MOST_OF_RANKS * total):
        rank, share = own[0].name.removesuffix(_OWN), own[0].share / total
        yield f"{rank} varies most: {100 * share:.0f} % of the spread of the ranks' own times"


def _listed(shares: Iterable[Share]) -> str:
    return ", ".join(f"{_name(each.name)} ({100 * each.share:.0f} %)" for each in shares)


def _name(part: str) -> str:
    name = category_name(part)
    return name if name != part else one_line(short_name(part))
