"""Data that analyses need: ranks whose trace lacks it are skipped, each with a reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tracewarehouse import hints
from tracewarehouse.contracts.contract import DERIVED_NEEDS, Contract
from tracewarehouse.result import Abstained
from tracewarehouse.runs.derivations import OF_RUN, is_current, why_nothing
from tracewarehouse.runs.retention import expired_of, expired_reason
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.runs.table_versions import stored_versions
from tracewarehouse.storage import Rank, RunVersion

_MISSING = {
    "gpu": "no GPU activities recorded",
    "launches": "no launches recorded",
    "shapes": "no input shapes recorded",
    "stacks": "no Python stacks recorded",
    "modules": "no modules recorded",
    "memory_events": "no memory events recorded",
    "memory_timeline": "no memory timeline",
    "snapshot": "no memory snapshot",
    "flight_records": "no flight recorder dump",
    "kernel_metrics": "no Nsight Compute metrics",
    "execution_nodes": "no execution trace",
    "collective_args": "no collective arguments recorded",
    "collectives": "no collectives recorded",
    "message_sizes": "no message sizes of collectives recorded",
    "counters": "no counters recorded",
    "gpu_metrics": "no sampled GPU metrics",
    "kernel_counters": "no kernel counters recorded",
    "device_properties": "no device properties recorded",
    "host": "no host name recorded",
}

# Reasons are stored with recorded results, so they name no command; `missing_derivations` does.
_NOT_DERIVED = "{} is not derived"
_OUTDATED = "{} is not derived for the ranks that the run has now"


@dataclass(frozen=True)
class CapableRanks:
    """The ranks that have the data an analysis needs, and the skipped ones."""

    selected: tuple[SelectedRun, ...]
    abstained: tuple[Abstained, ...]


def missing_derivations(abstained: Iterable[Abstained]) -> tuple[hints.Hint, ...]:
    """The commands that derive missing tables, one per run."""
    needs = {text.format(need): need for need in DERIVED_NEEDS for text in (_NOT_DERIVED, _OUTDATED)}
    missing = dict.fromkeys((needs[each.reason], each.run_id) for each in abstained if each.reason in needs)
    return tuple(hints.derive(need, run) for need, run in missing)


def without_expired(
    contract: Contract, read: Iterable[Contract], selected: Sequence[SelectedRun]
) -> CapableRanks:
    """The selected ranks of which no table expired that the analysis reads; `read`: also through views."""
    tables = {each.name for each in read if each.is_stored} - set(contract.optional)
    capable: list[SelectedRun] = []
    abstained: list[Abstained] = []
    for each in selected:
        gone = {rank.rank: found for rank in each.by_rank if (found := expired_of(rank, tables))}
        abstained += [Abstained(each.run, rank, expired_reason(found)) for rank, found in gone.items()]
        if ranks := tuple(rank for rank in each.ranks if rank not in gone):
            capable.append(replace(each, ranks=ranks))
    return CapableRanks(tuple(capable), tuple(abstained))


def with_capabilities(contract: Contract, selected: Sequence[SelectedRun]) -> CapableRanks:
    """The selected ranks that have the data the contract needs; the others with the first missing kind."""
    capable: list[SelectedRun] = []
    abstained: list[Abstained] = []
    for each in selected:
        reasons = _reasons(contract, each)
        abstained += [Abstained(each.run, rank, reason) for rank, reason in reasons.items()]
        ranks = tuple(rank for rank in each.ranks if rank not in reasons)
        if ranks:
            capable.append(replace(each, ranks=ranks))
    return CapableRanks(tuple(capable), tuple(abstained))


def _reasons(contract: Contract, selected: SelectedRun) -> dict[int, str]:
    ranks = selected.by_rank
    rank_needs = [need for need in contract.needs if not need.startswith("ranks>=")]
    versions = {ref.name: ref.version for ref in contract.requires}
    checked = {rank.rank: _missing_data(selected.version, rank, rank_needs, versions) for rank in ranks}
    reasons = {rank: reason for rank, reason in checked.items() if reason}
    capable_ranks = len(ranks) - len(reasons)
    for need in contract.needs:
        if need.startswith("ranks>=") and capable_ranks < _number(need):
            too_few = f"requires {_plural(_number(need), 'rank')}, found {capable_ranks}"
            return {rank.rank: reasons.get(rank.rank, too_few) for rank in ranks}
    return reasons


def _missing_data(
    version: RunVersion, rank: Rank, needs: Sequence[str], versions: Mapping[str, int]
) -> str | None:
    """Why the rank is skipped; None if it has all the data."""
    for need in needs:
        if need in DERIVED_NEEDS:
            if versions.get(need) not in (stored_versions(rank, need) or ()):
                return _NOT_DERIVED.format(need)
            if need in OF_RUN and not is_current(version, rank, need):
                return _OUTDATED.format(need)
            if nothing := why_nothing(rank, need):
                return nothing
            continue
        if need.startswith("steps>="):
            steps = rank.facts.get("steps") or 0
            if not isinstance(steps, int) or steps < _number(need):
                return f"requires {_plural(_number(need), 'step')}, found {steps}"
        elif not _has(rank, need):
            return _MISSING[need]
    return None


def _has(rank: Rank, need: str) -> bool:
    if need == "message_sizes":
        # Arguments of collectives, the input shapes of their annotations, which only PyTorch records, or
        # NCCL's payloads.
        shapes = rank.facts.get("shapes") and rank.main.format == "kineto"
        payloads = rank.main.facts.get("message_sizes")
        return bool(rank.facts.get("collective_args") or shapes or payloads)
    return rank.facts.get(need) not in (None, False)  # the host is a name


def _number(need: str) -> int:
    return int(need.partition(">=")[2])


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
