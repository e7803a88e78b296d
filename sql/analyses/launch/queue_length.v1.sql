-- /// tw
-- kind     = "analysis"
-- name     = "queue_length"
-- version  = 1
-- summary  = "How many GPU rows each stream had been given and had not started, over time."
-- requires = ["queue_changes@1"]
-- needs    = ["gpu", "launches"]
-- grain    = ["run_id", "rank", "device", "stream", "ts_ns"]
-- order    = ["run_id", "rank", "device", "stream", "ts_ns"]
--
-- [columns]
-- run_id       = { type = "VARCHAR", doc = "The run." }
-- rank         = { type = "INTEGER", doc = "The rank." }
-- device       = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 where the trace does not say." }
-- stream       = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 where the trace does not say." }
-- ts_ns        = { type = "BIGINT", unit = "ts", signed = true, doc = "When the queue changes: a host call that launches starts, or a GPU row does." }
-- launched     = { type = "BIGINT", unit = "count", doc = "Rows launched at that moment; each row of a graph launch counts. A row that starts before its call does (the clocks disagree) is launched when it starts; rows without a known launch are in no queue, queue_length_summary counts them." }
-- started      = { type = "BIGINT", unit = "count", doc = "Rows that start at that moment." }
-- queue_length = { type = "BIGINT", unit = "count", doc = "Rows in the queue from then on, until held_ns later: launched and not started." }
-- held_ns      = { type = "BIGINT", unit = "ns", doc = "Time until the queue changes again; 0 where it does not." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  device,
  stream,
  ts_ns,
  count(*) FILTER (change > 0) AS launched,
  count(*) FILTER (change < 0) AS started,
  -- Of the changes of one moment only the last one holds, but for the last of the stream, which leaves nothing.
  sum(CASE WHEN held_ns > 0 THEN queue_length ELSE 0 END)::BIGINT AS queue_length,
  sum(held_ns)::BIGINT AS held_ns
FROM queue_changes
GROUP BY run_id, rank, device, stream, ts_ns
