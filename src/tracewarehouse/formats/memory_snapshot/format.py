"""The format of CUDA memory snapshots: a pickle of segments and trace entries. It adds to a rank."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from tracewarehouse.formats import other_formats
from tracewarehouse.formats.memory_snapshot.checks import disagreeing_segments, unbalanced
from tracewarehouse.formats.one_part_file import OnePartFile
from tracewarehouse.formats.pickles.source import PlainSource

NAME: Final = "memory_snapshot"
VERSION: Final = 1


class MemorySnapshotFormat:
    """A Format."""

    name = NAME
    version = VERSION

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a pickle, which only reading it shows to hold a snapshot, or a snapshot as JSON."""
        if head.lstrip()[:1] == b"{":
            return (
                b'"device_traces"' in head
                and other_formats.object_format(other_formats.top_keys(head)) == NAME
            )
        return not path.is_dir() and other_formats.is_pickle(path, head)

    def open(self, path: Path) -> OnePartFile:
        """The file; nothing is read yet."""
        return OnePartFile(path, MemorySnapshotSource, NAME)


class MemorySnapshotSource(PlainSource):
    """A Source that fills the tables of snapshots."""

    walk = NAME
    what = "a memory snapshot"

    def check(self, tables: Mapping[str, pa.Table]) -> None:
        """Entries that contradict the blocks, and segments whose totals contradict their blocks."""
        rows, example = unbalanced(tables["snapshot_events"], tables["snapshot_blocks"])
        self._notes.add("snapshot_overrun", rows, example)
        rows, example = disagreeing_segments(tables["snapshot_segments"], tables["snapshot_blocks"])
        self._notes.add("snapshot_segments_disagree", rows, example)
