-- /// tw
-- kind     = "view"
-- name     = "device_timeline"
-- version  = 1
-- summary  = "Each device's GPU window split wherever a GPU activity starts or ends, with the number of running activities of each kind."
-- requires = ["kernels@1"]
-- grain    = ["run_id", "rank", "device", "start_ns"]
-- order    = ["run_id", "rank", "device", "start_ns"]
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- device        = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- start_ns      = { type = "BIGINT", unit = "ts", doc = "Start of the segment." }
-- end_ns        = { type = "BIGINT", unit = "ts", doc = "Start of the next segment; the last segment has zero length and closes the window." }
-- segment_ns    = { type = "BIGINT", unit = "ns", doc = "end_ns minus start_ns; the segments of a device sum to its GPU window." }
-- computation   = { type = "INTEGER", unit = "count", doc = "Computation activities that run in the segment, on any stream." }
-- communication = { type = "INTEGER", unit = "count", doc = "Communication activities that run in the segment." }
-- memory        = { type = "INTEGER", unit = "count", doc = "Memcpy and memset activities that run in the segment." }
-- other         = { type = "INTEGER", unit = "count", doc = "Activities of any other kind that run in the segment." }
-- kind          = { type = "VARCHAR", doc = "What the segment counts as: the first of computation, communication, memory and other that runs, else idle." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  lane AS (
    -- Four running counts packed into one number, 31 bits each: one window sum instead of four.
    SELECT
      run_id,
      rank,
      device,
      ts_ns,
      ts_ns + dur_ns AS end_ns,
      CASE kind
        WHEN 'computation' THEN 1::HUGEINT
        WHEN 'communication' THEN 1::HUGEINT << 31
        WHEN 'memory' THEN 1::HUGEINT << 62
        ELSE 1::HUGEINT << 93
      END AS one_row
    FROM kernels
  ),
  edge AS (
    SELECT run_id, rank, device, ts_ns AS at_ns, one_row AS change
    FROM lane
    UNION ALL
    SELECT run_id, rank, device, end_ns AS at_ns, -one_row AS change
    FROM lane
  ),
  cut AS (
    -- All edges of one instant combined: a zero-length activity adds a boundary but no time.
    SELECT run_id, rank, device, at_ns, sum(change)::HUGEINT AS change
    FROM edge
    GROUP BY run_id, rank, device, at_ns
  ),
  segment AS (
    SELECT
      run_id,
      rank,
      device,
      at_ns AS start_ns,
      -- A default inside lead() does not survive in a view that an older DuckDB shell opens.
      coalesce(lead(at_ns) OVER onwards, at_ns) AS end_ns,
      (sum(change) OVER onwards)::HUGEINT AS running
    FROM cut
    WINDOW onwards AS (PARTITION BY run_id, rank, device ORDER BY at_ns)
  )
SELECT
  run_id,
  rank,
  device,
  start_ns,
  end_ns,
  end_ns - start_ns AS segment_ns,
  (running & 2147483647)::INTEGER AS computation,
  ((running >> 31) & 2147483647)::INTEGER AS communication,
  ((running >> 62) & 2147483647)::INTEGER AS memory,
  ((running >> 93) & 2147483647)::INTEGER AS other,
  CASE
    WHEN computation > 0 THEN 'computation'
    WHEN communication > 0 THEN 'communication'
    WHEN memory > 0 THEN 'memory'
    WHEN other > 0 THEN 'other'
    ELSE 'idle'
  END AS kind
FROM segment
