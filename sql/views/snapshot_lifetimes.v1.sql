-- /// tw
-- kind     = "view"
-- name     = "snapshot_lifetimes"
-- version  = 1
-- summary  = "Lifetime of each allocation in a memory snapshot, from its entry to the one that freed it."
-- requires = ["snapshot_events@1", "snapshot_blocks@1"]
-- grain    = ["run_id", "rank", "device", "address", "from_entry"]
-- order    = ["run_id", "rank", "device", "from_entry", "address"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank." }
-- device      = { type = "BIGINT", unit = "id", doc = "The device." }
-- address     = { type = "BIGINT", unit = "id", doc = "Address of the block." }
-- from_entry  = { type = "BIGINT", unit = "id", null = true, doc = "The entry that allocated it; null if it was allocated before the first entry." }
-- to_entry    = { type = "BIGINT", unit = "id", null = true, doc = "The entry that freed it (free_completed); null if it is active at the end." }
-- from_ns     = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "When it was allocated; null if unknown." }
-- to_ns       = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "When it was freed; null if unknown or not freed." }
-- bytes       = { type = "BIGINT", unit = "bytes", doc = "Bytes requested." }
-- block_bytes = { type = "BIGINT", unit = "bytes", doc = "Size of its block if it is active at the end, else bytes rounded up to 512." }
-- stack_id    = { type = "BIGINT", unit = "id", null = true, doc = "Call stack of the allocation; null if not recorded or lost." }
-- born_before = { type = "BOOLEAN", doc = "True if it was allocated before the first entry." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  entry AS (
    SELECT
      run_id,
      rank,
      device,
      address,
      entry,
      ts_ns,
      action,
      coalesce(bytes, 0) AS bytes,
      stack_id,
      lag(action) OVER of_address AS action_before,
      lead(action) OVER of_address AS next_action,
      lead(entry) OVER of_address AS next_entry,
      lead(ts_ns) OVER of_address AS next_ns
    FROM snapshot_events
    WHERE action IN ('alloc', 'free_completed') AND address IS NOT NULL
    WINDOW of_address AS (PARTITION BY run_id, rank, device, address ORDER BY entry)
  ),
  active AS (
    SELECT
      blocks.run_id,
      blocks.rank,
      blocks.device,
      blocks.address,
      coalesce(nullif(blocks.requested_bytes, 0), blocks.bytes, 0) AS bytes,
      blocks.bytes AS block_bytes,
      blocks.stack_id,
      last.action AS last_action
    FROM snapshot_blocks AS blocks
    LEFT JOIN entry AS last
      ON last.run_id = blocks.run_id
      AND last.rank = blocks.rank
      AND last.device = blocks.device
      AND last.address = blocks.address
      AND last.next_action IS NULL
    WHERE blocks.state <> 'inactive'
  )
SELECT
  entry.run_id,
  entry.rank,
  entry.device,
  entry.address,
  entry.entry AS from_entry,
  CASE WHEN entry.next_action = 'free_completed' THEN entry.next_entry END AS to_entry,
  entry.ts_ns AS from_ns,
  CASE WHEN entry.next_action = 'free_completed' THEN entry.next_ns END AS to_ns,
  entry.bytes,
  CASE
    WHEN entry.next_action IS NULL THEN coalesce(active.block_bytes, (entry.bytes + 511) // 512 * 512)
    ELSE (entry.bytes + 511) // 512 * 512
  END AS block_bytes,
  entry.stack_id,
  FALSE AS born_before
FROM entry
LEFT JOIN active USING (run_id, rank, device, address)
WHERE entry.action = 'alloc'
UNION ALL
-- Freed without an allocation in the trace.
SELECT
  run_id,
  rank,
  device,
  address,
  NULL AS from_entry,
  entry AS to_entry,
  NULL AS from_ns,
  ts_ns AS to_ns,
  bytes,
  (bytes + 511) // 512 * 512 AS block_bytes,
  NULL AS stack_id,
  TRUE AS born_before
FROM entry
WHERE action = 'free_completed' AND action_before IS NULL
UNION ALL
-- Active from before the first entry to the end.
SELECT
  run_id,
  rank,
  device,
  address,
  NULL AS from_entry,
  NULL AS to_entry,
  NULL AS from_ns,
  NULL AS to_ns,
  bytes,
  coalesce(block_bytes, bytes) AS block_bytes,
  stack_id,
  TRUE AS born_before
FROM active
WHERE last_action IS NULL
