"""Pickles of plain values, or the same as JSON: CUDA memory snapshots, and flight recorder dumps of PyTorch.

A snapshot has segments and trace entries, which may contradict each other; a dump has the last collectives
that a rank called.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from tracewarehouse.formats import file_text
from tracewarehouse.formats.base import PartFormat
from tracewarehouse.formats.mapped import selected
from tracewarehouse.formats.pickles.reader import PlainSource
from tracewarehouse.late_regex import late_regex


def contradictions(tables: Mapping[str, pa.Table]) -> list[tuple[str, int, str]]:
    """What contradicts itself in a snapshot: rule, rows and the first example."""
    views = {name.removeprefix("snapshot_"): table for name, table in tables.items()}
    found = selected("snapshot_contradictions", views).to_pylist()
    return [(each["rule"], each["rows"], each["example"]) for each in found]


SNAPSHOT: Final = "memory_snapshot"
RECORDER: Final = "flight_recorder"
# How far into a pickle its keys are searched for.
_SEARCHED_BYTES: Final = 4096
# The recorder may hold thousands of entries before the keys that follow them.
_JSON_KEYS: Final = late_regex(rb'"(?:comm_lib_version|nccl_version|pg_config|pg_status)"')
_PICKLE_KEYS: Final = (b"pg_config", b"collective_seq_id", b"pg_status")
_RECORD: Final = b'"collective_seq_id"'


class MemorySnapshotSource(PlainSource):
    """A Source that fills the tables of snapshots."""

    walk = SNAPSHOT
    what = "a memory snapshot"

    def check(self, tables: Mapping[str, pa.Table]) -> None:
        """Adds what contradicts itself."""
        for finding in contradictions(tables):
            self._notes.add(*finding)


class MemorySnapshotFormat(PartFormat):
    """A Format."""

    name = addition = SNAPSHOT
    source = MemorySnapshotSource

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a pickle, which only reading it shows to hold a snapshot, or a snapshot as JSON."""
        if head.lstrip()[:1] == b"{":
            return (
                b'"device_traces"' in head and file_text.object_format(file_text.top_keys(head)) == SNAPSHOT
            )
        return file_text.is_pickle(path, head)


class FlightRecorderSource(PlainSource):
    """A Source that fills `flight_records`."""

    walk = RECORDER
    what = "a flight recorder dump"


class FlightRecorderFormat(PartFormat):
    """A Format."""

    name = addition = RECORDER
    source = FlightRecorderSource

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a pickle or JSON with the keys of a dump."""
        start = head[:_SEARCHED_BYTES]
        if head.lstrip()[:1] == b"{":
            return b'"traceEvents"' not in head and (
                _RECORD in start or (_JSON_KEYS.search(start) is not None and b'"entries"' in head)
            )
        return file_text.is_pickle(path, head) and any(key in start for key in _PICKLE_KEYS)
