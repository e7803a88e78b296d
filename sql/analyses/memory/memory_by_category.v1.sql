-- /// tw
-- kind     = "analysis"
-- name     = "memory_by_category"
-- version  = 1
-- summary  = "What the memory of a timeline was used for: at its peak, at the end, and the most of each category."
-- requires = ["memory_timeline@1"]
-- needs    = ["memory_timeline"]
-- grain    = ["run_id", "rank", "category"]
-- order    = ["run_id", "rank", "-at_peak_bytes", "category"]
--
-- [columns]
-- run_id            = { type = "VARCHAR", doc = "The run." }
-- rank              = { type = "INTEGER", doc = "The rank." }
-- category          = { type = "VARCHAR", null = true, doc = "parameter, optimizer_state, input, temporary, activation, gradient, autograd_detail, unknown (torch could not tell); null for a number that torch does not use." }
-- changes           = { type = "BIGINT", unit = "count", doc = "Rows of the timeline." }
-- preexisting_bytes = { type = "BIGINT", signed = true, unit = "bytes", doc = "What was there before the first moment." }
-- at_peak_bytes     = { type = "BIGINT", signed = true, unit = "bytes", better = "lower", doc = "Bytes in it when all together were most, for the first time; the categories of a rank add up to the peak." }
-- peak_at_ns        = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "When that was, the same for all categories; null where it never rose above what was there before." }
-- most_bytes        = { type = "BIGINT", signed = true, unit = "bytes", better = "lower", doc = "The most bytes in it at any moment." }
-- most_at_ns        = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "When that was reached first; null where that was before the first moment." }
-- end_bytes         = { type = "BIGINT", signed = true, unit = "bytes", better = "lower", doc = "What is left after the last moment." }
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
    JOIN peak ON peak.run_id = timeline.run_id AND peak.rank = timeline.rank
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
  max(running_bytes) AS most_bytes,
  arg_max_null(ts_ns, (running_bytes, -position)) AS most_at_ns,
  sum(bytes)::BIGINT AS end_bytes
FROM category_total
GROUP BY run_id, rank, category, peak_at_ns
