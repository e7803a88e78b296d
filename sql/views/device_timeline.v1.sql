-- /// tw
-- kind     = "view"
-- name     = "device_timeline"
-- version  = 1
-- summary  = "Each device's window, cut wherever a GPU row starts or ends, with the rows of each kind that run in each piece."
-- requires = ["kernels@1"]
-- grain    = ["run_id", "rank", "device", "start_ns"]
-- order    = ["run_id", "rank", "device", "start_ns"]
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- device        = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 where the trace does not say." }
-- start_ns      = { type = "BIGINT", unit = "ts", doc = "Where the piece begins." }
-- end_ns        = { type = "BIGINT", unit = "ts", doc = "Where the next one begins; the last piece has no length and closes the window." }
-- piece_ns      = { type = "BIGINT", unit = "ns", doc = "end_ns minus start_ns; the pieces of a device add up to its window." }
-- computation   = { type = "INTEGER", unit = "count", doc = "Computation rows that run in the piece, on any stream." }
-- communication = { type = "INTEGER", unit = "count", doc = "Communication rows that run in it." }
-- memory        = { type = "INTEGER", unit = "count", doc = "Memory copies and sets that run in it." }
-- other         = { type = "INTEGER", unit = "count", doc = "Rows of any other kind that run in it." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  lane AS (
    -- Four running counts in one number, 31 bits each: one window sum instead of four.
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
    -- All edges of one instant together: a row without length leaves a cut and no time.
    SELECT run_id, rank, device, at_ns, sum(change)::HUGEINT AS change
    FROM edge
    GROUP BY run_id, rank, device, at_ns
  ),
  piece AS (
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
  end_ns - start_ns AS piece_ns,
  (running & 2147483647)::INTEGER AS computation,
  ((running >> 31) & 2147483647)::INTEGER AS communication,
  ((running >> 62) & 2147483647)::INTEGER AS memory,
  ((running >> 93) & 2147483647)::INTEGER AS other
FROM piece
