-- /// tw
-- kind     = "analysis"
-- name     = "snapshot_peak"
-- version  = 1
-- summary  = "What holds the memory at the peak of a memory snapshot: bytes by call stack, with the innermost frame outside of PyTorch."
-- requires = ["snapshot_states@1", "snapshot_lifetimes@1", "snapshot_stacks@1"]
-- needs    = ["snapshot"]
-- grain    = ["run_id", "rank", "device", "stack_id", "born_before"]
-- order    = ["run_id", "rank", "device", "-bytes", "stack_id"]
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- device        = { type = "BIGINT", unit = "id", doc = "The device." }
-- stack_id      = { type = "BIGINT", unit = "id", null = true, doc = "Call stack of the allocations; null if not recorded or lost." }
-- top_frame     = { type = "VARCHAR", null = true, doc = "Innermost Python frame outside of PyTorch as `file:line function`; null without a stack." }
-- category      = { type = "VARCHAR", doc = "backward, optimizer, collective, forward, data, setup or other, by the call stack; unknown without a stack." }
-- born_before   = { type = "BOOLEAN", doc = "True for allocations from before the first entry." }
-- bytes         = { type = "BIGINT", unit = "bytes", better = "lower", doc = "Active bytes of this stack at the peak; the rows of a device sum to peak_bytes." }
-- blocks        = { type = "BIGINT", unit = "count", doc = "Number of blocks." }
-- largest_bytes = { type = "BIGINT", unit = "bytes", doc = "The largest block." }
-- share         = { type = "DOUBLE", unit = "ratio", doc = "bytes as a share of peak_bytes." }
-- peak_bytes    = { type = "BIGINT", unit = "bytes", signed = true, doc = "Active bytes at the peak, the same in all rows of a device." }
-- peak_entry    = { type = "BIGINT", unit = "id", signed = true, doc = "The entry after which the peak was first reached; -1 if before the first entry." }
-- peak_at_ns    = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Time of that entry." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  peak AS (
    SELECT
      run_id,
      rank,
      device,
      max(active_bytes) AS peak_bytes,
      arg_max(entry, (active_bytes, -entry)) AS peak_entry,
      arg_max_null(ts_ns, (active_bytes, -entry)) AS peak_at_ns
    FROM snapshot_states
    GROUP BY run_id, rank, device
  ),
  live AS (
    SELECT
      peak.run_id,
      peak.rank,
      peak.device,
      peak.peak_bytes,
      peak.peak_entry,
      peak.peak_at_ns,
      lifetime.stack_id,
      lifetime.born_before,
      sum(lifetime.bytes)::BIGINT AS bytes,
      count(*) AS blocks,
      max(lifetime.bytes) AS largest_bytes
    FROM peak
    JOIN snapshot_lifetimes AS lifetime
      ON lifetime.run_id = peak.run_id
      AND lifetime.rank = peak.rank
      AND lifetime.device = peak.device
      AND coalesce(lifetime.from_entry, -1) <= peak.peak_entry
      AND (lifetime.to_entry IS NULL OR lifetime.to_entry > peak.peak_entry)
    GROUP BY ALL
  )
SELECT
  live.run_id,
  live.rank,
  live.device,
  live.stack_id,
  stack.top_frame,
  coalesce(stack.category, 'unknown') AS category,
  live.born_before,
  live.bytes,
  live.blocks,
  live.largest_bytes,
  coalesce(live.bytes / nullif(live.peak_bytes, 0), 0) AS share,
  live.peak_bytes,
  live.peak_entry,
  live.peak_at_ns
FROM live
LEFT JOIN snapshot_stacks AS stack USING (run_id, rank, stack_id)
