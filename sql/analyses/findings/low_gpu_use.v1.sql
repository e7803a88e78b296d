-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "low_gpu_use"
-- version  = 1
-- summary  = "Detects GPUs that are idle most of the time."
-- requires = ["analyzed_segments@1"]
-- needs    = ["gpu"]
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0.5 }
-- critical_share = { default = 0.8 }
-- short_gap_ns   = { type = "BIGINT", default = 100000, unit = "ns", min = 0, doc = "In gaps up to this duration, the launching call and usual latency count as the host." }
--
-- [columns]
-- subject   = { doc = "Always: GPU. Ranks without GPU activity in their complete steps have no row." }
-- severity  = { doc = "critical, warning, info (most of it has causes that other rules name: the host, blocking calls, first calls or the data loader) or none." }
-- share     = { doc = "Idle time as a share of analyzed_ns, without time in which the GPU may have worked on what was not recorded: inside graph launches, while work was queued, and before the first and after the last activity." }
-- count     = { doc = "Number of idle segments, split where the cause changes." }
-- culprit   = { doc = "The idle cause with the largest share." }
-- event_id  = { doc = "The GPU activity that ends the gap with the longest idle segment of one cause; null before the first and after the last activity." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT
      run_id,
      rank,
      start_ns,
      segment_ns,
      after_id,
      step,
      steps,
      analyzed_ns,
      -- In short gaps, as `launch_bound` counts them, the host does not launch fast enough.
      CASE WHEN cause IN ('call', 'latency') AND gap_ns <= $short_gap_ns THEN 'host' ELSE cause END AS label,
      kind = 'idle' AND coalesce(cause NOT IN ('graph', 'queued', 'outside'), TRUE) AS matches
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
      2 * coalesce(sum(segment_ns) FILTER (label IN ('host', 'sync', 'dataloader', 'startup', 'compilation', 'allocation')), 0) >= saving_ns AS is_context,
      from_ns + max(segment_ns) FILTER (matches) AS to_ns
    FROM segment
    GROUP BY run_id, rank
  ),
  part AS (
    SELECT run_id, rank, label, sum(segment_ns)::BIGINT AS part_ns
    FROM segment
    WHERE matches
    GROUP BY run_id, rank, label
  ),
  largest AS (
    SELECT run_id, rank, arg_max(label, (part_ns, label)) AS culprit, max(part_ns) AS part_ns
    FROM part
    GROUP BY run_id, rank
  )
SELECT
  per_rank.run_id,
  per_rank.rank,
  'GPU' AS subject,
  share >= $warning_share AS is_finding,
  steps > 0 AS is_representative,
  share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'all idle time, with unchanged kernels' AS saving_limit,
  'The GPU is idle {lost}. The largest part, {detail}, is '
  || CASE largest.culprit
    WHEN 'dataloader' THEN 'waiting for the data loader.'
    WHEN 'sync' THEN 'after calls that block the host.'
    WHEN 'host' THEN 'waiting for the host to launch work.'
    WHEN 'startup' THEN 'during first calls, which load modules or set up libraries.'
    WHEN 'compilation' THEN 'while the host compiles.'
    WHEN 'allocation' THEN 'in calls that allocate or free memory.'
    WHEN 'call' THEN 'inside the calls that launch work: the driver loads modules, waits for a full queue or copies.'
    WHEN 'latency' THEN 'the usual latency of launches.'
    ELSE 'before activities whose launch is missing from the trace.'
  END AS observation,
  CASE
    WHEN largest.culprit IN ('dataloader', 'sync', 'host', 'startup', 'compilation', 'allocation') THEN 'See the findings about this cause. If the batch is small, a larger one gives each launch more work.'
    ELSE 'Check the longest gap in the trace (tw export trace). If the batch is small, a larger one gives each launch more work.'
  END AS advice,
  CASE WHEN steps = 0 THEN 'window_account' ELSE 'step_account' END AS evidence,
  'starts_with(category, ''idle_'')' AS evidence_filter,
  event_id,
  from_ns,
  to_ns,
  is_context,
  step,
  largest.culprit,
  largest.part_ns // greatest(steps, 1) AS detail_ns
FROM per_rank
LEFT JOIN largest USING (run_id, rank)
-- An interval without GPU activity does not show how the GPU is used.
WHERE saving_ns < analyzed_ns
