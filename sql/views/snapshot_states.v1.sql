-- /// tw
-- kind     = "view"
-- name     = "snapshot_states"
-- version  = 1
-- summary  = "Memory in use after each entry of a memory snapshot, computed backward from its blocks and segments."
-- requires = ["snapshot_events@1", "snapshot_segments@1", "snapshot_blocks@1"]
-- grain    = ["run_id", "rank", "device", "entry"]
-- order    = ["run_id", "rank", "device", "entry"]
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- device          = { type = "BIGINT", unit = "id", doc = "The device." }
-- entry           = { type = "BIGINT", unit = "id", signed = true, doc = "The entry; -1 for the state before the first one." }
-- ts_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Timestamp of the entry; null before the first one." }
-- action          = { type = "VARCHAR", null = true, doc = "Action of the entry; null before the first one." }
-- allocated_bytes = { type = "BIGINT", unit = "bytes", signed = true, doc = "Bytes requested for blocks that are not freed. Entries that are lost do not matter: the state at the end is known." }
-- active_bytes    = { type = "BIGINT", unit = "bytes", signed = true, doc = "The same, plus blocks that were freed while another stream still used them." }
-- reserved_bytes  = { type = "BIGINT", unit = "bytes", signed = true, doc = "Bytes that the allocator holds of the device." }
--
-- [changes]
-- 1 = "First version."
-- ///
-- The state at the end is in blocks and segments. Each entry is undone, the last one first.
WITH
  change AS (
    SELECT
      run_id,
      rank,
      device,
      entry,
      ts_ns,
      action,
      CASE action
        WHEN 'alloc' THEN coalesce(bytes, 0)
        WHEN 'free_requested' THEN -coalesce(bytes, 0)
        ELSE 0
      END AS allocated,
      CASE action
        WHEN 'alloc' THEN coalesce(bytes, 0)
        WHEN 'free_completed' THEN -coalesce(bytes, 0)
        ELSE 0
      END AS active,
      CASE
        WHEN action IN ('segment_alloc', 'segment_map') THEN coalesce(bytes, 0)
        WHEN action IN ('segment_free', 'segment_unmap') THEN -coalesce(bytes, 0)
        ELSE 0
      END AS reserved
    FROM snapshot_events
  ),
  in_use AS (
    SELECT
      run_id,
      rank,
      device,
      sum(coalesce(nullif(requested_bytes, 0), bytes, 0)) FILTER (state = 'active_allocated') AS allocated,
      sum(coalesce(nullif(requested_bytes, 0), bytes, 0)) FILTER (state <> 'inactive') AS active
    FROM snapshot_blocks
    GROUP BY run_id, rank, device
  ),
  held AS (
    SELECT run_id, rank, device, sum(coalesce(total_bytes, 0)) AS reserved
    FROM snapshot_segments
    GROUP BY run_id, rank, device
  ),
  total AS (
    SELECT run_id, rank, device, sum(allocated) AS allocated, sum(active) AS active, sum(reserved) AS reserved
    FROM change
    GROUP BY run_id, rank, device
  ),
  place AS (
    SELECT run_id, rank, device
    FROM held
    UNION
    SELECT run_id, rank, device
    FROM total
  ),
  first AS (
    SELECT
      place.run_id,
      place.rank,
      place.device,
      coalesce(in_use.allocated, 0) - coalesce(total.allocated, 0) AS allocated,
      coalesce(in_use.active, 0) - coalesce(total.active, 0) AS active,
      coalesce(held.reserved, 0) - coalesce(total.reserved, 0) AS reserved
    FROM place
    LEFT JOIN in_use USING (run_id, rank, device)
    LEFT JOIN held USING (run_id, rank, device)
    LEFT JOIN total USING (run_id, rank, device)
  )
SELECT
  run_id,
  rank,
  device,
  -1 AS entry,
  NULL::BIGINT AS ts_ns,
  NULL::VARCHAR AS action,
  allocated::BIGINT AS allocated_bytes,
  active::BIGINT AS active_bytes,
  reserved::BIGINT AS reserved_bytes
FROM first
UNION ALL
SELECT
  change.run_id,
  change.rank,
  change.device,
  change.entry,
  change.ts_ns,
  change.action,
  (first.allocated + sum(change.allocated) OVER so_far)::BIGINT AS allocated_bytes,
  (first.active + sum(change.active) OVER so_far)::BIGINT AS active_bytes,
  (first.reserved + sum(change.reserved) OVER so_far)::BIGINT AS reserved_bytes
FROM change
JOIN first USING (run_id, rank, device)
WINDOW so_far AS (PARTITION BY change.run_id, change.rank, change.device ORDER BY change.entry ROWS UNBOUNDED PRECEDING)
