"""Pushing: what was built is committed with the options of the call, and a later seal publishes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tracewarehouse.errors import MissingRanks, TwError
from tracewarehouse.formats.redact import Redactor, check_text
from tracewarehouse.ingest.build_task import staged_in
from tracewarehouse.ingest.decisions import ReadySource, conflict
from tracewarehouse.ingest.outcome import FileOutcome, Options
from tracewarehouse.ingest.publication import (
    PushedRanks,
    automatic_labels,
    file_outcome,
    host_label,
    labels_of,
)
from tracewarehouse.runs.seal import Sealed, seal
from tracewarehouse.storage import RunVersion, Store
from tracewarehouse.storage.pushed import Push


def push(
    store: Store, options: Options, ready: Sequence[ReadySource], redactor: Redactor
) -> tuple[list[FileOutcome], dict[str, RunVersion], dict[str, PushedRanks]]:
    """Commits each run. Returns each file's outcome, the versions of runs that became complete, and
    the ranks of the others.

    With `expect_ranks`, the call that brings the last rank publishes the run.
    """
    by_run: dict[str, list[ReadySource]] = defaultdict(list)
    for one in ready:
        by_run[one.assignment.run].append(one)
    outcomes: list[FileOutcome] = []
    written: dict[str, RunVersion] = {}
    pushed: dict[str, PushedRanks] = {}
    for run, members in sorted(by_run.items()):
        try:
            _commit(store, options, run, members, redactor)
            sealed, waiting = _completed(store, run, options.expect_ranks)
        except TwError as error:
            outcomes += [file_outcome(one, "refused", error.message, error.hint) for one in members]
            continue
        outcomes += [_outcome(one, sealed, waiting) for one in members]
        if sealed is not None and (version := store.newest(run)):
            written[run] = version
        pushed[run] = PushedRanks(tuple(sorted({one.assignment.rank for one in members})), waiting)
    return outcomes, written, pushed


def _commit(
    store: Store, options: Options, run: str, members: Sequence[ReadySource], redactor: Redactor
) -> None:
    labels = labels_of(options, members)
    check_text(redactor, "a label", labels)
    labels = {**automatic_labels(store, run, options, members, redactor), **labels}
    wanted = {(one.built_tables.rank, one.built_tables.uid) for one in members}
    for folder in sorted({one.built_tables.staged for one in members if one.built_tables.staged}):
        staged = staged_in(folder)
        if options.auto_labels:
            labels = {**host_label(staged), **labels}
        # Tables for a provisional rank may share files with the others.
        without = tuple(one.uid for one in staged if (one.rank, one.uid) not in wanted)
        store.commit(staged, "push", Push(labels, options.replace, options.expect_ranks, without))


def _completed(store: Store, run: str, expected: int | None) -> tuple[Sealed | None, tuple[int, int] | None]:
    """The published run if it has all expected ranks; else ranks present and expected, if stated."""
    if expected is None:
        return None, None
    version = store.newest(run)
    bounds = store.pushed_bounds(run)
    # The names of commits say at most which ranks are there; their manifests are read only if that suffices.
    there = {rank for first, last in bounds for rank in range(first, last + 1)}
    there |= set(version.ranks if version else ())
    if len(there) < expected:
        return None, (len(there), expected)
    try:
        return seal(store, run, expect_ranks=expected), None
    except MissingRanks as short:
        return None, (short.present, expected)


def _outcome(one: ReadySource, sealed: Sealed | None, waiting: tuple[int, int] | None) -> FileOutcome:
    if waiting is not None:
        return file_outcome(one, "pending", "waiting for ranks: {} of {} present".format(*waiting))
    if sealed is not None and one.assignment.rank in sealed.conflicts:
        return conflict(one.assignment, None)
    return file_outcome(one, one.read.status)
