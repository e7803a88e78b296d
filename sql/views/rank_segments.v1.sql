-- /// tw
-- kind     = "view"
-- name     = "rank_segments"
-- version  = 1
-- summary  = "Segments of `device_segments` with what `account_segments` reads of them."
-- requires = ["device_segments@1"]
-- grain    = ["run_id", "rank", "start_ns"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank; ranks without GPU activity have no segments." }
-- start_ns   = { type = "BIGINT", unit = "ts", signed = true, doc = "Start of the segment." }
-- segment_ns = { type = "BIGINT", unit = "ns", doc = "Duration of the segment; always positive. Segments are contiguous." }
-- step       = { type = "BIGINT", unit = "id", null = true, doc = "The step whose period contains the segment; null before the first period and after the last." }
-- kind       = { type = "VARCHAR", doc = "computation, communication, memory, other or idle." }
-- kernel_id  = { type = "BIGINT", unit = "id", null = true, doc = "The GPU activity that the segment is attributed to; null if idle." }
-- cause      = { type = "VARCHAR", null = true, doc = "Idle cause; null if busy." }
-- gap_ns     = { type = "BIGINT", unit = "ns", null = true, doc = "Duration of the entire gap that contains the segment; null if busy or outside." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  start_ns,
  segment_ns,
  step,
  kind,
  kernel_id,
  cause,
  gap_ns
FROM device_segments
