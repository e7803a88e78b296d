"""Counter tracks: series per stream, or per copy direction, of each device."""

from __future__ import annotations

from tracewarehouse.export.overlay_events import Addition

# A counter keeps its value until the next event.
_QUEUE_LENGTH = """
SELECT
  'C' AS ph,
  'overlay' AS category,
  'queue_length stream ' || queue_length.stream AS name,
  gpu_tracks.pid,
  NULL AS tid,
  NULL AS track,
  queue_length.ts_ns,
  NULL AS dur_ns,
  NULL AS depth,
  NULL AS id,
  NULL AS bp,
  json_object('activities', queue_length.queue_length) AS args
FROM queue_length
JOIN gpu_tracks USING (device, stream)
"""

_MEMORY_BANDWIDTH = """
SELECT
  'C' AS ph,
  'overlay' AS category,
  'memory_bandwidth ' || memory_bandwidth.direction AS name,
  process.pid,
  NULL AS tid,
  NULL AS track,
  memory_bandwidth.ts_ns,
  NULL AS dur_ns,
  NULL AS depth,
  NULL AS id,
  NULL AS bp,
  json_object('GB/s', memory_bandwidth.bandwidth_bytes_per_ns) AS args
FROM memory_bandwidth
JOIN (SELECT device, min(pid) AS pid FROM gpu_tracks GROUP BY device) AS process USING (device)
"""

COUNTERS = {
    each.name: each
    for each in (
        Addition(
            "queue_length",
            "GPU activities launched and not started, by stream",
            ("queue_length",),
            _QUEUE_LENGTH,
        ),
        Addition(
            "memory_bandwidth",
            "memcpy and memset bandwidth in GB/s, by direction",
            ("memory_bandwidth",),
            _MEMORY_BANDWIDTH,
        ),
    )
}
