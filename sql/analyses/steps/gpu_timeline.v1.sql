-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "gpu_timeline"
-- version  = 1
-- summary  = "Each rank's GPU time as contiguous segments with their category: the segments that `step_account` and `window_account` sum."
-- requires = ["account_segments@1", "clock_offsets@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "start_ns"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id         = { type = "VARCHAR", doc = "The run." }
-- rank           = { type = "INTEGER", doc = "The rank; its devices are combined." }
-- start_ns       = { type = "BIGINT", unit = "ts", signed = true, doc = "Start of the segment, by the clock of the rank." }
-- segment_ns     = { type = "BIGINT", unit = "ns", doc = "Duration. Segments are contiguous, and cut at the periods of steps." }
-- step           = { type = "BIGINT", unit = "id", null = true, doc = "The step whose period contains the segment." }
-- category       = { type = "VARCHAR", doc = "As in `step_account`; in the sum per rank, the categories that begin with idle_, without idle_outside, are idle_ns of `temporal_breakdown`, those that begin with exposed_, without exposed_memory, exposed_comm_ns." }
-- waits_for      = { type = "INTEGER", null = true, doc = "The rank that arrived last at the collective; null unless waiting." }
-- event_id       = { type = "BIGINT", unit = "id", null = true, doc = "The GPU activity that the segment is attributed to; null if idle." }
-- offset_ns      = { type = "BIGINT", unit = "ns", signed = true, doc = "Clock offset of the rank: subtract it to compare ranks with the same reference_rank." }
-- reference_rank = { type = "INTEGER", doc = "The rank whose clock the offset refers to." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  account.run_id,
  account.rank,
  account.start_ns,
  account.segment_ns,
  account.step,
  CASE
    WHEN account.kind = 'computation' THEN 'compute'
    WHEN account.kind = 'communication' THEN 'exposed_' || account.exposure
    WHEN account.kind = 'memory' THEN 'exposed_memory'
    WHEN account.kind = 'other' THEN 'other'
    ELSE 'idle_' || account.cause
  END AS category,
  account.waits_for,
  account.kernel_id AS event_id,
  clock_offsets.offset_ns,
  clock_offsets.reference_rank
FROM account_segments AS account
JOIN clock_offsets USING (run_id, rank)
