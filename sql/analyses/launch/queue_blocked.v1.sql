-- /// tw
-- kind     = "analysis"
-- name     = "queue_blocked"
-- version  = 1
-- summary  = "How long each stream's queue of launched GPU rows was full, so that the host had to wait."
-- requires = ["kernels@1", "queue_changes@1"]
-- needs    = ["gpu", "launches"]
-- grain    = ["run_id", "rank", "device", "stream"]
-- order    = ["run_id", "rank", "device", "stream"]
--
-- [params]
-- max_length = { type = "BIGINT", default = 1024, unit = "count", min = 1, doc = "Rows that the queue holds: it is full at this length or above." }
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank." }
-- device     = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 where the trace does not say." }
-- stream     = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 where the trace does not say." }
-- span_ns    = { type = "BIGINT", unit = "ns", null = true, doc = "From the first launch to the last start of a row whose launch is known; null where none is." }
-- blocked_ns = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "Time with a full queue; null where no launch is known." }
-- share      = { type = "DOUBLE", unit = "ratio", better = "lower", null = true, doc = "blocked_ns over span_ns; null where that is 0 or null." }
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
      sum(held_ns)::BIGINT AS span_ns,
      coalesce(sum(held_ns) FILTER (queue_length >= $max_length), 0)::BIGINT AS blocked_ns
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
