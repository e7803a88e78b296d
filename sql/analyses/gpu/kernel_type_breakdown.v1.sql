-- /// tw
-- kind     = "analysis"
-- name     = "kernel_type_breakdown"
-- version  = 1
-- summary  = "What each device was busy with: every instant in one class, named after all kinds of GPU rows that ran in it."
-- requires = ["device_timeline@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device", "class"]
-- order    = ["run_id", "rank", "device", "-class_ns", "class"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- device   = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 where the trace does not say." }
-- class    = { type = "VARCHAR", doc = "The kinds that ran at once, on any stream: computation, communication, memory, other, in this order with + between. A class that took no time has no row, nor has idle time." }
-- class_ns = { type = "BIGINT", unit = "ns", fold = "sum", doc = "Time with just these kinds running; of a device they add up to the busy time of temporal_breakdown." }
-- share    = { type = "DOUBLE", unit = "ratio", fold = "sum", doc = "class_ns over the device's busy time." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  piece AS (
    SELECT
      run_id,
      rank,
      device,
      piece_ns,
      concat_ws(
        '+',
        CASE WHEN computation > 0 THEN 'computation' END,
        CASE WHEN communication > 0 THEN 'communication' END,
        CASE WHEN memory > 0 THEN 'memory' END,
        CASE WHEN other > 0 THEN 'other' END
      ) AS class
    FROM device_timeline
  ),
  class_sum AS (
    SELECT run_id, rank, device, class, sum(piece_ns)::BIGINT AS class_ns
    FROM piece
    WHERE class <> ''
    GROUP BY run_id, rank, device, class
  )
SELECT
  run_id,
  rank,
  device,
  class,
  class_ns,
  class_ns / sum(class_ns) OVER (PARTITION BY run_id, rank, device) AS share
FROM class_sum
