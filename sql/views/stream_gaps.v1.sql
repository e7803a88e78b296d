-- /// tw
-- kind     = "view"
-- name     = "stream_gaps"
-- version  = 1
-- summary  = "Idle intervals of each stream within its device's GPU window, with the activities before and after."
-- requires = ["kernels@1", "correlations@1"]
-- grain    = ["run_id", "rank", "device", "stream", "start_ns"]
-- order    = ["run_id", "rank", "device", "stream", "start_ns"]
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- device          = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- stream          = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 if unknown." }
-- start_ns        = { type = "BIGINT", unit = "ts", signed = true, doc = "Start of the gap: the latest end of the stream's earlier activities, or the start of the device's GPU window." }
-- idle_ns         = { type = "BIGINT", unit = "ns", doc = "Duration of the gap; always positive. Activities that touch or overlap leave no gap; a zero-length activity splits a gap in two." }
-- cause           = { type = "VARCHAR", doc = "before_first: from the start of the device's GPU window to the stream's first activity; after_last: from its last activity to the end of the window; host_wait: the next activity was launched after the gap began; ready: it was launched at or before the start of the gap (including before the recording); unknown: its launch is missing from the trace." }
-- before_id       = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the stream's activity that ends where the gap begins; if several do, the last in the file. Null before the first activity." }
-- after_id        = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the stream's activity that ends the gap; if several start together, the first by end, launch and position in the file. Null after the last activity." }
-- launch_delay_ns = { type = "BIGINT", unit = "ns", null = true, signed = true, doc = "Start of the host call that launched the next activity, minus start_ns; null if there is no next activity or its launch is unknown." }
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
      -- Packs the latest end and the activity that has it into one number: event IDs are below 2 to the 40th.
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
    -- Each activity, and the end of the window after the last one.
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
  call_ns - coalesce(reached_ns, first_ns) AS launch_delay_ns
FROM turn
JOIN device_window USING (run_id, rank, device)
WHERE ts_ns > coalesce(reached_ns, first_ns)
