-- /// tw
-- kind     = "analysis"
-- name     = "memory_curve"
-- version  = 1
-- summary  = "Allocated and reserved memory of each device after each allocation and free."
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
-- position        = { type = "BIGINT", unit = "id", doc = "Sequence number of the event on its device: by time, then by the profiler's event number, then frees first." }
-- ts_ns           = { type = "BIGINT", signed = true, unit = "ts", doc = "Timestamp." }
-- bytes           = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes allocated; negative for frees." }
-- net_bytes       = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes allocated minus bytes freed since the start of the profiling window; negative if more was freed." }
-- allocated_bytes = { type = "BIGINT", null = true, unit = "bytes", doc = "Total allocated, including allocations from before the profiling window; null if totals are not recorded." }
-- reserved_bytes  = { type = "BIGINT", null = true, unit = "bytes", doc = "Total reserved by the allocator; null if totals are not recorded." }
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
