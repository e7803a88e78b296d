-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- name     = "blocking_syncs"
-- version  = 1
-- summary  = "Detects GPU idle time caused by synchronizing calls that block the host."
-- requires = ["analyzed_segments@1", "runtime@1", "events@1"]
-- needs    = ["gpu", "launches"]
-- confidence = "high"
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
SELECT
  segment.run_id,
  segment.rank,
  segment.steps,
  segment.analyzed_ns,
  segment.cause = 'sync' AND call.is_sync AS matches,
  coalesce(call.name, 'unknown') || coalesce(' under ' || op.name, '') AS label,
  segment.segment_ns AS lost_ns,
  segment.wait_id AS event_id,
  segment.step,
  segment.start_ns AS from_ns,
  segment.start_ns + segment.segment_ns AS to_ns,
  {
    subject: 'synchronizing calls',
    saving_limit: 'the idle time caused by each call, at most the duration of the call; the wait for a result that the host needs remains',
    observation: 'Synchronizing calls block the host until the GPU is done, and the GPU idles {lost} until the host launches again. The largest part follows {culprit} ({detail}).',
    advice: 'Remove .item(), .cpu(), printing and value checks from the step, or run them every N steps; copy results back with non_blocking=True and read them one step later; use stream or event waits instead of device synchronization.',
    evidence: CASE WHEN steps = 0 THEN 'window_account' ELSE 'step_account' END,
    evidence_filter: 'category = ''idle_sync''',
    only_largest: FALSE,
    is_context: FALSE
  } AS words
FROM analyzed_segments AS segment
LEFT JOIN runtime AS call
  ON call.run_id = segment.run_id AND call.rank = segment.rank AND call.event_id = segment.wait_id
LEFT JOIN events AS op ON op.run_id = call.run_id AND op.rank = call.rank AND op.event_id = call.op_id
