-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "memory_growth"
-- version  = 1
-- summary  = "Detects GPU memory that grows from step to step."
-- requires = ["memory_changes@1", "steps@1", "analyzed_intervals@1", "kernels@1"]
-- needs    = ["memory_events", "steps>=3"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = { default = 0.02 }
-- critical_share = { default = 0.5 }
--
-- [columns]
-- subject   = { doc = "The GPU by number. GPUs with memory events before the end of fewer than three complete steps have no row, nor do ranks that do not train: caches of inference grow with the text." }
-- share     = { doc = "Growth from the end of the first complete step to that of the last, as a share of what was allocated at the first; 0 unless it grows from each step to the next, and if nothing was allocated." }
-- count     = { doc = "Number of complete steps that end with more memory than the one before." }
-- saving_ns = { doc = "Always null: this is a risk, not lost time." }
-- culprit   = { doc = "Always null." }
-- event_id  = { doc = "The last memory event up to the end of the last complete step." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  reached AS (
    -- What was allocated when each complete step ended.
    SELECT
      steps.run_id,
      steps.rank,
      steps.step,
      steps.host_start_ns + steps.host_ns AS end_ns,
      change.device,
      arg_max(change.allocated_bytes, change.position) AS allocated_bytes,
      max_by(change.event_id, change.position) AS event_id
    FROM steps
    JOIN memory_changes AS change
      ON change.run_id = steps.run_id
      AND change.rank = steps.rank
      AND change.ts_ns <= steps.host_start_ns + steps.host_ns
    WHERE change.device_type <> 0 AND change.device IS NOT NULL AND change.allocated_bytes IS NOT NULL AND NOT steps.partial
    GROUP BY steps.run_id, steps.rank, steps.step, end_ns, change.device
  ),
  growth AS (
    SELECT
      run_id,
      rank,
      step,
      end_ns,
      device,
      allocated_bytes,
      event_id,
      allocated_bytes - lag(allocated_bytes) OVER by_end AS grown_bytes
    FROM reached
    WINDOW by_end AS (PARTITION BY run_id, rank, device ORDER BY end_ns)
  ),
  per_device AS (
    SELECT
      run_id,
      rank,
      device,
      count(*) FILTER (grown_bytes > 0) AS count,
      count(grown_bytes) AS pairs,
      arg_min(allocated_bytes, end_ns) AS first_bytes,
      arg_max(allocated_bytes, end_ns) AS last_bytes,
      arg_max(event_id, end_ns) AS event_id,
      min(end_ns) AS from_ns,
      max(end_ns) AS to_ns,
      arg_max(step, end_ns) AS step,
      count = pairs AND pairs >= 2 AND first_bytes > 0 AS grows
    FROM growth
    GROUP BY run_id, rank, device
  )
SELECT
  per_device.run_id,
  per_device.rank,
  'GPU ' || device AS subject,
  CASE WHEN grows THEN (last_bytes - first_bytes) / first_bytes ELSE 0 END AS share,
  TRUE AS is_representative,
  count,
  analyzed.steps,
  analyzed.analyzed_ns,
  NULL::BIGINT AS saving_ns,
  'this alone costs no time, until the memory is full' AS saving_limit,
  'From one complete step to the next, allocated memory grows in ' || count || ' of ' || pairs || ' cases: from '
  || format('{:.1f}', first_bytes / 1048576) || ' MiB at the end of the first to ' || format('{:.1f}', last_bytes / 1048576) || ' MiB at that of the last, '
  || format('{:.1f}', (last_bytes - first_bytes) / pairs / 1048576) || ' MiB per step.' AS observation,
  'Look for tensors that are kept from step to step: losses or outputs that are collected without .detach() or .item(), growing caches, hooks. `tw show memory_live` lists what is live at the peak.' AS advice,
  'memory_live' AS evidence,
  'device_type <> 0 AND device = ' || device AS evidence_filter,
  event_id,
  from_ns,
  to_ns,
  per_device.step
FROM per_device
JOIN (SELECT DISTINCT run_id, rank, steps, analyzed_ns FROM analyzed_intervals) AS analyzed
  ON analyzed.run_id = per_device.run_id AND analyzed.rank = per_device.rank
SEMI JOIN (SELECT run_id, rank FROM kernels WHERE pass IN ('backward', 'optimizer')) AS training
  ON training.run_id = per_device.run_id AND training.rank = per_device.rank
WHERE pairs >= 2
