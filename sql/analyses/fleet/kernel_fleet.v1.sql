-- /// tw
-- kind     = "analysis"
-- scope    = "fleet"
-- like     = "fleet_base@1"
-- name     = "kernel_fleet"
-- version  = 1
-- summary  = "Kernels that cost most over runs, per period, label, model and GPU, from recorded results."
-- requires = ["recorded_kernel_summary@1"]
-- per      = "window"
-- empty    = "no run has a recorded kernel_summary"
--
-- [columns]
-- name   = { doc = "Full name of the kernel, memcpy or memset." }
-- count  = { doc = "Number of GPU activities with this name in the recordings of these runs." }
-- sum_ns = { doc = "Sum of durations in these recordings (overlaps counted multiple times)." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  name,
  sum(count)::BIGINT AS count,
  sum(sum_ns)::BIGINT AS sum_ns,
  sum(sum(sum_ns)) OVER (PARTITION BY run_id) AS whole_ns
FROM recorded_kernel_summary
GROUP BY run_id, name
