-- /// tw
-- kind     = "analysis"
-- name     = "idle_breakdown"
-- version  = 1
-- summary  = "Why each device stood idle: waiting for the host, between kernels, or otherwise."
-- requires = ["device_gaps@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device", "cause"]
-- order    = ["run_id", "rank", "device", "-idle_ns"]
--
-- [params]
-- kernel_wait_ns = { type = "BIGINT", default = 30000, unit = "ns", min = 0, doc = "A gap shorter than this, whose next row had been launched when it began, is a kernel_wait." }
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- device   = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 where the trace does not say." }
-- cause    = { type = "VARCHAR", doc = "host_wait: the row after the gap was launched after the gap had begun; kernel_wait: it had been launched (before the recording counts), and the gap is short; other: it had been launched, and the gap is not short; unknown: its launch is not in the trace." }
-- idle_ns  = { type = "BIGINT", unit = "ns", fold = "sum", better = "lower", doc = "Length of such gaps: the causes add up to idle_ns of temporal_breakdown." }
-- count    = { type = "BIGINT", unit = "count", fold = "sum", better = "lower", doc = "Such gaps." }
-- share    = { type = "DOUBLE", unit = "ratio", fold = "sum", doc = "idle_ns over all idle time of the device." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  gap AS (
    SELECT
      run_id,
      rank,
      device,
      CASE
        WHEN cause <> 'ready' THEN cause
        WHEN idle_ns < $kernel_wait_ns THEN 'kernel_wait'
        ELSE 'other'
      END AS cause,
      idle_ns
    FROM device_gaps
  ),
  cause_sum AS (
    SELECT run_id, rank, device, cause, sum(idle_ns)::BIGINT AS idle_ns, count(*) AS count
    FROM gap
    GROUP BY run_id, rank, device, cause
  )
SELECT
  run_id,
  rank,
  device,
  cause,
  idle_ns,
  count,
  idle_ns / (sum(idle_ns) OVER (PARTITION BY run_id, rank, device))::BIGINT AS share
FROM cause_sum
