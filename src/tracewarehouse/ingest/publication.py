"""Publishing what was built: one version per run, its labels, and the outcomes of files and runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tracewarehouse.errors import TwError
from tracewarehouse.formats.redact import Redactor, check_text
from tracewarehouse.ingest import execution_match
from tracewarehouse.ingest.build_task import commit_staged
from tracewarehouse.ingest.decisions import ReadySource, conflict
from tracewarehouse.ingest.environment import labels_of_process
from tracewarehouse.ingest.outcome import FileOutcome, Options, RunOutcome, State
from tracewarehouse.ingest.stored_sources import has_damage
from tracewarehouse.runs.quality import expected_ranks, run_issues
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Changes, Published, RankSource, RunVersion, Staged, Store, manifests


@dataclass(frozen=True)
class PushedRanks:
    """Ranks of a run that a call left to a seal; `waiting` = (ranks present, ranks expected)."""

    ranks: tuple[int, ...]
    waiting: tuple[int, int] | None = None


# A member of a run and its committed source.
_Committed: TypeAlias = tuple[ReadySource, RankSource]


def publish(
    store: Store, options: Options, ready: Sequence[ReadySource], redactor: Redactor
) -> tuple[list[FileOutcome], dict[str, RunVersion]]:
    """Publishes each run once. Returns each file's outcome and the new versions of runs.

    The files of a run that cannot be published, or has a label of a training job that looks like a secret,
    are refused; other runs are not affected.
    """
    by_run: dict[str, list[ReadySource]] = defaultdict(list)
    for one in ready:
        by_run[one.assignment.run].append(one)
    outcomes: list[FileOutcome] = []
    written: dict[str, RunVersion] = {}
    for run, members in sorted(by_run.items()):
        try:
            check_text(redactor, "a label", labels_of(options, members))
            automatic = automatic_labels(store, run, options, members, redactor)
            committed = list(zip(members, _committed(store, members), strict=True))
            kept, refused = _of_one_run(store, run, committed)
            outcomes += refused
            if refused and options.strict:
                outcomes += [file_outcome(one, "refused", "another file is refused") for one, _ in kept]
            if not kept or (refused and options.strict):
                continue
            members = [one for one, _ in kept]
            published, names = _publish_run(store, options, run, kept, automatic)
        except TwError as error:
            outcomes += [file_outcome(one, "refused", error.message, error.hint) for one in members]
            continue
        outcomes += [_outcome(one, name, published) for one, name in zip(members, names, strict=True)]
        if published.version:
            written[run] = published.version
    return outcomes, written


def _of_one_run(
    store: Store, run: str, members: Sequence[_Committed]
) -> tuple[Sequence[_Committed], list[FileOutcome]]:
    """The members without execution traces that do not match their rank's trace; outcomes of the others."""
    if not any(source.format == execution_match.FORMAT for _, source in members):
        return members, []
    sources = [source for _, source in members]
    unmatched = {
        source.name: match for source, match in execution_match.mismatches(store, store.newest(run), sources)
    }
    hint = "record both files in one run, with the same steps"
    refused = [
        file_outcome(one, "refused", unmatched[source.name].reason, hint)
        for one, source in members
        if source.name in unmatched
    ]
    return [pair for pair in members if pair[1].name not in unmatched], refused


def _publish_run(
    store: Store, options: Options, run: str, committed: Sequence[_Committed], automatic: Mapping[str, str]
) -> tuple[Published, tuple[str, ...]]:
    """The result of publishing, and the name of each member's source."""
    members, sources = [one for one, _ in committed], tuple(source for _, source in committed)
    paths = {one.name: member.source.path for one, member in zip(sources, members, strict=True)}

    def begins_with(stored: RankSource, new: RankSource) -> bool:
        from tracewarehouse.formats.file_text import prefix_digest

        if paths[new.name].is_dir():
            return False
        return prefix_digest(paths[new.name], stored.text_bytes) == stored.digest

    changes = Changes(
        sources=sources,
        labels={
            **(host_label(sources) if options.auto_labels else {}),
            **automatic,
            **labels_of(options, members),
        },
        replace=options.replace,
        expected_ranks=options.expect_ranks,
        begins_with=begins_with,
        damaged=_damaged(store, options, run, sources),
    )
    return store.publish(run, changes), tuple(one.name for one in sources)


def _damaged(store: Store, options: Options, run: str, sources: Sequence[RankSource]) -> frozenset[str]:
    """Names of stored sources that are replaced although the content is the same: damaged, or `replace`."""
    version = store.newest(run)
    identities = {(one.rank, *one.identity) for one in sources}
    same = [one for one in version.sources if (one.rank, *one.identity) in identities] if version else []
    return frozenset(one.name for one in same if options.replace or has_damage(store, one))


def _committed(store: Store, members: Sequence[ReadySource]) -> tuple[RankSource, ...]:
    """The committed source of each member; sources that were only staged are committed now."""
    found: dict[tuple[int, str], RankSource] = {}
    for folder in sorted({one.built_tables.staged for one in members if one.built_tables.staged}):
        found |= {(one.rank, one.uid): one for one in commit_staged(store, folder)}
    names = sorted({one.built_tables.manifest for one in members if one.built_tables.manifest})
    for manifest in manifests.read_many(store.objects, members[0].assignment.run, names):
        if isinstance(manifest, TwError):
            raise manifest
        found |= {(one.rank, one.uid): one for one in manifest.sources}
    return tuple(found[one.built_tables.rank, one.built_tables.uid] for one in members)


def labels_of(options: Options, members: Iterable[ReadySource]) -> dict[str, str]:
    """A run's labels: those of the training job, its window number, and those of the options."""
    labels: dict[str, str] = {}
    for one in sorted(members, key=lambda one: one.assignment.rank):
        if one.source.note:
            labels |= one.source.note.labels
        if one.assignment.window_number is not None:
            labels["span"] = str(one.assignment.window_number)
    return labels | dict(options.labels)


def automatic_labels(
    store: Store, run: str, options: Options, members: Sequence[ReadySource], redactor: Redactor
) -> dict[str, str]:
    """Labels from the environment of the call, without those that the run has; none for spooled traces."""
    if not options.auto_labels or any(one.source.note for one in members):
        return {}
    version = store.newest(run)
    stored = version.labels if version else {}
    found = labels_of_process(redactor, is_training=False)
    return {key: value for key, value in found.items() if key not in stored}


def host_label(sources: Sequence[RankSource | Staged]) -> dict[str, str]:
    """The host that the traces name, if these are all ranks of the run and there is only one host."""
    ranks = len({one.rank for one in sources})
    sizes = {one.facts.get("world_size") for one in sources}
    hosts = {one.facts.get("host") for one in sources}
    host = hosts.pop() if len(hosts) == 1 and sizes <= {None, ranks} else None
    return {"host": host} if isinstance(host, str) else {}


def relabel(store: Store, options: Options, runs: Iterable[str]) -> dict[str, RunVersion]:
    """Sets the labels of the options on otherwise unchanged runs; returns the new versions."""
    stored = [run for run in runs if store.newest(run)] if options.labels else []
    found = {run: store.relabel(run, dict(options.labels)).version for run in stored}
    return {run: version for run, version in found.items() if version}


def _outcome(one: ReadySource, name: str, published: Published) -> FileOutcome:
    result = published.outcome.get(name, "added")
    if result == "conflict":
        return conflict(one.assignment, None)
    if result == "same":
        return file_outcome(one, "same", "already stored")
    if result == "pending" or published.pending:
        there, expected = published.pending or (0, 0)
        return file_outcome(one, "pending", f"waiting for ranks: {there} of {expected} present")
    return file_outcome(one, one.read.status, "replaced what was stored" if result == "replaced" else None)


def file_outcome(
    one: ReadySource, state: State, reason: str | None = None, hint: str | None = None
) -> FileOutcome:
    """The outcome of a file whose tables were built."""
    assignment = one.assignment
    return FileOutcome(
        assignment.path,
        state,
        assignment.run,
        assignment.rank,
        reason,
        hint,
        assignment.notes,
        one.read.content,
    )


def run_outcomes(
    store: Store,
    files: Sequence[FileOutcome],
    written: Mapping[str, RunVersion],
    pushed: Mapping[str, PushedRanks] = {},
) -> tuple[RunOutcome, ...]:
    """The state of every run that the files belong to: as written by this call, else the current one.

    `pushed`: what was left to a seal.
    """
    runs = sorted({one.run for one in files if one.run and one.state != "refused"} | written.keys())
    return tuple(_run_outcome(store, run, written.get(run), pushed.get(run)) for run in runs)


def _run_outcome(
    store: Store, run: str, new: RunVersion | None, pushed: PushedRanks | None = None
) -> RunOutcome:
    version, written = new or store.newest(run), new is not None
    if pushed is not None and not written:
        ranks = version.ranks if version else ()
        number = version.number if version else None
        return RunOutcome(run, number, False, ranks, waiting=pushed.waiting, pushed=pushed.ranks)
    waits = store.pending(run)
    there = {one.source.rank for one in waits} | set(version.ranks if version else ())
    waiting = (len(there), max(one.expected_ranks for one in waits)) if waits else None
    if version is None:
        return RunOutcome(run, None, written, waiting=waiting)
    rules = tuple(
        (fired.rule, fired.example if fired.rank is None else f"rank {fired.rank}: {fired.example}")
        for fired in run_issues([SelectedRun(version, version.ranks)])
    )
    expected, start_ns = expected_ranks(version), version.brief.start_ns
    return RunOutcome(run, version.number, written, version.ranks, expected, waiting, rules, start_ns)
