-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "window_account"
-- version  = 1
-- summary  = "Breakdown of each rank's GPU window, or of each occurrence of an annotation, by GPU activity and idle cause."
-- requires = ["account_segments@1", "annotation_occurrences@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "occurrence", "category"]
-- per      = "window"
-- order    = ["run_id", "rank", "occurrence", "-category_ns"]
--
-- [params]
-- annotation     = { type = "VARCHAR", doc = "Name of a host annotation: analyze each of its occurrences instead of the rank's GPU window." }
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank; its devices are combined." }
-- occurrence  = { type = "BIGINT", unit = "id", doc = "1 for the GPU window; for an annotation its number in time order, starting at 1. An occurrence that begins within an earlier one of the same name is not counted." }
-- category    = { type = "VARCHAR", doc = "compute: computation runs; exposed_wait, exposed_transfer, exposed_unassigned: communication runs, but no computation (exposed communication): until the last rank arrived, from then on, or not matched with another rank (see `account_segments`); exposed_memory, other: memcpy or memset, or activities of another kind run, and none before them in this list; otherwise nothing runs. Until pending work was launched: idle_sync, if its thread was in a blocking call when the gap began, for the duration of that call; then idle_dataloader, while that thread waits for data; otherwise idle_host. Then idle_call, until the call returned; idle_latency, for as long as launches usually take; and idle_queued. idle_graph: inside a graph launch. idle_unknown: the launch of the next activity is missing from the trace (see `device_segments`). idle_outside: before the first GPU activity or after the last. Parts without time have no row." }
-- category_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Time in this category; the parts sum to the GPU window (first start to last end of GPU activities), or to the annotation's duration on the host." }
-- share       = { type = "DOUBLE", unit = "ratio", aggregate = "sum", doc = "category_ns as a share of all parts." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS MATERIALIZED (
    SELECT run_id, rank, start_ns, start_ns + segment_ns AS end_ns, kind, exposure, cause, gap_ns
    FROM account_segments
  ),
  span AS (
    SELECT run_id, rank, occurrence, start_ns, end_ns
    FROM annotation_occurrences
    WHERE name = $annotation
    UNION ALL
    SELECT run_id, rank, 1, min(start_ns), max(end_ns)
    FROM segment
    WHERE $annotation IS NULL AND coalesce(cause, '') <> 'outside'
    GROUP BY run_id, rank
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
  ),
  part_sum AS (
    SELECT
      state.run_id,
      state.rank,
      state.occurrence,
      CASE
        WHEN segment.kind = 'computation' THEN 'compute'
        WHEN segment.kind = 'communication' THEN 'exposed_' || segment.exposure
        WHEN segment.kind = 'memory' THEN 'exposed_memory'
        WHEN segment.kind = 'other' THEN 'other'
        WHEN segment.kind IS NULL THEN 'idle_outside'
        ELSE 'idle_' || segment.cause
      END AS category,
      sum(state.until_ns - state.at_ns)::BIGINT AS category_ns
    FROM state
    LEFT JOIN segment
      ON segment.run_id = state.run_id AND segment.rank = state.rank AND segment.start_ns = state.segment_at_ns
    WHERE state.occurrence > 0 AND state.until_ns > state.at_ns
    GROUP BY state.run_id, state.rank, state.occurrence, category
  )
SELECT
  run_id,
  rank,
  occurrence,
  category,
  category_ns,
  category_ns / (sum(category_ns) OVER (PARTITION BY run_id, rank, occurrence))::BIGINT AS share
FROM part_sum
