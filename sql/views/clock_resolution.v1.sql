-- /// tw
-- kind     = "view"
-- name     = "clock_resolution"
-- version  = 1
-- summary  = "Time resolution of each rank's durations: 1 ns, or 1 µs in traces with integer microseconds."
-- requires = ["kernels@1", "annotations@1"]
-- grain    = ["run_id", "rank"]
-- order    = ["run_id", "rank"]
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank; ranks without GPU activities and annotations have no row." }
-- resolution_ns = { type = "BIGINT", unit = "ns", doc = "1000 if all durations of GPU activities and annotations are multiples of 1000 ns; otherwise 100, 10 or 1 in the same way." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  duration AS (
    SELECT run_id, rank, dur_ns
    FROM kernels
    UNION ALL
    SELECT run_id, rank, dur_ns
    FROM annotations
  )
SELECT
  run_id,
  rank,
  CASE
    WHEN bool_and(dur_ns % 1000 = 0) THEN 1000
    WHEN bool_and(dur_ns % 100 = 0) THEN 100
    WHEN bool_and(dur_ns % 10 = 0) THEN 10
    ELSE 1
  END::BIGINT AS resolution_ns
FROM duration
GROUP BY run_id, rank
