-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "wait_matrix"
-- version  = 1
-- summary  = "Who waited for whom: waits of each rank by the rank that it waited for, and by the rank that caused them."
-- requires = ["collective_arrivals@1", "step_computation@1", "wait_attribution@1", "ranks@1"]
-- needs    = ["collectives", "ranks>=2"]
-- grain    = ["run_id", "rank", "for_rank"]
-- order    = ["run_id", "rank", "for_rank"]
--
-- [columns]
-- run_id           = { type = "VARCHAR", doc = "The run." }
-- rank             = { type = "INTEGER", doc = "The rank that waited." }
-- for_rank         = { type = "INTEGER", doc = "The rank that it waited for: the one that arrived last. For attributed_ns, the one that caused the wait." }
-- collectives      = { type = "BIGINT", unit = "count", doc = "Collectives, sends and receives at which it waited for this rank." }
-- total_wait_ns    = { type = "BIGINT", unit = "ns", better = "lower", doc = "All waits for this rank: the sum of the five kinds that follow." }
-- wait_ns          = { type = "BIGINT", unit = "ns", better = "lower", doc = "Waits at synchronizing collectives." }
-- pair_wait_ns     = { type = "BIGINT", unit = "ns", better = "lower", doc = "Waits in sends and receives, except warmup_wait_ns and drain_wait_ns; like these not charged to a rank. Untested on real data: the traces at hand have no matched sends and receives." }
-- warmup_wait_ns   = { type = "BIGINT", unit = "ns", better = "lower", doc = "Waits in sends and receives before the waiting rank's first computation of the step: a pipeline waits by design while it fills." }
-- drain_wait_ns    = { type = "BIGINT", unit = "ns", better = "lower", doc = "The same after its last computation of the step: while it drains." }
-- possible_wait_ns = { type = "BIGINT", unit = "ns", better = "lower", doc = "Upper bound on its waits in broadcasts and other collectives that a rank may leave early; not charged to a rank." }
-- attributed_ns        = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "Its waits at synchronizing collectives that for_rank caused, whichever rank arrived last (`wait_attribution`). Over all rows it sums to wait_ns at collectives whose ranks have a common clock. Null if wait_attribution is not derived." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  derived AS (
    SELECT run_id, bool_and(coalesce(wait_attribution, FALSE)) AS has_attribution
    FROM ranks
    GROUP BY run_id
  ),
  wait AS (
    SELECT
      arrival.run_id,
      arrival.rank,
      arrival.last_rank AS for_rank,
      coalesce(arrival.wait_ns, 0) AS wait_ns,
      coalesce(arrival.pair_wait_ns, 0) AS all_pair_wait_ns,
      least(greatest(computed.first_ns - arrival.start_ns, 0), all_pair_wait_ns) AS warmup_wait_ns,
      least(greatest(arrival.start_ns + all_pair_wait_ns - computed.last_ns, 0), all_pair_wait_ns) AS drain_wait_ns,
      coalesce(arrival.possible_wait_ns, 0) AS possible_wait_ns,
      0 AS attributed_ns
    FROM collective_arrivals AS arrival
    LEFT JOIN step_computation AS computed USING (run_id, rank, step)
    WHERE arrival.last_rank <> arrival.rank
    UNION ALL
    SELECT wait_attribution.run_id, wait_attribution.waiter_rank, wait_attribution.rank, 0, 0, 0, 0, 0, wait_attribution.wait_ns
    FROM wait_attribution
    JOIN derived ON derived.run_id = wait_attribution.run_id AND derived.has_attribution
  ),
  pair AS (
    SELECT
      run_id,
      rank,
      for_rank,
      count(*) FILTER (wait_ns + all_pair_wait_ns + possible_wait_ns > 0) AS collectives,
      sum(wait_ns + all_pair_wait_ns + possible_wait_ns)::BIGINT AS total_wait_ns,
      sum(wait_ns)::BIGINT AS wait_ns,
      sum(all_pair_wait_ns - warmup_wait_ns - drain_wait_ns)::BIGINT AS pair_wait_ns,
      sum(warmup_wait_ns)::BIGINT AS warmup_wait_ns,
      sum(drain_wait_ns)::BIGINT AS drain_wait_ns,
      sum(possible_wait_ns)::BIGINT AS possible_wait_ns,
      sum(attributed_ns)::BIGINT AS attributed_ns
    FROM wait
    GROUP BY run_id, rank, for_rank
  )
SELECT
  pair.run_id,
  pair.rank,
  pair.for_rank,
  pair.collectives,
  pair.total_wait_ns,
  pair.wait_ns,
  pair.pair_wait_ns,
  pair.warmup_wait_ns,
  pair.drain_wait_ns,
  pair.possible_wait_ns,
  CASE WHEN derived.has_attribution THEN pair.attributed_ns END AS attributed_ns
FROM pair
JOIN derived USING (run_id)
WHERE pair.total_wait_ns + pair.attributed_ns > 0
