-- /// tw
-- kind     = "view"
-- name     = "device_gaps"
-- version  = 1
-- summary  = "Idle intervals of each device, with the GPU activities before and after."
-- requires = ["kernels@1", "correlations@1"]
-- grain    = ["run_id", "rank", "device", "start_ns"]
-- order    = ["run_id", "rank", "device", "start_ns"]
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- device          = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- start_ns        = { type = "BIGINT", unit = "ts", signed = true, doc = "Start of the gap: the latest end of all earlier activities." }
-- idle_ns         = { type = "BIGINT", unit = "ns", doc = "Duration of the gap; always positive. Activities that touch leave no gap; a zero-length activity splits a gap in two." }
-- cause           = { type = "VARCHAR", doc = "host_wait: the next activity was launched after the gap began; ready: it was launched at or before the start of the gap (including before the recording); unknown: its launch is missing from the trace." }
-- before_id       = { type = "BIGINT", unit = "id", doc = "event_id of the GPU activity that ends where the gap begins; if several do, the last in the file." }
-- after_id        = { type = "BIGINT", unit = "id", doc = "event_id of the GPU activity that ends the gap; if several start together, the first by end, launch, stream and position in the file." }
-- launch_delay_ns = { type = "BIGINT", unit = "ns", null = true, signed = true, doc = "Start of the host call that launched the next activity, minus start_ns; null if the launch is unknown." }
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
      -- Packs the latest end and the activity that has it into one number: event IDs are below 2 to the 40th.
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
  call_ns - reached_ns AS launch_delay_ns
FROM reached
WHERE ts_ns > reached_ns
