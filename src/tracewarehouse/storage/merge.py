"""Merging the changes of a call into a run: pure, so that it is repeated after a lost race."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tracewarehouse import hints
from tracewarehouse.errors import RunExists
from tracewarehouse.storage.changes import Changes, Outcome, PendingSource
from tracewarehouse.storage.layout import is_pushed
from tracewarehouse.storage.model import RankSource, RunVersion

# The sources that the next version will hold, by name.
_Held = dict[str, RankSource]


@dataclass(frozen=True)
class Merged:
    """The version to write (None: no change), outcomes by name, and sources whose markers can be deleted."""

    version: RunVersion | None
    outcome: Mapping[str, Outcome]
    settled: tuple[RankSource, ...] = ()
    pending: tuple[int, int] | None = None


@dataclass(frozen=True)
class _Rules:
    """Whether a source may replace another."""

    replace: bool
    rebuilt: bool = False
    changes: Changes | None = None


def merge(base: RunVersion, changes: Changes, waiting: tuple[PendingSource, ...] = ()) -> Merged:
    """Applies changes to the newest version (a tombstone counts as empty).

    `base` is version 0 for a run that does not exist. With `expected_ranks`, pending sources of other
    calls are published with these once the run has that many ranks. Raises RunExists if the name
    exists in another spelling.
    """
    start = _start(base, changes)
    own = {source.name for source in changes.sources}
    others = tuple(one for one in waiting if one.source.name not in own and one.source.run == start.run)
    others += changes.pushed
    held = {source.name: source for source in start.sources}
    outcome = _apply(held, changes, others)
    pending = _pending(held, changes)
    if pending:
        return Merged(None, _as_pending(outcome), _lost(changes, outcome), pending)
    for name in [name for name, source in held.items() if _is_dropped(source, changes)]:
        del held[name]
    settled = (*changes.sources, *(one.source for one in others))
    labels = _labels(start, held, changes, others)
    return Merged(_next(base, start, held, labels, changes), outcome, settled)


def _is_dropped(source: RankSource, changes: Changes) -> bool:
    return source.rank in changes.drop_ranks or source.name in changes.drop_sources


def _start(base: RunVersion, changes: Changes) -> RunVersion:
    """The version that the changes apply to; the sources decide the spelling of the run."""
    new = [*changes.sources, *(one.source for one in changes.pushed)]
    run = new[0].run if new else base.run
    if base.number == 0 or base.tombstone:
        retired = base.retired
        return RunVersion(run, base.number, (), {}, None, base.created_at, base.tool, retired=retired)
    if run != base.run:
        raise RunExists(
            f"run {run}: run names are case-insensitive, and run {base.run} already exists",
            hints.fill("use {}, or another name", hints.option("run", base.run)),
        )
    return base


def _apply(held: _Held, changes: Changes, others: tuple[PendingSource, ...]) -> dict[str, Outcome]:
    """Adds sources to `held` in the order of their commits; returns the outcomes of the call's sources."""
    own = {source.name for source in changes.sources}
    own |= {one.source.name for one in changes.pushed}
    queue = [(source, _Rules(changes.replace, changes.rebuilt, changes)) for source in changes.sources]
    queue += [(one.source, _Rules(one.replace)) for one in others]
    by_rank: dict[int, _Held] = {}
    for name, source in held.items():
        by_rank.setdefault(source.rank, {})[name] = source
    outcome: dict[str, Outcome] = {}
    for source, rules in sorted(queue, key=lambda item: (item[0].committed_at, item[0].name)):
        beside = by_rank.setdefault(source.rank, {})
        decided, gone = _decide(tuple(beside.values()), source, rules)
        if decided in ("added", "replaced"):
            for one in gone:
                del beside[one.name], held[one.name]
            beside[source.name] = held[source.name] = source
        if source.name in own:
            outcome[source.name] = decided
    return outcome


def _decide(
    stored: Sequence[RankSource], new: RankSource, rules: _Rules
) -> tuple[Outcome, tuple[RankSource, ...]]:
    """The outcome of `new` given the stored sources of its rank, and the sources that it replaces."""
    if any(one.name == new.name for one in stored):
        return "added", ()
    if rules.changes and new.name in rules.changes.replaces:
        held = tuple(one for one in stored if one.name == rules.changes.replaces[new.name])
        return ("replaced", held) if held else ("conflict", ())
    same = [one for one in stored if one.identity == new.identity]
    if rules.rebuilt:
        return ("replaced", tuple(same)) if same else ("conflict", ())
    damaged = rules.changes.damaged if rules.changes else frozenset()
    if any(_is_current(one, new) and one.name not in damaged for one in same):
        return "same", ()
    others = [one for one in stored if one not in same and one.overlaps(new)]
    if all(rules.replace or _is_replaced(one, new, rules.changes) for one in others):
        gone = (*same, *others)
        return ("replaced" if gone else "added"), gone
    return "conflict", ()


def _is_current(stored: RankSource, new: RankSource) -> bool:
    """Whether the stored source is read and built like the new one, in the same options."""
    is_same = stored.is_redacted == new.is_redacted and all(
        new.facts.get(name) in (None, stored.facts.get(name)) for name in ("time_unit", "step_range")
    )
    return is_same and stored.is_current(new.format, new.format_version, new.definitions)


def _is_replaced(stored: RankSource, new: RankSource, changes: Changes | None) -> bool:
    """Whether a damaged source is replaced: by an intact file, or a longer one with the same start."""
    if stored.status != "damaged":
        return False
    if new.status != "damaged":
        return True
    begins_with = changes.begins_with if changes else None
    return new.text_bytes > stored.text_bytes and begins_with is not None and begins_with(stored, new)


def _pending(held: _Held, changes: Changes) -> tuple[int, int] | None:
    expected = changes.expected_ranks
    ranks = len({source.rank for source in held.values()})
    is_short = expected is not None and ranks < expected and not changes.allow_missing
    return (ranks, expected) if is_short and expected is not None else None


def _as_pending(outcome: Mapping[str, Outcome]) -> dict[str, Outcome]:
    return {
        name: "pending" if decided in ("added", "replaced") else decided for name, decided in outcome.items()
    }


def _lost(changes: Changes, outcome: Mapping[str, Outcome]) -> tuple[RankSource, ...]:
    """Sources of the call that will never be published, so they need no marker."""
    return tuple(source for source in changes.sources if outcome[source.name] in ("same", "conflict"))


def _labels(
    start: RunVersion, held: _Held, changes: Changes, others: tuple[PendingSource, ...]
) -> dict[str, str]:
    """The stored labels, then those of the calls whose sources are published, this call's last."""
    published = [one for one in others if one.source.name in held]
    labels: dict[str, str | None] = dict(start.labels)
    for one in sorted(published, key=lambda one: (one.source.committed_at, one.source.name)):
        labels |= one.labels
    labels |= changes.labels
    return {key: value for key, value in labels.items() if value is not None}


def _next(
    base: RunVersion, start: RunVersion, held: _Held, labels: Mapping[str, str], changes: Changes
) -> RunVersion | None:
    """The version after `base`, None if nothing changes."""
    sources = tuple(sorted(held.values(), key=lambda one: (one.rank, one.name)))
    stated = max((one.expected_ranks for one in changes.pushed if one.source.name in held), default=0)
    expected = changes.expected_ranks or stated or start.expected_ranks
    new = replace(start, number=base.number + 1, sources=sources, labels=labels, expected_ranks=expected)
    new = replace(new, retired=_retired(start, new, changes))
    new = replace(new, compacted=changes.compacted or start.compacted)
    same = (sources, labels, expected) == (start.sources, dict(start.labels), start.expected_ranks)
    return None if same else new


def _retired(start: RunVersion, new: RunVersion, changes: Changes) -> tuple[str, ...]:
    """The manifests of pushed commits that are settled, and that the new version does not hold."""
    seen = {source.manifest for source in start.sources}
    seen |= {one.source.manifest for one in changes.pushed}
    held = {source.manifest for source in new.sources}
    return tuple(sorted({*start.retired, *filter(is_pushed, seen)} - held))
