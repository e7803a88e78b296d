-- /// tw
-- kind    = "format"
-- name    = "snapshot_contradictions"
-- version = 1
-- summary = "Memory snapshots of PyTorch: entries and segments that contradict each other, as findings."
--
-- [tables.events]
-- required = ["device", "entry", "action VARCHAR", "address"]
--
-- [tables.segments]
-- required = ["device", "address", "active_bytes"]
--
-- [tables.blocks]
-- required = ["device", "address", "segment_address", "bytes", "state VARCHAR"]
--
-- [changes]
-- 1 = "First version."
-- ///
-- Each address is allocated and freed in turn, and an active block continues its last allocation: it takes the
-- place of the free that would come next. The active bytes of a segment are those of its active blocks.
WITH active AS (FROM blocks WHERE state IN ('active_allocated', 'active_pending_free')),
moves AS (
  SELECT coalesce(device, -1) AS device, address, entry, action = 'alloc' AS is_alloc
  FROM events WHERE action IN ('alloc', 'free_completed')
  UNION ALL
  SELECT coalesce(device, -1), address, 9223372036854775807, FALSE FROM active
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
  'snapshot_overrun' AS rule, count(*) AS rows,
  arg_min(format('device {}, address {:#x}', device, address), (entry, next IS NULL, device, address)) AS example
FROM turns WHERE is_alloc = coalesce(next, TRUE) HAVING count(*) > 0
UNION ALL
SELECT
  'snapshot_segments_disagree', count(*), arg_min(
    format('segment {:#x}: active_size {} B, its active blocks {} B', address, active_bytes, own), place
  )
FROM totals WHERE active_bytes <> own HAVING count(*) > 0
