-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "slow_collectives"
-- version  = 1
-- summary  = "Whether single collectives took far longer than the usual one of their kind and size."
-- requires = ["collective_arrivals@1", "judged_spans@1"]
-- needs    = ["collectives", "ranks>=2"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.02, unit = "ratio", min = 0, doc = "A share from here on is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.1, unit = "ratio", min = 0, doc = "From here on it is critical." }
-- min_count      = { type = "BIGINT", default = 5, unit = "count", min = 1, doc = "Fewer collectives of a kind and size tell no usual length." }
-- factor         = { type = "DOUBLE", default = 2.0, min = 1, doc = "Longer than this many times the median is too long." }
-- min_excess_ns  = { type = "BIGINT", default = 100000, unit = "ns", min = 0, doc = "By less than this over the median none is too long." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "Always: collectives. Only those are judged that wait for all ranks and are matched with another rank: of others it cannot be told what was transfer and what was wait." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (over the threshold, but the trace has no complete step, so it may not show the usual) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "What they took beyond the median, added up, over judged_ns." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "From this share on it is a finding." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Collectives that took too long." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps by which the rank is judged; 0 where it has none." }
-- judged_ns       = { type = "BIGINT", unit = "ns", doc = "How long the stretch is by which the rank is judged: its complete steps, else its GPU rows from first to last." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "At most this can be saved in the stretch: what these took beyond the median." }
-- bound           = { type = "VARCHAR", doc = "Why it cannot be more. Savings of several findings do not add up." }
-- confidence      = { type = "VARCHAR", doc = "high, medium or low: how far the trace can tell that it is so." }
-- seen            = { type = "VARCHAR", doc = "What is seen, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis whose rows show it." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "Which of its rows, as a condition in SQL; null for all." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The one that took longest beyond the median." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Where the worst instance begins." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Where it ends." }
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
      span.steps,
      span.judged_ns,
      count(*) OVER alike AS alike,
      quantile_disc(arrival.transfer_ns, 0.5) OVER alike AS median_ns
    FROM collective_arrivals AS arrival
    JOIN judged_spans AS span
      ON span.run_id = arrival.run_id
      AND span.rank = arrival.rank
      AND arrival.start_ns >= span.start_ns
      AND arrival.start_ns < span.end_ns
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
      judged_ns,
      transfer_ns - median_ns AS excess_ns,
      alike >= $min_count AND transfer_ns > $factor * median_ns AND transfer_ns - median_ns >= $min_excess_ns AS counts
    FROM transfer
  ),
  spent AS (
    SELECT
      run_id,
      rank,
      any_value(steps) AS steps,
      any_value(judged_ns) AS judged_ns,
      count(*) FILTER (counts) AS count,
      coalesce(sum(excess_ns) FILTER (counts), 0)::BIGINT AS saving_ns,
      saving_ns / any_value(judged_ns) AS share,
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
  judged_ns,
  saving_ns,
  'what they took beyond the median of their kind and size; less where computation hides them' AS bound,
  CASE WHEN steps = 0 THEN 'low' ELSE 'medium' END AS confidence,
  'Some collectives take far longer than others of the same kind, group and size.' AS seen,
  'Look at what else uses the links then (other jobs, checkpoints, copies), and at the health of links and network.' AS advice,
  'collective_waits' AS evidence,
  NULL::VARCHAR AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM spent
