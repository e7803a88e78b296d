"""Tables that were derived from a whole run: whether they still describe the ranks that it has."""

from __future__ import annotations

from typing import Final

from tracewarehouse.storage import Rank, RunVersion

FACT: Final = "derived"
OF_RUN: Final = ("blame",)  # derivations that read all ranks of a run


def is_current(version: RunVersion, rank: Rank, name: str) -> bool:
    """Whether the rank has the derived tables, made from the ranks that the run has now."""
    derived = rank.main.facts.get(FACT)
    fact = derived.get(name) if isinstance(derived, dict) else None
    return isinstance(fact, dict) and fact.get("ranks") == version.source
