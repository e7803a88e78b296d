-- /// tw
-- kind     = "view"
-- name     = "stream_gaps"
-- version  = 1
-- summary  = "Idle intervals of each stream within its device's GPU window with HTA's causes, and the activities before and after."
-- requires = ["kernels@1"]
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
  stream_window AS (
    SELECT
      run_id,
      rank,
      device,
      stream,
      min(ts_ns) AS first_ns,
      max(ts_ns + dur_ns) AS last_ns,
      -- Packs the latest end and the activity that has it into one number: event IDs are below 2 to the 40th.
      max((ts_ns + dur_ns) * 1099511627776::HUGEINT + event_id) AS latest
    FROM kernels
    GROUP BY run_id, rank, device, stream
  ),
  device_window AS (
    SELECT run_id, rank, device, min(first_ns) AS first_ns, max(last_ns) AS last_ns
    FROM stream_window
    GROUP BY run_id, rank, device
  ),
  activity AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.device,
      kernels.stream,
      kernels.event_id,
      kernels.stream_previous_id,
      kernels.stream_idle_ns IS NULL AS is_first,
      kernels.ts_ns - coalesce(kernels.stream_idle_ns, kernels.ts_ns - device_window.first_ns) AS start_ns,
      coalesce(kernels.stream_idle_ns, kernels.ts_ns - device_window.first_ns) AS idle_ns,
      kernels.ts_ns - kernels.launch_to_start_ns AS call_ns,
      kernels.launch_state = 'missing' AS is_missing
    FROM kernels
    JOIN device_window USING (run_id, rank, device)
    WHERE kernels.stream_idle_ns IS NULL OR kernels.stream_idle_ns > 0
  )
SELECT
  run_id,
  rank,
  device,
  stream,
  start_ns,
  idle_ns,
  CASE
    WHEN is_first THEN 'before_first'
    WHEN call_ns > start_ns THEN 'host_wait'
    WHEN is_missing THEN 'unknown'
    ELSE 'ready'
  END AS cause,
  stream_previous_id AS before_id,
  event_id AS after_id,
  call_ns - start_ns AS launch_delay_ns
FROM activity
WHERE idle_ns > 0
UNION ALL
SELECT
  stream_window.run_id,
  stream_window.rank,
  stream_window.device,
  stream_window.stream,
  stream_window.last_ns AS start_ns,
  device_window.last_ns - stream_window.last_ns AS idle_ns,
  'after_last' AS cause,
  (stream_window.latest - stream_window.last_ns * 1099511627776::HUGEINT)::BIGINT AS before_id,
  NULL AS after_id,
  NULL AS launch_delay_ns
FROM stream_window
JOIN device_window USING (run_id, rank, device)
WHERE device_window.last_ns > stream_window.last_ns
