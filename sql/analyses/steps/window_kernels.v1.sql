-- /// tw
-- kind     = "analysis"
-- like     = "interval_kernels_base@1"
-- name     = "window_kernels"
-- version  = 1
-- summary  = "Contribution of each kernel to each rank's GPU window, or to each occurrence of an annotation, by operator and module path."
-- requires = ["device_segments@1", "annotation_occurrences@1"]
-- optional = ["op_work", "kernel_modules"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "occurrence", "kind", "name", "pass", "op", "op_sig", "path_sig", "is_graph", "module_path", "family", "work_unit"]
-- per      = "window"
-- order    = ["run_id", "rank", "occurrence", "-exclusive_ns", "name"]
--
-- [params]
-- annotation = { type = "VARCHAR", doc = "Name of a host annotation: analyze each of its occurrences instead of the rank's GPU window." }
--
-- [columns]
-- occurrence   = { type = "BIGINT", unit = "id", doc = "1 for the GPU window; for an annotation its number in time order, starting at 1. An occurrence that begins within an earlier one of the same name is not counted." }
-- kind         = {}
-- exclusive_ns = { doc = "Time there attributed to it: if several activities run, computation comes before communication, memory and other, and within a kind the one that started first. All rows of a kind sum to its part of window_account." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  span AS (
    SELECT run_id, rank, occurrence, start_ns, end_ns
    FROM annotation_occurrences
    WHERE name = $annotation
    UNION ALL
    SELECT run_id, rank, 1, min(ts_ns), max(ts_ns + dur_ns)
    FROM kernels
    WHERE $annotation IS NULL
    GROUP BY run_id, rank
  ),
  segment AS MATERIALIZED (
    SELECT run_id, rank, start_ns, start_ns + segment_ns AS end_ns, kernel_id
    FROM device_segments
  ),
  point AS (
    -- Ends (-1) and starts of occurrences, and starts of segments; no segment follows the last.
    SELECT run_id, rank, start_ns AS at_ns, 1 AS turn, occurrence, NULL::BIGINT AS segment_at_ns
    FROM span
    UNION ALL
    SELECT run_id, rank, end_ns, 0, -1, NULL
    FROM span
    UNION ALL
    SELECT run_id, rank, start_ns, 2, NULL, start_ns
    FROM segment
    UNION ALL
    SELECT run_id, rank, max(end_ns), 2, NULL, max(end_ns)
    FROM segment
    GROUP BY run_id, rank
  ),
  numbered AS (
    SELECT
      run_id,
      rank,
      at_ns,
      occurrence,
      segment_at_ns,
      row_number() OVER (PARTITION BY run_id, rank ORDER BY at_ns, turn, occurrence, segment_at_ns) AS place
    FROM point
  ),
  state AS (
    -- The last occurrence so far: the maximum of its place and itself, packed into one number.
    SELECT
      run_id,
      rank,
      at_ns,
      lead(at_ns) OVER so_far AS until_ns,
      ((max((place::HUGEINT << 64) + occurrence + 1) OVER so_far) & 18446744073709551615)::BIGINT - 1 AS occurrence,
      max(segment_at_ns) OVER so_far AS segment_at_ns
    FROM numbered
    WINDOW so_far AS (PARTITION BY run_id, rank ORDER BY place ROWS UNBOUNDED PRECEDING)
  )
SELECT
  state.run_id,
  state.rank,
  {'occurrence': state.occurrence} AS keys,
  segment.kernel_id,
  0 AS starts,
  0 AS sum_ns,
  state.until_ns - state.at_ns AS exclusive_ns
FROM state
JOIN segment
  ON segment.run_id = state.run_id AND segment.rank = state.rank AND segment.start_ns = state.segment_at_ns
WHERE state.occurrence > 0 AND state.until_ns > state.at_ns AND segment.kernel_id IS NOT NULL
UNION ALL
SELECT kernels.run_id, kernels.rank, {'occurrence': span.occurrence}, kernels.event_id, 1, kernels.dur_ns, 0
FROM kernels
ASOF JOIN span
  ON span.run_id = kernels.run_id AND span.rank = kernels.rank AND span.start_ns <= kernels.ts_ns
WHERE kernels.ts_ns < span.end_ns
