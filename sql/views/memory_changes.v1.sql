-- /// tw
-- kind     = "view"
-- name     = "memory_changes"
-- version  = 1
-- summary  = "Allocations and frees of each device in chronological order."
-- requires = ["memory_events@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "device_type", "device", "position"]
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- event_id        = { type = "BIGINT", unit = "id", doc = "The memory event. Events without time or bytes are excluded; memory_peak counts them." }
-- device_type     = { type = "BIGINT", null = true, unit = "id", doc = "0 CPU, 1 CUDA, 6 HIP, as in c10::DeviceType." }
-- device          = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The device; -1 for the CPU." }
-- position        = { type = "BIGINT", unit = "id", doc = "Sequence number on the device, starting at 1: by time, then by the profiler's event number, then frees first." }
-- ts_ns           = { type = "BIGINT", signed = true, unit = "ts", doc = "Timestamp." }
-- address         = { type = "BIGINT", null = true, unit = "id", doc = "Address; null if not recorded." }
-- bytes           = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes allocated; negative for frees." }
-- net_bytes       = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes allocated minus bytes freed, from the first event to this one." }
-- allocated_bytes = { type = "BIGINT", null = true, unit = "bytes", doc = "Total allocated after the event, including allocations from before the profiling window; null if not recorded." }
-- reserved_bytes  = { type = "BIGINT", null = true, unit = "bytes", doc = "Total reserved after the event; null if not recorded." }
-- op_id           = { type = "BIGINT", null = true, unit = "id", doc = "The innermost operator open on its thread at this time." }
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
