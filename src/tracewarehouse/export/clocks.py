"""Clock alignment of ranks that are exported together, and notices about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.exact_text import rank_list
from tracewarehouse.query.connections import connection
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Versions

READS = "clock_offsets"
_OFFSETS = "SELECT rank, reference_rank, offset_ns, uncertainty_ns FROM clock_offsets"


@dataclass(frozen=True)
class Clock:
    """A rank's clock: its times minus `offset_ns` are those of the reference rank.

    `uncertainty_ns` is None if the offset is estimated from one collective. Clocks with different reference
    ranks cannot be aligned.
    """

    offset_ns: int = 0
    uncertainty_ns: int | None = 0
    reference_rank: int | None = None


def clocks(store: Versions, catalog: Catalog, run: SelectedRun, ranks: Sequence[int]) -> dict[int, Clock]:
    """The clock of each of these ranks; `run` has all ranks whose collectives may connect them."""
    if len(ranks) == 1:
        return {ranks[0]: Clock()}
    with connection(store, catalog, [run], [catalog.get(READS)]) as con:
        rows = con.execute(_OFFSETS).fetchall()
    found = {rank: Clock(offset, uncertainty, reference) for rank, reference, offset, uncertainty in rows}
    return {rank: found[rank] for rank in ranks}


def clock_notices(clocks: Mapping[int, Clock]) -> list[str]:
    """Notices about the alignment of the clocks of several ranks."""
    ranks = list(clocks)
    if len(ranks) == 1:
        return []
    reference = clocks[ranks[0]].reference_rank
    aligned = [rank for rank in ranks if clocks[rank].reference_rank == reference]
    unaligned = [rank for rank in ranks if rank not in aligned]
    notices = []
    if len(aligned) > 1:
        known = [ns for rank in aligned if (ns := clocks[rank].uncertainty_ns) is not None]
        notices.append(
            f"clocks of ranks {rank_list(aligned)} are aligned to rank {reference}, "
            f"within {max(known) / 1_000:g} µs"
        )
    single = [rank for rank in aligned if clocks[rank].uncertainty_ns is None]
    if single:
        notices.append(f"rank {rank_list(single)}: clock offset estimated from a single collective")
    if unaligned:
        notices.append(
            f"rank {rank_list(unaligned)}: clock not aligned, "
            f"no GPU collective connects it to rank {ranks[0]}"
        )
    return notices
