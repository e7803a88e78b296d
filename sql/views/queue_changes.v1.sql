-- /// tw
-- kind     = "view"
-- name     = "queue_changes"
-- version  = 1
-- summary  = "Queue depth changes per stream: launch (+1) and start (-1) of each GPU activity."
-- requires = ["kernels@1"]
-- grain    = ["run_id", "rank", "device", "stream", "event_id", "change"]
-- order    = ["run_id", "rank", "device", "stream", "ts_ns", "-change", "event_id"]
--
-- [columns]
-- run_id       = { type = "VARCHAR", doc = "The run." }
-- rank         = { type = "INTEGER", doc = "The rank." }
-- device       = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- stream       = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 if unknown." }
-- event_id     = { type = "BIGINT", unit = "id", doc = "The GPU activity." }
-- ts_ns        = { type = "BIGINT", unit = "ts", signed = true, doc = "Time of the change: start of the host call for a launch, start of the activity otherwise. An activity that starts before its call (the clocks disagree) counts as launched when it starts." }
-- change       = { type = "INTEGER", unit = "count", signed = true, doc = "1 for a launch, -1 for a start; a graph launch has one change per activity. Activities without a known launch are excluded." }
-- queue_length = { type = "BIGINT", unit = "count", doc = "Activities launched but not yet started, after this change; 0 before the first. At the same time, launches come before starts, in the order in which the activities start." }
-- dur_ns       = { type = "BIGINT", unit = "ns", doc = "Time until the stream's next change; 0 for the last one, which empties the queue." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  queued AS (
    SELECT
      run_id,
      rank,
      device,
      stream,
      event_id,
      ts_ns - greatest(launch_to_start_ns, 0) AS launched_ns,
      ts_ns AS started_ns
    FROM kernels
    WHERE launch_to_start_ns IS NOT NULL
  ),
  happening AS (
    SELECT run_id, rank, device, stream, event_id, launched_ns AS ts_ns, 1 AS change, started_ns
    FROM queued
    UNION ALL
    SELECT run_id, rank, device, stream, event_id, started_ns AS ts_ns, -1 AS change, started_ns
    FROM queued
  ),
  in_turn AS (
    SELECT run_id, rank, device, stream, event_id, ts_ns, change
    FROM happening
    ORDER BY run_id, rank, device, stream, ts_ns, change DESC, started_ns, event_id
  )
-- An empty OVER takes rows in their current order, without another sort. Each stream ends with an empty
-- queue, so the sum restarts at 0 with the next one.
SELECT
  run_id,
  rank,
  device,
  stream,
  event_id,
  ts_ns,
  change,
  (sum(change) OVER (ROWS UNBOUNDED PRECEDING))::BIGINT AS queue_length,
  CASE
    WHEN (lead(run_id) OVER (), lead(rank) OVER (), lead(device) OVER (), lead(stream) OVER ())
      = (run_id, rank, device, stream) THEN lead(ts_ns) OVER () - ts_ns
    ELSE 0
  END AS dur_ns
FROM in_turn
