-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- scope    = "run"
-- name     = "slow_rank"
-- version  = 1
-- summary  = "Detects stragglers: ranks that the other ranks wait for at collectives."
-- requires = ["collective_arrivals@1", "analyzed_intervals@1"]
-- needs    = ["collectives", "ranks>=2"]
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.2 }
--
-- [columns]
-- subject   = { doc = "Always: collectives." }
-- share     = { doc = "Longest total wait of another rank for this one, as a share of analyzed_ns of that rank." }
-- count     = { doc = "Collectives at which this rank arrived last and another rank waited." }
-- analyzed_ns = { doc = "Analyzed time of the rank that waited longest for this one; its own if none waited." }
-- saving_ns = { doc = "Upper bound on the time saved in the analyzed interval: the wait of the rank that waited longest for this one." }
-- event_id  = { doc = "This rank's collective at which the others waited longest in total." }
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
      span.steps,
      span.analyzed_ns,
      -- Latest end of earlier waits for that rank: time up to here is already counted.
      coalesce(max(arrival.start_ns + arrival.wait_ns) OVER earlier, arrival.start_ns) AS counted_ns
    FROM collective_arrivals AS arrival
    JOIN analyzed_intervals AS span
      ON span.run_id = arrival.run_id
      AND span.rank = arrival.rank
      AND arrival.start_ns >= span.start_ns
      AND arrival.start_ns < span.end_ns
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
  caused AS (
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
  per_rank AS (
    SELECT
      own.run_id,
      own.rank,
      own.steps,
      own.count,
      own.event_id,
      own.from_ns,
      own.to_ns,
      coalesce(caused.analyzed_ns, own.analyzed_ns) AS analyzed_ns,
      coalesce(caused.saving_ns, 0) AS saving_ns,
      coalesce(caused.saving_ns, 0) / coalesce(caused.analyzed_ns, own.analyzed_ns) AS share,
      -- Halfway between its equal share of all waits and all of them: more than chance would give.
      coalesce(2 * caused.caused_ns * count(*) OVER of_run >= sum(caused.caused_ns) OVER of_run * (count(*) OVER of_run + 1), FALSE) AS is_straggler
    FROM own
    LEFT JOIN caused ON caused.run_id = own.run_id AND caused.rank = own.rank
    WINDOW of_run AS (PARTITION BY own.run_id)
  )
SELECT
  run_id,
  rank,
  'collectives' AS subject,
  share >= $warning_share AND is_straggler AS is_finding,
  steps > 0 AS is_representative,
  share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'the longest wait of any rank; after a fix the next slowest rank sets the pace' AS saving_limit,
  'high' AS confidence,
  'This rank is a straggler: the other ranks wait for it at collectives.' AS observation,
  'Compare what it does before its collectives with another rank (tw diff, tw export trace of both): input data, host load, GPU clocks and temperature, and share of work.' AS advice,
  'stragglers' AS evidence,
  NULL::VARCHAR AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM per_rank
