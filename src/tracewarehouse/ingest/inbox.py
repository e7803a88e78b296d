"""The inbox of a warehouse: traces that training jobs spooled and that wait to be ingested.

There is no lock: two processes that ingest the same file store its content once, and a killed process leaves
the file for the next.

A training process must not use a store itself: its data loaders fork, and the store would hang in them.
`python -m tracewarehouse.ingest.inbox URL FOLDER RUN` uploads what the trace handler left in a folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

from tracewarehouse.errors import StoreUnavailable, TwError
from tracewarehouse.formats.base import number
from tracewarehouse.location import store_url

# Folder of a warehouse.
INBOX = "inbox"
NOTE_SUFFIX = ".tw"
# A note without a trace is left over by a kill between two removals; a younger one may precede its trace.
# The same age for an unfinished export.
_ORPHAN_AGE_S = 3600.0


class SpoolNote(Struct, frozen=True):
    """What the trace handler wrote about a trace; empty for a file that was copied into the inbox.

    `process` is equal for the windows of one process. `attempt` sets the starts of a job apart: hashes by
    kind, the most reliable first.
    """

    run: str
    window_number: int | None = None
    world_size: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    process: str = ""
    attempt: Mapping[str, str] = field(default_factory=dict)


def inbox_folder(warehouse: Path) -> Path:
    """The local folder with a subfolder per run."""
    return warehouse / INBOX


def note_path(path: Path) -> Path:
    """The file with the handler's note about a trace."""
    return path.with_name(path.name + NOTE_SUFFIX)


def spooled_files(warehouse: Path) -> list[Path]:
    """The finished trace files of every run in the inbox. Removes what killed processes left there."""
    files = []
    for folder in sorted(_entries(inbox_folder(warehouse))):
        if folder.name.startswith("."):
            _remove_orphan(folder)  # an unfinished export, or the link of a process that logs
        for path in sorted(_entries(folder)):
            if path.name.endswith(NOTE_SUFFIX):
                if not path.with_name(path.name.removesuffix(NOTE_SUFFIX)).exists():
                    _remove_orphan(path)
            elif not path.name.startswith(".") and path.is_file():
                files.append(path)
    return files


def _remove_orphan(path: Path) -> None:
    """Removes a file or folder that no process has written to for long."""
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > _ORPHAN_AGE_S:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


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
    process = facts.get("process")
    return SpoolNote(
        run,
        number(facts.get("span")),
        number(facts.get("world_size")),
        _texts(facts.get("labels")),
        process if isinstance(process, str) else "",
        _texts(facts.get("attempt")),
    )


def _texts(value: object) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, dict) else {}


def remove(path: Path) -> None:
    """Removes a published file, its note, and the folder of its run if nothing else is there.

    The trace goes first: a note alone is removed as an orphan.
    """
    path.unlink(missing_ok=True)
    note_path(path).unlink(missing_ok=True)
    with suppress(OSError):  # not empty
        path.parent.rmdir()


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


_LOCK = ".upload.lock"


def upload(url: str, spool: Path, run: str) -> int:
    """Uploads the finished traces of a run and deletes them; returns their number.

    The note of a trace goes first, so that a reader that sees the trace also sees its note. Processes that
    upload from the same folder wait for each other. Raises StoreUnavailable; what is left is uploaded by the
    next call.
    """
    from tracewarehouse.storage.remote import RemoteObjects

    objects = RemoteObjects(store_url(url))
    handle = os.open(spool / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        traces = [path for path in spooled_files(spool) if path.parent == inbox_folder(spool) / run]
        for path in traces:
            for file in (note_path(path), path):
                if file.exists():
                    objects.adopt({f"{INBOX}/{run}/{file.name}": file})
            remove(path)
        return len(traces)
    finally:
        os.close(handle)


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 if everything was uploaded."""
    url, spool, run = arguments
    try:
        upload(url, Path(spool), run)
    except (TwError, StoreUnavailable, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
