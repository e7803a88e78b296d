-- /// tw
-- kind     = "analysis"
-- name     = "launch_bound"
-- version  = 1
-- summary  = "Detects short GPU idle gaps because the host cannot launch kernels fast enough (launch-bound)."
-- requires = ["analyzed_segments@1", "ranks@1"]
-- needs    = ["gpu", "launches"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.1, unit = "ratio", min = 0, doc = "Warning threshold: lowest share that is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.3, unit = "ratio", min = 0, doc = "Critical threshold." }
-- short_gap_ns   = { type = "BIGINT", default = 100000, unit = "ns", min = 0, doc = "Gaps up to this duration are short: the host was busy launching." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "Always: launches." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (above the threshold, but the trace has no complete step, so it may not be representative) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Idle time in short gaps before activities that were launched late, as a share of analyzed_ns." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "Warning threshold." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Number of such gaps." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps analyzed; 0 if there are none." }
-- analyzed_ns     = { type = "BIGINT", unit = "ns", doc = "Analyzed time: the rank's complete steps, or its GPU window if there are none." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Upper bound on the time saved in the analyzed interval: all such time." }
-- saving_limit    = { type = "VARCHAR", doc = "What limits the saving. Savings of different findings overlap and do not add up." }
-- confidence      = { type = "VARCHAR", doc = "Confidence: high, medium or low." }
-- observation     = { type = "VARCHAR", doc = "What was observed, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis that shows the evidence." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "SQL condition that selects the relevant rows; null for all rows." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The GPU activity that ends the longest such gap." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Start of the worst occurrence." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "End of the worst occurrence." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT run_id, rank, start_ns, segment_ns, after_id, steps, analyzed_ns, cause = 'host' AND gap_ns <= $short_gap_ns AS counts
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
      arg_max(after_id, (segment_ns, -start_ns)) FILTER (counts) AS event_id,
      arg_max(start_ns, (segment_ns, -start_ns)) FILTER (counts) AS from_ns,
      from_ns + max(segment_ns) FILTER (counts) AS to_ns
    FROM segment
    GROUP BY run_id, rank
  )
SELECT
  total.run_id,
  total.rank,
  'launches' AS subject,
  CASE
    WHEN share < $warning_share THEN 'none'
    WHEN total.steps = 0 THEN 'info'
    WHEN share < $critical_share THEN 'warning'
    ELSE 'critical'
  END AS severity,
  share,
  $warning_share AS threshold,
  count,
  total.steps,
  analyzed_ns,
  saving_ns,
  'the idle time in these gaps, with zero launch overhead' AS saving_limit,
  CASE WHEN total.steps = 0 OR ranks.stacks THEN 'low' ELSE 'medium' END AS confidence,
  'Kernels finish before the host launches the next one (launch-bound).' AS observation,
  'Use CUDA graphs, fuse small kernels (torch.compile, fused or foreach optimizers), or give each kernel more work with a larger batch.' AS advice,
  'idle_intervals' AS evidence,
  'cause = ''host_wait''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM total
JOIN ranks ON ranks.run_id = total.run_id AND ranks.rank = total.rank
