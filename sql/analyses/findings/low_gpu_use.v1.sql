-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "low_gpu_use"
-- version  = 1
-- summary  = "Detects GPUs that are idle most of the time."
-- requires = ["judged_pieces@1"]
-- needs    = ["gpu"]
--
-- [params]
-- warning_share  = { default = 0.5 }
-- critical_share = { default = 0.8 }
--
-- [columns]
-- subject   = { doc = "Always: GPU. Ranks without GPU activity in their complete steps have no row." }
-- share     = { doc = "Idle time as a share of judged_ns." }
-- count     = { doc = "Number of idle segments, split where the cause changes." }
-- event_id  = { doc = "The GPU activity that ends the gap with the longest idle segment of one cause; null before the first and after the last activity." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT run_id, rank, start_ns, piece_ns, after_id, steps, judged_ns, kind = 'idle' AS matches
    FROM judged_pieces
  ),
  per_rank AS (
    SELECT
      run_id,
      rank,
      any_value(steps) AS steps,
      any_value(judged_ns) AS judged_ns,
      count(*) FILTER (matches) AS count,
      coalesce(sum(piece_ns) FILTER (matches), 0)::BIGINT AS saving_ns,
      saving_ns / any_value(judged_ns) AS share,
      arg_max(after_id, (piece_ns, -start_ns)) FILTER (matches) AS event_id,
      arg_max(start_ns, (piece_ns, -start_ns)) FILTER (matches) AS from_ns,
      from_ns + max(piece_ns) FILTER (matches) AS to_ns
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
  judged_ns,
  saving_ns,
  'all idle time, with unchanged kernels' AS bound,
  'high' AS confidence,
  'The GPU is idle most of the time.' AS seen,
  'First check which cause the other findings and the breakdown name. If the batch is small, a larger one gives each launch more work.' AS advice,
  CASE WHEN steps = 0 THEN 'window_account' ELSE 'step_account' END AS evidence,
  'starts_with(part, ''idle_'')' AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM per_rank
-- An interval without GPU activity does not show how the GPU is used.
WHERE saving_ns < judged_ns
