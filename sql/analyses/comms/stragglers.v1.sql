-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "stragglers"
-- version  = 1
-- summary  = "Ranks that other ranks wait for at collectives, with count and total wait."
-- requires = ["collective_arrivals@1", "wait_attribution@1", "ranks@1"]
-- needs    = ["collectives", "ranks>=2"]
-- grain    = ["run_id", "rank"]
-- order    = ["run_id", "-attributed_ns", "-caused_wait_ns"]
--
-- [columns]
-- run_id         = { type = "VARCHAR", doc = "The run." }
-- rank           = { type = "INTEGER", doc = "The rank." }
-- caused_wait_ns = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "Wait caused: total time that other ranks waited at collectives where this rank had the shortest duration. Over all ranks of a run it sums to their wait_ns. Null, like all columns but the counts, if no collective is matched with another rank." }
-- share          = { type = "DOUBLE", unit = "ratio", better = "lower", null = true, doc = "caused_wait_ns as a share of the run's total; null if no rank waited." }
-- arrived_last   = { type = "BIGINT", unit = "count", better = "lower", doc = "Collectives at which this rank had the shortest duration, so it arrived last; the lowest rank on ties." }
-- collectives    = { type = "BIGINT", unit = "count", doc = "Its synchronizing collectives that are matched with another rank." }
-- partial        = { type = "BIGINT", unit = "count", doc = "Of these, collectives with missing ranks: a missing rank may be the one that arrived last." }
-- assumed        = { type = "BIGINT", unit = "count", doc = "Of these, collectives with an unknown process group: all ranks are assumed to be members." }
-- unmatched      = { type = "BIGINT", unit = "count", better = "lower", doc = "Its other synchronizing collectives (see `collective_waits` for the reason)." }
-- wait_ns        = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "Time that it waited itself, summed over its collectives." }
-- waiting_ns     = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "Time in which it waited; concurrent waits count once." }
-- attributed_ns      = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "Waits of other ranks that this rank caused, whichever rank arrived last: a rank that was late only because it waited itself hands them on (`straggler_causes`). Null if wait_attribution is not derived." }
-- attributed_share   = { type = "DOUBLE", unit = "ratio", better = "lower", null = true, doc = "attributed_ns as a share of the run's total." }
-- pair_wait_ns   = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "Time that it waited in sends and receives; null if none is matched." }
-- possible_wait_ns = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "Upper bound on its waits in broadcasts and other collectives that a rank may leave early; null if none is matched." }
-- late_ns        = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "Its starts minus those of the first ranks, on aligned clocks (`clock_offsets`), summed over its collectives." }
-- reason         = { type = "VARCHAR", null = true, doc = "Why late_ns is null: no collectives matched; clock offset not known; clock uncertainty not known; under twice the clock uncertainty, which is summed in the same way." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  arrival AS (
    SELECT
      run_id,
      rank,
      event_id,
      start_ns,
      instance_id IS NOT NULL AS matched,
      state,
      group_known,
      wait_ns,
      straggler_rank,
      late_ns,
      uncertainty_ns
    FROM collective_arrivals
    WHERE waits_for_all
  ),
  waiting AS (
    SELECT
      run_id,
      rank,
      start_ns,
      start_ns + wait_ns AS end_ns,
      -- Latest end of earlier waits: time up to here is already counted.
      coalesce(max(start_ns + wait_ns) OVER earlier, start_ns) AS counted_ns
    FROM arrival
    WHERE matched
    WINDOW earlier AS (
      PARTITION BY run_id, rank
      ORDER BY start_ns, event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  ),
  waited AS (
    SELECT
      run_id,
      rank,
      sum(greatest(end_ns - greatest(start_ns, counted_ns), 0))::BIGINT AS waiting_ns
    FROM waiting
    GROUP BY run_id, rank
  ),
  own AS (
    SELECT
      run_id,
      rank,
      count(*) FILTER (straggler_rank = rank) AS arrived_last,
      count(*) FILTER (matched) AS collectives,
      count(*) FILTER (matched AND state = 'partial') AS partial,
      count(*) FILTER (matched AND NOT group_known) AS assumed,
      count(*) FILTER (NOT matched) AS unmatched,
      sum(wait_ns)::BIGINT AS wait_ns,
      sum(late_ns)::BIGINT AS late_ns,
      CASE WHEN count(late_ns) = count(uncertainty_ns) THEN sum(uncertainty_ns)::BIGINT END AS uncertainty_ns
    FROM arrival
    GROUP BY run_id, rank
  ),
  caused AS (
    SELECT run_id, straggler_rank AS rank, sum(wait_ns)::BIGINT AS caused_wait_ns
    FROM arrival
    WHERE matched
    GROUP BY run_id, straggler_rank
  ),
  other_wait AS (
    SELECT
      run_id,
      rank,
      sum(pair_wait_ns)::BIGINT AS pair_wait_ns,
      sum(possible_wait_ns)::BIGINT AS possible_wait_ns
    FROM collective_arrivals
    WHERE NOT waits_for_all
    GROUP BY run_id, rank
  ),
  derived AS (
    SELECT run_id, bool_and(coalesce(wait_attribution, FALSE)) AS has_attribution
    FROM ranks
    GROUP BY run_id
  ),
  attributed AS (
    SELECT run_id, rank, sum(wait_ns)::BIGINT AS attributed_ns
    FROM wait_attribution
    GROUP BY run_id, rank
  ),
  per_rank AS (
    SELECT
      ranks.run_id,
      ranks.rank,
      CASE WHEN own.collectives > 0 THEN coalesce(caused.caused_wait_ns, 0) END AS caused_wait_ns,
      coalesce(own.arrived_last, 0) AS arrived_last,
      coalesce(own.collectives, 0) AS collectives,
      coalesce(own.partial, 0) AS partial,
      coalesce(own.assumed, 0) AS assumed,
      coalesce(own.unmatched, 0) AS unmatched,
      own.wait_ns,
      waited.waiting_ns,
      CASE WHEN derived.has_attribution THEN coalesce(attributed.attributed_ns, 0) END AS attributed_ns,
      other_wait.pair_wait_ns,
      other_wait.possible_wait_ns,
      own.late_ns,
      CASE
        WHEN coalesce(own.collectives, 0) = 0 THEN 'no collectives matched'
        WHEN own.late_ns IS NULL THEN 'clock offset not known'
        WHEN own.uncertainty_ns IS NULL THEN 'clock uncertainty not known'
        WHEN own.late_ns < own.uncertainty_ns THEN 'under twice the clock uncertainty'
      END AS reason
    FROM ranks
    LEFT JOIN own USING (run_id, rank)
    LEFT JOIN waited USING (run_id, rank)
    LEFT JOIN caused USING (run_id, rank)
    LEFT JOIN other_wait USING (run_id, rank)
    LEFT JOIN attributed USING (run_id, rank)
    JOIN derived USING (run_id)
  )
SELECT
  run_id,
  rank,
  caused_wait_ns,
  caused_wait_ns / nullif((sum(caused_wait_ns) OVER (PARTITION BY run_id))::BIGINT, 0) AS share,
  arrived_last,
  collectives,
  partial,
  assumed,
  unmatched,
  wait_ns,
  waiting_ns,
  attributed_ns,
  attributed_ns / nullif((sum(attributed_ns) OVER (PARTITION BY run_id))::BIGINT, 0) AS attributed_share,
  pair_wait_ns,
  possible_wait_ns,
  CASE WHEN reason IS NULL THEN late_ns END AS late_ns,
  reason
FROM per_rank
