-- /// tw
-- kind     = "table"
-- name     = "memory_events"
-- version  = 1
-- summary  = "An allocation or a free that the profiler saw, and the totals after it."
-- requires = ["events@1", "memory_places@1", "owners@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "ts_ns", "event_id"]
--
-- [columns]
-- run_id                = { type = "VARCHAR", doc = "The run." }
-- rank                  = { type = "INTEGER", doc = "The rank." }
-- event_id              = { type = "BIGINT", unit = "id", doc = "The row." }
-- ts_ns                 = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "When." }
-- pid                   = { type = "VARCHAR", null = true, doc = "The process." }
-- tid                   = { type = "VARCHAR", null = true, doc = "The thread." }
-- device_type           = { type = "BIGINT", null = true, unit = "id", doc = "0 CPU, 1 CUDA, 6 HIP, as in c10::DeviceType." }
-- device                = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The device; -1 for the CPU." }
-- address               = { type = "BIGINT", null = true, unit = "id", doc = "Where; null in traces that do not say." }
-- bytes                 = { type = "BIGINT", null = true, signed = true, unit = "bytes", doc = "Bytes allocated; negative: freed." }
-- total_allocated_bytes = { type = "BIGINT", null = true, unit = "bytes", doc = "Allocated in all after it." }
-- total_reserved_bytes  = { type = "BIGINT", null = true, unit = "bytes", doc = "Reserved in all after it." }
-- event_index           = { type = "BIGINT", null = true, unit = "id", doc = "The profiler's number of the event, in the order in which they came." }
-- op_id                 = { type = "BIGINT", null = true, unit = "id", doc = "The innermost operator open at this time on its thread." }
-- step                  = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step at this time." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  memory AS (
    SELECT
      run_id,
      rank,
      event_id,
      ts_ns,
      pid,
      tid,
      device,
      bytes,
      step,
      json_transform(
        args,
        '{"Device Type": "BIGINT", "Addr": "BIGINT", "Total Allocated": "BIGINT", "Total Reserved": "BIGINT",
          "Ev Idx": "BIGINT", "Profiler Event Index": "BIGINT"}'
      ) AS arg
    FROM events
    WHERE name = '[memory]' AND ph IN ('i', 'I')
  ),
  memory_op AS (
    SELECT
      place.event_id,
      arg_max(op.event_id, op.pre) FILTER (op.end_ns > place.ts_ns) AS op_id
    FROM memory_places AS place
    JOIN owners AS op ON op.pre <= place.pre AND op.post >= place.pre
    WHERE op.is_op
    GROUP BY place.event_id
  )
SELECT
  memory.run_id,
  memory.rank,
  memory.event_id,
  memory.ts_ns,
  memory.pid,
  memory.tid,
  memory.arg."Device Type" AS device_type,
  memory.device,
  memory.arg."Addr" AS address,
  memory.bytes,
  memory.arg."Total Allocated" AS total_allocated_bytes,
  memory.arg."Total Reserved" AS total_reserved_bytes,
  coalesce(memory.arg."Ev Idx", memory.arg."Profiler Event Index") AS event_index,
  memory_op.op_id,
  memory.step
FROM memory
LEFT JOIN memory_op ON memory_op.event_id = memory.event_id
