-- /// tw
-- kind     = "analysis"
-- name     = "queue_length_summary"
-- version  = 1
-- summary  = "Queue depth statistics of each stream, over its changes and over time."
-- requires = ["kernels@1", "queue_changes@1"]
-- needs    = ["gpu", "launches"]
-- grain    = ["run_id", "rank", "device", "stream"]
-- per      = "window"
-- order    = ["run_id", "rank", "device", "stream"]
--
-- [columns]
-- run_id         = { type = "VARCHAR", doc = "The run." }
-- rank           = { type = "INTEGER", doc = "The rank." }
-- device         = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- stream         = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 if unknown." }
-- launched       = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "GPU activities with a known launch, queued from the start of the host call to their own start; a graph launch counts each of its activities." }
-- launch_unknown = { type = "BIGINT", unit = "count", aggregate = "sum", better = "lower", doc = "GPU activities without a known launch, which are never queued." }
-- span_ns        = { type = "BIGINT", unit = "ns", null = true, doc = "From the first launch to the last start of such an activity: the base of the time-weighted columns. Null, like all columns below, if no launch is known." }
-- queued_ns      = { type = "BIGINT", unit = "ns", aggregate = "sum", null = true, doc = "Total queueing time of all activities: depth times time." }
-- waiting_ns     = { type = "BIGINT", unit = "ns", null = true, doc = "Time with at least one activity in the queue." }
-- waiting        = { type = "DOUBLE", unit = "ratio", null = true, doc = "waiting_ns / span_ns; null if span_ns is 0." }
-- max_length     = { type = "BIGINT", unit = "count", aggregate = "max", null = true, doc = "Maximum queue depth; at the same time, launches come before starts." }
-- change_mean    = { type = "DOUBLE", unit = "count", null = true, doc = "Mean depth after a change; each launch and each start counts once." }
-- change_p50     = { type = "BIGINT", unit = "count", null = true, doc = "Median depth after a change (lower of the two middle values)." }
-- change_p95     = { type = "BIGINT", unit = "count", null = true, doc = "95th percentile of the depth after a change." }
-- change_p99     = { type = "BIGINT", unit = "count", null = true, doc = "99th percentile of the depth after a change." }
-- time_mean      = { type = "DOUBLE", unit = "count", null = true, doc = "Time-weighted mean depth: queued_ns / span_ns; null if span_ns is 0." }
-- time_p50       = { type = "BIGINT", unit = "count", null = true, doc = "Time-weighted median depth: the smallest depth not exceeded for half of the time; null if span_ns is 0." }
-- time_p95       = { type = "BIGINT", unit = "count", null = true, doc = "95th percentile of the depth over time." }
-- time_p99       = { type = "BIGINT", unit = "count", null = true, doc = "99th percentile of the depth over time." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  stream_rows AS (
    SELECT
      run_id,
      rank,
      device,
      stream,
      count(*) FILTER (launch_state = 'known') AS launched,
      count(*) FILTER (launch_state <> 'known') AS launch_unknown
    FROM kernels
    GROUP BY run_id, rank, device, stream
  ),
  so_far AS (
    -- Number of changes, and time, up to each depth, and in total.
    SELECT
      run_id,
      rank,
      device,
      stream,
      queue_length,
      count(*) AS changes,
      sum(dur_ns)::BIGINT AS length_ns,
      sum(count(*)) OVER shorter AS changes_so_far,
      sum(sum(dur_ns)) OVER shorter AS ns_so_far,
      sum(count(*)) OVER of_stream AS all_changes,
      sum(sum(dur_ns)) OVER of_stream AS all_ns
    FROM queue_changes
    GROUP BY run_id, rank, device, stream, queue_length
    WINDOW
      of_stream AS (PARTITION BY run_id, rank, device, stream),
      shorter AS (PARTITION BY run_id, rank, device, stream ORDER BY queue_length)
  ),
  queue AS (
    SELECT
      run_id,
      rank,
      device,
      stream,
      any_value(all_ns)::BIGINT AS span_ns,
      sum(queue_length * length_ns)::BIGINT AS queued_ns,
      coalesce(sum(length_ns) FILTER (queue_length > 0), 0)::BIGINT AS waiting_ns,
      max(queue_length) AS max_length,
      sum(queue_length * changes)::BIGINT / any_value(all_changes)::BIGINT AS change_mean,
      min(queue_length) FILTER (changes_so_far * 100 >= all_changes * 50) AS change_p50,
      min(queue_length) FILTER (changes_so_far * 100 >= all_changes * 95) AS change_p95,
      min(queue_length) FILTER (changes_so_far * 100 >= all_changes * 99) AS change_p99,
      min(queue_length) FILTER (all_ns > 0 AND ns_so_far * 100 >= all_ns * 50) AS time_p50,
      min(queue_length) FILTER (all_ns > 0 AND ns_so_far * 100 >= all_ns * 95) AS time_p95,
      min(queue_length) FILTER (all_ns > 0 AND ns_so_far * 100 >= all_ns * 99) AS time_p99
    FROM so_far
    GROUP BY run_id, rank, device, stream
  )
SELECT
  stream_rows.run_id,
  stream_rows.rank,
  stream_rows.device,
  stream_rows.stream,
  stream_rows.launched,
  stream_rows.launch_unknown,
  queue.span_ns,
  queue.queued_ns,
  queue.waiting_ns,
  queue.waiting_ns / nullif(queue.span_ns, 0) AS waiting,
  queue.max_length,
  queue.change_mean,
  queue.change_p50,
  queue.change_p95,
  queue.change_p99,
  queue.queued_ns / nullif(queue.span_ns, 0) AS time_mean,
  queue.time_p50,
  queue.time_p95,
  queue.time_p99
FROM stream_rows
LEFT JOIN queue USING (run_id, rank, device, stream)
