-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "slow_rank"
-- version  = 1
-- summary  = "Detects stragglers: ranks that the other ranks wait for at collectives."
-- requires = ["collective_arrivals@1", "analyzed_intervals@1"]
-- needs    = ["collectives", "ranks>=2"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.05, unit = "ratio", min = 0, doc = "Warning threshold: lowest share that is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.2, unit = "ratio", min = 0, doc = "Critical threshold." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "Always: collectives." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (above the threshold, but the trace has no complete step, so it may not be representative) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Longest total wait of another rank for this one, as a share of analyzed_ns of that rank." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "Warning threshold." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Collectives at which this rank arrived last and another rank waited." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps analyzed; 0 if there are none." }
-- analyzed_ns     = { type = "BIGINT", unit = "ns", doc = "Analyzed time of the rank that waited longest for this one; its own if none waited." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Upper bound on the time saved in the analyzed interval: the wait of the rank that waited longest for this one." }
-- saving_limit    = { type = "VARCHAR", doc = "What limits the saving. Savings of different findings overlap and do not add up." }
-- confidence      = { type = "VARCHAR", doc = "Confidence: high, medium or low." }
-- observation     = { type = "VARCHAR", doc = "What was observed, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis that shows the evidence." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "SQL condition that selects the relevant rows; null for all rows." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "This rank's collective at which the others waited longest in total." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Start of the worst occurrence." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "End of the worst occurrence." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  wait AS (
    SELECT
      arrival.run_id,
      arrival.rank,
      arrival.event_id,
      arrival.straggler_rank,
      arrival.instance_id,
      arrival.start_ns,
      arrival.dur_ns,
      arrival.start_ns + arrival.wait_ns AS end_ns,
      arrival.wait_ns,
      analyzed.steps,
      analyzed.analyzed_ns,
      -- Latest end of earlier waits for that rank: time up to here is already counted.
      coalesce(max(arrival.start_ns + arrival.wait_ns) OVER earlier, arrival.start_ns) AS counted_ns
    FROM collective_arrivals AS arrival
    JOIN analyzed_intervals AS analyzed
      ON analyzed.run_id = arrival.run_id
      AND analyzed.rank = arrival.rank
      AND arrival.start_ns >= analyzed.start_ns
      AND arrival.start_ns < analyzed.end_ns
    WHERE arrival.wait_ns IS NOT NULL
    WINDOW earlier AS (
      PARTITION BY arrival.run_id, arrival.rank, arrival.straggler_rank
      ORDER BY arrival.start_ns, arrival.event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  ),
  pair AS (
    SELECT
      run_id,
      rank AS waiter,
      straggler_rank,
      any_value(analyzed_ns) AS analyzed_ns,
      sum(greatest(end_ns - greatest(start_ns, counted_ns), 0))::BIGINT AS waited_ns
    FROM wait
    GROUP BY run_id, rank, straggler_rank
  ),
  blame AS (
    SELECT
      run_id,
      straggler_rank AS rank,
      sum(waited_ns)::BIGINT AS caused_ns,
      max(waited_ns) AS saving_ns,
      arg_max(analyzed_ns, (waited_ns, -waiter)) AS analyzed_ns
    FROM pair
    GROUP BY run_id, straggler_rank
  ),
  instance AS (
    SELECT run_id, instance_id, straggler_rank AS rank, sum(wait_ns)::BIGINT AS caused_ns
    FROM wait
    GROUP BY run_id, instance_id, straggler_rank
    HAVING sum(wait_ns) > 0
  ),
  own AS (
    SELECT
      wait.run_id,
      wait.rank,
      any_value(wait.steps) AS steps,
      any_value(wait.analyzed_ns) AS analyzed_ns,
      count(instance.instance_id) AS count,
      arg_max(wait.event_id, (instance.caused_ns, -wait.start_ns)) FILTER (instance.instance_id IS NOT NULL) AS event_id,
      arg_max(wait.start_ns, (instance.caused_ns, -wait.start_ns)) FILTER (instance.instance_id IS NOT NULL) AS from_ns,
      arg_max(wait.start_ns + wait.dur_ns, (instance.caused_ns, -wait.start_ns)) FILTER (instance.instance_id IS NOT NULL) AS to_ns
    FROM wait
    LEFT JOIN instance ON instance.run_id = wait.run_id AND instance.instance_id = wait.instance_id AND instance.rank = wait.rank
    GROUP BY wait.run_id, wait.rank
  ),
  total AS (
    SELECT
      own.run_id,
      own.rank,
      own.steps,
      own.count,
      own.event_id,
      own.from_ns,
      own.to_ns,
      coalesce(blame.analyzed_ns, own.analyzed_ns) AS analyzed_ns,
      coalesce(blame.saving_ns, 0) AS saving_ns,
      coalesce(blame.saving_ns, 0) / coalesce(blame.analyzed_ns, own.analyzed_ns) AS share,
      -- Halfway between its equal share of all waits and all of them: more than chance would give.
      coalesce(2 * blame.caused_ns * count(*) OVER of_run >= sum(blame.caused_ns) OVER of_run * (count(*) OVER of_run + 1), FALSE) AS is_straggler
    FROM own
    LEFT JOIN blame ON blame.run_id = own.run_id AND blame.rank = own.rank
    WINDOW of_run AS (PARTITION BY own.run_id)
  )
SELECT
  run_id,
  rank,
  'collectives' AS subject,
  CASE
    WHEN share < $warning_share OR NOT is_straggler THEN 'none'
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
  'the longest wait of any rank; after a fix the next slowest rank sets the pace' AS saving_limit,
  CASE WHEN steps = 0 THEN 'low' ELSE 'high' END AS confidence,
  'This rank is a straggler: the other ranks wait for it at collectives.' AS observation,
  'Compare what it does before its collectives with another rank (tw diff, tw export trace of both): input data, host load, GPU clocks and temperature, and share of work.' AS advice,
  'stragglers' AS evidence,
  NULL::VARCHAR AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM total
