"""Which versions of a run `clean` keeps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from tracewarehouse.storage.codec import dump
from tracewarehouse.storage.model import RankSource, RunVersion


@dataclass(frozen=True)
class KeepRules:
    """`replaced_before`: a version whose rows a later version also has goes if it was replaced before this.

    `versions_before`: any other version goes if it was replaced before this. `acknowledged`: sources of the
    run that an acknowledgement refers to; the last version of each stays.
    """

    replaced_before: datetime
    versions_before: datetime
    acknowledged: Collection[str] = ()


def last_removal(history: Sequence[RunVersion], before: datetime) -> int:
    """The number of the last removal before this time; earlier versions are not kept."""
    removals = (one.number for one in history if one.tombstone and _created(one) < before)
    return max(removals, default=0)


def kept_versions(history: Sequence[RunVersion], rules: KeepRules) -> frozenset[int]:
    """The numbers to keep of the versions of a run, which are given oldest first.

    The newest version and the newest removal stay, and what the rules keep. A label keeps nothing.
    """
    if not history:
        return frozenset()
    first = last_removal(history, rules.replaced_before)
    removals = [one.number for one in history if one.tombstone]
    kept = {history[-1].number, *removals[-1:]}
    later, later_sources = {_content(history[-1])}, {history[-1].source}
    for version, following in reversed(list(pairwise(history))):
        content, replaced_at = _content(version), _created(following)
        limit = rules.replaced_before if content in later else rules.versions_before
        acknowledged = version.source in rules.acknowledged and version.source not in later_sources
        if version.number >= first and (acknowledged or replaced_at >= limit):
            kept.add(version.number)
        later.add(content)
        later_sources.add(version.source)
    return frozenset(kept)


def _created(version: RunVersion) -> datetime:
    return datetime.fromisoformat(version.created_at)


def _content(version: RunVersion) -> str:
    """Equal for versions with the same rows and facts, whatever their files and labels."""
    sources = [
        [one.rank, one.uid, one.status, dict(one.definitions), dict(one.facts), _tables(one)]
        for one in version.sources
    ]
    return dump([version.run, version.tombstone, sources])


def _tables(source: RankSource) -> list[tuple[str, int, int]]:
    return sorted((file.table, file.version, file.rows) for file in source.files)
