-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "step_account"
-- version  = 1
-- summary  = "Breakdown of each step's period by GPU activity and idle cause; the parts sum to the period."
-- requires = ["account_segments@1"]
-- needs    = ["gpu", "steps>=1"]
-- grain    = ["run_id", "rank", "step", "category"]
-- order    = ["run_id", "rank", "step", "-category_ns"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank; its devices are combined." }
-- step        = { type = "BIGINT", unit = "id", doc = "Step number; steps without duration have no rows." }
-- category    = { type = "VARCHAR", doc = "compute: computation runs; exposed_wait, exposed_transfer, exposed_unassigned: communication runs, but no computation (exposed communication): until the last rank arrived, from then on, or not matched with another rank (see `account_segments`); exposed_memory, other: memcpy or memset, or activities of another kind run, and none before them in this list; otherwise nothing runs. Until pending work was launched: idle_sync, if its thread was in a blocking call when the gap began, for the duration of that call; then idle_dataloader, while that thread waits for data; otherwise idle_host. Then idle_call, until the call returned; idle_latency, for as long as launches usually take; and idle_queued. idle_graph: inside a graph launch. idle_unknown: the launch of the next activity is missing from the trace (see `device_segments`). idle_outside: before the first GPU activity or after the last. Parts without time have no row." }
-- category_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Time of the period in this category; the parts of a step sum to period_ns of step_summary." }
-- share       = { type = "DOUBLE", unit = "ratio", aggregate = "sum", doc = "category_ns as a share of the period." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT
      run_id,
      rank,
      step,
      segment_ns,
      CASE
        WHEN kind = 'computation' THEN 'compute'
        WHEN kind = 'communication' THEN 'exposed_' || exposure
        WHEN kind = 'memory' THEN 'exposed_memory'
        WHEN kind = 'other' THEN 'other'
        ELSE 'idle_' || cause
      END AS category
    FROM account_segments
    WHERE step IS NOT NULL
  ),
  part_sum AS (
    SELECT run_id, rank, step, category, sum(segment_ns)::BIGINT AS category_ns
    FROM segment
    GROUP BY run_id, rank, step, category
  )
SELECT
  run_id,
  rank,
  step,
  category,
  category_ns,
  category_ns / (sum(category_ns) OVER (PARTITION BY run_id, rank, step))::BIGINT AS share
FROM part_sum
