"""What people must be told beside rows: damage and gaps of what they look at."""

from __future__ import annotations

from collections.abc import Sequence

from tracewarehouse.select.chosen import Chosen
from tracewarehouse.select.quality import expected_ranks


def notices(chosen: Sequence[Chosen]) -> tuple[str, ...]:
    """One line each for damaged ranks and for runs that lack ranks."""
    told = []
    damaged = [unit for each in chosen for unit in each.units if unit.status == "damaged"]
    if damaged:
        named = ", ".join(f"{unit.run} rank {unit.rank}" for unit in damaged[:3])
        more = ", …" if len(damaged) > 3 else ""
        told.append(f"{len(damaged)} damaged {'rank' if len(damaged) == 1 else 'ranks'} ({named}{more})")
    for each in chosen:
        expected = expected_ranks(each.version) or 0
        missing = set(range(expected)) - set(each.version.ranks)
        if missing:
            told.append(f"{each.run} has {expected - len(missing)} of {expected} ranks")
    return tuple(told)
