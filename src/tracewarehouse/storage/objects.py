"""What storage needs of the place where its bytes are: one small protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Entry:
    """Size and age of a stored object."""

    bytes: int
    modified_s: float


class Objects(Protocol):
    """What storage needs of a place. A key is a relative path; an object appears whole or not at all."""

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Writes each object, in place of an older one."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Writes the object unless the key is taken; True where this call wrote it."""

    def adopt(self, files: Mapping[str, Path]) -> None:
        """Moves finished local files to their keys."""

    def get(self, key: str) -> bytes:
        """The object; raises FileNotFoundError."""

    def list(self, folder: str) -> Iterator[str]:
        """Names directly under a folder, none where it is not there."""

    def stat(self, key: str) -> Entry | None:
        """Size and age of an object, None where it is not there."""

    def delete(self, keys: Iterable[str]) -> None:
        """Takes objects away; those that are gone already do not matter."""

    def path(self, key: str) -> Path:
        """A local path that holds the object."""
