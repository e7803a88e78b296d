-- /// tw
-- kind     = "view"
-- name     = "host_work"
-- version  = 1
-- summary  = "Time of each step on the host that is neither waiting for the GPU nor loading data: the step cannot be shorter."
-- requires = ["steps@1", "events@1", "runtime@1", "data_loading_rules@1"]
-- grain    = ["run_id", "rank", "step"]
-- order    = ["run_id", "rank", "step"]
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank." }
-- step       = { type = "BIGINT", unit = "id", doc = "Step number." }
-- work_ns    = { type = "BIGINT", unit = "ns", doc = "Duration of the step on the host, without loading_ns and without calls that wait: those that synchronize, and those ten times as long as a fast launch of the rank (its 10th percentile), as with a full queue and blocking copies. Not less than 0." }
-- loading_ns = { type = "BIGINT", unit = "ns", doc = "Operators and annotations in it that load data (`data_loading_rules`)." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  loading_name AS (
    SELECT name
    FROM (SELECT DISTINCT name FROM events WHERE category IN ('cpu_op', 'user_annotation')) AS each_name
    SEMI JOIN data_loading_rules ON regexp_matches(each_name.name, data_loading_rules.pattern)
  ),
  fast AS (
    SELECT run_id, rank, quantile_disc(dur_ns, 0.1) AS launch_ns
    FROM runtime
    WHERE is_launch
    GROUP BY run_id, rank
  ),
  part AS (
    SELECT run_id, rank, step, 0 AS waiting_ns, dur_ns AS loading_ns
    FROM events
    SEMI JOIN loading_name USING (name)
    WHERE category IN ('cpu_op', 'user_annotation') AND pre IS NOT NULL
    UNION ALL
    SELECT call.run_id, call.rank, call.step, call.dur_ns, 0
    FROM runtime AS call
    LEFT JOIN fast USING (run_id, rank)
    WHERE call.is_sync OR call.dur_ns > 10 * fast.launch_ns
  ),
  summed AS (
    SELECT run_id, rank, step, sum(waiting_ns)::BIGINT AS waiting_ns, sum(loading_ns)::BIGINT AS loading_ns
    FROM part
    WHERE step IS NOT NULL
    GROUP BY run_id, rank, step
  )
SELECT
  steps.run_id,
  steps.rank,
  steps.step,
  greatest(steps.host_ns - coalesce(summed.waiting_ns + summed.loading_ns, 0), 0) AS work_ns,
  coalesce(summed.loading_ns, 0) AS loading_ns
FROM steps
LEFT JOIN summed USING (run_id, rank, step)
