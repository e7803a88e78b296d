-- /// tw
-- kind     = "analysis"
-- name     = "memory_peak"
-- version  = 1
-- summary  = "Peak allocated and reserved memory of each device, with time and step."
-- requires = ["memory_events@1", "memory_changes@1"]
-- needs    = ["memory_events"]
-- grain    = ["run_id", "rank", "device_type", "device"]
-- order    = ["run_id", "rank", "-device_type", "device"]
--
-- [columns]
-- run_id              = { type = "VARCHAR", doc = "The run." }
-- rank                = { type = "INTEGER", doc = "The rank." }
-- device_type         = { type = "BIGINT", null = true, unit = "id", doc = "0 CPU, 1 CUDA, 6 HIP, as in c10::DeviceType." }
-- device              = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The device; -1 for the CPU." }
-- changes             = { type = "BIGINT", unit = "count", doc = "Number of allocations and frees." }
-- unusable            = { type = "BIGINT", unit = "count", doc = "Events without time or bytes; they are excluded from all other columns and memory analyses." }
-- peak_bytes          = { type = "BIGINT", null = true, unit = "bytes", aggregate = "max", better = "lower", doc = "Peak allocated memory: the largest recorded total, including allocations from before the profiling window, except on the CPU: there PyTorch counts only what was allocated since profiling began. Null if totals are not recorded." }
-- peak_at_ns          = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "When the peak was first reached." }
-- peak_step           = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step at that time; null outside steps." }
-- peak_reserved_bytes = { type = "BIGINT", null = true, unit = "bytes", aggregate = "max", better = "lower", doc = "Peak reserved memory: the largest recorded total." }
-- reserved_at_ns      = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "When that was first reached." }
-- start_bytes         = { type = "BIGINT", null = true, signed = true, unit = "bytes", doc = "Allocated before the first event with a total: its total minus its bytes. Null on the CPU, where totals leave it out." }
-- end_bytes           = { type = "BIGINT", null = true, unit = "bytes", better = "lower", doc = "Allocated after the last event with a total." }
-- net_bytes           = { type = "BIGINT", signed = true, unit = "bytes", better = "lower", doc = "Bytes allocated minus bytes freed." }
-- peak_net_bytes      = { type = "BIGINT", unit = "bytes", better = "lower", doc = "Maximum of bytes allocated minus bytes freed since the start of the profiling window; 0 if never positive. Does not need totals." }
-- unexplained_bytes   = { type = "BIGINT", null = true, signed = true, unit = "bytes", doc = "The last total minus what was counted before the first event with one minus the bytes of the events with totals: 0 if the trace records every change, otherwise the unrecorded change." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  device_row AS (
    SELECT
      run_id,
      rank,
      device_type,
      device,
      count(*) FILTER (ts_ns IS NULL OR bytes IS NULL) AS unusable
    FROM memory_events
    GROUP BY run_id, rank, device_type, device
  ),
  device_peak AS (
    SELECT
      run_id,
      rank,
      device_type,
      device,
      count(*) AS changes,
      max(allocated_bytes) AS peak_bytes,
      arg_max(ts_ns, (allocated_bytes, -position)) FILTER (allocated_bytes IS NOT NULL) AS peak_at_ns,
      arg_max_null(step, (allocated_bytes, -position)) FILTER (allocated_bytes IS NOT NULL) AS peak_step,
      max(reserved_bytes) AS peak_reserved_bytes,
      arg_max(ts_ns, (reserved_bytes, -position)) FILTER (reserved_bytes IS NOT NULL) AS reserved_at_ns,
      arg_min(allocated_bytes - bytes, position) FILTER (allocated_bytes IS NOT NULL) AS start_bytes,
      arg_max(allocated_bytes, position) FILTER (allocated_bytes IS NOT NULL) AS end_bytes,
      sum(bytes)::BIGINT AS net_bytes,
      greatest(max(net_bytes), 0) AS peak_net_bytes,
      (sum(bytes) FILTER (allocated_bytes IS NOT NULL))::BIGINT AS recorded_bytes
    FROM memory_changes
    GROUP BY run_id, rank, device_type, device
  )
SELECT
  total.run_id,
  total.rank,
  total.device_type,
  total.device,
  coalesce(peak.changes, 0) AS changes,
  total.unusable,
  peak.peak_bytes,
  peak.peak_at_ns,
  peak.peak_step,
  peak.peak_reserved_bytes,
  peak.reserved_at_ns,
  CASE WHEN total.device_type IS DISTINCT FROM 0 THEN peak.start_bytes END AS start_bytes,
  peak.end_bytes,
  coalesce(peak.net_bytes, 0) AS net_bytes,
  coalesce(peak.peak_net_bytes, 0) AS peak_net_bytes,
  peak.end_bytes - peak.start_bytes - peak.recorded_bytes AS unexplained_bytes
FROM device_row AS total
LEFT JOIN device_peak AS peak
  ON peak.run_id = total.run_id
  AND peak.rank = total.rank
  AND peak.device_type IS NOT DISTINCT FROM total.device_type
  AND peak.device IS NOT DISTINCT FROM total.device
