-- /// tw
-- kind     = "view"
-- name     = "memory_copies"
-- version  = 1
-- summary  = "A copy or set of a device's memory, from where to where, and how many bytes."
-- requires = ["kernels@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank." }
-- event_id  = { type = "BIGINT", unit = "id", doc = "The GPU row." }
-- device    = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 where the trace does not say." }
-- stream    = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 where the trace does not say." }
-- direction = { type = "VARCHAR", doc = "HtoD, DtoH, DtoD, PtoP, … (H host, D device, P peer, A array, S shared) from the name, CUDA's `Memcpy HtoD (…)`, HIP's `CopyHostToDevice` or Intel's `Memcpy M2D (…)`; Memset; unknown where the name does not say." }
-- ts_ns     = { type = "BIGINT", signed = true, unit = "ts", doc = "Start." }
-- dur_ns    = { type = "BIGINT", unit = "ns", doc = "Length." }
-- bytes     = { type = "BIGINT", null = true, unit = "bytes", doc = "Bytes copied or set; null where the trace does not say." }
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
      bytes
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
    -- Intel's M is memory of the host that no driver gave.
    WHEN way.source <> ''
      THEN replace(upper(left(way.source, 1)) || 'to' || upper(left(way.target, 1)), 'M', 'H')
    ELSE 'unknown'
  END AS direction,
  ts_ns,
  dur_ns,
  CASE WHEN bytes >= 0 THEN bytes END AS bytes
FROM named
