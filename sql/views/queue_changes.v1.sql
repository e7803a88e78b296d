-- /// tw
-- kind     = "view"
-- name     = "queue_changes"
-- version  = 1
-- summary  = "Each time the queue of a stream grows by a GPU row that the host launches, or shrinks by one that starts."
-- requires = ["kernels@1", "correlations@1"]
-- grain    = ["run_id", "rank", "device", "stream", "event_id", "change"]
-- order    = ["run_id", "rank", "device", "stream", "ts_ns", "-change", "event_id"]
--
-- [columns]
-- run_id       = { type = "VARCHAR", doc = "The run." }
-- rank         = { type = "INTEGER", doc = "The rank." }
-- device       = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 where the trace does not say." }
-- stream       = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 where the trace does not say." }
-- event_id     = { type = "BIGINT", unit = "id", doc = "The GPU row." }
-- ts_ns        = { type = "BIGINT", unit = "ts", signed = true, doc = "When: the start of the host call, or of the GPU row. A row that starts before its call does (the clocks disagree) is launched when it starts." }
-- change       = { type = "INTEGER", unit = "count", signed = true, doc = "1 where a row is launched, -1 where one starts; a graph launch has one change for each of its rows. Rows without a known launch have none." }
-- queue_length = { type = "BIGINT", unit = "count", doc = "Rows launched and not started, after this change; 0 before the first. Of changes at one moment all launches come before all starts, and first what starts first." }
-- held_ns      = { type = "BIGINT", unit = "ns", doc = "Time until the next change of the stream; 0 for the last one, which leaves the queue empty." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  queued AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.device,
      kernels.stream,
      kernels.event_id,
      kernels.ts_ns - greatest(correlations.call_to_start_ns, 0) AS launched_ns,
      kernels.ts_ns AS started_ns
    FROM kernels
    JOIN correlations
      ON correlations.run_id = kernels.run_id
      AND correlations.rank = kernels.rank
      AND correlations.kernel_id = kernels.event_id
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
-- An empty OVER takes rows as they come, without a sort of its own: each stream leaves its queue empty, so the
-- sum begins anew with the next one.
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
  END AS held_ns
FROM in_turn
