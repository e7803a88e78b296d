-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "input_bound"
-- version  = 1
-- summary  = "Detects GPU idle time while the training thread waits for the data loader."
-- requires = ["analyzed_segments@1", "kernels@1", "runtime@1", "events@1"]
-- needs    = ["gpu", "launches"]
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.2 }
--
-- [columns]
-- subject   = { doc = "Always: data loader." }
-- share     = { doc = "Idle time during waits for data, as a share of analyzed_ns." }
-- count     = { doc = "Number of such idle segments." }
-- culprit   = { doc = "The wait for data in the longest such gap." }
-- event_id  = { doc = "The GPU activity that ends the longest such gap." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT run_id, rank, start_ns, segment_ns, after_id, step, steps, analyzed_ns, cause = 'dataloader' AS matches
    FROM analyzed_segments
  ),
  per_rank AS (
    SELECT
      run_id,
      rank,
      any_value(steps) AS steps,
      any_value(analyzed_ns) AS analyzed_ns,
      count(*) FILTER (matches) AS count,
      coalesce(sum(segment_ns) FILTER (matches), 0)::BIGINT AS saving_ns,
      saving_ns / any_value(analyzed_ns) AS share,
      arg_max(after_id, (segment_ns, -start_ns)) FILTER (matches) AS event_id,
      arg_max(start_ns, (segment_ns, -start_ns)) FILTER (matches) AS from_ns,
      arg_max(step, (segment_ns, -start_ns)) FILTER (matches) AS step,
      from_ns + max(segment_ns) FILTER (matches) AS to_ns
    FROM segment
    GROUP BY run_id, rank
  ),
  worst AS (
    SELECT
      per_rank.run_id,
      per_rank.rank,
      per_rank.from_ns,
      per_rank.to_ns,
      runtime.pid,
      runtime.tid
    FROM per_rank
    JOIN kernels USING (run_id, rank, event_id)
    JOIN runtime ON runtime.run_id = kernels.run_id AND runtime.rank = kernels.rank AND runtime.event_id = kernels.runtime_id
  ),
  wait AS (
    SELECT worst.run_id, worst.rank, arg_max(slice.name, slice.pre) AS name
    FROM worst
    JOIN events AS slice
      ON slice.run_id = worst.run_id
      AND slice.rank = worst.rank
      AND slice.pid = worst.pid
      AND slice.tid = worst.tid
      AND slice.ts_ns < worst.to_ns
      AND slice.ts_ns + slice.dur_ns > worst.from_ns
    WHERE starts_with(slice.name, 'enumerate(DataLoader)#') AND slice.pre IS NOT NULL
    GROUP BY worst.run_id, worst.rank
  )
SELECT
  per_rank.run_id,
  per_rank.rank,
  'data loader' AS subject,
  share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'the idle time during waits for data; other idle time remains' AS saving_limit,
  'The GPU idles {lost} while the training thread waits for the data loader. The longest wait, {worst}{where}, is in ' || coalesce(wait.name, 'the data loader') || '.' AS observation,
  CASE
    WHEN contains(wait.name, '_SingleProcess') THEN
      'The training thread loads the data itself (num_workers=0): load it in worker processes (num_workers above 0, persistent_workers=True), with pinned memory.'
    WHEN contains(wait.name, '_MultiProcessing') THEN
      'The worker processes do not keep up: use more of them, prefetch more batches (prefetch_factor), or do less work per sample.'
    ELSE
      'Load data in worker processes (num_workers above 0, persistent_workers=True), prefetch more batches, or do less work per sample.'
  END AS advice,
  CASE WHEN steps = 0 THEN 'window_account' ELSE 'step_account' END AS evidence,
  'category = ''idle_dataloader''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns,
  step,
  wait.name AS culprit
FROM per_rank
LEFT JOIN wait USING (run_id, rank)
