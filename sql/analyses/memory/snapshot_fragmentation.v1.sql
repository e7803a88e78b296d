-- /// tw
-- kind     = "analysis"
-- name     = "snapshot_fragmentation"
-- version  = 1
-- summary  = "Reserved but unused memory of each pool when a memory snapshot was taken: rounding inside blocks, and free blocks."
-- requires = ["snapshot_segments@1", "snapshot_blocks@1"]
-- needs    = ["snapshot"]
-- grain    = ["run_id", "rank", "device", "pool", "kind"]
-- order    = ["run_id", "rank", "device", "-external_bytes", "pool", "kind"]
--
-- [columns]
-- run_id             = { type = "VARCHAR", doc = "The run." }
-- rank               = { type = "INTEGER", doc = "The rank." }
-- device             = { type = "BIGINT", unit = "id", doc = "The device." }
-- pool               = { type = "VARCHAR", null = true, doc = "Private memory pool; null for the default pool." }
-- kind               = { type = "VARCHAR", null = true, doc = "small (requests up to 1 MiB) or large." }
-- segments           = { type = "BIGINT", unit = "count", doc = "Number of segments." }
-- reserved_bytes     = { type = "BIGINT", unit = "bytes", better = "lower", doc = "Bytes of the segments." }
-- active_bytes       = { type = "BIGINT", unit = "bytes", doc = "Bytes of blocks in use." }
-- requested_bytes    = { type = "BIGINT", unit = "bytes", doc = "Bytes that were requested for them." }
-- internal_bytes     = { type = "BIGINT", unit = "bytes", signed = true, better = "lower", doc = "Bytes of blocks in use beyond what was requested: rounding." }
-- external_bytes     = { type = "BIGINT", unit = "bytes", better = "lower", doc = "Bytes of free blocks." }
-- releasable_bytes   = { type = "BIGINT", unit = "bytes", doc = "Bytes of segments without a block in use: the allocator can return them to the device." }
-- stuck_bytes        = { type = "BIGINT", unit = "bytes", better = "lower", doc = "external_bytes without releasable_bytes: free, but usable only for requests that fit into the blocks." }
-- largest_free_bytes = { type = "BIGINT", unit = "bytes", doc = "The largest free block." }
-- stuck_share        = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "stuck_bytes as a share of reserved_bytes." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  per_segment AS (
    SELECT
      segments.run_id,
      segments.rank,
      segments.device,
      segments.pool,
      segments.kind,
      segments.address,
      coalesce(segments.total_bytes, 0) AS total,
      coalesce(sum(blocks.bytes) FILTER (blocks.state <> 'inactive'), 0) AS active,
      coalesce(sum(coalesce(nullif(blocks.requested_bytes, 0), blocks.bytes)) FILTER (blocks.state <> 'inactive'), 0) AS requested,
      coalesce(sum(blocks.bytes) FILTER (blocks.state = 'inactive'), 0) AS free,
      coalesce(max(blocks.bytes) FILTER (blocks.state = 'inactive'), 0) AS largest_free,
      count(blocks.address) FILTER (blocks.state <> 'inactive') AS in_use
    FROM snapshot_segments AS segments
    LEFT JOIN snapshot_blocks AS blocks
      ON blocks.run_id = segments.run_id
      AND blocks.rank = segments.rank
      AND blocks.device = segments.device
      AND blocks.segment_address = segments.address
    GROUP BY ALL
  )
SELECT
  run_id,
  rank,
  device,
  pool,
  kind,
  count(*) AS segments,
  sum(total)::BIGINT AS reserved_bytes,
  sum(active)::BIGINT AS active_bytes,
  sum(requested)::BIGINT AS requested_bytes,
  sum(active - requested)::BIGINT AS internal_bytes,
  sum(free)::BIGINT AS external_bytes,
  coalesce(sum(total) FILTER (in_use = 0), 0)::BIGINT AS releasable_bytes,
  coalesce(sum(free) FILTER (in_use > 0), 0)::BIGINT AS stuck_bytes,
  max(largest_free)::BIGINT AS largest_free_bytes,
  coalesce(coalesce(sum(free) FILTER (in_use > 0), 0) / nullif(sum(total), 0), 0) AS stuck_share
FROM per_segment
GROUP BY run_id, rank, device, pool, kind
