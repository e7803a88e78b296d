-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "blocking_syncs"
-- version  = 1
-- summary  = "Detects GPU idle time caused by synchronizing calls that block the host."
-- requires = ["analyzed_segments@1", "runtime@1", "events@1"]
-- needs    = ["gpu", "launches"]
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.2 }
--
-- [columns]
-- subject   = { doc = "Always: synchronizing calls." }
-- share     = { doc = "Idle time after synchronizing calls, as a share of analyzed_ns." }
-- count     = { doc = "Number of such idle segments." }
-- culprit   = { doc = "The call, and the operator enclosing it, that most of this time follows." }
-- event_id  = { doc = "The call before the longest such segment." }
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
      segment.step,
      segment.steps,
      segment.analyzed_ns,
      segment.cause = 'sync' AND call.is_sync AS matches
    FROM analyzed_segments AS segment
    LEFT JOIN runtime AS call
      ON call.run_id = segment.run_id AND call.rank = segment.rank AND call.event_id = segment.wait_id
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
      arg_max(wait_id, (segment_ns, -start_ns)) FILTER (matches) AS event_id,
      arg_max(start_ns, (segment_ns, -start_ns)) FILTER (matches) AS from_ns,
      arg_max(step, (segment_ns, -start_ns)) FILTER (matches) AS step,
      from_ns + max(segment_ns) FILTER (matches) AS to_ns
    FROM segment
    GROUP BY run_id, rank
  ),
  labeled AS (
    SELECT
      segment.run_id,
      segment.rank,
      segment.segment_ns,
      segment.matches,
      coalesce(call.name, 'unknown') || coalesce(' under ' || op.name, '') AS label
    FROM segment
    JOIN runtime AS call ON call.run_id = segment.run_id AND call.rank = segment.rank AND call.event_id = segment.wait_id
    LEFT JOIN events AS op ON op.run_id = call.run_id AND op.rank = call.rank AND op.event_id = call.op_id
    WHERE segment.matches
  ),
  part AS (
    SELECT run_id, rank, label, sum(segment_ns)::BIGINT AS part_ns
    FROM labeled
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
  'synchronizing calls' AS subject,
  share >= $warning_share AS is_finding,
  steps > 0 AS is_representative,
  share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'the idle time caused by each call, at most the duration of the call; the wait for a result that the host needs remains' AS saving_limit,
  'high' AS confidence,
  'Synchronizing calls block the host until the GPU is done, and the GPU idles {lost} until the host launches again. The largest part follows ' || coalesce(largest.culprit, 'unknown') || ' ({detail}).' AS observation,
  'Remove .item(), .cpu(), printing and value checks from the step, or run them every N steps; copy results back with non_blocking=True and read them one step later; use stream or event waits instead of device synchronization.' AS advice,
  CASE WHEN steps = 0 THEN 'window_account' ELSE 'step_account' END AS evidence,
  'category = ''idle_sync''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns,
  step,
  largest.culprit,
  largest.part_ns // greatest(steps, 1) AS detail_ns
FROM per_rank
LEFT JOIN largest ON largest.run_id = per_rank.run_id AND largest.rank = per_rank.rank
