-- /// tw
-- kind     = "analysis"
-- name     = "step_summary"
-- version  = 1
-- summary  = "How long each profiler step took, on the host, on the device, and from step to step."
-- requires = ["steps@1"]
-- needs    = ["steps>=1"]
-- grain    = ["run_id", "rank", "step"]
-- order    = ["run_id", "rank", "step"]
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank." }
-- step      = { type = "BIGINT", unit = "id", doc = "The number of the step." }
-- host_ns   = { type = "BIGINT", unit = "ns", fold = "sum", better = "lower", doc = "Start to end of the step on the host." }
-- device_ns = { type = "BIGINT", unit = "ns", fold = "sum", better = "lower", null = true, doc = "First start to last end of the GPU rows it launched; null where there are none." }
-- period_ns = { type = "BIGINT", unit = "ns", fold = "sum", better = "lower", doc = "From the end of the step before (of the first from its host start) to its own: that of its last GPU row, of the host without one. Periods tile the time." }
-- partial   = { type = "BOOLEAN", doc = "Its host or device span touches the edge of the window, so the profiler may have cut it." }
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
