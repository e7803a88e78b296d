-- /// tw
-- kind     = "view"
-- name     = "step_computation"
-- version  = 1
-- summary  = "First and last computation of each step on the GPU; before it a pipeline fills, after it the pipeline drains."
-- requires = ["kernels@1"]
-- grain    = ["run_id", "rank", "step"]
-- order    = ["run_id", "rank", "step"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- step     = { type = "BIGINT", unit = "id", doc = "The profiler step in which the computation was launched." }
-- first_ns = { type = "BIGINT", unit = "ts", signed = true, doc = "Start of its first computation." }
-- last_ns  = { type = "BIGINT", unit = "ts", signed = true, doc = "End of its last computation, on any device and stream." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT run_id, rank, step, min(ts_ns) AS first_ns, max(ts_ns + dur_ns) AS last_ns
FROM kernels
WHERE kind = 'computation' AND step IS NOT NULL
GROUP BY run_id, rank, step
