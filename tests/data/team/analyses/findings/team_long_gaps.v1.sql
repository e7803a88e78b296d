-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- name     = "team_long_gaps"
-- version  = 1
-- summary  = "Detects GPU idle time in gaps longer than 1 ms."
-- requires = ["analyzed_segments@1"]
-- needs    = ["gpu"]
-- params   = { warning_share = { default = 0.05 }, critical_share = { default = 0.2 } }
-- changes  = { 1 = "First version." }
-- ///
SELECT
  run_id, rank, steps, analyzed_ns, gap_ns > 1000000 AS matches, cause AS label, segment_ns AS lost_ns,
  after_id AS event_id, step, start_ns AS from_ns, start_ns + segment_ns AS to_ns,
  {subject: 'long gaps', saving_limit: 'all such time', only_largest: FALSE,
   observation: 'Gaps longer than 1 ms take {lost}, most of all with cause {culprit}.',
   advice: 'Ask the runtime team.', evidence: 'idle_intervals', evidence_filter: 'idle_ns > 1000000',
   is_context: FALSE} AS words
FROM analyzed_segments
