"""Markers of sources that wait for the other ranks of their run (`--expect-ranks`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage import copies, layout, manifests
from tracewarehouse.storage.codec import sealed, unsealed
from tracewarehouse.storage.model import Changes, PendingSource, RankSource, RunVersion
from tracewarehouse.storage.objects import Objects


class Marker(Struct, frozen=True):
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
        copies.put(
            objects,
            {
                layout.marker(one.run, one.rank, one.name): sealed(fields | {"manifest": one.manifest})
                for one in changes.sources
            },
        )


def unmark(objects: Objects, run: str, sources: Sequence[RankSource]) -> None:
    """Deletes the markers of sources."""
    copies.delete(objects, [layout.marker(run, one.rank, one.name) for one in sources])


def stored(objects: Objects, run: str) -> tuple[Marker, ...]:
    """The markers of a run, also those of sources that a killed call published; ignores damaged ones."""
    return tuple(one.value for one in every(objects, run) if one.value is not None)


def every(objects: Objects, run: str) -> Iterator[copies.Stored[Marker]]:
    """Every marker of a run, and its problems."""
    return copies.every(objects, layout.waiting(run), _decode)


def _decode(key: str, data: bytes) -> Marker:
    fields = unsealed(data)
    rank, _, name = key.rpartition("/")[2].removesuffix(".json").partition("-")
    labels = fields["labels"]
    return Marker(int(rank), name, fields["manifest"], fields["expected_ranks"], fields["replace"], labels)


def held_or_dropped(history: Sequence[RunVersion]) -> frozenset[str]:
    """Names of the sources that a version has held or a removal has dropped."""
    held = {source.name for version in history for source in version.sources}
    return frozenset(held.union(*(version.dropped for version in history)))


def pending_sources(objects: Objects, run: str, marked: Sequence[Marker]) -> tuple[PendingSource, ...]:
    """The sources of markers; those in a lost or damaged manifest are left out, since `verify` reports it."""
    read: dict[str, Mapping[str, RankSource]] = {}
    found = []
    for marker in marked:
        if marker.manifest not in read:
            try:
                sources = manifests.read(objects, run, marker.manifest).sources
            except WarehouseError:
                sources = ()
            read[marker.manifest] = {source.name: source for source in sources}
        if (source := read[marker.manifest].get(marker.name)) is not None:
            found.append(PendingSource(source, marker.expected_ranks, marker.replace, marker.labels))
    return tuple(found)
