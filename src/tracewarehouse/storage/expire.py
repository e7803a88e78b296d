"""Retention in storage: a version of a run without the files of some tables of some ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tracewarehouse.errors import UnknownName
from tracewarehouse.storage.changes import Changes, Expired, Expiring
from tracewarehouse.storage.compact import staged_again
from tracewarehouse.storage.model import EXPIRED, Json, RankSource, RunVersion

if TYPE_CHECKING:
    from tracewarehouse.storage.store import Store


def expire(store: Store, run: str, expiring: Expiring, dry_run: bool = False) -> Expired:
    """Publishes a version without these tables of these ranks; facts and recorded results stay.

    Ingesting the same trace again restores them. Raises UnknownName.
    """
    head = store.head(run)
    if head.number == 0 or head.tombstone:
        raise UnknownName("run", run, store.runs())
    old = {source.name: source for source in head.sources if _dropped(source, expiring)}
    changed = {name: _without(source, expiring) for name, source in old.items()}
    report = _report(head, old, changed)
    if dry_run or not old:
        return report
    headers = store.headers(old.values())
    dropped = {file.path for source in old.values() for file in source.files}
    staged = [staged_again(one, headers[one.name], (), ()) for one in changed.values()]
    committed = store.commit(staged)
    replaces = {new.name: name for new, name in zip(committed, changed, strict=True)}
    done = store.publish(head.run, Changes(sources=committed, replaces=replaces))
    skipped = sorted({one.rank for one in committed if done.outcome[one.name] != "replaced"})
    new = done.version or store.head(run)
    for path in dropped - {file.path for source in new.sources for file in source.files}:
        store.files.forget(path)
    return replace(report, version=new.number, skipped_ranks=tuple(skipped))


def _dropped(source: RankSource, expiring: Expiring) -> dict[str, Json]:
    """The tables of the source that expire, and why."""
    tables = expiring.get(source.rank, {})
    return {file.table: tables[file.table] for file in source.files if file.table in tables}


def _without(source: RankSource, expiring: Expiring) -> RankSource:
    gone = _dropped(source, expiring)
    known, tables = source.facts.get(EXPIRED), source.facts.get("tables")
    facts: dict[str, Json] = {**source.facts}
    facts[EXPIRED] = {**(known if isinstance(known, dict) else {}), **gone}
    if isinstance(tables, dict):
        facts["tables"] = {name: versions for name, versions in tables.items() if name not in gone}
    return replace(source, facts=facts, files=tuple(file for file in source.files if file.table not in gone))


def _report(head: RunVersion, old: Mapping[str, RankSource], new: Mapping[str, RankSource]) -> Expired:
    before = {file.path: file for source in old.values() for file in source.files}
    after = {file.path for source in head.sources for file in new.get(source.name, source).files}
    read_less = {
        file.path for name, source in old.items() for file in source.files if file not in new[name].files
    }
    gone = [file for path, file in before.items() if path not in after]
    tables = {table for source in new.values() for table in source.expired} - {
        table for source in old.values() for table in source.expired
    }
    return Expired(
        head.run,
        head.number,
        tuple(sorted(tables | {file.table for file in gone})),
        len({source.rank for source in old.values()}),
        len(gone),
        sum(file.bytes for file in gone),
        len(read_less & after),
    )
