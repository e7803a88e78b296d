-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- name     = "pageable_copies"
-- version  = 1
-- summary  = "Detects exposed copies from or to pageable memory."
-- requires = ["analyzed_segments@1", "kernels@1", "events@1"]
-- needs    = ["gpu"]
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.2 }
--
-- [columns]
-- subject   = { doc = "Always: copies of pageable memory. Ranks whose copies do not record the memory type have no row." }
-- share     = { doc = "Time with such a copy running, and neither computation nor communication, as a share of analyzed_ns." }
-- count     = { doc = "Number of such segments." }
-- culprit   = { doc = "The copy, and the operator enclosing its launch, with most of this time." }
-- event_id  = { doc = "The copy with the longest exposed segment." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  recorded AS (
    SELECT DISTINCT run_id, rank
    FROM kernels
    WHERE activity = 'memcpy' AND regexp_matches(name, '(?i)pageable|pinned')
  )
SELECT
  segment.run_id,
  segment.rank,
  segment.steps,
  segment.analyzed_ns,
  regexp_matches(copy.name, '(?i)pageable') AS matches,
  copy.name || coalesce(' under ' || op.name, '') AS label,
  segment.segment_ns AS lost_ns,
  segment.kernel_id AS event_id,
  segment.step,
  segment.start_ns AS from_ns,
  segment.start_ns + segment.segment_ns AS to_ns,
  {
    subject: 'copies of pageable memory',
    saving_limit: 'the time in which only these copies run; copies of pinned memory are faster and can overlap with computation',
    observation: 'Copies from or to pageable memory, which are staged through a driver buffer and block the host, are exposed for {lost}. The largest part is {culprit} ({detail}).',
    advice: 'Pin the memory (DataLoader with pin_memory=True, tensor.pin_memory()) and copy with non_blocking=True.',
    evidence: 'memory_bandwidth_summary',
    evidence_filter: 'direction IN (''HtoD'', ''DtoH'')',
    only_largest: FALSE,
    is_context: FALSE
  } AS words
FROM analyzed_segments AS segment
SEMI JOIN recorded USING (run_id, rank)
LEFT JOIN kernels AS copy
  ON copy.run_id = segment.run_id AND copy.rank = segment.rank AND copy.event_id = segment.kernel_id
LEFT JOIN events AS op ON op.run_id = copy.run_id AND op.rank = copy.rank AND op.event_id = copy.op_id
