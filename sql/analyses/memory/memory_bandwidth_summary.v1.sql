-- /// tw
-- kind     = "analysis"
-- name     = "memory_bandwidth_summary"
-- version  = 1
-- summary  = "Bytes and bandwidth of memcpy and memset on each device, by direction."
-- requires = ["memory_copies@1", "copy_bandwidth@1", "clock_resolution@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device", "stream", "direction"]
-- per      = "window"
-- order    = ["run_id", "rank", "device", "stream", "direction"]
--
-- [params]
-- by_stream = { type = "BOOLEAN", default = false, doc = "One series per stream; otherwise concurrent copies on several streams are summed." }
--
-- [columns]
-- run_id            = { type = "VARCHAR", doc = "The run." }
-- rank              = { type = "INTEGER", doc = "The rank." }
-- device            = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- stream            = { type = "BIGINT", unit = "id", null = true, signed = true, doc = "The stream; -1 if unknown; null if all streams are combined." }
-- direction         = { type = "VARCHAR", doc = "HtoD, DtoH, DtoD, PtoP, …; Memset; unknown if the name does not match." }
-- count             = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "Number of memcpy or memset activities." }
-- unusable          = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "Activities without duration or bytes; they are excluded from the columns below." }
-- bytes             = { type = "BIGINT", unit = "bytes", aggregate = "sum", doc = "Bytes of the others." }
-- active_ns         = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Time with at least one of them running." }
-- bandwidth_source  = { type = "VARCHAR", null = true, doc = "Where the bandwidths below are from: duration (bytes / duration), profiler (the profiler's value: the trace has only whole microseconds, too coarse for short copies), or mixed (only some copies have it). Null, like all columns below but copy_ns, if active_ns is 0." }
-- copy_ns           = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Time that mean_bytes_per_ns divides by: active_ns; where bandwidth_source is not duration, the sum over copies of bytes / bandwidth, rounded." }
-- mean_bytes_per_ns = { type = "DOUBLE", unit = "bytes_per_ns", aggregate = "bytes/copy_ns", better = "higher", null = true, doc = "Mean bandwidth: bytes / copy_ns; null if that is 0." }
-- p50_bytes_per_ns  = { type = "DOUBLE", unit = "bytes_per_ns", better = "higher", null = true, doc = "Time-weighted median bandwidth of all concurrent copies: the lowest that is not exceeded for half of active_ns." }
-- p95_bytes_per_ns  = { type = "DOUBLE", unit = "bytes_per_ns", better = "higher", null = true, doc = "95th percentile of the bandwidth over active_ns." }
-- max_bytes_per_ns  = { type = "DOUBLE", unit = "bytes_per_ns", aggregate = "max", better = "higher", null = true, doc = "Maximum bandwidth." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  counted AS (
    SELECT
      run_id,
      rank,
      device,
      CASE WHEN $by_stream THEN stream END AS stream_or_all,
      direction,
      count(*) AS count,
      count(*) FILTER (bytes IS NULL OR dur_ns = 0) AS unusable,
      coalesce(sum(bytes) FILTER (dur_ns > 0), 0)::BIGINT AS bytes,
      round(
        sum(CASE WHEN resolution_ns = 1000 AND profiler_bytes_per_ns IS NOT NULL THEN bytes / profiler_bytes_per_ns ELSE dur_ns END)
        FILTER (bytes IS NOT NULL AND dur_ns > 0)
      )::BIGINT AS copy_ns
    FROM memory_copies
    LEFT JOIN clock_resolution USING (run_id, rank)
    GROUP BY run_id, rank, device, stream_or_all, direction
  ),
  so_far AS (
    -- Time up to each bandwidth, and in total.
    SELECT
      run_id,
      rank,
      device,
      stream,
      direction,
      bandwidth_bytes_per_ns,
      bool_and(bandwidth_source = 'profiler') AS all_by_profiler,
      bool_or(bandwidth_source <> 'duration') AS some_by_profiler,
      sum(sum(dur_ns)) OVER (PARTITION BY run_id, rank, device, stream, direction ORDER BY bandwidth_bytes_per_ns) AS ns_so_far,
      sum(sum(dur_ns)) OVER (PARTITION BY run_id, rank, device, stream, direction) AS all_ns
    FROM copy_bandwidth
    WHERE per_stream = $by_stream AND copies > 0
    GROUP BY run_id, rank, device, stream, direction, bandwidth_bytes_per_ns
  ),
  speed AS (
    SELECT
      run_id,
      rank,
      device,
      stream,
      direction,
      any_value(all_ns)::BIGINT AS active_ns,
      bool_and(all_by_profiler) AS all_by_profiler,
      bool_or(some_by_profiler) AS some_by_profiler,
      min(bandwidth_bytes_per_ns) FILTER (ns_so_far * 100 >= all_ns * 50) AS p50_bytes_per_ns,
      min(bandwidth_bytes_per_ns) FILTER (ns_so_far * 100 >= all_ns * 95) AS p95_bytes_per_ns,
      max(bandwidth_bytes_per_ns) AS max_bytes_per_ns
    FROM so_far
    GROUP BY run_id, rank, device, stream, direction
  )
SELECT
  counted.run_id,
  counted.rank,
  counted.device,
  counted.stream_or_all AS stream,
  counted.direction,
  counted.count,
  counted.unusable,
  counted.bytes,
  coalesce(speed.active_ns, 0) AS active_ns,
  CASE
    WHEN speed.all_by_profiler THEN 'profiler'
    WHEN speed.some_by_profiler THEN 'mixed'
    WHEN speed.active_ns IS NOT NULL THEN 'duration'
  END AS bandwidth_source,
  CASE WHEN speed.some_by_profiler THEN counted.copy_ns ELSE coalesce(speed.active_ns, 0) END AS copy_ns,
  counted.bytes / nullif(CASE WHEN speed.some_by_profiler THEN counted.copy_ns ELSE speed.active_ns END, 0) AS mean_bytes_per_ns,
  speed.p50_bytes_per_ns,
  speed.p95_bytes_per_ns,
  speed.max_bytes_per_ns
FROM counted
LEFT JOIN speed
  ON speed.run_id = counted.run_id
  AND speed.rank = counted.rank
  AND speed.device = counted.device
  AND speed.stream IS NOT DISTINCT FROM counted.stream_or_all
  AND speed.direction = counted.direction
