-- /// tw
-- kind     = "analysis"
-- name     = "memory_pressure"
-- version  = 1
-- summary  = "Detects GPU memory that was nearly full."
-- requires = ["memory_changes@1", "analyzed_intervals@1", "ranks@1"]
-- needs    = ["memory_events", "device_properties"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.9, unit = "ratio", min = 0, doc = "Warning threshold: lowest share that is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.97, unit = "ratio", min = 0, doc = "Critical threshold." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "The GPU by number. GPUs whose memory size or total allocation is not recorded have no row." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (above the threshold, but the trace has no complete step, so it may not be representative) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Peak allocated bytes as a share of the device's memory." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "Warning threshold." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Number of allocations and frees." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps analyzed; 0 if there are none." }
-- analyzed_ns     = { type = "BIGINT", unit = "ns", doc = "Analyzed time: the rank's complete steps, or its GPU window if there are none." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Always null: this is a risk, not lost time." }
-- saving_limit    = { type = "VARCHAR", doc = "What limits the saving. Savings of different findings overlap and do not add up." }
-- confidence      = { type = "VARCHAR", doc = "Confidence: high, medium or low." }
-- observation     = { type = "VARCHAR", doc = "What was observed, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis that shows the evidence." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "SQL condition that selects the relevant rows; null for all rows." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The allocation that first reached the peak." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Start of the worst occurrence." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "End of the worst occurrence." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  device AS (
    SELECT run_id, rank, unnest(header -> '$.deviceProperties[*]') AS properties
    FROM ranks
  ),
  gpu AS (
    SELECT
      run_id,
      rank,
      TRY_CAST(properties ->> '$.id' AS BIGINT) AS device,
      TRY_CAST(properties ->> '$.totalGlobalMem' AS BIGINT) AS memory_bytes
    FROM device
  ),
  peak AS (
    SELECT
      run_id,
      rank,
      device,
      count(*) AS count,
      max(allocated_bytes) AS peak_bytes,
      arg_max(event_id, (allocated_bytes, -position)) FILTER (allocated_bytes IS NOT NULL) AS event_id,
      arg_max(ts_ns, (allocated_bytes, -position)) FILTER (allocated_bytes IS NOT NULL) AS from_ns
    FROM memory_changes
    WHERE device_type <> 0
    GROUP BY run_id, rank, device
  ),
  total AS (
    SELECT
      peak.run_id,
      peak.rank,
      peak.device,
      peak.count,
      peak.peak_bytes / gpu.memory_bytes AS share,
      analyzed.steps,
      analyzed.analyzed_ns,
      peak.event_id,
      peak.from_ns
    FROM peak
    JOIN gpu ON gpu.run_id = peak.run_id AND gpu.rank = peak.rank AND gpu.device = peak.device
    JOIN analyzed_intervals AS analyzed ON analyzed.run_id = peak.run_id AND analyzed.rank = peak.rank
    WHERE peak.peak_bytes IS NOT NULL AND gpu.memory_bytes > 0
  )
SELECT
  run_id,
  rank,
  'GPU ' || device AS subject,
  CASE
    WHEN share < $warning_share THEN 'none'
    WHEN share < $critical_share THEN 'warning'
    ELSE 'critical'
  END AS severity,
  share,
  $warning_share AS threshold,
  count,
  steps,
  analyzed_ns,
  NULL::BIGINT AS saving_ns,
  'this alone costs no time; a larger batch or fragmentation can run out of memory' AS saving_limit,
  'high' AS confidence,
  'Nearly all GPU memory was allocated at the peak.' AS observation,
  'Check what was live at the peak. Recompute activations (checkpointing), lower the precision, shard parameters and optimizer state, or use a smaller batch.' AS advice,
  'memory_live' AS evidence,
  NULL::VARCHAR AS evidence_filter,
  event_id,
  from_ns,
  from_ns AS to_ns
FROM total
