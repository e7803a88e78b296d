-- /// tw
-- kind     = "analysis"
-- name     = "gpu_busy"
-- version  = 2
-- summary  = "How much of each rank's GPU span had at least one kernel running."
-- requires = ["kernels@1"]
-- grain    = ["run_id", "rank"]
-- order    = ["run_id", "rank"]
--
-- [params]
-- gap_ns = { type = "BIGINT", default = 0, unit = "ns", doc = "Idle gaps up to this long count as busy; a zero-length kernel ends a gap." }
--
-- [columns]
-- run_id  = { type = "VARCHAR", doc = "The run." }
-- rank    = { type = "INTEGER", doc = "The rank." }
-- span_ns = { type = "BIGINT", unit = "ns", better = "lower", doc = "First kernel start to last kernel end." }
-- busy_ns = { type = "BIGINT", unit = "ns", better = "lower", doc = "Time with a kernel running, on any stream." }
-- busy    = { type = "DOUBLE", unit = "ratio", better = "higher", null = true, doc = "busy_ns over span_ns; null where the span is zero." }
--
-- [changes]
-- 2 = "Kernels that overlap on several streams count once. Version 1 added their durations, so `busy` could pass 1."
-- 1 = "First version."
-- ///
WITH
  kernel AS (
    SELECT
      run_id,
      rank,
      ts_ns AS start_ns,
      ts_ns + dur_ns AS end_ns,
      -- The latest end among kernels that started earlier: up to here the time is already counted.
      coalesce(max(ts_ns + dur_ns) OVER earlier, ts_ns) AS counted_ns
    FROM kernels
    WINDOW earlier AS (
      PARTITION BY run_id, rank
      ORDER BY ts_ns, event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  ),
  step AS (
    SELECT
      run_id,
      rank,
      start_ns,
      end_ns,
      greatest(start_ns - counted_ns, 0) AS idle_ns,
      greatest(end_ns - greatest(start_ns, counted_ns), 0) AS new_ns
    FROM kernel
  )
SELECT
  run_id,
  rank,
  max(end_ns) - min(start_ns) AS span_ns,
  sum(CASE WHEN idle_ns <= $gap_ns THEN idle_ns + new_ns ELSE new_ns END)::BIGINT AS busy_ns,
  busy_ns / nullif(span_ns, 0) AS busy
FROM step
GROUP BY run_id, rank
