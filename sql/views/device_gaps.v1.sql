-- /// tw
-- kind     = "view"
-- name     = "device_gaps"
-- version  = 1
-- summary  = "Idle intervals of each device with their parts, and the GPU activities before and after."
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
-- host_ns         = { type = "BIGINT", unit = "ns", doc = "Until the earliest launch of any activity of the device that is pending when the gap ends. The four parts sum to idle_ns, unless the cause is graph or unknown: then they are 0." }
-- call_ns         = { type = "BIGINT", unit = "ns", doc = "Until that call returned." }
-- latency_ns      = { type = "BIGINT", unit = "ns", doc = "Until an activity usually starts after its call returned, by the median of the rank over calls on an idle stream." }
-- queued_ns       = { type = "BIGINT", unit = "ns", doc = "The rest: the activity waited for other work, the device, or something that was not recorded." }
-- cause           = { type = "VARCHAR", doc = "graph: between two activities of one graph launch; unknown: the launch of the next activity is missing from the trace, and nothing else was pending; otherwise the longest part: host, call, latency or queued, the first of equal ones." }
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
      kernels.launch_state,
      CASE WHEN correlations.is_graph THEN kernels.runtime_id END AS graph_launch_id,
      kernels.ts_ns - correlations.call_to_start_ns AS call_ns,
      kernels.ts_ns - correlations.return_to_start_ns AS return_ns,
      greatest(correlations.return_to_start_ns, 0) AS latency_ns,
      -- stream_idle_ns is 0 where activities overlap, which does not matter if this one starts after its call.
      kernels.launch_to_start_ns > 0 AND coalesce(kernels.stream_idle_ns >= kernels.launch_to_start_ns, TRUE) AS on_idle_stream
    FROM kernels
    LEFT JOIN correlations
      ON correlations.run_id = kernels.run_id
      AND correlations.rank = kernels.rank
      AND correlations.kernel_id = kernels.event_id
  ),
  usual AS (
    SELECT run_id, rank, coalesce(quantile_disc(latency_ns, 0.5) FILTER (on_idle_stream), 0) AS latency_ns
    FROM launched
    GROUP BY run_id, rank
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
      graph_launch_id,
      max(end_ns) OVER earlier AS reached_ns,
      -- Packs the latest end and the activity that has it into one number: event IDs are below 2 to the 40th.
      max(end_ns * 1099511627776::HUGEINT + event_id) OVER earlier AS latest,
      -- Packs the earliest call and its duration. What was launched before the recording has the first of all.
      min(
        CASE
          WHEN launch_state = 'before_window' THEN -(1::HUGEINT << 104)
          ELSE call_ns * 1099511627776::HUGEINT + least(return_ns - call_ns, 1099511627775)
        END
      ) OVER onwards AS earliest
    FROM launched
    WINDOW
      earlier AS (
        PARTITION BY run_id, rank, device
        ORDER BY ts_ns, end_ns, call_ns, stream, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ),
      onwards AS (
        PARTITION BY run_id, rank, device
        ORDER BY ts_ns, end_ns, call_ns, stream, event_id
        ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
      )
  ),
  gap AS (
    SELECT
      reached.run_id,
      reached.rank,
      reached.device,
      reached.reached_ns AS start_ns,
      reached.ts_ns - reached.reached_ns AS idle_ns,
      (reached.latest - reached.reached_ns * 1099511627776::HUGEINT)::BIGINT AS before_id,
      reached.event_id AS after_id,
      reached.call_ns - reached.reached_ns AS launch_delay_ns,
      reached.graph_launch_id,
      -- When the call begins, when it returns, and when the activity usually starts, within the gap.
      greatest(least(coalesce(reached.earliest >> 40, reached.ts_ns), reached.ts_ns) - reached.reached_ns, 0)::BIGINT AS begins_ns,
      greatest(least((reached.earliest >> 40) + (reached.earliest & 1099511627775), reached.ts_ns) - reached.reached_ns, 0)::BIGINT AS returns_ns,
      greatest(
        least((reached.earliest >> 40) + (reached.earliest & 1099511627775) + usual.latency_ns, reached.ts_ns) - reached.reached_ns,
        0
      )::BIGINT AS starts_ns,
      reached.launch_state = 'missing' AND begins_ns > 0 AS is_unknown
    FROM reached
    JOIN usual USING (run_id, rank)
    WHERE reached.ts_ns > reached.reached_ns
  ),
  divided AS (
    SELECT
      gap.run_id,
      gap.rank,
      gap.device,
      gap.start_ns,
      gap.idle_ns,
      CASE
        WHEN gap.graph_launch_id = row_before.graph_launch_id THEN 'graph'
        WHEN gap.is_unknown THEN 'unknown'
      END AS whole,
      CASE
        WHEN whole IS NULL THEN [gap.begins_ns, gap.returns_ns - gap.begins_ns, gap.starts_ns - gap.returns_ns, gap.idle_ns - gap.starts_ns]
        ELSE [0, 0, 0, 0]
      END AS parts,
      gap.before_id,
      gap.after_id,
      gap.launch_delay_ns
    FROM gap
    JOIN launched AS row_before
      ON row_before.run_id = gap.run_id AND row_before.rank = gap.rank AND row_before.event_id = gap.before_id
  )
SELECT
  run_id,
  rank,
  device,
  start_ns,
  idle_ns,
  parts[1] AS host_ns,
  parts[2] AS call_ns,
  parts[3] AS latency_ns,
  parts[4] AS queued_ns,
  coalesce(whole, ['host', 'call', 'latency', 'queued'][list_position(parts, list_max(parts))]) AS cause,
  before_id,
  after_id,
  launch_delay_ns
FROM divided
