-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "memory_pressure"
-- version  = 1
-- summary  = "Detects GPU memory that was nearly full."
-- requires = ["memory_changes@1", "analyzed_intervals@1", "recorded_devices@1"]
-- needs    = ["memory_events", "device_properties"]
-- excluded_by = []
-- limited_by = ["lost_events"]
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0.9 }
-- critical_share = { default = 0.97 }
--
-- [columns]
-- subject   = { doc = "The GPU by number. GPUs whose memory size or total allocation is not recorded have no row." }
-- share     = { doc = "Peak allocated bytes as a share of the device's memory." }
-- count     = { doc = "Number of allocations and frees." }
-- saving_ns = { doc = "Always null: this is a risk, not lost time." }
-- event_id  = { doc = "The allocation that first reached the peak." }
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
      count(*) AS count,
      max(allocated_bytes) AS peak_bytes,
      arg_max(event_id, (allocated_bytes, -position)) FILTER (allocated_bytes IS NOT NULL) AS event_id,
      arg_max(ts_ns, (allocated_bytes, -position)) FILTER (allocated_bytes IS NOT NULL) AS from_ns
    FROM memory_changes
    WHERE device_type <> 0
    GROUP BY run_id, rank, device
  ),
  per_device AS (
    SELECT
      peak.run_id,
      peak.rank,
      peak.device,
      peak.count,
      peak.peak_bytes / capacity.memory_bytes AS share,
      span.steps,
      span.analyzed_ns,
      peak.event_id,
      peak.from_ns
    FROM peak
    JOIN recorded_devices AS capacity USING (run_id, rank, device)
    JOIN (SELECT DISTINCT run_id, rank, steps, analyzed_ns FROM analyzed_intervals) AS span
      ON span.run_id = peak.run_id AND span.rank = peak.rank
    WHERE peak.peak_bytes IS NOT NULL AND capacity.memory_bytes > 0
  )
SELECT
  run_id,
  rank,
  'GPU ' || device AS subject,
  TRUE AS is_representative,
  share,
  count,
  steps,
  analyzed_ns,
  NULL::BIGINT AS saving_ns,
  'this alone costs no time; a larger batch or fragmentation can run out of memory' AS saving_limit,
  'At the peak ' || format('{:.1f}', share * 100) || ' % of the memory of GPU ' || device || ' was allocated.' AS observation,
  'Check what was live at the peak. Recompute activations (checkpointing), lower the precision, shard parameters and optimizer state, or use a smaller batch.' AS advice,
  'memory_live' AS evidence,
  NULL::VARCHAR AS evidence_filter,
  event_id,
  from_ns,
  from_ns AS to_ns
FROM per_device
