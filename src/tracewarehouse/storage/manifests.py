"""Manifests: the contents of one commit of consecutive ranks, written once after all its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, field

from tracewarehouse import hints
from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage import layout
from tracewarehouse.storage.codec import (
    FORMAT,
    check_understood,
    records,
    sealed,
    sources_of,
    unknown_of,
    unsealed,
)
from tracewarehouse.storage.layout import ManifestName
from tracewarehouse.storage.model import EXPIRED, Json, RankSource, Unknown
from tracewarehouse.storage.objects import Objects, names_in

_FIELDS = frozenset(
    ("format", "run", "committed_at", "files", "sources", "checksum", "must_understand", "push")
)


class Manifest(Struct, frozen=True):
    """A commit: its sources in order, and the header of each by the source's name.

    `push` holds what a call left to a later seal: labels, `replace`, expected ranks (see `pushed.Push`).
    """

    run: str
    name: str
    committed_at: str
    sources: tuple[RankSource, ...]
    headers: Mapping[str, str] = field(default_factory=dict)
    push: Json = None
    unknown: Unknown = ()

    @property
    def key(self) -> str:
        """The key of the manifest."""
        return layout.manifest(self.run, self.name)


def now() -> str:
    """The time in UTC with microseconds, as text that sorts."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def encode(manifest: Manifest) -> bytes:
    """A manifest as sealed JSON; per source the record of a version, and the header."""
    files, sources = records(manifest.sources)
    for source, record in zip(manifest.sources, sources, strict=True):
        record["header"] = manifest.headers.get(source.name)
    needed = [EXPIRED] if any(source.expired for source in manifest.sources) else []
    fields: dict[str, Any] = {"format": FORMAT, "must_understand": needed, "run": manifest.run}
    fields |= {"committed_at": manifest.committed_at, "push": manifest.push, **dict(manifest.unknown)}
    return sealed(fields | {"files": files, "sources": sources})


def decode(data: bytes, name: str, path: str) -> Manifest:
    """The manifest in these bytes; raises WarehouseError naming the path."""
    try:
        fields = unsealed(data)
        check_understood(fields, path)
        sources = sources_of(fields["run"], fields["files"], fields["sources"])
        if any(source.manifest != name for source in sources):
            raise ValueError(f"it is {sources[0].manifest}")
        headers = {
            source.name: record["header"]
            for source, record in zip(sources, fields["sources"], strict=True)
            if record["header"] is not None
        }
        return Manifest(
            fields["run"],
            name,
            fields["committed_at"],
            sources,
            headers,
            fields["push"],
            unknown_of(fields, _FIELDS),
        )
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise WarehouseError(
            f"{path}: damaged manifest: {error}",
            hints.fill(
                "run {}; then ingest its ranks again with {}", hints.call("verify"), hints.option("replace")
            ),
        ) from error


def read(objects: Objects, run: str, name: str) -> Manifest:
    """A manifest by its file name; raises WarehouseError if it is missing or damaged."""
    (found,) = read_many(objects, run, [name])
    if isinstance(found, WarehouseError):
        raise found
    return found


def read_many(objects: Objects, run: str, names: Iterable[str]) -> Iterator[Manifest | WarehouseError]:
    """Each manifest, or the error of one that is missing or damaged; an object store reads many at once."""
    for key, data in objects.get_many(layout.manifest(run, name) for name in names):
        path = objects.describe(key)
        if data is None:
            yield WarehouseError(f"{path}: manifest missing", "ingest its ranks again")
            continue
        try:
            yield decode(data, key.rpartition("/")[2], path)
        except WarehouseError as error:
            yield error


def names(objects: Objects, run: str) -> Iterator[ManifestName]:
    """The names of all manifests of a run, published or not, sorted; ignores foreign files."""
    for name in names_in(objects, layout.manifests(run)):
        if (found := ManifestName.parse(name)) is not None:
            yield found


def headers(objects: Objects, sources: Iterable[RankSource]) -> dict[str, str]:
    """The header of each source, by the source's name; each manifest is read once.

    Raises WarehouseError if a manifest is missing or damaged.
    """
    wanted: dict[str, dict[str, None]] = {}
    members = set()
    for source in sources:
        wanted.setdefault(source.run, {})[source.manifest] = None
        members.add(source.name)
    found: dict[str, str] = {}
    for run, listed in wanted.items():
        for manifest in read_many(objects, run, listed):
            if isinstance(manifest, WarehouseError):
                raise manifest
            found |= {name: text for name, text in manifest.headers.items() if name in members}
    return found
