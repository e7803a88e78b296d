"""What training jobs dropped into a warehouse, waiting to be taken in.

No lock: two who take the same file store the same content once, and a kill leaves the file for the next.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tracewarehouse.ingest.discover import Candidate, Found
from tracewarehouse.ingest.facts import number

BESIDE = ".tw"
# A note whose trace is gone is left by a kill between the two removals; a younger one may await its trace.
_ORPHAN_AGE_S = 3600.0


@dataclass(frozen=True)
class Dropped:
    """What the handler knew of a trace; `span` and `world_size` are None for a file put there by hand."""

    run: str
    span: int | None = None
    world_size: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def inbox(root: Path) -> Path:
    """The folder that holds a folder per run."""
    return root / "inbox"


def beside(path: Path) -> Path:
    """The file that carries what the handler knew of a trace."""
    return path.with_name(path.name + BESIDE)


def waiting_files(root: Path) -> Found:
    """The files of every run in the inbox, finished ones only."""
    files = []
    for folder in sorted(path for path in _entries(inbox(root)) if path.is_dir()):
        for path in sorted(_entries(folder)):
            if path.name.endswith(BESIDE):
                _drop_orphan(path)
            elif not path.name.startswith(".") and path.is_file():
                files.append(Candidate(path, named=False))
    return Found(tuple(files), ())


def dropped(path: Path) -> Dropped:
    """What is known of a file of the inbox: its run is its folder, the rest stands beside it."""
    try:
        facts = json.loads(beside(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        facts = {}
    if not isinstance(facts, dict):
        return Dropped(path.parent.name)
    labels = facts.get("labels")
    return Dropped(
        path.parent.name,
        number(facts.get("span")),
        number(facts.get("world_size")),
        {str(key): str(value) for key, value in labels.items()} if isinstance(labels, dict) else {},
    )


def take_away(path: Path) -> None:
    """Remove a file that is published; the trace first, so that a note never outlives its use by much."""
    path.unlink(missing_ok=True)
    beside(path).unlink(missing_ok=True)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _drop_orphan(note: Path) -> None:
    with suppress(OSError):
        trace = note.with_name(note.name.removesuffix(BESIDE))
        if not trace.exists() and time.time() - note.stat().st_mtime > _ORPHAN_AGE_S:
            note.unlink()
