"""Repair of recorded results: damaged files are quarantined, and recorded again if possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracewarehouse.compare.history.record import Narrow, record
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import TwError
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Recorded, Store, copies, quarantine, results
from tracewarehouse.storage.parquet_file import sha256
from tracewarehouse.storage.repair import Step


def repair_results(
    store: Store, catalog: Catalog, keys: Sequence[str], narrow: Narrow, dry_run: bool
) -> Iterator[Step]:
    """Quarantines damaged results of these runs, records them again, and unlists those that are lost."""
    lost: dict[str, Recorded] = {}
    for recorded, key in tuple(results.every(store.objects)):
        if recorded.run in keys and results.fault(store.path(key), recorded) is not None:
            lost[key] = recorded
            if not dry_run:
                quarantine.take_out(store, key)
    listed = results.listed(store.objects).values()
    sources = {(one.run, one.source) for one in listed if one.run in keys}
    lost |= {key: recorded for recorded, key in results.missing(store.objects, sources)}
    for key, recorded in lost.items():
        is_back = _record_again(store, catalog, recorded, narrow, dry_run)
        what = "recorded result computed again" if is_back else "recorded result lost: it cannot be computed"
        yield Step(recorded.run, key, what, not is_back)
    if not dry_run:
        _unlist(store, keys)
    yield from _take_out_rollups(store, keys, dry_run)


def _take_out_rollups(store: Store, keys: Sequence[str], dry_run: bool) -> Iterator[Step]:
    """Quarantines damaged roll-ups of these runs: they only repeat what the results hold."""
    for recorded, key in tuple(results.rollups_below(store.objects)):
        if recorded.run in keys and results.fault(store.path(key), recorded) is not None:
            if not dry_run:
                quarantine.take_out(store, key)
            yield Step(recorded.run, key, "damaged roll-up quarantined: its result is read in its place")


def _record_again(store: Store, catalog: Catalog, recorded: Recorded, narrow: Narrow, dry_run: bool) -> bool:
    """Whether the result is recorded again, or could be."""
    try:
        version = store.newest(recorded.run)
        contract = catalog.get(recorded.analysis, recorded.version, kind="analysis")
        if version is None or version.source != recorded.source:
            return False
        if not catalog.effective_hash(contract).startswith(recorded.effective):
            return False
        if dry_run:
            return True
        selected = SelectedRun(version, version.ranks)
        record(store, catalog, [selected], [contract], narrow)
    except TwError:
        return False
    return any(
        one == recorded for one, _ in results.of_analysis(store.objects, contract.name, contract.version)
    )


def _unlist(store: Store, keys: Sequence[str]) -> None:
    """Replaces lists that name lost results of these runs, so that they are not reported as missing."""
    present = {recorded for recorded, _ in results.every(store.objects)}
    for stored in tuple(results.lists(store.objects)):
        if stored.value is None:
            continue
        listed = stored.value
        gone = {each for each, one in listed.items() if one not in present and one.run in keys}
        if gone:
            left = [each for each in listed if each not in gone and store.objects.stat(each) is not None]
            for key in (stored.key, copies.key_of_copy(stored.key)):
                quarantine.take_out(store, key)
            if left:
                rows = [[each, store.path(each).stat().st_size, sha256(store.path(each))] for each in left]
                results.write_list(store.objects, rows)
