"""`tw upgrade` of a warehouse of format 1: every rank built again from its stored events, in format 2.

First all ranks are committed, then every run gets its next version, then recorded results are copied to
their new places, and `_tw/warehouse.json` is replaced last: until then the warehouse is one of format 1. What
a call that died had committed or published is not done again. The old files stay until `tw clean`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tracewarehouse.catalog import Catalog
from tracewarehouse.errors import TwError
from tracewarehouse.ingest import machine
from tracewarehouse.ingest.plan import GROUP_BYTES, GROUP_RANKS
from tracewarehouse.ingest.pool import Failure, Workers
from tracewarehouse.ingest.stored_rank import READ, RebuildRanks, StoredRank, uid_of
from tracewarehouse.storage import Changes, RankSource, Staged, Store
from tracewarehouse.storage.convert import Conversion, with_footers
from tracewarehouse.storage.format1 import Format1, OldRun, OldWaiting


@dataclass(frozen=True)
class _Run:
    """A run to be converted, and what waits of it."""

    key: str
    old: OldRun | None
    waiting: tuple[OldWaiting, ...]
    published: bool


@dataclass
class _Call:
    store: Store
    catalog: Catalog
    conversion: Conversion
    # (run, rank, old name) → the source that takes the place of that commit.
    made: dict[tuple[str, int, str], RankSource] = field(default_factory=dict)

    def commit(self, run: _Run, workers: Workers, staging: Path) -> None:
        """Builds and commits every source of a run that no earlier call has."""
        wanted = [(source, run.old.headers[source.rank]) for source in _sources(run)] if run.old else []
        wanted += [(one.source, one.header) for one in run.waiting]
        left = {(one.rank, one.uid): one for one in self.store.unpublished(run.key)} if wanted else {}
        left |= {(one.source.rank, one.source.uid): one.source for one in self.store.waiting(run.key)}
        todo: list[StoredRank] = []
        for source, header in wanted:
            found = left.get((source.rank, uid_of(self.catalog, source)))
            if found is None:
                todo.append(self._stored(source, header))
            else:
                self.made[run.key, source.rank, source.name] = found
        tasks = [
            RebuildRanks(group, staging / f"{run.key}-{number:06d}", self.catalog.folder)
            for number, group in enumerate(_groups(todo))
        ]
        for number, result in workers.run(tasks, lambda *_: None):
            if isinstance(result, Failure):
                names = ", ".join(str(each.source.rank) for each in tasks[number].ranks)
                raise TwError(f"run {run.key} rank {names}: {result.message}", result.hint)
            self._commit(run.key, tasks[number], result)  # type: ignore[arg-type]

    def _commit(self, key: str, task: RebuildRanks, staged: Sequence[Staged]) -> None:
        for each, made in zip(task.ranks, self.store.commit(staged), strict=True):
            self.made[key, made.rank, each.source.name] = made

    def _stored(self, source: RankSource, header: str) -> StoredRank:
        files = {
            table: tuple(self.store.path(file.path) for file in source.files if file.table == table)
            for table in READ
        }
        derived = {contract.name for contract in self.catalog.tables() if contract.derived}
        kept = with_footers(self.store, (file for file in source.files if file.table in derived))
        return StoredRank(source, header, files, tuple(kept))

    def publish(self, run: _Run) -> str | None:
        """The next version of a run, and the markers of what waits; a line on it, None for a removed run."""
        if not run.published and run.old is not None:
            self.conversion.publish(run.old.version, self._made(run.key, _sources(run)))
        for one in run.waiting:
            (source,) = self._made(run.key, [one.source])
            changes = Changes((source,), (), one.labels, one.replace, False, one.expected_ranks)
            self.conversion.wait(changes)
        ranks = len({source.rank for source in (*_sources(run), *(one.source for one in run.waiting))})
        name = next((source.run for source in (*_sources(run), *(w.source for w in run.waiting))), run.key)
        return f"{name}: {ranks} {'rank' if ranks == 1 else 'ranks'} converted" if ranks else None

    def _made(self, key: str, sources: Iterable[RankSource]) -> tuple[RankSource, ...]:
        return tuple(self.made[key, one.rank, one.name] for one in sources)


def convert(root: Path, catalog: Catalog, tool: str) -> tuple[str, ...]:
    """Converts the warehouse at `root` to the format of now; gives a line per run.

    Raises WarehouseError where a file of it is damaged, TwError where a rank cannot be built.
    """
    old = Format1(root)
    conversion = Conversion(root, old.identity(), tool)
    call = _Call(conversion.store, catalog, conversion)
    runs = [_run(old, conversion, key) for key in old.runs()]
    pending = [run for run in runs if not run.published or run.waiting]
    jobs = _jobs(pending)
    with conversion.store.staging() as staging, Workers(jobs) as workers:
        for run in pending:
            call.commit(run if not run.published else replace(run, old=None), workers, staging)
    lines = [line for run in runs if (line := call.publish(run)) is not None]
    conversion.finish(old, {run.key: run.old for run in runs if run.old is not None})
    return tuple(lines)


def _groups(ranks: Sequence[StoredRank]) -> Iterator[tuple[StoredRank, ...]]:
    """Small neighbors together; of one rank, which may wait and be published, one in each group."""
    group: list[StoredRank] = []
    for each in ranks:
        size = sum(one.source.text_bytes for one in group) + each.source.text_bytes
        known = any(one.source.rank == each.source.rank for one in group)
        if group and (known or len(group) == GROUP_RANKS or size > GROUP_BYTES):
            yield tuple(group)
            group = []
        group.append(each)
    if group:
        yield tuple(group)


def _run(old: Format1, conversion: Conversion, key: str) -> _Run:
    return _Run(key, old.newest(key), tuple(old.waiting(key)), conversion.is_published(key))


def _sources(run: _Run) -> tuple[RankSource, ...]:
    return run.old.version.sources if run.old else ()


def _jobs(runs: Sequence[_Run]) -> int:
    sources = [source for run in runs for source in (*_sources(run), *(one.source for one in run.waiting))]
    size = sum(source.text_bytes for source in sources)
    return max(1, min(machine.cores(), len(sources), 1 + size // (16 << 20)))
