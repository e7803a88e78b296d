-- /// tw
-- kind     = "analysis"
-- name     = "queue_blocked"
-- version  = 1
-- summary  = "Time during which each stream's queue of launched GPU activities was full, so that the host had to wait."
-- requires = ["kernels@1", "queue_changes@1"]
-- needs    = ["gpu", "launches"]
-- grain    = ["run_id", "rank", "device", "stream"]
-- order    = ["run_id", "rank", "device", "stream"]
--
-- [params]
-- max_length = { type = "BIGINT", default = 1024, unit = "count", min = 1, doc = "Capacity of the queue: it is full at this depth or above." }
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank." }
-- device     = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- stream     = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 if unknown." }
-- span_ns    = { type = "BIGINT", unit = "ns", null = true, doc = "From the first launch to the last start of an activity with a known launch; null if there is none." }
-- blocked_ns = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "Time with a full queue; null if no launch is known." }
-- share      = { type = "DOUBLE", unit = "ratio", better = "lower", null = true, doc = "blocked_ns / span_ns; null if span_ns is 0 or null." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  lane AS (
    SELECT DISTINCT run_id, rank, device, stream
    FROM kernels
  ),
  queue AS (
    SELECT
      run_id,
      rank,
      device,
      stream,
      sum(dur_ns)::BIGINT AS span_ns,
      coalesce(sum(dur_ns) FILTER (queue_length >= $max_length), 0)::BIGINT AS blocked_ns
    FROM queue_changes
    GROUP BY run_id, rank, device, stream
  )
SELECT
  run_id,
  rank,
  device,
  stream,
  queue.span_ns,
  queue.blocked_ns,
  queue.blocked_ns / nullif(queue.span_ns, 0) AS share
FROM lane
LEFT JOIN queue USING (run_id, rank, device, stream)
