-- /// tw
-- kind     = "analysis"
-- like     = "interval_kernels_base@1"
-- name     = "step_kernels"
-- version  = 1
-- summary  = "Contribution of each kernel to each step's period, with its count, by operator and module path."
-- requires = ["device_segments@1", "steps@1"]
-- optional = ["op_work", "kernel_modules"]
-- needs    = ["gpu", "steps>=1"]
-- grain    = ["run_id", "rank", "step", "kind", "name", "pass", "op", "op_sig", "path_sig", "is_graph", "module_path", "family", "work_unit"]
-- order    = ["run_id", "rank", "step", "-exclusive_ns", "name"]
--
-- [columns]
-- step         = { type = "BIGINT", unit = "id", doc = "Step number." }
-- kind         = {}
-- exclusive_ns = { doc = "Time of the period attributed to it: if several activities run, computation comes before communication, memory and other, and within a kind the one that started first. All rows of a kind sum to its part of step_account." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  period AS (
    SELECT run_id, rank, step, period_start_ns, period_start_ns + period_ns AS end_ns
    FROM steps
    WHERE period_ns > 0
  )
SELECT run_id, rank, {'step': step} AS keys, kernel_id, 0 AS starts, 0 AS sum_ns, segment_ns AS exclusive_ns
FROM device_segments
WHERE step IS NOT NULL AND kernel_id IS NOT NULL
UNION ALL
SELECT kernels.run_id, kernels.rank, {'step': period.step}, kernels.event_id, 1, kernels.dur_ns, 0
FROM kernels
ASOF JOIN period
  ON period.run_id = kernels.run_id AND period.rank = kernels.rank AND period.period_start_ns <= kernels.ts_ns
WHERE kernels.ts_ns < period.end_ns
