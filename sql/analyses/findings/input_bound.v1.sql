-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "input_bound"
-- version  = 1
-- summary  = "Detects GPU idle time while the training thread waits for the data loader."
-- requires = ["analyzed_segments@1"]
-- needs    = ["gpu", "launches"]
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.2 }
--
-- [columns]
-- subject   = { doc = "Always: data loader." }
-- share     = { doc = "Idle time during waits for data, as a share of analyzed_ns." }
-- count     = { doc = "Number of such idle segments." }
-- event_id  = { doc = "The GPU activity that ends the longest such gap." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT run_id, rank, start_ns, segment_ns, after_id, steps, analyzed_ns, cause = 'dataloader' AS matches
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
      from_ns + max(segment_ns) FILTER (matches) AS to_ns
    FROM segment
    GROUP BY run_id, rank
  )
SELECT
  run_id,
  rank,
  'data loader' AS subject,
  share >= $warning_share AS is_finding,
  steps > 0 AS is_representative,
  share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'the idle time during waits for data; other idle time remains' AS saving_limit,
  'high' AS confidence,
  'The GPU idles while the training thread waits for the data loader.' AS observation,
  'Load data in worker processes (num_workers above 0, persistent_workers=True), prefetch more batches, use pinned memory and non-blocking copies, or do less work per sample.' AS advice,
  CASE WHEN steps = 0 THEN 'window_account' ELSE 'step_account' END AS evidence,
  'category = ''idle_dataloader''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM per_rank
