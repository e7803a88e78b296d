"""Waits of whole runs, attributed when findings first need it and stored if the warehouse can be written."""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import TwError
from tracewarehouse.query.selection import Selection
from tracewarehouse.runs.readable import is_derived
from tracewarehouse.runs.rows import catalog_row
from tracewarehouse.runs.selection import SelectedRun


def attributed(selection: Selection) -> Selection:
    """The selection with the waits of each run attributed of which all ranks are selected.

    What is missing is computed once, and stored as a new version unless the warehouse cannot be written.
    """
    runs = selection.selected()
    found = tuple(_attributed(selection, run) if _lacks(selection.catalog, run) else run for run in runs)
    return selection if found == runs else selection.over(found, selection.left_out)


def _lacks(catalog: Catalog, run: SelectedRun) -> bool:
    """Whether ranks may have waited for one another and nothing says for whom."""
    with_collectives = [rank for rank in run.by_rank if rank.facts.get("collectives")]
    is_whole = run.ranks == run.version.ranks
    return is_whole and len(with_collectives) > 1 and not is_derived(catalog, run, "blame")


def _attributed(selection: Selection, run: SelectedRun) -> SelectedRun:
    from tracewarehouse.derive.blame import NAME, blame_tables
    from tracewarehouse.derive.critical_path import derivation_sources, publish_tables, unpublished
    from tracewarehouse.duck.engine import Error
    from tracewarehouse.storage.parquet_file import Level

    store, catalog = selection.store, selection.catalog
    try:
        selection.readable(derivation_sources(catalog, NAME), [run], Level.FULL)
        rows = blame_tables(selection, run)
    except (TwError, Error):  # the rules say what is damaged, expired or stored without a table
        return run
    version = None
    with suppress(TwError):
        if run.version.number == store.newest_number(run.run):
            store.objects.check_writable()
            version = publish_tables(store, catalog, run, NAME, rows)
            store.list_new_versions(catalog_row)
    after = replace(run, version=version or unpublished(catalog, run, NAME, rows))
    selection.pool.carry(run, after)
    return after
