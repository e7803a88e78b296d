-- /// tw
-- kind     = "view"
-- name     = "copy_bandwidth"
-- version  = 1
-- summary  = "Memcpy and memset bandwidth of each device and of each stream by direction, over time."
-- requires = ["memory_copies@1", "clock_resolution@1"]
-- grain    = ["run_id", "rank", "per_stream", "device", "stream", "direction", "ts_ns"]
-- order    = ["run_id", "rank", "per_stream", "device", "stream", "direction", "ts_ns"]
--
-- [columns]
-- run_id                 = { type = "VARCHAR", doc = "The run." }
-- rank                   = { type = "INTEGER", doc = "The rank." }
-- device                 = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- stream                 = { type = "BIGINT", unit = "id", null = true, signed = true, doc = "The stream; -1 if unknown; null if all streams are combined." }
-- per_stream              = { type = "BOOLEAN", doc = "True if the row is about one stream; false if it is about all streams of the device, whose concurrent copies are summed." }
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
  timed AS (
    -- Bytes per ns in units of 2 to the -72nd: each end subtracts exactly what its start added.
    SELECT
      run_id,
      rank,
      device,
      stream,
      direction,
      ts_ns,
      dur_ns,
      coalesce(resolution_ns = 1000 AND profiler_bytes_per_ns IS NOT NULL, FALSE) AS is_by_profiler,
      CASE
        WHEN is_by_profiler THEN try((profiler_bytes_per_ns * 4722366482869645213696)::HUGEINT)
        ELSE try(bytes * 4722366482869645213696::HUGEINT // dur_ns)
      END AS steps
    FROM memory_copies
    LEFT JOIN clock_resolution USING (run_id, rank)
    WHERE dur_ns > 0 AND bytes IS NOT NULL
  ),
  edge AS (
    SELECT run_id, rank, device, stream, direction, ts_ns, 1 AS copies, is_by_profiler::INTEGER AS by_profiler, steps
    FROM timed
    UNION ALL
    SELECT run_id, rank, device, stream, direction, ts_ns + dur_ns, -1, -is_by_profiler::INTEGER, -steps
    FROM timed
  ),
  grouped AS (
    SELECT run_id, rank, TRUE AS per_stream, device, stream, direction, ts_ns, copies, by_profiler, steps
    FROM edge
    UNION ALL
    SELECT run_id, rank, FALSE, device, NULL, direction, ts_ns, copies, by_profiler, steps
    FROM edge
  ),
  cut AS (
    SELECT
      run_id,
      rank,
      per_stream,
      device,
      stream,
      direction,
      ts_ns,
      sum(copies)::BIGINT AS copies,
      sum(by_profiler)::BIGINT AS by_profiler,
      sum(steps)::HUGEINT AS steps
    FROM grouped
    GROUP BY run_id, rank, per_stream, device, stream, direction, ts_ns
  )
SELECT
  run_id,
  rank,
  device,
  stream,
  per_stream,
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
WINDOW onwards AS (PARTITION BY run_id, rank, per_stream, device, stream, direction ORDER BY ts_ns)
