-- /// tw
-- kind     = "table"
-- name     = "correlations"
-- version  = 1
-- summary  = "A host call and a GPU row that it launched; a graph launch has many."
-- requires = ["launches@1", "calls@1", "parsed@1"]
-- grain    = ["run_id", "rank", "kernel_id"]
-- order    = ["run_id", "rank", "runtime_id", "kernel_id"]
--
-- [columns]
-- run_id             = { type = "VARCHAR", doc = "The run." }
-- rank               = { type = "INTEGER", doc = "The rank." }
-- runtime_id         = { type = "BIGINT", unit = "id", doc = "The host call." }
-- kernel_id          = { type = "BIGINT", unit = "id", doc = "The GPU row." }
-- call_to_start_ns   = { type = "BIGINT", signed = true, unit = "ns", doc = "Start of the GPU row less start of the call." }
-- return_to_start_ns = { type = "BIGINT", signed = true, unit = "ns", doc = "Start of the GPU row less end of the call: negative where it starts before the call returns." }
-- is_graph           = { type = "BOOLEAN", doc = "The call launches a graph." }
-- via                = { type = "VARCHAR", doc = "What links the two: correlation, or flow where the GPU row has no id." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  launches.run_id,
  launches.rank,
  launches.runtime_id,
  launches.kernel_id,
  kernel.ts_ns - calls.ts_ns AS call_to_start_ns,
  kernel.ts_ns - calls.end_ns AS return_to_start_ns,
  launches.is_graph,
  launches.via
FROM launches
JOIN calls ON calls.event_id = launches.runtime_id
JOIN parsed AS kernel ON kernel.event_id = launches.kernel_id
