-- /// tw
-- kind     = "analysis"
-- name     = "launch_stats"
-- version  = 1
-- summary  = "GPU activities with the host call that launched each, and the launch delays."
-- requires = ["kernels@1"]
-- needs    = ["gpu", "launches"]
-- grain    = ["run_id", "rank", "kernel_id"]
-- order    = ["run_id", "rank", "kernel_id"]
-- in_order = true
--
-- [columns]
-- run_id             = { type = "VARCHAR", doc = "The run." }
-- rank               = { type = "INTEGER", doc = "The rank." }
-- kernel_id          = { type = "BIGINT", unit = "id", doc = "event_id of the GPU activity." }
-- runtime_id         = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the host call; null if the launch is unknown." }
-- api                = { type = "VARCHAR", null = true, doc = "Name of the host function; a graph launch is repeated for each of its GPU activities." }
-- name               = { type = "VARCHAR", null = true, doc = "Name of the GPU activity." }
-- kind               = { type = "VARCHAR", doc = "computation, communication, memory or other." }
-- device             = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- stream             = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 if unknown." }
-- call_ns            = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "Duration of the host call." }
-- kernel_ns          = { type = "BIGINT", unit = "ns", better = "lower", doc = "Duration of the GPU activity." }
-- return_to_start_ns = { type = "BIGINT", unit = "ns", null = true, signed = true, doc = "GPU start minus end of the host call, including time in the queue; negative if the activity started before the call returned." }
-- call_to_start_ns   = { type = "BIGINT", unit = "ns", null = true, signed = true, doc = "GPU start minus start of the host call; negative only if the clocks disagree." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  event_id AS kernel_id,
  runtime_id,
  launch_api AS api,
  name,
  kind,
  device,
  stream,
  launch_dur_ns AS call_ns,
  dur_ns AS kernel_ns,
  launch_to_start_ns - launch_dur_ns AS return_to_start_ns,
  launch_to_start_ns AS call_to_start_ns
FROM kernels
