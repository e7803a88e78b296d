-- /// tw
-- kind      = "table"
-- name      = "critical_start_dependencies"
-- version   = 1
-- summary   = "What a GPU activity had to wait for before it started."
-- requires  = ["critical_enqueues@1", "kernels@1", "correlations@1", "runtime@1", "syncs@1"]
-- derived   = "critical_path"
-- transient = true
-- grain     = ["run_id", "rank", "to_id", "from_id", "type"]
-- order     = ["run_id", "rank", "to_id", "from_id", "type"]
--
-- [params]
-- wait_ns = { type = "BIGINT", default = 30000, unit = "ns", min = 0, doc = "A delay up to this long is device latency; a longer one is a wait that must be explained." }
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- to_id    = { type = "BIGINT", unit = "id", doc = "The GPU activity that waited." }
-- from_id  = { type = "BIGINT", unit = "id", doc = "What it waited for: for a launch the host call, otherwise a GPU activity with a duration." }
-- type     = { type = "VARCHAR", doc = "launch; stream: the previous activity on its stream; graph: an activity of the same graph launch; wait: an activity that its stream waited for." }
-- evidence = { type = "VARCHAR", doc = "recorded by the profiler, or inferred: nothing else explains its start, and it started right after that activity ended." }
-- at_ns    = { type = "BIGINT", signed = true, unit = "ts", doc = "End of what it waited for; for a launch, the start of the call." }
-- explains = { type = "BOOLEAN", doc = "True if the activity started within wait_ns after that (for a launch, after the return of the call)." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  device_row AS (
    SELECT run_id, rank, event_id, device, stream, ts_ns, ts_ns + dur_ns AS end_ns
    FROM kernels
  ),
  -- An activity without duration delays nothing, so the graph has no cycles.
  stream_end AS (
    SELECT device, stream, end_ns, arg_max(event_id, (ts_ns, event_id)) AS event_id
    FROM device_row
    WHERE stream >= 0 AND end_ns > ts_ns
    GROUP BY device, stream, end_ns
  ),
  device_end AS (
    SELECT device, end_ns, arg_max(event_id, (ts_ns, event_id)) AS event_id
    FROM device_row
    WHERE end_ns > ts_ns
    GROUP BY device, end_ns
  ),
  graph_row AS (
    SELECT correlations.runtime_id, device_row.event_id, device_row.ts_ns, device_row.end_ns
    FROM correlations
    JOIN device_row ON device_row.event_id = correlations.kernel_id
    WHERE correlations.is_graph
  ),
  graph_end AS (
    SELECT runtime_id, end_ns, arg_max(event_id, (ts_ns, event_id)) AS event_id
    FROM graph_row
    WHERE end_ns > ts_ns
    GROUP BY runtime_id, end_ns
  ),
  stream_wait AS (
    SELECT
      syncs.device,
      syncs.stream,
      syncs.wait_on_stream,
      coalesce(call.ts_ns, syncs.ts_ns) AS call_ns,
      record_call.ts_ns AS record_ns
    FROM syncs
    JOIN runtime AS record_call ON record_call.correlation = syncs.wait_on_correlation
    LEFT JOIN runtime AS call ON call.event_id = syncs.runtime_id
    WHERE syncs.kind = 'Stream Wait Event' AND syncs.wait_on_correlation > 0 AND contains(record_call.name, 'EventRecord')
  ),
  timed_enqueue AS (
    -- An activity without duration ends with the work enqueued before it.
    SELECT device, stream, call_ns, last_id, last_ns
    FROM critical_enqueues
    WHERE last_id IS NOT NULL
  ),
  awaited AS (
    -- An event completes when the work enqueued on its stream before it completes.
    SELECT stream_wait.device, stream_wait.stream, stream_wait.call_ns, enqueue.last_id, enqueue.last_ns
    FROM stream_wait
    ASOF JOIN timed_enqueue AS enqueue
      ON enqueue.device = stream_wait.device AND enqueue.stream = stream_wait.wait_on_stream
      AND enqueue.call_ns < stream_wait.record_ns
  ),
  recorded AS (
    SELECT
      device_row.event_id AS to_id,
      call.event_id AS from_id,
      'launch' AS type,
      device_row.ts_ns,
      call.ts_ns AS at_ns,
      least(call.ts_ns + call.dur_ns, device_row.ts_ns) AS until_ns
    FROM device_row
    JOIN correlations ON correlations.kernel_id = device_row.event_id
    JOIN runtime AS call ON call.event_id = correlations.runtime_id
    WHERE call.ts_ns <= device_row.ts_ns
    UNION ALL
    SELECT device_row.event_id, stream_end.event_id, 'stream', device_row.ts_ns, stream_end.end_ns, stream_end.end_ns
    FROM device_row
    ASOF JOIN stream_end
      ON stream_end.device = device_row.device AND stream_end.stream = device_row.stream
      AND stream_end.end_ns <= device_row.ts_ns
    UNION ALL
    SELECT graph_row.event_id, graph_end.event_id, 'graph', graph_row.ts_ns, graph_end.end_ns, graph_end.end_ns
    FROM graph_row
    ASOF JOIN graph_end ON graph_end.runtime_id = graph_row.runtime_id AND graph_end.end_ns <= graph_row.ts_ns
    UNION ALL
    SELECT enqueue.first_id, awaited.last_id, 'wait', enqueue.first_ns, awaited.last_ns, awaited.last_ns
    FROM awaited
    ASOF JOIN critical_enqueues AS enqueue
      ON enqueue.device = awaited.device AND enqueue.stream = awaited.stream AND enqueue.call_ns >= awaited.call_ns
    WHERE awaited.last_ns <= enqueue.first_ns
  ),
  explained AS (
    SELECT to_id, arg_max(until_ns, (at_ns, until_ns)) AS until_ns
    FROM recorded
    GROUP BY to_id
  ),
  inferred AS (
    SELECT device_row.event_id AS to_id, device_end.event_id AS from_id, device_row.ts_ns, device_end.end_ns AS at_ns
    FROM device_row
    ASOF JOIN device_end ON device_end.device = device_row.device AND device_end.end_ns <= device_row.ts_ns
    LEFT JOIN explained ON explained.to_id = device_row.event_id
    WHERE device_row.ts_ns - device_end.end_ns <= $wait_ns AND (
      explained.until_ns IS NULL
      OR device_row.ts_ns - explained.until_ns > $wait_ns AND device_end.end_ns > explained.until_ns
    )
  ),
  link AS (
    SELECT to_id, from_id, type, 'recorded' AS evidence, at_ns, ts_ns - until_ns <= $wait_ns AS explains
    FROM recorded
    UNION ALL
    SELECT to_id, from_id, 'wait' AS type, 'inferred' AS evidence, at_ns, TRUE AS explains
    FROM inferred
  )
SELECT DISTINCT
  device_row.run_id,
  device_row.rank,
  link.to_id,
  link.from_id,
  link.type,
  link.evidence,
  link.at_ns,
  link.explains
FROM link
JOIN device_row ON device_row.event_id = link.to_id
