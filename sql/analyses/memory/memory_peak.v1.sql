-- /// tw
-- kind     = "analysis"
-- name     = "memory_peak"
-- version  = 1
-- summary  = "The most memory of each device that was allocated and reserved at once, when, and in which step."
-- requires = ["memory_events@1", "memory_changes@1"]
-- needs    = ["memory_events"]
-- grain    = ["run_id", "rank", "device_type", "device"]
-- order    = ["run_id", "rank", "device_type", "device"]
--
-- [columns]
-- run_id              = { type = "VARCHAR", doc = "The run." }
-- rank                = { type = "INTEGER", doc = "The rank." }
-- device_type         = { type = "BIGINT", null = true, unit = "id", doc = "0 CPU, 1 CUDA, 6 HIP, as in c10::DeviceType." }
-- device              = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The device; -1 for the CPU." }
-- changes             = { type = "BIGINT", unit = "count", doc = "Allocations and frees." }
-- unusable            = { type = "BIGINT", unit = "count", doc = "Rows without time or bytes: they are in no other column, and in no other analysis of memory." }
-- peak_bytes          = { type = "BIGINT", null = true, unit = "bytes", better = "lower", doc = "The largest total allocated that a row gives; null where no row gives one. What was allocated before the window counts." }
-- peak_at_ns          = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "When it was first reached." }
-- peak_step           = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step of that moment; null outside steps." }
-- peak_reserved_bytes = { type = "BIGINT", null = true, unit = "bytes", better = "lower", doc = "The largest total reserved that a row gives." }
-- reserved_at_ns      = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "When that was first reached." }
-- start_bytes         = { type = "BIGINT", null = true, signed = true, unit = "bytes", doc = "Allocated before the first row that gives a total: its total less its bytes." }
-- end_bytes           = { type = "BIGINT", null = true, unit = "bytes", better = "lower", doc = "Allocated after the last row that gives a total." }
-- net_bytes           = { type = "BIGINT", signed = true, unit = "bytes", better = "lower", doc = "Bytes allocated less bytes freed." }
-- peak_net_bytes      = { type = "BIGINT", unit = "bytes", better = "lower", doc = "The highest that bytes allocated less bytes freed rose above the start of the window; 0 where it never did. Needs no totals." }
-- unexplained_bytes   = { type = "BIGINT", null = true, signed = true, unit = "bytes", doc = "end_bytes less start_bytes less the bytes of the rows with totals: 0 where the trace holds every change, else what changed without a row." }
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
      (sum(bytes) FILTER (allocated_bytes IS NOT NULL))::BIGINT AS told_bytes
    FROM memory_changes
    GROUP BY run_id, rank, device_type, device
  )
SELECT
  whole.run_id,
  whole.rank,
  whole.device_type,
  whole.device,
  coalesce(peak.changes, 0) AS changes,
  whole.unusable,
  peak.peak_bytes,
  peak.peak_at_ns,
  peak.peak_step,
  peak.peak_reserved_bytes,
  peak.reserved_at_ns,
  peak.start_bytes,
  peak.end_bytes,
  coalesce(peak.net_bytes, 0) AS net_bytes,
  coalesce(peak.peak_net_bytes, 0) AS peak_net_bytes,
  peak.end_bytes - peak.start_bytes - peak.told_bytes AS unexplained_bytes
FROM device_row AS whole
LEFT JOIN device_peak AS peak
  ON peak.run_id = whole.run_id
  AND peak.rank = whole.rank
  AND peak.device_type IS NOT DISTINCT FROM whole.device_type
  AND peak.device IS NOT DISTINCT FROM whole.device
