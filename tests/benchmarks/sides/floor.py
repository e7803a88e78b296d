"""The floor: a bare lossless copy. Gunzip, the text of each event, that text as zstd Parquet."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from clock import measurement, serve, timed
from isal import igzip


class Events(msgspec.Struct):
    """The events of a trace, each as its text in the file."""

    traceEvents: list[msgspec.Raw]


def copied(path: Path, to: Path) -> tuple[int, int]:
    """Copies a file; returns the number of events and the bytes of their text."""
    text = igzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events = [bytes(each) for each in msgspec.json.decode(text, type=Events).traceEvents]
    pq.write_table(pa.table({"text": pa.array(events, pa.binary())}), to, compression="zstd")
    return len(events), sum(map(len, events))


def copy(path: str, small: str | None, folder: str) -> dict[str, Any]:
    """Copies a small trace first, so that imports do not count, then this one."""
    to = Path(folder, "floor.parquet")
    if small:
        copied(Path(small), to)
    taken = timed(lambda: copied(Path(path), to))
    kept = pq.read_table(to).column("text").to_pylist()
    answer = {"events": len(kept), "text_bytes": sum(map(len, kept)), "bytes": to.stat().st_size}
    return measurement(taken, answer)


if __name__ == "__main__":
    sys.exit(serve({"copy": copy}))
