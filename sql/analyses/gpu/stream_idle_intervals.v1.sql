-- /// tw
-- kind     = "analysis"
-- name     = "stream_idle_intervals"
-- version  = 1
-- summary  = "Each stretch in which a stream stood idle, why, the GPU rows on both sides, and what launched the one after it."
-- requires = ["stream_gaps@1", "kernels@1", "runtime@1", "events@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device", "stream", "start_ns"]
-- order    = ["run_id", "rank", "device", "stream", "-idle_ns"]
--
-- [params]
-- kernel_wait_ns = { type = "BIGINT", default = 30000, unit = "ns", min = 0, doc = "A gap shorter than this, whose next row had been launched when it began, is a kernel_wait." }
--
-- [columns]
-- run_id       = { type = "VARCHAR", doc = "The run." }
-- rank         = { type = "INTEGER", doc = "The rank." }
-- device       = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 where the trace does not say." }
-- stream       = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 where the trace does not say." }
-- start_ns     = { type = "BIGINT", unit = "ts", signed = true, doc = "Where the gap begins." }
-- idle_ns      = { type = "BIGINT", unit = "ns", fold = "sum", better = "lower", doc = "How long it is: never 0." }
-- cause        = { type = "VARCHAR", doc = "host_wait: the row after the gap was launched after the gap had begun; kernel_wait: it had been launched (before the recording counts), and the gap is short; other: it had been launched, and the gap is not short; unknown: its launch is not in the trace; before_first and after_last: from the start of the device's window to the stream's first row, and from its last one to the window's end." }
-- before_id    = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the GPU row that ends where the gap begins; of several the last in the file; null before the stream's first row." }
-- before_name  = { type = "VARCHAR", null = true, doc = "Its name." }
-- after_id     = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the GPU row that ends the gap; null after the stream's last row." }
-- after_name   = { type = "VARCHAR", null = true, doc = "Its name." }
-- step         = { type = "BIGINT", unit = "id", null = true, doc = "The profiler step that it was launched in." }
-- call_id      = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the host call that launched it; null where it is not known." }
-- api          = { type = "VARCHAR", null = true, doc = "The function that the host called." }
-- call_late_ns = { type = "BIGINT", unit = "ns", null = true, signed = true, doc = "Start of that call minus start_ns: how long the host let the device wait, where above 0." }
-- op_id        = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the innermost operator around that call." }
-- op_name      = { type = "VARCHAR", null = true, doc = "Its name." }
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
  gap.call_late_ns,
  row_after.op_id,
  op.name AS op_name
FROM stream_gaps AS gap
LEFT JOIN kernels AS row_before
  ON row_before.run_id = gap.run_id
  AND row_before.rank = gap.rank
  AND row_before.event_id = gap.before_id
LEFT JOIN kernels AS row_after
  ON row_after.run_id = gap.run_id
  AND row_after.rank = gap.rank
  AND row_after.event_id = gap.after_id
LEFT JOIN runtime
  ON runtime.run_id = row_after.run_id
  AND runtime.rank = row_after.rank
  AND runtime.event_id = row_after.runtime_id
LEFT JOIN events AS op
  ON op.run_id = row_after.run_id
  AND op.rank = row_after.rank
  AND op.event_id = row_after.op_id
