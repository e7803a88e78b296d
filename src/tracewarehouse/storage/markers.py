"""Markers of sources that wait for the other ranks of their run (`--expect-ranks`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage import layout, manifests
from tracewarehouse.storage.changes import Changes, PendingSource
from tracewarehouse.storage.codec import dump
from tracewarehouse.storage.model import RankSource, RunVersion
from tracewarehouse.storage.objects import Objects, names_in


@dataclass(frozen=True)
class Marker:
    """The marker of a pending source: its name identifies the source, its content what it waits for."""

    rank: int
    name: str
    manifest: str
    expected_ranks: int
    replace: bool
    labels: Mapping[str, str | None]


def mark(objects: Objects, changes: Changes) -> None:
    """Marks the sources of a call as pending; does nothing without `expected_ranks`."""
    if changes.expected_ranks is not None:
        fields: dict[str, object] = {"expected_ranks": changes.expected_ranks, "replace": changes.replace}
        fields |= {"labels": dict(changes.labels)}
        objects.put(
            {
                layout.marker(one.run, one.rank, one.name): dump(fields | {"manifest": one.manifest}).encode()
                for one in changes.sources
            }
        )


def unmark(objects: Objects, run: str, sources: Sequence[RankSource]) -> None:
    """Deletes the markers of sources."""
    objects.delete([layout.marker(run, one.rank, one.name) for one in sources])


def stored(objects: Objects, run: str) -> tuple[Marker, ...]:
    """The markers of a run, also those of sources that a killed call published."""
    found = []
    for file in names_in(objects, layout.waiting(run)):
        rank, _, name = file.removesuffix(".json").partition("-")
        # Another call may publish and delete the marker at any moment.
        with suppress(FileNotFoundError):
            fields = json.loads(objects.get(f"{layout.waiting(run)}/{file}"))
            labels = fields["labels"]
            found.append(
                Marker(
                    int(rank), name, fields["manifest"], fields["expected_ranks"], fields["replace"], labels
                )
            )
    return tuple(found)


def held_or_dropped(history: Sequence[RunVersion]) -> frozenset[str]:
    """Names of the sources that a version has held or a removal has dropped."""
    held = {source.name for version in history for source in version.sources}
    return frozenset(held.union(*(version.dropped for version in history)))


def pending_sources(objects: Objects, run: str, marked: Sequence[Marker]) -> tuple[PendingSource, ...]:
    """The sources of markers; raises WarehouseError if a manifest lacks one."""
    read: dict[str, Mapping[str, RankSource]] = {}
    found = []
    for marker in marked:
        if marker.manifest not in read:
            sources = manifests.read(objects, run, marker.manifest).sources
            read[marker.manifest] = {source.name: source for source in sources}
        source = read[marker.manifest].get(marker.name)
        if source is None:
            key = layout.manifest(run, marker.manifest)
            raise WarehouseError(
                f"{objects.describe(key)}: lacks rank {marker.rank}", "ingest the rank again"
            )
        found.append(PendingSource(source, marker.expected_ranks, marker.replace, marker.labels))
    return tuple(found)
