-- /// tw
-- kind      = "table"
-- name      = "launches"
-- version   = 1
-- summary   = "A GPU row and the host call that launched it, or why none is known."
-- requires  = ["parsed@1", "categories@1", "calls@1", "flow_places@1"]
-- grain     = ["run_id", "rank", "kernel_id"]
-- order     = ["run_id", "rank", "kernel_id"]
-- transient = true
--
-- [params]
-- farthest_ns = { type = "BIGINT", default = 100000000000000, unit = "ns", min = 1, doc = "A call farther than this (28 hours) from the GPU row did not launch it, or a clock was not set: what lies between is no time." }
--
-- [columns]
-- run_id       = { type = "VARCHAR", doc = "The run." }
-- rank         = { type = "INTEGER", doc = "The rank." }
-- kernel_id    = { type = "BIGINT", unit = "id", doc = "The GPU row." }
-- device       = { type = "BIGINT", unit = "id", signed = true, doc = "Its device; -1 where the trace does not say." }
-- stream       = { type = "BIGINT", unit = "id", signed = true, doc = "Its stream; -1 where the trace does not say." }
-- runtime_id   = { type = "BIGINT", null = true, unit = "id", doc = "The host call." }
-- call_ts_ns   = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "Start of the host call." }
-- launch_state = { type = "VARCHAR", doc = "linked; before_window: it starts before the first linked row of its stream; missing." }
-- is_graph     = { type = "BOOLEAN", null = true, doc = "The host call launches a graph, so one call has many GPU rows; null where no call is known." }
-- via          = { type = "VARCHAR", null = true, doc = "What links the two: correlation, or flow where the row has no id." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  device_row AS (
    SELECT
      run_id,
      rank,
      event_id,
      coalesce(device, -1) AS device,
      coalesce(stream, -1) AS stream,
      ts_ns,
      CASE WHEN correlation > 0 THEN correlation END AS correlation
    FROM parsed
    WHERE ph IN ('X', 'B') AND dur_ns IS NOT NULL
      AND category IN (SELECT category FROM categories WHERE role = 'device')
  ),
  numbered_call AS (
    SELECT
      event_id,
      correlation,
      ts_ns,
      end_ns,
      max(end_ns) OVER (
        PARTITION BY correlation ORDER BY ts_ns, end_ns DESC, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS earlier_end_ns
    FROM calls
    SEMI JOIN device_row ON device_row.correlation = calls.correlation
  ),
  by_correlation AS (
    -- Of calls that share an id the outermost; of several of those the last one before the GPU row.
    SELECT device_row.event_id AS kernel_id, call.event_id AS runtime_id
    FROM device_row
    JOIN numbered_call AS call ON call.correlation = device_row.correlation
    WHERE (call.earlier_end_ns IS NULL OR call.earlier_end_ns < call.end_ns)
      AND abs(device_row.ts_ns::HUGEINT - call.ts_ns) <= $farthest_ns
    QUALIFY row_number() OVER (
      PARTITION BY device_row.event_id
      ORDER BY call.ts_ns > device_row.ts_ns, abs(device_row.ts_ns - call.ts_ns), call.event_id
    ) = 1
  ),
  by_flow AS (
    SELECT
      place.kernel_id,
      arg_max(call.event_id, call.pre) FILTER (call.end_ns >= place.ts_ns) AS runtime_id
    FROM flow_places AS place
    JOIN calls AS call ON call.pre <= place.pre AND call.post >= place.pre
    GROUP BY place.kernel_id
  ),
  link AS (
    SELECT kernel_id, runtime_id, 'correlation' AS via
    FROM by_correlation
    UNION ALL
    SELECT kernel_id, runtime_id, 'flow' AS via
    FROM by_flow
    WHERE runtime_id IS NOT NULL
  ),
  linked AS (
    SELECT
      device_row.run_id,
      device_row.rank,
      device_row.event_id AS kernel_id,
      device_row.device,
      device_row.stream,
      device_row.ts_ns,
      link.runtime_id,
      call.ts_ns AS call_ts_ns,
      contains(call.name, 'GraphLaunch') AS is_graph,
      link.via,
      min(device_row.ts_ns) FILTER (link.runtime_id IS NOT NULL) OVER (
        PARTITION BY device_row.device, device_row.stream
      ) AS first_linked_ns
    FROM device_row
    LEFT JOIN link ON link.kernel_id = device_row.event_id
    LEFT JOIN calls AS call ON call.event_id = link.runtime_id
  )
SELECT
  run_id,
  rank,
  kernel_id,
  device,
  stream,
  runtime_id,
  call_ts_ns,
  CASE
    WHEN runtime_id IS NOT NULL THEN 'linked'
    WHEN ts_ns < first_linked_ns THEN 'before_window'
    ELSE 'missing'
  END AS launch_state,
  is_graph,
  via
FROM linked
