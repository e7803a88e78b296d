"""A file with a single part, whose rank is not in the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tracewarehouse.formats.base import Part, Request, Source


@dataclass(frozen=True)
class OnePartFile:
    """A TraceFile. `source` reads the file and may raise TraceFormatError; `addition` as in `Part`."""

    path: Path
    source: Callable[[Path, Request], Source]
    addition: str = ""

    def parts(self) -> tuple[Part, ...]:
        """The single part."""
        return (Part(addition=self.addition),)

    def read(self, part: Part, request: Request) -> Source:
        """Reads the file. Raises TraceFormatError."""
        return self.source(self.path, request)
