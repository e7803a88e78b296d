-- /// tw
-- kind     = "analysis"
-- name     = "queue_length"
-- version  = 1
-- summary  = "Queue depth of each stream over time: activities launched but not yet started."
-- requires = ["queue_changes@1"]
-- needs    = ["gpu", "launches"]
-- grain    = ["run_id", "rank", "device", "stream", "ts_ns"]
-- order    = ["run_id", "rank", "device", "stream", "ts_ns"]
-- in_order = true
--
-- [columns]
-- run_id       = { type = "VARCHAR", doc = "The run." }
-- rank         = { type = "INTEGER", doc = "The rank." }
-- device       = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- stream       = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 if unknown." }
-- ts_ns        = { type = "BIGINT", unit = "ts", signed = true, doc = "Time of the change: a launching host call or a GPU activity starts." }
-- launched     = { type = "BIGINT", unit = "count", doc = "Activities launched at that moment; a graph launch counts each of its activities. An activity that starts before its call (the clocks disagree) counts as launched when it starts. Activities without a known launch are excluded; queue_length_summary counts them." }
-- started      = { type = "BIGINT", unit = "count", doc = "Activities that start at that moment." }
-- queue_length = { type = "BIGINT", unit = "count", doc = "Queue depth from then on, for dur_ns: activities launched but not yet started." }
-- dur_ns       = { type = "BIGINT", unit = "ns", doc = "Time until the next change of the queue; 0 if there is none." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  counted AS (
    -- The changes come in order, and an empty OVER keeps it: nothing is grouped or sorted again.
    SELECT run_id, rank, device, stream, ts_ns, queue_length, dur_ns, row_number() OVER () AS changes
    FROM queue_changes
  ),
  moment AS (
    -- Launches come before starts: the last change at a moment lasts, or empties the queue. Each stream ends with an
    -- empty queue, so the queue length is also the difference of all launches and starts so far.
    SELECT
      run_id,
      rank,
      device,
      stream,
      ts_ns,
      queue_length,
      dur_ns,
      (changes + queue_length) // 2 AS launched,
      (changes - queue_length) // 2 AS started
    FROM counted
    WHERE dur_ns > 0 OR queue_length = 0
  )
SELECT
  run_id,
  rank,
  device,
  stream,
  ts_ns,
  launched - coalesce(lag(launched) OVER (), 0) AS launched,
  started - coalesce(lag(started) OVER (), 0) AS started,
  queue_length,
  dur_ns
FROM moment
