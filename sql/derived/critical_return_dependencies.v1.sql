-- /// tw
-- kind      = "table"
-- name      = "critical_return_dependencies"
-- version   = 1
-- summary   = "What a blocking host call waited for before it returned."
-- requires  = ["critical_enqueues@1", "kernels@1", "correlations@1", "runtime@1", "syncs@1"]
-- derived   = "critical_path"
-- transient = true
-- grain     = ["run_id", "rank", "call_id"]
-- order     = ["run_id", "rank", "call_id"]
--
-- [params]
-- wait_ns = { type = "BIGINT", default = 30000, unit = "ns", min = 0, doc = "A blocking call up to this long that nothing explains did not wait; a longer one waited for something unknown." }
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- call_id  = { type = "BIGINT", unit = "id", doc = "The host call." }
-- from_id  = { type = "BIGINT", unit = "id", null = true, doc = "The GPU activity that it waited for: the last to end within the call. Null if nothing explains a long wait." }
-- evidence = { type = "VARCHAR", doc = "recorded by the profiler; name: a call of that name waits for all work enqueued on its device before, or for its own copy; inferred: the stream is the one on which its thread last enqueued work." }
-- at_ns    = { type = "BIGINT", signed = true, unit = "ts", null = true, doc = "End of that activity." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  waiter AS (
    SELECT
      run_id,
      rank,
      event_id AS call_id,
      pid,
      tid,
      ts_ns,
      ts_ns + dur_ns AS end_ns,
      regexp_matches(name, '(?i)(device|ctx|context)synchronize') AS waits_for_all
    FROM runtime
    WHERE is_sync
  ),
  recorded AS (
    SELECT
      waiter.call_id,
      syncs.kind,
      syncs.device,
      CASE syncs.kind WHEN 'Event Sync' THEN syncs.wait_on_stream ELSE syncs.stream END AS stream,
      CASE syncs.kind WHEN 'Event Sync' THEN record_call.ts_ns ELSE waiter.ts_ns END AS before_ns
    FROM waiter
    JOIN syncs ON syncs.runtime_id = waiter.call_id
    LEFT JOIN runtime AS record_call
      ON record_call.correlation = syncs.wait_on_correlation AND record_call.correlation > 0 AND contains(record_call.name, 'EventRecord')
    WHERE syncs.kind IN ('Context Sync', 'Stream Sync', 'Event Sync')
  ),
  lane AS (
    SELECT DISTINCT device, stream
    FROM kernels
  ),
  -- Activities launched before the recording were enqueued before any call.
  early_end AS (
    SELECT device, stream, ts_ns + dur_ns AS end_ns, arg_max(event_id, (ts_ns, event_id)) AS event_id
    FROM kernels
    WHERE launch_state = 'before_window' AND dur_ns > 0
    GROUP BY device, stream, ts_ns + dur_ns
  ),
  thread_enqueue AS (
    -- In a tuple comparison NULL is the greatest value; activities without duration come last.
    SELECT
      pid,
      tid,
      call_ns,
      arg_max(struct_pack(device, stream), (last_ns IS NOT NULL, last_ns, device, stream)) AS lane
    FROM critical_enqueues
    GROUP BY pid, tid, call_ns
  ),
  timed_enqueue AS (
    -- An activity without duration ends with the work enqueued before it.
    SELECT device, stream, call_ns, last_id, last_ns
    FROM critical_enqueues
    WHERE last_id IS NOT NULL
  ),
  target AS (
    SELECT call_id, device, stream, before_ns, 'recorded' AS evidence
    FROM recorded
    WHERE kind <> 'Context Sync'
    UNION ALL
    SELECT recorded.call_id, lane.device, lane.stream, recorded.before_ns, 'recorded' AS evidence
    FROM recorded
    JOIN lane USING (device)
    WHERE recorded.kind = 'Context Sync'
    UNION ALL
    SELECT waiter.call_id, lane.device, lane.stream, waiter.ts_ns AS before_ns, 'name' AS evidence
    FROM waiter
    CROSS JOIN lane
    WHERE waiter.waits_for_all AND waiter.call_id NOT IN (SELECT call_id FROM recorded)
    UNION ALL
    SELECT waiter.call_id, enqueue.lane.device, enqueue.lane.stream, waiter.ts_ns AS before_ns, 'inferred' AS evidence
    FROM waiter
    ASOF JOIN thread_enqueue AS enqueue
      ON enqueue.pid = waiter.pid AND enqueue.tid = waiter.tid AND enqueue.call_ns < waiter.ts_ns
    WHERE NOT waiter.waits_for_all AND waiter.call_id NOT IN (SELECT call_id FROM recorded)
  ),
  awaited AS (
    SELECT target.call_id, enqueue.last_id AS from_id, target.evidence, enqueue.last_ns AS at_ns
    FROM target
    ASOF JOIN timed_enqueue AS enqueue
      ON enqueue.device = target.device AND enqueue.stream = target.stream AND enqueue.call_ns < target.before_ns
    UNION ALL
    SELECT target.call_id, early_end.event_id AS from_id, target.evidence, early_end.end_ns AS at_ns
    FROM target
    JOIN waiter USING (call_id)
    ASOF JOIN early_end
      ON early_end.device = target.device AND early_end.stream = target.stream AND early_end.end_ns <= waiter.end_ns
    UNION ALL
    -- A copy that is not asynchronous, or from or to pageable memory, and ended before its call returned.
    SELECT call.event_id AS call_id, kernels.event_id AS from_id, 'name' AS evidence, kernels.ts_ns + kernels.dur_ns AS at_ns
    FROM kernels
    JOIN correlations ON correlations.kernel_id = kernels.event_id
    JOIN runtime AS call ON call.event_id = correlations.runtime_id
    WHERE kernels.activity = 'memcpy' AND kernels.dur_ns > 0
      AND (NOT contains(call.name, 'Async') OR contains(kernels.name, 'ageable'))
  ),
  explained AS (
    SELECT
      call.event_id AS call_id,
      arg_max(struct_pack(from_id := awaited.from_id, evidence := awaited.evidence), (awaited.at_ns, awaited.from_id)) AS last,
      max(awaited.at_ns) AS at_ns
    FROM awaited
    JOIN runtime AS call ON call.event_id = awaited.call_id
    WHERE awaited.at_ns > call.ts_ns AND awaited.at_ns <= call.ts_ns + call.dur_ns
    GROUP BY call.event_id
  )
SELECT
  runtime.run_id,
  runtime.rank,
  runtime.event_id AS call_id,
  explained.last.from_id AS from_id,
  coalesce(explained.last.evidence, 'inferred') AS evidence,
  explained.at_ns
FROM runtime
LEFT JOIN explained ON explained.call_id = runtime.event_id
WHERE explained.call_id IS NOT NULL OR runtime.is_sync AND runtime.dur_ns > $wait_ns
