"""Pushed commits: each waits in its manifest, with the options of its call, until a seal publishes it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct, field

from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage import manifests
from tracewarehouse.storage.layout import ManifestName
from tracewarehouse.storage.manifests import Manifest
from tracewarehouse.storage.model import Json, PendingSource, RunVersion
from tracewarehouse.storage.objects import Objects


class Push(Struct, frozen=True):
    """What a pushing call leaves to the seal; `without`: uids of sources that are not to be published."""

    labels: Mapping[str, str] = field(default_factory=dict)
    replace: bool = False
    expected_ranks: int | None = None
    without: tuple[str, ...] = ()

    @property
    def as_json(self) -> Json:
        """The field `push` of a manifest."""
        return {
            "labels": dict(self.labels),
            "replace": self.replace,
            "expected_ranks": self.expected_ranks,
            "without": list(self.without),
        }


def names(objects: Objects, run: str) -> tuple[ManifestName, ...]:
    """The names of the manifests of all pushed commits of a run, sealed or not."""
    return tuple(name for name in manifests.names(objects, run) if name.intent == "push")


def unsealed(found: Collection[ManifestName], head: RunVersion) -> list[str]:
    """The manifests among these that the newest version has not settled."""
    settled = {source.manifest for source in head.sources} | set(head.retired)
    return [name.text for name in found if name.text not in settled]


class PushedCommits:
    """The pushed commits of a run. Each manifest is read once, however often a seal has to start over."""

    def __init__(self, objects: Objects, run: str) -> None:
        self.objects, self.run = objects, run
        self._read: dict[str, Manifest] = {}

    def unsealed(self, found: Collection[ManifestName], head: RunVersion) -> tuple[PendingSource, ...]:
        """The sources that a seal publishes next to this version; raises WarehouseError for a damaged one."""
        todo = unsealed(found, head)
        for one in manifests.read_many(
            self.objects, self.run, [name for name in todo if name not in self._read]
        ):
            if isinstance(one, WarehouseError):
                raise one
            self._read[one.name] = one
        return tuple(source for name in todo for source in sources(self._read[name]))


def sources(manifest: Manifest) -> Iterator[PendingSource]:
    """The sources of a pushed commit with the options of its call."""
    push = manifest.push if isinstance(manifest.push, dict) else {}
    without, labels = push.get("without") or (), push.get("labels") or {}
    expected = push.get("expected_ranks") or 0
    for source in manifest.sources:
        if source.uid not in without:  # type: ignore[operator]
            yield PendingSource(source, expected, bool(push.get("replace")), labels)  # type: ignore[arg-type]
