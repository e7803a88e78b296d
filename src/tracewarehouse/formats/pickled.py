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
from tracewarehouse.formats.pickles.reader import PlainSource
from tracewarehouse.late_regex import late_regex

# Each address is allocated and freed in turn, and an active block continues its last allocation: it takes the
# place of the free that would come next. The active bytes of a segment are those of its active blocks.
_CONTRADICTIONS: Final = """
WITH active AS (FROM blocks WHERE state IN ('active_allocated', 'active_pending_free')),
moves AS (
  SELECT coalesce(device, -1) AS device, address, entry, action = 'alloc' AS is_alloc
  FROM events WHERE action IN ('alloc', 'free_completed')
  UNION ALL
  SELECT coalesce(device, -1), address, 9223372036854775807, false FROM active
),
turns AS (
  SELECT *, lead(is_alloc) OVER (PARTITION BY device, address ORDER BY entry) AS next
  FROM moves WHERE address IS NOT NULL
),
sums AS (SELECT device, segment_address AS address, sum(bytes) AS bytes FROM active GROUP BY ALL),
totals AS (
  SELECT place, address, active_bytes, coalesce(bytes, 0) AS own
  FROM (SELECT *, row_number() OVER () AS place FROM segments) LEFT JOIN sums USING (device, address)
)
SELECT
  'snapshot_overrun', count(*),
  arg_min(format('device {}, address {:#x}', device, address), (entry, next IS NULL, device, address))
FROM turns WHERE is_alloc = coalesce(next, true)
UNION ALL
SELECT
  'snapshot_segments_disagree', count(*), arg_min(
    format('segment {:#x}: active_size {} B, its active blocks {} B', address, active_bytes, own), place
  )
FROM totals WHERE active_bytes <> own
"""


def contradictions(tables: Mapping[str, pa.Table]) -> list[tuple[str, int, str | None]]:
    """What contradicts itself in a snapshot: rule, rows and the first example; null without rows."""
    from tracewarehouse.duck import engine

    with engine.shared(1) as con:
        for name in ("events", "segments", "blocks"):
            con.register(name, tables[f"snapshot_{name}"])
        return con.execute(_CONTRADICTIONS).fetchall()


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
        for rule, rows, example in contradictions(tables):
            self._notes.add(rule, rows, example or "")


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
