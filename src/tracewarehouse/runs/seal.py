"""Sealing: the ranks that wait for others are published as one version, if the run is complete."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from tracewarehouse import hints
from tracewarehouse.errors import MissingRanks, UnknownName
from tracewarehouse.exact_text import missing_ranks
from tracewarehouse.runs.rows import expected_ranks
from tracewarehouse.runs.selection import explain_unknown
from tracewarehouse.storage.model import Changes, RunVersion
from tracewarehouse.storage.store import Store


class Sealed(Struct, frozen=True):
    """The newest version of a run after a seal; `written` if this call published it.

    `conflicts`: waiting ranks that were not published, because the run has them with different content.
    """

    run: str
    version: int
    written: bool
    ranks: tuple[int, ...]
    expected_ranks: int | None
    conflicts: tuple[int, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 success, 4 if some ranks were not published."""
        return 4 if self.conflicts else 0


def seal(
    store: Store,
    run: str,
    *,
    expect_ranks: int | None = None,
    allow_missing: bool = False,
    labels: Mapping[str, str | None] | None = None,
) -> Sealed:
    """Publishes all waiting ranks of a run in one version; with nothing new, writes nothing.

    The run must have `expect_ranks` ranks, by default those that were stated at ingest, else the world size
    of the traces. Raises MissingRanks unless `allow_missing`, UnknownName if there is no such run.
    """

    def check(version: RunVersion) -> None:
        if not allow_missing:
            _check_complete(version, expect_ranks)

    try:
        changes = Changes(labels=labels or {}, expected_ranks=expect_ranks, seal=True)
        done = store.publish(run, changes, check)
    except UnknownName as unknown:
        explain_unknown(store, unknown)
        raise
    refused = {name for name, outcome in done.outcome.items() if outcome == "conflict"}
    conflicts = {one.source.rank for one in done.waited if one.source.name in refused}
    newest = done.newest
    return Sealed(
        newest.run,
        newest.number,
        done.version is not None,
        newest.ranks,
        expected_ranks(newest),
        tuple(sorted(conflicts)),
    )


def _check_complete(version: RunVersion, expect_ranks: int | None) -> None:
    expected = expect_ranks or expected_ranks(version) or 0
    present = len(version.ranks)
    if present >= expected:
        return
    missing, ranks = missing_ranks(version.ranks, expected)
    noun = "rank" if missing == 1 else "ranks"
    raise MissingRanks(
        f"run {version.run}: {noun} {ranks} of {expected} missing; nothing was published",
        hints.fill("ingest them, or publish without them: {}", hints.option("allow_missing")),
        present,
    )
