-- /// tw
-- kind     = "analysis"
-- name     = "kernel_type_breakdown"
-- version  = 1
-- summary  = "Busy time of each device by the combination of kinds of GPU activity running at once."
-- requires = ["device_timeline@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device", "class"]
-- per      = "window"
-- order    = ["run_id", "rank", "device", "-class_ns", "class"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- device   = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- class    = { type = "VARCHAR", doc = "The kinds running at once, on any stream: computation, communication, memory, other, in this order, joined with +. Combinations without time, and idle time, have no row." }
-- class_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", doc = "Time with exactly these kinds running; the classes of a device sum to busy_ns of temporal_breakdown." }
-- share    = { type = "DOUBLE", unit = "ratio", aggregate = "sum", doc = "class_ns as a share of the device's busy time." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT
      run_id,
      rank,
      device,
      segment_ns,
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
    SELECT run_id, rank, device, class, sum(segment_ns)::BIGINT AS class_ns
    FROM segment
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
