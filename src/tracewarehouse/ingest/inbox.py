"""The inbox of a warehouse: traces that training jobs spooled and that wait to be ingested.

There is no lock: two processes that ingest the same file store its content once, and a killed process leaves
the file for the next.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tracewarehouse.ingest.naming.header import number

# Folder of a warehouse.
INBOX = "inbox"
NOTE_SUFFIX = ".tw"
# A note without a trace is left over by a kill between two removals; a younger one may precede its trace.
_ORPHAN_AGE_S = 3600.0


@dataclass(frozen=True)
class SpoolNote:
    """What the trace handler wrote about a trace; empty for a file that was copied into the inbox."""

    run: str
    window_number: int | None = None
    world_size: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def inbox_folder(warehouse: Path) -> Path:
    """The local folder with a subfolder per run."""
    return warehouse / INBOX


def note_path(path: Path) -> Path:
    """The file with the handler's note about a trace."""
    return path.with_name(path.name + NOTE_SUFFIX)


def spooled_files(warehouse: Path) -> list[Path]:
    """The finished trace files of every run in the inbox."""
    files = []
    for folder in sorted(path for path in _entries(inbox_folder(warehouse)) if path.is_dir()):
        for path in sorted(_entries(folder)):
            if path.name.endswith(NOTE_SUFFIX):
                _drop_orphan(path)
            elif not path.name.startswith(".") and path.is_file():
                files.append(path)
    return files


def spool_note(path: Path) -> SpoolNote:
    """The note about a file of the inbox; its run is the name of its folder."""
    try:
        data = note_path(path).read_bytes()
    except OSError:
        data = b""
    return parse_note(path.parent.name, data)


def parse_note(run: str, data: bytes) -> SpoolNote:
    """The note of a trace of a run; an empty one if it is not valid."""
    try:
        facts = json.loads(data)
    except ValueError:
        facts = {}
    if not isinstance(facts, dict):
        return SpoolNote(run)
    labels = facts.get("labels")
    return SpoolNote(
        run,
        number(facts.get("span")),
        number(facts.get("world_size")),
        {str(key): str(value) for key, value in labels.items()} if isinstance(labels, dict) else {},
    )


def remove(path: Path) -> None:
    """Removes a published file and its note. The trace goes first: a note alone is removed as an orphan."""
    path.unlink(missing_ok=True)
    note_path(path).unlink(missing_ok=True)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _drop_orphan(note: Path) -> None:
    with suppress(OSError):
        trace = note.with_name(note.name.removesuffix(NOTE_SUFFIX))
        if not trace.exists() and time.time() - note.stat().st_mtime > _ORPHAN_AGE_S:
            note.unlink()
