"""Tables that were derived from a whole run: whether they still describe the ranks that it has."""

from __future__ import annotations

from typing import Final

from tracewarehouse.storage import Json, Rank, RunVersion

FACT: Final = "derived"
OF_RUN: Final = ("blame",)  # derivations that read all ranks of a run


def is_current(version: RunVersion, rank: Rank, name: str) -> bool:
    """Whether the rank has the derived tables, made from the ranks that the run has now."""
    return _fact(rank, name).get("ranks") == version.source


def why_nothing(rank: Rank, name: str) -> str | None:
    """Why the derived tables have no rows, as found when they were derived; None if they have rows."""
    reason = _fact(rank, name).get("nothing")
    return reason if isinstance(reason, str) else None


def _fact(rank: Rank, name: str) -> dict[str, Json]:
    derived = rank.main.facts.get(FACT)
    fact = derived.get(name) if isinstance(derived, dict) else None
    return fact if isinstance(fact, dict) else {}
