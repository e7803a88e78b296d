"""The interface of an object store: what storage needs of the place that holds its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from tracewarehouse.errors import TwError


@dataclass(frozen=True)
class Entry:
    """A stored object: its key, its size, and when it was written by the clock of the store.

    `etag` changes with the content; "" on a local disk.
    """

    key: str
    bytes: int
    modified: datetime
    etag: str = ""


@dataclass(frozen=True)
class FileRef:
    """A data file as a version names it: key, size and checksum."""

    key: str
    bytes: int
    sha256: str


class Objects(Protocol):
    """A store of objects. A key is a relative path; an object appears complete or not at all."""

    @property
    def url(self) -> str:
        """Where the store is, without credentials."""

    def get(self, key: str) -> bytes:
        """The content of an object; raises FileNotFoundError."""

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Each key with the content of its object, None if there is none; in the order of the keys."""

    def download(self, key: str, path: Path) -> None:
        """Writes the content of an object to a local file; raises FileNotFoundError."""

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Write each object, replacing an older one."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write the object unless the key exists; True if this call wrote it."""

    def adopt(self, files: Mapping[str, Path]) -> None:
        """Move finished local files to their keys."""

    def walk(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """All objects whose key starts with `prefix` and is greater than `after`, by key."""

    def folders(self, prefix: str) -> list[str]:
        """The names directly under a prefix that ends with `/` and that have objects below them, sorted."""

    def stat(self, key: str) -> Entry | None:
        """Size and time of an object, None if there is none."""

    def stat_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Entry | None]]:
        """Each key with its `stat`; in the order of the keys."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; missing keys are ignored."""

    def describe(self, key: str) -> str:
        """The full name of an object for messages; makes no request."""

    def clock(self) -> datetime:
        """The current time by the clock of the store."""

    def prepare(self) -> None:
        """Checks that a new warehouse can be created here; raises WarehouseError."""

    def check_conditions(self) -> None:
        """Checks that `put_if_absent` can be relied on; raises WarehouseError."""

    def absent(self, error: OSError) -> TwError:
        """The error of a place without a warehouse, when `error` was raised by reading its identity."""

    def check_writable(self) -> None:
        """Raises WarehouseError if the objects cannot be changed from here."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes see the objects."""


class LocalFiles(Protocol):
    """Files of a warehouse on this machine: its data files, read by path, and a folder for its own use."""

    @property
    def folder(self) -> Path:
        """A folder for staging, the shell file and the redaction policy."""

    def path(self, key: str) -> Path:
        """The local path of an object, which does not exist if there is no such object."""

    def fetch(self, files: Iterable[FileRef], again: bool = False) -> dict[str, str]:
        """Makes data files available at their paths while this process runs; key → problem of the others.

        With `again`, files are downloaded again, to compare the originals with their versions.
        """

    def budget(self) -> int | None:
        """The limit on local copies in bytes; None if the files are not copies."""

    def for_now(self) -> AbstractContextManager[None]:
        """Copies that are used for the first time in this context may be deleted after it."""

    def forget(self, key: str) -> None:
        """Deletes the local copy of a damaged file, if it is only a copy."""


def names_in(objects: Objects, folder: str) -> list[str]:
    """The names of the objects directly in a folder, sorted; none if it does not exist."""
    prefix = f"{folder}/"
    found = (entry.key.removeprefix(prefix) for entry in objects.walk(prefix))
    return [name for name in found if "/" not in name]
