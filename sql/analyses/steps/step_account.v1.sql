-- /// tw
-- kind     = "analysis"
-- name     = "step_account"
-- version  = 1
-- summary  = "Where the time of each step's period went, part by part: the parts add up to the period."
-- requires = ["device_pieces@1"]
-- needs    = ["gpu", "steps>=1"]
-- grain    = ["run_id", "rank", "step", "part"]
-- order    = ["run_id", "rank", "step", "-part_ns"]
--
-- [params]
-- kernel_wait_ns = { type = "BIGINT", default = 30000, unit = "ns", min = 0, doc = "A gap shorter than this, whose next row had been launched when it began, is idle_kernel_wait." }
--
-- [columns]
-- run_id  = { type = "VARCHAR", doc = "The run." }
-- rank    = { type = "INTEGER", doc = "The rank; its devices are taken together." }
-- step    = { type = "BIGINT", unit = "id", doc = "The number of the step; one without length has no rows." }
-- part    = { type = "VARCHAR", doc = "compute: computation runs; exposed_comm, exposed_memory, other: communication, memory copies and sets, rows of another kind run, and none before them in this list; else nothing runs. The row after the gap was launched after the gap had begun: idle_sync, where its thread was inside a blocking call as the gap began, for as long as that call took; then idle_dataloader, while that thread waits for data; else idle_host. It had been launched: idle_kernel_wait where the gap is short, idle_other where not. idle_unknown: its launch is not in the trace. idle_outside: before the first GPU row or after the last. Parts without time have no row." }
-- part_ns = { type = "BIGINT", unit = "ns", fold = "sum", better = "lower", doc = "Time of the period that went there: the parts of a step add up to period_ns of step_summary." }
-- share   = { type = "DOUBLE", unit = "ratio", fold = "sum", doc = "part_ns over the period." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  piece AS (
    SELECT
      run_id,
      rank,
      step,
      piece_ns,
      CASE
        WHEN kind = 'computation' THEN 'compute'
        WHEN kind = 'communication' THEN 'exposed_comm'
        WHEN kind = 'memory' THEN 'exposed_memory'
        WHEN kind = 'other' THEN 'other'
        WHEN cause <> 'ready' THEN 'idle_' || cause
        WHEN gap_ns < $kernel_wait_ns THEN 'idle_kernel_wait'
        ELSE 'idle_other'
      END AS part
    FROM device_pieces
    WHERE step IS NOT NULL
  ),
  part_sum AS (
    SELECT run_id, rank, step, part, sum(piece_ns)::BIGINT AS part_ns
    FROM piece
    GROUP BY run_id, rank, step, part
  )
SELECT
  run_id,
  rank,
  step,
  part,
  part_ns,
  part_ns / (sum(part_ns) OVER (PARTITION BY run_id, rank, step))::BIGINT AS share
FROM part_sum
