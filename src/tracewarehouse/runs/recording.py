"""Table `recording`: what the recordings of ranks and runs can carry, from facts of the published version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from msgspec import Struct

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.sql_tokens import values_list
from tracewarehouse.exact_text import MOST_RANKS, missing_ranks, rank_list
from tracewarehouse.storage.model import Rank, RunVersion, once_per_version

SOUND: Final = "sound"
USABLE: Final = "usable with limits"
NO_BASIS: Final = "not a basis"
LIMIT: Final = "limit"
_NOT_RECORDED: Final = "not_recorded"
# A recording starts late if it misses this time, this share of the shortest one, and two steps.
_LATE_NS: Final = 1_000_000
_LATE_SHARE: Final = 0.1
_LATE_STEPS: Final = 2
# Clocks of different hosts may differ by this much; attempts are further apart.
_CLOCK_ERROR_NS: Final = 100_000_000
_ATTEMPTS_APART_NS: Final = 1_000_000_000
# Without complete steps, nothing remains that these do not affect.
_LEAVE_OUT: Final = ("lost_records", "no_work")
# Fact of a rank that is false → reason.
_LACKING: Final = {
    "gpu": "host_only",
    "shapes": "no_shapes",
    "stacks": "no_stacks",
    "memory_events": "no_memory",
}


class Reason(Struct, frozen=True):
    """A row of `recording`; rank None means the run."""

    run_id: str
    rank: int | None
    state: str
    reason: str | None = None
    level: str | None = None
    rows: int | None = None
    steps: int | None = None
    ranks: str | None = None
    share: float | None = None
    affected_ns: int | None = None
    text: str | None = None
    advice: str | None = None


def recording(version: RunVersion, expected: int | None, ranks: Iterable[int]) -> list[Reason]:
    """The rows of a run and of these ranks; what compares ranks compares all of the run."""
    reasons = limits(version, expected, ranks)
    limited = {reason.rank for reason in reasons}
    chosen_ranks = set(ranks)
    for rank in version.by_rank:
        if rank.rank not in chosen_ranks:
            continue
        reasons += [] if rank.rank in limited else [Reason(version.run, rank.rank, SOUND)]
        reasons += _of_rank(rank, _NOT_RECORDED)
    return reasons


def limits(version: RunVersion, expected: int | None, ranks: Iterable[int]) -> list[Reason]:
    """The limits of a run and of these ranks: few, whatever the number of ranks."""
    of_run, of_ranks = _limits(version, expected)
    chosen_ranks = set(ranks)
    return [*of_run, *(reason for reason in of_ranks if reason.rank in chosen_ranks)]


@once_per_version
def _limits(version: RunVersion, expected: int | None) -> tuple[list[Reason], list[Reason]]:
    """The limits of the run, and those of all its ranks."""
    attempts = [*_attempts(version)]
    late = {} if attempts else dict(_late_ns(version, _windows(version)))
    of_ranks: list[Reason] = []
    most_steps = max(map(_steps, version.by_rank), default=0)
    for rank in version.by_rank:
        of_ranks += _of_rank(rank, LIMIT, most_steps)
        if rank.rank in late:
            limit = {"reason": "late_start", "affected_ns": late[rank.rank]}
            of_ranks.append(_reason(version.run, rank.rank, limit))
    return [*_missing(version, expected), *attempts], of_ranks


def common_start_ns(version: RunVersion) -> int | None:
    """When all ranks of a run were recording; None unless a recording starts late."""
    windows = _windows(version)
    return max(start for start, _ in windows.values()) if any(_late_ns(version, windows)) else None


@cache
def _words() -> Mapping[str, tuple[str, str]]:
    """Reason → text and advice."""
    rows = values_list(Catalog.load().get("recording_rules", kind="table").body)
    return {str(row["reason"]): (str(row["text"]), str(row["advice"])) for row in rows}


def _reason(
    run: str,
    rank: int | None,
    limit: Mapping[str, Any],
    state: str = USABLE,
    **others: object,
) -> Reason:
    """The row of a reason, with its numbers in words."""
    text, advice = _words().get(str(limit["reason"]), (str(limit["reason"]), ""))
    fields = {**limit, **others}
    share, affected_ns, steps = limit.get("share"), limit.get("affected_ns"), limit.get("steps")
    shown = {
        **fields,
        "share": "" if share is None else f"{100 * share:.1f} %",
        "named": f"rank{'s' if limit.get('rows') != 1 else ''} {limit.get('ranks')}",
        "affected": "" if affected_ns is None else _time(affected_ns),
    }
    text = text.format_map(shown)
    if steps:
        text += f"; steps left out: {steps} of {others.get('of_steps')}"
    if (missing := limit.get("missing_steps", 0)) > 0:
        text += f"; {missing} of the {limit['most_steps']} steps of other ranks are missing"
    level = limit.get("level", LIMIT)
    return Reason(
        run, rank, state if level == LIMIT else SOUND, limit["reason"], level,
        limit.get("rows"), steps or None, limit.get("ranks"), share, affected_ns, text, advice,
    )  # fmt: skip


def _time(ns: int) -> str:
    return f"{ns / 1e9:,.2f} s" if ns >= 10**9 else f"{ns / 1e6:.1f} ms"


def _of_rank(rank: Rank, level: str, most_steps: int = 0) -> Iterator[Reason]:
    """The reasons of a level that the files of a rank give; `most_steps`: those of the rank with the most."""
    facts = rank.facts
    stored = facts.get("limits")
    rank_limits = [limit for limit in stored if isinstance(limit, dict)] if isinstance(stored, list) else []
    if rank.status == "damaged":
        missing = {"missing_steps": most_steps - _steps(rank), "most_steps": most_steps}
        rank_limits.append({"reason": "lost_events", "rows": facts.get("lost_events") or 1, **missing})
    if is_implausible(size := facts.get("world_size")):
        rank_limits.append({"reason": "implausible_world_size", "of_ranks": size})
    if rank.main.format == "kineto" and facts.get("events") and facts.get("shapes") is not None:
        lacking = [reason for fact, reason in _LACKING.items() if facts.get(fact) is False]
        lacking += ["no_steps"] if facts.get("steps") == 0 else []
        rank_limits += [{"reason": reason, "level": _NOT_RECORDED} for reason in lacking]
    for limit in rank_limits:
        if limit.get("level", LIMIT) == level:
            is_basis = limit["reason"] not in _LEAVE_OUT or facts.get("complete_steps")
            state = USABLE if is_basis else NO_BASIS
            yield _reason(rank.run, rank.rank, limit, state, of_steps=facts.get("steps"))


def _steps(rank: Rank) -> int:
    steps = rank.facts.get("steps")
    return steps if isinstance(steps, int) else 0


def is_implausible(size: object) -> bool:
    """Whether a number of ranks is one that no job has."""
    return isinstance(size, int) and not 0 <= size <= MOST_RANKS


def _missing(version: RunVersion, expected: int | None) -> Iterator[Reason]:
    """Ranks that are not in the run matter if ranks communicate."""
    count, ranks = missing_ranks(version.ranks, expected)
    if count and any(rank.facts.get("collectives") for rank in version.by_rank):
        limit = {"reason": "ranks_missing", "rows": count, "ranks": ranks}
        yield _reason(version.run, None, limit, of_ranks=expected)


def _windows(version: RunVersion) -> dict[int, tuple[int, int]]:
    """Rank → start and end of its recording, of those with UTC clocks."""
    windows = {}
    for rank in version.by_rank:
        start, end, clock = (rank.facts.get(name) for name in ("start_ns", "end_ns", "clock"))
        if isinstance(start, int) and isinstance(end, int) and start < end and clock in (None, "utc"):
            recorded_from = rank.facts.get("recorded_from_ns")
            windows[rank.rank] = (min(start, recorded_from) if isinstance(recorded_from, int) else start, end)
    return windows


def _attempts(version: RunVersion) -> Iterator[Reason]:
    """Ranks whose recordings overlap with none of those of most ranks."""
    windows = _windows(version)
    groups: list[list[int]] = []
    reached = None
    for rank, (start, end) in sorted(windows.items(), key=lambda item: item[1]):
        if reached is None or start > reached + _ATTEMPTS_APART_NS:
            groups.append([])
        groups[-1].append(rank)
        reached = end if reached is None else max(reached, end)
    if len(groups) > 1:
        largest = max(groups, key=len)
        others = sorted(rank for group in groups if group is not largest for rank in group)
        limit = {"reason": "mixed_attempts", "rows": len(others), "ranks": rank_list(others)}
        yield _reason(version.run, None, limit, NO_BASIS)


def _late_ns(version: RunVersion, windows: Mapping[int, tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The ranks whose recording starts late, and by how much.

    A recording that starts and ends later, or earlier, than most by what a clock may be off is shifted.
    """
    if len(windows) < 2:
        return
    starts, ends = (sorted(ns) for ns in zip(*windows.values(), strict=True))
    shortest = min(end - start for start, end in windows.values())
    steps = (rank.facts.get("step_ns") for rank in version.by_rank)
    step_ns = max((ns for ns in steps if isinstance(ns, int)), default=0)
    allowed = max(_LATE_NS, _LATE_SHARE * shortest, _LATE_STEPS * step_ns)
    middle = len(windows) // 2
    shifted = {
        rank: start - _shift_ns(start - starts[middle], end - ends[middle])
        for rank, (start, end) in windows.items()
    }
    first_ns = min(shifted.values())
    for rank, start in shifted.items():
        if start - first_ns > allowed:
            yield rank, start - first_ns


def _shift_ns(start: int, end: int) -> int:
    """How far a clock seems to be off, from the distances of start and end to those of most ranks."""
    shift = min(start, end, key=abs) if (start < 0) == (end < 0) else 0
    return shift if abs(shift) <= _CLOCK_ERROR_NS else 0


def recording_verdict(limits: Iterable[Mapping[str, Any]], several: bool = False) -> str:
    """The state and the limits in one line, each reason once with its ranks; and runs, of `several`."""
    by_reason: dict[str, list[Mapping[str, Any]]] = {}
    for limit in limits:
        by_reason.setdefault(limit["reason"], []).append(limit)
    if not by_reason:
        return SOUND
    is_basis = all(limit["state"] != NO_BASIS for same_reason in by_reason.values() for limit in same_reason)
    texts = []
    for same_reason in by_reason.values():
        worst = max(same_reason, key=lambda limit: (limit["affected_ns"] or 0, limit["rows"] or 0))
        more = f" and {len(same_reason) - 1} more" if len(same_reason) > 1 else ""
        location = [worst["run_id"]] if several else []
        location += [] if worst["rank"] is None else [f"rank {worst['rank']}{more}"]
        texts.append(f"{' '.join(location)}: {worst['text']}" if location else worst["text"])
    return f"{USABLE if is_basis else NO_BASIS}: {'; '.join(texts)}"
