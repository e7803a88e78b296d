-- /// tw
-- kind     = "view"
-- name     = "judged_spans"
-- version  = 1
-- summary  = "The stretch of a rank's time by which its findings are judged: its complete steps, else what was recorded."
-- requires = ["steps@1", "kernels@1", "events@1"]
-- grain    = ["run_id", "rank"]
-- order    = ["run_id", "rank"]
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank; one without slices, or without time in them, has no row." }
-- steps     = { type = "BIGINT", unit = "count", doc = "Complete steps in it; 0 where there is none, and the rank is judged by its GPU rows from the first start to the last end or, where that is no time, by its host slices." }
-- start_ns  = { type = "BIGINT", unit = "ts", signed = true, doc = "Where the period of the first complete step begins." }
-- end_ns    = { type = "BIGINT", unit = "ts", signed = true, doc = "Where the period of the last one ends." }
-- judged_ns = { type = "BIGINT", unit = "ns", doc = "end_ns minus start_ns: never 0." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  span AS (
    SELECT
      run_id,
      rank,
      3 AS turn,
      count(*) AS steps,
      min(period_start_ns) AS start_ns,
      max(period_start_ns + period_ns) AS end_ns
    FROM steps
    WHERE NOT partial AND period_ns > 0
    GROUP BY run_id, rank
    UNION ALL
    SELECT run_id, rank, 2, 0, min(ts_ns), max(ts_ns + dur_ns)
    FROM kernels
    GROUP BY run_id, rank
    UNION ALL
    SELECT run_id, rank, 1, 0, min(ts_ns), max(ts_ns + dur_ns)
    FROM events
    WHERE pre IS NOT NULL
    GROUP BY run_id, rank
  )
SELECT
  run_id,
  rank,
  arg_max(steps, turn) AS steps,
  arg_max(start_ns, turn) AS start_ns,
  arg_max(end_ns, turn) AS end_ns,
  arg_max(end_ns - start_ns, turn) AS judged_ns
FROM span
WHERE end_ns > start_ns
GROUP BY run_id, rank
