"""Runs as an earlier release stored them: without the tables that were added later."""

from __future__ import annotations

from collections.abc import Collection

import tracewarehouse as tw
from tracewarehouse.ingest.rebuild import rebuilt
from tracewarehouse.storage.model import Changes, RankSource, Staged
from tracewarehouse.storage.store import Store

# The tables of a release after the first ones of format 2.
ADDED = (
    "flight_records", "kernel_modules", "modules", "op_work", "snapshot_blocks", "snapshot_events",
    "snapshot_frames", "snapshot_segments",
)  # fmt: skip
ADDED_FACTS = ("flight_records", "snapshot")


def without_tables(wh: tw.Warehouse, run: str, tables: Collection[str] = ADDED) -> None:
    """Publishes the run again as if it had been ingested before these tables existed."""
    version = wh.store.newest(run)
    assert version is not None
    headers = wh.store.headers(version.sources)
    staged = [_older(source, headers.get(source.name, "{}"), tables) for source in version.sources]
    assert isinstance(wh.store, Store)
    wh.store.publish(run, Changes(sources=tuple(wh.store.commit(staged)), rebuilt=True))


def _older(source: RankSource, header: str, tables: Collection[str]) -> Staged:
    held = source.facts["tables"]
    assert isinstance(held, dict) and set(tables) <= held.keys()
    facts = {name: value for name, value in source.facts.items() if name not in ADDED_FACTS}
    return rebuilt(
        source,
        header,
        (),
        {**facts, "tables": {name: versions for name, versions in held.items() if name not in tables}},
        {name: number for name, number in source.definitions.items() if name not in tables},
        tuple(file for file in source.files if file.table not in tables),
    )
