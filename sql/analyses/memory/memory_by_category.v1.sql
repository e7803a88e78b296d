-- /// tw
-- kind     = "analysis"
-- name     = "memory_by_category"
-- version  = 1
-- summary  = "Memory by category of a memory timeline: at the peak, at the end, and the maximum of each category."
-- requires = ["memory_timeline@1"]
-- needs    = ["memory_timeline"]
-- grain    = ["run_id", "rank", "category"]
-- order    = ["run_id", "rank", "-at_peak_bytes", "category"]
--
-- [columns]
-- run_id            = { type = "VARCHAR", doc = "The run." }
-- rank              = { type = "INTEGER", doc = "The rank." }
-- category          = { type = "VARCHAR", null = true, doc = "parameter, optimizer_state, input, temporary, activation, gradient, autograd_detail, unknown (not classified by torch); null for a number that torch does not use." }
-- changes           = { type = "BIGINT", unit = "count", doc = "Number of timeline rows." }
-- preexisting_bytes = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes allocated before the first timestamp." }
-- at_peak_bytes     = { type = "BIGINT", signed = true, unit = "bytes", better = "lower", doc = "Bytes of the category when the total first peaked; the categories of a rank sum to the peak." }
-- peak_at_ns        = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "Time of the peak, the same for all categories; null if the total never exceeded what was allocated before the first timestamp." }
-- max_bytes         = { type = "BIGINT", signed = true, unit = "bytes", better = "lower", doc = "Maximum bytes of the category." }
-- max_at_ns         = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "When the maximum was first reached; null if it was before the first timestamp." }
-- end_bytes         = { type = "BIGINT", signed = true, unit = "bytes", better = "lower", doc = "Bytes after the last timestamp." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  moment AS (
    SELECT run_id, rank, ts_ns, sum(bytes)::BIGINT AS bytes
    FROM memory_timeline
    GROUP BY run_id, rank, ts_ns
  ),
  total AS (
    SELECT
      run_id,
      rank,
      ts_ns,
      row_number() OVER so_far AS position,
      (sum(bytes) OVER so_far)::BIGINT AS bytes
    FROM moment
    WINDOW so_far AS (PARTITION BY run_id, rank ORDER BY ts_ns NULLS FIRST)
  ),
  peak AS (
    SELECT run_id, rank, arg_max_null(ts_ns, (bytes, -position)) AS peak_at_ns
    FROM total
    GROUP BY run_id, rank
  ),
  category_moment AS (
    SELECT
      timeline.run_id,
      timeline.rank,
      timeline.category,
      timeline.ts_ns,
      peak.peak_at_ns,
      count(*) AS changes,
      sum(timeline.bytes)::BIGINT AS bytes
    FROM memory_timeline AS timeline
    JOIN peak USING (run_id, rank)
    GROUP BY timeline.run_id, timeline.rank, timeline.category, timeline.ts_ns, peak.peak_at_ns
  ),
  category_total AS (
    SELECT
      run_id,
      rank,
      category,
      ts_ns,
      peak_at_ns,
      changes,
      bytes,
      row_number() OVER so_far AS position,
      (sum(bytes) OVER so_far)::BIGINT AS running_bytes
    FROM category_moment
    WINDOW so_far AS (PARTITION BY run_id, rank, category ORDER BY ts_ns NULLS FIRST)
  )
SELECT
  run_id,
  rank,
  category,
  sum(changes)::BIGINT AS changes,
  coalesce(sum(bytes) FILTER (ts_ns IS NULL), 0)::BIGINT AS preexisting_bytes,
  coalesce(sum(bytes) FILTER (ts_ns IS NULL OR ts_ns <= peak_at_ns), 0)::BIGINT AS at_peak_bytes,
  peak_at_ns,
  max(running_bytes) AS max_bytes,
  arg_max_null(ts_ns, (running_bytes, -position)) AS max_at_ns,
  sum(bytes)::BIGINT AS end_bytes
FROM category_total
GROUP BY run_id, rank, category, peak_at_ns
