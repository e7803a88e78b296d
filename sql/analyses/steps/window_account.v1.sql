-- /// tw
-- kind     = "analysis"
-- name     = "window_account"
-- version  = 1
-- summary  = "Where the time of each rank's window went, or of each time it was inside an annotation, part by part."
-- requires = ["device_pieces@1", "kernels@1", "annotations@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "occurrence", "part"]
-- order    = ["run_id", "rank", "occurrence", "-part_ns"]
--
-- [params]
-- annotation     = { type = "VARCHAR", doc = "The name of an annotation of the host: account for each time the rank was inside it; else for the rank's whole window." }
-- kernel_wait_ns = { type = "BIGINT", default = 30000, unit = "ns", min = 0, doc = "A gap shorter than this, whose next row had been launched when it began, is idle_kernel_wait." }
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank; its devices are taken together." }
-- occurrence = { type = "BIGINT", unit = "id", doc = "1 for the window; of an annotation its number in time, from 1. One that begins within an earlier one of its name is not counted." }
-- part       = { type = "VARCHAR", doc = "compute: computation runs; exposed_comm, exposed_memory, other: communication, memory copies and sets, rows of another kind run, and none before them in this list; else nothing runs. The row after the gap was launched after the gap had begun: idle_sync, where its thread was inside a blocking call as the gap began, for as long as that call took; then idle_dataloader, while that thread waits for data; else idle_host. It had been launched: idle_kernel_wait where the gap is short, idle_other where not. idle_unknown: its launch is not in the trace. idle_outside: before the first GPU row or after the last. Parts without time have no row." }
-- part_ns    = { type = "BIGINT", unit = "ns", fold = "sum", better = "lower", doc = "Time that went there: the parts add up to the window, from the first start to the last end of a GPU row, or to the annotation's length on the host." }
-- share      = { type = "DOUBLE", unit = "ratio", fold = "sum", doc = "part_ns over all parts." }
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
  piece AS MATERIALIZED (
    SELECT run_id, rank, start_ns, start_ns + piece_ns AS end_ns, kind, cause, gap_ns
    FROM device_pieces
  ),
  point AS (
    -- Where an occurrence ends (-1) or begins, and where a piece begins; after the last piece comes none.
    SELECT run_id, rank, start_ns AS at_ns, 1 AS turn, occurrence, NULL::BIGINT AS piece_at_ns
    FROM span
    UNION ALL
    SELECT run_id, rank, end_ns, 0, -1, NULL
    FROM span
    UNION ALL
    SELECT run_id, rank, start_ns, 2, NULL, start_ns
    FROM piece
    UNION ALL
    SELECT run_id, rank, max(end_ns), 2, NULL, max(end_ns)
    FROM piece
    GROUP BY run_id, rank
  ),
  state AS (
    SELECT
      run_id,
      rank,
      at_ns,
      lead(at_ns) OVER so_far AS until_ns,
      last_value(occurrence IGNORE NULLS) OVER so_far AS occurrence,
      last_value(piece_at_ns IGNORE NULLS) OVER so_far AS piece_at_ns
    FROM point
    WINDOW so_far AS (
      PARTITION BY run_id, rank
      ORDER BY at_ns, turn, occurrence, piece_at_ns
      ROWS UNBOUNDED PRECEDING
    )
  ),
  part_sum AS (
    SELECT
      state.run_id,
      state.rank,
      state.occurrence,
      CASE
        WHEN piece.kind = 'computation' THEN 'compute'
        WHEN piece.kind = 'communication' THEN 'exposed_comm'
        WHEN piece.kind = 'memory' THEN 'exposed_memory'
        WHEN piece.kind = 'other' THEN 'other'
        WHEN piece.kind IS NULL THEN 'idle_outside'
        WHEN piece.cause <> 'ready' THEN 'idle_' || piece.cause
        WHEN piece.gap_ns < $kernel_wait_ns THEN 'idle_kernel_wait'
        ELSE 'idle_other'
      END AS part,
      sum(state.until_ns - state.at_ns)::BIGINT AS part_ns
    FROM state
    LEFT JOIN piece
      ON piece.run_id = state.run_id
      AND piece.rank = state.rank
      AND piece.start_ns = state.piece_at_ns
    WHERE state.occurrence > 0 AND state.until_ns > state.at_ns
    GROUP BY state.run_id, state.rank, state.occurrence, part
  )
SELECT
  run_id,
  rank,
  occurrence,
  part,
  part_ns,
  part_ns / (sum(part_ns) OVER (PARTITION BY run_id, rank, occurrence))::BIGINT AS share
FROM part_sum
