-- /// tw
-- kind      = "table"
-- name      = "critical_enqueues"
-- version   = 1
-- summary   = "Work enqueued on a stream by one host call."
-- requires  = ["kernels@1", "correlations@1", "runtime@1"]
-- derived   = "critical_path"
-- transient = true
-- grain     = ["run_id", "rank", "device", "stream", "call_ns"]
-- order     = ["run_id", "rank", "device", "stream", "call_ns"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- device   = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- stream   = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 if unknown." }
-- call_ns  = { type = "BIGINT", signed = true, unit = "ts", doc = "Start of the call; calls that start at the same instant count as one." }
-- pid      = { type = "VARCHAR", null = true, doc = "Process of the call." }
-- tid      = { type = "VARCHAR", null = true, doc = "Thread of the call." }
-- first_id = { type = "BIGINT", unit = "id", doc = "The GPU activity that started first." }
-- first_ns = { type = "BIGINT", signed = true, unit = "ts", doc = "Its start." }
-- last_id  = { type = "BIGINT", unit = "id", null = true, doc = "The GPU activity with a duration that ended last; null if there is none." }
-- last_ns  = { type = "BIGINT", signed = true, unit = "ts", null = true, doc = "Its end." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  kernels.run_id,
  kernels.rank,
  kernels.device,
  kernels.stream,
  call.ts_ns AS call_ns,
  min(call.pid) AS pid,
  min(call.tid) AS tid,
  arg_min(kernels.event_id, (kernels.ts_ns, kernels.event_id)) AS first_id,
  min(kernels.ts_ns) AS first_ns,
  arg_max(kernels.event_id, (kernels.ts_ns + kernels.dur_ns, kernels.event_id)) FILTER (kernels.dur_ns > 0) AS last_id,
  max(kernels.ts_ns + kernels.dur_ns) FILTER (kernels.dur_ns > 0) AS last_ns
FROM kernels
JOIN correlations ON correlations.kernel_id = kernels.event_id
JOIN runtime AS call ON call.event_id = correlations.runtime_id
GROUP BY kernels.run_id, kernels.rank, kernels.device, kernels.stream, call.ts_ns
