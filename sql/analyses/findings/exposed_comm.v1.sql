-- /// tw
-- kind     = "analysis"
-- name     = "exposed_comm"
-- version  = 1
-- summary  = "Detects a large share of exposed communication."
-- requires = ["analyzed_segments@1"]
-- needs    = ["gpu", "collectives"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.1, unit = "ratio", min = 0, doc = "Warning threshold: lowest share that is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.3, unit = "ratio", min = 0, doc = "Critical threshold." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "Always: communication." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (above the threshold, but the trace has no complete step, so it may not be representative) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Exposed communication as a share of analyzed_ns." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "Warning threshold." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Number of segments of exposed communication." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps analyzed; 0 if there are none." }
-- analyzed_ns     = { type = "BIGINT", unit = "ns", doc = "Analyzed time: the rank's complete steps, or its GPU window if there are none." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Upper bound on the time saved in the analyzed interval: all such time." }
-- saving_limit    = { type = "VARCHAR", doc = "What limits the saving. Savings of different findings overlap and do not add up." }
-- confidence      = { type = "VARCHAR", doc = "Confidence: high, medium or low." }
-- observation     = { type = "VARCHAR", doc = "What was observed, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis that shows the evidence." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "SQL condition that selects the relevant rows; null for all rows." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The communication activity with the longest exposed segment." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Start of the worst occurrence." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "End of the worst occurrence." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT run_id, rank, start_ns, segment_ns, kernel_id, steps, analyzed_ns, kind = 'communication' AS counts
    FROM analyzed_segments
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
      arg_max(kernel_id, (segment_ns, -start_ns)) FILTER (counts) AS event_id,
      arg_max(start_ns, (segment_ns, -start_ns)) FILTER (counts) AS from_ns,
      from_ns + max(segment_ns) FILTER (counts) AS to_ns
    FROM segment
    GROUP BY run_id, rank
  )
SELECT
  run_id,
  rank,
  'communication' AS subject,
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
  'all exposed communication; part of it may be waiting for stragglers, which a faster network does not reduce' AS saving_limit,
  CASE WHEN steps = 0 THEN 'low' ELSE 'high' END AS confidence,
  'Communication is not overlapped with computation.' AS observation,
  'First check whether the ranks wait for a straggler (analysis stragglers). Otherwise overlap communication with computation (larger or earlier buckets, prefetching of shards), send less (gradient accumulation, compression, lower precision), or keep it on the fast links.' AS advice,
  'comm_by_group' AS evidence,
  NULL::VARCHAR AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM total
