-- /// tw
-- kind     = "view"
-- name     = "analyzed_intervals"
-- version  = 1
-- summary  = "The intervals of each rank that the findings analyze: its complete steps, or what was recorded if there are none."
-- requires = ["steps@1", "kernels@1", "events@1", "common_windows@1"]
-- grain    = ["run_id", "rank", "start_ns"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank; ranks without slices, or whose slices have no duration, have no row." }
-- steps       = { type = "BIGINT", unit = "count", doc = "Complete steps of the rank. If 0, there is one interval: the GPU window (first start to last end of GPU activities) or, if that is empty, the time from the first to the last host slice." }
-- start_ns    = { type = "BIGINT", unit = "ts", signed = true, doc = "Start of the interval: of the period of the first of successive complete steps. If recordings of the run do not start together, not before `common_windows`." }
-- end_ns      = { type = "BIGINT", unit = "ts", signed = true, doc = "End of the interval; with complete steps, of the period of the last of them." }
-- analyzed_ns = { type = "BIGINT", unit = "ns", doc = "Duration of all intervals of the rank; always positive." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  complete AS (
    SELECT
      steps.run_id,
      steps.rank,
      steps.period_start_ns AS start_ns,
      steps.period_start_ns + steps.period_ns AS end_ns,
      steps.period_start_ns IS DISTINCT FROM lag(steps.period_start_ns + steps.period_ns) OVER of_rank AS begins
    FROM steps
    LEFT JOIN common_windows AS common USING (run_id, rank)
    WHERE
      NOT steps.partial AND steps.period_ns > 0 AND (common.from_ns IS NULL OR steps.period_start_ns >= common.from_ns)
    WINDOW of_rank AS (PARTITION BY steps.run_id, steps.rank ORDER BY steps.period_start_ns)
  ),
  numbered AS (
    SELECT run_id, rank, start_ns, end_ns, count_if(begins) OVER so_far AS part
    FROM complete
    WINDOW so_far AS (PARTITION BY run_id, rank ORDER BY start_ns)
  ),
  of_steps AS (
    SELECT run_id, rank, count(*) AS steps, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM numbered
    GROUP BY run_id, rank, part
  ),
  candidate AS (
    SELECT run_id, rank, 2 AS turn, min(ts_ns) AS start_ns, max(ts_ns + dur_ns) AS end_ns
    FROM kernels
    GROUP BY run_id, rank
    UNION ALL
    SELECT run_id, rank, 1, min(ts_ns), max(ts_ns + dur_ns)
    FROM events
    WHERE pre IS NOT NULL
    GROUP BY run_id, rank
  ),
  of_window AS (
    SELECT candidate.run_id, candidate.rank, turn, greatest(start_ns, common.from_ns) AS start_ns, end_ns
    FROM candidate
    LEFT JOIN common_windows AS common USING (run_id, rank)
    WHERE end_ns > greatest(start_ns, common.from_ns)
  )
SELECT
  run_id,
  rank,
  (sum(steps) OVER of_rank)::BIGINT AS steps,
  start_ns,
  end_ns,
  (sum(end_ns - start_ns) OVER of_rank)::BIGINT AS analyzed_ns
FROM of_steps
WINDOW of_rank AS (PARTITION BY run_id, rank)
UNION ALL
SELECT
  run_id,
  rank,
  0 AS steps,
  arg_max(start_ns, turn) AS start_ns,
  arg_max(end_ns, turn) AS end_ns,
  arg_max(end_ns - start_ns, turn) AS analyzed_ns
FROM of_window
ANTI JOIN of_steps USING (run_id, rank)
GROUP BY run_id, rank
