"""Clean: deletes files that no reader can reach."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from datetime import datetime, timedelta
from pathlib import Path

from tracewarehouse.storage import cleaned, layout
from tracewarehouse.storage.changes import KEEP_VERSIONS_S
from tracewarehouse.storage.clean_plan import Plan, plan
from tracewarehouse.storage.listed_objects import ListedObjects
from tracewarehouse.storage.model import CleanReport
from tracewarehouse.storage.objects import Entry, Objects
from tracewarehouse.storage.remote import RemoteObjects
from tracewarehouse.storage.versions import Versions
from tracewarehouse.temp_folders import delete_unused, is_unused


def clean(
    store: Versions,
    grace_s: float,
    quarantine: bool = False,
    keep_versions_s: float = KEEP_VERSIONS_S,
) -> CleanReport:
    """Deletes, if older than `grace_s` seconds: versions before a removal of their run, versions with the
    same rows as a later one, versions replaced more than `keep_versions_s` ago, and their receipts, manifests
    of which no kept version or marker holds a source, Parquet files that no kept version, marker or manifest
    names, catalogs but the newest, and staging folders of killed calls.

    Kept versions are readable as RUN@vN; the last tombstone stays for its number, and the last version of
    each content that an acknowledgement refers to. A record of deleted versions is written before they are
    deleted; the next call completes a killed one. Recorded results of kept versions stay, also those of
    removed runs that are to be kept. Nothing is deleted of a run with a lost or damaged version or manifest,
    which may have held any of its files, or with quarantined objects; `quarantine` deletes these first,
    whatever their age.
    """
    now = store.objects.clock()
    before = now - timedelta(seconds=grace_s)
    versions_before = min(before, now - timedelta(seconds=keep_versions_s))
    files = bytes_ = 0
    if quarantine:
        files, bytes_ = _delete(store.objects, list(store.objects.walk(f"{layout.QUARANTINE}/")))
    listed = _listed(store)
    planned = plan(listed, before, versions_before)
    replaced_records = _record(store, planned)
    for keys in planned.in_order:
        found = [entry for _, entry in listed.objects.stat_many(keys) if entry]
        deleted, freed = _delete(store.objects, found)
        files, bytes_ = files + deleted, bytes_ + freed
    store.objects.delete(replaced_records)
    for path in _stale_staging(store.folder / layout.STAGING, before):
        with suppress(FileNotFoundError):  # another clean deletes it, too
            files, bytes_ = files + 1, bytes_ + _delete_leftover(path)
    delete_unused()
    store.forget()
    return CleanReport(files, bytes_, len(planned.versions), tuple(sorted(map(store.name, planned.skipped))))


def _listed(store: Versions) -> Versions:
    """The store with the names of its objects as of now, listed once; a folder is looked at as it is."""
    if not isinstance(store.objects, RemoteObjects):
        return store
    found = copy(store)
    found.objects = ListedObjects(store.objects)
    return found


def _record(store: Versions, planned: Plan) -> list[str]:
    """Writes a record for each run that loses versions; the keys of the earlier records."""
    by_run: dict[str, list[str]] = {run: [] for run in planned.gone}
    for key in (key for keys in planned.in_order for key in keys):
        if (run := layout.run_of(key)) in by_run:
            by_run[run].append(key)
    return [
        key
        for run, (numbers, names) in planned.gone.items()
        for key in cleaned.write(store.objects, run, numbers, names, by_run[run])
    ]


def _delete(objects: Objects, found: Sequence[Entry]) -> tuple[int, int]:
    """Deletes objects; their number and bytes."""
    objects.delete([entry.key for entry in found])
    return len(found), sum(entry.bytes for entry in found)


def _stale_staging(folder: Path, before: datetime) -> Iterator[Path]:
    """Leftovers of killed calls in the staging folder: unlocked, or entirely older than the grace period."""
    for path in folder.iterdir() if folder.is_dir() else ():
        with suppress(FileNotFoundError):
            if (
                is_unused(path)
                or max(inner.stat().st_mtime for inner in (path, *path.rglob("*"))) < before.timestamp()
            ):
                yield path


def _delete_leftover(path: Path) -> int:
    """Deletes a leftover and returns its bytes."""
    size = sum(inner.stat().st_size for inner in (path, *path.rglob("*")) if inner.is_file())
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return size
