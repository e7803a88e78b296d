-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "exposed_comm"
-- version  = 1
-- summary  = "Detects a large share of exposed communication."
-- requires = ["analyzed_segments@1"]
-- needs    = ["gpu", "collectives"]
--
-- [params]
-- warning_share  = { default = 0.1 }
-- critical_share = { default = 0.3 }
--
-- [columns]
-- subject   = { doc = "Always: communication." }
-- share     = { doc = "Exposed communication as a share of analyzed_ns." }
-- count     = { doc = "Number of segments of exposed communication." }
-- event_id  = { doc = "The communication activity with the longest exposed segment." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT run_id, rank, start_ns, segment_ns, kernel_id, steps, analyzed_ns, kind = 'communication' AS matches
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
      arg_max(kernel_id, (segment_ns, -start_ns)) FILTER (matches) AS event_id,
      arg_max(start_ns, (segment_ns, -start_ns)) FILTER (matches) AS from_ns,
      from_ns + max(segment_ns) FILTER (matches) AS to_ns
    FROM segment
    GROUP BY run_id, rank
  )
SELECT
  run_id,
  rank,
  'communication' AS subject,
  share >= $warning_share AS is_finding,
  steps > 0 AS is_representative,
  share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'all exposed communication; part of it may be waiting for stragglers, which a faster network does not reduce' AS saving_limit,
  'high' AS confidence,
  'Communication is not overlapped with computation.' AS observation,
  'First check whether the ranks wait for a straggler (analysis stragglers). Otherwise overlap communication with computation (larger or earlier buckets, prefetching of shards), send less (gradient accumulation, compression, lower precision), or keep it on the fast links.' AS advice,
  'comm_by_group' AS evidence,
  NULL::VARCHAR AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM per_rank
