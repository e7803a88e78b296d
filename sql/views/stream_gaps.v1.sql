-- /// tw
-- kind     = "view"
-- name     = "stream_gaps"
-- version  = 1
-- summary  = "A stretch of its device's window in which a stream runs nothing, with the rows on both sides of it."
-- requires = ["kernels@1", "correlations@1"]
-- grain    = ["run_id", "rank", "device", "stream", "start_ns"]
-- order    = ["run_id", "rank", "device", "stream", "start_ns"]
--
-- [columns]
-- run_id       = { type = "VARCHAR", doc = "The run." }
-- rank         = { type = "INTEGER", doc = "The rank." }
-- device       = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 where the trace does not say." }
-- stream       = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 where the trace does not say." }
-- start_ns     = { type = "BIGINT", unit = "ts", signed = true, doc = "Where the gap begins: the latest end of the stream's rows before it, else the start of the device's window." }
-- idle_ns      = { type = "BIGINT", unit = "ns", doc = "How long it is: never 0, rows that touch or overlap leave none; a row without length parts one in two." }
-- cause        = { type = "VARCHAR", doc = "before_first and after_last: from the start of the device's window to the stream's first row, and from its last one to the window's end; host_wait: the row after it was launched after the gap had begun; ready: it was launched before, or just then; before the recording counts as before; unknown: its launch is not in the trace." }
-- before_id    = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the stream's row that ends where the gap begins; of several the last in the file; null before the first row." }
-- after_id     = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the stream's row that ends the gap; of several that start together the first by end, launch and place in the file; null after the last row." }
-- call_late_ns = { type = "BIGINT", unit = "ns", null = true, signed = true, doc = "Start of the host call that launched the row after it, minus start_ns; null where there is none or its launch is not known." }
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
      kernels.launch_state = 'missing' AS is_missing
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
      stream,
      event_id,
      ts_ns,
      call_ns,
      is_missing,
      max(end_ns) OVER earlier AS reached_ns,
      -- The latest end and the row that has it in one number: event ids stay below 2 to the 40th.
      max(end_ns * 1099511627776::HUGEINT + event_id) OVER earlier AS latest
    FROM launched
    WINDOW earlier AS (
      PARTITION BY run_id, rank, device, stream
      ORDER BY ts_ns, end_ns, call_ns, event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  ),
  last_reached AS (
    SELECT
      run_id,
      rank,
      device,
      stream,
      min(ts_ns) AS first_ns,
      max(ts_ns + dur_ns) AS reached_ns,
      max((ts_ns + dur_ns) * 1099511627776::HUGEINT + event_id) AS latest
    FROM kernels
    GROUP BY run_id, rank, device, stream
  ),
  device_window AS (
    SELECT run_id, rank, device, min(first_ns) AS first_ns, max(reached_ns) AS last_ns
    FROM last_reached
    GROUP BY run_id, rank, device
  ),
  turn AS (
    -- Each row, and the end of the window after the last one.
    SELECT run_id, rank, device, stream, reached_ns, latest, event_id, ts_ns, call_ns, is_missing
    FROM reached
    UNION ALL
    SELECT
      last_reached.run_id,
      last_reached.rank,
      last_reached.device,
      last_reached.stream,
      last_reached.reached_ns,
      last_reached.latest,
      NULL AS event_id,
      device_window.last_ns AS ts_ns,
      NULL AS call_ns,
      NULL AS is_missing
    FROM last_reached
    JOIN device_window USING (run_id, rank, device)
  )
SELECT
  run_id,
  rank,
  device,
  stream,
  coalesce(reached_ns, first_ns) AS start_ns,
  ts_ns - coalesce(reached_ns, first_ns) AS idle_ns,
  CASE
    WHEN reached_ns IS NULL THEN 'before_first'
    WHEN event_id IS NULL THEN 'after_last'
    WHEN call_ns > reached_ns THEN 'host_wait'
    WHEN is_missing THEN 'unknown'
    ELSE 'ready'
  END AS cause,
  (latest - reached_ns * 1099511627776::HUGEINT)::BIGINT AS before_id,
  event_id AS after_id,
  call_ns - coalesce(reached_ns, first_ns) AS call_late_ns
FROM turn
JOIN device_window USING (run_id, rank, device)
WHERE ts_ns > coalesce(reached_ns, first_ns)
