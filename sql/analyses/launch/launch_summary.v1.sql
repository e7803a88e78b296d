-- /// tw
-- kind     = "analysis"
-- name     = "launch_summary"
-- version  = 1
-- summary  = "Launch statistics by host function: counts, short kernels, slow calls, long delays."
-- requires = ["call_rules@1", "correlations@1", "kernels@1", "runtime@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device", "state", "api"]
-- per      = "window"
-- order    = ["run_id", "rank", "device", "-launches", "-gpu_activities", "state", "api"]
--
-- [params]
-- runtime_cutoff_ns = { type = "BIGINT", default = 50000, min = 0, unit = "ns", doc = "Calls longer than this are outliers; kernels count as short only under calls that are not." }
-- delay_cutoff_ns   = { type = "BIGINT", default = 100000, min = 0, unit = "ns", doc = "Activities that start later than this after their call returned are outliers." }
--
-- [columns]
-- run_id           = { type = "VARCHAR", doc = "The run." }
-- rank             = { type = "INTEGER", doc = "The rank." }
-- device           = { type = "BIGINT", unit = "id", signed = true, null = true, doc = "The device of the GPU activities, -1 if unknown; null for calls without GPU activity." }
-- state            = { type = "VARCHAR", doc = "known; before_window and missing: GPU activities without a known launch, as in kernels; no_gpu_activity: launch calls, by name, without a GPU activity; shared_id: such calls that share their correlation ID with another launch, usually a driver call inside it." }
-- api              = { type = "VARCHAR", null = true, doc = "Name of the host function; null for GPU activities without a known launch." }
-- recognized       = { type = "BOOLEAN", null = true, doc = "True if call_rules recognizes the function as a launch; null without a call." }
-- launches         = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "Calls; a call with GPU activities on two devices counts on both." }
-- gpu_activities   = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "GPU activities; known, before_window and missing together are all activities of the device." }
-- short_kernels    = { type = "BIGINT", unit = "count", aggregate = "sum", better = "lower", doc = "Calls of at most runtime_cutoff_ns that took longer than their GPU activities (for a graph launch, all of them together)." }
-- runtime_outliers = { type = "BIGINT", unit = "count", aggregate = "sum", better = "lower", doc = "Calls longer than runtime_cutoff_ns." }
-- delay_outliers   = { type = "BIGINT", unit = "count", aggregate = "sum", better = "lower", doc = "Calls whose first GPU activity started more than delay_cutoff_ns after the call returned, including time in the queue." }
-- call_ns          = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Sum of call durations." }
-- gpu_ns           = { type = "BIGINT", unit = "ns", aggregate = "sum", doc = "Sum of GPU activity durations (overlaps counted multiple times)." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  recognized_name AS (
    SELECT DISTINCT call.name
    FROM (SELECT DISTINCT name FROM runtime) AS call
    JOIN call_rules ON call_rules.action = 'launch' AND regexp_matches(call.name, call_rules.pattern)
  ),
  launch AS (
    -- A call with its GPU activities on one device; activities without a call form one group, not a launch.
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.device,
      kernels.launch_state AS state,
      correlations.runtime_id,
      count(*) AS gpu_activities,
      sum(kernels.dur_ns)::BIGINT AS gpu_ns,
      min(correlations.return_to_start_ns) AS delay_ns
    FROM kernels
    LEFT JOIN correlations
      ON correlations.run_id = kernels.run_id
      AND correlations.rank = kernels.rank
      AND correlations.kernel_id = kernels.event_id
    GROUP BY kernels.run_id, kernels.rank, kernels.device, kernels.launch_state, correlations.runtime_id
  ),
  launched_id AS (
    SELECT DISTINCT run_id, rank, correlation
    FROM kernels
    WHERE correlation > 0
  ),
  lone_call AS (
    SELECT
      runtime.run_id,
      runtime.rank,
      NULL::BIGINT AS device,
      CASE WHEN launched_id.correlation IS NULL THEN 'no_gpu_activity' ELSE 'shared_id' END AS state,
      runtime.event_id AS runtime_id,
      0 AS gpu_activities,
      0 AS gpu_ns,
      NULL::BIGINT AS delay_ns
    FROM runtime
    SEMI JOIN recognized_name USING (name)
    ANTI JOIN correlations
      ON correlations.run_id = runtime.run_id
      AND correlations.rank = runtime.rank
      AND correlations.runtime_id = runtime.event_id
    LEFT JOIN launched_id USING (run_id, rank, correlation)
  ),
  every AS (
    SELECT run_id, rank, device, state, runtime_id, gpu_activities, gpu_ns, delay_ns
    FROM launch
    UNION ALL
    SELECT run_id, rank, device, state, runtime_id, gpu_activities, gpu_ns, delay_ns
    FROM lone_call
  ),
  called AS (
    SELECT
      every.run_id,
      every.rank,
      every.device,
      every.state,
      runtime.name AS api,
      every.runtime_id,
      CASE WHEN every.runtime_id IS NOT NULL THEN recognized_name.name IS NOT NULL END AS recognized,
      runtime.dur_ns AS call_ns,
      every.gpu_activities,
      every.gpu_ns,
      every.delay_ns
    FROM every
    LEFT JOIN runtime
      ON runtime.run_id = every.run_id AND runtime.rank = every.rank AND runtime.event_id = every.runtime_id
    LEFT JOIN recognized_name ON recognized_name.name = runtime.name
  )
SELECT
  run_id,
  rank,
  device,
  state,
  api,
  recognized,
  count(runtime_id) AS launches,
  sum(gpu_activities)::BIGINT AS gpu_activities,
  count(*) FILTER (call_ns <= $runtime_cutoff_ns AND gpu_activities > 0 AND gpu_ns < call_ns) AS short_kernels,
  count(*) FILTER (call_ns > $runtime_cutoff_ns) AS runtime_outliers,
  count(*) FILTER (delay_ns > $delay_cutoff_ns) AS delay_outliers,
  coalesce(sum(call_ns), 0)::BIGINT AS call_ns,
  sum(gpu_ns)::BIGINT AS gpu_ns
FROM called
GROUP BY run_id, rank, device, state, api, recognized
