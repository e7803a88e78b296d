-- /// tw
-- kind     = "analysis"
-- name     = "memory_bandwidth"
-- version  = 1
-- summary  = "Memcpy and memset bandwidth of each device by direction, over time."
-- requires = ["memory_copies@1", "clock_resolution@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device", "stream", "direction", "ts_ns"]
-- order    = ["run_id", "rank", "device", "stream", "direction", "ts_ns"]
--
-- [params]
-- by_stream = { type = "BOOLEAN", default = false, doc = "One series per stream; otherwise concurrent copies on several streams are summed." }
--
-- [columns]
-- run_id                 = { type = "VARCHAR", doc = "The run." }
-- rank                   = { type = "INTEGER", doc = "The rank." }
-- device                 = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- stream                 = { type = "BIGINT", unit = "id", null = true, signed = true, doc = "The stream; -1 if unknown; null if all streams are combined." }
-- direction              = { type = "VARCHAR", doc = "HtoD, DtoH, DtoD, PtoP, …; Memset; unknown if the name does not match." }
-- ts_ns                  = { type = "BIGINT", unit = "ts", signed = true, doc = "Time of the change: a copy starts or ends. Activities without duration or bytes are excluded; memory_bandwidth_summary counts them." }
-- bandwidth_source       = { type = "VARCHAR", null = true, doc = "Where the bandwidths of these copies are from: duration (bytes / duration), profiler (the profiler's value: the trace has only whole microseconds, too coarse for short copies), or mixed. Null if none runs." }
-- copies                 = { type = "BIGINT", unit = "count", doc = "Memcpy and memset activities that run from then on, for dur_ns." }
-- bandwidth_bytes_per_ns = { type = "DOUBLE", unit = "bytes_per_ns", doc = "Sum of their bandwidths; exactly 0 if none runs." }
-- dur_ns                 = { type = "BIGINT", unit = "ns", doc = "Time until the next change; 0 if there is none." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  copy AS (
    SELECT
      memory_copies.run_id,
      memory_copies.rank,
      memory_copies.device,
      memory_copies.stream,
      memory_copies.direction,
      memory_copies.ts_ns,
      memory_copies.dur_ns,
      memory_copies.bytes,
      memory_copies.profiler_bytes_per_ns,
      CASE
        WHEN clock_resolution.resolution_ns = 1000 AND memory_copies.profiler_bytes_per_ns IS NOT NULL THEN 1
        ELSE 0
      END AS by_profiler
    FROM memory_copies
    LEFT JOIN clock_resolution USING (run_id, rank)
    WHERE memory_copies.dur_ns > 0 AND memory_copies.bytes IS NOT NULL
  ),
  timed AS (
    -- Bytes per ns in units of 2 to the -72nd: each end subtracts exactly what its start added.
    SELECT
      run_id,
      rank,
      device,
      CASE WHEN $by_stream THEN stream END AS stream,
      direction,
      ts_ns,
      ts_ns + dur_ns AS end_ns,
      by_profiler,
      CASE
        WHEN by_profiler = 1 THEN try((profiler_bytes_per_ns * 4722366482869645213696)::HUGEINT)
        ELSE try(bytes * 4722366482869645213696::HUGEINT // dur_ns)
      END AS steps
    FROM copy
  ),
  edge AS (
    SELECT run_id, rank, device, stream, direction, ts_ns, 1 AS copies, by_profiler, steps
    FROM timed
    UNION ALL
    SELECT run_id, rank, device, stream, direction, end_ns AS ts_ns, -1 AS copies, -by_profiler AS by_profiler, -steps AS steps
    FROM timed
  ),
  cut AS (
    SELECT
      run_id,
      rank,
      device,
      stream,
      direction,
      ts_ns,
      sum(copies)::BIGINT AS copies,
      sum(by_profiler)::BIGINT AS by_profiler,
      sum(steps)::HUGEINT AS steps
    FROM edge
    GROUP BY run_id, rank, device, stream, direction, ts_ns
  )
SELECT
  run_id,
  rank,
  device,
  stream,
  direction,
  ts_ns,
  CASE
    WHEN (sum(copies) OVER onwards) = 0 THEN NULL
    WHEN (sum(by_profiler) OVER onwards) = 0 THEN 'duration'
    WHEN (sum(by_profiler) OVER onwards) = sum(copies) OVER onwards THEN 'profiler'
    ELSE 'mixed'
  END AS bandwidth_source,
  (sum(copies) OVER onwards)::BIGINT AS copies,
  (sum(steps) OVER onwards)::HUGEINT / 4722366482869645213696::HUGEINT AS bandwidth_bytes_per_ns,
  coalesce(lead(ts_ns) OVER onwards, ts_ns) - ts_ns AS dur_ns
FROM cut
WINDOW onwards AS (PARTITION BY run_id, rank, device, stream, direction ORDER BY ts_ns)
