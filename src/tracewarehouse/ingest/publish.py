"""From committed sources to runs that readers see: one publish per run and call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from tracewarehouse.errors import TwError
from tracewarehouse.ingest.build_rank import commit_staged
from tracewarehouse.ingest.outcome import FileOutcome, Options, RunOutcome, State
from tracewarehouse.ingest.plan import has_damage
from tracewarehouse.ingest.verdict import Ready, conflict
from tracewarehouse.runs.quality import expected_ranks, run_rules
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Changes, Published, RankSource, Store, manifests


def publish(store: Store, options: Options, ready: Sequence[Ready]) -> tuple[list[FileOutcome], set[str]]:
    """Publish each run once. Gives each file's outcome, and the runs of which a version was written.

    A run that cannot be published has its files refused; the others are published all the same.
    """
    by_run: dict[str, list[Ready]] = defaultdict(list)
    for one in ready:
        by_run[one.place.run].append(one)
    outcomes: list[FileOutcome] = []
    written: set[str] = set()
    for run, members in sorted(by_run.items()):
        try:
            published, names = _publish_run(store, options, run, members)
        except TwError as error:
            outcomes += [_file(one, "refused", error.message, error.hint) for one in members]
            continue
        outcomes += [_outcome(one, name, published) for one, name in zip(members, names, strict=True)]
        if published.version:
            written.add(run)
    return outcomes, written


def _publish_run(
    store: Store, options: Options, run: str, members: Sequence[Ready]
) -> tuple[Published, tuple[str, ...]]:
    """What came of it, and the name of each member's source."""
    sources = _committed(store, members)
    paths = {one.name: member.source.path for one, member in zip(sources, members, strict=True)}

    def begins_with(stored: RankSource, new: RankSource) -> bool:
        from tracewarehouse.formats.unpack import prefix_digest

        return prefix_digest(paths[new.name], stored.text_bytes) == stored.digest

    changes = Changes(
        sources=sources,
        labels=labels_of(options, members),
        replace=options.replace,
        expected_ranks=options.expect_ranks,
        begins_with=begins_with,
        damaged=_damaged(store, options, run, sources),
    )
    return store.publish(run, changes), tuple(one.name for one in sources)


def _damaged(store: Store, options: Options, run: str, sources: Sequence[RankSource]) -> frozenset[str]:
    """Names of the stored sources with the content of these that are to be replaced all the same."""
    version = store.newest(run)
    identities = {(one.rank, *one.identity) for one in sources}
    same = [one for one in version.sources if (one.rank, *one.identity) in identities] if version else []
    return frozenset(one.name for one in same if options.replace or has_damage(store, one))


def _committed(store: Store, members: Sequence[Ready]) -> tuple[RankSource, ...]:
    """What each is committed as; what a task only staged is committed now."""
    found: dict[tuple[int, str], RankSource] = {}
    for folder in sorted({one.made.staged for one in members if one.made.staged}):
        found |= {(one.rank, one.uid): one for one in commit_staged(store, folder)}
    for name in sorted({one.made.manifest for one in members if one.made.manifest}):
        manifest = manifests.read(store.objects, members[0].place.run, name)
        found |= {(one.rank, one.uid): one for one in manifest.sources}
    return tuple(found[one.made.rank, one.made.uid] for one in members)


def labels_of(options: Options, members: Iterable[Ready]) -> dict[str, str]:
    """A run's labels: what the training jobs gave, its span, and what this call was asked for."""
    labels: dict[str, str] = {}
    for one in sorted(members, key=lambda one: one.place.rank):
        if one.source.dropped:
            labels |= one.source.dropped.labels
        if one.place.span is not None:
            labels["span"] = str(one.place.span)
    return labels | dict(options.labels)


def relabel(store: Store, options: Options, runs: Iterable[str]) -> set[str]:
    """Set the labels asked for on runs of which nothing else changed; gives those that got a version."""
    if not options.labels:
        return set()
    return {run for run in runs if store.newest(run) and store.relabel(run, dict(options.labels)).version}


def _outcome(one: Ready, name: str, published: Published) -> FileOutcome:
    came = published.outcome.get(name, "added")
    if came == "conflict":
        return conflict(one.place, None)
    if came == "same":
        return _file(one, "same", "already stored")
    if came == "pending" or published.pending:
        there, expected = published.pending or (0, 0)
        return _file(one, "pending", f"waits: {there} of {expected} ranks are there")
    return _file(one, one.read.status, "replaced what was stored" if came == "replaced" else None)


def _file(one: Ready, state: State, reason: str | None = None, hint: str | None = None) -> FileOutcome:
    place = one.place
    return FileOutcome(
        place.path,
        state,
        place.run,
        place.rank,
        reason,
        hint,
        place.notes,
        one.read.content,
    )


def run_outcomes(store: Store, files: Sequence[FileOutcome], written: set[str]) -> tuple[RunOutcome, ...]:
    """Every run that the files belong to, as readers see it now."""
    runs = sorted({one.run for one in files if one.run and one.state != "refused"} | written)
    return tuple(_run_outcome(store, run, run in written) for run in runs)


def _run_outcome(store: Store, run: str, written: bool) -> RunOutcome:
    version = store.newest(run)
    waits = store.pending(run)
    there = {one.source.rank for one in waits} | set(version.ranks if version else ())
    waiting = (len(there), max(one.expected_ranks for one in waits)) if waits else None
    if version is None:
        return RunOutcome(run, None, written, waiting=waiting)
    told = tuple(
        (fired.rule, fired.example if fired.rank is None else f"rank {fired.rank}: {fired.example}")
        for fired in run_rules([SelectedRun(version, version.ranks)])
    )
    return RunOutcome(run, version.number, written, version.ranks, expected_ranks(version), waiting, told)
