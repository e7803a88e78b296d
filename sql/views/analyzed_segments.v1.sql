-- /// tw
-- kind     = "view"
-- name     = "analyzed_segments"
-- version  = 1
-- summary  = "Segments of `device_segments` within the analyzed interval of each rank: its complete steps, or its GPU window if there are none."
-- requires = ["device_segments@1", "analyzed_intervals@1", "host_stalls@1"]
-- grain    = ["run_id", "rank", "start_ns"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank; ranks without GPU activity have no segments." }
-- start_ns    = { type = "BIGINT", unit = "ts", signed = true, doc = "Start of the segment." }
-- segment_ns  = { type = "BIGINT", unit = "ns", doc = "Duration of the segment; the segments of a rank sum to analyzed_ns." }
-- step        = { type = "BIGINT", unit = "id", null = true, doc = "The step whose period contains the segment; null outside of steps." }
-- kind        = { type = "VARCHAR", doc = "computation, communication, memory, other or idle." }
-- kernel_id   = { type = "BIGINT", unit = "id", null = true, doc = "The GPU activity that the segment is attributed to; null if idle." }
-- cause       = { type = "VARCHAR", null = true, doc = "Idle cause; null if busy. As in `device_segments`, but startup, compilation or allocation where a slice of `host_stalls` covers at least half of a segment that is not sync, dataloader, graph or outside." }
-- wait_id     = { type = "BIGINT", unit = "id", null = true, doc = "The blocking call that delayed the launch, or the slice of `host_stalls` that covers most, of several the first; null for other causes." }
-- after_id    = { type = "BIGINT", unit = "id", null = true, doc = "The GPU activity that ends the gap; null if busy or outside." }
-- gap_ns      = { type = "BIGINT", unit = "ns", null = true, doc = "Duration of the entire gap; null if busy or outside." }
-- steps       = { type = "BIGINT", unit = "count", doc = "Complete steps in the analyzed interval; 0 if there are none." }
-- analyzed_ns = { type = "BIGINT", unit = "ns", doc = "Duration of the analyzed interval." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT
      segment.run_id,
      segment.rank,
      segment.start_ns,
      segment.segment_ns,
      segment.step,
      segment.kind,
      segment.kernel_id,
      segment.cause,
      segment.wait_id,
      segment.after_id,
      segment.gap_ns,
      analyzed.steps,
      analyzed.analyzed_ns
    FROM device_segments AS segment
    JOIN analyzed_intervals AS analyzed USING (run_id, rank)
    WHERE segment.start_ns >= analyzed.start_ns AND segment.start_ns < analyzed.end_ns
  ),
  overlap AS (
    SELECT
      segment.run_id,
      segment.rank,
      segment.start_ns,
      segment.segment_ns,
      work.kind,
      work.event_id,
      work.name,
      work.start_ns AS work_ns,
      least(work.end_ns, segment.start_ns + segment.segment_ns) - greatest(work.start_ns, segment.start_ns) AS overlap_ns
    FROM segment
    JOIN host_stalls AS work
      ON work.run_id = segment.run_id
      AND work.rank = segment.rank
      AND work.start_ns < segment.start_ns + segment.segment_ns
      AND work.end_ns > segment.start_ns
    WHERE segment.cause IN ('host', 'call', 'latency', 'queued', 'unknown')
  ),
  covered AS (
    SELECT
      run_id,
      rank,
      start_ns,
      arg_max(kind, (overlap_ns, -work_ns, name)) AS cause,
      arg_max(event_id, (overlap_ns, -work_ns, name)) AS wait_id
    FROM overlap
    WHERE 2 * overlap_ns >= segment_ns
    GROUP BY run_id, rank, start_ns
  )
SELECT
  segment.run_id,
  segment.rank,
  segment.start_ns,
  segment.segment_ns,
  segment.step,
  segment.kind,
  segment.kernel_id,
  coalesce(covered.cause, segment.cause) AS cause,
  coalesce(covered.wait_id, segment.wait_id) AS wait_id,
  segment.after_id,
  segment.gap_ns,
  segment.steps,
  segment.analyzed_ns
FROM segment
LEFT JOIN covered USING (run_id, rank, start_ns)
