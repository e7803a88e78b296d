-- /// tw
-- kind     = "table"
-- name     = "runtime"
-- version  = 1
-- summary  = "A host call of the CUDA, HIP, MTIA or another runtime or driver."
-- requires = ["calls@1", "launches@1", "events@1", "call_rules@1", "around@1", "owners@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
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
      arg_max(op.event_id, op.pre) FILTER (op.end_ns > calls.ts_ns) AS op_id
    FROM calls
    JOIN around ON around.call_id = calls.event_id
    JOIN owners AS op ON op.event_id = around.owner_id
    WHERE op.is_op
    GROUP BY calls.event_id
  ),
  named AS (
    SELECT
      call.name,
      bool_or(call_rules.action = 'launch') AS is_launch,
      bool_or(call_rules.action = 'sync') AS is_sync
    FROM (SELECT DISTINCT name FROM calls) AS call
    JOIN call_rules ON regexp_matches(call.name, call_rules.pattern)
    GROUP BY call.name
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
    OR coalesce(named.is_launch, FALSE) AS is_launch,
  coalesce(named.is_sync, FALSE) AS is_sync,
  call_op.op_id,
  events.step
FROM calls
JOIN events ON events.event_id = calls.event_id
LEFT JOIN named ON named.name = calls.name
LEFT JOIN call_op ON call_op.event_id = calls.event_id
