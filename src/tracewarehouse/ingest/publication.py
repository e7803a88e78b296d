"""Publication: committed ranks become a version of their run, or wait for other ranks.

The rule is that of the view `execution_matches`, which also covers traces that are ingested later.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tracewarehouse.errors import TwError
from tracewarehouse.formats.redact.text import Redactor, check_text
from tracewarehouse.ingest.attempts import is_mixed
from tracewarehouse.ingest.build import staged_in
from tracewarehouse.ingest.environment import Recorded, labels_of_process
from tracewarehouse.ingest.naming import folder_of
from tracewarehouse.ingest.outcome import FileOutcome, Options, RunOutcome, State
from tracewarehouse.ingest.sources import Source
from tracewarehouse.ingest.stored import conflict, has_damage
from tracewarehouse.late_regex import late_regex
from tracewarehouse.runs.recording import recording_verdict
from tracewarehouse.runs.rows import expected_ranks, recording_limits, run_issues
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import commits
from tracewarehouse.storage.model import Changes, Published, RankSource, RunVersion, Staged
from tracewarehouse.storage.store import Store

FORMAT: Final = "execution_trace"
_NODES: Final = "execution_nodes"
_EVENTS: Final = "events"
_OPERATOR: Final = "cpu_op"
_NAMED: Final = (_OPERATOR, "user_annotation")
_RECORD_FUNCTION: Final = late_regex(r'"Record function id"\s*:\s*([0-9]{1,18})\b')
_LEAST_PERCENT: Final = 99
# Later starts are times since 1970: a computer does not run for 30 years.
_EPOCH_NS: Final = 10**18
# External IDs are small numbers: a few operators of one name agree by accident.
_LEAST_NAMES: Final = 5


class Match(Struct, frozen=True):
    """IDs in both files and how many have the same name; `by` is the argument of the events with the ID."""

    by: str
    ids: int
    equal: int
    distinct_names: int

    @property
    def is_one_run(self) -> bool:
        """Whether the files are of one run."""
        if not self.ids or 100 * self.equal < _LEAST_PERCENT * self.ids:
            return False
        return self.by == "Record function id" or self.distinct_names >= _LEAST_NAMES

    @property
    def reason(self) -> str:
        """Why the execution trace is refused."""
        if not self.ids:
            return "no ID of the execution trace occurs in the rank's trace: they are not of one run"
        if 100 * self.equal >= _LEAST_PERCENT * self.ids:
            return f"only {self.distinct_names} distinct names have the same ID in both: too few to join them"
        share = 100 * self.equal // self.ids
        return (
            f"{self.equal} of {self.ids} operators with the same ID ({share} %) have the same name"
            " in the rank's trace: they are not of one run"
        )


def mismatches(
    store: Store, version: RunVersion | None, sources: Sequence[RankSource]
) -> Iterator[tuple[RankSource, Match]]:
    """The execution traces among new sources that are not of the run of their rank's trace.

    A rank without a trace takes any.
    """
    traces = {source.rank: source for source in sources if _EVENTS in source.fills}
    for source in sources:
        if source.format != FORMAT:
            continue
        stored = version.rank(source.rank) if version and source.rank not in traces else None
        trace = traces.get(source.rank) or (stored.main if stored and _EVENTS in stored.main.fills else None)
        if trace is not None:
            match = _match(_nodes(store, source), *_recorded(store, trace))
            if not match.is_one_run:
                yield source, match


def _match(nodes: dict[int, str], by: str, recorded: dict[int, str]) -> Match:
    pairs = [(name, recorded[number]) for number, name in nodes.items() if number in recorded]
    equal = [name for name, recorded_name in pairs if name == recorded_name]
    return Match(by, len(pairs), len(equal), len(set(equal)))


def _nodes(store: Store, source: RankSource) -> dict[int, str]:
    """Record function ID → the name of the first node with it."""
    names: dict[int, str] = {}
    for rows in _rows(store, source, _NODES, ("node_id", "record_function", "name")):
        for row in rows.sort_by("node_id").to_pylist():
            if row["record_function"] is not None:
                names.setdefault(row["record_function"], row["name"] or "")
    return names


def _recorded(store: Store, source: RankSource) -> tuple[str, dict[int, str]]:
    """The argument that holds the IDs, and ID → name of the first operator or annotation with it."""
    by_record: dict[int, str] = {}
    by_external: dict[int, str] = {}
    for rows in _rows(store, source, _EVENTS, ("category", "name", "external_id", "args")):
        chosen = pc.is_in(rows.column("category"), pa.array(_NAMED))
        for row in rows.filter(chosen).to_pylist():
            name = row["name"] or ""
            match = _RECORD_FUNCTION.search(row["args"] or "")
            if match and (number := int(match[1])):
                by_record.setdefault(number, name)
            if row["category"] == _OPERATOR and row["external_id"] is not None:
                by_external.setdefault(row["external_id"], name)
    return ("Record function id", by_record) if by_record else ("External id", by_external)


def _rows(store: Store, source: RankSource, table: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rank's rows of a stored table, one row group at a time."""
    from tracewarehouse.ingest.rebuild import rank_rows

    for file in source.files:
        for rows in rank_rows(store.path(file.path), source.rank, columns) if file.table == table else ():
            yield rows.select(list(columns))


# A member of a run and its committed source.
_Committed: TypeAlias = tuple[Source, RankSource]


def publish(
    store: Store, options: Options, ready: Sequence[Source], redactor: Redactor
) -> tuple[list[FileOutcome], dict[str, RunVersion], dict[str, tuple[int, int]]]:
    """Publishes each run once. Returns each file's outcome, the new versions of runs, and those that wait.

    These have the numbers of ranks present and expected.

    The files of a run that cannot be published, or has a label of a training job that looks like a secret,
    are refused; other runs are not affected.
    """
    by_run: dict[str, list[Source]] = defaultdict(list)
    for source in ready:
        by_run[source.target.run].append(source)
    outcomes: list[FileOutcome] = []
    written: dict[str, RunVersion] = {}
    waiting: dict[str, tuple[int, int]] = {}
    for run, members in sorted(by_run.items()):
        try:
            check_text(redactor, "a label", labels_of(options, members))
            automatic = automatic_labels(store, run, options, members, redactor)
            committed = list(zip(members, _committed(store, members), strict=True))
            matching, refused = _of_one_run(store, run, committed)
            outcomes += refused
            if refused and options.strict:
                outcomes += [file_outcome(one, "refused", "another file is refused") for one, _ in matching]
            if not matching or (refused and options.strict):
                continue
            members = [source for source, _ in matching]
            published, names = _publish_run(store, options, run, matching, automatic)
        except TwError as error:
            outcomes += [file_outcome(source, "refused", error.message, error.hint) for source in members]
            continue
        outcomes += [
            _published_outcome(source, name, published) for source, name in zip(members, names, strict=True)
        ]
        if published.version:
            written[run] = published.version
        if published.pending:
            waiting[run] = published.pending
    return outcomes, written, waiting


def _of_one_run(
    store: Store, run: str, members: Sequence[_Committed]
) -> tuple[Sequence[_Committed], list[FileOutcome]]:
    """The members without execution traces that do not match their rank's trace; outcomes of the others."""
    if not any(source.format == FORMAT for _, source in members):
        return members, []
    sources = [source for _, source in members]
    unmatched = {source.name: match for source, match in mismatches(store, store.newest(run), sources)}
    hint = "record both files in one run, with the same steps"
    refused = [
        file_outcome(member, "refused", unmatched[source.name].reason, hint)
        for member, source in members
        if source.name in unmatched
    ]
    return [pair for pair in members if pair[1].name not in unmatched], refused


def _publish_run(
    store: Store, options: Options, run: str, committed: Sequence[_Committed], automatic: Mapping[str, str]
) -> tuple[Published, tuple[str, ...]]:
    """The result of publishing, and the name of each member's source."""
    members, sources = [member for member, _ in committed], tuple(source for _, source in committed)
    paths = {source.name: member.file.path for source, member in zip(sources, members, strict=True)}

    def begins_with(stored: RankSource, new: RankSource) -> bool:
        from tracewarehouse.formats.file_text import prefix_digest

        if paths[new.name].is_dir():
            return False
        return prefix_digest(paths[new.name], stored.text_bytes) == stored.digest

    def check(new: RunVersion) -> None:
        if options.inbox and is_mixed(new.sources):
            raise TwError("another start of the job was stored at the same time", "ingest the inbox again")

    version = store.newest(run)
    identities = {(source.rank, *source.identity) for source in sources}
    same = [one for one in version.sources if (one.rank, *one.identity) in identities] if version else []
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
        # Their content is the same, but they are damaged, or `replace` is set.
        damaged=frozenset(source.name for source in same if options.replace or has_damage(store, source)),
    )
    return store.publish(run, changes, check), tuple(source.name for source in sources)


def _committed(store: Store, members: Sequence[Source]) -> tuple[RankSource, ...]:
    """The committed source of each member; sources that were only staged are committed now."""
    by_uid: dict[tuple[int, str], RankSource] = {}
    for folder in sorted({source.committed.staged for source in members if source.committed.staged}):
        by_uid |= {(source.rank, source.uid): source for source in store.commit(staged_in(folder))}
    names = sorted({source.committed.commit for source in members if source.committed.commit})
    for commit in commits.read_many(store.objects, members[0].target.run, names):
        if isinstance(commit, TwError):
            raise commit
        by_uid |= {(source.rank, source.uid): source for source in commit.sources}
    return tuple(by_uid[source.target.rank, source.committed.uid] for source in members)


def labels_of(options: Options, members: Iterable[Source]) -> dict[str, str]:
    """A run's labels: those of the training job, its window number, and those of the options."""
    labels: dict[str, str] = {}
    for source in sorted(members, key=lambda source: source.target.rank):
        if source.file.note:
            labels |= source.file.note.labels
        if source.target.window_number is not None:
            labels["span"] = str(source.target.window_number)
    return labels | dict(options.labels)


def automatic_labels(
    store: Store, run: str, options: Options, members: Sequence[Source], redactor: Redactor
) -> dict[str, str]:
    """Labels from the environment of the call, without those that the run has; none for spooled traces."""
    if not options.auto_labels or any(source.file.note for source in members):
        return {}
    version = store.newest(run)
    stored = version.labels if version else {}
    folders = frozenset(Path(os.sep) if one.file.object else folder_of(one.file.path) for one in members)
    automatic = labels_of_process(redactor, Recorded(folders, min(map(_recorded_ns, members))))
    return {key: value for key, value in automatic.items() if key not in stored}


def _recorded_ns(source: Source) -> int:
    """When a trace was recorded: its start, or when it was written if its times have another origin."""
    start_ns, written_ns = source.committed.window[0], source.stamp[1]
    return min(start_ns, written_ns) if start_ns and start_ns > _EPOCH_NS else written_ns


def host_label(sources: Sequence[RankSource | Staged]) -> dict[str, str]:
    """The host that the traces name, if these are all ranks of the run and there is only one host."""
    ranks = len({source.rank for source in sources})
    sizes = {source.facts.get("world_size") for source in sources}
    hosts = {source.facts.get("host") for source in sources}
    host = hosts.pop() if len(hosts) == 1 and sizes <= {None, ranks} else None
    return {"host": host} if isinstance(host, str) else {}


def relabel(store: Store, options: Options, runs: Iterable[str]) -> dict[str, RunVersion]:
    """Sets the labels of the options on otherwise unchanged runs; returns the new versions."""
    stored = [run for run in runs if store.newest(run)] if options.labels else []
    versions = {run: store.relabel(run, dict(options.labels)).version for run in stored}
    return {run: version for run, version in versions.items() if version}


def _published_outcome(source: Source, name: str, published: Published) -> FileOutcome:
    result = published.outcome.get(name, "added")
    if result == "conflict":
        return conflict(source)
    if result == "same":
        return file_outcome(source, "same", "already stored")
    if result == "pending" or published.pending:
        present, expected = published.pending or (0, 0)
        return file_outcome(source, "pending", f"waiting for ranks: {present} of {expected} present")
    return file_outcome(
        source, source.committed.status, "replaced what was stored" if result == "replaced" else None
    )


def file_outcome(
    source: Source, state: State, reason: str | None = None, hint: str | None = None
) -> FileOutcome:
    """The outcome of a source whose tables were built."""
    return source.outcome(state, reason, hint, source.committed.content)


def run_outcomes(
    store: Store,
    files: Sequence[FileOutcome],
    written: Mapping[str, RunVersion],
    waiting: Mapping[str, tuple[int, int]],
) -> tuple[RunOutcome, ...]:
    """The state of every run that the files belong to: as written by this call, else the current one.

    `waiting`: the runs that wait for ranks, with the numbers of ranks present and expected.
    """
    runs = sorted({file.run for file in files if file.run and file.state != "refused"} | written.keys())
    return tuple(_run_outcome(store, run, written.get(run), waiting.get(run)) for run in runs)


def _run_outcome(
    store: Store, run: str, written: RunVersion | None, waiting: tuple[int, int] | None
) -> RunOutcome:
    version, is_written = written or store.newest(run), written is not None
    if version is None:
        return RunOutcome(run, None, is_written, waiting=waiting)
    rules = tuple(
        (fired.rule, fired.example if fired.rank is None else f"rank {fired.rank}: {fired.example}")
        for fired in run_issues([SelectedRun(version, version.ranks)])
    )
    expected, start_ns = expected_ranks(version), version.brief.start_ns
    recorded = recording_verdict(recording_limits([SelectedRun(version, version.ranks)]))
    ranks = version.ranks
    return RunOutcome(run, version.number, is_written, ranks, expected, waiting, rules, start_ns, recorded)
