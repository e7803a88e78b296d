-- /// tw
-- kind     = "analysis"
-- name     = "pageable_copies"
-- version  = 1
-- summary  = "Detects exposed copies from or to pageable memory."
-- requires = ["analyzed_segments@1", "kernels@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.02, unit = "ratio", min = 0, doc = "Warning threshold: lowest share that is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.1, unit = "ratio", min = 0, doc = "Critical threshold." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "Always: copies of pageable memory. Ranks whose copies do not record the memory type have no row." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (above the threshold, but the trace has no complete step, so it may not be representative) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Time with such a copy running, and neither computation nor communication, as a share of analyzed_ns." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "Warning threshold." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Number of such segments." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps analyzed; 0 if there are none." }
-- analyzed_ns     = { type = "BIGINT", unit = "ns", doc = "Analyzed time: the rank's complete steps, or its GPU window if there are none." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Upper bound on the time saved in the analyzed interval: all such time." }
-- saving_limit    = { type = "VARCHAR", doc = "What limits the saving. Savings of different findings overlap and do not add up." }
-- confidence      = { type = "VARCHAR", doc = "Confidence: high, medium or low." }
-- observation     = { type = "VARCHAR", doc = "What was observed, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis that shows the evidence." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "SQL condition that selects the relevant rows; null for all rows." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The copy with the longest exposed segment." }
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
      segment.kernel_id,
      segment.steps,
      segment.analyzed_ns,
      regexp_matches(copy.name, '(?i)pageable') AS counts
    FROM analyzed_segments AS segment
    LEFT JOIN kernels AS copy
      ON copy.run_id = segment.run_id AND copy.rank = segment.rank AND copy.event_id = segment.kernel_id
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
  ),
  labeled AS (
    SELECT DISTINCT run_id, rank
    FROM kernels
    WHERE activity = 'memcpy' AND regexp_matches(name, '(?i)pageable|pinned')
  )
SELECT
  run_id,
  rank,
  'copies of pageable memory' AS subject,
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
  'the time in which only these copies run; copies of pinned memory are faster and can overlap with computation' AS saving_limit,
  CASE WHEN steps = 0 THEN 'low' ELSE 'high' END AS confidence,
  'Copies from or to pageable memory are exposed: they are staged through a driver buffer and block the host.' AS observation,
  'Pin the memory (DataLoader with pin_memory=True, tensor.pin_memory()) and copy with non_blocking=True.' AS advice,
  'memory_bandwidth_summary' AS evidence,
  'direction IN (''HtoD'', ''DtoH'')' AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM total
SEMI JOIN labeled ON labeled.run_id = total.run_id AND labeled.rank = total.rank
