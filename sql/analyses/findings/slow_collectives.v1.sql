-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "slow_collectives"
-- version  = 1
-- summary  = "Detects outlier collectives that took far longer than the median of their kind and size."
-- requires = ["collective_arrivals@1", "analyzed_intervals@1"]
-- needs    = ["collectives", "ranks>=2"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.02, unit = "ratio", min = 0, doc = "Warning threshold: lowest share that is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.1, unit = "ratio", min = 0, doc = "Critical threshold." }
-- min_count      = { type = "BIGINT", default = 5, unit = "count", min = 1, doc = "Minimum number of collectives of a kind and size; with fewer the median is not used." }
-- factor         = { type = "DOUBLE", default = 2.0, min = 1, doc = "Outliers take longer than this many times the median." }
-- min_excess_ns  = { type = "BIGINT", default = 100000, unit = "ns", min = 0, doc = "Outliers exceed the median by at least this much." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "Always: collectives. Only synchronizing collectives matched with another rank are analyzed; for others, transfer and wait cannot be separated." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (above the threshold, but the trace has no complete step, so it may not be representative) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Total time of the outliers beyond the median, as a share of analyzed_ns." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "Warning threshold." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Number of outlier collectives." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps analyzed; 0 if there are none." }
-- analyzed_ns     = { type = "BIGINT", unit = "ns", doc = "Analyzed time: the rank's complete steps, or its GPU window if there are none." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Upper bound on the time saved in the analyzed interval: the time of the outliers beyond the median." }
-- saving_limit    = { type = "VARCHAR", doc = "What limits the saving. Savings of different findings overlap and do not add up." }
-- confidence      = { type = "VARCHAR", doc = "Confidence: high, medium or low." }
-- observation     = { type = "VARCHAR", doc = "What was observed, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis that shows the evidence." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "SQL condition that selects the relevant rows; null for all rows." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The outlier that exceeds the median most." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Start of the worst occurrence." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "End of the worst occurrence." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  transfer AS (
    SELECT
      arrival.run_id,
      arrival.rank,
      arrival.event_id,
      arrival.start_ns,
      arrival.dur_ns,
      arrival.transfer_ns,
      analyzed.steps,
      analyzed.analyzed_ns,
      count(*) OVER alike AS alike,
      quantile_disc(arrival.transfer_ns, 0.5) OVER alike AS median_ns
    FROM collective_arrivals AS arrival
    JOIN analyzed_intervals AS analyzed
      ON analyzed.run_id = arrival.run_id
      AND analyzed.rank = arrival.rank
      AND arrival.start_ns >= analyzed.start_ns
      AND arrival.start_ns < analyzed.end_ns
    WHERE arrival.transfer_ns IS NOT NULL
    WINDOW alike AS (
      PARTITION BY arrival.run_id, arrival.rank, arrival.collective, arrival.process_group, arrival.bytes
    )
  ),
  excess AS (
    SELECT
      run_id,
      rank,
      event_id,
      start_ns,
      dur_ns,
      steps,
      analyzed_ns,
      transfer_ns - median_ns AS excess_ns,
      alike >= $min_count AND transfer_ns > $factor * median_ns AND transfer_ns - median_ns >= $min_excess_ns AS counts
    FROM transfer
  ),
  total AS (
    SELECT
      run_id,
      rank,
      any_value(steps) AS steps,
      any_value(analyzed_ns) AS analyzed_ns,
      count(*) FILTER (counts) AS count,
      coalesce(sum(excess_ns) FILTER (counts), 0)::BIGINT AS saving_ns,
      saving_ns / any_value(analyzed_ns) AS share,
      arg_max(event_id, (excess_ns, -start_ns)) FILTER (counts) AS event_id,
      arg_max(start_ns, (excess_ns, -start_ns)) FILTER (counts) AS from_ns,
      arg_max(start_ns + dur_ns, (excess_ns, -start_ns)) FILTER (counts) AS to_ns
    FROM excess
    GROUP BY run_id, rank
  )
SELECT
  run_id,
  rank,
  'collectives' AS subject,
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
  'the time beyond the median of their kind and size; less where it is overlapped with computation' AS saving_limit,
  CASE WHEN steps = 0 THEN 'low' ELSE 'medium' END AS confidence,
  'Some collectives take far longer than others of the same kind, group and size.' AS observation,
  'Check what else uses the links at that time (other jobs, checkpoints, copies), and check link and network health.' AS advice,
  'collective_waits' AS evidence,
  NULL::VARCHAR AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM total
