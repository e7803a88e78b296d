"""Uploads spooled traces to the inbox of a warehouse in an object store, in a separate process.

A training process must not use a store itself: its data loaders fork, and the store would hang in them.
`python -m tracewarehouse.ingest.upload URL FOLDER RUN` uploads what the trace handler left in a folder.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tracewarehouse.errors import StoreUnavailable, TwError
from tracewarehouse.ingest.inbox import INBOX, inbox_folder, note_path, spooled_files
from tracewarehouse.location import store_url
from tracewarehouse.storage.remote import RemoteObjects

_LOCK = ".upload.lock"


def upload(url: str, spool: Path, run: str) -> int:
    """Uploads the finished traces of a run and deletes them; returns their number.

    The note of a trace goes first, so that a reader that sees the trace also sees its note. Processes that
    upload from the same folder wait for each other. Raises StoreUnavailable; what is left is uploaded by the
    next call.
    """
    objects = RemoteObjects(store_url(url))
    handle = os.open(spool / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        traces = [path for path in spooled_files(spool) if path.parent == inbox_folder(spool) / run]
        for path in traces:
            for file in (note_path(path), path):
                if file.exists():
                    objects.adopt({f"{INBOX}/{run}/{file.name}": file})
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
