-- /// tw
-- kind     = "analysis"
-- name     = "memory_bandwidth_summary"
-- version  = 1
-- summary  = "Bytes and bandwidth of memcpy and memset on each device, by direction."
-- requires = ["memory_copies@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device", "stream", "direction"]
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
-- count             = { type = "BIGINT", unit = "count", fold = "sum", doc = "Number of memcpy or memset activities." }
-- unusable          = { type = "BIGINT", unit = "count", fold = "sum", doc = "Activities without duration or bytes; they are excluded from the columns below." }
-- bytes             = { type = "BIGINT", unit = "bytes", fold = "sum", doc = "Bytes of the others." }
-- active_ns         = { type = "BIGINT", unit = "ns", fold = "sum", better = "lower", doc = "Time with at least one of them running." }
-- mean_bytes_per_ns = { type = "DOUBLE", unit = "bytes_per_ns", fold = "bytes/active_ns", better = "higher", null = true, doc = "Mean bandwidth: bytes / active_ns; null, like all columns below, if active_ns is 0." }
-- p50_bytes_per_ns  = { type = "DOUBLE", unit = "bytes_per_ns", better = "higher", null = true, doc = "Time-weighted median bandwidth of all concurrent copies: the lowest that is not exceeded for half of active_ns." }
-- p95_bytes_per_ns  = { type = "DOUBLE", unit = "bytes_per_ns", better = "higher", null = true, doc = "95th percentile of the bandwidth over active_ns." }
-- max_bytes_per_ns  = { type = "DOUBLE", unit = "bytes_per_ns", fold = "max", better = "higher", null = true, doc = "Maximum bandwidth." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  copy AS (
    -- Bytes per ns in units of 2 to the -72nd: each end subtracts exactly what its start added.
    SELECT
      run_id,
      rank,
      device,
      CASE WHEN $by_stream THEN stream END AS stream,
      direction,
      ts_ns,
      ts_ns + dur_ns AS end_ns,
      bytes,
      CASE WHEN dur_ns > 0 THEN try(bytes * 4722366482869645213696::HUGEINT // dur_ns) END AS steps
    FROM memory_copies
  ),
  counted AS (
    SELECT
      run_id,
      rank,
      device,
      stream,
      direction,
      count(*) AS count,
      count(*) - count(steps) AS unusable,
      coalesce(sum(bytes) FILTER (steps IS NOT NULL), 0)::BIGINT AS bytes
    FROM copy
    GROUP BY run_id, rank, device, stream, direction
  ),
  edge AS (
    SELECT run_id, rank, device, stream, direction, ts_ns, 1 AS copies, steps
    FROM copy
    WHERE steps IS NOT NULL
    UNION ALL
    SELECT run_id, rank, device, stream, direction, end_ns AS ts_ns, -1 AS copies, -steps AS steps
    FROM copy
    WHERE steps IS NOT NULL
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
      sum(steps)::HUGEINT AS steps
    FROM edge
    GROUP BY run_id, rank, device, stream, direction, ts_ns
  ),
  segment AS (
    SELECT
      run_id,
      rank,
      device,
      stream,
      direction,
      (sum(copies) OVER onwards)::BIGINT AS copies,
      (sum(steps) OVER onwards)::HUGEINT AS steps,
      coalesce(lead(ts_ns) OVER onwards, ts_ns) - ts_ns AS dur_ns
    FROM cut
    WINDOW onwards AS (PARTITION BY run_id, rank, device, stream, direction ORDER BY ts_ns)
  ),
  so_far AS (
    -- Time up to each bandwidth, and in total.
    SELECT
      run_id,
      rank,
      device,
      stream,
      direction,
      steps,
      sum(sum(dur_ns)) OVER (PARTITION BY run_id, rank, device, stream, direction ORDER BY steps) AS ns_so_far,
      sum(sum(dur_ns)) OVER (PARTITION BY run_id, rank, device, stream, direction) AS all_ns
    FROM segment
    WHERE copies > 0
    GROUP BY run_id, rank, device, stream, direction, steps
  ),
  speed AS (
    SELECT
      run_id,
      rank,
      device,
      stream,
      direction,
      any_value(all_ns)::BIGINT AS active_ns,
      min(steps) FILTER (ns_so_far * 100 >= all_ns * 50) AS p50_steps,
      min(steps) FILTER (ns_so_far * 100 >= all_ns * 95) AS p95_steps,
      max(steps) AS max_steps
    FROM so_far
    GROUP BY run_id, rank, device, stream, direction
  )
SELECT
  counted.run_id,
  counted.rank,
  counted.device,
  counted.stream,
  counted.direction,
  counted.count,
  counted.unusable,
  counted.bytes,
  coalesce(speed.active_ns, 0) AS active_ns,
  counted.bytes / speed.active_ns AS mean_bytes_per_ns,
  speed.p50_steps / 4722366482869645213696::HUGEINT AS p50_bytes_per_ns,
  speed.p95_steps / 4722366482869645213696::HUGEINT AS p95_bytes_per_ns,
  speed.max_steps / 4722366482869645213696::HUGEINT AS max_bytes_per_ns
FROM counted
LEFT JOIN speed
  ON speed.run_id = counted.run_id
  AND speed.rank = counted.rank
  AND speed.device = counted.device
  AND speed.stream IS NOT DISTINCT FROM counted.stream
  AND speed.direction = counted.direction
