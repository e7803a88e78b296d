"""What an analysis needs of a trace: ranks that lack it are left out, and said to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tracewarehouse import hints
from tracewarehouse.contracts.contract import DERIVED_NEEDS, Contract
from tracewarehouse.result import Abstained
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Rank, RankSource

_MISSING = {
    "gpu": "no GPU rows recorded",
    "launches": "no launches recorded",
    "shapes": "no shapes recorded",
    "stacks": "no stacks recorded",
    "modules": "no modules recorded",
    "memory_events": "no memory events recorded",
    "memory_timeline": "no memory timeline",
    "collective_args": "no arguments of collectives recorded",
    "collectives": "no collectives recorded",
    "counters": "no counters recorded",
    "kernel_counters": "no counters of kernels recorded",
    "device_properties": "no properties of devices recorded",
}


@dataclass(frozen=True)
class Able:
    """The ranks an analysis can look at, and those that abstain."""

    selected: tuple[SelectedRun, ...]
    abstained: tuple[Abstained, ...]


def able(contract: Contract, selected: Sequence[SelectedRun]) -> Able:
    """The chosen ranks that carry what the contract needs; the rest with the first thing they lack."""
    kept: list[SelectedRun] = []
    left_out: list[Abstained] = []
    for each in selected:
        reasons = _reasons(contract, each)
        left_out += [Abstained(each.run, rank, reason) for rank, reason in reasons.items()]
        ranks = tuple(rank for rank in each.ranks if rank not in reasons)
        if ranks:
            kept.append(replace(each, ranks=ranks))
    return Able(tuple(kept), tuple(left_out))


def _reasons(contract: Contract, selected: SelectedRun) -> dict[int, str]:
    ranks = selected.by_rank
    of_a_rank = [need for need in contract.needs if not need.startswith("ranks>=")]
    versions = {ref.name: ref.version for ref in contract.requires}
    found = {rank.rank: _lack(rank, of_a_rank, versions) for rank in ranks}
    reasons = {rank: reason for rank, reason in found.items() if reason}
    able_ranks = len(ranks) - len(reasons)
    for need in contract.needs:
        if need.startswith("ranks>=") and able_ranks < _number(need):
            few = f"{_plural(able_ranks, 'rank')}, needs {_number(need)}"
            return {rank.rank: reasons.get(rank.rank, few) for rank in ranks}
    return reasons


def _lack(rank: Rank, needs: Sequence[str], versions: Mapping[str, int]) -> str | None:
    for need in needs:
        if need in DERIVED_NEEDS:
            if versions.get(need) not in held(rank, need):
                return hints.fill("not derived: {}", hints.derive(need, rank.run))
            continue
        if need.startswith("steps>="):
            steps = rank.facts.get("steps") or 0
            if not isinstance(steps, int) or steps < _number(need):
                return f"{_plural(steps, 'step')}, needs {_number(need)}"
        elif rank.facts.get(need) is not True:
            return _MISSING[need]
    return None


def _number(need: str) -> int:
    return int(need.partition(">=")[2])


def _plural(count: object, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def held(source: Rank | RankSource, table: str) -> frozenset[int]:
    """The versions of a table that a source or a rank holds; none where nothing is known of it."""
    told = source.facts.get("tables")
    if isinstance(told, dict) and table in told:
        versions = told[table]
        listed = versions if isinstance(versions, list) else [versions]
        return frozenset(version for version in listed if isinstance(version, int))
    return frozenset(file.version for file in source.files if file.table == table)


def lacking(
    contracts: Iterable[Contract], selected: Sequence[SelectedRun]
) -> dict[Contract, tuple[SelectedRun, ...]]:
    """Stored tables, each with the chosen runs that hold it in other versions only; not what is derived."""
    found: dict[Contract, tuple[SelectedRun, ...]] = {}
    for contract in contracts:
        if contract.is_stored and not contract.derived:
            runs = tuple(each for each in selected if any(_lacks(rank, contract) for rank in each.by_rank))
            if runs:
                found[contract] = runs
    return found


def _lacks(rank: Rank, contract: Contract) -> bool:
    versions = held(rank, contract.name)
    return bool(versions) and contract.version not in versions
