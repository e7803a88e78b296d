-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- name     = "recompilation"
-- version  = 1
-- summary  = "Detects GPU idle time while the host compiles after the second step."
-- requires = ["analyzed_segments@1", "events@1"]
-- needs    = ["gpu", "launches"]
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.2 }
--
-- [columns]
-- subject   = { doc = "Always: compilation." }
-- share     = { doc = "Idle time during compilation (`host_stalls`) after the second step, as a share of analyzed_ns." }
-- count     = { doc = "Number of such idle segments." }
-- culprit   = { doc = "The slice that compiles, with most of this time." }
-- event_id  = { doc = "The slice of the longest such segment." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  segment.run_id,
  segment.rank,
  segment.steps,
  segment.analyzed_ns,
  coalesce(segment.cause = 'compilation', FALSE) AS matches,
  coalesce(slice.name, 'unknown') AS label,
  segment.segment_ns AS lost_ns,
  segment.wait_id AS event_id,
  segment.step,
  segment.start_ns AS from_ns,
  segment.start_ns + segment.segment_ns AS to_ns,
  {
    subject: 'compilation',
    saving_limit: 'the idle time during compilation in the recorded steps',
    observation: 'The host compiles after the second step, and the GPU idles {lost} meanwhile. The largest part is {culprit} ({detail}).',
    advice: 'Find out what recompiles (TORCH_LOGS=recompiles): mark changing sizes as dynamic (torch.compile with dynamic=True, mark_dynamic), pad inputs to a few sizes, and keep Python values that change out of the compiled function.',
    evidence: 'idle_intervals',
    evidence_filter: NULL::VARCHAR,
    only_largest: FALSE,
    is_context: FALSE
  } AS words
FROM analyzed_segments AS segment
LEFT JOIN events AS slice
  ON slice.run_id = segment.run_id AND slice.rank = segment.rank AND slice.event_id = segment.wait_id
