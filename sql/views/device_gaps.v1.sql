-- /// tw
-- kind     = "view"
-- name     = "device_gaps"
-- version  = 1
-- summary  = "A stretch of a device's window in which none of its streams runs anything, with the rows on both sides of it."
-- requires = ["kernels@1", "correlations@1"]
-- grain    = ["run_id", "rank", "device", "start_ns"]
-- order    = ["run_id", "rank", "device", "start_ns"]
--
-- [columns]
-- run_id       = { type = "VARCHAR", doc = "The run." }
-- rank         = { type = "INTEGER", doc = "The rank." }
-- device       = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 where the trace does not say." }
-- start_ns     = { type = "BIGINT", unit = "ts", signed = true, doc = "Where the gap begins: the latest end of all rows before it." }
-- idle_ns      = { type = "BIGINT", unit = "ns", doc = "How long it is: never 0, rows that touch leave none; a row without length parts one in two." }
-- cause        = { type = "VARCHAR", doc = "host_wait: the row after it was launched after the gap had begun; ready: it was launched before, or just then; before the recording counts as before; unknown: its launch is not in the trace." }
-- before_id    = { type = "BIGINT", unit = "id", doc = "event_id of the GPU row that ends where the gap begins; of several the last in the file." }
-- after_id     = { type = "BIGINT", unit = "id", doc = "event_id of the GPU row that ends the gap; of several that start together the first by end, launch, stream and place in the file." }
-- call_late_ns = { type = "BIGINT", unit = "ns", null = true, signed = true, doc = "Start of the host call that launched the row after it, minus start_ns; null where no launch is known." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  launched AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.device,
      kernels.stream,
      kernels.event_id,
      kernels.ts_ns,
      kernels.ts_ns + kernels.dur_ns AS end_ns,
      kernels.ts_ns - correlations.call_to_start_ns AS call_ns,
      kernels.launch_state
    FROM kernels
    LEFT JOIN correlations
      ON correlations.run_id = kernels.run_id
      AND correlations.rank = kernels.rank
      AND correlations.kernel_id = kernels.event_id
  ),
  reached AS (
    SELECT
      run_id,
      rank,
      device,
      event_id,
      ts_ns,
      call_ns,
      launch_state,
      max(end_ns) OVER earlier AS reached_ns,
      -- The latest end and the row that has it in one number: event ids stay below 2 to the 40th.
      max(end_ns * 1099511627776::HUGEINT + event_id) OVER earlier AS latest
    FROM launched
    WINDOW earlier AS (
      PARTITION BY run_id, rank, device
      ORDER BY ts_ns, end_ns, call_ns, stream, event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  )
SELECT
  run_id,
  rank,
  device,
  reached_ns AS start_ns,
  ts_ns - reached_ns AS idle_ns,
  CASE
    WHEN call_ns > reached_ns THEN 'host_wait'
    WHEN launch_state = 'missing' THEN 'unknown'
    ELSE 'ready'
  END AS cause,
  (latest - reached_ns * 1099511627776::HUGEINT)::BIGINT AS before_id,
  event_id AS after_id,
  call_ns - reached_ns AS call_late_ns
FROM reached
WHERE ts_ns > reached_ns
