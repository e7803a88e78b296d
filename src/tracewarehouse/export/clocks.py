"""How the clocks of ranks that stand side by side are brought together, and what must be said about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.exact_text import rank_list
from tracewarehouse.query.connections import connection
from tracewarehouse.runs.selection import SelectedRun

READS = "clock_offsets"
_OFFSETS = "SELECT rank, reference_rank, offset_ns, uncertainty_ns FROM clock_offsets"


@dataclass(frozen=True)
class Clock:
    """A rank's clock: its times less `offset_ns` are those of the reference rank.

    `uncertainty_ns` is null where the offset stands on one collective. Clocks of another reference than the
    first rank's cannot be brought together with it.
    """

    offset_ns: int = 0
    uncertainty_ns: int | None = 0
    reference_rank: int | None = None


def clocks(root: Path, catalog: Catalog, run: SelectedRun, ranks: Sequence[int]) -> dict[int, Clock]:
    """The clock of each of these ranks; `run` has all ranks that may lead from one to another."""
    if len(ranks) == 1:
        return {ranks[0]: Clock()}
    with connection(root, catalog, [run], [catalog.get(READS)]) as con:
        rows = con.execute(_OFFSETS).fetchall()
    found = {rank: Clock(offset, doubt, reference) for rank, reference, offset, doubt in rows}
    return {rank: found[rank] for rank in ranks}


def notes(clocks: Mapping[int, Clock]) -> list[str]:
    """What to tell about clocks that stand side by side, in a line each."""
    ranks = list(clocks)
    if len(ranks) == 1:
        return []
    first = clocks[ranks[0]].reference_rank
    together = [rank for rank in ranks if clocks[rank].reference_rank == first]
    apart = [rank for rank in ranks if rank not in together]
    told = []
    if len(together) > 1:
        doubts = [doubt for rank in together if (doubt := clocks[rank].uncertainty_ns) is not None]
        told.append(
            f"clocks of ranks {rank_list(together)} are brought to that of rank {first}, "
            f"to within {max(doubts) / 1_000:g} us"
        )
    single = [rank for rank in together if clocks[rank].uncertainty_ns is None]
    if single:
        told.append(f"rank {rank_list(single)}: only one collective tells how far its clock is off")
    if apart:
        told.append(
            f"rank {rank_list(apart)}: no collective on the GPU leads to rank {ranks[0]}: clocks cannot be "
            "aligned, times are those of its own"
        )
    return told
