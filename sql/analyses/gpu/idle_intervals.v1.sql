-- /// tw
-- kind     = "analysis"
-- name     = "idle_intervals"
-- version  = 1
-- summary  = "Idle intervals of each device: cause, GPU activities before and after, and the call that launched the one after."
-- requires = ["device_gaps@1", "kernels@1", "runtime@1", "events@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device", "start_ns"]
-- per      = "window"
-- order    = ["run_id", "rank", "device", "-idle_ns"]
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- device          = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- start_ns        = { type = "BIGINT", unit = "ts", signed = true, doc = "Start of the gap." }
-- idle_ns         = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Duration of the gap; always positive." }
-- host_ns         = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Until pending work was launched. The four parts sum to idle_ns, unless the cause is graph or unknown: then they are 0." }
-- call_ns         = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Until the launching call returned." }
-- latency_ns      = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "For as long as launches usually take." }
-- queued_ns       = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "The rest." }
-- cause           = { type = "VARCHAR", doc = "The longest part: host, call, latency or queued; graph: between two activities of one graph launch; unknown: the launch of the next activity is missing from the trace (see `device_gaps`)." }
-- before_id       = { type = "BIGINT", unit = "id", doc = "event_id of the GPU activity that ends where the gap begins; if several do, the last in the file." }
-- before_name     = { type = "VARCHAR", null = true, doc = "Name of that activity." }
-- after_id        = { type = "BIGINT", unit = "id", doc = "event_id of the GPU activity that ends the gap." }
-- after_name      = { type = "VARCHAR", null = true, doc = "Name of that activity." }
-- after_stream    = { type = "BIGINT", unit = "id", signed = true, doc = "Its stream; -1 if unknown." }
-- step            = { type = "BIGINT", unit = "id", null = true, doc = "The profiler step in which it was launched." }
-- call_id         = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the host call that launched it; null if unknown." }
-- api             = { type = "VARCHAR", null = true, doc = "Name of that host function." }
-- launch_delay_ns = { type = "BIGINT", unit = "ns", null = true, signed = true, doc = "Start of that call minus start_ns: how long the host kept the device waiting, if positive." }
-- op_id           = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the innermost operator enclosing that call." }
-- op_name         = { type = "VARCHAR", null = true, doc = "Name of that operator." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  gap.run_id,
  gap.rank,
  gap.device,
  gap.start_ns,
  gap.idle_ns,
  gap.host_ns,
  gap.call_ns,
  gap.latency_ns,
  gap.queued_ns,
  gap.cause,
  gap.before_id,
  row_before.name AS before_name,
  gap.after_id,
  row_after.name AS after_name,
  row_after.stream AS after_stream,
  row_after.step,
  row_after.runtime_id AS call_id,
  runtime.name AS api,
  gap.launch_delay_ns,
  row_after.op_id,
  op.name AS op_name
FROM device_gaps AS gap
JOIN kernels AS row_before
  ON row_before.run_id = gap.run_id AND row_before.rank = gap.rank AND row_before.event_id = gap.before_id
JOIN kernels AS row_after
  ON row_after.run_id = gap.run_id AND row_after.rank = gap.rank AND row_after.event_id = gap.after_id
LEFT JOIN runtime
  ON runtime.run_id = row_after.run_id AND runtime.rank = row_after.rank AND runtime.event_id = row_after.runtime_id
LEFT JOIN events AS op
  ON op.run_id = row_after.run_id AND op.rank = row_after.rank AND op.event_id = row_after.op_id
