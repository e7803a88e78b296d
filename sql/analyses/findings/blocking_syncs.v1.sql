-- /// tw
-- kind     = "analysis"
-- name     = "blocking_syncs"
-- version  = 1
-- summary  = "Detects GPU idle time caused by synchronizing calls that block the host."
-- requires = ["analyzed_segments@1", "runtime@1"]
-- needs    = ["gpu", "launches"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.05, unit = "ratio", min = 0, doc = "Warning threshold: lowest share that is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.2, unit = "ratio", min = 0, doc = "Critical threshold." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "Always: synchronizing calls." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (above the threshold, but the trace has no complete step, so it may not be representative) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Idle time after synchronizing calls, as a share of analyzed_ns." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "Warning threshold." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Number of such idle segments." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps analyzed; 0 if there are none." }
-- analyzed_ns     = { type = "BIGINT", unit = "ns", doc = "Analyzed time: the rank's complete steps, or its GPU window if there are none." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Upper bound on the time saved in the analyzed interval: all such time." }
-- saving_limit    = { type = "VARCHAR", doc = "What limits the saving. Savings of different findings overlap and do not add up." }
-- confidence      = { type = "VARCHAR", doc = "Confidence: high, medium or low." }
-- observation     = { type = "VARCHAR", doc = "What was observed, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis that shows the evidence." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "SQL condition that selects the relevant rows; null for all rows." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The call before the longest such segment." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Start of the worst occurrence." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "End of the worst occurrence." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT
      segment.run_id,
      segment.rank,
      segment.start_ns,
      segment.segment_ns,
      segment.wait_id,
      segment.steps,
      segment.analyzed_ns,
      segment.cause = 'sync' AND call.is_sync AS counts
    FROM analyzed_segments AS segment
    LEFT JOIN runtime AS call
      ON call.run_id = segment.run_id AND call.rank = segment.rank AND call.event_id = segment.wait_id
  ),
  total AS (
    SELECT
      run_id,
      rank,
      any_value(steps) AS steps,
      any_value(analyzed_ns) AS analyzed_ns,
      count(*) FILTER (counts) AS count,
      coalesce(sum(segment_ns) FILTER (counts), 0)::BIGINT AS saving_ns,
      saving_ns / any_value(analyzed_ns) AS share,
      arg_max(wait_id, (segment_ns, -start_ns)) FILTER (counts) AS event_id,
      arg_max(start_ns, (segment_ns, -start_ns)) FILTER (counts) AS from_ns,
      from_ns + max(segment_ns) FILTER (counts) AS to_ns
    FROM segment
    GROUP BY run_id, rank
  )
SELECT
  run_id,
  rank,
  'synchronizing calls' AS subject,
  CASE
    WHEN share < $warning_share THEN 'none'
    WHEN steps = 0 THEN 'info'
    WHEN share < $critical_share THEN 'warning'
    ELSE 'critical'
  END AS severity,
  share,
  $warning_share AS threshold,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'the idle time caused by each call, at most the duration of the call; the wait for a result that the host needs remains' AS saving_limit,
  CASE WHEN steps = 0 THEN 'low' ELSE 'high' END AS confidence,
  'Synchronizing calls block the host until the GPU is done; the GPU then waits for the host.' AS observation,
  'Remove .item(), .cpu(), printing and value checks from the step, or run them every N steps; copy results back with non_blocking=True and read them one step later; use stream or event waits instead of device synchronization.' AS advice,
  CASE WHEN steps = 0 THEN 'window_account' ELSE 'step_account' END AS evidence,
  'category = ''idle_sync''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM total
