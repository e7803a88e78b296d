-- /// tw
-- kind     = "analysis"
-- name     = "window_kernels"
-- version  = 1
-- summary  = "Contribution of each kernel to each rank's GPU window, or to each occurrence of an annotation, by operator and module path."
-- requires = ["device_segments@1", "kernels@1", "correlations@1", "annotations@1", "events@1", "kernel_work@1"]
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
-- run_id       = { type = "VARCHAR", doc = "The run." }
-- rank         = { type = "INTEGER", doc = "The rank; its devices are combined." }
-- occurrence   = { type = "BIGINT", unit = "id", doc = "1 for the GPU window; for an annotation its number in time order, starting at 1. An occurrence that begins within an earlier one of the same name is not counted." }
-- kind         = { type = "VARCHAR", doc = "computation, communication, memory (memcpy and memset) or other." }
-- name         = { type = "VARCHAR", null = true, doc = "Full kernel name." }
-- pass         = { type = "VARCHAR", doc = "forward, backward, recompute, optimizer, data or other." }
-- op           = { type = "VARCHAR", null = true, doc = "The innermost operator enclosing its launch." }
-- op_sig       = { type = "VARCHAR", null = true, doc = "That operator with the shapes and types of its inputs." }
-- path_sig     = { type = "VARCHAR", null = true, doc = "Modules and operators enclosing the launch, outermost first." }
-- is_graph     = { type = "BOOLEAN", doc = "True if it was replayed by a graph launch." }
-- module_path  = { type = "VARCHAR", doc = "Its module, as in `kernel_work`; (communication), (optimizer), (gradient accumulation) or (outside any module)." }
-- family       = { type = "VARCHAR", null = true, doc = "Family of the operator in `op_work` that encloses its launch; null without one, and for communication." }
-- work_unit    = { type = "VARCHAR", null = true, doc = "What the work of that operator is counted in, flop or bytes; null if it is not known." }
-- count        = { type = "BIGINT", unit = "count", aggregate = "sum", better = "lower", doc = "Number of its GPU activities that start in the window or annotation; 0 if only the remainder of one extends into it." }
-- sum_ns       = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Sum of the full durations of the GPU activities that start in the window or annotation, regardless of overlap." }
-- exclusive_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Time there attributed to it: if several activities run, computation comes before communication, memory and other, and within a kind the one that started first. All rows of a kind sum to its part of window_account." }
-- work         = { type = "DECIMAL(38,0)", null = true, doc = "FLOP or bytes of the operators whose main kernel starts in the window or annotation; null without work_unit." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  named AS (
    SELECT
      run_id,
      rank,
      event_id,
      ts_ns AS start_ns,
      ts_ns + dur_ns AS end_ns,
      max(ts_ns + dur_ns) OVER earlier AS reached_ns
    FROM annotations
    WHERE name = $annotation AND NOT on_gpu AND dur_ns > 0
    WINDOW earlier AS (
      PARTITION BY run_id, rank
      ORDER BY ts_ns, dur_ns DESC, event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  ),
  span AS (
    SELECT
      run_id,
      rank,
      row_number() OVER (PARTITION BY run_id, rank ORDER BY start_ns, event_id) AS occurrence,
      start_ns,
      end_ns
    FROM named
    WHERE start_ns >= coalesce(reached_ns, start_ns)
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
  ),
  part AS (
    SELECT
      state.run_id,
      state.rank,
      state.occurrence,
      segment.kernel_id,
      0 AS starts,
      0 AS sum_ns,
      state.until_ns - state.at_ns AS exclusive_ns
    FROM state
    JOIN segment
      ON segment.run_id = state.run_id
      AND segment.rank = state.rank
      AND segment.start_ns = state.segment_at_ns
    WHERE state.occurrence > 0 AND state.until_ns > state.at_ns AND segment.kernel_id IS NOT NULL
    UNION ALL
    SELECT kernels.run_id, kernels.rank, span.occurrence, kernels.event_id, 1, kernels.dur_ns, 0
    FROM kernels
    ASOF JOIN span
      ON span.run_id = kernels.run_id
      AND span.rank = kernels.rank
      AND span.start_ns <= kernels.ts_ns
    WHERE kernels.ts_ns < span.end_ns
  ),
  owned AS (
    -- Aggregate by GPU activity first: names and signatures are long.
    SELECT
      run_id,
      rank,
      occurrence,
      kernel_id,
      sum(starts)::BIGINT AS starts,
      sum(sum_ns)::BIGINT AS sum_ns,
      sum(exclusive_ns)::BIGINT AS exclusive_ns
    FROM part
    GROUP BY run_id, rank, occurrence, kernel_id
  ),
  op AS (
    SELECT run_id, rank, event_id, name
    FROM events
    WHERE category = 'cpu_op'
  )
SELECT
  owned.run_id,
  owned.rank,
  owned.occurrence,
  kernels.kind,
  kernels.name,
  kernels.pass,
  op.name AS op,
  kernels.op_sig,
  kernels.path_sig,
  coalesce(correlations.is_graph, FALSE) AS is_graph,
  kernel_work.module_path,
  kernel_work.family,
  kernel_work.work_unit,
  sum(owned.starts)::BIGINT AS count,
  sum(owned.sum_ns)::BIGINT AS sum_ns,
  sum(owned.exclusive_ns)::BIGINT AS exclusive_ns,
  sum(owned.starts * kernel_work.work::DECIMAL(38, 0))::DECIMAL(38, 0) AS work
FROM owned
JOIN kernels
  ON kernels.run_id = owned.run_id
  AND kernels.rank = owned.rank
  AND kernels.event_id = owned.kernel_id
JOIN kernel_work
  ON kernel_work.run_id = kernels.run_id
  AND kernel_work.rank = kernels.rank
  AND kernel_work.event_id = kernels.event_id
LEFT JOIN correlations
  ON correlations.run_id = kernels.run_id
  AND correlations.rank = kernels.rank
  AND correlations.kernel_id = kernels.event_id
LEFT JOIN op
  ON op.run_id = kernels.run_id
  AND op.rank = kernels.rank
  AND op.event_id = kernels.op_id
GROUP BY
  owned.run_id,
  owned.rank,
  owned.occurrence,
  kernels.kind,
  kernels.name,
  kernels.pass,
  op.name,
  kernels.op_sig,
  kernels.path_sig,
  coalesce(correlations.is_graph, FALSE),
  kernel_work.module_path,
  kernel_work.family,
  kernel_work.work_unit
