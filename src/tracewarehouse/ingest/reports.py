"""What a task says of each of its sources when it is done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from tracewarehouse.engines import Failure
from tracewarehouse.formats.base import Status
from tracewarehouse.ingest.outcome import Content
from tracewarehouse.ingest.spans import Window


@dataclass(frozen=True)
class Made:
    """Where the tables of a source are: in a commit, by its manifest, or staged in a folder."""

    run: str
    rank: int
    uid: str
    manifest: str = ""
    staged: Path | None = None


@dataclass(frozen=True)
class Read:
    """A source that was read; `known`: only as far as to see that it is what is stored at its place.

    `rank` and `world_size` are what the source says itself, `window` the first start and the last end of its
    slices. Without `made` its tables were not built.
    """

    number: int
    digest: str
    status: Status
    text_bytes: int
    rank: int | None = None
    world_size: int | None = None
    window: Window = (None, None)
    known: bool = False
    content: Content | None = None
    made: Made | None = None


@dataclass(frozen=True)
class NotRead:
    """Why a source gave nothing.

    `changed`: someone wrote to its file; `unfinished`: it ends in the middle of an event, and is that fresh;
    `other`: it is of another `kind`, which only reading it showed.
    """

    number: int
    why: Literal["failed", "changed", "unfinished", "other"]
    failure: Failure | None = None
    kind: str = ""


Report: TypeAlias = Read | NotRead
