-- /// tw
-- kind     = "analysis"
-- name     = "memory_curve"
-- version  = 1
-- summary  = "How much memory of each device was allocated and reserved, after each allocation and free."
-- requires = ["memory_changes@1"]
-- needs    = ["memory_events"]
-- grain    = ["run_id", "rank", "device_type", "device", "position"]
-- order    = ["run_id", "rank", "device_type", "device", "position"]
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- device_type     = { type = "BIGINT", null = true, unit = "id", doc = "0 CPU, 1 CUDA, 6 HIP, as in c10::DeviceType." }
-- device          = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The device; -1 for the CPU." }
-- position        = { type = "BIGINT", unit = "id", doc = "Number of the allocation or free on its device: by time, at one instant by the profiler's number of the event, and where that does not tell, frees first." }
-- ts_ns           = { type = "BIGINT", signed = true, unit = "ts", doc = "When." }
-- bytes           = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes allocated; negative: freed." }
-- net_bytes       = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes allocated less bytes freed since the window began: below zero where more was freed." }
-- allocated_bytes = { type = "BIGINT", null = true, unit = "bytes", doc = "Allocated in all, what was there before the window too; null where the trace gives no totals." }
-- reserved_bytes  = { type = "BIGINT", null = true, unit = "bytes", doc = "Reserved in all by the allocator; null where the trace gives no totals." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  device_type,
  device,
  position,
  ts_ns,
  bytes,
  net_bytes,
  allocated_bytes,
  reserved_bytes
FROM memory_changes
