"""From tables staged to runs that readers see: one commit and one publish per run and call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from tracewarehouse.errors import TwError
from tracewarehouse.ingest.make import Ready
from tracewarehouse.ingest.outcome import FileOutcome, Options, RunOutcome, State
from tracewarehouse.ingest.plan import conflict
from tracewarehouse.select.chosen import Chosen
from tracewarehouse.select.quality import expected_ranks, run_rules
from tracewarehouse.storage import Changes, Outcome, Published, RankSource, Store


def publish(store: Store, options: Options, ready: Sequence[Ready]) -> tuple[list[FileOutcome], set[str]]:
    """Publish each run once. Gives each file's outcome, and the runs of which a version was written.

    A run that cannot be published has its files refused; the others are published all the same.
    """
    by_run: dict[str, list[Ready]] = defaultdict(list)
    for one in ready:
        by_run[one.job.place.run].append(one)
    outcomes: list[FileOutcome] = []
    written: set[str] = set()
    for run, members in sorted(by_run.items()):
        try:
            published, came = _publish_run(store, options, run, members)
        except TwError as error:
            outcomes += [_file(one, "refused", error.message, error.hint) for one in members]
            continue
        outcomes += [_outcome(one, published, came[one.job.place.rank]) for one in members]
        if published.version:
            written.add(run)
    return outcomes, written


def _publish_run(
    store: Store, options: Options, run: str, members: Sequence[Ready]
) -> tuple[Published, dict[int, Outcome]]:
    committed = iter(store.commit([one.staged for one in members if one.staged]))
    sources = tuple(one.source or next(committed) for one in members)
    paths = {one.job.place.rank: one.job.path for one in members}

    def begins_with(stored: RankSource, new: RankSource) -> bool:
        from tracewarehouse.reader import prefix_digest

        return prefix_digest(paths[new.rank], stored.text_bytes) == stored.digest

    changes = Changes(
        sources=sources,
        labels=labels_of(options, members),
        replace=options.replace,
        expected_ranks=options.expect_ranks,
        begins_with=begins_with,
    )
    published = store.publish(run, changes)
    return published, {source.rank: published.outcome[source.name] for source in sources}


def labels_of(options: Options, members: Iterable[Ready]) -> dict[str, str]:
    """A run's labels: what the training jobs gave, its span, and what this call was asked for."""
    labels: dict[str, str] = {}
    for one in sorted(members, key=lambda one: one.job.place.rank):
        if one.job.trace.dropped:
            labels |= one.job.trace.dropped.labels
        if one.job.place.span is not None:
            labels["span"] = str(one.job.place.span)
    return labels | dict(options.labels)


def relabel(store: Store, options: Options, runs: Iterable[str]) -> set[str]:
    """Set the labels asked for on runs of which nothing else changed; gives those that got a version."""
    if not options.labels:
        return set()
    return {run for run in runs if store.newest(run) and store.relabel(run, dict(options.labels)).version}


def _outcome(one: Ready, published: Published, came: Outcome) -> FileOutcome:
    if came == "conflict":
        return conflict(one.job.place, None)
    if came == "same":
        return _file(one, "same", "already stored")
    if came == "pending" or published.pending:
        there, expected = published.pending or (0, 0)
        return _file(one, "pending", f"waits: {there} of {expected} ranks are there")
    return _file(one, one.content.status, "replaced what was stored" if came == "replaced" else None)


def _file(one: Ready, state: State, reason: str | None = None, hint: str | None = None) -> FileOutcome:
    place = one.job.place
    return FileOutcome(
        place.path,
        state,
        place.run,
        place.rank,
        reason,
        hint,
        place.notes,
        one.content,
    )


def run_outcomes(store: Store, files: Sequence[FileOutcome], written: set[str]) -> tuple[RunOutcome, ...]:
    """Every run that the files belong to, as readers see it now."""
    runs = sorted({one.run for one in files if one.run and one.state != "refused"} | written)
    return tuple(_run_outcome(store, run, run in written) for run in runs)


def _run_outcome(store: Store, run: str, written: bool) -> RunOutcome:
    version = store.newest(run)
    waits = store.waiting(run)
    there = {one.source.rank for one in waits} | set(version.ranks if version else ())
    waiting = (len(there), max(one.expected_ranks for one in waits)) if waits else None
    if version is None:
        return RunOutcome(run, None, written, waiting=waiting)
    told = tuple(
        (fired.rule, fired.example if fired.rank is None else f"rank {fired.rank}: {fired.example}")
        for fired in run_rules([Chosen(version, version.ranks)])
    )
    return RunOutcome(run, version.number, written, version.ranks, expected_ranks(version), waiting, told)
