-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- scope    = "run"
-- name     = "slow_collectives"
-- version  = 1
-- summary  = "Detects outlier collectives that took far longer than the median of their kind and size."
-- requires = ["collective_arrivals@1", "analyzed_intervals@1"]
-- needs    = ["collectives", "ranks>=2"]
-- excluded_by = ["lost_records", "mixed_attempts", "no_work"]
-- limited_by = ["lost_events", "several_processes", "ranks_missing", "late_start"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = { default = 0.02 }
-- critical_share = { default = 0.1 }
-- min_count      = { type = "BIGINT", default = 5, unit = "count", min = 1, doc = "Minimum number of collectives of a kind and size; with fewer the median is not used." }
-- factor         = { type = "DOUBLE", default = 2.0, min = 1, doc = "Outliers take longer than this many times the median." }
-- min_excess_ns  = { type = "BIGINT", default = 100000, unit = "ns", min = 0, doc = "Outliers exceed the median by at least this much." }
--
-- [columns]
-- subject   = { doc = "Always: collectives. Only synchronizing collectives matched with another rank are analyzed; for others, transfer and wait cannot be separated." }
-- share     = { doc = "Total time of the outliers beyond the median, as a share of analyzed_ns." }
-- count     = { doc = "Number of outlier collectives." }
-- saving_ns = { doc = "Upper bound on the time saved in the analyzed interval: the time of the outliers beyond the median." }
-- culprit   = { doc = "The collective that exceeds the median most." }
-- event_id  = { doc = "The outlier that exceeds the median most." }
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
      arrival.step,
      arrival.collective || coalesce(' in process group ' || arrival.process_group, '') AS label,
      arrival.start_ns,
      arrival.dur_ns,
      arrival.transfer_ns,
      span.steps,
      span.analyzed_ns,
      count(*) OVER same_kind AS peers,
      quantile_disc(arrival.transfer_ns, 0.5) OVER same_kind AS median_ns
    FROM collective_arrivals AS arrival
    JOIN analyzed_intervals AS span USING (run_id, rank)
    WHERE
      arrival.start_ns >= span.start_ns AND arrival.start_ns < span.end_ns
      AND arrival.transfer_ns IS NOT NULL AND arrival.state = 'complete'
    WINDOW same_kind AS (
      PARTITION BY arrival.run_id, arrival.rank, arrival.collective, arrival.process_group, arrival.bytes
    )
  ),
  excess AS (
    SELECT
      run_id,
      rank,
      event_id,
      step,
      label,
      start_ns,
      dur_ns,
      steps,
      analyzed_ns,
      transfer_ns - median_ns AS excess_ns,
      peers >= $min_count AND transfer_ns > $factor * median_ns AND transfer_ns - median_ns >= $min_excess_ns AS matches
    FROM transfer
  ),
  per_rank AS (
    SELECT
      run_id,
      rank,
      any_value(steps) AS steps,
      any_value(analyzed_ns) AS analyzed_ns,
      count(*) FILTER (matches) AS count,
      coalesce(sum(excess_ns) FILTER (matches), 0)::BIGINT AS saving_ns,
      saving_ns / any_value(analyzed_ns) AS share,
      arg_max(event_id, (excess_ns, -start_ns)) FILTER (matches) AS event_id,
      arg_max(step, (excess_ns, -start_ns)) FILTER (matches) AS step,
      arg_max(label, (excess_ns, -start_ns)) FILTER (matches) AS culprit,
      max(excess_ns) FILTER (matches) AS detail_ns,
      arg_max(start_ns, (excess_ns, -start_ns)) FILTER (matches) AS from_ns,
      arg_max(start_ns + dur_ns, (excess_ns, -start_ns)) FILTER (matches) AS to_ns
    FROM excess
    GROUP BY run_id, rank
  )
SELECT
  run_id,
  rank,
  'collectives' AS subject,
  share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'the time beyond the median of their kind and size; less where it is overlapped with computation' AS saving_limit,
  'Some collectives take far longer than others of the same kind, group and size: {lost}. The worst is ' || coalesce(culprit, 'unknown') || '{where}: {worst}, of which {detail} beyond the median.' AS observation,
  'Check what else uses the links at that time (other jobs, checkpoints, copies), and check link and network health.' AS advice,
  'collective_waits' AS evidence,
  'rank = ' || rank AS evidence_filter,
  event_id,
  from_ns,
  to_ns,
  step,
  culprit,
  detail_ns
FROM per_rank
