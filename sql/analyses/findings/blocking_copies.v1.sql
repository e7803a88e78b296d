-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- name     = "blocking_copies"
-- version  = 1
-- summary  = "Detects GPU idle time caused by copies that block the host."
-- requires = ["analyzed_segments@1", "runtime@1", "events@1"]
-- needs    = ["gpu", "launches"]
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.2 }
--
-- [columns]
-- subject   = { doc = "Always: copies." }
-- share     = { doc = "Idle time after copies that block the host, as a share of analyzed_ns." }
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
  segment.cause = 'sync' AND NOT call.is_sync AS matches,
  coalesce(call.name, 'unknown') || coalesce(' under ' || op.name, '') AS label,
  segment.segment_ns AS lost_ns,
  segment.wait_id AS event_id,
  segment.step,
  segment.start_ns AS from_ns,
  segment.start_ns + segment.segment_ns AS to_ns,
  {
    subject: 'copies',
    saving_limit: 'the idle time caused by each copy, at most the duration of its call',
    observation: 'Synchronous copies block the host, and the GPU idles {lost} until it launches again. The largest part follows {culprit} ({detail}).',
    advice: 'Copy from and to pinned memory with non_blocking=True, on a separate stream, and prefetch.',
    evidence: CASE WHEN steps = 0 THEN 'window_account' ELSE 'step_account' END,
    evidence_filter: 'category = ''idle_sync''',
    only_largest: FALSE,
    is_context: FALSE
  } AS words
FROM analyzed_segments AS segment
LEFT JOIN runtime AS call
  ON call.run_id = segment.run_id AND call.rank = segment.rank AND call.event_id = segment.wait_id
LEFT JOIN events AS op ON op.run_id = call.run_id AND op.rank = call.rank AND op.event_id = call.op_id
