-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "low_gpu_use"
-- version  = 1
-- summary  = "Detects GPUs that are idle most of the time."
-- requires = ["analyzed_segments@1"]
-- needs    = ["gpu"]
--
-- [params]
-- warning_share  = { default = 0.5 }
-- critical_share = { default = 0.8 }
--
-- [columns]
-- subject   = { doc = "Always: GPU. Ranks without GPU activity in their complete steps have no row." }
-- share     = { doc = "Idle time as a share of analyzed_ns." }
-- count     = { doc = "Number of idle segments, split where the cause changes." }
-- event_id  = { doc = "The GPU activity that ends the gap with the longest idle segment of one cause; null before the first and after the last activity." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT run_id, rank, start_ns, segment_ns, after_id, steps, analyzed_ns, kind = 'idle' AS matches
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
  'GPU' AS subject,
  share >= $warning_share AS is_finding,
  steps > 0 AS is_representative,
  share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'all idle time, with unchanged kernels' AS saving_limit,
  'high' AS confidence,
  'The GPU is idle most of the time.' AS observation,
  'First check which cause the other findings and the breakdown name. If the batch is small, a larger one gives each launch more work.' AS advice,
  CASE WHEN steps = 0 THEN 'window_account' ELSE 'step_account' END AS evidence,
  'starts_with(category, ''idle_'')' AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM per_rank
-- An interval without GPU activity does not show how the GPU is used.
WHERE saving_ns < analyzed_ns
