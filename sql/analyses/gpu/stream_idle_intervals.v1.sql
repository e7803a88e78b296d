-- /// tw
-- kind     = "analysis"
-- name     = "stream_idle_intervals"
-- version  = 1
-- summary  = "Idle intervals of each stream: cause, GPU activities before and after, and the call that launched the one after."
-- requires = ["stream_gaps@1", "kernels@1", "runtime@1", "events@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device", "stream", "start_ns"]
-- per      = "window"
-- order    = ["run_id", "rank", "device", "stream", "-idle_ns"]
--
-- [params]
-- kernel_wait_ns = { type = "BIGINT", default = 30000, unit = "ns", min = 0, doc = "A gap shorter than this is a kernel_wait if the next activity had been launched when the gap began." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- device          = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- stream          = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 if unknown." }
-- start_ns        = { type = "BIGINT", unit = "ts", signed = true, doc = "Start of the gap." }
-- idle_ns         = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Duration of the gap; always positive." }
-- cause           = { type = "VARCHAR", doc = "host_wait: the activity after the gap was launched after the gap began; kernel_wait: it had been launched (possibly before the recording) and the gap is short; other: it had been launched and the gap is not short; unknown: its launch is missing from the trace; before_first: from the start of the device's GPU window to the stream's first activity; after_last: from its last activity to the end of the window." }
-- before_id       = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the GPU activity that ends where the gap begins; if several do, the last in the file. Null before the stream's first activity." }
-- before_name     = { type = "VARCHAR", null = true, doc = "Name of that activity." }
-- after_id        = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the GPU activity that ends the gap; null after the stream's last activity." }
-- after_name      = { type = "VARCHAR", null = true, doc = "Name of that activity." }
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
  gap.stream,
  gap.start_ns,
  gap.idle_ns,
  CASE
    WHEN gap.cause <> 'ready' THEN gap.cause
    WHEN gap.idle_ns < $kernel_wait_ns THEN 'kernel_wait'
    ELSE 'other'
  END AS cause,
  gap.before_id,
  row_before.name AS before_name,
  gap.after_id,
  row_after.name AS after_name,
  row_after.step,
  row_after.runtime_id AS call_id,
  runtime.name AS api,
  gap.launch_delay_ns,
  row_after.op_id,
  op.name AS op_name
FROM stream_gaps AS gap
LEFT JOIN kernels AS row_before
  ON row_before.run_id = gap.run_id AND row_before.rank = gap.rank AND row_before.event_id = gap.before_id
LEFT JOIN kernels AS row_after
  ON row_after.run_id = gap.run_id AND row_after.rank = gap.rank AND row_after.event_id = gap.after_id
LEFT JOIN runtime
  ON runtime.run_id = row_after.run_id AND runtime.rank = row_after.rank AND runtime.event_id = row_after.runtime_id
LEFT JOIN events AS op
  ON op.run_id = row_after.run_id AND op.rank = row_after.rank AND op.event_id = row_after.op_id
