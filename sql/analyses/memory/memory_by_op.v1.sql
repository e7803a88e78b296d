-- /// tw
-- kind     = "analysis"
-- name     = "memory_by_op"
-- version  = 1
-- summary  = "Memory that each operator allocated and freed, and the net change."
-- requires = ["memory_changes@1", "events@1"]
-- needs    = ["memory_events"]
-- grain    = ["run_id", "rank", "device_type", "device", "op"]
-- order    = ["run_id", "rank", "-device_type", "device", "-allocated_bytes", "op"]
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- device_type     = { type = "BIGINT", null = true, unit = "id", doc = "0 CPU, 1 CUDA, 6 HIP, as in c10::DeviceType." }
-- device          = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The device; -1 for the CPU." }
-- op              = { type = "VARCHAR", null = true, doc = "Name of the innermost operator open on the thread at that time; operators nested in it count separately. Null outside all operators, for example for frees by Python or the autograd engine." }
-- calls           = { type = "BIGINT", unit = "count", doc = "Operator calls that allocated or freed; 0 for null." }
-- allocations     = { type = "BIGINT", unit = "count", better = "lower", doc = "Number of events with 0 bytes or more." }
-- frees           = { type = "BIGINT", unit = "count", doc = "Number of events with negative bytes. A free counts where it happens, not where the memory was allocated." }
-- allocated_bytes = { type = "BIGINT", unit = "bytes", better = "lower", doc = "Bytes allocated." }
-- freed_bytes     = { type = "BIGINT", unit = "bytes", doc = "Bytes freed." }
-- net_bytes       = { type = "BIGINT", signed = true, unit = "bytes", better = "lower", doc = "allocated_bytes minus freed_bytes; the operators of a device sum to net_bytes of memory_peak." }
-- largest_bytes   = { type = "BIGINT", null = true, unit = "bytes", better = "lower", doc = "Largest allocation; null if there is none." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  op_change AS (
    SELECT
      change.run_id,
      change.rank,
      change.device_type,
      change.device,
      change.op_id,
      change.bytes,
      events.name AS op
    FROM memory_changes AS change
    LEFT JOIN events
      ON events.run_id = change.run_id AND events.rank = change.rank AND events.event_id = change.op_id
  )
SELECT
  run_id,
  rank,
  device_type,
  device,
  op,
  count(DISTINCT op_id) AS calls,
  count(*) FILTER (bytes >= 0) AS allocations,
  count(*) FILTER (bytes < 0) AS frees,
  coalesce(sum(bytes) FILTER (bytes >= 0), 0)::BIGINT AS allocated_bytes,
  coalesce(-sum(bytes) FILTER (bytes < 0), 0)::BIGINT AS freed_bytes,
  sum(bytes)::BIGINT AS net_bytes,
  max(bytes) FILTER (bytes >= 0) AS largest_bytes
FROM op_change
GROUP BY run_id, rank, device_type, device, op
