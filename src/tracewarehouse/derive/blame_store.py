"""`tw derive blame`: stores the blame of a run as tables of a new version."""

from __future__ import annotations

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.derive.blame import compute, tables
from tracewarehouse.derive.blame_inputs import Inputs
from tracewarehouse.derive.critical_path import Derived
from tracewarehouse.derive.derived_source import definition, with_derived
from tracewarehouse.ingest.parquet import RankFiles
from tracewarehouse.runs.readable import FACT, is_current
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Changes, Json, Rank, RunVersion, Store

NAME = "blame"


def derive_blame(store: Store, catalog: Catalog, selected: SelectedRun) -> Derived:
    """Derives the blame of a run, unless it is stored and current. Raises TwError."""
    done = all(_is_current(catalog, selected.version, rank) for rank in selected.by_rank)
    version = None if done else _publish(store, catalog, selected)
    return Derived(selected.run, dict.fromkeys(selected.ranks, ()), version.number if version else None)


def _is_current(catalog: Catalog, version: RunVersion, rank: Rank) -> bool:
    derived = rank.main.facts.get(FACT)
    fact = derived.get(NAME) if isinstance(derived, dict) else None
    same = isinstance(fact, dict) and fact.get("hash") == definition(catalog, NAME)
    return same and is_current(version, rank, NAME)


def _publish(store: Store, catalog: Catalog, selected: SelectedRun) -> RunVersion | None:
    inputs = Inputs.read(store, catalog, selected)
    blame = compute(inputs)
    rows = tables(inputs, blame)
    sources = [rank.main for rank in selected.by_rank]
    headers = store.headers(sources)
    fact: dict[str, Json] = {"ranks": selected.version.source}
    if not len(blame.wait_ns):
        fact["nothing"] = inputs.why_nothing()
    with store.staging() as staging, RankFiles(catalog, staging, single=False) as files:
        for table, by_rank in rows.items():
            for rank, of_rank in by_rank.items():
                files.add(selected.run, rank, table, of_rank)
        staged = files.staged(selected.run)
        committed = store.commit(
            [
                with_derived(
                    catalog, source, headers.get(source.name, "{}"), NAME, staged.get(source.rank, ()), fact
                )
                for source in sources
            ]
        )
        return store.publish(selected.run, Changes(sources=committed, rebuilt=True)).version
