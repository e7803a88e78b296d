-- /// tw
-- kind     = "view"
-- name     = "memory_copies"
-- version  = 1
-- summary  = "Memcpy and memset activities of each device, with direction and bytes."
-- requires = ["kernels@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank." }
-- event_id  = { type = "BIGINT", unit = "id", doc = "The GPU activity." }
-- device    = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- stream    = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 if unknown." }
-- direction = { type = "VARCHAR", doc = "HtoD, DtoH, DtoD, PtoP, … (H host, D device, P peer, A array, S shared), parsed from the name: CUDA's `Memcpy HtoD (…)`, HIP's `CopyHostToDevice` or Intel's `Memcpy M2D (…)`; Memset; unknown if the name does not match." }
-- ts_ns     = { type = "BIGINT", signed = true, unit = "ts", doc = "Start time." }
-- dur_ns    = { type = "BIGINT", unit = "ns", doc = "Duration." }
-- bytes     = { type = "BIGINT", null = true, unit = "bytes", doc = "Bytes copied or set; null if unknown." }
-- profiler_bytes_per_ns = { type = "DOUBLE", null = true, unit = "bytes_per_ns", doc = "Bandwidth as computed by the profiler, from times before they were rounded for the file; null if not recorded or not positive." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  named AS (
    SELECT
      run_id,
      rank,
      event_id,
      device,
      stream,
      activity,
      regexp_extract(
        name,
        '(?i)^(?:memcpy |(?:memory_?)?copy_?)(host|device|peer|array|[hdpams])(?:_?to_?|2)(host|device|peer|array|[hdpams])',
        ['source', 'target']
      ) AS way,
      ts_ns,
      dur_ns,
      bytes,
      bandwidth_bytes_per_ns
    FROM kernels
    WHERE kind = 'memory'
  )
SELECT
  run_id,
  rank,
  event_id,
  device,
  stream,
  CASE
    WHEN activity = 'memset' THEN 'Memset'
    -- Intel's M is host memory that was not allocated by the driver.
    WHEN way.source <> ''
      THEN replace(upper(left(way.source, 1)) || 'to' || upper(left(way.target, 1)), 'M', 'H')
    ELSE 'unknown'
  END AS direction,
  ts_ns,
  dur_ns,
  CASE WHEN bytes >= 0 THEN bytes END AS bytes,
  CASE WHEN bandwidth_bytes_per_ns > 0 AND isfinite(bandwidth_bytes_per_ns) THEN bandwidth_bytes_per_ns END
    AS profiler_bytes_per_ns
FROM named
