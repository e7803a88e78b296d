"""The Kineto format: which files are of it, and what their beginning says."""

from __future__ import annotations

import codecs
from functools import cached_property
from pathlib import Path
from typing import Final

from tracewarehouse.formats import foreign
from tracewarehouse.formats.base import Part, Request
from tracewarehouse.formats.kineto import header
from tracewarehouse.formats.kineto.source import KinetoSource
from tracewarehouse.formats.unpack import head_of

NAME: Final = "kineto"
VERSION: Final = 1
_HEAD_BYTES: Final = 1 << 20
_WIDE_OR_MARKED: Final = (
    codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"{\0", b"[\0", b"\0{", b"\0[",
)  # fmt: skip
_EVENTS: Final = b'"traceEvents"'
_OF_EVENTS: Final = (b'"ph"', b"'ph'", b"traceEvents")


class KinetoFormat:
    """A Format."""

    name = NAME
    version = VERSION

    def detect(self, path: Path, head: bytes) -> bool:
        """JSON with a list of events, or what may be such a file that is damaged."""
        if foreign.is_container(head):
            return False
        if head.startswith(_WIDE_OR_MARKED) or _EVENTS in head:
            return True
        first = head.lstrip()[:1]
        if first == b"[":
            return True
        # Of settings and other small JSON files all is known, but for those that were cut short.
        is_all = len(head) < _HEAD_BYTES and head.rstrip().endswith(b"}")
        if first != b"{" or (is_all and not any(word in head for word in _OF_EVENTS)):
            return False
        return foreign.object_format(foreign.top_keys(head)) == foreign.NO_EVENTS

    def open(self, path: Path) -> KinetoFile:
        """The file, of which nothing is read yet."""
        return KinetoFile(path)


class KinetoFile:
    """A TraceFile: one rank."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def parts(self) -> tuple[Part, ...]:
        """The one part, with what the keys before the events say. Raises TraceFormatError."""
        members = self._members
        return (Part(rank=header.rank_of(members), world_size=header.world_size_of(members)),)

    def read(self, part: Part, request: Request) -> KinetoSource:
        """Reads the file to its end. Raises TraceFormatError where nothing of it can be read."""
        return KinetoSource(self.path, request)

    @cached_property
    def _members(self) -> header.Members:
        return header.head_members(head_of(self.path, _HEAD_BYTES))
