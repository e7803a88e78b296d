-- /// tw
-- kind     = "analysis"
-- name     = "coverage"
-- version  = 1
-- summary  = "How much of each device's GPU time has a known launch, and a known operator behind it."
-- requires = ["kernels@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device"]
-- order    = ["run_id", "rank", "device"]
--
-- [columns]
-- run_id           = { type = "VARCHAR", doc = "The run." }
-- rank             = { type = "INTEGER", doc = "The rank." }
-- device           = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 where the trace does not say." }
-- gpu_ns           = { type = "BIGINT", unit = "ns", fold = "sum", doc = "Durations of all GPU rows added up: the sum of the next three." }
-- linked_ns        = { type = "BIGINT", unit = "ns", fold = "sum", better = "higher", doc = "Of rows whose launch is in the trace." }
-- before_window_ns = { type = "BIGINT", unit = "ns", fold = "sum", doc = "Of rows launched before the recording began: unlinked, and earlier than the first linked row of their stream." }
-- missing_ns       = { type = "BIGINT", unit = "ns", fold = "sum", better = "lower", doc = "Of rows whose launch should be in the trace and is not." }
-- with_op_ns       = { type = "BIGINT", unit = "ns", fold = "sum", better = "higher", doc = "Of linked rows whose launch lies within an operator." }
-- linked           = { type = "DOUBLE", unit = "ratio", fold = "linked_ns/gpu_ns", better = "higher", null = true, doc = "linked_ns over gpu_ns; null where gpu_ns is 0." }
-- before_window    = { type = "DOUBLE", unit = "ratio", fold = "before_window_ns/gpu_ns", null = true, doc = "before_window_ns over gpu_ns." }
-- missing          = { type = "DOUBLE", unit = "ratio", fold = "missing_ns/gpu_ns", better = "lower", null = true, doc = "missing_ns over gpu_ns." }
-- with_op          = { type = "DOUBLE", unit = "ratio", fold = "with_op_ns/gpu_ns", better = "higher", null = true, doc = "with_op_ns over gpu_ns." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  device_sum AS (
    SELECT
      run_id,
      rank,
      device,
      sum(dur_ns)::BIGINT AS gpu_ns,
      coalesce(sum(dur_ns) FILTER (launch_state = 'linked'), 0)::BIGINT AS linked_ns,
      coalesce(sum(dur_ns) FILTER (launch_state = 'before_window'), 0)::BIGINT AS before_window_ns,
      coalesce(sum(dur_ns) FILTER (launch_state = 'missing'), 0)::BIGINT AS missing_ns,
      coalesce(sum(dur_ns) FILTER (launch_state = 'linked' AND op_id IS NOT NULL), 0)::BIGINT AS with_op_ns
    FROM kernels
    GROUP BY run_id, rank, device
  )
SELECT
  run_id,
  rank,
  device,
  gpu_ns,
  linked_ns,
  before_window_ns,
  missing_ns,
  with_op_ns,
  linked_ns / nullif(gpu_ns, 0) AS linked,
  before_window_ns / nullif(gpu_ns, 0) AS before_window,
  missing_ns / nullif(gpu_ns, 0) AS missing,
  with_op_ns / nullif(gpu_ns, 0) AS with_op
FROM device_sum
