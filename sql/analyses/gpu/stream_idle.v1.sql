-- /// tw
-- kind     = "analysis"
-- name     = "stream_idle"
-- version  = 1
-- summary  = "Idle time of each stream within its device's GPU window, by cause: waiting for the host, between kernels, or other."
-- requires = ["stream_gaps@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device", "stream", "cause"]
-- per      = "window"
-- order    = ["run_id", "rank", "device", "stream", "-idle_ns"]
--
-- [params]
-- kernel_wait_ns = { type = "BIGINT", default = 30000, unit = "ns", min = 0, doc = "A gap shorter than this is a kernel_wait if the next activity had been launched when the gap began." }
--
-- [columns]
-- run_id  = { type = "VARCHAR", doc = "The run." }
-- rank    = { type = "INTEGER", doc = "The rank." }
-- device  = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- stream  = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 if unknown." }
-- cause   = { type = "VARCHAR", doc = "host_wait: the activity after the gap was launched after the gap began; kernel_wait: it had been launched (possibly before the recording) and the gap is short; other: it had been launched and the gap is not short; unknown: its launch is missing from the trace; before_first: from the start of the device's GPU window to the stream's first activity; after_last: from its last activity to the end of the window." }
-- idle_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Total duration of such gaps; the causes of a stream sum to its device's GPU window minus the stream's busy time." }
-- count   = { type = "BIGINT", unit = "count", aggregate = "sum", better = "lower", doc = "Number of such gaps." }
-- share   = { type = "DOUBLE", unit = "ratio", aggregate = "sum", doc = "idle_ns as a share of the stream's idle time." }
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
