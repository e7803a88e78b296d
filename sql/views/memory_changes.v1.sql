-- /// tw
-- kind     = "view"
-- name     = "memory_changes"
-- version  = 1
-- summary  = "The allocations and frees of each device in the order in which they came."
-- requires = ["memory_events@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "device_type", "device", "position"]
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- event_id        = { type = "BIGINT", unit = "id", doc = "The row. Rows without time or bytes have no place here; memory_peak counts them." }
-- device_type     = { type = "BIGINT", null = true, unit = "id", doc = "0 CPU, 1 CUDA, 6 HIP, as in c10::DeviceType." }
-- device          = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The device; -1 for the CPU." }
-- position        = { type = "BIGINT", unit = "id", doc = "Its number on the device, 1 for the first: by time, at one instant by the profiler's number of the event, and where that does not tell, frees first." }
-- ts_ns           = { type = "BIGINT", signed = true, unit = "ts", doc = "When." }
-- address         = { type = "BIGINT", null = true, unit = "id", doc = "Where; null in traces that do not say." }
-- bytes           = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes allocated; negative: freed." }
-- net_bytes       = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes allocated less bytes freed, from the first row to this one." }
-- allocated_bytes = { type = "BIGINT", null = true, unit = "bytes", doc = "Allocated in all after it, what was there before the window too; null in traces that do not say." }
-- reserved_bytes  = { type = "BIGINT", null = true, unit = "bytes", doc = "Reserved in all after it." }
-- op_id           = { type = "BIGINT", null = true, unit = "id", doc = "The innermost operator open at this time on its thread." }
-- step            = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step at this time." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  event_id,
  device_type,
  device,
  row_number() OVER so_far AS position,
  ts_ns,
  address,
  bytes,
  (sum(bytes) OVER so_far)::BIGINT AS net_bytes,
  total_allocated_bytes AS allocated_bytes,
  total_reserved_bytes AS reserved_bytes,
  op_id,
  step
FROM memory_events
WHERE ts_ns IS NOT NULL AND bytes IS NOT NULL
WINDOW so_far AS (
  PARTITION BY run_id, rank, device_type, device
  ORDER BY ts_ns, event_index, bytes, address, event_id
  ROWS UNBOUNDED PRECEDING
)
