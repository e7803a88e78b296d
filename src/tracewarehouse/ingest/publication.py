"""From read sources to published runs: final runs and ranks, comparison with the store, one version each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tracewarehouse import hints
from tracewarehouse.errors import DamagedRunError, TwError
from tracewarehouse.formats.redact import Redactor, check_text
from tracewarehouse.ingest import execution_match
from tracewarehouse.ingest.build_task import commit_staged
from tracewarehouse.ingest.environment import labels_of_process
from tracewarehouse.ingest.naming.assignment import (
    Assignment,
    Duplicate,
    NameCleaner,
    Naming,
    Refusal,
    assign,
)
from tracewarehouse.ingest.naming.run_names import TraceFile
from tracewarehouse.ingest.outcome import BY_ANOTHER_PROCESS, FileOutcome, Options, RunOutcome, State
from tracewarehouse.ingest.plan import (
    BuiltTables,
    Item,
    ReadSource,
    StoredSources,
    UnreadSource,
    has_damage,
    item_of,
)
from tracewarehouse.ingest.remote_file import GONE
from tracewarehouse.ingest.survey import Candidate, SurveyedSource, other_format
from tracewarehouse.runs.quality import expected_ranks, run_issues
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Changes, Published, RankSource, RunVersion, Staged, Store, manifests


@dataclass(frozen=True)
class ReadySource:
    """A source whose tables are built for its run and rank."""

    source: SurveyedSource
    assignment: Assignment
    read: ReadSource
    built_tables: BuiltTables


@dataclass(frozen=True)
class PushedRanks:
    """Ranks of a run that a call left to a seal; `waiting` = (ranks present, ranks expected)."""

    ranks: tuple[int, ...]
    waiting: tuple[int, int] | None = None


# A member of a run and its committed source.
_Committed: TypeAlias = tuple[ReadySource, RankSource]


@dataclass
class Decisions:
    """The final outcomes, the sources ready to be published, and those to build again for another rank."""

    outcomes: list[FileOutcome] = field(default_factory=list)
    ready: list[ReadySource] = field(default_factory=list)
    rebuilds: list[Item] = field(default_factory=list)
    assignments: dict[int, Assignment] = field(default_factory=dict)


def assign_all(
    sources: Sequence[SurveyedSource],
    reads: Mapping[int, ReadSource],
    options: Options,
    clean: NameCleaner = str,
) -> Naming:
    """The final runs and ranks of all sources that were read."""
    windows = {sources[number].path: read.window for number, read in reads.items()}
    files = [_tracefile_outcome(sources[number], read) for number, read in reads.items()]
    run = None if options.inbox else options.run
    return assign(
        files,
        windows=lambda paths: {path: windows[path] for path in paths},
        run=run,
        rank=options.rank,
        clean=clean,
    )


def _tracefile_outcome(source: SurveyedSource, read: ReadSource) -> TraceFile:
    note = source.note
    world_size = read.world_size if read.world_size is not None or note is None else note.world_size
    return TraceFile(
        source.path,
        read.digest,
        read.rank,
        world_size,
        read.status == "damaged",
        note.run if note else None,
        note.window_number if note else None,
        source.part.name,
        source.part.addition,
    )


def decide(
    stored: StoredSources,
    options: Options,
    sources: Sequence[SurveyedSource],
    reads: Mapping[int, ReadSource],
    naming: Naming,
) -> Decisions:
    """Compares the assigned runs and ranks with what is stored and what was built."""
    numbers = {(sources[number].path, sources[number].part.name): number for number in reads}
    found = Decisions()
    stored.look_again()
    found.outcomes += [_duplicate(one) for one in naming.duplicates]
    found.outcomes += [
        _refused(stored.store, one, reads[numbers[one.path, one.part]]) for one in naming.refusals
    ]
    for assignment in naming.assigned:
        number = numbers[assignment.path, assignment.part]
        found.assignments[number] = assignment
        _decide_one(stored, options, number, sources[number], reads[number], assignment, found)
    return found


def _decide_one(
    stored: StoredSources,
    options: Options,
    number: int,
    source: SurveyedSource,
    read: ReadSource,
    assignment: Assignment,
    found: Decisions,
) -> None:
    built_tables = read.built_tables
    if built_tables and (built_tables.run, built_tables.rank) == (assignment.run, assignment.rank):
        found.ready.append(ReadySource(source, assignment, read, built_tables))
        return
    if (damage := stored.damage(assignment.run)) is not None:
        found.outcomes.append(_damaged_run(assignment, damage))
        return
    target = stored.target(source.format, assignment)
    published = target.published if target else None
    if target is None:
        found.outcomes.append(_spelling_conflict(stored.store, assignment))
    elif published and published.digest == read.digest and published.is_current:
        found.outcomes.append(
            FileOutcome(
                assignment.path,
                "same",
                assignment.run,
                assignment.rank,
                "already stored",
                notes=assignment.notes,
            )
        )
    elif (
        published
        and published.digest != read.digest
        and not published.may_be_replaced_by(read.status, read.text_bytes, options.replace)
    ):
        found.outcomes.append(
            conflict(assignment, stored.source(assignment.run, assignment.rank, source.format))
        )
    else:
        item = item_of(stored, number, source, assignment)
        found.rebuilds.append(replace(item, digest=read.digest, text_bytes=read.text_bytes))


def _damaged_run(assignment: Assignment, error: DamagedRunError) -> FileOutcome:
    run, rank = assignment.run, assignment.rank
    return FileOutcome(assignment.path, "refused", run, rank, error.message, error.hint, assignment.notes)


def _spelling_conflict(store: Store, assignment: Assignment) -> FileOutcome:
    other = store.spelling(assignment.run)
    reason = f"run {assignment.run}: run names are case-insensitive, and run {other} already exists"
    hint = hints.fill("use {}, or another name", hints.option("run", other))
    return FileOutcome(assignment.path, "refused", assignment.run, assignment.rank, reason, hint)


def _duplicate(one: Duplicate) -> FileOutcome:
    return FileOutcome(one.path, "skipped", one.run, one.rank, f"same content as {one.of.name}")


def _refused(store: Store, one: Refusal, read: ReadSource) -> FileOutcome:
    """Refused, unless its content is already a rank of the run, after someone followed the hint."""
    for source in _sources(store, one.run) if one.run else ():
        if source.identity == (read.digest, one.part):
            return FileOutcome(one.path, "same", one.run, source.rank, f"stored as rank {source.rank}")
    return FileOutcome(one.path, "refused", one.run, one.rank, one.reason, one.hint)


def _sources(store: Store, run: str) -> tuple[RankSource, ...]:
    """The sources of a run; none of a damaged one."""
    try:
        version = store.newest(run)
    except DamagedRunError:
        return ()
    return version.sources if version else ()


def conflict(assignment: Assignment, stored: RankSource | None) -> FileOutcome:
    """The refusal of a file whose rank is stored with different content."""
    source = stored.facts.get("source_name") if stored else None
    reason = f"rank {assignment.rank} of run {assignment.run} already exists with different content"
    hint = hints.fill(
        "{} overwrites it, {} stores it as another run", hints.option("replace"), hints.option("run", "NAME")
    )
    reason = f"{reason}, from {source}" if source else reason
    return FileOutcome(assignment.path, "refused", assignment.run, assignment.rank, reason, hint)


def unread_outcome(
    source: SurveyedSource,
    report: UnreadSource,
    options: Options,
    named: bool,
    assignment: Assignment | None = None,
) -> FileOutcome:
    """The outcome of a file that could not be read; `assignment` if it was to be built a second time."""
    path = source.path
    run, rank = (assignment.run, assignment.rank) if assignment else (None, None)
    if options.inbox and source.remote is None and not path.exists():
        return FileOutcome(path, "skipped", run, rank, BY_ANOTHER_PROCESS)
    if report.why == "changed":
        return FileOutcome(path, "pending", run, rank, "changed while it was read", "ingest it again later")
    if report.why == "unfinished":
        reason = f"is truncated and was modified less than {options.settle_s:g} s ago"
        return FileOutcome(
            path,
            "pending",
            run,
            rank,
            reason,
            hints.Hint(
                "ingest it again later, or with settle_s=0", "ingest it again later, or with --settle 0"
            ),
        )
    if report.why == "other":
        return other_format(Candidate(path, named), report.kind, report.details)
    assert report.failure is not None
    if options.inbox and source.remote is not None and GONE in report.failure.message:
        return FileOutcome(path, "skipped", run, rank, BY_ANOTHER_PROCESS)
    reason = report.failure.message.removeprefix(f"{path}: ")
    details = report.failure.details
    return FileOutcome(path, "refused", run, rank, reason, report.failure.hint, details=details)


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
