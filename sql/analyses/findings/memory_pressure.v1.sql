-- /// tw
-- kind     = "analysis"
-- name     = "memory_pressure"
-- version  = 1
-- summary  = "Whether the memory of a GPU was nearly full."
-- requires = ["memory_changes@1", "judged_spans@1", "ranks@1"]
-- needs    = ["memory_events", "device_properties"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.9, unit = "ratio", min = 0, doc = "A share from here on is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.97, unit = "ratio", min = 0, doc = "From here on it is critical." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "The GPU by its number. A GPU whose memory, or whose total of allocations, the trace does not tell has no row." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (over the threshold, but the trace has no complete step, so it may not show the usual) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "The most bytes that were allocated at once over the memory of the device." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "From this share on it is a finding." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Allocations and frees." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps by which the rank is judged; 0 where it has none." }
-- judged_ns       = { type = "BIGINT", unit = "ns", doc = "How long the stretch is by which the rank is judged: its complete steps, else its GPU rows from first to last." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Always null: it is a risk, not time." }
-- bound           = { type = "VARCHAR", doc = "Why it cannot be more. Savings of several findings do not add up." }
-- confidence      = { type = "VARCHAR", doc = "high, medium or low: how far the trace can tell that it is so." }
-- seen            = { type = "VARCHAR", doc = "What is seen, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis whose rows show it." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "Which of its rows, as a condition in SQL; null for all." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The allocation that reached the most first." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Where the worst instance begins." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Where it ends." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  device AS (
    SELECT run_id, rank, unnest(header -> '$.deviceProperties[*]') AS properties
    FROM ranks
  ),
  told AS (
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
  spent AS (
    SELECT
      peak.run_id,
      peak.rank,
      peak.device,
      peak.count,
      peak.peak_bytes / told.memory_bytes AS share,
      span.steps,
      span.judged_ns,
      peak.event_id,
      peak.from_ns
    FROM peak
    JOIN told ON told.run_id = peak.run_id AND told.rank = peak.rank AND told.device = peak.device
    JOIN judged_spans AS span ON span.run_id = peak.run_id AND span.rank = peak.rank
    WHERE peak.peak_bytes IS NOT NULL AND told.memory_bytes > 0
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
  judged_ns,
  NULL::BIGINT AS saving_ns,
  'no time is lost by it alone: the next larger batch, or fragments between allocations, end in an error for want of memory' AS bound,
  'high' AS confidence,
  'At its peak nearly all memory of the GPU was allocated.' AS seen,
  'Look at what was live at the peak. Recompute activations (checkpointing), lower the precision, shard parameters and optimizer, or take a smaller batch.' AS advice,
  'memory_live' AS evidence,
  NULL::VARCHAR AS evidence_filter,
  event_id,
  from_ns,
  from_ns AS to_ns
FROM spent
