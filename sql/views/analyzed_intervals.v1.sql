-- /// tw
-- kind     = "view"
-- name     = "analyzed_intervals"
-- version  = 1
-- summary  = "The interval of each rank that the findings analyze: its complete steps, or what was recorded if there are none."
-- requires = ["steps@1", "kernels@1", "events@1"]
-- grain    = ["run_id", "rank"]
-- order    = ["run_id", "rank"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank; ranks without slices, or whose slices have no duration, have no row." }
-- steps       = { type = "BIGINT", unit = "count", doc = "Complete steps in the interval. If 0, the interval is the GPU window (first start to last end of GPU activities) or, if that is empty, the time from the first to the last host slice." }
-- start_ns    = { type = "BIGINT", unit = "ts", signed = true, doc = "Start of the interval; with complete steps, of the first one's period." }
-- end_ns      = { type = "BIGINT", unit = "ts", signed = true, doc = "End of the interval; with complete steps, of the last one's period." }
-- analyzed_ns = { type = "BIGINT", unit = "ns", doc = "end_ns minus start_ns; always positive." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  candidate AS (
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
  arg_max(end_ns - start_ns, turn) AS analyzed_ns
FROM candidate
WHERE end_ns > start_ns
GROUP BY run_id, rank
