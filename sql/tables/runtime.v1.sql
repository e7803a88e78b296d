-- /// tw
-- kind     = "table"
-- name     = "runtime"
-- version  = 1
-- summary  = "A host call of the CUDA, HIP, MTIA or another runtime or driver."
-- requires = ["calls@1", "launches@1", "events@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
--
-- [params]
-- launch_pattern = { type = "VARCHAR", default = "(?i)launch.*kernel|graphlaunch|memcpy|memset|^runFunction", doc = "Names of calls that put work on a device (RE2)." }
-- sync_pattern   = { type = "VARCHAR", default = "(?i)synchronize", doc = "Names of calls that wait (RE2)." }
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank." }
-- event_id    = { type = "BIGINT", unit = "id", doc = "The call." }
-- api         = { type = "VARCHAR", doc = "Whose call it is: cuda_runtime (HIP too), cuda_driver, mtia_runtime, …." }
-- name        = { type = "VARCHAR", null = true, doc = "The function." }
-- correlation = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "Id shared with what it launched." }
-- pid         = { type = "VARCHAR", null = true, doc = "The process." }
-- tid         = { type = "VARCHAR", null = true, doc = "The thread." }
-- ts_ns       = { type = "BIGINT", signed = true, unit = "ts", doc = "Start." }
-- dur_ns      = { type = "BIGINT", unit = "ns", doc = "Length." }
-- is_launch   = { type = "BOOLEAN", doc = "A GPU row of this trace is linked to it, or its name says that it launches, copies or sets." }
-- is_sync     = { type = "BOOLEAN", doc = "Its name says that it waits for the device, a stream or an event." }
-- op_id       = { type = "BIGINT", null = true, unit = "id", doc = "The innermost operator around it." }
-- step        = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step that holds its start." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  call_op AS (
    SELECT
      calls.event_id,
      arg_max(op.event_id, op.pre) FILTER (op.ts_ns + op.dur_ns > calls.ts_ns) AS op_id
    FROM calls
    JOIN events AS op ON op.pre < calls.pre AND op.post >= calls.pre
    WHERE op.category = 'cpu_op'
    GROUP BY calls.event_id
  )
SELECT
  calls.run_id,
  calls.rank,
  calls.event_id,
  calls.api,
  calls.name,
  calls.correlation,
  calls.pid,
  calls.tid,
  calls.ts_ns,
  calls.end_ns - calls.ts_ns AS dur_ns,
  calls.event_id IN (SELECT runtime_id FROM launches WHERE runtime_id IS NOT NULL)
    OR coalesce(regexp_matches(calls.name, $launch_pattern), FALSE) AS is_launch,
  coalesce(regexp_matches(calls.name, $sync_pattern), FALSE) AS is_sync,
  call_op.op_id,
  events.step
FROM calls
JOIN events ON events.event_id = calls.event_id
LEFT JOIN call_op ON call_op.event_id = calls.event_id
