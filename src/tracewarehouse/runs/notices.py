"""What people must be told beside rows: damage and gaps of what they look at."""

from __future__ import annotations

from collections.abc import Sequence

from tracewarehouse import hints
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.runs.quality import expected_ranks
from tracewarehouse.runs.selection import SelectedRun

NOTHING_STORED = hints.fill("the warehouse is empty: {} ingests traces", hints.ingest())


def notices(selected: Sequence[SelectedRun], contract: Contract | None = None) -> tuple[str, ...]:
    """One line each for GPU time without a launch (where launches matter), damaged ranks, missing ranks."""
    told = _coverage(selected) if contract and "launches" in contract.needs else []
    damaged = [rank for each in selected for rank in each.by_rank if rank.status == "damaged"]
    if damaged:
        named = ", ".join(f"{rank.run} rank {rank.rank}" for rank in damaged[:3])
        more = ", …" if len(damaged) > 3 else ""
        told.append(f"{len(damaged)} damaged {'rank' if len(damaged) == 1 else 'ranks'} ({named}{more})")
    for each in selected:
        expected = expected_ranks(each.version) or 0
        missing = set(range(expected)) - set(each.version.ranks)
        if missing:
            told.append(f"{each.run} has {expected - len(missing)} of {expected} ranks")
    return tuple(told)


def nothing_stored(selected: Sequence[SelectedRun]) -> tuple[str, ...]:
    """What to tell where there is nothing to look at, so that no rows are not taken for good news."""
    return () if selected else (NOTHING_STORED,)


def _coverage(selected: Sequence[SelectedRun]) -> list[str]:
    """How much of the GPU time has a known launch; nothing where all has."""
    gpu_ns, launch_known_ns = (_total(selected, fact) for fact in ("gpu_ns", "launch_known_ns"))
    if launch_known_ns >= gpu_ns:
        return []
    tenths = launch_known_ns * 1000 // gpu_ns  # rounded down: less than all is never told as all
    return [f"coverage: {tenths / 10} % of GPU time is linked to its launch"]


def _total(selected: Sequence[SelectedRun], fact: str) -> int:
    values = (rank.facts.get(fact) for each in selected for rank in each.by_rank)
    return sum(value for value in values if isinstance(value, int))
