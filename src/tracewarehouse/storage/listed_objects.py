"""Objects of a store that were listed once: what `clean` plans by, without a request per run or object."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from tracewarehouse.storage import layout
from tracewarehouse.storage.objects import Entry
from tracewarehouse.storage.remote import RemoteObjects

# Data before the commits that name it, commits before the versions that hold them: what is published in the
# meantime is not taken for unused.
_FOLDERS = (
    layout.DATA,
    layout.ROLLUPS,
    layout.RESULTS,
    layout.RECORDED,
    layout.WAITING,
    layout.SOURCES,
    layout.QUARANTINE,
    layout.ACKNOWLEDGED,
    layout.CATALOG,
    layout.KEPT,
    layout.RECEIPTS,
    layout.RUNS,
)


class ListedObjects(RemoteObjects):
    """The objects as first listed: with one request per 1,000 objects, then none to look at names.

    Reads are answered from what `hold` fetched, many at once, or by the store.
    """

    def __init__(self, objects: RemoteObjects) -> None:
        super().__init__(objects.place)
        listed = (entry for folder in _FOLDERS for entry in objects.walk(f"{folder}/"))
        self._entries = {entry.key: entry for entry in listed}
        self._keys = sorted(self._entries)
        self._held: dict[str, bytes | None] = {}

    def hold(self, run: str) -> None:
        """Fetches the versions and manifests of a run, in place of those of the run before."""
        folders = layout.versions(run), layout.manifests(run)
        self._held = dict(self.get_many(entry.key for each in folders for entry in self.walk(f"{each}/")))

    def get(self, key: str) -> bytes:
        """The content of an object; raises FileNotFoundError."""
        data = self._held.get(key)
        return super().get(key) if data is None else data

    def walk(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """The listed objects whose key starts with `prefix`, by key."""
        for at in range(bisect_left(self._keys, max(prefix, after)), len(self._keys)):
            key = self._keys[at]
            if not key.startswith(prefix):
                return
            if key != after:
                yield self._entries[key]

    def folders(self, prefix: str) -> list[str]:
        """The names directly under a prefix that have objects below them."""
        rests = (entry.key.removeprefix(prefix) for entry in self.walk(prefix))
        return sorted({rest.partition("/")[0] for rest in rests if "/" in rest})

    def stat(self, key: str) -> Entry | None:
        """Size and time as listed."""
        return self._entries.get(key)

    def stat_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Entry | None]]:
        """Sizes and times as listed."""
        return ((key, self.stat(key)) for key in keys)
