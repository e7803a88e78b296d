-- /// tw
-- kind     = "analysis"
-- name     = "memory_live"
-- version  = 1
-- summary  = "Allocations live at the peak memory of each device, with operator and age, and the rest of the peak."
-- requires = ["memory_changes@1", "events@1"]
-- needs    = ["memory_events"]
-- empty    = "allocations without recorded totals (Total Allocated) have no known peak, as in traces of early PyTorch versions"
-- grain    = ["run_id", "rank", "device_type", "device", "event_id"]
-- order    = ["run_id", "rank", "-device_type", "device", "-bytes", "event_id"]
--
-- [columns]
-- run_id       = { type = "VARCHAR", doc = "The run." }
-- rank         = { type = "INTEGER", doc = "The rank." }
-- device_type  = { type = "BIGINT", null = true, unit = "id", doc = "0 CPU, 1 CUDA, 6 HIP, as in c10::DeviceType." }
-- device       = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The device; -1 for the CPU. Devices without recorded totals have no known peak and no rows." }
-- event_id     = { type = "BIGINT", null = true, unit = "id", doc = "The allocation, up to the one that first reaches peak_bytes of memory_peak; null for the rest." }
-- origin       = { type = "VARCHAR", doc = "window: allocated in the profiling window, with no other event at its address until after the peak. rest: one row per device with the rest of the peak: allocations from before the window and events without an address." }
-- bytes        = { type = "BIGINT", signed = true, unit = "bytes", better = "lower", doc = "Its bytes; the rows of a device sum to its peak. Negative only for the rest, if frees are missing from the trace and more seems allocated than is." }
-- address      = { type = "BIGINT", null = true, unit = "id", doc = "Its address; null for the rest." }
-- op           = { type = "VARCHAR", null = true, doc = "Name of the innermost operator that allocated it; null outside operators and for the rest." }
-- op_id        = { type = "BIGINT", null = true, unit = "id", doc = "event_id of that operator." }
-- step         = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step of the allocation." }
-- allocated_ns = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "Time of the allocation; null for the rest." }
-- age_ns       = { type = "BIGINT", null = true, unit = "ns", doc = "Time from the allocation to the peak; null for the rest." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  device_peak AS (
    SELECT
      run_id,
      rank,
      device_type,
      device,
      max(allocated_bytes) AS peak_bytes,
      arg_max(position, (allocated_bytes, -position)) AS peak_position,
      arg_max(ts_ns, (allocated_bytes, -position)) AS peak_at_ns
    FROM memory_changes
    WHERE allocated_bytes IS NOT NULL
    GROUP BY run_id, rank, device_type, device
  ),
  tenancy AS (
    -- An address is in use until the next event at it: a free or, if that is missing, an allocation.
    SELECT
      run_id,
      rank,
      device_type,
      device,
      event_id,
      position,
      bytes,
      address,
      op_id,
      step,
      ts_ns,
      lead(position) OVER at_address AS next_position
    FROM memory_changes
    WHERE address IS NOT NULL
    WINDOW at_address AS (PARTITION BY run_id, rank, device_type, device, address ORDER BY position)
  ),
  live AS (
    SELECT
      tenancy.run_id,
      tenancy.rank,
      tenancy.device_type,
      tenancy.device,
      tenancy.event_id,
      tenancy.bytes,
      tenancy.address,
      tenancy.op_id,
      tenancy.step,
      tenancy.ts_ns,
      device_peak.peak_at_ns - tenancy.ts_ns AS age_ns
    FROM tenancy
    JOIN device_peak
      ON device_peak.run_id = tenancy.run_id
      AND device_peak.rank = tenancy.rank
      AND device_peak.device_type IS NOT DISTINCT FROM tenancy.device_type
      AND device_peak.device IS NOT DISTINCT FROM tenancy.device
    WHERE
      tenancy.bytes > 0
      AND tenancy.position <= device_peak.peak_position
      AND coalesce(tenancy.next_position > device_peak.peak_position, TRUE)
  ),
  live_sum AS (
    SELECT run_id, rank, device_type, device, sum(bytes)::BIGINT AS bytes
    FROM live
    GROUP BY run_id, rank, device_type, device
  )
SELECT
  live.run_id,
  live.rank,
  live.device_type,
  live.device,
  live.event_id,
  'window' AS origin,
  live.bytes,
  live.address,
  events.name AS op,
  live.op_id,
  live.step,
  live.ts_ns AS allocated_ns,
  live.age_ns
FROM live
LEFT JOIN events
  ON events.run_id = live.run_id AND events.rank = live.rank AND events.event_id = live.op_id
UNION ALL
SELECT
  device_peak.run_id,
  device_peak.rank,
  device_peak.device_type,
  device_peak.device,
  NULL::BIGINT AS event_id,
  'rest' AS origin,
  device_peak.peak_bytes - coalesce(live_sum.bytes, 0) AS bytes,
  NULL::BIGINT AS address,
  NULL::VARCHAR AS op,
  NULL::BIGINT AS op_id,
  NULL::BIGINT AS step,
  NULL::BIGINT AS allocated_ns,
  NULL::BIGINT AS age_ns
FROM device_peak
LEFT JOIN live_sum
  ON live_sum.run_id = device_peak.run_id
  AND live_sum.rank = device_peak.rank
  AND live_sum.device_type IS NOT DISTINCT FROM device_peak.device_type
  AND live_sum.device IS NOT DISTINCT FROM device_peak.device
