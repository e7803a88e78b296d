"""Objects of a bucket that are read as traces: found by listing, downloaded once, in one or two parts."""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tracewarehouse.errors import StoreUnavailable, WarehouseError
from tracewarehouse.location import StoreUrl
from tracewarehouse.storage.objects import Entry, Objects
from tracewarehouse.storage.remote import RemoteObjects

_PAUSES_S = (0.2, 1.0)
_VARIABLES = ("AWS_", "AZURE_", "AZURITE_", "GOOGLE_")


@dataclass(frozen=True)
class SourceObject:
    """An object as it was listed; `bucket` is the URL of its bucket."""

    bucket: StoreUrl
    entry: Entry

    @property
    def url(self) -> str:
        """The URL of the object."""
        return f"{self.bucket.url}/{self.entry.key}"

    @property
    def stamp(self) -> tuple[int, int]:
        """Size, and time of writing in ns since the epoch."""
        return self.entry.bytes, int(self.entry.modified.timestamp() * 1e9)

    @property
    def is_shared(self) -> bool:
        """Whether other processes see it."""
        return _opened(self.bucket).is_shared

    def identity(self, salt: bytes) -> str:
        """A hash of its URL and tag, which changes with its content; the salt hides the name."""
        tag = self.entry.etag or self.stamp
        text = f"{self.url}\n{self.entry.bytes}\n{tag}"
        return hmac.new(salt, text.encode(), "sha256").hexdigest()[:32]

    def download(self, path: Path, up_to: int | None = None) -> bool:
        """Completes a local copy that may have the first bytes already; False if the object changed.

        The copy can be read by its owner only. Raises FileNotFoundError, StoreUnavailable.
        """
        wanted = self.entry.bytes if up_to is None else up_to
        for pause_s in _PAUSES_S:
            try:
                return _opened(self.bucket).resume(self.entry, path, wanted)
            except StoreUnavailable as error:
                if not error.is_transient:
                    raise
                time.sleep(pause_s)  # the connection broke: what arrived is kept
        return _opened(self.bucket).resume(self.entry, path, wanted)

    def read(self) -> bytes:
        """The content of a small object; raises FileNotFoundError."""
        return _opened(self.bucket).get(self.entry.key)

    def delete(self, *more_keys: str) -> None:
        """Deletes the object, then others of its bucket."""
        for key in (self.entry.key, *more_keys):
            _opened(self.bucket).delete([key])


@dataclass(frozen=True)
class SourcePlace:
    """A bucket and a key or prefix in it."""

    bucket: StoreUrl
    key: str

    def object(self) -> SourceObject | None:
        """The object of this key, None if there is none."""
        return self._find(self.key)

    def holds(self, name: str) -> bool:
        """Whether there is an object of this name below the prefix."""
        return self._find(f"{self.key}/{name}" if self.key else name) is not None

    def objects(self) -> Iterator[SourceObject]:
        """The objects below the prefix, by key."""
        found = _opened(self.bucket).walk(f"{self.key}/" if self.key else "")
        return (SourceObject(self.bucket, entry) for entry in found)

    def _find(self, key: str) -> SourceObject | None:
        entry = _opened(self.bucket).stat(key)
        return None if entry is None else SourceObject(self.bucket, entry)


def source_place(url: StoreUrl, warehouse: Objects) -> SourcePlace:
    """The bucket and key of a URL; options are those of a warehouse in a store of the same kind."""
    if url.is_web:
        raise WarehouseError(
            f"{url}: a web server does not list traces", "download them, or name an s3://, gs:// or az:// URL"
        )
    scheme, _, rest = url.url.partition("://")
    name, _, key = rest.partition("/")
    is_same = isinstance(warehouse, RemoteObjects) and warehouse.place.scheme == scheme
    options = warehouse.place.options if isinstance(warehouse, RemoteObjects) and is_same else ()
    return SourcePlace(StoreUrl(f"{scheme}://{name}", options), key)


def _opened(bucket: StoreUrl) -> RemoteObjects:
    """The bucket with open connections, as long as the environment says the same about stores."""
    said = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith(_VARIABLES)))
    return _opened_once(bucket, hash(said))


@lru_cache(maxsize=16)
def _opened_once(bucket: StoreUrl, _environment: int) -> RemoteObjects:
    return RemoteObjects(bucket)
