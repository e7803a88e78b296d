"""A trace in an object store, and its local copy: downloaded once, deleted as soon as its tables are built.

The survey downloads the first megabyte, the worker that builds the tables the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from tracewarehouse.engines import Failure, attempt
from tracewarehouse.engines.base import TaskProgress
from tracewarehouse.errors import StoreUnavailable, TraceFormatError, TwError
from tracewarehouse.formats.registry import HEAD_BYTES
from tracewarehouse.storage.remote import SourceObject

CHANGED: Final = "changed while it was read"
GONE: Final = "no such object: it was deleted after it was listed"
_IN_FLIGHT: Final = 16


class ObjectChanged(TraceFormatError):
    """An object that was replaced after it was listed."""


@dataclass(frozen=True)
class RemoteFile:
    """An object and the path of its copy on the machine of the call; `parts` is the number of its sources."""

    object: SourceObject
    copy: Path
    parts: int = 1

    @classmethod
    def of(cls, source: SourceObject, copies: Path) -> RemoteFile:
        """The file of an object, with its copy in a folder of the call."""
        folder = sha256(source.url.encode()).hexdigest()[:16]
        return cls(source, copies / folder / source.entry.key.rpartition("/")[2])

    def of_parts(self, parts: int) -> RemoteFile:
        """The same file with this number of parts."""
        return replace(self, parts=parts)

    def fetch(self, path: Path, up_to: int | None = None) -> Path:
        """Completes the copy at a path, and returns it. Raises TraceFormatError, StoreUnavailable."""
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            is_same = self.object.download(path, up_to)
        except FileNotFoundError:
            raise TraceFormatError(self.object.url, GONE, hint="ingest the folder again") from None
        except StoreUnavailable as error:
            raise TwError(error.message, error.hint) from error
        if not is_same:
            path.unlink(missing_ok=True)
            raise ObjectChanged(self.object.url, CHANGED, hint="ingest it again later")
        return path

    def local(self, folder: Path) -> Path:
        """The path for its copy: of an earlier one if it is on this machine, else in the folder."""
        return self.copy if self.copy.exists() else folder / "copies" / self.copy.parent.name / self.copy.name

    def forget(self, path: Path) -> None:
        """Deletes the copy at a path, unless other parts of the file are read from it."""
        if self.parts == 1:
            with suppress(OSError):
                path.unlink(missing_ok=True)
                path.parent.rmdir()


@dataclass(frozen=True)
class _FetchHead:
    remote: RemoteFile

    def run(self, _: TaskProgress) -> None:
        with suppress(ObjectChanged):  # noticed again by what needs the copy
            self.remote.fetch(self.remote.copy, HEAD_BYTES)


def fetch_heads(remotes: Sequence[RemoteFile]) -> dict[RemoteFile, Failure]:
    """Downloads the beginning of each object, many at once; the failures."""
    if not remotes:
        return {}
    with ThreadPoolExecutor(min(_IN_FLIGHT, len(remotes))) as pool:
        done = pool.map(lambda remote: attempt(_FetchHead(remote), _ignore), remotes)
        return {
            remote: found for remote, found in zip(remotes, done, strict=True) if isinstance(found, Failure)
        }


def without_copy(failure: Failure, path: Path, local: Path) -> Failure:
    """The failure with the URL of the object in place of the path of its copy."""

    def named(text: str) -> str:
        return text.replace(str(local), str(path))

    hint = failure.hint
    if hint and str(local) in hint:
        hint = named(hint)
    return replace(failure, message=named(failure.message), hint=hint)


def _ignore(_done: int, _total: int) -> None:
    """Ignores progress."""
