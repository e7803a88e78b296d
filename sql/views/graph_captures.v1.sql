-- /// tw
-- kind     = "view"
-- name     = "graph_captures"
-- version  = 1
-- summary  = "Each capture of a CUDA or HIP graph with the launches that it recorded."
-- requires = ["captured_launches@1"]
-- grain    = ["run_id", "rank", "capture"]
-- order    = ["run_id", "rank", "capture"]
--
-- [columns]
-- run_id         = { type = "VARCHAR", doc = "The run." }
-- rank           = { type = "INTEGER", doc = "The rank." }
-- capture        = { type = "BIGINT", unit = "count", doc = "Number of the capture within the rank, in order of time, starting at 1. Captures without launches have no row." }
-- begin_id       = { type = "BIGINT", unit = "id", doc = "The call that began the capture." }
-- end_id         = { type = "BIGINT", unit = "id", doc = "The call that ended it." }
-- launches       = { type = "BIGINT", unit = "count", doc = "Number of captured launches." }
-- shape          = { type = "VARCHAR", null = true, doc = "Hash of the kernel names in order; equals `shape` in `graph_replays` if that has no grid and block sizes. Null if the trace does not name the kernels of launches, as on CUDA." }
-- order_in_shape = { type = "BIGINT", unit = "count", doc = "Position among the captures of the rank with this shape, starting at 1; without names, among those with as many launches." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  capture AS (
    SELECT
      run_id,
      rank,
      capture,
      min(begin_id) AS begin_id,
      min(end_id) AS end_id,
      count(*) AS launches,
      CASE
        WHEN count(*) = count(kernel) THEN left(md5(string_agg(kernel, chr(10) ORDER BY position)), 16)
      END AS shape
    FROM captured_launches
    GROUP BY run_id, rank, capture
  )
SELECT
  run_id,
  rank,
  capture,
  begin_id,
  end_id,
  launches,
  shape,
  row_number() OVER (
    PARTITION BY run_id, rank, coalesce(shape, launches::VARCHAR)
    ORDER BY capture
  ) AS order_in_shape
FROM capture
