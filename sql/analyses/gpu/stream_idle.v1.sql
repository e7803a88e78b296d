-- /// tw
-- kind     = "analysis"
-- name     = "stream_idle"
-- version  = 1
-- summary  = "Why each stream stood idle within its device's window: waiting for the host, between kernels, or otherwise."
-- requires = ["stream_gaps@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device", "stream", "cause"]
-- order    = ["run_id", "rank", "device", "stream", "-idle_ns"]
--
-- [params]
-- kernel_wait_ns = { type = "BIGINT", default = 30000, unit = "ns", min = 0, doc = "A gap shorter than this, whose next row had been launched when it began, is a kernel_wait." }
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- device   = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 where the trace does not say." }
-- stream   = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 where the trace does not say." }
-- cause    = { type = "VARCHAR", doc = "host_wait: the row after the gap was launched after the gap had begun; kernel_wait: it had been launched (before the recording counts), and the gap is short; other: it had been launched, and the gap is not short; unknown: its launch is not in the trace; before_first and after_last: from the start of the device's window to the stream's first row, and from its last one to the window's end." }
-- idle_ns  = { type = "BIGINT", unit = "ns", fold = "sum", better = "lower", doc = "Length of such gaps: the causes of a stream add up to its device's window less the time in which the stream runs anything." }
-- count    = { type = "BIGINT", unit = "count", fold = "sum", better = "lower", doc = "Such gaps." }
-- share    = { type = "DOUBLE", unit = "ratio", fold = "sum", doc = "idle_ns over all idle time of the stream." }
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
      stream,
      CASE
        WHEN cause <> 'ready' THEN cause
        WHEN idle_ns < $kernel_wait_ns THEN 'kernel_wait'
        ELSE 'other'
      END AS cause,
      idle_ns
    FROM stream_gaps
  ),
  cause_sum AS (
    SELECT run_id, rank, device, stream, cause, sum(idle_ns)::BIGINT AS idle_ns, count(*) AS count
    FROM gap
    GROUP BY run_id, rank, device, stream, cause
  )
SELECT
  run_id,
  rank,
  device,
  stream,
  cause,
  idle_ns,
  count,
  idle_ns / (sum(idle_ns) OVER (PARTITION BY run_id, rank, device, stream))::BIGINT AS share
FROM cause_sum
