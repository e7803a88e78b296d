"""Taking away what no reader can ask for any more."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tracewarehouse.store import layout, results, units
from tracewarehouse.store.model import CleanReport, RunVersion
from tracewarehouse.store.names import run_key

if TYPE_CHECKING:
    from tracewarehouse.store.store import Store


@dataclass(frozen=True)
class _Plan:
    """Keys to take away, in this order: what names files goes before the files."""

    versions: tuple[str, ...]
    manifests: tuple[str, ...]
    data: tuple[str, ...]
    results: tuple[str, ...]


def clean(store: Store, grace_s: float) -> CleanReport:
    """Takes away, where older than `grace_s` seconds: the versions before a removal of their run,
    units and Parquet files that no kept version and no waiting unit holds, and broken-off staging.

    All other versions are kept, and stay readable as RUN@vN; so is the last tombstone, for its number. What
    was recorded of a kept version stays, and of a removed one whose results are to be kept.
    """
    before = time.time() - grace_s
    plan = _plan(store, before)
    files = bytes_ = 0
    for keys in (plan.versions, plan.manifests, plan.data, plan.results):
        found = [blob for key in keys if (blob := store.blobs.stat(key))]
        files, bytes_ = files + len(found), bytes_ + sum(blob.bytes for blob in found)
        store.blobs.delete(keys)
    for path in _stale_staging(store.root / layout.STAGING, before):
        files, bytes_ = files + 1, bytes_ + _take(path)
    store.forget()
    return CleanReport(files, bytes_, len(plan.versions))


def _plan(store: Store, before: float) -> _Plan:
    # Files are listed before the versions are read: what is published in between is seen as kept.
    old_data = [key for key in _data(store) if _older(store, key, before)]
    old_results = [(one, key) for one, key in results.every(store.blobs) if _older(store, key, before)]
    versions: list[str] = []
    manifests: list[str] = []
    kept: set[str] = set()
    sources = {(run_key(version.run), version.source) for version in store.kept()}
    for run in sorted({*store.keys(layout.RUNS), *store.keys(layout.UNITS)}):
        old = [*_manifests(store, run, before)]
        history = store.history(run)
        first = _first_kept(history, before)
        versions += [layout.version(run, one.number) for one in history if one.number < first]
        readable = [one for one in history if one.number >= first]
        sources |= {(run, one.source) for one in readable if one.units}
        dead, needed = _sort(store, run, old, readable)
        manifests += dead
        kept |= needed
    return _Plan(
        tuple(versions),
        tuple(manifests),
        tuple(key for key in old_data if key not in kept),
        tuple(key for one, key in old_results if (one.run, one.source) not in sources),
    )


def _first_kept(history: tuple[RunVersion, ...], before: float) -> int:
    """The number of the last removal that is out of grace; what came before it is not kept."""
    removals = (one.number for one in history if one.tombstone and _seconds(one.created_at) < before)
    return max(removals, default=0)


def _sort(
    store: Store, run: str, old: list[tuple[int, str, str]], kept: list[RunVersion]
) -> tuple[list[str], set[str]]:
    """Manifests and markers to take away, and the Parquet files that must stay."""
    alive = {unit.name: unit for version in kept for unit in version.units}
    alive |= {one.unit.name: one.unit for one in store.waiting(run)}
    dead = {name: key for _, name, key in old if name not in alive}
    files = {file.path for unit in alive.values() for file in unit.files}
    for rank, name in units.all_names(store.blobs, run):
        if name not in alive and name not in dead:
            files |= {file.path for file in units.read(store.blobs, run, rank, name).files}
    return [*_markers(store, run, dead), *dead.values()], files


def _markers(store: Store, run: str, dead: Iterable[str]) -> Iterator[str]:
    """Markers of units that are gone or were published while a call died."""
    waiting = {one.unit.name for one in store.waiting(run)}
    gone = units.settled(store.history(run)) | frozenset(dead)
    for marker in units.markers(store.blobs, run):
        if marker.name in gone and marker.name not in waiting:
            yield layout.marker(run, marker.rank, marker.name)


def _manifests(store: Store, run: str, before: float) -> Iterator[tuple[int, str, str]]:
    for rank, name in units.all_names(store.blobs, run):
        key = layout.unit(run, rank, name)
        if _older(store, key, before):
            yield rank, name, key


def _data(store: Store) -> Iterator[str]:
    """Every Parquet file under the data folder, whoever wrote it."""
    for table in store.blobs.list(layout.DATA):
        for run in store.blobs.list(f"{layout.DATA}/{table}"):
            for name in store.blobs.list(f"{layout.DATA}/{table}/{run}"):
                if name.endswith(".parquet"):
                    yield f"{layout.DATA}/{table}/{run}/{name}"


def _older(store: Store, key: str, before: float) -> bool:
    blob = store.blobs.stat(key)
    return blob is not None and blob.modified_s < before


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def _stale_staging(folder: Path, before: float) -> Iterator[Path]:
    """What broken-off calls left in the staging folder: all of it older than the grace."""
    for path in folder.iterdir() if folder.is_dir() else ():
        with suppress(FileNotFoundError):
            if max(inner.stat().st_mtime for inner in (path, *path.rglob("*"))) < before:
                yield path


def _take(path: Path) -> int:
    """Deletes a leftover; gives its bytes."""
    size = sum(inner.stat().st_size for inner in (path, *path.rglob("*")) if inner.is_file())
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return size
