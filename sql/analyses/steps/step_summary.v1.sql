-- /// tw
-- kind     = "analysis"
-- name     = "step_summary"
-- version  = 1
-- summary  = "Duration of each profiler step on the host, on the device, and from step to step."
-- requires = ["steps@1"]
-- needs    = ["steps>=1"]
-- grain    = ["run_id", "rank", "step"]
-- order    = ["run_id", "rank", "step"]
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank." }
-- step      = { type = "BIGINT", unit = "id", doc = "Step number." }
-- host_ns   = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Start to end of the step on the host." }
-- device_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", null = true, doc = "First start to last end of the GPU activities it launched; null if there are none." }
-- period_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "From the end of the previous step (for the first step, from its host start) to its own end: that of its last GPU activity or, without one, of the host. Periods are contiguous." }
-- partial   = { type = "BOOLEAN", doc = "True if its host or device interval touches the edge of the profiling window, so the profiler may have truncated it." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  step,
  host_ns,
  device_ns,
  period_ns,
  partial
FROM steps
