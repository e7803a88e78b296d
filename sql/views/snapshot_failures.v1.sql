-- /// tw
-- kind     = "view"
-- name     = "snapshot_failures"
-- version  = 1
-- summary  = "Each failed allocation (out of memory) in a memory snapshot, and the free memory that the allocator held at that moment."
-- requires = ["snapshot_events@1", "snapshot_segments@1", "snapshot_lifetimes@1", "snapshot_states@1"]
-- grain    = ["run_id", "rank", "device", "entry"]
-- order    = ["run_id", "rank", "device", "entry"]
--
-- [columns]
-- run_id              = { type = "VARCHAR", doc = "The run." }
-- rank                = { type = "INTEGER", doc = "The rank." }
-- device              = { type = "BIGINT", unit = "id", doc = "The device." }
-- entry               = { type = "BIGINT", unit = "id", doc = "The entry of the failed allocation." }
-- ts_ns               = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Timestamp." }
-- stack_id            = { type = "BIGINT", unit = "id", null = true, doc = "Call stack of the failed allocation; null if not recorded." }
-- stream              = { type = "BIGINT", unit = "id", null = true, signed = true, doc = "CUDA stream handle of the request." }
-- requested_bytes     = { type = "BIGINT", unit = "bytes", doc = "Bytes requested, rounded up to 512." }
-- device_free_bytes   = { type = "BIGINT", unit = "bytes", null = true, doc = "Bytes of the device that no process had reserved." }
-- reserved_bytes      = { type = "BIGINT", unit = "bytes", signed = true, doc = "Bytes that the allocator held." }
-- active_bytes        = { type = "BIGINT", unit = "bytes", signed = true, doc = "Bytes requested for blocks in use." }
-- free_in_cache_bytes = { type = "BIGINT", unit = "bytes", doc = "Bytes of free blocks: reserved, but not in use." }
-- largest_free_bytes  = { type = "BIGINT", unit = "bytes", doc = "The largest free block." }
-- free_blocks         = { type = "BIGINT", unit = "count", doc = "Number of free blocks." }
--
-- [changes]
-- 1 = "First version."
-- ///
-- Segments and blocks in use are undone backward to the entry; what is between the blocks was free.
WITH
  failure AS (
    SELECT
      run_id,
      rank,
      device,
      entry,
      ts_ns,
      stack_id,
      stream,
      coalesce(bytes, 0) AS requested_bytes,
      device_free_bytes
    FROM snapshot_events
    WHERE action = 'oom'
  ),
  -- A point changes the number of segments (held), of large fixed segments (fixed) and of blocks in use (used).
  segment AS (
    SELECT
      run_id,
      rank,
      device,
      NULL::BIGINT AS at_entry,
      address,
      coalesce(total_bytes, 0) AS bytes,
      1 AS sign,
      NOT coalesce(expandable, FALSE) AS is_fixed,
      kind = 'large' AS is_large
    FROM snapshot_segments
    UNION ALL
    SELECT
      run_id,
      rank,
      device,
      entry AS at_entry,
      address,
      coalesce(bytes, 0) AS bytes,
      CASE WHEN action IN ('segment_alloc', 'segment_map') THEN -1 ELSE 1 END AS sign,
      action IN ('segment_alloc', 'segment_free') AS is_fixed,
      -- Segments of the small pool have 2 MiB.
      ((coalesce(bytes, 0) - 1) // 2097152) > 0 AS is_large
    FROM snapshot_events
    WHERE action IN ('segment_alloc', 'segment_free', 'segment_map', 'segment_unmap') AND address IS NOT NULL
  ),
  point AS (
    SELECT
      failure.run_id,
      failure.rank,
      failure.device,
      failure.entry,
      unnest([segment.address, segment.address + segment.bytes]) AS address,
      unnest([segment.sign, -segment.sign]) AS held,
      CASE WHEN segment.is_fixed AND segment.is_large THEN unnest([segment.sign, -segment.sign]) ELSE 0 END AS fixed,
      0 AS used,
      segment.is_fixed AS is_border
    FROM failure
    JOIN segment
      ON segment.run_id = failure.run_id
      AND segment.rank = failure.rank
      AND segment.device = failure.device
      AND (segment.at_entry IS NULL OR segment.at_entry > failure.entry)
    UNION ALL
    SELECT
      failure.run_id,
      failure.rank,
      failure.device,
      failure.entry,
      unnest([lifetime.address, lifetime.address + lifetime.block_bytes]) AS address,
      0 AS held,
      0 AS fixed,
      unnest([1, -1]) AS used,
      FALSE AS is_border
    FROM failure
    JOIN snapshot_lifetimes AS lifetime
      ON lifetime.run_id = failure.run_id
      AND lifetime.rank = failure.rank
      AND lifetime.device = failure.device
      AND coalesce(lifetime.from_entry, -1) < failure.entry
      AND (lifetime.to_entry IS NULL OR lifetime.to_entry > failure.entry)
  ),
  border AS (
    SELECT
      run_id,
      rank,
      device,
      entry,
      address,
      sum(sum(held)) OVER so_far > 0 AS is_held,
      sum(sum(fixed)) OVER so_far > 0 AS is_fixed,
      sum(sum(used)) OVER so_far > 0 AS is_used,
      bool_or(is_border) AS is_border,
      lead(address) OVER so_far - address AS bytes
    FROM point
    GROUP BY run_id, rank, device, entry, address
    WINDOW so_far AS (PARTITION BY run_id, rank, device, entry ORDER BY address)
  ),
  range AS (
    SELECT
      run_id,
      rank,
      device,
      entry,
      address,
      bytes,
      is_fixed,
      is_held AND NOT is_used AS is_free,
      lag(is_used) OVER by_address AS follows_block,
      NOT coalesce(lag(is_held AND NOT is_used) OVER by_address, FALSE) OR is_border AS is_first
    FROM border
    WINDOW by_address AS (PARTITION BY run_id, rank, device, entry ORDER BY address)
  ),
  free_range AS (
    SELECT
      run_id,
      rank,
      device,
      entry,
      address,
      bytes,
      is_fixed,
      follows_block,
      sum(is_first::INTEGER) OVER (PARTITION BY run_id, rank, device, entry ORDER BY address) AS gap
    FROM range
    WHERE is_free
  ),
  gap AS (
    SELECT
      run_id,
      rank,
      device,
      entry,
      sum(bytes) AS bytes,
      arg_min(coalesce(follows_block, FALSE) AND is_fixed, address) AS is_rest
    FROM free_range
    GROUP BY run_id, rank, device, entry, gap
  ),
  free AS (
    SELECT
      run_id,
      rank,
      device,
      entry,
      sum(bytes)::BIGINT AS bytes,
      max(bytes)::BIGINT AS largest,
      count(*) AS blocks
    FROM gap
    -- In large segments of fixed size, a rest of up to 1 MiB stays part of the block before it.
    WHERE NOT (is_rest AND ((bytes - 1) // 1048576) = 0)
    GROUP BY run_id, rank, device, entry
  )
SELECT
  failure.run_id,
  failure.rank,
  failure.device,
  failure.entry,
  failure.ts_ns,
  failure.stack_id,
  failure.stream,
  failure.requested_bytes,
  failure.device_free_bytes,
  state.reserved_bytes,
  state.active_bytes,
  coalesce(free.bytes, 0) AS free_in_cache_bytes,
  coalesce(free.largest, 0) AS largest_free_bytes,
  coalesce(free.blocks, 0) AS free_blocks
FROM failure
JOIN snapshot_states AS state USING (run_id, rank, device, entry)
LEFT JOIN free USING (run_id, rank, device, entry)
