"""What a call's changes make of a run: pure, so that a lost race is simply done over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tracewarehouse.errors import RunExists
from tracewarehouse.store.model import Changes, Outcome, RunVersion, Unit, Waiting


@dataclass(frozen=True)
class Merged:
    """The version to write (None: nothing changes), own outcomes, and markers that are settled."""

    version: RunVersion | None
    outcome: Mapping[int, Outcome]
    settled: tuple[Unit, ...] = ()
    pending: tuple[int, int] | None = None


@dataclass(frozen=True)
class _Rules:
    """How one unit may take the place of another."""

    replace: bool
    rebuilt: bool = False
    changes: Changes | None = None


def merge(base: RunVersion, changes: Changes, waiting: tuple[Waiting, ...] = ()) -> Merged:
    """Applies changes to the newest version (a tombstone counts as empty).

    `base` is version 0 for a run that is not there. With `expected_ranks`, units of other calls
    that wait are taken in with these, once the run has that many ranks. Raises RunExists where
    the name is taken in another spelling.
    """
    start = _start(base, changes)
    own = {unit.name for unit in changes.units}
    others = tuple(one for one in waiting if one.unit.name not in own and one.unit.run == start.run)
    held = {unit.rank: unit for unit in start.units}
    outcome = _apply(held, changes, others)
    pending = _pending(held, changes)
    if pending:
        return Merged(None, _own_pending(changes, outcome), _lost(changes, outcome), pending)
    for rank in changes.drop_ranks:
        held.pop(rank, None)
    settled = (*changes.units, *(one.unit for one in others))
    labels = _labels(start, held, changes, others)
    return Merged(_next(base, start, held, labels, changes), outcome, settled)


def _start(base: RunVersion, changes: Changes) -> RunVersion:
    """What the changes are applied to; the run's spelling is that of its units."""
    run = changes.units[0].run if changes.units else base.run
    if base.number == 0 or base.tombstone:
        return replace(base, run=run, units=(), labels={}, expected_ranks=None, tombstone=False, dropped=())
    if run != base.run:
        raise RunExists(
            f"run {run}: there is a run {base.run}, and names are unique without regard to case",
            f"use --run {base.run}, or another name",
        )
    return base


def _apply(held: dict[int, Unit], changes: Changes, others: tuple[Waiting, ...]) -> dict[int, Outcome]:
    """Puts units into `held` in the order they were committed; gives the outcomes of the own ones."""
    own = {unit.name for unit in changes.units}
    queue = [(unit, _Rules(changes.replace, changes.rebuilt, changes)) for unit in changes.units]
    queue += [(one.unit, _Rules(one.replace)) for one in others]
    outcome: dict[int, Outcome] = {}
    for unit, rules in sorted(queue, key=lambda item: (item[0].committed_at, item[0].name)):
        decided = _decide(held.get(unit.rank), unit, rules)
        if decided in ("added", "replaced"):
            held[unit.rank] = unit
        if unit.name in own:
            outcome[unit.rank] = decided
    return outcome


def _decide(stored: Unit | None, new: Unit, rules: _Rules) -> Outcome:
    """Whether `new` may take the place of `stored`."""
    if stored is None:
        return "conflict" if rules.rebuilt else "added"
    if stored.name == new.name:
        return "added"
    if rules.rebuilt or stored.digest == new.digest:
        return _same_source(stored, new, rules.rebuilt)
    return "replaced" if rules.replace or _gives_way(stored, new, rules.changes) else "conflict"


def _same_source(stored: Unit, new: Unit, rebuilt: bool) -> Outcome:
    if stored.digest != new.digest:
        return "conflict"
    return "replaced" if rebuilt or stored.reader != new.reader else "same"


def _gives_way(stored: Unit, new: Unit, changes: Changes | None) -> bool:
    """A damaged unit yields to a file without damage, or to a longer one that begins like it."""
    if stored.status != "damaged":
        return False
    if new.status != "damaged":
        return True
    begins_with = changes.begins_with if changes else None
    return new.text_bytes > stored.text_bytes and begins_with is not None and begins_with(stored, new)


def _pending(held: Mapping[int, Unit], changes: Changes) -> tuple[int, int] | None:
    expected = changes.expected_ranks
    return (len(held), expected) if expected is not None and len(held) < expected else None


def _own_pending(changes: Changes, outcome: Mapping[int, Outcome]) -> dict[int, Outcome]:
    return {
        rank: "pending" if decided in ("added", "replaced") else decided for rank, decided in outcome.items()
    }


def _lost(changes: Changes, outcome: Mapping[int, Outcome]) -> tuple[Unit, ...]:
    """Own units that need not wait, for they will never be taken."""
    return tuple(unit for unit in changes.units if outcome[unit.rank] in ("same", "conflict"))


def _labels(
    start: RunVersion, held: Mapping[int, Unit], changes: Changes, others: tuple[Waiting, ...]
) -> dict[str, str]:
    """The labels there were, then those of the calls whose units are taken in, own ones last."""
    taken = [one for one in others if held.get(one.unit.rank) == one.unit]
    said: dict[str, str | None] = dict(start.labels)
    for one in sorted(taken, key=lambda one: (one.unit.committed_at, one.unit.name)):
        said |= one.labels
    said |= changes.labels
    return {key: value for key, value in said.items() if value is not None}


def _next(
    base: RunVersion,
    start: RunVersion,
    held: Mapping[int, Unit],
    labels: Mapping[str, str],
    changes: Changes,
) -> RunVersion | None:
    """The version after `base`, None where it would say the same."""
    units = tuple(held[rank] for rank in sorted(held))
    expected = changes.expected_ranks if changes.expected_ranks is not None else start.expected_ranks
    new = replace(start, number=base.number + 1, units=units, labels=labels, expected_ranks=expected)
    same = (units, labels, expected) == (start.units, dict(start.labels), start.expected_ranks)
    return None if same else new
