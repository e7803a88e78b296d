"""What `Store.publish` writes: how the changes of a call and the newest version of a run become the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.errors import RunExists
from tracewarehouse.storage.layout import is_waiting
from tracewarehouse.storage.model import Changes, Outcome, PendingSource, RankSource, RunVersion

# The sources that the next version will hold, by name.
_Sources = dict[str, RankSource]


class Merged(Struct, frozen=True):
    """The version to write (None: no change), outcomes by name; if it waits, ranks present and expected."""

    version: RunVersion | None
    outcome: Mapping[str, Outcome]
    pending: tuple[int, int] | None = None


def merge(base: RunVersion, changes: Changes, waiting: Sequence[PendingSource] = ()) -> Merged:
    """Applies changes to the newest version (a tombstone counts as empty).

    `base` is version 0 for a run that does not exist. With `expected_ranks`, sources that other calls left
    waiting are published with these once the run has that many ranks; a seal publishes them anyway. Raises
    RunExists if the name exists in another spelling.
    """
    start = _start(base, changes, waiting)
    own = {source.name for source in changes.sources}
    pending = tuple(one for one in waiting if one.source.name not in own and one.source.run == start.run)
    after = {source.name: source for source in start.sources} if changes.sources or pending else None
    outcome = _apply(after, changes, pending) if after is not None else {}
    expected = changes.expected_ranks
    if expected is not None and not changes.seal:
        ranks = len({source.rank for source in after.values()} if after is not None else start.ranks)
        if ranks < expected:
            for name, decided in outcome.items():
                outcome[name] = "pending" if decided in ("added", "replaced") else decided
            return Merged(None, outcome, (ranks, expected))
    if changes.drop_ranks or changes.drop_sources:
        after = {source.name: source for source in start.sources} if after is None else after
        after = {
            name: source
            for name, source in after.items()
            if source.rank not in changes.drop_ranks and name not in changes.drop_sources
        }
    # The stored labels, then those of the calls whose sources are published, this call's last.
    labels: dict[str, str | None] = dict(start.labels)
    for one in sorted(pending, key=lambda one: (one.source.committed_at, one.source.name)):
        labels |= one.labels if after is not None and one.source.name in after else {}
    labels |= changes.labels
    stated = {key: value for key, value in labels.items() if value is not None}
    return Merged(_next(base, start, after, stated, changes, waiting), outcome)


def _start(base: RunVersion, changes: Changes, waiting: Sequence[PendingSource]) -> RunVersion:
    """The version that the changes apply to; the sources decide the spelling of the run."""
    sources = [*changes.sources, *(one.source for one in waiting if changes.seal)]
    run = sources[0].run if sources else base.run
    if base.number == 0 or base.tombstone:
        return replace(base.emptied(), run=run)
    if run != base.run:
        raise RunExists(
            f"run {run}: run names are case-insensitive, and run {base.run} already exists",
            hints.fill("use {}, or another name", hints.option("run", base.run)),
        )
    return base


def _apply(after: _Sources, changes: Changes, pending: Sequence[PendingSource]) -> dict[str, Outcome]:
    """Adds sources to `after` in the order of their commits; returns the outcomes of the call's sources."""
    own = {source.name for source in changes.sources}
    own |= {one.source.name for one in pending if changes.seal}
    queue: list[tuple[RankSource, bool, Changes | None]]
    queue = [(source, changes.replace, changes) for source in changes.sources]
    queue += [(one.source, one.replace, None) for one in pending]
    by_rank: dict[int, _Sources] = {}
    for name, source in after.items():
        by_rank.setdefault(source.rank, {})[name] = source
    outcome: dict[str, Outcome] = {}
    for source, may_replace, of_call in sorted(queue, key=lambda item: (item[0].committed_at, item[0].name)):
        beside = by_rank.setdefault(source.rank, {})
        decided, gone = _decide(tuple(beside.values()), source, may_replace, of_call)
        if decided in ("added", "replaced"):
            for replaced in gone:
                del beside[replaced.name], after[replaced.name]
            beside[source.name] = after[source.name] = source
        if source.name in own:
            outcome[source.name] = decided
    return outcome


def _decide(
    stored: Sequence[RankSource], new: RankSource, may_replace: bool, changes: Changes | None
) -> tuple[Outcome, tuple[RankSource, ...]]:
    """The outcome of `new` given the stored sources of its rank, and the sources that it replaces.

    `changes`: those of the call, None for a source of another call.
    """
    if any(one.name == new.name for one in stored):
        return "added", ()
    if changes and new.name in changes.replaces:
        replaced = tuple(one for one in stored if one.name == changes.replaces[new.name])
        return ("replaced", replaced) if replaced else ("conflict", ())
    same = [one for one in stored if one.identity == new.identity]
    if changes and changes.rebuilt:
        return ("replaced", tuple(same)) if same else ("conflict", ())
    damaged = changes.damaged if changes else frozenset()
    if any(_is_current(one, new) and one.name not in damaged for one in same):
        return "same", ()
    overlapping = [one for one in stored if one not in same and one.overlaps(new)]
    if all(may_replace or _is_replaced(one, new, changes) for one in overlapping):
        gone = (*same, *overlapping)
        return ("replaced" if gone else "added"), gone
    return "conflict", ()


def _is_current(stored: RankSource, new: RankSource) -> bool:
    """Whether the stored source is read and built like the new one, in the same options."""
    is_same = stored.is_redacted == new.is_redacted and all(
        new.facts.get(name) in (None, stored.facts.get(name)) for name in ("time_unit", "step_range")
    )
    is_same = is_same and stored.is_classified_by(new.kernel_rules)
    return is_same and stored.is_current(new.format, new.format_version, new.definitions)


def _is_replaced(stored: RankSource, new: RankSource, changes: Changes | None) -> bool:
    """Whether a damaged source is replaced: by an intact file, or a longer one with the same start."""
    if stored.status != "damaged":
        return False
    if new.status != "damaged":
        return True
    begins_with = changes.begins_with if changes else None
    return new.text_bytes > stored.text_bytes and begins_with is not None and begins_with(stored, new)


def _next(
    base: RunVersion,
    start: RunVersion,
    after: _Sources | None,
    labels: Mapping[str, str],
    changes: Changes,
    waiting: Sequence[PendingSource],
) -> RunVersion | None:
    """The version after `base`, None if nothing changes; `after`: its sources, None for those of `start`."""
    sources = start.sources
    if after is not None and after.keys() != {source.name for source in sources}:
        sources = tuple(sorted(after.values(), key=lambda one: (one.rank, one.name)))
    elif after is not None:
        by_name = {source.name: source for source in sources}
        if any(after[name] != source for name, source in by_name.items()):
            sources = tuple(sorted(after.values(), key=lambda one: (one.rank, one.name)))
    stated = max((one.expected_ranks for one in waiting if after and one.source.name in after), default=0)
    expected = changes.expected_ranks or stated or start.expected_ranks
    version = replace(start, number=base.number + 1, sources=sources, labels=labels, expected_ranks=expected)
    if sources is not start.sources or waiting:
        # The commits that waited and are settled, and that the new version does not hold.
        present = {*start.summary.commits, *(one.source.commit for one in waiting)}
        settled = {*start.retired, *filter(is_waiting, present)}
        settled.difference_update(source.commit for source in sources)
        version = replace(version, retired=tuple(sorted(settled)))
    is_same = sources is start.sources and labels == dict(start.labels) and expected == start.expected_ranks
    return None if is_same else replace(version, compacted=changes.compacted or start.compacted)
