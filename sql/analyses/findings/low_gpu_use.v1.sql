-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
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
      kind = 'idle' AND coalesce(cause NOT IN ('graph', 'queued', 'outside'), TRUE) AS matches,
      -- In short gaps, as `launch_bound` counts them, the host does not launch fast enough.
      CASE
        WHEN matches AND cause IN ('call', 'latency') AND gap_ns <= $short_gap_ns THEN 'host'
        WHEN matches THEN cause
      END AS label,
      coalesce(label IN ('host', 'sync', 'dataloader', 'startup', 'compilation', 'allocation'), FALSE) AS has_finding
    FROM analyzed_segments
  ),
  idle AS (
    SELECT
      run_id,
      rank,
      coalesce(sum(segment_ns) FILTER (matches), 0) AS idle_ns,
      2 * coalesce(sum(segment_ns) FILTER (has_finding), 0) >= idle_ns AS is_context
    FROM segment
    GROUP BY run_id, rank
    -- An interval without GPU activity does not show how the GPU is used.
    HAVING idle_ns < any_value(analyzed_ns)
  )
SELECT
  run_id,
  rank,
  steps,
  analyzed_ns,
  matches,
  label,
  segment_ns AS lost_ns,
  after_id AS event_id,
  step,
  start_ns AS from_ns,
  start_ns + segment_ns AS to_ns,
  {
    subject: 'GPU',
    saving_limit: 'all idle time, with unchanged kernels',
    observation: 'The GPU is idle {lost}. The largest part, {detail}, is '
    || CASE label
      WHEN 'dataloader' THEN 'waiting for the data loader.'
      WHEN 'sync' THEN 'after calls that block the host.'
      WHEN 'host' THEN 'waiting for the host to launch work.'
      WHEN 'startup' THEN 'during first calls, which load modules or set up libraries.'
      WHEN 'compilation' THEN 'while the host compiles.'
      WHEN 'allocation' THEN 'in calls that allocate or free memory.'
      WHEN 'call' THEN 'inside the calls that launch work: the driver loads modules, waits for a full queue or copies.'
      WHEN 'latency' THEN 'the usual latency of launches.'
      ELSE 'before activities whose launch is missing from the trace.'
    END,
    advice: CASE
      WHEN has_finding THEN 'See the findings about this cause. If the batch is small, a larger one gives each launch more work.'
      ELSE 'Check the longest gap in the trace (tw export trace). If the batch is small, a larger one gives each launch more work.'
    END,
    evidence: CASE WHEN steps = 0 THEN 'window_account' ELSE 'step_account' END,
    evidence_filter: 'starts_with(category, ''idle_'')',
    only_largest: FALSE,
    is_context: is_context
  } AS words
FROM segment
JOIN idle USING (run_id, rank)
