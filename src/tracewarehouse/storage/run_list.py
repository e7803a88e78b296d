"""The list of version objects, `_tw/catalog/latest.json`: for readers over HTTP, which cannot list a folder.

A command that publishes in an object store replaces it at its end, with two requests; `tw refresh` writes it
anywhere. It may be behind: of two writers at once the older list may stay, until the next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

from tracewarehouse import hints
from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage import layout
from tracewarehouse.storage.codec import FORMAT, check_understood, sealed, unsealed
from tracewarehouse.storage.manifests import now
from tracewarehouse.storage.objects import Entry, Objects

_FOLDER = f"{layout.RUNS}/"


def write(objects: Objects, versions: Iterable[Entry] | None = None) -> None:
    """Replaces the list by the current one; `versions`: the version objects, if they were listed already."""
    versions = objects.walk(_FOLDER) if versions is None else versions
    listed = [[entry.key.removeprefix(_FOLDER), entry.bytes] for entry in versions]
    fields = {"format": FORMAT, "must_understand": [], "written_at": now(), "versions": listed}
    objects.put({layout.LATEST: sealed(fields)})


def update(objects: Objects, versions: Iterable[Entry] | None = None) -> None:
    """Like `write`, and ignores failures: only readers over HTTP need the list."""
    with suppress(OSError, WarehouseError):
        write(objects, versions)


def decode(data: bytes, path: str) -> tuple[Entry, ...]:
    """The listed version objects, by key; raises WarehouseError if the list is damaged."""
    try:
        fields = unsealed(data)
        check_understood(fields, path)
        listed_at = datetime.fromisoformat(fields["written_at"])
        listed_at = listed_at if listed_at.tzinfo else listed_at.replace(tzinfo=UTC)
        found = (Entry(f"{_FOLDER}{name}", size, listed_at) for name, size in fields["versions"])
        return tuple(sorted(found, key=lambda entry: entry.key))
    except (ValueError, KeyError, TypeError) as error:
        raise WarehouseError(
            f"{path}: damaged: {error}",
            hints.fill("write it again where the warehouse is stored: {}", hints.call("refresh")),
        ) from error
