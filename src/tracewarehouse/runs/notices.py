"""Notices about damaged and missing data, and the provenance of a result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.result import Provenance
from tracewarehouse.runs.quality import expected_ranks
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import UnreadableRun
from tracewarehouse.version import __version__

_NAMED_RUNS = 3
NOTHING_STORED = hints.fill("the warehouse is empty: {} ingests traces", hints.ingest())


def notices(selected: Sequence[SelectedRun], contract: Contract | None = None) -> tuple[str, ...]:
    """A line each for GPU time without a known launch (if launches are needed), damaged and missing ranks."""
    lines = _coverage(selected) if contract and "launches" in contract.needs else []
    damaged = [rank for each in selected for rank in each.by_rank if rank.status == "damaged"]
    if damaged:
        named = ", ".join(f"{rank.run} rank {rank.rank}" for rank in damaged[:3])
        more = ", …" if len(damaged) > 3 else ""
        ranks = "rank has a damaged trace" if len(damaged) == 1 else "ranks have damaged traces"
        lines.append(f"{len(damaged)} {ranks} ({named}{more})")
    for each in selected:
        expected = expected_ranks(each.version) or 0
        missing = set(range(expected)) - set(each.version.ranks)
        if missing:
            lines.append(f"{each.run} is incomplete: {expected - len(missing)} of {expected} ranks")
    return tuple(lines)


def partly_read(
    selected: Sequence[SelectedRun], capable: Iterable[SelectedRun], contract: Contract
) -> Iterator[str]:
    """A line for each run of which only some ranks are read, if the analysis compares ranks.

    The others are not selected, or the analysis skips them: they are not in `capable`.
    """
    if contract.scope != "run":
        return
    counts = {each.run: len(each.ranks) for each in capable}
    for each in selected:
        count, of = counts.get(each.run, len(each.ranks)), len(each.version.ranks)
        if count < of:
            why = "selected" if count == len(each.ranks) else "read"
            yield f"{each.run}: {count} of {of} ranks {why}; collectives are matched among these only"


def nothing_stored(selected: Sequence[object]) -> tuple[str, ...]:
    """The notice of an empty warehouse, so that an empty result is not misread."""
    return () if selected else (NOTHING_STORED,)


def damaged_runs(left_out: Iterable[UnreadableRun]) -> tuple[str, ...]:
    """A line for each run that is left out because its newest version cannot be read."""
    return tuple(
        hints.fill("run {} is damaged and left out: {}; {}", each.run, each.why, each.hint or "")
        for each in left_out
    )


def damaged_files(faults: Mapping[str, str]) -> tuple[str, ...]:
    """A line for each run with a damaged file."""
    return tuple(
        hints.fill("run {} is damaged: {}; {}", run, what, hints.repair(run)) for run, what in faults.items()
    )


def _coverage(selected: Sequence[SelectedRun]) -> list[str]:
    """The share of GPU time with a known launch, per run; nothing if it is 100 %."""
    lines = []
    for each in selected:
        gpu_ns, launch_known_ns = (_total(each, fact) for fact in ("gpu_ns", "launch_known_ns"))
        if launch_known_ns < gpu_ns:
            tenths = launch_known_ns * 1000 // gpu_ns  # rounded down: 99.99 % is not shown as 100 %
            of = f" of {each.run}" if len(selected) > 1 else ""
            lines.append(f"coverage{of}: {tenths / 10} % of GPU time is linked to its launch")
    if len(lines) <= _NAMED_RUNS:
        return lines
    more = len(lines) - _NAMED_RUNS
    return [*lines[:_NAMED_RUNS], f"coverage of {more} more run{'' if more == 1 else 's'}: below 100 %"]


def _total(selected: SelectedRun, fact: str) -> int:
    values = (rank.facts.get(fact) for rank in selected.by_rank)
    return sum(value for value in values if isinstance(value, int))


def provenance_of(
    catalog: Catalog,
    selected: Sequence[SelectedRun],
    contract: Contract | None = None,
    bound: Mapping[str, object] | None = None,
    read: Iterable[Contract] | None = None,
    sql: str | None = None,
) -> Provenance:
    """The provenance of a result; `read` are the tables and views it depends on, by default the contract."""
    analysis = contract if contract and contract.kind == "analysis" else None
    if read is None:
        read = [contract] if contract else []
    return Provenance(
        tool=__version__,
        runs=tuple(each.selector for each in selected),
        analysis=analysis.name if analysis else None,
        version=analysis.version if analysis else None,
        own_hash=catalog.own_hash(contract) if contract else None,
        effective_hash=catalog.effective_hash(contract) if contract else None,
        params=dict(bound or {}),
        tables={each.name: each.version for each in read},
        ranks={each.run: list(each.ranks) for each in selected if each.is_part} or None,
        sql=sql,
    )
