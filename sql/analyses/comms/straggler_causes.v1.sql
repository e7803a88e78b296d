-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "straggler_causes"
-- version  = 1
-- summary  = "Ranks that cause the waits of other ranks at collectives, and why they are late."
-- requires = ["wait_attribution@1", "wait_attribution_basis@1"]
-- needs    = ["collectives", "ranks>=2", "wait_attribution"]
-- grain    = ["run_id", "rank", "cause"]
-- order    = ["run_id", "-attributed_ns"]
--
-- [params]
-- min_step_share = { type = "DOUBLE", unit = "ratio", min = 0, default = 0.01, doc = "Lowest step_share of a rank that is named." }
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank that the waits are charged to." }
-- cause         = { type = "VARCHAR", doc = "What it did longer than the rank it is compared with: computation, copies, data (loading of input), host (anything else; its GPU was idle), or communication: it was late because of communication in another group that is slow or not matched, which is not its fault." }
-- attributed_ns     = { type = "BIGINT", unit = "ns", better = "lower", doc = "Waits of other ranks at synchronizing collectives that are charged to this rank and cause. Over all rows of a run it sums to the waits with a common clock." }
-- share         = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "attributed_ns as a share of the run's total." }
-- certain_share = { type = "DOUBLE", unit = "ratio", doc = "Share of attributed_ns that was not handed on because of a possible wait (in a broadcast, say)." }
-- instances     = { type = "BIGINT", unit = "count", better = "lower", doc = "Collectives at which it was charged." }
-- steps_first   = { type = "BIGINT", unit = "count", doc = "Steps in which more is charged to this rank, for all causes but communication, than to any other; the lowest rank on ties." }
-- persistence   = { type = "DOUBLE", unit = "ratio", null = true, doc = "steps_first as a share of the steps in which ranks waited; null without steps." }
-- step_share    = { type = "DOUBLE", unit = "ratio", null = true, better = "lower", doc = "Longest total wait of one rank that is charged to this one for all causes but communication, as a share of the waiting rank's step periods: an upper bound on how much shorter steps could be. Null without steps." }
-- rank_share    = { type = "DOUBLE", unit = "ratio", doc = "What is charged to this rank for all causes but communication, as a share of the run's total." }
-- null_p99      = { type = "DOUBLE", unit = "ratio", null = true, doc = "99 % quantile of the largest share of one rank, if the wait_attribution of each step is assigned to the ranks at random, as in `wait_attribution_basis`; null without steps." }
-- is_named      = { type = "BOOLEAN", doc = "True if the rank is a straggler: step_share reaches min_step_share and rank_share is above null_p99." }
-- reason        = { type = "VARCHAR", null = true, doc = "Why the rank is not named. Where a rank may have waited in broadcasts for min_step_share of its steps, the reason says so: `wait_matrix` shows for whom." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  total AS (
    SELECT run_id, sum(wait_ns)::BIGINT AS total_ns, count(DISTINCT step) AS steps
    FROM wait_attribution
    GROUP BY run_id
  ),
  part AS (
    SELECT
      run_id,
      rank,
      cause,
      sum(wait_ns)::BIGINT AS attributed_ns,
      coalesce(sum(wait_ns) FILTER (certain), 0)::BIGINT AS certain_ns,
      count(DISTINCT instance_id) AS instances
    FROM wait_attribution
    GROUP BY run_id, rank, cause
  ),
  own AS (
    SELECT run_id, rank, waiter_rank, step, sum(wait_ns)::BIGINT AS wait_ns
    FROM wait_attribution
    WHERE cause <> 'communication'
    GROUP BY run_id, rank, waiter_rank, step
  ),
  of_step AS (
    SELECT
      run_id,
      rank,
      row_number() OVER (PARTITION BY run_id, step ORDER BY sum(wait_ns) DESC, rank) = 1 AS is_first
    FROM own
    WHERE step IS NOT NULL
    GROUP BY run_id, step, rank
  ),
  first AS (
    SELECT run_id, rank, count(*) AS steps_first
    FROM of_step
    WHERE is_first
    GROUP BY run_id, rank
  ),
  pair AS (
    SELECT
      own.run_id,
      own.rank,
      sum(own.wait_ns)::BIGINT AS own_ns,
      sum(own.wait_ns) / any_value(basis.period_ns) AS step_share
    FROM own
    JOIN wait_attribution_basis AS basis ON basis.run_id = own.run_id AND basis.rank = own.waiter_rank
    GROUP BY own.run_id, own.rank, own.waiter_rank
  ),
  per_rank AS (
    SELECT run_id, rank, sum(own_ns)::BIGINT AS own_ns, max(step_share) AS step_share
    FROM pair
    GROUP BY run_id, rank
  ),
  chance AS (
    SELECT
      run_id,
      max(null_p99) AS null_p99,
      bool_and(enough_steps) AS enough_steps,
      max(possible_wait_ns / period_ns) AS possible_share
    FROM wait_attribution_basis
    GROUP BY run_id
  ),
  per_cause AS (
    SELECT
      part.run_id,
      part.rank,
      part.cause,
      part.attributed_ns,
      part.certain_ns,
      part.instances,
      total.total_ns,
      total.steps,
      coalesce(first.steps_first, 0) AS steps_first,
      CASE WHEN chance.null_p99 IS NOT NULL THEN coalesce(per_rank.step_share, 0) END AS step_share,
      coalesce(per_rank.own_ns, 0) / total.total_ns AS rank_share,
      chance.null_p99,
      CASE
        WHEN chance.null_p99 IS NULL THEN 'no steps: chance cannot be ruled out'
        WHEN per_rank.own_ns IS NULL OR (part.cause = 'communication' AND NOT per_rank.step_share >= $min_step_share)
          THEN 'late because of communication that is slow or not matched'
        WHEN NOT per_rank.step_share >= $min_step_share AND chance.possible_share >= $min_step_share
          THEN 'too small a part of the step; possible waits in broadcasts are longer, but not charged (wait_matrix)'
        WHEN NOT per_rank.step_share >= $min_step_share THEN 'too small a part of the step'
        WHEN rank_share <= chance.null_p99 AND NOT chance.enough_steps THEN 'too few steps to rule out chance'
        WHEN rank_share <= chance.null_p99 THEN 'not more than by chance (null_p99)'
      END AS reason
    FROM part
    JOIN total USING (run_id)
    JOIN chance USING (run_id)
    LEFT JOIN per_rank USING (run_id, rank)
    LEFT JOIN first USING (run_id, rank)
  )
SELECT
  run_id,
  rank,
  cause,
  attributed_ns,
  attributed_ns / total_ns AS share,
  certain_ns / attributed_ns AS certain_share,
  instances,
  steps_first,
  steps_first / nullif(steps, 0) AS persistence,
  step_share,
  rank_share,
  null_p99,
  reason IS NULL AS is_named,
  reason
FROM per_cause
